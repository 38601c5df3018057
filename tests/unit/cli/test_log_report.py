"""`podwright report --log` as it is typed: files, pipes, options that exclude each other, and what is no log."""

from __future__ import annotations

import gzip
import io
import json
import shutil
from pathlib import Path

import pytest

from podwright.cli import app
from podwright.recipe.yaml_file import SHIPPED

LOG = "Num_devices: 16, shape (16,)\n" + "".join(
    f"completed step: {n}, seconds: 2.000, TFLOP/s/device: 100.000, Tokens/s/device: 4096.000, total_weights: 131072, loss: 3.000\n"
    for n in range(8)
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.log").write_text(LOG)
    assert app.main(["report", "--log", "train.log", "--on", "v6e-16"]) == 0
    out = capsys.readouterr().out
    assert "Steady state: 2.000 s/step (median of 6 steps" in out and "report: train-report/report/report.html" in out
    assert json.loads(Path("train-report/report/result.json").read_text())["environment"]["chips"] == 16


def test_the_command_of_a_report_has_the_recipe_as_it_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.log").write_text(LOG)
    shutil.copy(SHIPPED / "almodel-8b-source.yaml", "mine.yaml")
    assert app.main(["report", "--log", "train.log", "--recipe", "mine.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["command"] == "podwright report --log train.log --recipe mine.yaml"


def test_a_pipe_and_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LOG.encode())))
    assert app.main(["report", "--log", "-", "-o", "there", "--readme", "NOTES.md", "--lang", "zh", "--json"]) == 0
    r = json.loads(capsys.readouterr().out)
    assert r["steady_state"]["step_s"] == 2.0 and r["log"] == "-"
    assert "测试结果" in Path("NOTES.md").read_text() and Path("there/report/report.html").read_text().startswith(
        '<!doctype html>\n<html lang="zh">'
    )


def test_a_compressed_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.log.gz").write_bytes(gzip.compress(LOG.encode()))
    assert app.main(["report", "--log", "train.log.gz", "--on", "v6e-16"]) == 0
    assert "Steady state: 2.000 s/step (median of 6 steps" in capsys.readouterr().out


def test_the_directory_is_a_run_whose_report_is_written_anew(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.log").write_text(LOG)
    assert app.main(["report", "--log", "train.log", "--on", "v6e-16", "--lang", "zh", "--json"]) == 0
    first, out = json.loads(capsys.readouterr().out), Path("train-report")
    assert (out / "attempts/1/log.txt").read_text() == LOG and len((out / "metrics.jsonl").open().readlines()) == 8
    Path("train.log").unlink()
    assert app.main(["report", "train-report", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert "Steady state: 2.000 s/step" in (out / "report/report.html").read_text()


def test_a_bad_log_leaves_the_report_that_was_there(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.log").write_text(LOG)
    Path("bad.log").write_text("something else\n")
    assert app.main(["report", "--log", "train.log", "-o", "out"]) == 0
    files = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    assert app.main(["report", "--log", "bad.log", "-o", "out"]) == 2
    assert {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()} == files
    assert sorted(path.name for path in Path().iterdir()) == ["bad.log", "out", "train.log"]


@pytest.mark.parametrize("name", ["journal.jsonl", "recipe.json", "metrics.jsonl", "attempts"])
def test_files_of_others_are_not_replaced(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.log").write_text(LOG)
    Path("run").mkdir()
    Path("run", name).write_text('{"kind": "maxtext"}\n')
    assert app.main(["report", "--log", "train.log", "-o", "run"]) == 2
    assert f"run/{name} is there, and not of a log; name another directory with -o" in capsys.readouterr().err
    assert [path.name for path in Path("run").iterdir()] == [name]


REFUSED = {
    "a recipe of another kind": (
        ["--log", "train.log", "--recipe", "qwen3-tiny-gsm8k-grpo"],
        "--recipe qwen3-tiny-gsm8k-grpo is of kind grpo, and the log is one of MaxText; name the recipe that",
    ),
    "a run beside it": (
        ["--log", "train.log", "myrun"],
        "--log train.log and myrun exclude each other; leave myrun out",
    ),
    "a comparison": (["--log", "train.log", "--compare"], "--log train.log and --compare exclude each other"),
    "a language": (["--log", "train.log", "--lang", "fr"], "--lang fr is no language"),
    "no such file": (["--log", "none.log"], "none.log: No such file or directory"),
    "a directory": (["--log", "."], ".: Is a directory"),
    "compressed": (["--log", "train.log.gz"], "train.log.gz has no completed step"),
    "empty": (["--log", "empty.log"], "empty.log has no completed step"),
    "another log": (["--log", "other.log"], "other.log has no completed step"),
    "no such slice": (["--log", "train.log", "--on", "v6e-17"], "no v6e slice is sold as v6e-17"),
    "no such recipe": (["--log", "train.log", "--recipe", "nothing"], "nothing"),
    "out is a file": (["--log", "train.log", "-o", "other.log"], "other.log"),
    "an option without it": (["--recipe", "almodel-8b-source", "myrun"], "--recipe works only with --log"),
    "this machine as a slice": (
        ["--log", "train.log", "--on", "local"],
        "--on local is no slice; type --on with the slice that it ran on, such as v6e-16",
    ),
    "a word for a slice": (
        ["--log", "train.log", "--on", "banana"],
        "--on banana is no slice; type --on with the slice",
    ),
    "a slice in two words": (
        ["--log", "train.log", "--on", "2x", "v6e-16"],
        "--log train.log and v6e-16 exclude each other",
    ),
    "an override": (
        ["--log", "train.log", "arguments.steps=5"],
        "--log train.log and arguments.steps=5 exclude each other; leave arguments.steps=5 out",
    ),
    "a run's name in its place": (
        ["--log", "myrun"],
        "myrun: No such file or directory",
    ),
    "nothing": ([], "report needs a run or a log"),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.log").write_text(LOG)
    Path("train.log.gz").write_bytes(b"\x1f\x8b\x08\x00 something")
    Path("empty.log").write_bytes(b"")
    Path("other.log").write_text("something else\n")
    assert app.main(["report", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err
