"""Attention of packed documents, and of grouped completions: G completions of one prompt share its keys and values.

`causal`, `grouped` and `plain_packed` are in plain JAX. Whole sequences go through `of_prompts`, `of_groups`, `packed` and
`packed_groups`, which take the kernel that attention_kernels.py names for the mesh's devices, and tokens of a decode loop through
`grouped`, or `of_tokens` by a kernel. Shape suffixes: P prompts, S prompt tokens,
G completions per prompt, T completion tokens (queries), U completion tokens (keys), N = S + G*T, K key-value heads, R query heads per
key-value head, D head_dim, V the values' head_dim; of documents: B rows, N tokens, H heads. Scores are float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from podwright.attention_kernels import DOCUMENTS, MOST_SCORES, QUERIES, HeadDims, Kernel, Layout, choose
from podwright.kernels import cudnn, decode, mosaic, splash
from podwright.kernels.installed import generation, versions
from podwright.models.param import batch_axes, parts_of_rows, platform, tokens

MASKED = -1e30
REFUSED: set[tuple[Kernel, Layout]] = set()  # which train/attention_check.py saw fail on the card of this process

Attend = Callable[..., Array]


def kernel_for(mesh: Mesh, heads: HeadDims, layout: Layout) -> Kernel:
    """The kernel of the mesh's devices, also of machines that are not here."""
    refused = [kernel for kernel, of in REFUSED if of is layout]
    return choose(platform(mesh), generation(mesh.devices.flat[0]), heads, layout, versions(), refused)


def _heads(q: Array, v: Array) -> HeadDims:
    return HeadDims(q.shape[-1], v.shape[-1], str(q.dtype))


def of_prompts(mesh: Mesh, q_PSKRD: Array, k_PSKD: Array, v_PSKD: Array) -> Array:
    """Causal attention over prompts, padded on the right. -> PSKRD"""
    forms: dict[Kernel, Attend] = {Kernel.SPLASH: splash.causal, Kernel.CUDNN: cudnn.causal}
    if attend := forms.get(kernel_for(mesh, _heads(q_PSKRD, v_PSKD), Layout.CAUSAL)):
        return _on_each_device(mesh, attend)(q_PSKRD, k_PSKD, v_PSKD)
    p, s, k, r, _ = q_PSKRD.shape
    form = _in_parts if _too_many_scores(mesh, p * k * r * s * s) else causal
    return form(q_PSKRD, k_PSKD, v_PSKD)


