"""YAML files: a fault has its line and its column."""

from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.recipe import load, yaml_file


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("a: b: c", "line 1 is not YAML: at column 5, "),
        ("a:\n\t- b", "line 2 is not YAML: at column 1, "),
        ("b: 1\na: [1,\n 2", "line 2 is not YAML: at column 4, "),
        ("a: {b: 1 c: 2}", "line 1 is not YAML: at column 11, "),
        ("a: 'x\nb: 1\n", "line 1 is not YAML: at column 4, "),
        ("- a\nb: 1", "line 2 is not YAML: at column 1, "),
        ("a: @x", "line 1 is not YAML: at column 4, "),
        ("a: *b", "line 1 is not YAML: at column 4, "),
        ("a: !foo 1", "line 1 is not YAML: at column 4, "),
        ("a: 1\nb\nc: 2", "line 2 is not YAML: at column 1, "),
        ('a: "\\q"', "line 1 is not YAML: at column 6, "),
        ("a: 1\0", " is not YAML: it holds the control character U+0000"),
        ("a: 1\n---\nb: 2", "line 2 is not YAML: at column 1, "),
        ("a: 2026-99-99", "line 1 is not YAML: at column 4, this looks like a date or a number, and is none"),
        ("a: ]", "line 1 is not YAML: at column 4, "),
        ("{a: 1}: 2", "line 1 is not YAML: at column 1, "),
        ("a: 1\na: 2", "line 2 is not YAML: at column 1, the key a is there twice"),
        ("%YAML 3.0\n---\na: 1", "line 1 is not YAML: at column 1, "),
        ("a: " + "[" * 5000, " is nested too deeply"),
    ],
)
def test_a_fault_has_its_place(tmp_path: Path, content: str, fault: str) -> None:
    (tmp_path / "a.yaml").write_text(content)
    with pytest.raises(UserError) as refused:
        yaml_file.read(tmp_path / "a.yaml")
    assert refused.value.what.startswith(f"{tmp_path / 'a.yaml'} ") and fault in refused.value.what
    assert "\n" not in refused.value.what and refused.value.fix


@pytest.mark.parametrize(
    ("line", "key"), [("1: 2", "1"), ("null: 2", "None"), ("true: 2", "1"), ("mesh: {7: 1}", "mesh.7")]
)
def test_a_key_that_is_no_text_is_named(tmp_path: Path, line: str, key: str) -> None:
    text = (yaml_file.SHIPPED / "qwen3-tiny-gsm8k-grpo.yaml").read_text()
    kept = [each for each in text.splitlines() if not each.startswith(line.partition(":")[0] + ":")]
    (tmp_path / "r.yaml").write_text("\n".join([*kept, line]))
    with pytest.raises(UserError) as refused:
        load.load(str(tmp_path / "r.yaml"))
    assert refused.value.what.startswith(f"{key}=") and "must be strings" in refused.value.what
