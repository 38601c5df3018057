"""The table that says which attention runs on which accelerator. It imports no framework: models run by it, and plans count by it.

An entry says what a kernel can do at all. Whether its results are right on the card at hand is checked by train/attention_check.py.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from podwright.recipe.dimensions import Dims
from podwright.recipe.hybrid import HybridDims

LANES = 128  # of a TPU: heads that do not fill them would compute on padding
# Compute capabilities. RTX cards of Blackwell are as Ampere: no kernel of tokamax 0.0.17 is for them, and cuDNN's take heads up to 128.
AMPERE, HOPPER, BLACKWELL_RTX = (8, 0), (9, 0), (12, 0)
# Before, offsets of packed documents are multiplied with the number of query heads for the keys as well: wrong with grouped heads.
OFFSETS_SINCE = (0, 11, 2)
QUERIES = 512  # of a row, whose scores the plain form has at one time where it works in parts
# Of a row, that cuDNN is told at most: its buffers grow with the number, and rows of more documents take a mask.
DOCUMENTS = 16
# Of heads: a Triton kernel's arrays have powers of two, and blocks of 256 do not fit the shared memory of an L40S or RTX card.
DECODED_DIMS = (16, 32, 64, 128)
DECODED_TOKENS = 64  # of a block of the kernel that decodes, which caches have in whole
# Bytes of float32 scores on a GPU, up to which the plain form has them all at once: 2 to 4 times faster than in parts.
MOST_SCORES = 4 * 2**30


class Layout(StrEnum):
    """Which keys a query sees."""

    CAUSAL = "causal"
    """all up to its own: a row is one sequence, or one prompt that is padded at its end"""
    GROUPS = "groups"
    """those of its prompt and of its completion so far: several completions share one prompt"""
    PACKED = "packed"
    """those of its document so far: a row has several documents"""
    DECODE = "decode"
    """as in groups, for one token of every completion at a time"""


class Kernel(StrEnum):
    SPLASH = "splash"
    CUDNN = "cudnn"
    CUDNN_OFFSETS = "cudnn-offsets"
    """cuDNN told where each document begins"""
    CUDNN_MASK = "cudnn-mask"
    """cuDNN with a mask of documents: 2 bytes for each query and key, which all heads share"""
    MOSAIC = "mosaic"
    """tokamax's for Hopper and Blackwell: every query has a first and a last key"""
    TRITON = "triton"
    """our own for one token of every completion, which the Triton backend of Pallas compiles"""
    PLAIN = "plain"


class HeadDims(NamedTuple):
    """What a kernel's limits are about."""

    qk_dim: int
    v_dim: int
    dtype: str = "bfloat16"


class Versions(NamedTuple):
    """Of the libraries the kernels come with; () where one is not installed."""

    jax: tuple[int, ...]
    cudnn: tuple[int, ...] = ()
    tokamax: tuple[int, ...] = ()


INSTALLED = Versions(OFFSETS_SINCE, (9, 10), (0, 0, 17))
"""what docs/install.md says to install beside a GPU, which plans count with"""


def heads_of(dims: Dims, dtype: str) -> HeadDims:
    """Of the attention over all earlier tokens, in the dtype of its operands."""
    if isinstance(dims, HybridDims):
        return HeadDims(dims.mla.qk_head_dim, dims.mla.v_head_dim, dtype)
    return HeadDims(dims.head_dim, dims.head_dim, dtype)


def like_hopper(generation: tuple[int, int]) -> bool:
    """Whether a card has the kernels of Hopper: also the Blackwell of data centers."""
    return HOPPER <= generation < BLACKWELL_RTX


def choose(
    platform: str,
    generation: tuple[int, int] | None,
    heads: HeadDims,
    layout: Layout,
    versions: Versions,
    refused: Collection[Kernel] = (),
) -> Kernel:
    """The attention for one layout. `generation` is the compute capability of an NVIDIA GPU, None for everything else. `refused`: what gave
    wrong results on a card, in whose place comes the next best.

    Decoding: 3.74 ms a token by the loop of our kernel and 5.00 by plain JAX, which reads the cache of all tokens that there may be (Qwen3-1.7B, 16
    prompts of 256 tokens, 8 completions of 512 each, one H200). TPUs have no kernel for it.

    Packed documents: cuDNN with offsets was 9 % faster than tokamax's kernel on an H200 (0.436 and 0.477 s a step of Qwen3-0.6B, 8 rows
    of 4096 tokens in 8 documents each), but its buffers took 8 GiB more and grow with rows and documents. Where keys and values differ
    in width, tokamax's does not run. A mask in place of offsets took 0.618 s, and plain JAX 2.09: cards and versions that have neither of
    the others take it.
    """
    if platform == "tpu":
        return Kernel.SPLASH if heads.v_dim % LANES == 0 and layout is not Layout.DECODE else Kernel.PLAIN
    if generation is None or generation < AMPERE or heads.dtype not in ("bfloat16", "float16"):
        return Kernel.PLAIN
    if layout is Layout.DECODE:
        fits = heads.qk_dim == heads.v_dim and heads.qk_dim in DECODED_DIMS
        return Kernel.TRITON if fits and Kernel.TRITON not in refused else Kernel.PLAIN
    hopper = like_hopper(generation)
    most = 256 if hopper else 128  # that cuDNN takes for training
    if not versions.cudnn or heads.qk_dim > most or heads.qk_dim % 8 or heads.v_dim > heads.qk_dim:
        return Kernel.PLAIN
    if layout is not Layout.PACKED:
        kernels = [Kernel.CUDNN]
    else:
        mosaic = hopper and versions.tokamax and heads.qk_dim == heads.v_dim
        offsets = hopper and versions.jax >= OFFSETS_SINCE
        kernels = [*[Kernel.MOSAIC] * bool(mosaic), *[Kernel.CUDNN_OFFSETS] * offsets, Kernel.CUDNN_MASK]
    return next((kernel for kernel in kernels if kernel not in refused), Kernel.PLAIN)


def outdated(generation: tuple[int, int] | None, heads: HeadDims, layout: Layout, versions: Versions) -> bool:
    """Whether a GPU has a slower form of the layout because of the libraries' versions."""
    newer = Versions(OFFSETS_SINCE, cudnn=(9,))
    slower, faster = (choose("gpu", generation, heads, layout, libraries) for libraries in (versions, newer))
    return slower is not faster and slower in (Kernel.PLAIN, Kernel.CUDNN_MASK)
