"""Files in the layouts of other programs, for Phase 1: what is typed makes a file that the plan and training take."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from podwright.data import faults, pairs
from podwright.plan.checks import contrastive, examples
from podwright.recipe import conversions, text_lines
from podwright.recipe.load import load
from tests import verbs

NUMBER = 40


def typed(message: str, python: str = "python3 -c") -> str:
    """The command of a message, and the file that it writes."""
    command = python + message.partition(python)[2].partition(", and use that file")[0]
    subprocess.run(["sh", "-c", command], check=True)
    return shlex.split(command)[-1]


def test_a_text_is_kept_beside_a_caption(tmp_path: Path) -> None:
    rows = [{"image": "0.png", "caption": "a"}, {"caption": "b", "text": "c", "image": "1.png"}]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    converted = Path(typed(conversions.to_pairs(str(path), rows[0]))).read_text().splitlines()
    assert [json.loads(line) for line in converted] == [{"image": "0.png", "text": "a"}, rows[1]]


@pytest.mark.parametrize("image", ["image", "image_path"])
def test_captions_become_pairs_by_what_is_typed(tmp_path: Path, image: str) -> None:
    from PIL import Image

    path = tmp_path / "a.jsonl"
    for n in range(NUMBER):
        Image.new("RGB", (4, 4), (n, 0, 0)).save(tmp_path / f"{n}.png")
    path.write_text("".join(json.dumps({image: f"{n}.png", "caption": f"cat {n}"}) + "\n" for n in range(NUMBER)))
    settings = ("data.num_train=0", "data.num_test=0", "per_device_batch_size=8")
    recipe = load("phase1-tiny", [*settings, f"data.source={path}"])
    errors = [f for f in contrastive.check(recipe, None, tmp_path) if f.level == "error"]
    record = pairs.check_lines(path, None, False)
    assert len(errors) == 1 and record is not None and record["num_faults"]
    assert any(errors[0].fix in fault["message"] for fault in record["faults"])
    new = typed(errors[0].fix)
    found = contrastive.check(load("phase1-tiny", [*settings, f"data.source={new}"]), None, tmp_path)
    assert not [f for f in found if f.level in ("error", "warning")], found
    record = pairs.check_lines(Path(new), None, False)
    assert record is not None and (record["valid"], record["alone"], record["num_faults"]) == (NUMBER, 0, 0)


def test_text_with_commas_is_no_table() -> None:
    for line in (
        b'"hello, you"',
        b"Hello, world",
        b"[1,2]",
        b'{"a": 1, "b": 2}',
        b"1,2",
        b"a,a",
        b"",
        b"it is so, or not",
    ):
        assert text_lines.other_format("a.jsonl", line) is None, line
    assert text_lines.other_format("a.txt", b"question,answer") is None


def test_pairs_have_no_conversion() -> None:
    assert conversions.to_pairs("a.jsonl", {"text": "a", "caption": "b", "image": "c"}) == ""


@pytest.mark.parametrize(
    ("source", "fix"),
    [
        (
            "https://x.org/d/train.jsonl",
            "type curl -fL https://x.org/d/train.jsonl -o train.jsonl, and then data.source=train.jsonl",
        ),
        ("s3://b/train.jsonl", "type aws s3 cp s3://b/train.jsonl train.jsonl, and then data.source=train.jsonl"),
        ("gs://b/folder", "type gcloud storage cp -r gs://b/folder ., and then data.source=folder"),
        ("https://huggingface.co/datasets/openai/gsm8k", "type data.source=openai/gsm8k"),
        ("file:///d/a.jsonl", "type data.source=/d/a.jsonl"),
        ("ftp://x/y", "copy it to this machine, and give its path"),
    ],
)
def test_a_url_of_data_that_is_read_from_this_machine_says_how_to_copy_it(
    tmp_path: Path, source: str, fix: str
) -> None:
    (error,) = examples.check(load("qwen3-tiny-arithmetic-grpo", [f"data.source={source}"]), tmp_path)
    assert error.level == "error" and error.message.startswith(f"data.source={source} is a URL") and error.fix == fix
    found = contrastive.check(load("phase1-tiny", [f"data.source={source}"]), None, tmp_path)
    (error,) = [f for f in found if f.level == "error"]
    assert " is a URL" in error.message and error.fix.startswith(fix)


def test_parquet_files_and_directories_of_questions_are_checked(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [{"question": f"{n}?", "answer": f"#### {n}" if n != 3 else "none"} for n in range(9)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    record = faults.check(str(tmp_path / "a.parquet"))
    assert (record["lines"], record["valid"], record["num_faults"]) == (9, 8, 1)
    assert "a.parquet row 4: the answer has no '#### n'" in record["faults"][0]["message"]
    (tmp_path / "d").mkdir()
    for name in ("train", "test"):
        (tmp_path / "d" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows if row != rows[3]))
    record = faults.check(str(tmp_path / "d"))
    assert (record["lines"], record["valid"], record["num_faults"]) == (16, 16, 0)
    assert list(record["files"]) == [str(tmp_path / "d" / f"{name}.jsonl") for name in ("train", "test")]
    assert "8 lines of the 8 of test.jsonl are in train.jsonl too" in record["warnings"][0]
    (tmp_path / "d" / "test.jsonl").write_text(json.dumps(rows[3]) + "\n")
    done = verbs.call("data", "check", str(tmp_path / "d"))
    assert done.code == 1 and done.stdout.splitlines()[-1].endswith("d: 1 fault in 9 lines, 8 valid")
