"""Whether the attention kernels that the table names for this card give what the plain form gives: values, and gradients in training.

A kernel is compared on one tiny input, once for a card, its libraries, a layout and heads; the answers are kept in a file. One that differs
or does not run is not used, and the run says so.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from podwright.attention_kernels import OFFSETS_SINCE, HeadDims, Kernel, Layout, outdated
from podwright.errors import message_of
from podwright.kernels import decode, mosaic
from podwright.kernels.installed import generation, versions
from podwright.models import attention
from podwright.rundir import write_json
from podwright.train.mesh import gathered

NAME = "attention.json"
TOLERANCE = 2e-2  # of the norm of the difference, relative: bfloat16 alone gives 2e-3 to 6e-3
_S, _G, _T = 70, 2, 131  # a prompt, its completions and their tokens
_LENGTHS = (_S, 33)
_GROUPED = 2  # query heads of a key-value head
# Both programs run once: no time goes into the choice among products, which took minutes for float32.
_COMPILED_FAST: dict[str, str | bool] = {"xla_gpu_autotune_level": "0", "xla_gpu_enable_triton_gemm": False}


def refused(mesh: Mesh, heads: HeadDims, layouts: Sequence[Layout], folder: Path) -> list[str]:
    """What to say of each kernel of `layouts` that is not used, in any process. Every process must call it."""
    if mesh.devices.flat[0].platform != "gpu":
        return []
    messages = []
    for layout in layouts:
        while (kernel := attention.kernel_for(mesh, heads, layout)) is not Kernel.PLAIN:
            if kernel is Kernel.MOSAIC:
                with contextlib.suppress(Exception):  # the comparison says it
                    mosaic.load()
            faults = gathered(_remembered(heads, layout, kernel, folder / NAME))
            if not any(faults):
                break
            attention.REFUSED.add((kernel, layout))
            instead = attention.kernel_for(mesh, heads, layout)
            form = "in plain JAX, which is slower" if instead is Kernel.PLAIN else f"by {instead}"
            fault = next(filter(None, faults))
            messages.append(f"attention {form}: {kernel} for {layout} {fault} on this card")
    return [*messages, *_outdated(mesh, heads, layouts)]


def _outdated(mesh: Mesh, heads: HeadDims, layouts: Sequence[Layout]) -> list[str]:
    """One line where newer libraries have a kernel for this card."""
    card = generation(mesh.devices.flat[0])
    if not any(outdated(card, heads, layout, versions()) for layout in layouts):
        return []
    needed = f"attention as fast as this card allows takes jax {'.'.join(map(str, OFFSETS_SINCE))} or newer with cuDNN"
    installed = f"jax {jax.__version__}{'' if versions().cudnn else ' without cuDNN'}"
    fix = "with Python 3.12 type: pip install -U 'jax[cuda13]'"
    return [f"{needed}, and this is {installed}; {fix}"]


def _remembered(heads: HeadDims, layout: Layout, kernel: Kernel, path: Path) -> str:
    """ "" where the kernel is right, else what it does instead; as the file has it, or found out and kept there. One that does not run may
    lack memory or a package today, and is tried again at the next start."""
    ours = zlib.crc32(Path(decode.__file__).read_bytes())  # the kernel that comes with no library
    key = f"{jax.local_devices()[0].device_kind} {kernel} {layout} {tuple(heads)} {tuple(versions())} {ours}"
    try:
        answers = dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        answers = {}
    if key not in answers:
        try:
            answers[key] = difference(heads, layout)
        except Exception as e:  # whatever the library or the driver says
            return f"does not run ({type(e).__name__}: {message_of(e, 120)})"
        with contextlib.suppress(OSError):  # then the next run finds out again
            write_json(path, answers)
    return str(answers[key])


def difference(heads: HeadDims, layout: Layout) -> str:
    """ "" where the kernel gives what the plain form gives on this process's first device, else what it does instead."""
    here = Mesh(np.array(jax.local_devices()[:1]).reshape(1, 1), ("data", "fsdp"))
    values, weight = _input(heads, layout)
    ours = results(lambda *x: _attend(here, layout, *x), values, weight)
    exact = [x.astype(jnp.float32) for x in values]
    right = results(lambda *x: _plain(layout, *x), exact, weight)
    worst = 0.0
    for got, wanted in zip(ours, right, strict=True):
        size = max(float(np.linalg.norm(wanted)), 1e-9)
        worst = max(worst, float(np.linalg.norm(got - wanted)) / size)
    return "" if worst <= TOLERANCE else f"differs by {worst:.1%} from the plain form"