def of_groups(mesh: Mesh, q_PNKRD: Array, k_PNKD: Array, v_PNKD: Array, lengths_P: Array, s: int, g: int) -> Array:
    """Attention over groups laid out as N = prompt, then one completion after the other. -> PNKRD

    A prompt is causal in itself; a completion sees the `lengths_P` tokens of its prompt, and itself so far.
    """
    p, n, k, r, _ = q_PNKRD.shape
    form: Attend = plain_groups
    chosen = kernel_for(mesh, _heads(q_PNKRD, v_PNKD), Layout.GROUPS)
    if chosen is Kernel.SPLASH:
        form = splash_groups
    elif chosen is Kernel.CUDNN:
        form = functools.partial(groups_as_rows, attend=cudnn.causal)
    elif _too_many_scores(mesh, p * k * r * (s * s + (n - s) * (s + (n - s) // g))):
        form = functools.partial(groups_as_rows, attend=_in_parts)
    form = functools.partial(form, s=s, g=g)
    if chosen is not Kernel.PLAIN:
        form = _on_each_device(mesh, form)
    return form(q_PNKRD, k_PNKD, v_PNKD, lengths_P)


def decodes_by_kernel(mesh: Mesh, heads: HeadDims, query_heads: int) -> bool:
    """Whether caches are those of kernels/decode.py, for so many query heads of a key-value head."""
    return query_heads <= decode.MOST_HEADS and kernel_for(mesh, heads, Layout.DECODE) is Kernel.TRITON


def of_tokens(mesh: Mesh, q_PGKRD: Array, cache: decode.BlockCache, lengths_P: Array, t: Array) -> Array:
    """Token number `t` of every completion sees the `lengths_P` tokens of its prompt, and its own so far, all in `cache`. -> PGKRD"""
    batch, tensor = batch_axes(mesh), "tensor" if "tensor" in mesh.shape else None
    queries = PartitionSpec(batch, None, tensor)
    specs = queries, PartitionSpec(batch, tensor), PartitionSpec(batch), PartitionSpec()
    run = jax.shard_map(decode.attend, mesh=mesh, in_specs=specs, out_specs=queries, check_vma=False)
    return run(_scaled(q_PGKRD), cache, lengths_P, t)


def _too_many_scores(mesh: Mesh, scores: int) -> bool:
    """For the plain form on GPUs; `scores` are those of all devices. TPUs and CPUs have always had them at once."""
    return platform(mesh) == "gpu" and 4 * scores / mesh.devices.size > MOST_SCORES


def packed(
    mesh: Mesh, q_BNHD: Array, k_BNHD: Array, v_BNHV: Array, segment_ids_BN: Array | None, scale: float
) -> Array:
    """Causal attention within each document of a row; None: a row is one document. `scale` is that of the scores. -> BNHV"""
    return packed_groups(mesh, q_BNHD[:, :, :, None], k_BNHD, v_BNHV, segment_ids_BN, scale)[:, :, :, 0]


def packed_across(
    mesh: Mesh,
    q_BNHD: Array,
    latents: tuple[Array, ...],
    weight: Array,
    expand: Callable[..., tuple[Array, Array]],
    segment_ids_BN: Array | None,
    scale: float,
    v_dim: int,
) -> Array:
    """`packed` where a row's tokens lie over context: each device's queries see the keys of all devices. -> BNHV

    What is gathered is the `latents`, each [B, N, ...]; `expand(*latents, weight)` makes keys and values of a device's heads of them,
    `weight`'s second dim. So is the gradient: keys and values never travel, but the last device has the most of them to look at.
    """
    parts, tensor = parts_of_rows(mesh), mesh.shape.get("tensor", 1)
    heads, rows = tokens(mesh, "tensor" if "tensor" in mesh.shape else None), tokens(mesh)
    kernel, kernel_spec = None, None
    if kernel_for(mesh, HeadDims(q_BNHD.shape[-1], v_dim, str(q_BNHD.dtype)), Layout.PACKED) is Kernel.SPLASH:
        kernel = splash.make_kernel(q_BNHD.shape[1] // parts, q_BNHD.shape[1], q_BNHD.shape[2] // tensor, parts)
        kernel_spec = kernel.manual_sharding_spec(NamedSharding(mesh, PartitionSpec(None, "context")))

    def local(q: Array, latents: Any, weight: Array, ids: Array | None, attend: Any) -> Array:
        latents, all_ids = jax.lax.all_gather((latents, ids), "context", axis=1, tiled=True)
        k, v = expand(*latents, weight)
        if attend is None:
            return plain_packed(q, k, v, all_ids, scale=scale, first=jax.lax.axis_index("context") * q.shape[1])
        segments = None if ids is None else (ids, all_ids)
        return splash.causal(q[:, :, :, None], k, v, segments, scale, attend=attend)[:, :, :, 0]

    specs = (heads, tuple(rows for _ in latents), PartitionSpec(None, *heads[2:]), rows, kernel_spec)
    run = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=heads, check_vma=False)
    return run(q_BNHD, latents, weight, segment_ids_BN, kernel)


def packed_groups(
    mesh: Mesh,
    q_BNKRD: Array,
    k_BNKD: Array,
    v_BNKV: Array,
    segment_ids_BN: Array | None,
    scale: float | None = None,
) -> Array:
    """`packed` where R query heads share the keys and values of one; `scale`, D^-0.5 if None. -> BNKRV"""
    layout = Layout.CAUSAL if segment_ids_BN is None else Layout.PACKED
    chosen = kernel_for(mesh, _heads(q_BNKRD, v_BNKV), layout)
    ids = () if segment_ids_BN is None else (segment_ids_BN,)
    if chosen is Kernel.PLAIN:
        return plain_packed_groups(q_BNKRD, k_BNKD, v_BNKV, *ids, scale=scale)
    forms: dict[Kernel, Attend] = {
        Kernel.SPLASH: splash_packed,
        Kernel.CUDNN: cudnn.causal,
        Kernel.CUDNN_OFFSETS: cudnn_packed,
        Kernel.CUDNN_MASK: cudnn_masked,
        Kernel.MOSAIC: mosaic_packed,
    }
    return _on_each_device(mesh, functools.partial(forms[chosen], scale=scale))(q_BNKRD, k_BNKD, v_BNKV, *ids)


def splash_packed(
    q_BNKRD: Array,
    k_BNKD: Array,
    v_BNKV: Array,
    segment_ids_BN: Array | None = None,
    *,
    scale: float | None = None,
    interpret: bool = False,
) -> Array:
    segments = None if segment_ids_BN is None else (segment_ids_BN, segment_ids_BN)
    return splash.causal(q_BNKRD, k_BNKD, v_BNKV, segments, scale, interpret)


def cudnn_packed(
    q_BNKRD: Array, k_BNKD: Array, v_BNKV: Array, segment_ids_BN: Array, *, scale: float | None = None
) -> Array:
    """By offsets unless a row has more documents than cuDNN is told of, else by a mask."""
    first = first_of_document(segment_ids_BN)
    most = (first == jnp.arange(first.shape[1])).sum(1).max()
    return jax.lax.cond(
        most <= DOCUMENTS,
        lambda q, k, v: cudnn.packed(q, k, v, first, DOCUMENTS, scale),
        lambda q, k, v: cudnn.masked(q, k, v, first, scale),
        *(q_BNKRD, k_BNKD, v_BNKV),
    )


def cudnn_masked(
    q_BNKRD: Array, k_BNKD: Array, v_BNKV: Array, segment_ids_BN: Array, *, scale: float | None = None
) -> Array:
    return cudnn.masked(q_BNKRD, k_BNKD, v_BNKV, first_of_document(segment_ids_BN), scale)


def mosaic_packed(
    q_BNKRD: Array, k_BNKD: Array, v_BNKD: Array, segment_ids_BN: Array, *, scale: float | None = None
) -> Array:
    return mosaic.packed(q_BNKRD, k_BNKD, v_BNKD, first_of_document(segment_ids_BN), scale)


def first_of_document(segment_ids_BN: Array) -> Array:
    """The number in its row of the first token of each token's document, [B, N] int32."""
    place = jnp.arange(segment_ids_BN.shape[1], dtype=jnp.int32)
    begins = jnp.diff(segment_ids_BN, axis=1, prepend=segment_ids_BN[:, :1] - 1) != 0
    return jax.lax.cummax(jnp.where(begins, place, 0), axis=1)


def plain_packed_groups(
    q_BNKRD: Array,
    k_BNKD: Array,
    v_BNKV: Array,
    segment_ids_BN: Array | None = None,
    *,
    scale: float | None = None,
) -> Array:
    """`packed_groups` in plain JAX."""
    b, n, k, r, d = q_BNKRD.shape
    keys, values = (jnp.repeat(x, r, axis=2) for x in (k_BNKD, v_BNKV))
    out = plain_packed(q_BNKRD.reshape(b, n, k * r, d), keys, values, segment_ids_BN, scale=scale or d**-0.5)
    return out.reshape(b, n, k, r, -1)


_in_parts = jax.checkpoint(plain_packed_groups)  # keeps no scores for the gradient


def _on_each_device(mesh: Mesh, attend: Callable[..., Array]) -> Callable[..., Array]:
    """A kernel is not partitioned by the compiler: every device has its own rows and heads, which never meet."""
    batch = batch_axes(mesh)
    heads = PartitionSpec(batch, None, "tensor" if "tensor" in mesh.shape else None)

    def run(*arrays: Array) -> Array:
        specs = tuple(heads if x.ndim > 2 else PartitionSpec(batch) for x in arrays)
        return jax.shard_map(attend, mesh=mesh, in_specs=specs, out_specs=heads, check_vma=False)(*arrays)

    return run


def splash_groups(
    q_PNKRD: Array,
    k_PNKD: Array,
    v_PNKD: Array,
    lengths_P: Array,
    *,
    s: int,
    g: int,
    interpret: bool = False,
) -> Array:
    """`of_groups` by the kernel: every completion a row of its own that has its prompt's keys before its own."""
    p, n, *_ = q_PNKRD.shape
    first = splash.causal(q_PNKRD[:, :s], k_PNKD[:, :s], v_PNKD[:, :s], interpret=interpret)

    def rows(x: Array) -> Array:
        """Completions [P, G*T, ...] as [P*G, T, ...]."""
        return x[:, s:].reshape(p * g, (n - s) // g, *x.shape[2:])

    def keys(x: Array) -> Array:
        return jnp.concatenate([jnp.repeat(x[:, :s], g, axis=0), rows(x)], axis=1)

    valid = jnp.repeat(jnp.arange(s) < lengths_P[:, None], g, axis=0)
    valid = jnp.pad(valid, ((0, 0), (0, (n - s) // g)), constant_values=True)
    segments = jnp.zeros((p * g, (n - s) // g), jnp.int32), jnp.where(valid, 0, 1)
    second = splash.causal(rows(q_PNKRD), keys(k_PNKD), keys(v_PNKD), segments, interpret=interpret)
    return jnp.concatenate([first, second.reshape(p, n - s, *second.shape[2:])], axis=1)


def groups_as_rows(
    q_PNKRD: Array, k_PNKD: Array, v_PNKD: Array, lengths_P: Array, *, s: int, g: int, attend: Attend
) -> Array:
    """`of_groups` by any causal attention: every completion a row of its own that stands right behind its prompt.

    What fills the prompt's row comes last, where no token sees it, so that nothing but the causal mask is needed.
    """
    rows = [_spread(x, lengths_P, s, g) for x in (q_PNKRD, k_PNKD, v_PNKD)]
    return _collect(attend(*rows), lengths_P, s, g)


def _sources(lengths_P: Array, s: int, g: int, t: int) -> Array:
    """The token of its group that stands at each place of a completion's row, [P, G, S + T]: prompt, completion, filling."""
    at, length = jnp.arange(s + t), lengths_P[:, None, None]
    own = s + t * jnp.arange(g)[:, None] + at - length
    return jnp.where(at < length, at, jnp.where(at < length + t, own, at - t))


def _targets(lengths_P: Array, s: int, t: int) -> Array:
    """The place of each completion's row that a token of its prompt, then of itself, stands at, [P, S + T]: undoes `_sources`."""
    at, length = jnp.arange(s + t), lengths_P[:, None]
    return jnp.where(at < s, jnp.where(at < length, at, at + t), length + at - s)


def _take(x: Array, index: Array) -> Array:
    return jax.vmap(lambda x, index: jnp.take(x, index, axis=0, unique_indices=True, mode="clip"))(x, index)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _spread(x_PN: Array, lengths_P: Array, s: int, g: int) -> Array:
    """Tokens of groups as rows, one a completion: [P, N, ...] -> [P*G, S + T, ...]. Its gradient gathers; XLA's would scatter."""
    p, n, *dims = x_PN.shape
    t = (n - s) // g
    return _take(x_PN, _sources(lengths_P, s, g, t).reshape(p, -1)).reshape(p * g, s + t, *dims)


def _spread_backward(s: int, g: int, lengths_P: Array, d_rows: Array) -> tuple[Array, None]:
    rows = _straight(d_rows, lengths_P, s, g)
    prompt = rows[:, :, :s].sum(1, dtype=jnp.float32).astype(rows.dtype)
    return _grouped_tokens(prompt, rows, s), None


_spread.defvjp(lambda x, lengths, s, g: (_spread(x, lengths, s, g), lengths), _spread_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _collect(rows: Array, lengths_P: Array, s: int, g: int) -> Array:
    """Undoes `_spread`, with the prompt's tokens from the first completion's row: [P*G, S + T, ...] -> [P, N, ...]."""
    rows = _straight(rows, lengths_P, s, g)
    return _grouped_tokens(rows[:, 0, :s], rows, s)


def _collect_backward(s: int, g: int, lengths_P: Array, d_out: Array) -> tuple[Array, None]:
    p, n, *dims = d_out.shape
    t = (n - s) // g
    source = _sources(lengths_P, s, g, t)
    counts = (source >= s) | (jnp.arange(g)[:, None] == 0)
    d_rows = _take(d_out, source.reshape(p, -1)).reshape(p, g, s + t, *dims)
    d_rows = jnp.where(counts.reshape(p, g, s + t, *(1 for _ in dims)), d_rows, 0)
    return d_rows.reshape(p * g, s + t, *dims), None


_collect.defvjp(lambda rows, lengths, s, g: (_collect(rows, lengths, s, g), lengths), _collect_backward)


def _straight(rows: Array, lengths_P: Array, s: int, g: int) -> Array:
    """Rows with the prompt, its filling and the completion where groups have them: [P*G, S + T, ...] -> [P, G, S + T, ...]."""
    t = rows.shape[1] - s
    target = jnp.repeat(_targets(lengths_P, s, t), g, axis=0)
    return _take(rows, target).reshape(-1, g, *rows.shape[1:])


def _grouped_tokens(prompt_PS: Array, rows: Array, s: int) -> Array:
    """A prompt and the completions of the rows [P, G, S + T, ...] as [P, N, ...]."""
    own = rows[:, :, s:]
    return jnp.concatenate([prompt_PS, own.reshape(own.shape[0], -1, *own.shape[3:])], axis=1)


def plain_groups(q_PNKRD: Array, k_PNKD: Array, v_PNKD: Array, lengths_P: Array, *, s: int, g: int) -> Array:
    """`of_groups` in plain JAX."""
    p, n, *_ = q_PNKRD.shape
    t = (n - s) // g
    q_own, k_own, v_own = (x[:, s:].reshape(p, g, t, *x.shape[2:]) for x in (q_PNKRD, k_PNKD, v_PNKD))
    own = jnp.einsum("pgukd->pkgdu", k_own), jnp.einsum("pgukd->pkgud", v_own)
    prompt = jnp.einsum("pskd->pkds", k_PNKD[:, :s]), jnp.swapaxes(v_PNKD[:, :s], 1, 2)
    first = causal(q_PNKRD[:, :s], k_PNKD[:, :s], v_PNKD[:, :s])
    second = grouped(q_own, prompt, own, jnp.arange(s) < lengths_P[:, None], jnp.tril(jnp.ones((t, t), bool)))
    return jnp.concatenate([first, second.reshape(p, n - s, *second.shape[3:])], axis=1)


def causal(q_PSKRD: Array, k_PSKD: Array, v_PSKD: Array) -> Array:
    """Causal attention over sequences that are padded on the right (later tokens are never seen). -> PSKRD"""
    p, s, k, r, d = q_PSKRD.shape
    q_PKND = jnp.einsum("pskrd->pksrd", _scaled(q_PSKRD)).reshape(p, k, s * r, d)
    k_PKDS, v_PKSD = jnp.einsum("pskd->pkds", k_PSKD), jnp.swapaxes(v_PSKD, 1, 2)
    scores = jnp.matmul(q_PKND, k_PKDS, preferred_element_type=jnp.float32).reshape(p, k, s, r, s)
    scores = jnp.where(jnp.tril(jnp.ones((s, s), bool))[:, None], scores, MASKED)
    share = jax.nn.softmax(scores, axis=-1).astype(v_PSKD.dtype).reshape(p, k, s * r, s)
    return jnp.einsum("pksrd->pskrd", jnp.matmul(share, v_PKSD).reshape(p, k, s, r, d))


def plain_packed(
    q_BNHD: Array,
    k_BUHD: Array,
    v_BUHV: Array,
    segment_ids_BU: Array | None,
    *,
    scale: float,
    first: Array | int = 0,
) -> Array:
    """`packed` in plain JAX: scores exist for QUERIES tokens at a time, and are made again for the gradient.

    The queries may be those of a part of the U tokens, from number `first` on.
    """
    b, n, h, _ = q_BNHD.shape
    place = jnp.arange(k_BUHD.shape[1])
    ids = jnp.zeros((b, len(place)), jnp.int32) if segment_ids_BU is None else segment_ids_BU
    own_ids, own_place = jax.lax.dynamic_slice_in_dim(ids, first, n, 1), first + jnp.arange(n)

    def attend(q: Array, own: Array, at: Array) -> Array:
        scores = jnp.einsum("bqhd,buhd->bhqu", q, k_BUHD, preferred_element_type=jnp.float32) * scale
        seen = (own[:, :, None] == ids[:, None]) & (at[:, None] >= place)
        share = jax.nn.softmax(jnp.where(seen[:, None], scores, MASKED), axis=-1)
        return jnp.einsum("bhqu,buhv->bqhv", share.astype(v_BUHV.dtype), v_BUHV)

    if n <= QUERIES:
        return attend(q_BNHD, own_ids, own_place)

    def parts(x: Array, dim: int) -> Array:
        x = jnp.pad(x, [(0, -n % QUERIES if i == dim else 0) for i in range(x.ndim)])
        return jnp.moveaxis(x.reshape(*x.shape[:dim], -1, QUERIES, *x.shape[dim + 1 :]), dim, 0)

    out = jax.lax.map(
        jax.checkpoint(lambda part: attend(*part)), (parts(q_BNHD, 1), parts(own_ids, 1), parts(own_place, 0))
    )
    return jnp.moveaxis(out, 0, 1).reshape(b, -1, h, v_BUHV.shape[-1])[:, :n]


def grouped(
    q_PGTKRD: Array,
    prompt: tuple[Array, Array],
    own: tuple[Array, Array],
    prompt_mask_PS: Array,
    own_mask_TU: Array,
) -> Array:
    """Each query sees its group's prompt and its own completion so far. -> PGTKRD

    `prompt` is (k PKDS, v PKSD), `own` is (k PKGDU, v PKGUD): as the products read them, so that a decode loop does not
    turn its cache around at every token. The two parts are never concatenated, so the prompt's keys are not repeated
    G times: softmax is put together from both parts' sums.
    """
    (k_PKDS, v_PKSD), (k_PKGDU, v_PKGUD) = prompt, own
    p, g, t, k, r, d = q_PGTKRD.shape
    q = jnp.einsum("pgtkrd->pkgtrd", _scaled(q_PGTKRD))
    first = jnp.matmul(q.reshape(p, k, -1, d), k_PKDS, preferred_element_type=jnp.float32)
    first = jnp.where(prompt_mask_PS[:, None, None], first, MASKED).reshape(p, k, g, t * r, -1)
    second = jnp.matmul(q.reshape(p, k, g, t * r, d), k_PKGDU, preferred_element_type=jnp.float32)
    second = jnp.where(jnp.repeat(own_mask_TU, r, axis=0), second, MASKED)
    top = jax.lax.stop_gradient(jnp.maximum(first.max(-1, keepdims=True), second.max(-1, keepdims=True)))
    first, second = jnp.exp(first - top), jnp.exp(second - top)
    total = first.sum(-1, keepdims=True) + second.sum(-1, keepdims=True)
    out = jnp.matmul(first.astype(v_PKSD.dtype).reshape(p, k, g * t * r, -1), v_PKSD).reshape(p, k, g, t * r, d)
    out += jnp.matmul(second.astype(v_PKGUD.dtype), v_PKGUD)
    return jnp.einsum("pkgtrd->pgtkrd", (out / total.astype(out.dtype)).reshape(p, k, g, t, r, d))


def _scaled(q: Array) -> Array:
    return q * jnp.asarray(q.shape[-1] ** -0.5, q.dtype)
