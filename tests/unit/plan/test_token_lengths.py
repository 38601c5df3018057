"""What a plan says of tokenizer, chat template and lengths: what training refuses, in the same words, and what it leaves out."""

import json
import os
import re
import time
from pathlib import Path

import datasets
import huggingface_hub
import numpy as np
import pytest
import tokenizers
from safetensors.numpy import save_file

from podwright.data import documents, gsm8k, shards
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.plan.checks import token_lengths
from podwright.plan.findings import Finding, Verdict
from podwright.plan.make import make
from podwright.plan.options import Destination, PlanOptions
from podwright.recipe import hf_config, hf_weights, models
from podwright.recipe.load import load, shipped
from podwright.recipe.schema import GrpoRecipe
from podwright.slices import parse
from podwright.train import verbs
from podwright.train.grpo import data_check, loop, prompts
from tests.unit.plan.static import SMALL_CONFIG

QUESTIONS = [f"Ann has {n} apples and gives {n - 1} away. How many are left?" for n in range(1, 41)]


def lines(questions: list[str]) -> str:
    return "".join(json.dumps({"question": q, "answer": f"{n} - 1\n#### {n}"}) + "\n" for n, q in enumerate(questions))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint in `m`, data in `d`."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d/train.jsonl").write_text(lines(QUESTIONS))
    (tmp_path / "d/test.jsonl").write_text(lines([q.replace("Ann", "Bob") for q in QUESTIONS[:5]]))
    config = SMALL_CONFIG | {"tie_word_embeddings": True, "max_position_embeddings": 2048}
    Tokenizer.train(QUESTIONS, 384).save(tmp_path / "m")
    (tmp_path / "m/config.json").write_text(json.dumps(config))
    shapes = hf_weights.qwen3(hf_config.qwen3(config))
    save_file({name: np.zeros(shape, np.float16) for name, shape in shapes.items()}, tmp_path / "m/model.safetensors")
    return tmp_path


def recipe(*overrides: str) -> GrpoRecipe:
    base = ["model.name=qwen3-micro", "data.num_train=0", "data.num_test=0", "rollout.max_prompt_length=80"]
    last = {text.partition("=")[0]: text for text in (*base, *overrides)}
    loaded = load("qwen3-tiny-arithmetic-grpo", list(last.values()))
    assert isinstance(loaded, GrpoRecipe)
    return loaded


CHECKPOINT = ("model.source=m", "data.source=d", "warm_start=null")


def findings(folder: Path, *overrides: str, only: str = "") -> list[Finding]:
    """Those that are worse than an info, of a slice without a word on packages; [] where the plan is ok without warnings."""
    plan = make(recipe(*overrides), Destination("v6e-1", parse("v6e-1")), PlanOptions(cwd=folder, only=only))
    assert plan.verdict.ok is not True or not [f for f in plan.findings if f.level in ("error", "inconclusive")]
    return [f for f in plan.findings if f.level != "info"]


def training(asked: GrpoRecipe) -> None:
    """What a run does with tokenizer and prompts before it compiles anything."""
    train, test = gsm8k.parts(asked.data, asked.seed)[:2]
    if asked.model.source == "random":
        dims = models.find(asked.model.name)
        loop._prompts(asked, dims.max_positions, prompts.learned_tokenizer(train, dims.vocab_size), train, test)
        return
    dims = hf_config.qwen3(hf_config.read(Path(asked.model.source)))
    loop._prompts(
        asked, dims.max_positions, prompts.load_tokenizer(Path(asked.model.source), dims.vocab_size), train, test
    )


def refused_as_in_training(folder: Path, *overrides: str) -> Finding:
    (finding,) = findings(folder, *overrides)
    assert finding.level == "error"
    with pytest.raises(UserError) as refused:
        training(recipe(*overrides))
    assert (finding.message, finding.fix) == (refused.value.what, refused.value.fix)
    return finding


def context(asked: GrpoRecipe) -> list[str]:
    """What `python -m podwright.train check` says of lengths."""
    return [f["message"] for f in data_check.findings(asked, ()) if f["check"] == "context"]


