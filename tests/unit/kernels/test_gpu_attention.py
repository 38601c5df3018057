"""Attention on GPUs: the table, the layouts its kernels are given, and these against the plain form, on a CPU with the plain form as their kernel."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from podwright.attention_kernels import HeadDims, Kernel, Layout, Versions, choose
from podwright.kernels import cudnn, mosaic
from podwright.models import attention

K, R, D = 2, 2, 8
NEW = Versions((0, 11, 2), (9, 19, 0), (0, 0, 17))
OLD = NEW._replace(jax=(0, 10, 2))
WIDE, MLA = HeadDims(128, 128), HeadDims(192, 128)


@pytest.mark.parametrize(
    ("generation", "heads", "layouts", "versions"),
    [
        ((9, 0), WIDE, ("cudnn", "cudnn", "mosaic", "triton"), NEW),
        ((9, 0), WIDE, ("cudnn", "cudnn", "cudnn-offsets", "triton"), NEW._replace(tokamax=())),
        (
            (9, 0),
            WIDE,
            ("cudnn", "cudnn", "cudnn-mask", "triton"),
            OLD._replace(tokamax=()),
        ),  # grouped heads with offsets are wrong there
        ((9, 0), MLA, ("cudnn", "cudnn", "cudnn-offsets", "plain"), NEW),
        ((10, 0), WIDE, ("cudnn", "cudnn", "mosaic", "triton"), NEW),
        ((8, 0), WIDE, ("cudnn", "cudnn", "cudnn-mask", "triton"), NEW),
        (
            (12, 0),
            WIDE,
            ("cudnn", "cudnn", "cudnn-mask", "triton"),
            NEW,
        ),  # RTX cards of Blackwell: neither tokamax's kernel nor heads of 192
        ((12, 0), MLA, ("plain", "plain", "plain", "plain"), NEW),
        ((8, 9), WIDE, ("cudnn", "cudnn", "cudnn-mask", "triton"), OLD),
        ((8, 0), MLA, ("plain", "plain", "plain", "plain"), NEW),
        ((7, 5), WIDE, ("plain", "plain", "plain", "plain"), NEW),
        ((9, 0), HeadDims(128, 128, "float32"), ("plain", "plain", "plain", "plain"), NEW),
        ((9, 0), HeadDims(100, 100), ("plain", "plain", "plain", "plain"), NEW),
        ((9, 0), WIDE, ("plain", "plain", "plain", "triton"), NEW._replace(cudnn=())),
        ((9, 0), HeadDims(256, 256), ("cudnn", "cudnn", "mosaic", "plain"), NEW),
        (None, WIDE, ("plain", "plain", "plain", "plain"), NEW),
    ],
)
def test_the_table_of_gpus(generation, heads, layouts, versions):
    assert tuple(choose("gpu", generation, heads, layout, versions) for layout in Layout) == layouts


@pytest.mark.parametrize("layout", Layout)
def test_tpus_and_cpus_have_what_they_had(layout):
    fast = Kernel.PLAIN if layout is Layout.DECODE else Kernel.SPLASH
    for v_dim in (128, 256):
        assert choose("tpu", None, HeadDims(192, v_dim), layout, OLD) is fast
    assert choose("tpu", None, WIDE, layout, NEW) is fast
    assert choose("tpu", None, HeadDims(64, 64), layout, NEW) is Kernel.PLAIN
    assert choose("cpu", None, WIDE, layout, NEW) is Kernel.PLAIN


GENERATIONS = ((7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0))


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("heads", [WIDE, MLA, HeadDims(64, 64), HeadDims(256, 256)])
def test_documents_keep_their_mask_and_old_jax_gets_no_offsets(generation, heads):
    for jax_version in ((0, 10, 2), (0, 11, 1), (0, 11, 2), (0, 12, 0)):
        for tokamax in ((), NEW.tokamax):
            chosen = choose("gpu", generation, heads, Layout.PACKED, Versions(jax_version, NEW.cudnn, tokamax))
            assert chosen is not Kernel.CUDNN, "its causal form knows no documents"
            assert chosen is not Kernel.CUDNN_OFFSETS or jax_version >= (0, 11, 2)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_devices_that_are_compiled_for_decide_not_those_of_this_machine(monkeypatch, generation):
    monkeypatch.setattr(attention, "versions", lambda: NEW)
    card = SimpleNamespace(platform="gpu", compute_capability="{}.{}".format(*generation))
    mesh = SimpleNamespace(devices=np.array([card], object))
    for layout in Layout:
        assert attention.kernel_for(mesh, WIDE, layout) is choose("gpu", generation, WIDE, layout, NEW)


def arrays(b, n, seed=0, v_dim=D, dtype=jnp.float32):
    rng = np.random.default_rng(seed)
    shapes = (b, n, K, R, D), (b, n, K, D), (b, n, K, v_dim)
    return [jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes]


def results(form, values, weight):
    """Output where `weight` is, and gradients of q, k and v with cotangents `weight`."""

    def total(*values):
        out = form(*values)
        return (out * weight).sum(), out

    (_, out), grads = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True))(*values)
    return [np.where(weight != 0, out, 0), *map(np.asarray, grads)]


def assert_alike(ours, right):
    for a, b in zip(ours, right, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * max(1, np.abs(b).max()))


@pytest.mark.brief(4)
@pytest.mark.parametrize("t", [1, 127, 128, 129])
@pytest.mark.parametrize("lengths", [(40, 7, 1), (40, 40, 39)])
def test_completions_behind_their_prompts_are_rows_of_causal_attention(t, lengths):
    s, g, lengths = 40, 3, np.array(lengths)
    values = arrays(len(lengths), s + g * t)
    real = np.concatenate([np.arange(s) < lengths[:, None], np.ones((len(lengths), g * t), bool)], axis=1)
    weight = np.random.default_rng(1).normal(size=values[0].shape) * real[:, :, None, None, None]
    rows = functools.partial(attention.groups_as_rows, attend=attention.plain_packed_groups)
    forms = (
        functools.partial(form, lengths_P=jnp.asarray(lengths), s=s, g=g) for form in (rows, attention.plain_groups)
    )
    assert_alike(*(results(form, values, weight) for form in forms))


def documents(b, n, *lengths):
    """Segment ids of rows that begin with documents of these lengths; the rest of a row is one document."""
    ids = np.ones((b, n), np.int32)
    for row, of_row in zip(ids, lengths, strict=True):
        for i, end in enumerate(np.cumsum(of_row)):
            row[end:] = i + 2
    return jnp.asarray(ids)


def read_offsets(q, k, v, q_seqlen, kv_seqlen, q_offsets, kv_offsets, scale):
    """What jax's documentation says of packed offsets, document by document: the definition, in NumPy."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    out = np.full((*q.shape[:3], v.shape[3]), np.nan)
    repeats = q.shape[2] // k.shape[2]
    for row in range(len(q)):
        for length, length_k, begin, begin_k in zip(
            *(np.asarray(x)[row] for x in (q_seqlen, kv_seqlen, q_offsets[:, :-1], kv_offsets[:, :-1])), strict=True
        ):
            assert (length < 0) == (begin < 0)
            for i in range(max(length, 0)):
                for head in range(q.shape[2]):
                    keys = k[row, begin_k : begin_k + min(i + 1, length_k), head // repeats]
                    scores = keys @ q[row, begin + i, head] * scale
                    share = np.exp(scores - scores.max())
                    values = v[row, begin_k : begin_k + min(i + 1, length_k), head // repeats]
                    out[row, begin + i, head] = share @ values / share.sum()
    return out


def in_xla(q, k, v, *, scale, is_causal, implementation, mask=None):
    """jax's own attention, which is the definition of what its cuDNN form computes."""
    assert is_causal and implementation == "cudnn" and q.shape[1] % 2 == 0, "jax refuses gradients of an odd length"
    out = DOT_PRODUCT_ATTENTION(q, k, v, mask=mask, scale=scale, is_causal=True, implementation="xla")
    # a query without keys has no result
    return out if mask is None else jnp.where(mask.any(-1)[:, 0, :, None, None], out, jnp.nan)


DOT_PRODUCT_ATTENTION = jax.nn.dot_product_attention


def within(first, q, k, v, scale):
    """Query n of a row sees the keys from number first[n] on up to its own; heads that share keys follow one another."""
    place = jnp.arange(q.shape[1])
    mask = (place >= first[:, :, None]) & (place <= place[:, None])
    return DOT_PRODUCT_ATTENTION(q, k, v, mask=mask[:, None], scale=scale, implementation="xla")


def by_offsets(q, k, v, *, q_seqlen, kv_seqlen, q_offsets, kv_offsets, scale, mask_type):
    """What jax's cuDNN form computes of packed documents, as `read_offsets` but with a gradient; offsets of queries and keys are alike."""
    assert q_seqlen is kv_seqlen and q_offsets is kv_offsets
    place = jnp.arange(q.shape[1])
    ends = jnp.where(q_seqlen < 0, len(place), q_offsets[:, :-1] + q_seqlen)
    number = (place[:, None] >= ends[:, None]).sum(-1)
    first = jnp.take_along_axis(q_offsets, jnp.minimum(number, q_seqlen.shape[1] - 1), axis=1)
    return within(first, q, k, v, scale)


def by_tokamax(q, k, v, *, logits_scale, mask):
    assert mask.is_causal
    return within(mask.k_start[:, 0], q, k, v, logits_scale)


@pytest.fixture
def kernel(request, monkeypatch):
    """A row of the table on this CPU: the kernel's own call is replaced by its definition in XLA, and all around it is ours."""
    from jax._src.cudnn import fused_attention_stablehlo as private

    monkeypatch.setattr(jax.nn, "dot_product_attention", in_xla)
    monkeypatch.setattr(private, "dot_product_attention", by_offsets)
    monkeypatch.setattr(mosaic, "load", lambda: (lambda **given: SimpleNamespace(**given), lambda: by_tokamax))
    monkeypatch.setattr(attention, "kernel_for", lambda *_: request.param)
    return request.param


CASES = [
    (Kernel.CUDNN, Layout.CAUSAL),
    (Kernel.CUDNN, Layout.GROUPS),
    (Kernel.CUDNN_OFFSETS, Layout.PACKED),
    (Kernel.CUDNN_MASK, Layout.PACKED),
    (Kernel.MOSAIC, Layout.PACKED),
]
LENGTHS = [1, 127, 128, 129, pytest.param(4096, marks=pytest.mark.long)]


def both_forms(layout, n, dtype):
    """(the chosen kernel's results, those of the plain form in float32) for rows of `n` tokens, or completions of so many."""
    b = 1 if n > 1000 else 2  # scores of 4096 tokens are large
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "fsdp"))
    if layout is Layout.GROUPS:
        s, g, lengths = 40, 2, jnp.array([7, 40][:b])
        values = arrays(b, s + g * n, dtype=dtype)
        real = np.concatenate([np.arange(s) < np.asarray(lengths)[:, None], np.ones((b, g * n), bool)], axis=1)
        ours = functools.partial(attention.of_groups, mesh, lengths_P=lengths, s=s, g=g)
        plain = functools.partial(attention.plain_groups, lengths_P=lengths, s=s, g=g)
    else:
        values = arrays(b, n, dtype=dtype)
        real = np.ones((b, n), bool)
        ids = documents(b, n, *((1, n // 3, 2), (n // 2,))[:b]) if layout is Layout.PACKED else None
        ours = functools.partial(attention.packed_groups, mesh, segment_ids_BN=ids)
        plain = functools.partial(attention.plain_packed_groups, segment_ids_BN=ids)
    weight = np.random.default_rng(1).normal(size=values[0].shape) * real[:, :, None, None, None]
    return results(ours, values, weight), results(plain, [x.astype(jnp.float32) for x in values], weight)


@pytest.mark.parametrize(("kernel", "layout"), CASES, indirect=["kernel"])
@pytest.mark.parametrize("n", LENGTHS)
def test_a_kernel_gives_what_the_plain_form_gives(kernel, layout, n):
    assert_alike(*both_forms(layout, n, jnp.float32))


@pytest.mark.brief(4)
@pytest.mark.parametrize("n", [129, 1, 127, 128, 4096])
@pytest.mark.parametrize(("kernel", "layout"), CASES, indirect=["kernel"])
def test_in_bfloat16_it_is_near_the_plain_form_in_float32(kernel, layout, n):
    for ours, right in zip(*both_forms(layout, n, jnp.bfloat16), strict=True):
        assert np.linalg.norm(np.float32(ours) - right) <= 2e-2 * max(np.linalg.norm(right), 1e-9)


@pytest.mark.parametrize("layout", [Layout.CAUSAL, Layout.GROUPS, Layout.PACKED])
def test_the_plain_form_is_the_definition_of_its_mask(layout):
    """Query by query, in NumPy: grouped heads, documents of odd lengths, completions behind a prompt that is not full."""
    s, g, t, length = 5, 2, 4, 3
    n = s + g * t
    values = arrays(1, n)
    q, k, v = (np.asarray(x, np.float64)[0] for x in values)
    ids = np.array([0] * 4 + [1] + [2] * (n - 5))
    if layout is Layout.GROUPS:
        ours = attention.plain_groups(*values, jnp.array([length]), s=s, g=g)
    else:
        ours = attention.plain_packed_groups(*values, jnp.array(ids)[None] if layout is Layout.PACKED else None)
    for i in [*range(length), *range(s, n)] if layout is Layout.GROUPS else range(n):
        seen = [j for j in range(i + 1) if layout is Layout.CAUSAL or ids[j] == ids[i]]
        if layout is Layout.GROUPS:
            begin = s + (i - s) // t * t
            seen = list(range(i + 1)) if i < s else [*range(length), *range(begin, i + 1)]
        for head in range(K):
            for r in range(R):
                share = np.exp(k[seen, head] @ q[i, head, r] * D**-0.5)
                np.testing.assert_allclose(ours[0, i, head, r], share @ v[seen, head] / share.sum(), atol=1e-5)


@pytest.mark.parametrize("lengths", [((1, 30, 2), (13,)), ((), (17, 17, 17, 17))])
@pytest.mark.parametrize("v_dim", [D, 4])
def test_offsets_mean_the_documents_of_the_mask(monkeypatch, lengths, v_dim):
    """Grouped heads, odd documents, rows of one and of as many documents as are allowed, values narrower than keys."""
    from jax._src.cudnn import fused_attention_stablehlo as private

    def call(q, k, v, *, mask_type, **given):
        assert mask_type is private.MaskType.PADDING_CAUSAL and q.shape[3] == k.shape[3] == v.shape[3]
        assert all(x.dtype == np.int32 for name, x in given.items() if name != "scale")
        return jnp.asarray(read_offsets(q, k, v, **given), jnp.float32)

    monkeypatch.setattr(private, "dot_product_attention", call)
    n = 70
    ids = documents(2, n, *lengths)
    values = arrays(2, n, v_dim=v_dim)
    ours = cudnn.packed(*values, attention.first_of_document(ids), 5)
    np.testing.assert_allclose(ours, attention.plain_packed_groups(*values, ids), atol=1e-5)


def test_rows_of_more_documents_than_cudnn_is_told_of_keep_their_mask(monkeypatch):
    monkeypatch.setattr(cudnn, "packed", lambda q, *_: q * jnp.nan)
    monkeypatch.setattr(jax.nn, "dot_product_attention", in_xla)
    monkeypatch.setattr(attention, "DOCUMENTS", 3)
    values, ids = arrays(2, 40), documents(2, 40, (5, 5, 5), (1,))
    right = attention.plain_packed_groups(*values, ids)
    np.testing.assert_allclose(attention.cudnn_packed(*values, ids), right, atol=1e-5)
    assert np.isnan(attention.cudnn_packed(*values, documents(2, 40, (5, 5), (1,)))).all()


def test_the_first_token_of_a_document_is_what_its_ids_say():
    ids = jnp.array([[7, 7, 3, 3, 3, 0], [0, 0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(attention.first_of_document(ids), [[0, 0, 2, 2, 2, 5], [0] * 6])


@pytest.mark.brief(1)
@pytest.mark.parametrize("most, parts", [(2**40, False), (0, True)])
def test_without_a_kernel_gpus_have_scores_at_once_up_to_a_size(monkeypatch, most, parts):
    monkeypatch.setattr(attention, "platform", lambda mesh: "gpu")
    monkeypatch.setattr(attention, "kernel_for", lambda *_: Kernel.PLAIN)
    monkeypatch.setattr(attention, "MOST_SCORES", most)
    calls, in_parts = [], attention._in_parts
    monkeypatch.setattr(attention, "_in_parts", lambda *x: calls.append(1) or in_parts(*x))
    mesh = SimpleNamespace(devices=np.zeros(1))
    q, k, v = arrays(2, 10 + 2 * 7)
    lengths = jnp.array([10, 4])
    groups = attention.of_groups(mesh, q, k, v, lengths, 10, 2)
    prompts = attention.of_prompts(mesh, q, k, v)
    assert len(calls) == 2 * parts
    right = np.asarray(attention.plain_groups(q, k, v, lengths, s=10, g=2))
    for ours, exact in ((groups[0], right[0]), (groups[1, 10:], right[1, 10:])):
        np.testing.assert_allclose(ours, exact, atol=1e-5)
    np.testing.assert_allclose(prompts, attention.causal(q, k, v), atol=1e-5)
