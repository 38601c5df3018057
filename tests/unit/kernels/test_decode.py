"""The kernel that decodes, in JAX's interpreter against the plain form, alone and in a rollout."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from podwright.attention_kernels import Kernel, Layout
from podwright.kernels import decode
from podwright.models import attention
from podwright.train.grpo import program
from tests.unit.train import small

P, K, D = 4, 2, 16
interpreted = functools.partial(decode.attend, interpret=True)


@pytest.mark.brief(2)
@pytest.mark.parametrize(
    ("g", "r", "s", "lengths"),
    [
        (3, 7, 129, (1, 127, 128, 129)),
        (8, 2, 3, (3, 1, 2, 3)),
        (1, 2, 129, (1, 127, 128, 129)),
        (20, 1, 70, (64, 65, 63, 70)),
        (8, 2, 129, (1, 127, 128, 129)),
        (2, 20, 129, (1, 127, 128, 129)),
    ],
)
def test_the_kernel_equals_the_plain_form(g, r, s, lengths):
    """Groups of fewer rows than a product has and of more, blocks that are not full, and a cache with more than has come."""
    rng, t_max = np.random.default_rng(0), 130
    q, k, v = (
        jnp.asarray(rng.normal(size=(P, n, *heads, D)), jnp.float32) for n, heads in ((g, (K, r)), (s, (K,)), (s, (K,)))
    )
    cache = decode.new_cache(k, v, g, t_max)
    later = [jnp.asarray(rng.normal(size=cache.k_PKGTD.shape), jnp.float32) for _ in range(2)]
    cache, lengths = decode.BlockCache(*cache[:2], *later), jnp.array(lengths)
    attend = jax.jit(interpreted)
    for t in (0, 63, 64, 127, 128, t_max - 1):
        ours = attend(attention._scaled(q), cache, lengths, jnp.int32(t))
        prompt, own = (jnp.einsum("pskd->pkds", k), jnp.swapaxes(v, 1, 2)), (jnp.swapaxes(later[0], 3, 4), later[1])
        masks = jnp.arange(s) < lengths[:, None], (jnp.arange(later[0].shape[3]) <= t)[None]
        right = attention.grouped(q[:, :, None], prompt, own, *masks)[:, :, 0]
        np.testing.assert_allclose(ours, right, atol=1e-5)


def test_a_cache_has_a_token_where_the_kernel_reads_it():
    k, v = (jnp.asarray(np.random.default_rng(i).normal(size=(P, 5, K, D)), jnp.float32) for i in (1, 2))
    cache = decode.new_cache(k, v, 3, 70)
    assert cache.k_PKGTD.shape == cache.v_PKGTD.shape == (P, K, 3, 128, D)
    token = [jnp.asarray(np.random.default_rng(i).normal(size=(P, 3, K, D)), jnp.float32) for i in (3, 4)]
    cache = decode.with_token(cache, *token, jnp.int32(69))
    for own, x in zip(cache[2:], token, strict=True):
        np.testing.assert_array_equal(own[:, :, :, 69], jnp.swapaxes(x, 1, 2))
        assert not own[:, :, :, :69].any()


@pytest.mark.parametrize("mesh", [(1, 1, 1), pytest.param((1, 2, 2), marks=pytest.mark.long)])
def test_a_rollout_by_the_kernel_says_what_the_plain_form_says(monkeypatch, mesh):
    """Several completions of each prompt, drawn with one key, until they stop."""
    s = small.setup("model.compute_dtype=float32", "rollout.total_generation_steps=9", mesh=mesh)
    params, prompts = small.params(s), small.prompts(s)
    plain = program.programs(s)["rollout"](params, *prompts, np.int32(0))
    calls = []

    def counted(*arrays):
        calls.append(arrays[0].shape)
        return interpreted(*arrays)

    chosen = {Layout.DECODE: Kernel.TRITON}
    monkeypatch.setattr(attention, "kernel_for", lambda mesh, heads, layout: chosen.get(layout, Kernel.PLAIN))
    monkeypatch.setattr(decode, "attend", counted)
    ours = program.programs(s)["rollout"](params, *prompts, np.int32(0))
    assert set(calls) == {(8 // mesh[1], 4, 2 // mesh[2], 2, 16)}, "the prompts and heads of a device"
    np.testing.assert_array_equal(ours.tokens_PGT, plain.tokens_PGT)
    np.testing.assert_allclose(ours.logps_PGT, plain.logps_PGT, atol=1e-4)
    assert len(np.unique(ours.tokens_PGT)) > 10 and np.asarray(ours.stopped_PG).any()


def test_more_query_heads_than_the_kernel_was_compiled_for_are_decoded_by_the_plain_form(monkeypatch):
    monkeypatch.setattr(attention, "kernel_for", lambda *_: Kernel.TRITON)
    assert [attention.decodes_by_kernel(None, None, r) for r in (1, 64, 65)] == [True, True, False]
