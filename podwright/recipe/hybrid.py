"""Dimensions of models whose layers mix KDA or MLA with dense MLPs or experts, and the counts that follow in closed form.

Field names follow Hugging Face's kimi_linear, bailing_hybrid and deepseek_v3 where they have one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from podwright.errors import UserError
from podwright.recipe.models import ROWS

CHUNK = 64  # tokens that KDA takes at a time
BLOCK = 16  # tokens of them over which the gradients of tokamax's kernel multiply decays up


@dataclasses.dataclass(frozen=True)
class Kda:
    """Kimi Delta Attention (arXiv 2510.26692): linear attention with a decay for each channel."""

    num_heads: int
    head_dim: int
    gate: Literal["softplus", "bounded"]
    """decay in log space: -exp(A) softplus(f + b), or `lower_bound` sigmoid(exp(A) (f + b))"""
    gate_rank: int
    """of the two products that make f and the output gate; 0: one full product each"""
    conv_size: int = 4
    lower_bound: float = -5.0
    kernel: Literal["chunked", "tokamax"] = "chunked"
    """what runs it: plain JAX, or the Pallas kernel of the library tokamax"""

    @property
    def width(self) -> int:
        return self.num_heads * self.head_dim

    def matmul_params(self, hidden: int) -> int:
        gate = self.gate_rank * (hidden + self.width) if self.gate_rank else hidden * self.width
        return 4 * hidden * self.width + 2 * gate + hidden * self.num_heads

    def num_params(self, hidden: int) -> int:
        """With convolutions, A, the decay's bias and the output norm."""
        return (
            self.matmul_params(hidden) + 3 * self.width * self.conv_size + self.num_heads + self.width + self.head_dim
        )

    def core_flops(self) -> float:
        """Of one token forward, without its projections (equation 13 of the paper)."""
        d = self.head_dim
        return self.num_heads * (6 * d * d + 3 * CHUNK * d + CHUNK * CHUNK)


@dataclasses.dataclass(frozen=True)
class Yarn:
    """Stretched rotary embedding (arXiv 2309.00071); the softmax scale grows by (0.1 mscale ln factor + 1)^2."""

    factor: float
    original_max_positions: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 1.0


@dataclasses.dataclass(frozen=True)
class Mla:
    """Multi-head latent attention (arXiv 2405.04434)."""

    num_heads: int
    q_lora_rank: int
    """0: queries are one product"""
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    rope_theta: float | None = 10000.0
    """None: no position is encoded"""
    yarn: Yarn | None = None
    head_gate: bool = False
    """a sigmoid of the input for each head multiplies its output (Ling 3.0)"""

    @property
    def qk_head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    def matmul_params(self, hidden: int) -> int:
        queries = self.num_heads * self.qk_head_dim
        q = self.q_lora_rank * (hidden + queries) if self.q_lora_rank else hidden * queries
        kv = hidden * (self.kv_lora_rank + self.qk_rope_head_dim)
        kv += self.kv_lora_rank * self.num_heads * (self.qk_nope_head_dim + self.v_head_dim)
        return q + kv + self.num_heads * self.v_head_dim * hidden + hidden * self.num_heads * self.head_gate

    def num_params(self, hidden: int) -> int:
        return self.matmul_params(hidden) + self.q_lora_rank + self.kv_lora_rank

    def core_flops(self, context: float) -> float:
        """Of one token forward that sees `context` tokens, without its projections."""
        return 2 * self.num_heads * (self.qk_head_dim + self.v_head_dim) * context


@dataclasses.dataclass(frozen=True)
class Moe:
    """Experts chosen by sigmoid scores and a bias that is no parameter (arXiv 2412.19437)."""

    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    num_shared_experts: int
    routed_scaling_factor: float
    n_group: int = 1
    topk_group: int = 1
    """experts come from the best `topk_group` of `n_group` groups"""
    bias_update_rate: float = 0.001

    def matmul_params(self, hidden: int, experts: int) -> int:
        """Of a token that meets `experts` routed experts."""
        return hidden * self.num_experts + 3 * hidden * self.moe_intermediate_size * (experts + self.num_shared_experts)


