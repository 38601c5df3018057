"""What a layer, the vocabulary and the optimizer hold on a device, in closed form: written once, for every kind of recipe.

Which programs there are, and what exists at the moments when they need most, is decided by `memory_grpo.py` and `memory_pretrain.py`.
How many of a layer's arrays exist at one time was read from buffer assignments of the TPU compiler.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from podwright.accelerators import Accelerator
from podwright.attention_kernels import DOCUMENTS, HOPPER, INSTALLED, Kernel, Layout, choose, heads_of, like_hopper
from podwright.recipe.dimensions import Dims
from podwright.recipe.kinds import JaxRecipe
from podwright.recipe.models import Qwen3Dims

OPERAND = 2  # bytes of a number that enters a product: a TPU rounds float32 to bfloat16 there, and what is only multiplied is kept so

Parts = dict[str, float]
"""bytes per device by the names of memory.PARTS"""
R = TypeVar("R", bound=JaxRecipe)
D = TypeVar("D", bound=Dims)


@dataclass(frozen=True)
class RecipeOnMesh(Generic[R, D]):
    """A recipe and its model on one device of a mesh."""

    recipe: R
    dims: D
    mesh: Mapping[str, int]
    """devices along each axis of the recipe's mesh, in its order"""
    accelerator: Accelerator
    kernel: Kernel
    """of attention; all but the plain one keep no scores"""

    @property
    def tensor(self) -> int:
        return self.mesh["tensor"]

    @property
    def shards(self) -> int:
        """devices that weights are split over: all axes but `data`"""
        return math.prod(n for axis, n in self.mesh.items() if axis != "data")

    @property
    def batch_shards(self) -> int:
        """devices that tokens are split over: all axes but `tensor`"""
        return math.prod(n for axis, n in self.mesh.items() if axis != "tensor")

    @property
    def width(self) -> int:
        """bytes of a number that is computed with"""
        return 4 if self.recipe.model.compute_dtype == "float32" else 2

    @property
    def micro_batches(self) -> int:
        return self.recipe.training.gradient_accumulation_steps

    @property
    def embedding(self) -> float:
        """numbers of the output embedding on a device that uses it"""
        return self.dims.vocab_size * self.dims.hidden_size / self.tensor

    @property
    def cast_bytes(self) -> float:
        """the layers' weights as they are sharded, in the dtype that they are computed with"""
        return OPERAND * matrices(self.dims) / self.shards

    @property
    def query_heads(self) -> float:
        """of a device"""
        return (self.dims.num_heads if isinstance(self.dims, Qwen3Dims) else self.dims.mla.num_heads) / self.tensor

    def kernel_bytes(self, tokens: float) -> float:
        """What cuDNN takes beside the program's arrays for the gradient of so many tokens of a layer, as cuDNN 9.28 says of each card.

        Sums of the gradients of queries, float32, once or twice, and where query heads share keys those of keys and values for each. Given
        the documents of a row, it takes that for each document that there may be.
        """
        if self.kernel not in (Kernel.CUDNN, Kernel.CUDNN_OFFSETS, Kernel.CUDNN_MASK):
            return 0.0
        of_queries = 4 if like_hopper(self.accelerator.compute_capability or HOPPER) else 8
        of_keys = 4 if isinstance(self.dims, Qwen3Dims) and self.dims.num_heads > self.dims.num_kv_heads else 0
        dim = heads_of(self.dims, self.recipe.model.compute_dtype).qk_dim
        documents = DOCUMENTS if self.kernel is Kernel.CUDNN_OFFSETS else 1
        return documents * tokens * self.query_heads * ((of_queries + of_keys) * dim + 4)

    def logits_bytes(self, rows: float, bytes_each: int = 4) -> float:
        """Logits of `rows` tokens, the vocabulary split over `tensor`."""
        return bytes_each * rows * self.dims.vocab_size / self.tensor


