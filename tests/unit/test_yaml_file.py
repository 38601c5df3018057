"""YAML files: a fault has its line, its column and words of ours."""

import re
from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.recipe import load, yaml_file

PARSER_WORDS = re.compile(r"expected|token|constructor|while|scanning|stream|unhashable|node|<.*>|ReaderError")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("a: b: c", "line 1 is not YAML: at column 5, a second ': ' follows on the line"),
        ("a:\n\t- b", "line 2 is not YAML: at column 1, a tab is where only spaces may be"),
        ("b: 1\na: [1,\n 2", "line 2 is not YAML: at column 4, a list or mapping in brackets has no closing ]"),
        ("a: {b: 1 c: 2}", "line 1 is not YAML: at column 11, a comma or a closing } is missing"),
        ("a: 'x\nb: 1\n", "line 1 is not YAML: at column 4, a text in quotes begins and has no closing quote"),
        ("- a\nb: 1", "line 2 is not YAML: at column 1, something does not continue"),
        ("a: @x", "line 1 is not YAML: at column 4, a value begins with @: put it in quotes"),
        ("a: *b", "at column 4, *b names no value before it"),
        ("a: !foo 1", "at column 4, !foo is no tag that is read"),
        ("a: 1\nb\nc: 2", "line 2 is not YAML: at column 1, a key has no colon and value"),
        ('a: "\\q"', "a backslash in double quotes begins no escape"),
        ("a: 1\0", " is not YAML: it holds the control character U+0000"),
        ("a: 1\n---\nb: 2", "line 2 is not YAML: at column 1, a second document begins"),
        ("a: 2026-99-99", "line 1 is not YAML: at column 4, a value looks like a date or a number, and is none"),
        ("a: ]", "line 1 is not YAML: at column 4, a value is missing"),
        ("{a: 1}: 2", "a key is a list or a mapping"),
        ("%YAML 3.0\n---\na: 1", "something is there that does not belong there"),
        ("a: " + "[" * 5000, " is nested too deeply"),
    ],
)
def test_a_fault_has_its_place_and_no_words_of_the_parser(tmp_path: Path, content: str, fault: str) -> None:
    (tmp_path / "a.yaml").write_text(content)
    with pytest.raises(UserError) as refused:
        yaml_file.read(tmp_path / "a.yaml")
    assert refused.value.what.startswith(f"{tmp_path / 'a.yaml'} ") and fault in refused.value.what
    assert not PARSER_WORDS.search(refused.value.what.removeprefix(str(tmp_path))) and refused.value.fix


@pytest.mark.parametrize(
    ("line", "key"), [("1: 2", "1"), ("null: 2", "null"), ("true: 2", "true"), ("mesh: {7: 1}", "mesh.7")]
)
def test_a_key_that_is_no_text_is_named(tmp_path: Path, line: str, key: str) -> None:
    text = (yaml_file.SHIPPED / "qwen3-tiny-gsm8k-grpo.yaml").read_text()
    kept = [each for each in text.splitlines() if not each.startswith(line.partition(":")[0] + ":")]
    (tmp_path / "r.yaml").write_text("\n".join([*kept, line]))
    with pytest.raises(UserError) as refused:
        load.load(str(tmp_path / "r.yaml"))
    assert refused.value.what == f"{key} is no key of a recipe: keys are text"
