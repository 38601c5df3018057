"""The TPU kernel's program, run by JAX's interpreter, against the plain form; and that a TPU, and only a TPU, gets it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import topologies

from podwright.attention_kernels import Kernel
from podwright.kernels import splash
from podwright.models import attention, qwen3
from podwright.recipe import schema
from podwright.recipe.models import Qwen3Dims
from podwright.train.grpo import program
from podwright.train.mesh import make_mesh
from tests.unit.train import small

P, S, G, T, K, R, D = 2, 128, 2, 128, 2, 2, 128
SHORT = 37  # tokens of the second prompt
kernel = functools.partial(attention.splash_groups, interpret=True)


def arrays(dtype, s=S, t=T):
    rng = np.random.default_rng(0)
    n = s + G * t
    return [jnp.asarray(rng.normal(size=shape), dtype) for shape in [(P, n, K, R, D), (P, n, K, D), (P, n, K, D)]]


def real(s=S, t=T):
    """Tokens that are not prompt padding, [P, N, 1, 1, 1]. What attention gives the others is never used."""
    return np.concatenate([np.arange(s) < np.array([[s], [SHORT]]), np.ones((P, G * t), bool)], axis=1)[
        :, :, None, None, None
    ]


def run(form, values, s=S, t=T):
    """Output and gradients of q, k and v, with cotangents at the real tokens only."""
    weight = np.random.default_rng(9).normal(size=values[0].shape) * real(s, t)

    def total(q, k, v):
        out = form(q, k, v, jnp.array([s, SHORT]), s=s, g=G)
        return (out.astype(jnp.float32) * weight).sum(), out

    (_, out), grads = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True))(*values)
    return [np.where(real(s, t), out.astype(jnp.float32), 0), *(np.asarray(g, np.float32) for g in grads)]


@pytest.mark.brief(1)
@pytest.mark.parametrize(("t", "most"), [(72, 512), (180, 128)])
def test_the_kernel_equals_the_plain_form(monkeypatch, t, most):
    """Neither length fills its blocks; once with one block a sequence and once with several."""
    monkeypatch.setattr(splash, "MOST_QUERIES", most)
    monkeypatch.setattr(splash, "MOST_KEYS", most)
    values = arrays(jnp.float32, 100, t)
    for ours, plain in zip(run(kernel, values, 100, t), run(attention.plain_groups, values, 100, t), strict=True):
        np.testing.assert_allclose(ours, plain, atol=1e-5 * max(1, np.abs(plain).max()))


@pytest.mark.long
def test_in_bfloat16_it_is_as_close_to_float32_as_the_plain_form():
    values = arrays(jnp.bfloat16)
    exact = run(attention.plain_groups, [x.astype(jnp.float32) for x in values])
    for ours, plain, right in zip(run(kernel, values), run(attention.plain_groups, values), exact, strict=True):
        assert np.abs(ours - right).mean() < 1.2 * np.abs(plain - right).mean()


def test_a_token_sees_its_prompt_and_its_own_completion_so_far():
    forward = jax.jit(lambda *values: kernel(*values, jnp.array([S, SHORT]), s=S, g=G))
    q, k, v = arrays(jnp.float32)
    before = np.asarray(forward(q, k, v))
    padding = ~real()[..., 0]
    other = np.asarray(forward(q, jnp.where(padding, 50, k), jnp.where(padding, -50, v)))
    np.testing.assert_array_equal(np.where(real(), before, 0), np.where(real(), other, 0))
    n = S + 50  # a token of the first completion: what comes after it in the same completion sees it, nothing else does
    after = np.asarray(forward(*(x.at[:, n].add(3.0) for x in (q, k, v))))
    same = (before == after).all((0, 2, 3, 4))
    assert [m for m in range(S + G * T) if not same[m]] == list(range(n, S + T))


def test_the_program_is_one_that_a_tpu_compiler_takes():
    values = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays(jnp.bfloat16)]

    def total(q, k, v):
        return attention.splash_groups(q, k, v, jnp.array([S, SHORT]), s=S, g=G).astype(jnp.float32).sum()

    text = jax.jit(jax.grad(total, argnums=(0, 1, 2))).trace(*values).lower(lowering_platforms=("tpu",)).as_text()
    assert (
        text.count("@tpu_custom_call") == 6
    )  # prompts and completions: forward, queries' gradient, keys' and values' gradient


@pytest.mark.brief(1)
@pytest.mark.parametrize(("head_dim", "calls"), [(128, (1, 2, 8)), (64, (0, 0, 0))])
def test_every_program_for_a_tpu_has_the_kernel(monkeypatch, head_dim, calls):
    """The mesh's devices decide, also those of a machine that is not here. An update runs the forward kernels twice."""
    pytest.importorskip("libtpu")
    for name, value in {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }.items():
        monkeypatch.setenv(name, value)
    devices = list(topologies.get_topology_desc(platform="tpu", topology_name="v6e:2x2").devices)
    dims = Qwen3Dims(64, 128, 9, 4, 2, head_dim, 128, True)
    setup = program.GrpoSetup(
        small.recipe("model.remat=layer"),
        dims,
        make_mesh(schema.GrpoMesh(fsdp=2, tensor=2), devices),
        small.STOP,
        small.PAD,
    )
    made = program.programs(setup)
    assert (
        tuple(made[name].lower().as_text().count("@tpu_custom_call") for name in ("rollout", "score", "update"))
        == calls
    )


