"""What transformers 4.57 and 5 read in the directories of tests/hf_directories is what is read here, or the plan says what to type.

`python bench/hf_directories.py` wrote them by both versions, tokenizers and peft, with the answers of both.
"""

import json
import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from podwright.data.layouts import Example
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.models import convert, qwen3
from podwright.recipe import hf_config, hf_weights
from podwright.recipe.load import load
from podwright.train import answers, hub
from podwright.train.grpo import prompts, token_check

ROOT = Path(__file__).parents[2] / "hf_directories"
ANSWERS = json.loads((ROOT / "answers.json").read_text())
DIRECTORIES = ANSWERS["directories"]
TOKENIZERS = [name for name, row in DIRECTORIES.items() if any(row[version].get("ids") for version in "45")]
CLASS = 'write "tokenizer_class": "PreTrainedTokenizerFast" into its tokenizer_config.json'
REFUSED = {
    "byte-level-of-its-default-by-tokenizers-4": 'write "add_prefix_space": true into its tokenizer_config.json',
    "legacy-format": "give a Hugging Face directory that was saved with a fast tokenizer",
    "slow-qwen2": "give a Hugging Face directory that was saved with a fast tokenizer",
    **dict.fromkeys(("qwen2-class-of-other-pieces-4", "qwen2-class-of-other-pieces-5"), CLASS),
    **dict.fromkeys(("qwen3-without-a-class-4", "qwen3-without-a-class-5", "tokens-in-tokenizer-json-only-4"), CLASS),
}
# Version 5 makes this class anew, with another rule for spaces after special tokens: read as version 4 does.
AS_VERSION_4 = {"llama2-style-4"}
# What ends a turn or a text ends an answer here, whether generation_config.json lists it or not.
ALSO_STOP = {"<|im_end|>", "<|endoftext|>"}
EXAMPLES = [Example(text, "5", "#### 5") for text in ANSWERS["texts"]]


def theirs(name: str) -> list[dict]:
    versions = "4" if name in AS_VERSION_4 else "45"
    return [DIRECTORIES[name][version] for version in versions if DIRECTORIES[name][version].get("ids")]


@pytest.mark.parametrize("name", [name for name in TOKENIZERS if name not in REFUSED])
def test_ids_and_special_tokens_are_those_of_transformers(name: str) -> None:
    ours = Tokenizer.load(ROOT / name)
    for said in theirs(name):
        assert [ours.encode(text) for text in ANSWERS["texts"]] == said["ids"]
        assert ours.vocab_size == said["size"]
        named = {key: token for key, (token, _) in said["special"].items() if token is not None}
        assert {key: token for key, token in ours._names.items() if key in said["special"]} == named
        assert {key: ours.encode(token) for key, token in named.items()} == {k: [said["special"][k][1]] for k in named}
        assert ours.documents(["a"])[0][: len(said["begin"])] == said["begin"]
        if "chat" in said:
            turns = ours.render(ANSWERS["turns"], add_generation_prompt=True, enable_thinking=True)
            assert turns == said["chat"]


@pytest.mark.parametrize("name", [name for name in TOKENIZERS if name not in REFUSED])
def test_an_answer_ends_where_generate_stops(name: str) -> None:
    ours = Tokenizer.load(ROOT / name)
    for said in theirs(name):
        names = ALSO_STOP | {said["special"]["eos_token"][0]} - {None}
        also = {i for token in names for i in ours.encode(token) if len(ours.encode(token)) == 1}
        assert set(said.get("stops", ours.stop_ids)) | also == set(ours.stop_ids)


def test_an_end_that_only_config_json_has_goes_along_with_the_tokenizer(tmp_path: Path) -> None:
    ours = Tokenizer.load(ROOT / "ends-in-the-config-only")
    assert 7 in ours.stop_ids
    ours.save(tmp_path)
    assert Tokenizer.load(tmp_path).stop_ids == ours.stop_ids


def test_an_end_in_config_json_does_not_count_beside_a_generation_config() -> None:
    name = "ends-differ-4"
    assert hf_config.read(ROOT / name)["eos_token_id"] != 11 and 11 in Tokenizer.load(ROOT / name).stop_ids
    alone = Tokenizer.load(ROOT / "generation-config-without-an-end")
    assert DIRECTORIES["generation-config-without-an-end"]["5"]["stops"] == [] and len(alone.stop_ids) == 1


@pytest.mark.parametrize("name", REFUSED)
def test_a_tokenizer_that_versions_read_differently_is_refused_with_what_to_type(name: str) -> None:
    with pytest.raises(UserError) as e:
        Tokenizer.load(ROOT / name)
    assert e.value.fix == REFUSED[name] and len(str(e.value).replace(str(ROOT), "")) < 240


def test_what_is_to_be_typed_makes_the_ids_those_of_transformers(tmp_path: Path) -> None:
    for name in ("tokens-in-tokenizer-json-only-4", "byte-level-of-its-default-by-tokenizers-4"):
        shutil.copytree(ROOT / name, tmp_path / name)
        file = tmp_path / name / "tokenizer_config.json"
        setting = REFUSED[name].removeprefix("write ").removesuffix(" into its tokenizer_config.json")
        file.write_text(json.dumps(json.loads(file.read_text()) | json.loads(f"{{{setting}}}")))
        assert Tokenizer.load(tmp_path / name).encode("Hello")


