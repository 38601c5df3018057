"""One step of pretraining: sharded equals unsharded, micro-batches equal the whole, documents of a row are strangers to each other."""

import functools
import math

import jax
import numpy as np
import pytest

from podwright.models import hybrid
from podwright.recipe import load, pretrain
from podwright.recipe.hybrid import HybridDims, Kda, Mla, Moe, Yarn
from podwright.recipe.models import Qwen3Dims
from podwright.rundir import RunDir
from podwright.train import checkpoint
from podwright.train.mesh import gather, make_mesh, token_sharding
from podwright.train.pretrain import feed, program
from podwright.train.pretrain.program import PretrainBatch, PretrainSetup
from podwright.train.run_storage import RunStorage

# two groups: one written out, with a dense layer, and one scanned
DIMS = HybridDims(
    32,
    4,
    96,
    64,
    1,
    Mla(4, 16, 16, 16, 8, 16, 5e4, Yarn(4, 32, 1.0, 1.0)),
    Moe(8, 2, 32, 1, 2.827),
    Kda(4, 16, "bounded", 0),
    2,
)
SMALL = [
    "batch_size=8",
    "sequence_length=64",
    "optimizer.warmup_ratio=0.0",
    "optimizer.learning_rate=0.01",
    "training.max_steps=10",
]


def setup(*overrides, mesh=(1, 1, 1, 1, 1), dims=DIMS):
    devices = jax.devices()[: math.prod(mesh)]
    want = pretrain.PretrainMesh(**dict(zip(pretrain.PretrainMesh.model_fields, mesh, strict=True)))
    return PretrainSetup(load.load("almodel-tiny", [*SMALL, *overrides]), dims, make_mesh(want, devices))