def _input(heads: HeadDims, layout: Layout) -> tuple[list[Array], Array]:
    """Queries, keys and values of two rows, and cotangents, which are zero where no result counts."""
    rng = np.random.default_rng(0)
    n = _S + _G * _T
    k = 2
    shapes = [(2, n, k, _GROUPED, heads.qk_dim), (2, n, k, heads.qk_dim), (2, n, k, heads.v_dim)]
    weight = rng.normal(size=(2, n, k, _GROUPED, heads.v_dim)).astype(np.float32)
    if layout is Layout.GROUPS:
        weight[1, _LENGTHS[1] : _S] = 0
    elif layout is Layout.DECODE:
        weight[:, :_S] = 0
    return [jnp.asarray(rng.normal(size=shape), heads.dtype) for shape in shapes], jnp.asarray(weight)


def _ids() -> Array:
    """Documents of 1, 128, 40 and more tokens, and a row of one document."""
    n = _S + _G * _T
    several = np.searchsorted([1, 129, 169], np.arange(n), side="right")
    return jnp.asarray(np.stack([several, np.zeros(n)]), jnp.int32)


def _attend(mesh: Mesh, layout: Layout, q: Any, k: Any, v: Any) -> Array:
    if layout is Layout.GROUPS:
        return attention.of_groups(mesh, q, k, v, jnp.array(_LENGTHS), _S, _G)
    if layout is Layout.DECODE:
        return decoded(mesh, q, k, v, jnp.array(_LENGTHS), _S, _G)
    return attention.packed_groups(mesh, q, k, v, _ids() if layout is Layout.PACKED else None)


def _plain(layout: Layout, q: Any, k: Any, v: Any) -> Array:
    if layout is Layout.DECODE:
        q, k, v = jax.lax.stop_gradient((q, k, v))
    if layout in (Layout.GROUPS, Layout.DECODE):
        return attention.plain_groups(q, k, v, jnp.array(_LENGTHS), s=_S, g=_G)
    return attention.plain_packed_groups(q, k, v, *([_ids()] if layout is Layout.PACKED else []))


def decoded(mesh: Mesh, q_PNKRD: Array, k_PNKD: Array, v_PNKD: Array, lengths_P: Array, s: int, g: int) -> Array:
    """`attention.of_groups` as a rollout has it, without gradients: completions token by token with a cache, and zeros for prompts."""
    p, n, *heads = q_PNKRD.shape
    q_PNKRD, k_PNKD, v_PNKD = jax.lax.stop_gradient((q_PNKRD, k_PNKD, v_PNKD))
    completions = [x[:, s:].reshape(p, g, -1, *x.shape[2:]) for x in (q_PNKRD, k_PNKD, v_PNKD)]

    def step(cache: decode.BlockCache, t: Array) -> tuple[decode.BlockCache, Array]:
        q, k, v = (x[:, :, t] for x in completions)
        cache = decode.with_token(cache, k, v, t)
        return cache, attention.of_tokens(mesh, q, cache, lengths_P, t)

    tokens = (n - s) // g
    cache = decode.new_cache(k_PNKD[:, :s], v_PNKD[:, :s], g, tokens)
    _, out = jax.lax.scan(step, cache, jnp.arange(tokens))
    of_completions = jnp.moveaxis(out, 0, 2).reshape(p, n - s, *heads)
    return jnp.concatenate([jnp.zeros_like(q_PNKRD[:, :s]), of_completions], axis=1)


def results(form: Any, values: list[Array], weight: Array) -> list[Any]:
    """What a form gives where `weight` is not zero, and its gradients with that as the cotangents."""

    def total(*values: Array) -> tuple[Array, Array]:
        out = form(*values)
        return (out.astype(jnp.float32) * weight).sum(), out

    both = jax.jit(jax.value_and_grad(total, argnums=tuple(range(len(values))), has_aux=True))
    (_, out), grads = both.lower(*values).compile(compiler_options=_COMPILED_FAST)(*values)
    counts = np.asarray(weight) != 0
    return [np.where(counts, np.asarray(out, np.float32), 0), *(np.asarray(g, np.float32) for g in grads)]
