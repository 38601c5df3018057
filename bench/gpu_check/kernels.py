"""Every kernel against its plain form, values and gradients (of decoding values): in bfloat16, against the plain form in float32.

The kernels of attention are those that the product's table names for this card, and those that it names where fewer libraries are installed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from kda_definition import recurrent

from gpu_check.part import TINY, put
from podwright.attention_kernels import HeadDims, Kernel, Layout, choose
from podwright.kernels import grouped, kda, mosaic
from podwright.kernels.installed import generation, versions
from podwright.models import attention
from podwright.train.attention_check import TOLERANCE, decoded, results

LONG = 300 if TINY else 4096
LENGTHS = (1, 129, LONG) if TINY else (1, 127, 128, 129, LONG)


@dataclasses.dataclass(frozen=True)
class Heads:
    name: str
    queries: int
    keys: int
    qk_dim: int
    v_dim: int


GROUPED, NARROW, ALONE, MLA = (
    [
        Heads("grouped", 4, 2, 16, 16),
        Heads("narrow", 6, 2, 8, 8),
        Heads("alone", 2, 2, 16, 16),
        Heads("mla", 2, 2, 24, 16),
    ]
    if TINY
    else [
        Heads("grouped", 16, 8, 128, 128),
        Heads("narrow", 14, 2, 64, 64),
        Heads("alone", 16, 16, 128, 128),
        Heads("mla", 16, 16, 192, 128),
    ]
)


@dataclasses.dataclass(frozen=True)
class Case:
    """One comparison of attention. `size`: tokens of a row, or of a prompt, completions of it and tokens of one."""

    layout: str
    heads: Heads
    size: int | tuple[int, int, int]
    kernel: Kernel | None = None
    """in place of that of the table"""

    @property
    def table_layout(self) -> Layout:
        layouts = {"groups": Layout.GROUPS, "packed": Layout.PACKED, "decode": Layout.DECODE}
        return layouts.get(self.layout, Layout.CAUSAL)


DECODED = (40, 3, 20) if TINY else (256, 8, 512)
DECODED_AT = (0, 127, 128, 300, 511)  # whose results are compared: an error of one is not lost among many
GROUPS = ((40, 3, 1), (128, 2, 127), (100, 2, 128), (37, 4, 129), (256, 1, LONG - 256))
CASES = (
    *(Case("causal", GROUPED, n) for n in LENGTHS),
    *(Case("packed", GROUPED, n) for n in LENGTHS),
    *(Case("groups", GROUPED, size) for size in GROUPS),
    *(Case(layout, MLA, n) for layout in ("causal", "packed") for n in (1, 129, LONG)),
    *(Case(layout, heads, 129) for layout in ("causal", "packed") for heads in (NARROW, ALONE)),
    *(Case("prompts", GROUPED, n) for n in (129, LONG)),
    Case("groups", NARROW, (37, 4, 129)),
    *(Case("decode", heads, DECODED) for heads in (GROUPED, NARROW)),
    Case("decode", GROUPED, (DECODED[0], 1, DECODED[2])),
)


def with_fewer_libraries(mesh: Mesh) -> Iterator[Case]:
    """Packed documents by the kernels that this card has where tokamax is not installed, or an older jax."""
    card, here = generation(mesh.devices.flat[0]), versions()
    fewer = here._replace(tokamax=()), here._replace(tokamax=(), jax=())
    for heads, lengths in ((GROUPED, LENGTHS), (MLA, (129, LONG)), (NARROW, (129,)), (ALONE, (129,))):
        dims = HeadDims(heads.qk_dim, heads.v_dim)
        others = {choose("gpu", card, dims, Layout.PACKED, each) for each in fewer}
        for kernel in sorted(others - {attention.kernel_for(mesh, dims, Layout.PACKED), Kernel.PLAIN}):
            yield from (Case("packed", heads, n, kernel) for n in lengths)


def check(number: str, parts: str) -> None:
    """Cases `number`, `number` + `parts` and so on."""
    mesh = Mesh(np.array(jax.local_devices()[:1]).reshape(1, 1), ("data", "fsdp"))
    with contextlib.suppress(ImportError):
        mosaic.load()
    cases = [*CASES, *with_fewer_libraries(mesh)]
    comparisons: list[Callable[[], dict[str, Any]]] = [functools.partial(attention_case, mesh, case) for case in cases]
    comparisons += [functools.partial(kda_case, n) for n in LENGTHS]
    comparisons += [functools.partial(product_case, rows) for rows in (1, LONG)]
    worst, wrong = 0.0, []
    for comparison in comparisons[int(number) :: int(parts)]:
        begin = time.perf_counter()
        about = comparison()
        put(**about, seconds=round(time.perf_counter() - begin, 1))
        if about["errors"]:
            worst = max(worst, *about["errors"])
        if (about["errors"] and not max(about["errors"]) <= TOLERANCE) or about.get("fault"):
            wrong.append(f"{about}")
    put(worst_error=worst, tolerance=TOLERANCE)
    assert not wrong, "\n".join(wrong)


def attention_case(mesh: Mesh, case: Case) -> dict[str, Any]:
    h = case.heads
    chosen = case.kernel or attention.kernel_for(mesh, HeadDims(h.qk_dim, h.v_dim, "bfloat16"), case.table_layout)
    about = {"layout": case.layout, "heads": h.name, "size": case.size, "kernel": str(chosen)}
    values, weight, kernel_form, plain_form = _input(mesh, case)
    with mock.patch.object(attention, "kernel_for", lambda *_: chosen):
        return about | compared(kernel_form, plain_form, values, weight)


def compared(form: Any, plain: Any, values: Sequence[jax.Array], weight: jax.Array) -> dict[str, Any]:
    """Relative errors of the output and of each gradient; beside them those of the plain form in the same dtypes."""
    with jax.default_matmul_precision("highest"):
        right = results(plain, [x.astype(jnp.float32) for x in values], weight)
    rounded = results(plain, list(values), weight)
    try:
        ours = results(form, list(values), weight)
    except Exception as e:  # whatever a library or the driver says is the answer of this case
        return {"errors": [], "plain_errors": _errors(rounded, right), "fault": f"{type(e).__name__}: {str(e)[:300]}"}
    return {"errors": _errors(ours, right), "plain_errors": _errors(rounded, right)}


def _errors(ours: Sequence[Any], right: Sequence[Any]) -> list[float]:
    """A gradient that is zero, as that of the scores of a single key, is compared by its largest number."""
    errors = []
    for a, b in zip(ours, right, strict=True):
        size = float(np.linalg.norm(b))
        errors.append(round(float(np.linalg.norm(a - b) / size if size > 1e-6 else np.abs(a).max()), 5))
    return errors


def _input(mesh: Mesh, case: Case) -> tuple[list[jax.Array], jax.Array, Any, Any]:
    """Queries, keys and values in bfloat16, cotangents that are zero where no result counts, and both forms."""
    h, rng = case.heads, np.random.default_rng(1)
    s, g, t = case.size if isinstance(case.size, tuple) else (case.size, 0, 0)
    n = s + g * t
    # one row of the longest: all scores of the plain form exist at one time
    lengths = np.array([s - 1] if n == LONG else [s, 1, max(1, s // 2)], np.int32)
    if case.layout == "decode":
        lengths = np.array([s, 1, s // 2 - 1, s // 2 + 1], np.int32)
    rows = len(lengths) if g else 2
    shapes = [(rows, n, h.keys, h.queries // h.keys, h.qk_dim), (rows, n, h.keys, h.qk_dim), (rows, n, h.keys, h.v_dim)]
    values = [jnp.asarray(rng.standard_normal(shape, np.float32), jnp.bfloat16) for shape in shapes]
    weight = rng.standard_normal((*shapes[0][:-1], h.v_dim), np.float32)
    if case.layout == "groups":
        weight[np.pad(np.arange(s) >= lengths[:, None], ((0, 0), (0, g * t)))] = 0
        of_prompt = jnp.asarray(lengths)
        forms = (
            lambda q, k, v: attention.of_groups(mesh, q, k, v, of_prompt, s, g),
            lambda q, k, v: attention.plain_groups(q, k, v, of_prompt, s=s, g=g),
        )
    elif case.layout == "decode":
        counts = np.isin(np.arange(t), DECODED_AT)
        weight *= np.concatenate([np.zeros(s, bool), np.tile(counts, g)])[:, None, None, None]
        of_prompt = jnp.asarray(lengths)

        def plain(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:  # the kernel has no gradients
            q, k, v = jax.lax.stop_gradient((q, k, v))
            return attention.plain_groups(q, k, v, of_prompt, s=s, g=g)

        by_kernel = attention.kernel_for(mesh, HeadDims(h.qk_dim, h.v_dim), Layout.DECODE) is Kernel.TRITON
        forms = ((lambda q, k, v: decoded(mesh, q, k, v, of_prompt, s, g)) if by_kernel else plain, plain)
    elif case.layout == "prompts":
        forms = (lambda q, k, v: attention.of_prompts(mesh, q, k, v), attention.plain_packed_groups)
    else:
        ids = jnp.asarray(_documents(n)) if case.layout == "packed" else None
        forms = (
            lambda q, k, v: attention.packed_groups(mesh, q, k, v, ids),
            lambda q, k, v: attention.plain_packed_groups(q, k, v, *(() if ids is None else (ids,))),
        )
    return values, jnp.asarray(weight), *forms


def _documents(n: int) -> np.ndarray:
    """Segment ids of two rows: documents of 1, 127, 128, 129 tokens and the rest, and others that begin at odd tokens."""
    lengths = ((1, 127, 128, 129), (3, 129, 1, 1, 128))
    return np.stack([np.searchsorted(np.cumsum(of_row), np.arange(n), "right") for of_row in lengths]).astype(np.int32)


def kda_case(n: int) -> dict[str, Any]:
    """Chunks of KDA against its recurrence, with two documents a row where there are tokens for them."""
    rng, heads, dim = np.random.default_rng(0), 2, 16 if TINY else 128
    q, k, x = (rng.standard_normal((1, n, heads, dim), np.float32) for _ in range(3))
    q, k = (y / np.linalg.norm(y, axis=-1, keepdims=True) for y in (q, k))
    decay, beta = -5 / (1 + np.exp(-4 * x)), 1 / (1 + np.exp(-rng.standard_normal((1, n, heads), np.float32)))
    v, weight = (rng.standard_normal((1, n, heads, dim), np.float32) for _ in range(2))
    values = [jnp.asarray(y, jnp.bfloat16) for y in (q / dim**0.5, k, v)] + [
        jnp.asarray(y, jnp.float32) for y in (decay, beta)
    ]
    ids = jnp.asarray(np.arange(n) >= n // 3, jnp.int32)[None]
    about = {"layout": "kda", "heads": f"{heads} of {dim}", "size": n, "kernel": "kda.chunked"}

    def plain(q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array, beta: jax.Array) -> jax.Array:
        return recurrent(q, k, v, g, beta, ids)

    def chunks(q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array, beta: jax.Array) -> jax.Array:
        return kda.chunked(q, k, v, g, beta, ids, bounded=True)

    return about | compared(chunks, plain, values, jnp.asarray(weight))


def product_case(rows: int) -> dict[str, Any]:
    """Products of rows with the matrix of their expert, of which one has no rows; rows after the last expert's are left over."""
    rng, inputs, outputs = np.random.default_rng(0), 64 if TINY else 512, 32 if TINY else 256
    sizes = np.array([rows - rows // 3 - rows // 4, 0, rows // 3], np.int32)
    values = [
        jnp.asarray(rng.standard_normal(shape, np.float32), jnp.bfloat16)
        for shape in ((rows, inputs), (3, inputs, outputs))
    ]
    weight = rng.standard_normal((rows, outputs), np.float32)
    weight[sizes.sum() :] = 0
    of_row = jnp.asarray(np.minimum(np.searchsorted(np.cumsum(sizes), np.arange(rows), "right"), 2))

    def plain(x: jax.Array, matrices: jax.Array) -> jax.Array:
        products = jnp.einsum("mi,gio->mgo", x, matrices)
        return jnp.take_along_axis(products, of_row[:, None, None], axis=1)[:, 0]

    about = {"layout": "experts", "heads": "", "size": rows, "kernel": "grouped.matmul"}
    return about | compared(lambda x, m: grouped.matmul(x, m, jnp.asarray(sizes)), plain, values, jnp.asarray(weight))
