"""What the library datasets has saved, at the doors: check, count, tokenize, plan, and the questions of eval."""

import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from podwright.data import gsm8k
from podwright.errors import UserError
from podwright.plan.checks import examples
from podwright.recipe.load import load
from podwright.rundir import RunDir
from podwright.train.grpo import standalone
from tests.verbs import call

ROWS: list[dict[str, Any]] = [{"question": f"{n}+1?", "answer": f"It is\n#### {n + 1}", "id": n} for n in range(40)]
TEXTS = [{"text": f"{n} and one more is {n + 1}"} for n in range(40)]


def saved(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    datasets.Dataset.from_list(rows).save_to_disk(path, **options)
    return path


def saved_parts(path: Path, **parts: list[dict[str, Any]]) -> Path:
    datasets.DatasetDict({name: datasets.Dataset.from_list(rows) for name, rows in parts.items()}).save_to_disk(path)
    return path


def recipe(source: Path) -> Any:
    return load("qwen3-tiny-arithmetic-grpo", ["data.num_train=0", "data.num_test=0", f"data.source={source}"])


def sizes(source: Path) -> tuple[int, int]:
    """As training reads it, which is what a plan counts."""
    train, test, _ = gsm8k.parts(recipe(source).data, 0)
    counted = examples.counts(recipe(source), source.parent)
    assert counted and (counted.train, counted.test) == (len(train), len(test))
    return counted.train, counted.test


def test_questions_that_datasets_saved_are_read_as_those_of_other_files(tmp_path: Path) -> None:
    parts = saved_parts(tmp_path / "parts", train=ROWS[:32], test=ROWS[32:])
    assert sizes(parts) == (32, 8)
    assert sizes(saved(tmp_path / "shards", ROWS, num_shards=3)) == (36, 4)
    result = json.loads(call("data", "check", str(parts), "--json").stdout)
    assert (result["lines"], result["valid"], result["num_faults"]) == (40, 40, 0)


@pytest.mark.parametrize(
    ("name", "expected"), [("validation", (32, 8)), ("other", (29, 3))], ids=["validation", "no test part"]
)
def test_the_parts_of_a_saved_data_set_are_those_of_the_hub(
    name: str, expected: tuple[int, int], tmp_path: Path
) -> None:
    source = saved_parts(tmp_path / "parts", train=ROWS[:32], **{name: ROWS[32:]})
    train, test, _ = gsm8k.parts(recipe(source).data, 0)
    assert (len(train), len(test)) == expected


def test_texts_that_datasets_saved_are_counted_tokenized_and_checked(tmp_path: Path) -> None:
    source = saved(tmp_path / "text", TEXTS)
    result = json.loads(call("data", "count", str(source), "--tokenizer", "bytes", "--json").stdout)
    assert result["documents"] == 40
    out = tmp_path / "out"
    assert call("data", "tokenize", f"{source}/", "--tokenizer", "bytes", "--out", str(out)).code == 0
    assert json.loads((out / "meta.json").read_text())["tokens"] == result["tokens"]
    (file,) = source.glob("*.arrow")
    assert json.loads(call("data", "check", str(file), "--json").stdout)["valid"] == 40
    small = ("batch_size=1", "sequence_length=64", "data.tokenizer=bytes", f"data.source={source}")
    plan = call("plan", "almodel-tiny", *small, "--on", "cpu-1", "--only", "data")
    assert "in 40 documents" in plan.stdout


def test_a_saved_data_set_that_lacks_a_file_is_refused_in_one_line(tmp_path: Path) -> None:
    source = saved(tmp_path / "shards", ROWS, num_shards=2)
    next(source.glob("*.arrow")).unlink()
    (finding,) = examples.check(recipe(source), tmp_path)
    assert (finding.level, finding.code) == ("error", "unreadable") and str(source) in finding.message
    assert len(finding.message + finding.fix) <= 240


def test_eval_needs_no_train_part(tmp_path: Path) -> None:
    only_test = tmp_path / "only"
    only_test.mkdir()
    (only_test / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS[:7]))
    tables = tmp_path / "tables"
    (tables / "data").mkdir(parents=True)
    datasets.Dataset.from_list(ROWS[:6]).to_parquet(tables / "data" / "test-00000-of-00001.parquet")
    both = saved_parts(tmp_path / "both", train=ROWS[:32], test=ROWS[32:])
    held = saved_parts(tmp_path / "held", test=ROWS[:5])
    run, own = RunDir(tmp_path / "none"), recipe(Path("arithmetic"))
    for source, number in ((only_test, 7), (tables, 6), (both, 8), (held, 5), (saved(tmp_path / "one", ROWS), 40)):
        assert len(standalone._questions(own, str(source), "", run)) == number, source


def test_parts_of_other_names_are_listed_with_what_to_type(tmp_path: Path) -> None:
    source = saved_parts(tmp_path / "chats", train_sft=ROWS[:32], test_sft=ROWS[32:])
    (finding,) = examples.check(recipe(source), tmp_path)
    assert (finding.message, finding.fix) == (
        f"data.source={source} has the parts train_sft, test_sft",
        f"type data.source={source}/train_sft",
    )
    assert sizes(source / "train_sft") == (29, 3)
    with pytest.raises(UserError, match=f"^--data={source} has the parts .*; type --data={source}/train_sft$"):
        standalone._questions(recipe(Path("arithmetic")), str(source), "", RunDir(tmp_path / "none"))


@pytest.mark.parametrize("name", ["test", "validation", "val"])
@pytest.mark.parametrize("form", ["lines", "saved"])
def test_a_directory_with_a_part_to_evaluate_on_alone_is_evaluated_and_checked(
    form: str, name: str, tmp_path: Path
) -> None:
    source = tmp_path / "held"
    if form == "saved":
        saved_parts(source, **{name: ROWS[:5]})
    else:
        source.mkdir()
        (source / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS[:5]))
    assert len(standalone._questions(recipe(Path("arithmetic")), str(source), "", RunDir(tmp_path / "none"))) == 5
    record = json.loads(call("data", "check", str(source), "--json").stdout)
    assert (record["lines"], record["valid"], record["num_faults"]) == (5, 5, 0)
    (finding,) = examples.check(recipe(source), tmp_path)
    assert finding.level == "error"
