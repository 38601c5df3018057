"""The language model of Phase 2: transformers draws missing weights at random and leaves others out with a warning; both are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

from podwright.errors import UserError
from podwright.plan.checks import contrastive, multimodal
from podwright.recipe import llm
from podwright.recipe.contrastive import ContrastiveRecipe, TextEncoder
from podwright.recipe.load import load, require
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.train.multimodal import data_check
from podwright.train.multimodal.networks import model, text_encoder

TINY = llm.find("qwen2.5-tiny")
GATE = "model.layers.3.mlp.gate_proj.weight"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    model.random(TINY).save_pretrained(tmp_path / "base")
    (tmp_path / "base" / "tokenizer.json").write_text("{}")  # that there is one is all that a plan asks
    return tmp_path / "base"


def recipe(source: Path) -> MultimodalRecipe:
    return require(load("phase2-tiny", [f"model.source={source}"]), MultimodalRecipe)


def planned(path: Path) -> list[str]:
    records = data_check.of_multimodal(recipe(path), ())
    return [f"{r['message']}; {r['fix']}" for r in records if r["level"] != "info" and r["check"] == "model"]


def change(path: Path, values: dict[str, Any], tensors: dict[str, Any]) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | values))
    changed = {k: v for k, v in (load_file(path / "model.safetensors") | tensors).items() if v is not None}
    save_file(changed, path / "model.safetensors", metadata={"format": "pt"})


def test_the_models_of_transformers_are_read(base: Path) -> None:
    assert planned(base) == []
    built = model.build(recipe(base), base)
    stored = load_file(base / "model.safetensors")
    assert torch.equal(built.llm.model.embed_tokens.weight, stored["model.embed_tokens.weight"])


@pytest.mark.parametrize(
    ("values", "tensors", "words"),
    [
        ({"num_hidden_layers": 3, "layer_types": None}, {}, "model.layers.3."),
        ({}, {GATE: None}, f"weight {GATE} is not in"),
        ({}, {GATE: torch.ones(128, 384)}, "has shape [128, 384]; its config.json asks for [384, 128]"),
        ({}, {"model.layers.0.self_attn.o_proj.bias": torch.ones(128)}, "o_proj.bias in"),
        ({}, {"lm_head.weight": torch.ones(512, 128)}, "tie_word_embeddings=true; write tie_word_embeddings: false"),
        ({"quantization_config": {"quant_method": "fp8"}}, {}, "the weights are quantized"),
        ({"model_type": "llama"}, {}, "config.json says model_type='llama'; give a directory of a Qwen2 or Qwen2.5"),
        ({"head_dim": 64}, {}, "head_dim=64"),
        ({"layer_types": ["full_attention"] * 3}, {}, "has 3 layer_types, and num_hidden_layers=4 needs 4"),
        ({}, {GATE: torch.full((384, 128), float("nan"))}, f"weight {GATE} in"),
    ],
)
def test_a_checkpoint_that_is_not_implemented_is_refused_by_plan_and_training(
    base: Path, values: dict[str, Any], tensors: dict[str, Any], words: str
) -> None:
    change(base, values, tensors)
    with pytest.raises(UserError) as e:
        model.build(recipe(base), base)
    (line,) = planned(base)
    assert line.removeprefix(f"model.source={base}: ") == str(e.value)
    assert words in line and "\n" not in line


def test_a_config_without_tied_embeddings_counts_the_head(base: Path) -> None:
    """transformers' default is false, and the dimensions of Qwen2.5's table say true."""
    change(base, {}, {"lm_head.weight": torch.ones(512, 128)})
    config = json.loads((base / "config.json").read_text())
    del config["tie_word_embeddings"]
    (base / "config.json").write_text(json.dumps(config))
    assert multimodal.dimensions(recipe(base).model, base).num_params() == TINY.num_params() + 512 * 128
    assert planned(base) == []


def test_a_folder_with_config_json_alone_is_inconclusive_in_a_plan_and_no_model_in_training(base: Path) -> None:
    (base / "model.safetensors").unlink()
    (line,) = planned(base)
    assert "a config.json and no weights, which a run needs; put model.safetensors" in line
    with pytest.raises(UserError, match=r"has no model\.safetensors; check that the download is complete"):
        model.build(recipe(base), base)


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat"]
    path = tmp_path / "bert"
    path.mkdir()
    (path / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(vocab=str(path / "vocab.txt")).save_pretrained(path)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    BertForMaskedLM(BertConfig(vocab_size=7, max_position_embeddings=64, **sizes)).save_pretrained(path)
    return path


def planned_texts(path: Path) -> list[str]:
    asked = load(
        "phase1-aligner", [f"text_encoder.source={path}", "data.source=drawn", "data.num_train=64", "data.num_test=8"]
    )
    records = data_check.of_contrastive(require(asked, ContrastiveRecipe))
    return [
        f"{r['message']}; {r['fix']}" for r in records if str(path) in r["message"] or "config.json" in r["message"]
    ]


def test_a_bert_trained_for_words_is_read_without_its_head(bert: Path) -> None:
    assert planned_texts(bert) == []
    assert text_encoder.text_encoder(TextEncoder(source=str(bert))).dim == 24


@pytest.mark.parametrize(
    ("values", "tensors", "words"),
    [
        ({"num_hidden_layers": 1}, {}, "encoder.layer.1."),
        ({"num_hidden_layers": 3}, {}, "encoder.layer.2."),
        (
            {},
            {"bert.encoder.layer.0.output.dense.weight": None},
            "encoder.layer.0.output.dense.weight is one of its missing_keys",
        ),
        (
            {},
            {"bert.encoder.layer.0.output.dense.weight": torch.ones(32, 24)},
            "output.dense.weight is one of its mismatched_keys",
        ),
        ({"quantization_config": {"quant_method": "fp8"}}, {}, "the weights are quantized"),
    ],
)
def test_a_text_encoder_that_is_not_whole_is_refused_by_plan_and_training(
    bert: Path, values: dict[str, Any], tensors: dict[str, Any], words: str
) -> None:
    change(bert, values, tensors)
    (line,) = planned_texts(bert)
    assert words in line and "\n" not in line
    with pytest.raises(UserError):
        text_encoder.text_encoder(TextEncoder(source=str(bert)))


def test_a_text_encoder_of_other_names_is_refused_and_one_without_weights_inconclusive(bert: Path) -> None:
    change(bert, {"model_type": "mpnet"}, {})
    (line,) = planned_texts(bert)
    assert "is one of its missing_keys" in line
    (bert / "model.safetensors").unlink()
    (line,) = planned_texts(bert)
    assert "no weights that can be looked at" in line
    asked = require(load("phase1-tiny", [f"text_encoder={{name: minilm, source: {bert}}}"]), ContrastiveRecipe)
    (refused,) = contrastive.to_start(asked, bert)
    assert refused.level == "error" and "has a config.json and no weights" in refused.message


def test_a_value_that_is_not_finite_within_a_weight_is_refused_before_training(base: Path) -> None:
    weight = load_file(base / "model.safetensors")[GATE]
    weight[200, 60] = float("nan")
    change(base, {}, {GATE: weight})
    assert planned(base) == []
    with pytest.raises(UserError, match=f"weight {GATE} .* holds values that are not finite"):
        model.build(recipe(base), base)
    weight = weight.double()
    weight[200, 60] = 1e300
    change(base, {}, {GATE: weight})
    with pytest.raises(UserError, match=f"weight {GATE} .* holds values that are not finite"):
        model.build(recipe(base), base)
