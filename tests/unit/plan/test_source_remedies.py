"""What a plan says to type for a data source that is not what a recipe reads: it is named, and what is typed is accepted."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from podwright.data import documents, gsm8k, shards
from podwright.errors import UserError
from podwright.plan.checks import contrastive, examples, multimodal, pretrain
from podwright.plan.findings import Finding
from podwright.recipe.load import load
from podwright.recipe.pretrain import PretrainRecipe
from podwright.recipe.schema import GrpoData
from tests.unit.plan import static

ROWS = [{"question": f"What is {n}+1?", "answer": f"#### {n + 1}"} for n in range(64)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
GRPO = ("qwen3-tiny-arithmetic-grpo", "batch_size=4")


def grpo(source: Path, *settings: str) -> list[Finding]:
    sizes = settings or ("data.num_train=0", "data.num_test=0")
    return examples.check(load(GRPO[0], [*GRPO[1:], f"data.source={source}", *sizes]), source.parent)


def refused(source: Path) -> UserError:
    """What the plan and training say alike."""
    (finding,) = grpo(source)
    with pytest.raises(UserError) as caught:
        gsm8k.parts(GrpoData(source=str(source), num_train=0, num_test=0), 0)
    assert (finding.level, finding.message, finding.fix) == ("error", caught.value.what, caught.value.fix)
    return caught.value


def typed(fix: str) -> None:
    command = fix.removeprefix("type ").partition(", and use that file")[0]
    subprocess.run(["sh", "-c", command], check=True)


def test_questions_below_a_directory_or_in_its_single_file_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "questions"
    folder.mkdir()
    assert refused(folder).what == f"data.source={folder} has no file of its train part"
    for name in ("train", "test"):
        (folder / f"{name}.jsonl").write_text(LINES)
    assert refused(tmp_path).what == f"data.source={tmp_path} has no file of its train part"
    single = tmp_path / "single"
    single.mkdir()
    (single / "data.jsonl").write_text(LINES)
    assert refused(single).what == f"data.source={single} has no file of its train part"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            {"prompt": "a", "answer": "#### 1"},
            'row 1 is of no layout that GRPO reads; its columns are "prompt", "answer"',
        ),
        ({"question": "a", "answer": True}, "row 1: answer is true or false, not text"),
        ({"question": "a", "answer": None}, "row 1: answer is null, not text"),
    ],
)
def test_faults_of_parquet_rows_name_columns(tmp_path: Path, row: dict[str, Any], says: str) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row] * 9), path)
    error = str(refused(path))
    assert f"{path} {says}" in error and '{"' not in error and "python3" not in error


def test_the_number_to_hold_out_leaves_a_batch(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(LINES)
    (error,) = grpo(path, "data.num_test=200", "data.num_train=0")
    assert error.fix == "type data.num_test=6"
    assert [f.level for f in grpo(path, "data.num_test=6", "data.num_train=0")] == ["info"]


def test_questions_are_not_counted_in_tokens(tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text(LINES)
    with pytest.raises(UserError, match="holds no token shards"):
        shards.count(str(tmp_path))


def text(source: str, tokenizer: str = "bytes") -> UserError:
    """What the plan and training say alike of text to pretrain on."""
    recipe = load("almodel-tiny", [f"data.source={source}", f"data.tokenizer={tokenizer}"])
    assert isinstance(recipe, PretrainRecipe)
    (finding,) = [f for f in pretrain.check(recipe, None, Path()) if f.check == "data"]
    with pytest.raises(UserError) as caught:
        documents.load(source, tokenizer=tokenizer)
    assert (finding.message, finding.fix) == (caught.value.what, caught.value.fix)
    return caught.value


def test_ids_of_the_hub_are_not_fetched_for_pretraining(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "some words"}\n' * 9)
    error = text(str(path), "Qwen/Qwen3-1.7B")
    assert error.what == "there is no tokenizer Qwen/Qwen3-1.7B"
    assert "ids of the Hugging Face hub are not fetched" in error.fix
    assert text(str(path), "/nonexist").what == "there is no tokenizer /nonexist"
    assert text(str(path), "bites").fix == "did you mean bytes?"
    assert text(str(path), str(tmp_path)).what == f"{tmp_path} has no tokenizer.json"
    error = text("openai/gsm8k", "")
    assert error.what == "there is no openai/gsm8k"


@pytest.mark.parametrize("name", ["a.JSONL", "a.json", "list.json", "a.jsonl/"])
def test_text_under_another_ending_is_read(tmp_path: Path, name: str) -> None:
    rows = [{"text": f"some words {n}"} for n in range(9)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / name.rstrip("/")).write_text(json.dumps(rows) if name == "list.json" else lines)
    assert len(documents.load(f"{tmp_path}/{name}", tokenizer="bytes")) == 9


def test_an_empty_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    assert text(str(tmp_path / "a.txt")).fix == "give a file with plain text"


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    static.ask_in_process(monkeypatch)


def multimodal_errors(name: str, source: Path) -> list[Finding]:
    check: Any = contrastive.check if name == "phase1-tiny" else multimodal.check
    found = check(load(name, [f"data.source={source}", "data.num_train=0", "data.num_test=0"]), None, source)
    return [f for f in found if f.level == "error" and f.check == "data"]


def test_urls_and_directories_are_no_pictures_whatever_the_root(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for image, fault in (("https://x.org/a.png", "there is no such file"), ("d", "there is no such file")):
        rows = [{"text": f"cat {n}", "image": image} for n in range(40)]
        (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (error,) = multimodal_errors("phase1-tiny", tmp_path)
        assert fault in error.message and "data.root" not in error.fix


def test_an_empty_file_of_held_out_pairs_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    rows = [{"text": f"cat {n}", "image": "a.png"} for n in range(40)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "val.jsonl").write_text("")
    (error,) = multimodal_errors("phase1-tiny", tmp_path)
    assert error.message == f"{tmp_path}/val.jsonl is empty" and error.fix.startswith("fill or remove it")
    (tmp_path / "val.jsonl").unlink()
    assert not multimodal_errors("phase1-tiny", tmp_path)