@dataclass(frozen=True)
class DenseLayer:
    """One layer of a dense model on a device: numbers for each token, or bytes where the name says so."""

    hidden: int
    ffn: float
    heads: float
    """queries of a token"""
    kv_heads: float
    """keys of a token, and values"""
    gathered_bytes: float
    """its weights in the dtype they are computed with, whole but for `tensor`"""
    width: int
    tensor: int
    gpu: bool

    def _attended(self, keys: float, queries: float = 1.0) -> float:
        """what the products of attention and its projections read; `keys`, `queries`: how many exist for each token"""
        return 3 * self.hidden + 2 * self.heads * queries + 2 * self.kv_heads * keys

    def kept_bytes(self, remat: str, keys: float = 1.0) -> float:
        """a token's share of what the forward pass keeps for the backward one, without scores"""
        if remat != "none":
            return self.hidden * self.width
        if self.gpu:  # models/qwen3.py keeps what products gave, but for those of o and down, and the layer's input
            return (self.hidden + self.heads + 2 * self.kv_heads + 2 * self.ffn) * self.width
        half = (6 if self.width == 2 else 3) * self.ffn + self._attended(keys)
        return half * self.width + 4 * (4 * self.hidden + 2 * self.heads + 2 * self.kv_heads)

    def backward_bytes(self, remat: str, keys: float = 1.0, queries: float = 1.0) -> float:
        """a token's share of what exists while the layer is differentiated, without scores"""
        if remat == "none" and not self.gpu:
            return (2 * self.ffn + 2 * self.hidden) * self.width
        return 5 * self.ffn * self.width + self._attended(keys, queries) * OPERAND + 8 * self.hidden

    @property
    def forward(self) -> float:
        """what exists in a forward pass; sums over `tensor` come and go in buffers of their own"""
        return 2 * self.ffn + (3 * self.hidden if self.tensor > 1 else 0)


def place(recipe: R, dims: D, shape: Sequence[int], row: Accelerator, layout: Layout) -> RecipeOnMesh[R, D]:
    """`shape`: devices along the axes of the recipe's mesh; `layout`: of its attention in training."""
    mesh = dict(zip(type(recipe.mesh).model_fields, shape, strict=True))
    kernel = kernel_of(recipe, dims, row, layout)
    if mesh.get("context", 1) > 1 and kernel is not Kernel.SPLASH:  # the only one for rows that lie over devices
        kernel = Kernel.PLAIN
    return RecipeOnMesh(recipe, dims, mesh, row, kernel)


def kernel_of(recipe: JaxRecipe, dims: Dims, row: Accelerator, layout: Layout) -> Kernel:
    platform = "tpu" if row.pod else "gpu" if row.node else "cpu"
    return choose(platform, row.compute_capability, heads_of(dims, recipe.model.compute_dtype), layout, INSTALLED)


def dense_layer(at: RecipeOnMesh[R, D], d: Qwen3Dims) -> DenseLayer:
    return DenseLayer(
        hidden=d.hidden_size,
        ffn=d.intermediate_size / at.tensor,
        heads=d.num_heads * d.head_dim / at.tensor,
        kv_heads=d.num_kv_heads * d.head_dim / at.tensor,
        gathered_bytes=OPERAND * d.layer_matmul_params() / at.tensor,
        width=at.width,
        tensor=at.tensor,
        gpu=at.accelerator.node is not None,
    )


def matrices(dims: Dims) -> int:
    """Parameters of the layers' products."""
    if isinstance(dims, Qwen3Dims):
        return dims.num_layers * dims.layer_matmul_params()
    return dims.num_params() - 2 * dims.vocab_size * dims.hidden_size


def state(held: float, adam: float) -> Parts:
    """Trained parameters that a device holds, float32: two moments for the `adam` among them, one for those of Muon."""
    return {"weights": 4 * held, "optimizer": 4 * (held + adam)}


def most(*moments: Parts) -> Parts:
    """The moment of a program that needs most."""
    return max(moments, key=lambda parts: sum(parts.values()))
