"""Dimensions of the language models that multimodal training builds, and the counts that follow; those of the encoders."""

from __future__ import annotations

import dataclasses

from podwright.recipe.models import ROWS, unknown


@dataclasses.dataclass(frozen=True)
class LlmDims:
    """A Qwen2.5. Field names are those of Hugging Face's config.json."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    tie_word_embeddings: bool = True
    rope_theta: float = 1e6
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 32768

    def _kv_size(self) -> int:
        return self.hidden_size // self.num_attention_heads * self.num_key_value_heads

    def layer_matmul_params(self) -> int:
        d, kv = self.hidden_size, self._kv_size()
        return 2 * d * d + 2 * d * kv + 3 * d * self.intermediate_size

    def num_params(self) -> int:
        d, kv = self.hidden_size, self._kv_size()
        embeddings = self.vocab_size * d * (1 if self.tie_word_embeddings else 2)
        biases_and_norms = d + 2 * kv + 2 * d
        return embeddings + self.num_hidden_layers * (self.layer_matmul_params() + biases_and_norms) + d

    def num_lora_params(self, rank: int, modules: tuple[str, ...]) -> int:
        d, kv, ff = self.hidden_size, self._kv_size(), self.intermediate_size
        ends = {"q_proj": 2 * d, "k_proj": d + kv, "v_proj": d + kv, "o_proj": 2 * d}
        ends |= dict.fromkeys(("gate_proj", "up_proj", "down_proj"), d + ff)
        return self.num_hidden_layers * rank * sum(ends[name] for name in modules)

    def num_projector_params(self, dim: int, width: int, num_soft_tokens: int) -> int:
        """Of the projector from `dim` over `width` to its soft tokens, and of the tokens that stand for what is missing."""
        out = num_soft_tokens * self.hidden_size
        return (dim + 1) * width + (width + 1) * out + out


MODELS = {name: LlmDims(**row) for name, row in ROWS["qwen2"].items()}

IMAGE_DIMS = {"tiny": 512, "mobilenetv4_conv_small": 960}
AUDIO_DIMS = {"tiny": 512, "cnn14": 2048}
TEXT_DIM = 384  # of MiniLM-L6, which only Phase 1 reads
"""features that an encoder gives; of another image encoder timm knows"""


def find(name: str) -> LlmDims:
    if name not in MODELS:
        raise unknown(name, MODELS)
    return MODELS[name]