@dataclasses.dataclass(frozen=True)
class HybridDims:
    hidden_size: int
    num_layers: int
    vocab_size: int
    intermediate_size: int
    """of the dense MLPs"""
    num_dense_layers: int
    """layers from the first on that have a dense MLP instead of experts"""
    mla: Mla
    moe: Moe
    kda: Kda | None = None
    group_size: int = 1
    """the last layer of each group of so many has MLA, the others KDA"""
    norm_eps: float = 1e-6
    max_positions: int = 131072

    def attention(self, layer: int) -> Kda | Mla:
        """Of layer number `layer`, from 0."""
        return self.mla if self.kda is None or (layer + 1) % self.group_size == 0 else self.kda

    def num_params(self) -> int:
        """Without the routers' biases, which are no parameters."""
        e = self.hidden_size
        attention = sum(self.attention(i).num_params(e) for i in range(self.num_layers))
        return (
            attention + self._mlp_params(self.moe.num_experts) + (2 * self.num_layers + 1) * e + 2 * self.vocab_size * e
        )

    def num_active_params(self) -> int:
        """Weights that a token is multiplied with, the output embedding's among them."""
        attention = sum(self.attention(i).matmul_params(self.hidden_size) for i in range(self.num_layers))
        return attention + self._mlp_params(self.moe.num_experts_per_tok) + self.vocab_size * self.hidden_size

    def _mlp_params(self, experts: int) -> int:
        dense = self.num_dense_layers * 3 * self.hidden_size * self.intermediate_size
        return dense + (self.num_layers - self.num_dense_layers) * self.moe.matmul_params(self.hidden_size, experts)

    def forward_flops(self, tokens: float, context: float) -> float:
        """FLOPs of a forward pass with logits for every token, which sees `context` tokens in the mean; recomputation is not counted."""
        core = 0.0
        for i in range(self.num_layers):
            attention = self.attention(i)
            core += attention.core_flops(context) if isinstance(attention, Mla) else attention.core_flops()
        return (2 * self.num_active_params() + core) * tokens


def _dims(row: dict[str, Any]) -> HybridDims:
    mla = row["mla"]
    if "yarn" in mla:
        mla["yarn"] = Yarn(**mla["yarn"])
    kda = Kda(**row["kda"]) if "kda" in row else None
    return HybridDims(**row | {"mla": Mla(**mla), "moe": Moe(**row["moe"]), "kda": kda})


MODELS = {name: _dims(row) for name, row in ROWS["hybrid"].items()}
MAXTEXT_NAMES = {"al_model": "almodel-8b"}
"""`model_name` in a fork of MaxText -> its row: ALModel in configs/models/al_model.yml of its original project, 2026-02-22"""


def of_maxtext(arguments: Mapping[str, str]) -> str:
    """The row that a run of MaxText trains by its arguments; "" for none, also where a stated dimension is another one."""
    name = arguments.get("model_name", "")
    name = MAXTEXT_NAMES.get(name, name)
    if name not in MODELS:
        return ""
    dims = MODELS[name]
    known = {
        "base_emb_dim": dims.hidden_size,
        "base_num_decoder_layers": dims.num_layers,
        "vocab_size": dims.vocab_size,
        "num_experts": dims.moe.num_experts,
        "num_experts_per_tok": dims.moe.num_experts_per_tok,
        "base_moe_mlp_dim": dims.moe.moe_intermediate_size,
    }
    for key, value in known.items():
        if arguments.get(key) not in (None, "", str(value)):
            return ""
    return name


def find(
    name: str, gate: Literal["", "softplus", "bounded"] = "", kernel: Literal["chunked", "tokamax"] = "chunked"
) -> HybridDims:
    """The row `name`; `gate` other than "" gives its KDA the decay of that family, of low rank for 'softplus', else full."""
    dims = MODELS[name]
    if not gate and kernel == "chunked":
        return dims
    if dims.kda is None:
        raise no_kda(name, gate, kernel)
    kda = dataclasses.replace(dims.kda, kernel=kernel)
    if gate:
        kda = dataclasses.replace(kda, gate=gate, gate_rank=kda.head_dim if gate == "softplus" else 0)
    if kernel == "tokamax" and kda.gate == "softplus":
        raise UserError(
            "model.kda=tokamax is for bounded decays alone, and those of softplus may be any",
            "type model.kda=chunked",
            "no-kda-layers",
        )
    return dataclasses.replace(dims, kda=kda)


def no_kda(name: str, gate: str, kernel: str) -> UserError:
    key, value = ("gate", gate) if gate else ("kda", kernel)
    return UserError(f"model.{key}={value}: {name} has no KDA layers", f"leave model.{key} out", "no-kda-layers")
