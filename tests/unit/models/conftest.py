import pytest

from podwright.recipe import schema
from podwright.train.mesh import make_mesh


@pytest.fixture(scope="session")
def one_device():
    import jax

    return make_mesh(schema.GrpoMesh(), jax.devices()[:1])
