"""What is trained: a projector from aligned features to soft tokens, and a language model, all of it or by adapters.

Shapes: B lines, M modalities (image, audio), K soft tokens of each, T text tokens, D aligned features, H hidden size.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from podwright.errors import UserError, message_of
from podwright.recipe import hf_config, hf_weights
from podwright.recipe import llm as dims
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.train.multimodal.networks import stored
from podwright.train.multimodal.processes import spread

MODALITIES = ("image", "audio")
_LOGITS_AT_ONCE = 1 << 27  # numbers: half a GiB of float32
_NO_LOSS = -100  # a target that cross_entropy passes over
NOWHERE = -1  # in place of a labelled token: padding, which has no loss


@dataclasses.dataclass(frozen=True)
class MultimodalBatch:
    features: Tensor
    """[B, M, D]; zeros where a modality is missing"""
    present: Tensor
    """[B, M] of bool"""
    tokens: Tensor
    """[B, T]: prompt, response, padding"""
    labelled: Tensor
    """[N]: where in `tokens`, row after row, the tokens of responses stand, and NOWHERE; numbers, because to count a mask a GPU has to be waited for"""

    def to(self, device: torch.device) -> MultimodalBatch:
        pin = device.type == "cuda"
        parts = (self.features, self.present, self.tokens, self.labelled)
        return MultimodalBatch(*((x.pin_memory() if pin else x).to(device, non_blocking=True) for x in parts))


class Projector(nn.Module):
    """One for all modalities: D -> width -> K x H, and a learned token for what is missing."""

    def __init__(self, dim: int, width: int, num_soft_tokens: int, hidden_size: int):
        super().__init__()
        self.shape = (num_soft_tokens, hidden_size)
        self.mlp = nn.Sequential(nn.Linear(dim, width), nn.GELU(), nn.Linear(width, num_soft_tokens * hidden_size))
        self.missing_token = nn.Parameter(torch.randn(1, *self.shape) * 0.02)

    def forward(self, features: Tensor, present: Tensor) -> Tensor:
        """[B, M*K, H]"""
        soft = self.mlp(features).unflatten(-1, self.shape)
        chosen = torch.where(present[..., None, None], soft, self.missing_token.to(soft.dtype))
        return chosen.flatten(1, 2)


class Phase2(nn.Module):
    def __init__(self, llm: Any, projector: Projector):
        super().__init__()
        self.llm, self.projector = llm, projector

    @property
    def layers(self) -> nn.ModuleList:
        layers: nn.ModuleList = self.llm.model.layers
        return layers

    def forward(self, batch: MultimodalBatch) -> Tensor:
        """The sum of the cross-entropies of all labelled tokens, in nats. Padding stands right, where no token looks."""
        soft = self.projector(batch.features, batch.present)
        inputs = torch.cat([soft, self.embed(batch.tokens).to(soft.dtype)], 1)
        hidden = self.llm.model(inputs_embeds=inputs, use_cache=False).last_hidden_state
        before = hidden[:, soft.shape[1] - 1 : -1].flatten(0, 1)
        at = batch.labelled.clamp(min=0)
        targets = batch.tokens.flatten()[at].masked_fill(batch.labelled == NOWHERE, _NO_LOSS)
        # index_select: the gradient of before[at] would sort its indices on a GPU
        return self._cross_entropy(before.index_select(0, at), targets)

    def embed(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.llm.get_input_embeddings()(tokens)
        return embedded

    def _cross_entropy(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Logits exist at labelled positions only, and a part of them at a time where they are many."""
        rows = max(1, _LOGITS_AT_ONCE // self.llm.config.vocab_size)
        if len(targets) <= rows:
            return self._summed(hidden, targets)
        parts = zip(hidden.split(rows), targets.split(rows), strict=True)
        return torch.stack([checkpoint(self._summed, h, t, use_reentrant=False) for h, t in parts]).sum()

    def _summed(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.llm.lm_head(hidden).float(), targets, ignore_index=_NO_LOSS, reduction="sum")

    def trained(self) -> dict[str, Tensor]:
        """By name, what is trained and nothing else."""
        return {name: p for name, p in self.named_parameters() if p.requires_grad}

    def load_trained(self, state: dict[str, Tensor]) -> None:
        """UserError unless the names and shapes are those of what is trained."""
        own = self.trained()
        for name in own.keys() | state.keys():
            if name not in own or name not in state or own[name].shape != state[name].shape:
                raise UserError(
                    f"the weights of another recipe: {name} does not fit",
                    "use the recipe that they were trained with",
                    "weights-do-not-fit",
                )
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(spread.like(parameter, state[name]))


def build(recipe: MultimodalRecipe, directory: Path | None) -> Phase2:
    """Of random weights, or of those in `directory`; on the host, in the state in which training begins."""
    torch.manual_seed(recipe.seed)
    return around(random(dims.find(recipe.model.name)) if directory is None else _loaded(recipe, directory), recipe)


def around(llm: Any, recipe: MultimodalRecipe) -> Phase2:
    """A language model as the recipe trains it, with a projector before it."""
    llm.config.use_cache = False
    frozen = {"bf16": torch.bfloat16, "fp16": torch.float16, "no": torch.float32}[recipe.model.mixed_precision]
    if recipe.model.lora_rank:
        llm.requires_grad_(False).to(frozen)
        _add_adapters(llm, recipe)
    if recipe.model.gradient_checkpointing:
        llm.activation_checkpointing_enable({"use_reentrant": False})
    shape = (recipe.aligner.dim, recipe.projector.hidden_size, recipe.projector.num_soft_tokens, llm.config.hidden_size)
    return Phase2(llm, Projector(*shape))


def skip_input_casts(model: Phase2) -> None:
    """Adapters take their inputs as they are, which needs autocast: peft copies them to float32, and autocast back again."""
    from peft.tuners.lora import LoraLayer

    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.cast_input_dtype_enabled = False


def merge(model: Phase2) -> None:
    """Adapters become part of the weights that they stood beside, in float32; what is computed stays the same."""
    from peft.tuners.lora import LoraLayer

    model.llm.float()
    for name, module in list(model.llm.named_modules()):
        if isinstance(module, LoraLayer):
            module.merge()
            model.llm.set_submodule(name, module.get_base_layer())


def adapters(model: Phase2, recipe: MultimodalRecipe) -> tuple[dict[str, Tensor], Any]:
    """Adapters under the names that peft gives them in its files, and their configuration."""
    from peft import get_peft_model_state_dict

    weights = {f"base_model.model.{name}": value for name, value in get_peft_model_state_dict(model.llm).items()}
    config = _lora(recipe)
    config.base_model_name_or_path = None if recipe.model.source == "random" else recipe.model.source
    config.task_type, config.inference_mode = "CAUSAL_LM", True
    return weights, config


def random(row: dims.LlmDims) -> Any:
    """A Qwen2 of random weights."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = {f.name: getattr(row, f.name) for f in dataclasses.fields(row) if f.name != "rope_theta"}
    rope = {"rope_type": "default", "rope_theta": row.rope_theta}
    return Qwen2ForCausalLM(Qwen2Config(**sizes, rope_parameters=rope))


def _loaded(recipe: MultimodalRecipe, directory: Path) -> Any:
    """transformers only warns of weights that it draws at random or leaves out: names and shapes are checked before."""
    from transformers import AutoModelForCausalLM

    sizes = hf_config.qwen2(hf_config.read(directory))
    hf_weights.check(directory, hf_weights.qwen2(sizes), by_transformers=True)
    try:
        built = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="sdpa")
    except (OSError, ValueError, KeyError, SafetensorError, StrictDataclassError) as e:
        what = f"model.source={recipe.model.source} is no causal language model ({message_of(e, 100)})"
        raise UserError(
            what, "give a Hugging Face directory of one, such as Qwen2.5-0.5B-Instruct", "not-a-model"
        ) from e
    stored.require_finite(built.state_dict(), directory)
    return built


def _lora(recipe: MultimodalRecipe) -> Any:
    from peft import LoraConfig

    m = recipe.model
    return LoraConfig(
        r=m.lora_rank,
        lora_alpha=m.lora_alpha,  # type: ignore[arg-type]
        lora_dropout=m.lora_dropout,
        target_modules=list(m.lora_target_modules),
    )


def _add_adapters(llm: Any, recipe: MultimodalRecipe) -> None:
    from peft import inject_adapter_in_model

    inject_adapter_in_model(_lora(recipe), llm)
    for name, parameter in llm.named_parameters():
        parameter.requires_grad_("lora_" in name)
        if "lora_" in name:
            parameter.data = parameter.data.float()