def _without_words(text: str) -> str:
    """The tokenizer.json `text` with a vocabulary of its special tokens alone."""
    record = json.loads(text)
    vocabulary = {token["content"]: token["id"] for token in record["added_tokens"]} | {"<unk>": 0}
    return json.dumps(record | {"model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}})


@pytest.mark.usefixtures("counting_process")
def test_a_good_checkpoint_has_no_faults_and_its_longest_prompt_is_said(folder: Path) -> None:
    plan = make(recipe(*CHECKPOINT), Destination("v6e-1", parse("v6e-1")), PlanOptions(cwd=folder))
    (said,) = [f.message for f in plan.findings if f.check == "context"]
    assert plan.verdict is Verdict.OK
    assert said.startswith("the longest of 40 training and 5 test prompts has ") and said.endswith(
        "max_prompt_length=80"
    )


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        (
            "tokenizer.json",
            lambda text: text[: len(text) // 2],
            "the tokenizer in m cannot be read (",
        ),
        ("tokenizer_config.json", lambda text: text[:-9], "m: tokenizer_config.json is no JSON object"),
        (
            "chat_template.jinja",
            lambda text: "{{ raise_exception('no user') }}",
            "m: the chat template cannot be rendered (no user)",
        ),
        (
            "chat_template.jinja",
            lambda text: "{{ 1 / 0 }}",
            "m: the chat template cannot be rendered (ZeroDivisionError",
        ),
        ("chat_template.jinja", lambda text: "hello", "m: the chat template leaves the user's message out"),
        (
            "tokenizer.json",
            lambda text: _without_words(text),
            "m: the tokenizer has no token for any word of the data: every token",
        ),
        ("config.json", lambda text: text.replace("384", "300"), "the tokenizer of m has "),
    ],
)
def test_a_checkpoint_whose_tokenizer_training_refuses_is_refused(
    folder: Path, file: str, content, says: str, monkeypatch
) -> None:
    monkeypatch.chdir(folder)
    path = folder / "m" / file
    path.write_text(content(path.read_text()))
    if file == "config.json":
        config = json.loads(path.read_text())
        shapes = hf_weights.qwen3(hf_config.qwen3(config))
        save_file({n: np.zeros(s, np.float16) for n, s in shapes.items()}, folder / "m/model.safetensors")
    named = (*CHECKPOINT, "model.name=mine") if file == "config.json" else CHECKPOINT
    finding = refused_as_in_training(folder, *named)
    assert finding.check == "model" and finding.message.startswith(says)


@pytest.mark.long
@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["rollout.max_prompt_length=3"], "no training prompt fits rollout.max_prompt_length=3"),
        ([f"data.instruction={'Think. ' * 300}"], "no training prompt fits rollout.max_prompt_length=80"),
        ([f"data.instruction={'Think. ' * 3000}"], "no training prompt fits rollout.max_prompt_length=80"),
        (["rollout.total_generation_steps=3"], "no worked answer of the warm start fits rollout.total_gen"),
        (
            ["data.source=arithmetic", "data.num_train=900", "data.num_test=90", "rollout.max_prompt_length=25"],
            "no training prompt fits",
        ),
    ],
)
def test_lengths_that_training_refuses_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, overrides: list[str], says: str
) -> None:
    monkeypatch.chdir(folder)
    asked = ["data.source=d", "rollout.max_prompt_length=80", *overrides]
    finding = refused_as_in_training(folder, *asked)
    assert finding.check == "context" and finding.message.startswith(says)
    if finding.fix.startswith("type rollout"):
        better = findings(folder, *asked, *finding.fix.removeprefix("type ").split())
        assert not [f for f in better if f.level == "error"]
        training(recipe(*asked, *finding.fix.removeprefix("type ").split()))


@pytest.mark.usefixtures("counting_process")
def test_what_training_leaves_out_is_a_warning_with_its_share(folder: Path) -> None:
    (folder / "d/train.jsonl").write_text(lines([*QUESTIONS, *(f"{q} {'Think. ' * 50}" for q in QUESTIONS[:10])]))
    (finding,) = findings(folder, *CHECKPOINT)
    assert (finding.check, finding.level) == ("context", "warning")
    assert finding.message == "10 of 50 training prompts (20%) are too long for rollout and left out"
    lengths = finding.fix.removeprefix("type ").removesuffix(", or give shorter examples")
    assert findings(folder, *CHECKPOINT, lengths) == []