def rows(s, seed=0):
    """Random tokens in documents of random lengths, the last of each row padded."""
    rng = np.random.default_rng(seed)
    b, n = s.recipe.batch_size, s.recipe.sequence_length
    tokens = rng.integers(0, s.dims.vocab_size, (b, n + 1)).astype(np.int32)
    starts = rng.random((b, n + 1)) < 0.06
    starts[:, 0] = True
    starts[::2, n // 2] = True  # where parts of a row meet
    starts[1::2, n // 4 - 1 : 3 * n // 4] = False
    segments = starts.cumsum(1).astype(np.int32)
    segments[:, -7:] = 0
    first = np.maximum.accumulate(np.where(starts, np.arange(n + 1), 0), 1)
    positions = (np.arange(n + 1) - first).astype(np.int32)
    counts = (segments[:, 1:] == segments[:, :-1]) & (segments[:, :-1] > 0)
    return tokens[:, :-1], np.where(counts, tokens[:, 1:], -1), positions[:, :-1], segments[:, :-1]


def batch(s, seed=0):
    return PretrainBatch(*(jax.device_put(np.ascontiguousarray(x), token_sharding(s.mesh)) for x in rows(s, seed)))


QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}  # to compile; what is computed is the same


@functools.cache
def programs(s):
    """Compiled once for all tests, when first called."""
    return {
        name: functools.cache(lambda one=one: one.lower().compile(compiler_options=QUICK))
        for name, one in program.programs(s).items()
    }


def rate(s, number):
    return np.float32(program.schedule(s.recipe)(number))


def run(s, steps=2):
    made, state, trace = programs(s), program.new_state(s), []
    for i in range(steps):
        state, figures = made["update"]()(state, batch(s, i), rate(s, i))
        trace.append([float(figures[name]) for name in sorted(figures)])
    return np.array(trace), jax.tree.map(lambda x: gather(x), (state.params, state.bias_LX))


def alike(params, others):
    """Leaf by leaf; of a weight that has hardly any gradient Adam takes little but the sign, so single ones may differ."""

    def one(a, b):
        assert np.linalg.norm(a - b) <= 1e-3 * np.linalg.norm(b), np.linalg.norm(a - b) / np.linalg.norm(b)

    jax.tree.map(one, params, others)


@pytest.fixture(scope="module")
def unsharded():
    return run(setup())


MESHES = [
    pytest.param((1, 2, 1, 2, 2), "products", marks=pytest.mark.long),
    pytest.param((1, 2, 4, 1, 1), "layer", marks=pytest.mark.long),
    pytest.param((1, 8, 1, 1, 1), "layer", marks=pytest.mark.long),
    pytest.param((2, 2, 1, 1, 2), "products", marks=pytest.mark.long),
    pytest.param((1, 2, 1, 4, 1), "none", marks=pytest.mark.long),
    pytest.param((1, 1, 2, 2, 2), "products", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("mesh", "remat"), MESHES, ids=str)
def test_sharded_and_recomputed_equals_unsharded(unsharded, mesh, remat):
    trace, (params, bias) = run(setup(f"model.remat={remat}", mesh=mesh))
    np.testing.assert_allclose(trace, unsharded[0], rtol=1e-3)
    np.testing.assert_array_equal(bias, unsharded[1][1])
    alike(params, unsharded[1][0])


@pytest.mark.long
def test_micro_batches_equal_the_whole(unsharded):
    trace, (params, bias) = run(setup("training.gradient_accumulation_steps=4", mesh=(1, 2, 1, 1, 1)))
    np.testing.assert_allclose(trace, unsharded[0], rtol=1e-3)
    np.testing.assert_array_equal(bias, unsharded[1][1])
    alike(params, unsharded[1][0])


@pytest.mark.parametrize("optimizer", ["muon", pytest.param("adamw", marks=pytest.mark.long)])
def test_a_dense_model_sharded_and_in_micro_batches_equals_unsharded(optimizer):
    dims = Qwen3Dims(32, 64, 2, 4, 2, 16, 96, True)
    name = f"optimizer.name={optimizer}"
    trace, (params, bias) = run(setup(name, dims=dims))
    overrides = (name, "model.remat=products", "training.gradient_accumulation_steps=2")
    sharded = run(setup(*overrides, mesh=(2, 2, 1, 1, 2), dims=dims))
    np.testing.assert_allclose(sharded[0], trace, rtol=1e-3)
    alike(sharded[1][0], params)
    assert bias is None and trace[1, 1] < trace[0, 1]  # grad_norm, loss, target_tokens


def test_a_state_without_experts_is_kept_and_found_again(tmp_path):
    s = setup(dims=Qwen3Dims(32, 64, 2, 4, 2, 16, 96, True), mesh=(1, 2, 1, 1, 1))
    state = program.new_state(s)
    with checkpoint.Checkpoints(RunStorage(RunDir(tmp_path)), 1) as kept:
        kept.save(3, state, {"step": 3})
    with checkpoint.Checkpoints(RunStorage(RunDir(tmp_path)), 1) as kept:
        found = kept.restore(program.abstract_state(s)).state
    assert found.bias_LX is None
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(gather(a), gather(b)), found, state)


@pytest.mark.long
def test_a_model_begins_at_the_entropy_of_its_vocabulary_and_learns_what_it_sees_again():
    s = setup()
    made, state = programs(s), program.new_state(s)
    losses = []
    for i in range(8):
        state, figures = made["update"]()(state, batch(s), rate(s, i))
        losses.append(float(figures["loss"]))
    assert losses[0] == pytest.approx(math.log(DIMS.vocab_size), abs=0.1) and losses[-1] < losses[0] - 0.5
    total, count = made["evaluate"]()(state.params, state.bias_LX, batch(s))
    assert int(count) == int(figures["target_tokens"]) and float(total) / int(count) < losses[-1] + 0.1


def test_the_declared_weights_are_those_that_are_counted():
    for dims in (DIMS, setup().dims, load_dims("almodel-tiny")):
        leaves = jax.tree.leaves(hybrid.declare(dims), is_leaf=lambda x: hasattr(x, "axes"))
        assert sum(math.prod(p.shape) for p in leaves) == dims.num_params()


def test_the_loss_without_context_is_the_entropy_of_frequencies():
    half, quarter = math.log(2) / 2, math.log(4) / 4
    assert feed.unigram_entropy(np.bincount([5, 7, 5, 300])) == pytest.approx(half + 2 * quarter)


def load_dims(name):
    from podwright.recipe.hybrid import find

    return find(name)


def test_documents_of_a_row_are_strangers_and_the_past_does_not_see_the_future():
    s = setup()
    params, bias = program.new_state(s).params, hybrid.new_bias(s.dims)
    tokens, _, positions, segments = rows(s)

    @jax.jit
    def hidden(tokens):
        return hybrid.hidden(s.dims, params, bias, tokens, positions, segments, np.float32, "none", s.mesh)[0]

    before = hidden(tokens)
    changed = tokens.copy()
    changed[:, 30] = (changed[:, 30] + 1) % s.dims.vocab_size
    moved = np.abs(np.asarray(hidden(changed) - before)).max(-1) > 1e-6
    same = (segments == segments[:, 30:31]) & (np.arange(64) >= 30)
    assert not moved[~same].any() and moved[same].mean() > 0.9


@pytest.mark.long
def test_the_bias_goes_against_the_load():
    s = setup()
    state, _ = programs(s)["update"]()(program.new_state(s), batch(s), rate(s, 0))
    moved = np.asarray(state.bias_LX)
    assert set(np.unique(np.round(np.abs(moved), 6))) <= {0.0, np.float32(0.001).round(6)} and (moved != 0).mean() > 0.8


def test_the_fullest_expert_is_held_against_the_mean_of_its_own_layer(monkeypatch):
    s = setup()
    load = np.array([[8, 2, 2, 2, 2, 0, 0, 0], [2] * 8, [3, 1] * 4], np.float32)
    monkeypatch.setattr(program, "_loss", lambda setup, params, bias, batch: (params["w"], load))
    monkeypatch.setattr(program.optimizer, "apply", lambda tx, grads, state, params: (params, state, 0.0))
    state = program.PretrainState({"w": np.float32(1)}, None, np.zeros_like(load))
    with jax.disable_jit():
        _, figures = program._update(s)(state, batch(s), np.float32(0))
    assert (float(figures["expert_load_max"]), int(figures["dead_experts"])) == (4.0, 3)


@pytest.mark.long
def test_adamw_trains_too():
    trace, _ = run(setup("optimizer.name=adamw", "optimizer.learning_rate=0.003"))
    assert np.isfinite(trace).all() and trace[1, 0] < math.log(DIMS.vocab_size) + 0.2
