"""Local data is read by a plan as training reads it: what training refuses, the plan refuses in the same words."""

import errno
import json
import os
import re
import socket
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from podwright.data import faults, gsm8k
from podwright.errors import UserError
from podwright.plan.checks import examples
from podwright.plan.findings import Finding
from podwright.recipe.load import load, override
from podwright.recipe.schema import GrpoData

GOOD = json.dumps({"question": "1+1?", "answer": "2\n#### 2"})


def good(number: int, plus: int = 1) -> str:
    rows = [{"question": f"{n}+{plus}?", "answer": f"#### {n + plus}"} for n in range(number)]
    return "".join(json.dumps(row) + "\n" for row in rows)


def bytes_read() -> int:
    """By this process until now."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])


def checked(folder: Path, source: str, *overrides: str) -> Finding:
    sizes = ("data.num_train=0", "data.num_test=0", "batch_size=4")
    (finding,) = examples.check(
        load("qwen3-tiny-arithmetic-grpo", [*sizes, *overrides, f"data.source={source}"]), folder
    )
    return finding


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (json.dumps({"messages": [{"role": "user", "content": "hi"}]}), "chat-turns"),
        (json.dumps({"instruction": "add", "input": "", "output": "two"}), "answer-number"),
        (json.dumps({"question": "1+1?", "answer": "it is 2"}), "answer-number"),
        (GOOD[:-9], "not-json"),
        ("PAR1 and so on", "not-json"),
        ("caf\udce9", "not-utf8"),
    ],
    ids=["chat", "alpaca", "no number", "truncated", "parquet", "latin-1"],
)
@pytest.mark.parametrize("at", ["first", "last"])
def test_a_bad_line_is_refused_as_training_refuses_it(tmp_path: Path, content: str, code: str, at: str) -> None:
    lines = [content, good(30)] if at == "first" else [good(30), content]
    file = tmp_path / "d.jsonl"
    file.write_bytes("\n".join(lines).encode(errors="surrogateescape"))
    finding = checked(tmp_path, str(file))
    assert (finding.level, finding.code) == ("error", code) and finding.fix
    with pytest.raises(UserError) as refused:
        gsm8k.parts(GrpoData(source=str(file)), 0)
    assert (refused.value.what, refused.value.fix) == (finding.message, finding.fix)


@pytest.mark.parametrize("bad", ["first", "last", "middle"])
def test_of_a_large_file_both_ends_and_a_sample_are_read(tmp_path: Path, bad: str) -> None:
    file, wrong = tmp_path / "large.jsonl", '{"text": "x"}\n'
    block = good(10_000).encode()
    with file.open("wb") as f:
        f.write(wrong.encode() if bad == "first" else b"")
        for _ in range(200):
            f.write(block)
        f.write(wrong.encode() * (30_000 if bad == "middle" else 0))
        for _ in range(200):
            f.write(block)
        f.write(wrong.encode() if bad == "last" else b"")
    before = bytes_read()
    finding = checked(tmp_path, str(file))
    assert bytes_read() - before < file.stat().st_size / 10
    if bad == "middle":  # a tenth of a percent: what a sample misses is said
        assert finding.level == "info" and "rows were read, at both ends and between" in finding.message
        assert "out of about 3,6" in finding.message
    else:
        where = f"{file}:1" if bad == "first" else f"{file} at byte "
        assert (finding.level, finding.code) == ("error", "row-layout") and finding.message.startswith(where)


def test_most_of_a_large_file_in_another_format_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "large.jsonl"
    with file.open("w") as f:
        f.write(good(60_000))
        f.writelines(['{"messages": []}\n' * 100_000] * 6)
        f.write(good(60_000))
    assert checked(tmp_path, str(file)).code == "chat-turns"


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({}, "has no file of its train part; give a directory with train.jsonl and test.jsonl"),
        ({"train.jsonl": good(9)}, "has no file of its test part; add it, or type data.source="),
        ({"train.jsonl": good(9), "test.jsonl": ""}, "has no test examples"),
        ({"train.jsonl": "", "test.jsonl": good(9)}, "has no train examples"),
        ({"train.jsonl": good(9), "test.jsonl": "{}"}, "test.jsonl:1 is of no layout"),
        ({"Train.jsonl": good(9), "Test.jsonl": good(9)}, "has no file of its train part"),
        ({"train-0.parquet": "PAR1"}, "has no file of its test part; add it, or type data.source="),
        (
            {"train-0.parquet": "", "train-1.parquet": ""},
            "has no file of its test part; add test.jsonl, or name the files train*.parquet",
        ),
        ({"train.parquet": "", "dev.parquet": ""}, "has no file of its test part; add it, or type data.source="),
        ({"test.parquet": ""}, "has no file of its train part; add train.jsonl"),
        ({"train.parquet": "PAR1", "test.parquet": "PAR1"}, "train.parquet cannot be read as parquet"),
        ({"train.parquet": "", "test.parquet": ""}, "train.parquet cannot be read as parquet"),
    ],
)
def test_a_directory_is_held_to_what_training_reads(tmp_path: Path, files: dict[str, str], fault: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    finding = checked(tmp_path, str(tmp_path))
    assert finding.level == "error" and fault in f"{finding.message}; {finding.fix}"
    with pytest.raises(UserError) as refused:
        gsm8k.parts(GrpoData(source=str(tmp_path)), 0)
    assert refused.value.what == finding.message


def test_rows_of_parquet_are_read(tmp_path: Path) -> None:
    for name, number in (("train", 30_000), ("test", 20)):
        rows = [{"question": f"{n} {name}?", "answer": f"#### {n}"} for n in range(number)]
        pyarrow.parquet.write_table(
            pyarrow.Table.from_pylist(rows), tmp_path / f"{name}.parquet", row_group_size=10_000
        )
    assert "out of about 30,000 training examples" in checked(tmp_path, str(tmp_path)).message
    rows[-1]["answer"] = "none"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "test.parquet")
    assert "test.parquet row 20: the answer has no '#### n'" in checked(tmp_path, str(tmp_path)).message


def test_a_parquet_file_that_is_not_damaged_is_not_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.parquet"
    texts = pyarrow.array([b"1+1?", b"\xff\xfe"]).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"question": texts, "answer": ["#### 2", "#### 3"]}), path)
    assert checked(tmp_path, str(path)).code == "not-utf8"

    def denied(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Failed to open local file")

    monkeypatch.setattr(pyarrow.parquet, "ParquetFile", denied)
    with pytest.raises(UserError, match=r"rows\.parquet: Permission denied"):
        gsm8k.parts(GrpoData(source=str(path)), 0)


def test_what_is_no_file_is_refused_without_being_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "d" / "train.jsonl")
    (tmp_path / "d" / "test.jsonl").write_text(good(3))
    (tmp_path / "e" / "train.jsonl").mkdir(parents=True)
    (tmp_path / "broken").symlink_to("nowhere.jsonl")
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "train.jsonl").write_text(good(3))
    (tmp_path / "f" / "test.jsonl").symlink_to("test.jsonl")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "s"))
        for source, fault in {
            "/dev/zero": "data.source=/dev/zero is a device, not a file",
            "pipe.jsonl": "data.source=pipe.jsonl is a pipe, not a file",
            "s": "data.source=s is a socket, not a file",
            "d": "train.jsonl is not a file",
            "e": "train.jsonl is not a file",
            "broken": "data.source=broken is a link to nowhere.jsonl, which is not there",
            "f": "test.jsonl is a link to test.jsonl, which is not there",
        }.items():
            finding = checked(tmp_path, source)
            assert finding.level == "error" and fault in finding.message, source


def test_examples_are_counted_as_training_counts_them(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(good(40))
    (tmp_path / "test.jsonl").write_text(good(5, plus=2))
    assert "out of 40 training examples" in checked(tmp_path, str(tmp_path)).message
    assert "out of 18 training examples" in checked(tmp_path, str(tmp_path), "data.num_train=18").message
    assert "out of 36 training examples" in checked(tmp_path, "train.jsonl").message, "a tenth is held out"
    assert checked(tmp_path, "test.jsonl", "data.num_test=5").fix == "type data.num_test=1"
    finding = checked(tmp_path, "arithmetic", "data.num_train=50", "data.num_test=0")
    assert finding.level == "error" and finding.fix == "type data.num_test=200"


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["train-00000-of-00003", "train-00002-of-00003"], "lacks 1 of the 3 train files"),
        (["train-00001-of-00002"], "lacks 1 of the 2 train files"),
        (
            ["train-00000-of-00002-0a1b", "train-00001-of-00002-0a1c", "train-00000-of-00001-0a1d"],
            "files of 1 and 2, which",
        ),
        (["train-00000-of-00002-0a1b", "train-00001-of-00002-0a1c"], ""),
        (["train-1-of-2", "train-2-of-2"], ""),
        (["train-0-of-99999999999"], "lacks 99,999,999,998 of the 99,999,999,999 train files"),
    ],
)
def test_a_set_of_parquet_files_is_complete(tmp_path: Path, names: list[str], fault: str) -> None:
    for name in [*names, "test-00000-of-00001"]:
        rows = [{"question": f"{n}{name}?", "answer": "#### 1"} for n in range(20)]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
    finding = checked(tmp_path, str(tmp_path))
    assert (finding.level == "error") == bool(fault) and fault in finding.message
    if fault:
        with pytest.raises(UserError, match=re.escape(fault)):
            gsm8k.parts(GrpoData(source=str(tmp_path)), 0)


@pytest.mark.parametrize(
    ("overrides", "level", "fix"),
    [
        (("data.num_train=1000000", "data.num_test=500"), "error", "type data.num_train=250000"),
        (("data.num_train=1000", "data.num_test=900000"), "error", "type data.num_test=250000"),
        (("data.num_train=256000", "data.num_test=3900"), "inconclusive", "type data.num_test=1800"),
        (("data.num_train=1000000", "data.num_test=500", "data.max_operations=10"), "info", ""),
    ],
)
def test_arithmetic_is_held_to_the_problems_that_there_are(
    tmp_path: Path, overrides: tuple[str, ...], level: str, fix: str
) -> None:
    arithmetic = ("qwen3-tiny-arithmetic-grpo", "data.max_operations=2")
    finding = examples.check(load(arithmetic[0], [*arithmetic[1:], *overrides]), tmp_path)[-1]
    assert finding.level == level and finding.fix == fix, finding


def test_test_questions_that_training_has_too_are_named(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(good(40))
    recipe = load("qwen3-tiny-arithmetic-grpo", ["data.num_train=0", "data.num_test=0", f"data.source={tmp_path}"])
    (tmp_path / "test.jsonl").symlink_to("train.jsonl")
    info, warning = examples.check(recipe, tmp_path)
    assert (info.level, warning.level) == ("info", "warning")
    assert warning.message.startswith("train.jsonl has 40 lines of the 40 of test.jsonl too: ")
    assert warning.fix.endswith(f"or type data.source={tmp_path}/train.jsonl to hold a part of that file out")
    typed = warning.fix.partition("type ")[2].split()[0]
    assert [f.level for f in examples.check(override(recipe, [typed]), tmp_path)] == ["info"]
    (tmp_path / "test.jsonl").unlink()
    (tmp_path / "test.jsonl").write_text(good(9, plus=2) + good(1))
    assert examples.check(recipe, tmp_path)[1].message.startswith("train.jsonl has 1 line of the 10 of test.jsonl too")
    assert len(examples.check(override(recipe, ["data.num_test=9"]), tmp_path)) == 1, "that line is not read"
    (tmp_path / "train-0.parquet").touch()
    warning = examples.check(override(recipe, ["data.num_test=9"]), tmp_path)[1]
    assert (
        warning.message == f"{tmp_path} has files beside train.jsonl and test.jsonl that are not read: train-0.parquet"
    )
    assert faults.check(str(tmp_path))["warnings"][0] == f"{warning.message}; {warning.fix}"
    (tmp_path / "train-0.parquet").unlink()
    (tmp_path / "test.jsonl").rename(tmp_path / "validation.jsonl")
    assert all(f.level != "error" for f in examples.check(recipe, tmp_path)), "it is the test part"
    (tmp_path / "validation.jsonl").rename(tmp_path / "dev.jsonl")
    (error,) = examples.check(recipe, tmp_path)
    assert error.level == "error" and "has no file of its test part" in error.message


def test_a_first_line_of_a_large_file_may_be_long(tmp_path: Path) -> None:
    file = tmp_path / "large.jsonl"
    long = json.dumps({"question": "x" * (2 << 20), "answer": "#### 1"}) + "\n"
    file.write_text(long + good(200_000))
    assert file.stat().st_size > 8 << 20
    (about,) = re.findall(r"out of about ([\d,]+) training", checked(tmp_path, str(file)).message)
    assert int(about.replace(",", "")) == pytest.approx(180_000, rel=0.1)
    file.write_text("[" + good(200_000).replace("\n", ", ") + "]")
    assert (
        "is a list of" in checked(tmp_path, str(file)).message or "is not JSON" in checked(tmp_path, str(file)).message
    )