def test_each_of_many_examples_is_counted(folder: Path) -> None:
    many = [f"{q} ({n})" for n in range(1000) for q in QUESTIONS]
    many[33_333] += " Think." * 100
    (folder / "d/train.jsonl").write_text(lines(many))
    plan = make(recipe(*CHECKPOINT), Destination("v6e-1", parse("v6e-1")), PlanOptions(cwd=folder))
    said = [f.message for f in plan.findings if f.check == "context"]
    assert "the longest of 40,000 training and 5 test prompts has 738 tokens" in said[0]
    assert said[1].startswith("1 of 40,000 training prompts (0.0025%)") and plan.verdict is Verdict.OK


@pytest.mark.parametrize(("operations", "generated"), [(2, 3020), (3, 2020), (50, 140)])
def test_of_many_or_long_problems_a_plan_generates_some(
    monkeypatch: pytest.MonkeyPatch, operations: int, generated: int
) -> None:
    monkeypatch.setattr(gsm8k, "_STEPS", 6000)
    data = ["data.source=arithmetic", "data.num_train=40000", "data.num_test=20", f"data.max_operations={operations}"]
    first = context(recipe(*data, "rollout.max_prompt_length=400"))[0]
    assert first.startswith(f"the longest of {generated:,} prompts, out of 40,000 training and 20 test prompts, has ")


@pytest.mark.brief(1)
@pytest.mark.parametrize("long", ["x" * 2_000_000, "many words " * 200_000], ids=["word", "text"])
@pytest.mark.parametrize("key", ["question", "answer"])
def test_a_text_that_no_model_holds_is_left_out_quickly(
    folder: Path, monkeypatch: pytest.MonkeyPatch, long: str, key: str
) -> None:
    """By a plan and by a run, for random weights, whose tokenizer is learned from the examples, as for a checkpoint."""
    monkeypatch.chdir(folder)
    row = {"question": "How many?", "answer": "#### 1"}
    row[key] = f"{long} {row[key]}"
    (folder / "d/train.jsonl").write_text(lines(QUESTIONS) + json.dumps(row) + "\n")
    for overrides in (["data.source=d", "rollout.total_generation_steps=24"], list(CHECKPOINT)):
        asked = recipe(*overrides)
        begin = time.process_time()
        said = context(asked)
        train, test = gsm8k.parts(asked.data, 0)[:2]
        own = prompts.learned_tokenizer(train, 384) if asked.warm_start else Tokenizer.load(folder / "m")
        kept, _ = loop._prompts(asked, 2048, own, train, test)
        assert time.process_time() - begin < 30
        assert len(kept) == (40 if key == "question" else 41)
        if key == "question":
            assert re.match(r"the longest of 41 training and 5 test prompts has \d{4,} tokens", said[0])
            assert said[1].startswith("1 of 41 training prompts (2.44%)")
        elif asked.warm_start:
            assert said[1].startswith("1 of 41 answers of the warm start (2.44%)")


def test_positions_of_the_model_are_named_with_keys_and_a_length_that_is_enough(folder: Path) -> None:
    beyond = findings(folder, *CHECKPOINT, "rollout.max_prompt_length=1000000")
    (finding,) = (f for f in beyond if f.check == "context")
    assert finding.level == "error"
    assert finding.message.startswith(
        "rollout.max_prompt_length=1000000 and rollout.total_generation_steps=24 are 1,000,024"
    )
    assert findings(folder, *CHECKPOINT, finding.fix.removeprefix("type ")) == []


def test_a_part_of_a_plan_without_data_and_lengths_starts_no_process(folder: Path, monkeypatch) -> None:
    def ask(*_: object) -> None:
        raise AssertionError("the loaders were asked")

    monkeypatch.setattr(token_lengths, "_ask", ask)
    token_lengths._checked.cache_clear()
    for only in ("mesh", "mesh,memory"):
        assert findings(folder, *CHECKPOINT, "training.max_steps=0", "training.num_epochs=2", only=only) == []
    with pytest.raises(AssertionError, match="the loaders were asked"):
        findings(folder, *CHECKPOINT, only="data")


def test_a_part_of_a_plan_has_its_own_verdict(folder: Path) -> None:
    typed = (*CHECKPOINT, "rollout.max_prompt_length=3")
    assert not [f for f in findings(folder, *typed, only="data") if f.level == "error"]
    (finding,) = (f for f in findings(folder, *typed, only="context") if f.level != "info")
    assert finding.level == "error" and "no training prompt fits rollout.max_prompt_length=3" in finding.message


