"""A damaged directory of a text encoder is refused by plan and trainer, in the same words; a sound one makes vectors."""

import json
import re

import pytest

from podwright.errors import UserError
from podwright.recipe.contrastive import TextEncoder
from podwright.recipe.load import load

torch = pytest.importorskip("torch")
data_check = pytest.importorskip("podwright.train.multimodal.data_check")
transformers = pytest.importorskip("transformers")
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "a")


def directory(path, model=transformers.BertModel, **values):
    (path / "vocab.txt").write_text("\n".join(WORDS))
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    sizes |= {"vocab_size": len(WORDS), "max_position_embeddings": 64, "pad_token_id": 0} | values
    model(model.config_class(**sizes)).save_pretrained(path)
    transformers.BertTokenizerFast.from_pretrained(str(path)).save_pretrained(path)
    (path / "vocab.txt").unlink()


def planned(path):
    recipe = load("phase1-tiny", ["text_encoder.name=minilm", f"text_encoder.source={path}"])
    return [record for record in data_check.of_contrastive(recipe) if record["level"] == "error"]


def encoder(path):
    from podwright.train.multimodal.networks.text_encoder import text_encoder

    return text_encoder(TextEncoder(name="minilm", source=str(path)))


def refusal(path):
    """What the trainer says; the plan says the same."""
    with pytest.raises(UserError) as e:
        encoder(path)
    (finding,) = planned(path)
    assert (finding["message"], finding["fix"]) == (e.value.what, e.value.fix)
    return str(e.value)


def change(path, name, **values):
    (path / name).write_text(json.dumps(json.loads((path / name).read_text()) | values))


def test_a_sound_directory_makes_vectors(tmp_path):
    directory(tmp_path)
    built = encoder(tmp_path)
    assert planned(tmp_path) == [] and built(built.prepare("a cat " * 40)[None]).shape == (1, 8)


def test_the_mean_of_words_depends_neither_on_their_number_nor_on_longer_texts_beside_them():
    from podwright.train.multimodal.networks.text_encoder import text_encoder

    built = text_encoder(TextEncoder(name="tiny"))
    once, thrice, longer, nothing = built(
        torch.stack([built.prepare(text) for text in ("cat", "cat cat cat", "a cat that sleeps", "")])
    )
    alone = built(built.prepare("cat")[None])[0]
    assert torch.allclose(once, thrice) and torch.equal(once, alone) and not torch.allclose(once, longer)
    assert once.any() and not nothing.any()


def test_a_text_as_long_as_is_allowed_has_positions_in_a_roberta(tmp_path):
    directory(tmp_path, transformers.RobertaModel, max_position_embeddings=65)
    built = encoder(tmp_path)
    assert planned(tmp_path) == [] and built(built.prepare("a cat " * 40)[None]).shape == (1, 8)


@pytest.mark.parametrize(
    ("file", "values", "words"),
    [
        ("config.json", {"num_attention_heads": 3}, "no text encoder"),
        ("config.json", {"num_attention_heads": 0}, "no text encoder"),
        ("config.json", {"pad_token_id": "0"}, "no text encoder"),
        ("config.json", {"dtype": "foo"}, "no text encoder"),
        ("config.json", {"max_position_embeddings": 16}, "position_embeddings.weight is one of its mismatched_keys"),
        ("config.json", {"vocab_size": 5}, "word_embeddings.weight is one of its mismatched_keys"),
        ("tokenizer.json", None, "has no tokenizer"),
        ("tokenizer.json", "", "no text encoder"),
        ("tokenizer.json", "{}", "no text encoder"),
        ("tokenizer_config.json", "nope", "no text encoder"),
        ("adapter_config.json", "{}", "holds an adapter .* that is not merged"),
        ("model.safetensors", "version https://git-lfs.github.com/spec/v1\n", "git-lfs, .* lfs pull"),
    ],
)
def test_a_damaged_directory_is_refused(tmp_path, file, values, words):
    directory(tmp_path)
    if isinstance(values, dict):
        change(tmp_path, file, **values)
    elif values is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(values)
    assert re.search(words, refusal(tmp_path)), refusal(tmp_path)


def test_a_value_that_only_transformers_refuses_is_named_in_one_line(tmp_path):
    directory(tmp_path)
    change(tmp_path, "config.json", layer_norm_eps="x")
    with pytest.raises(UserError, match=r"is no text encoder with its tokenizer \(.*layer_norm_eps") as e:
        encoder(tmp_path)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("key", ["max_position_embeddings", "vocab_size"])
def test_a_model_without_rows_for_the_longest_text_is_refused(tmp_path, key):
    directory(tmp_path, **{key: 6})
    assert "reads no text of text_encoder.max_tokens=64 (" in refusal(tmp_path)


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.float8_e4m3fn])
def test_weights_that_are_no_floating_numbers_are_refused(tmp_path, dtype):
    from safetensors.torch import load_file, save_file

    directory(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({name: value.to(dtype) for name, value in tensors.items()}, tmp_path / "model.safetensors")
    assert "which is not supported" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("hidden_act", "nonsense"), ("hidden_act", 3), ("hidden_dropout_prob", 2.0)),
        *(("attention_probs_dropout_prob", -0.1), ("model_type", None), ("model_type", [])),
    ],
)
def test_values_that_make_no_model_are_refused(tmp_path, key, value):
    directory(tmp_path)
    change(tmp_path, "config.json", **{key: value})
    assert "no text encoder" in refusal(tmp_path)


def test_weights_that_are_a_directory_are_refused(tmp_path):
    directory(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors").mkdir()
    assert "is no text encoder with its tokenizer" in refusal(tmp_path)


def test_weights_that_are_not_finite_are_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    directory(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({name: value * float("nan") for name, value in tensors.items()}, tmp_path / "model.safetensors")
    assert "not finite" in refusal(tmp_path)
