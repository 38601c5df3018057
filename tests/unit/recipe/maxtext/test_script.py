"""The reader of launch scripts against bash: the same words, byte for byte, or a refusal that names the line."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.recipe.maxtext import script
from podwright.recipe.script_text import with_placeholders, with_values
from tests.unit.recipe.maxtext.launch_script import MUTANTS, REFUSED, SCRIPT, VALUES, changed
from tests.unit.recipe.maxtext.oracle import NOW, USER, called


def by_bash(
    folder: Path, text: str, values: Mapping[str, str], files: Mapping[str, str] | None = None
) -> list[list[str]]:
    (folder / "script").mkdir()
    (folder / "home").mkdir()
    for name, content in {**(files or {}), "run_recipe.sh": with_placeholders(text, values)[0]}.items():
        (folder / "script" / name).write_text(with_values(content, values))
    return called(folder / "script" / "run_recipe.sh", folder / "home", values)


def by_reader(folder: Path, text: str, values: Mapping[str, str], files: Mapping[str, str] | None = None) -> list[str]:
    environment = {"USER": USER, "HOME": str(folder / "home"), **values}
    return list(script.read(text, environment, NOW, files, "run_recipe.sh").call.argv)


@pytest.mark.parametrize("values", [{}, VALUES], ids=["as it is", "filled in"])
def test_the_words_of_the_call_are_those_that_bash_passes(values: dict[str, str], tmp_path: Path) -> None:
    assert [by_reader(tmp_path, SCRIPT, values)] == by_bash(tmp_path, SCRIPT, values)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_changed_script_is_read_as_bash_reads_it(name: str, tmp_path: Path) -> None:
    text = changed(*MUTANTS[name])
    if name == "an array that is passed":
        text = text.replace("set -e\n", 'EXTRA=("a  b" $USER "" "*")\n', 1)
    values = {key: value for key, value in VALUES.items() if key != "ZONE"}
    assert [by_reader(tmp_path, text, values)] == by_bash(tmp_path, text, values)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_known_is_refused_with_its_line(name: str) -> None:
    old, new, words = REFUSED[name]
    text = changed(old, new)
    line = text[: SCRIPT.index(old)].count("\n") + 1
    with pytest.raises(UserError, match=words.replace("LINE", f"run_recipe.sh line {line}")):
        script.read(text, {"USER": USER, "HOME": "/house/x"}, NOW, None, "run_recipe.sh")