@pytest.mark.parametrize("only", ["data", "context", "model", "data,context"])
def test_checks_that_got_no_answer_are_not_ok(folder: Path, monkeypatch: pytest.MonkeyPatch, only: str) -> None:
    monkeypatch.setattr(token_lengths, "_ask", lambda *_: (None, "the process was killed"))
    token_lengths._checked.cache_clear()
    (finding,) = findings(folder, *CHECKPOINT, only=only)
    assert (finding.level, finding.code) == ("inconclusive", "not-checked")
    token_lengths._checked.cache_clear()


@pytest.mark.parametrize("only", ["data", "batch"])
def test_lines_that_were_not_counted_leave_data_and_batch_unchecked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: str
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "image": "a.png"}\n' * 40)
    monkeypatch.setattr(token_lengths, "_ask", lambda *_: (None, "No module named 'torch'"))
    for name in ("phase1-tiny", "phase2-tiny"):
        given = load(name, ["data.source=a.jsonl"])
        plan = make(given, Destination("8xA100-40GB", parse("8xA100-40GB")), PlanOptions(cwd=tmp_path, only=only))
        assert plan.verdict is Verdict.INCONCLUSIVE, name
    token_lengths._checked.cache_clear()


def test_what_cannot_be_read_here_is_named_as_unchecked(folder: Path) -> None:
    unchecked = "was not checked: "
    for overrides, keys in (
        (("model.source=some/model", "data.source=d"), "model.source cannot be read here"),
        (("model.source=random", "data.source=some/set"), "data.source cannot be read here"),
        (("model.source=some/model", "data.source=some/set"), "model.source and data.source cannot be read here"),
        (("model.source=m", "data.source=some/set"), "data.source=some/set is on the Hugging Face hub"),
    ):
        (finding,) = (f for f in findings(folder, *overrides) if f.check == "context")
        assert finding.level == "inconclusive" and finding.message.endswith(unchecked + keys)


def test_a_data_set_of_the_hub_without_test_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"question": ["1+1?"], "answer": ["#### 2"]}
    parts = {
        "train": datasets.Dataset.from_dict(rows),
        "test": datasets.Dataset.from_dict({"question": [], "answer": []}),
    }
    monkeypatch.setattr(datasets, "load_dataset", lambda *names, streaming: parts)
    (finding,) = data_check.findings(recipe("data.source=some/set"), ())
    assert (finding["level"], finding["message"]) == ("error", "data.source=some/set has no test examples")


def test_rows_of_the_hub_that_no_run_reads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {name: datasets.Dataset.from_dict({"colour": ["red", "blue"]}) for name in ("train", "test")}
    monkeypatch.setattr(datasets, "load_dataset", lambda *names, streaming: parts)
    (finding,) = data_check.findings(recipe("data.source=some/set"), ())
    assert (finding["check"], finding["level"]) == ("data", "error")


def test_a_recipe_of_a_user_is_checked_by_name_too(folder: Path) -> None:
    """And not only what a plan hands over, which is JSON."""
    (folder / "mine.yaml").write_text(shipped()["qwen3-tiny-arithmetic-grpo"].read_text())
    (folder / "none.json").write_text("{")
    assert [r["code"] for r in verbs.VERBS["check"]([str(folder / "mine.yaml")])]
    assert verbs.answer(verbs.VERBS["check"], [str(folder / "none.json")]) == 2


