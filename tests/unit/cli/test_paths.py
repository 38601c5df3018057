"""Every argument and option that takes a path: a user without a home is one line, and ~ is the home of the one who types."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from podwright.cli.app import app, main
from podwright.cli.exit_codes import ExitCode

UNKNOWN = "~nobody2/x"
PATH = re.compile(r"(?<!=)\b(DIR|FILE|RUN|LOG|SRC|SOURCE|CHECKPOINT|RECIPE|T|R)\b")
LINE = {"image": "a.png", "instruction": "?", "response": "{}"}
NEEDED = {
    **{"RUN": "r", "RUN...": "r", "RUN|DIR": "r", "LOG|DIR|RUN": "r", "CHECKPOINT": ".", "DIR": "out", "T": "bytes"},
    **{"RECIPE": "qwen3-tiny-arithmetic-grpo", "FILE": "a.yaml", "FILE...": "a.jsonl", "SOURCE": "a.jsonl"},
    **{"NAME": "boxes", "-- COMMAND...": "true", "FILE|DIR|WORDS [KEY=VALUE]...": "a.yaml"},
}
"""what stands in the place of another argument that a verb asks for"""
TPUS = {"kind": "tpu-vm", "project": "my-project", "zones": ["us-east5-b"], "accelerator_type": "v6e-16"}
CLUSTER = {"kind": "gke", "project": "my-project", "cluster": "c", "zones": ["us-east5-b"]}
MORE = {
    ("predict",): ["--text", "?"],
    ("render",): ["--on", "pod", "-o", "out"],
    ("report", "--recipe"): ["--log", "a.jsonl"],
}


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from leaves(inner, (*words, name))
    if not hasattr(command, "commands"):
        yield words, command


def calls(value: str) -> Iterator[list[str]]:
    """One for each path of each verb, with `value` in its place and suffixes that the verb asks for."""
    for words, command in leaves(typer.main.get_command(app)):
        for path in command.params:
            if not PATH.search(path.metavar or "") or path.param_type_name not in ("argument", "option"):
                continue
            argv = [*words, *MORE.get(words, MORE.get((*words, path.opts[0]), []))]
            for parameter in command.params:
                if parameter is not path and not parameter.required:
                    continue
                text = value + (".jsonl" if path.metavar in ("SOURCE", "FILE...") else "")
                text = text if parameter is path else NEEDED[parameter.metavar]
                argv += [text] if parameter.param_type_name == "argument" else [parameter.opts[0], text]
            yield argv


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PODWRIGHT_RUNS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "a.jsonl").write_text(json.dumps(LINE) + "\n")
    (tmp_path / "podwright").mkdir()
    (tmp_path / "podwright" / "targets.yaml").write_text(f"boxes: {json.dumps(TPUS)}\npod: {json.dumps(CLUSTER)}\n")
    return tmp_path


def test_there_are_paths_of_all_verbs() -> None:
    assert {argv[0] for argv in calls("x")} >= {"plan", "run", "doctor", "list", "report", "eval", "predict", "data"}


@pytest.mark.brief(30)
@pytest.mark.parametrize(
    "argv", (argv for argv in calls(UNKNOWN) if argv[0] != "eval" or argv[1] == UNKNOWN), ids=" ".join
)
def test_a_user_without_a_home_is_one_line(folder: Path, capfd: Any, argv: list[str]) -> None:
    before = sorted(folder.iterdir())
    assert main(argv) == ExitCode.USAGE
    out, err = capfd.readouterr()
    (line,) = (out + err).splitlines()
    assert line.startswith("error: ") and "~nobody2 is no user of this machine" in line
    assert sorted(folder.iterdir()) == before


def test_what_the_shell_leaves_of_a_home_is_read_as_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """As in --runs=~/runs, where no shell puts it in."""
    monkeypatch.setenv("HOME", str(folder))
    assert main(["data", "draw", "~/drawn", "--num-train", "2", "--num-test", "1"]) == ExitCode.OK
    assert (folder / "drawn").is_dir() and not (folder / "~").exists()
    capfd.readouterr()
    assert main(["watch", "r", "--runs=~/runs"]) == ExitCode.USAGE
    assert f"there is no run 'r' in {folder}/runs" in capfd.readouterr().err


def test_a_source_that_is_not_there_is_named_before_the_tokenizer(capfd: Any) -> None:
    assert main(["data", "count", "none.jsonl"]) == ExitCode.USAGE
    assert "none.jsonl" in (err := capfd.readouterr().err) and "--tokenizer" not in err
    assert main(["data", "count", "a.jsonl"]) == ExitCode.USAGE
    assert "a.jsonl is text; say what is to count its tokens" in capfd.readouterr().err


def test_an_empty_path_is_not_the_current_directory(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of every option that has a path; one whose default is "" is not given then."""
    before = sorted(folder.rglob("*"))
    options = [
        (words, option.opts[-1])
        for words, command in leaves(typer.main.get_command(app))
        for option in command.params
        if option.param_type_name == "option" and option.metavar in ("DIR", "FILE") and option.default != ""
    ]
    assert (("render",), "--out") in options and (("report",), "--readme") in options
    for words, option in options:
        required = [p for p in command_of(words).params if p.required]
        argv = [NEEDED[p.metavar] for p in required if p.param_type_name == "argument"]
        assert main([*words, *argv, option, ""]) == ExitCode.USAGE, words
        assert "'' names no file and no directory; give a path" in capsys.readouterr().err, (words, option)
    assert sorted(folder.rglob("*")) == before


def command_of(words: tuple[str, ...]) -> Any:
    return dict(leaves(typer.main.get_command(app)))[words]