@pytest.mark.long
def test_the_model_says_the_same_with_the_kernel(monkeypatch):
    """With shards, layers and recomputation around it: log-probabilities and gradients of the policy."""
    dims = Qwen3Dims(32, 64, 1, 4, 2, 128, 96, True)
    s = small.setup("model.compute_dtype=float32", "model.remat=layer", mesh=(2, 2, 2), dims=dims)
    params, rng = small.params(s, scale=3.0), np.random.default_rng(0)
    group = qwen3.Group(
        *(jnp.asarray(x) for x in (rng.integers(3, 96, (4, 6)), np.array([6, 2, 5, 3]), rng.integers(3, 96, (4, 2, 8))))
    )

    def log_probabilities_and_gradients():
        def total(params):
            logps = s.logprobs(params, group, 1.0)[0]
            return (logps * np.random.default_rng(1).normal(size=logps.shape)).sum(), logps

        (_, logps), grads = jax.jit(jax.value_and_grad(total, has_aux=True))(params)
        return logps, grads

    plain, plain_grads = log_probabilities_and_gradients()
    monkeypatch.setattr(attention, "kernel_for", lambda *_: Kernel.SPLASH)
    monkeypatch.setattr(attention, "splash_groups", kernel)
    ours, grads = log_probabilities_and_gradients()
    assert not np.array_equal(ours, plain)  # another form did run
    np.testing.assert_allclose(ours, plain, atol=2e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5 * np.abs(b).max()), grads, plain_grads)


@pytest.mark.parametrize(
    ("length", "most", "blocks", "size"),
    [(8, 512, 1, 128), (2304, 1024, 3, 768), (2048, 512, 4, 512), (1300, 1024, 2, 768)],
)
def test_blocks_cover_a_length_with_little_padding(length, most, blocks, size):
    assert splash._block(length, most) == size
    assert (blocks - 1) * size < length <= blocks * size


def test_what_the_kernel_gave_can_be_kept_by_its_name(capsys):
    """Its output and the logarithms of its sums: all that its backward pass needs of it, so that it does not run again."""
    x = jnp.ones((1, 256, 2, 1, 128), jnp.bfloat16)

    def run(q, k, v):
        return splash.causal(jnp.sin(q), k[:, :, :, 0], v[:, :, :, 0], interpret=True).astype(jnp.float32).sum()

    def kept(*names):
        policy = jax.checkpoint_policies.save_only_these_names(*names)
        jax.ad_checkpoint.print_saved_residuals(jax.checkpoint(run, policy=policy), x, x, x)
        return [line.split()[0] for line in capsys.readouterr().out.splitlines() if "splash_attention_kernel" in line]

    assert kept() == [] and sorted(kept(splash.KEPT)) == ["bf16[1,2,256,128]", "f32[1,2,256]"]
