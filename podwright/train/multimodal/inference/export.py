"""What a run has trained, in the layouts of others: transformers, peft, safetensors, Phase 1's aligner.pt, ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from podwright.errors import UserError
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.recipe.paths import give_default_modes, require_new_directory
from podwright.rundir import part_of, write_json
from podwright.train.multimodal.data import features
from podwright.train.multimodal.inference import onnx_graphs, trained
from podwright.train.multimodal.inference.trained import Trained
from podwright.train.multimodal.networks import aligner, model

ADAPTERS, ONNX = "adapters", "onnx"


def export(path: Path, out: Path, onnx: bool) -> dict[str, Any]:
    """A directory that transformers loads, adapters merged in float32, and beside it the parts that it does not know."""
    require_new_directory(str(out), out)
    if onnx:
        onnx_graphs.check()
    opened = trained.open_(path)
    heads = _heads(opened.recipe)
    with part_of(out, f".{out.name}") as part:
        try:
            _write(opened, heads, part)
        except SafetensorError as e:
            raise UserError(
                f"{out} cannot be written ({e})", "free some space there, or name another directory", "not-written"
            ) from e
        differences = onnx_graphs.write(part / ONNX, heads, opened.model.projector) if onnx else None
        give_default_modes(part)
        written = sorted(str(p.relative_to(part)) for p in part.rglob("*") if p.is_file())
    params = sum(p.numel() for p in opened.model.llm.parameters())
    document = {"directory": str(out), "dtype": "float32", "num_params": params, "files": written}
    return document if differences is None else document | {"onnx_differences": differences}


def _write(opened: Trained, heads: aligner.Aligner, part: Path) -> None:
    llm, recipe, tokenizer = opened.model.llm, opened.recipe, opened.tokenizer
    part.mkdir(parents=True)
    if recipe.model.lora_rank:
        weights, lora_config = model.adapters(opened.model, recipe)
        lora_config.save_pretrained(part / ADAPTERS)
        save_file(_owned(weights), part / ADAPTERS / "adapter_model.safetensors", metadata={"format": "pt"})
        model.merge(opened.model)
    tokenizer.save(part)
    llm.config.use_cache = True
    llm.generation_config.eos_token_id = list(tokenizer.stop_ids)
    llm.generation_config.pad_token_id = tokenizer.pad_id
    llm.save_pretrained(part)
    save_file(_owned(opened.model.projector.state_dict()), part / trained.PROJECTOR)
    torch.save(heads.state_dict(), part / trained.ALIGNER)
    write_json(part / opened.run.recipe.name, recipe.model_dump(mode="json"))


def _owned(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().float().contiguous() for name, value in weights.items()}


def _heads(recipe: MultimodalRecipe) -> aligner.Aligner:
    """The aligner with every head that its file has; a random one has those of the encoders."""
    if recipe.aligner.source == "random":
        heads = features.sight(recipe).aligner
        assert heads is not None
        return heads.eval()
    sizes = aligner.sizes(recipe.aligner.source)
    scaled = recipe.aligner.features == "scaled"
    return aligner.load(recipe.aligner.source, sizes, recipe.aligner.dim, scaled=scaled).eval()
