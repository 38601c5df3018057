"""What Phase 1 and Phase 2 need of this machine's memory where the CPU trains: an upper bound in closed form, and what they need at least.

The update on meta tensors (`podwright plan --compile`) needs 0.7 to 0.9 times the activations that are reckoned here (qwen2.5-tiny and
qwen2.5-0.5b, float32 and bfloat16, 4 to 64 lines); a line is taken to have data.max_text_length tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from podwright.accelerators import GIB
from podwright.recipe.contrastive import ContrastiveRecipe
from podwright.recipe.llm import AUDIO_DIMS, IMAGE_DIMS, TEXT_DIM, LlmDims
from podwright.recipe.multimodal import Encoders, MultimodalRecipe

_PROCESS_BYTES = 0.3 * GIB  # of PyTorch and transformers, what processes share left out
_ENCODED = 32  # files that an encoder sees at a time
_BINS, _FRAMES_PER_S = 64, 100  # of log-mel
_AUDIO_CHANNELS = {"tiny": 8, "cnn14": 64}  # of the first and largest maps
_IMAGE_CHANNELS = 8  # as many bytes a pixel as the small networks of timm have, which begin with half the sides
_MAPS = 3  # that exist at one time
# Weights of CNN14, MiniLM-L6 and MobileNetV4 small.
_AUDIO_BYTES, _TEXT_BYTES, _IMAGE_BYTES = 0.30 * GIB, 0.09 * GIB, 0.02 * GIB
_TRAINED = 16  # bytes of a trained parameter: float32, its gradient and both moments
_F32 = 4


@dataclass(frozen=True)
class HostMemory:
    """Bytes of one process."""

    least: float
    most: float


def multimodal(recipe: MultimodalRecipe, dims: LlmDims) -> HostMemory:
    m, p = recipe.model, recipe.projector
    trained = dims.num_projector_params(recipe.aligner.dim, p.hidden_size, p.num_soft_tokens)
    trained += dims.num_lora_params(m.lora_rank, m.lora_target_modules) if m.lora_rank else dims.num_params()
    width = _F32 if m.mixed_precision == "no" else 2
    state = _TRAINED * trained + (width * dims.num_params() if m.lora_rank else 0)
    tokens = recipe.per_device_batch_size * recipe.data.max_text_length
    layer = (16 * dims.hidden_size + 3 * dims.intermediate_size) * width
    layer += dims.num_attention_heads * recipe.data.max_text_length * 2 * width
    layers = 1 if m.gradient_checkpointing else dims.num_hidden_layers
    kept = dims.num_hidden_layers * dims.hidden_size * width if m.gradient_checkpointing else 0
    activations = tokens * (layer * layers + kept + 3 * dims.vocab_size * _F32)
    inputs, maps = _encoders(recipe.encoders)
    return HostMemory(state + inputs, _PROCESS_BYTES + state + max(activations, maps) + _weights(recipe.encoders))


def contrastive(recipe: ContrastiveRecipe, devices: int) -> HostMemory:
    e, dim = recipe.encoders, recipe.aligner.dim
    widths = (TEXT_DIM, IMAGE_DIMS.get(e.image, 2048), AUDIO_DIMS[e.audio])
    state = _TRAINED * sum(2 * width + width * dim for width in widths)
    scored = 2 * len(widths) * recipe.per_device_batch_size**2 * devices * _F32
    inputs, maps = _encoders(e)
    text = 0.0 if recipe.text_encoder.name == "tiny" else _TEXT_BYTES
    return HostMemory(state + inputs, _PROCESS_BYTES + state + max(_MAPS * scored, maps) + _weights(e) + text)


def _weights(section: Encoders) -> float:
    return (section.audio == "cnn14") * _AUDIO_BYTES + (section.image != "tiny") * _IMAGE_BYTES


def _encoders(section: Encoders) -> tuple[float, float]:
    """Bytes of a batch of prepared files, and with the maps that an encoder makes of it; of pictures or sounds, whichever are larger."""
    pixels = section.image_size**2
    values = section.audio_seconds * _FRAMES_PER_S * _BINS
    image = _ENCODED * _F32 * pixels * 3, _ENCODED * _F32 * pixels * (3 + _MAPS * _IMAGE_CHANNELS)
    audio = _ENCODED * _F32 * values, _ENCODED * _F32 * values * (1 + _MAPS * _AUDIO_CHANNELS[section.audio])
    return max(image[0], audio[0]), max(image[1], audio[1])