def test_a_gated_model_leaves_what_the_data_is_called(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gated(*_: object, **__: object) -> str:
        raise PermissionError("GatedRepoError")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", gated)
    records = data_check.findings(recipe(f"data.source={folder}/d", "model.source=some/gated"), ())
    assert [(r["check"], r["level"]) for r in records if r["level"] != "info"][-1] == ("context", "inconclusive")
    assert "examples" in {r["code"] for r in records}


def test_the_tokenizer_is_checked_where_only_the_data_is_elsewhere(folder: Path) -> None:
    (folder / "m/chat_template.jinja").write_text("hello")
    found = findings(folder, "model.source=m", "data.source=some/set")
    assert ["the chat template leaves the user's message out" in f.message for f in found if f.level == "error"] == [
        True
    ]


@pytest.mark.usefixtures("counting_process")
def test_without_the_package_nothing_is_ok(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a process that is too slow is none that has found nothing."""
    (folder / "absent").mkdir()
    (folder / "absent/tokenizers.py").write_text("raise ModuleNotFoundError(\"No module named 'tokenizers'\")")
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{folder / 'absent'}:{os.environ.get('PYTHONPATH', '')}:{Path.cwd()}")
        (finding,) = findings(folder, *CHECKPOINT)
    assert finding.level == "inconclusive" and "No module named 'tokenizers'" in finding.message
    assert finding.fix == "type pip install -e '.[jax]' in podwright's clone"
    monkeypatch.setattr(token_lengths, "_PATIENCE_S", 0.01)
    (folder / "m/config.json").touch()
    token_lengths._checked.cache_clear()
    (finding,) = findings(folder, *CHECKPOINT)
    assert finding.level == "inconclusive" and "has not answered for" in finding.message
    token_lengths._checked.cache_clear()


@pytest.mark.usefixtures("counting_process")
def test_one_question_answers_for_all_settings_that_change_no_length(folder: Path) -> None:
    token_lengths._checked.cache_clear()
    assert findings(folder, *CHECKPOINT) == [] == findings(folder, *CHECKPOINT, "batch_size=8", "grpo.beta=0.1")
    assert token_lengths._checked.cache_info().misses == 1
    (folder / "m/tokenizer.json").write_text("{}")
    assert [f.level for f in findings(folder, *CHECKPOINT)] == ["error"], "a file that has changed is read again"


@pytest.mark.usefixtures("counting_process")
def test_counting_needs_no_jax(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "absent").mkdir()
    for module in ("jax", "torch", "grain"):
        (folder / "absent" / f"{module}.py").write_text("raise AssertionError('it was imported')")
    monkeypatch.setenv("PYTHONPATH", f"{folder / 'absent'}:{os.environ.get('PYTHONPATH', '')}:{Path.cwd()}")
    token_lengths._checked.cache_clear()
    assert findings(folder, *CHECKPOINT) == []


def of_pretraining(folder: Path, *overrides: str) -> list[Finding]:
    """Errors of a plan."""
    base = ["data.num_documents=400", "training.max_steps=1", "batch_size=1", "evaluation.num_batches=1"]
    plan = make(
        load("almodel-tiny", [*base, *overrides]), Destination("cpu-1", parse("cpu-1")), PlanOptions(cwd=folder)
    )
    return [f for f in plan.findings if f.level == "error"]


@pytest.mark.usefixtures("counting_process")
def test_the_tokenizer_of_a_text_to_pretrain_on_is_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused as training refuses it."""
    monkeypatch.chdir(folder)
    Tokenizer.train([], 261).save(folder / "t")
    (folder / "a.jsonl").write_text(json.dumps({"text": "more or less " * 2000}) + "\n")
    for source in ("arithmetic", "a.jsonl"):
        wrong = [f for f in of_pretraining(folder, f"data.source={source}", "data.tokenizer=t") if f.check == "data"]
        assert ["the tokenizer t has a vocabulary of 261, the model one of 259" in f.message for f in wrong] == [True]
    Tokenizer.bytes().save(folder / "t")
    asked = ("data.source=a.jsonl", "data.tokenizer=t")
    assert of_pretraining(folder, *asked) == []
    for file, content in (("tokenizer_config.json", "{"), ("chat_template.jinja", "{% if %}")):
        (folder / "t" / file).write_text(content)
        (finding,) = of_pretraining(folder, *asked)
        with pytest.raises(UserError) as refused:
            documents.load("a.jsonl", tokenizer="t", vocab_size=259)
        assert (finding.check, finding.message, finding.fix) == ("data", refused.value.what, refused.value.fix)
        (folder / "t" / file).unlink()
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "<|im_end|>": 1}, unk_token="missing"))
    words.save(str(folder / "t/tokenizer.json"))
    (finding,) = of_pretraining(folder, *asked)
    assert "the tokenizer cannot encode a text of the data" in finding.message


def test_the_tokenizer_that_shards_bring_along_is_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    Tokenizer.bytes().save(folder / "t")
    (folder / "a.jsonl").write_text(json.dumps({"text": "more or less " * 2000}) + "\n")
    shards.tokenize(["a.jsonl"], "t", Path("s"), 10_000_000)
    assert of_pretraining(folder, "data.source=s", "data.tokenizer=") == []
    (folder / "s/tokenizer/tokenizer.json").write_text("{")
    (finding,) = of_pretraining(folder, "data.source=s", "data.tokenizer=")
    with pytest.raises(UserError) as refused:
        documents.load("s", vocab_size=259)
    assert (finding.message, finding.fix) == (refused.value.what, refused.value.fix)
    assert finding.message.startswith("the tokenizer in s/tokenizer cannot be read (")