def plan_of(name: str) -> list[str]:
    """What `podwright.train check` says of the model, and a plan with it."""
    recipe = load("qwen3-tiny-gsm8k-grpo", [f"model.source={ROOT / name}", "model.name=small", "warm_start=null"])
    return [f"{said['level']}: {said['message']}; {said['fix']}" for said in token_check.findings(recipe, None)]


def test_a_plan_counts_the_prompts_of_chat_tokens_that_only_the_config_has() -> None:
    """Case 06: 54 ids where transformers has 23."""
    for name in ("chat-tokens-in-the-config-4", "chat-tokens-in-the-config-5"):
        assert not [line for line in plan_of(name) if line.startswith("error")]
        recipe = load("qwen3-tiny-gsm8k-grpo", [])
        tokenizer = prompts.load_tokenizer(hub.tokenizer(str(ROOT / name)), 128)
        (row,) = prompts.tokenized([EXAMPLES[6]], tokenizer, recipe.data).rows
        special = DIRECTORIES[name]["5"]["special"]
        assert row[0] == tokenizer.encode("<|im_start|>")[0] and special["eos_token"][1] in row
        assert special["eos_token"][1] == tokenizer.stop_ids[0]


def test_a_plan_is_not_ok_where_versions_of_transformers_differ() -> None:
    assert any(line.startswith("error") and line.endswith(CLASS) for line in plan_of("tokens-in-tokenizer-json-only-4"))


def test_tokens_beside_tokenizer_json_stay_where_they_stand_when_it_is_saved(tmp_path: Path) -> None:
    """So that transformers and a run that reads a copy beside its shards have the same ids."""
    name = "tokens-of-every-kind-4"
    Tokenizer.load(ROOT / name).save(tmp_path)
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        assert (tmp_path / file).read_bytes() == (ROOT / name / file).read_bytes()
    assert Tokenizer.load(tmp_path).encode(ANSWERS["texts"][3]) == DIRECTORIES[name]["4"]["ids"][3]


# Names of weights


@pytest.mark.parametrize("name", [name for name, row in DIRECTORIES.items() if "logits" in row["written"]])
def test_weights_of_a_wrapped_model_are_those_that_were_saved(name: str, one_device) -> None:
    """transformers draws those with names of torch.compile, DataParallel and peft at random, in silence."""
    dims = convert.read_config(ROOT / name)
    params = convert.read(ROOT / name, dims, one_device)
    ids = np.array([ANSWERS["ids"]] * 2)
    ours = qwen3.hidden(dims, params, ids, jnp.float32, one_device)[0] @ qwen3.head(params).T
    np.testing.assert_allclose(ours[0, -1, :6], DIRECTORIES[name]["written"]["logits"], atol=1e-4)
    for version in "45":
        said = DIRECTORIES[name][version]
        if not said["missing"]:
            np.testing.assert_allclose(ours[0, -1, :6], said["logits"], atol=1e-4)


MERGE = "type in Python: peft.AutoPeftModelForCausalLM.from_pretrained(DIR).merge_and_unload().save_pretrained(NEW)"
INSIDE = "save the model inside, for peft by model.merge_and_unload().save_pretrained(DIR)"


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("adapter-only", MERGE),
        ("adapter-beside-a-config", MERGE),
        ("adapter-beside-its-base", MERGE),
        ("adapter-not-merged", INSIDE),
        ("adapter-merged-in-place", INSIDE),
        (
            "untied-without-a-head",
            "write tie_word_embeddings: true into config.json if the embedding is its head, or add",
        ),
    ],
)
def test_weights_that_cannot_be_read_for_certain_are_called_what_they_are(name: str, fix: str) -> None:
    with pytest.raises(UserError) as e:
        answers.without_weights(str(ROOT / name), hf_weights.qwen3(hf_config.qwen3(hf_config.read(ROOT / name))))
    assert e.value.fix.startswith(fix) and len(str(e.value).replace(str(ROOT), "")) < 240
    assert "config.json is its own" not in str(e.value)


@pytest.mark.parametrize(
    "name", ["compiled-state", "compiled-layers", "data-parallel", "adapter-merged-with-names-of-peft"]
)
def test_what_transformers_loads_is_refused_with_names_that_it_does_not_know(name: str) -> None:
    """Phase 2 trains the model of transformers, which would start at random."""
    shapes = hf_weights.qwen3(hf_config.qwen3(hf_config.read(ROOT / name)))
    hf_weights.check(ROOT / name, shapes)
    with pytest.raises(UserError, match="has the name of a wrapper"):
        hf_weights.check(ROOT / name, shapes, by_transformers=True)
    shapes = hf_weights.qwen3(hf_config.qwen3(hf_config.read(ROOT / "without-model-4")))
    hf_weights.check(ROOT / "without-model-4", shapes, by_transformers=True)
