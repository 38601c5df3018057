"""Counts of the hybrids, held against published ones."""

import dataclasses

import pytest

from podwright.recipe.hybrid import MODELS, HybridDims, Kda

ALMODEL = MODELS["almodel-8b"]


def low_rank(dims: HybridDims) -> HybridDims:
    assert dims.kda
    return dataclasses.replace(dims, kda=dataclasses.replace(dims.kda, gate="softplus", gate_rank=128))


@pytest.mark.parametrize(
    ("dims", "total", "active", "train_4096", "train_8192"),
    [(ALMODEL, 19.06, 3.24, 20.17, 20.72), (low_rank(ALMODEL), 18.81, 3.00, 18.69, 19.24)],
    ids=["full-rank gates", "low-rank gates"],
)
def test_counts_of_almodel(dims: HybridDims, total: float, active: float, train_4096: float, train_8192: float) -> None:
    assert dims.num_params() / 1e9 == pytest.approx(total, abs=0.01)
    assert dims.num_active_params() / 1e9 == pytest.approx(active, abs=0.01)
    assert 3e-9 * dims.forward_flops(1, 2048) == pytest.approx(train_4096, abs=0.01)
    assert 3e-9 * dims.forward_flops(1, 4096) == pytest.approx(train_8192, abs=0.01)


def test_deepseek_v3_has_671_billion_parameters_and_37_active() -> None:
    dims = MODELS["deepseek-v3"]
    assert dims.num_params() / 1e9 == pytest.approx(671.0, abs=0.1)  # arXiv 2412.19437
    assert dims.num_active_params() / 1e9 == pytest.approx(37, abs=0.5)


def test_every_fourth_layer_of_almodel_is_mla() -> None:
    assert [i for i in range(28) if not isinstance(ALMODEL.attention(i), Kda)] == [3, 7, 11, 15, 19, 23, 27]
