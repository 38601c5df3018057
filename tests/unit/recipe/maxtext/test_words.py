"""A word of a launch script is the same text in the recipe, its file, and the command that a container runs."""

import shlex
import tempfile
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from podwright.errors import UserError
from podwright.recipe import load
from podwright.recipe.maxtext import arguments
from podwright.recipe.maxtext.schema import MaxTextRecipe, command
from tests.unit.recipe.maxtext.launch_script import changed
from tests.unit.recipe.maxtext.test_read import recipe

_WORDS = (
    "5e-4 12e4 1e2 1E5 1e-05 +1e3 1.e5 .5e3 5.E3 0x10 0x1F 0o7 017 007 08 1_000 0b11 yes no on off Yes NO true True FALSE y n Y N null"
    " Null ~ 1:30 12:30:45 190:20:30.15 .inf -.inf .Inf .nan .NaN NaN nan inf 2026-11-23 2026-11-23T10:00:00Z 1.0 1.50 +5 .5 5. - -0 -1"
    " 00 = << * *.txt a=b=c &x @y !t %p |x > [1,2] [x {a:1} {x #x a#b a:b x: 'a' \"b\" ? ?x , ` None"
    " 3.000000000000000000001 123456789012345678901234567890"
)
NASTY = [*_WORDS.split(), "", " ", "a b", " a", "a ", "a: b", "a #b", "--- a", "..."]
# of text that a shell and YAML can hold on one line
TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=("Cc",)), max_size=12)


def file_of(original: MaxTextRecipe) -> str:
    return load.written(original.model_dump(mode="json"))


def read_back(text: str) -> MaxTextRecipe:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "recipe.yaml")
        path.write_text(text)
        return load.require(load.load(str(path)), MaxTextRecipe)


def with_word(word: str) -> MaxTextRecipe:
    raw = recipe().model_dump(mode="json")
    raw["arguments"]["nasty"] = raw["environment"]["NASTY"] = word
    return load.require(load.parse(raw), MaxTextRecipe)


@pytest.mark.parametrize("word", NASTY)
def test_a_word_is_the_same_text_from_recipe_to_file_and_command(word: str) -> None:
    original = with_word(word)
    text = file_of(original)
    assert read_back(text) == original
    # a reader of YAML 1.1 without the exponents of podwright's own, too
    assert yaml.safe_load(text)["arguments"]["nasty"] == word
    words = shlex.split(command(read_back(text)))
    assert f"nasty={word}" in words and f"NASTY={word}" in words


@pytest.mark.parametrize(
    "word", ["12e4", "0o7", "08", "1e2", "1_0e2", ".5e3", "y", "N", "0x1F", "yes", "1:30", "2026-11-23"]
)
def test_a_text_that_some_reader_takes_for_another_value_stands_in_quotes(word: str) -> None:
    assert f"nasty: '{word}'" in file_of(with_word(word))


@settings(max_examples=60, deadline=None)
@given(TEXTS | st.from_regex(r"[-+0-9._:exoXEabfinyY]{1,8}", fullmatch=True))
def test_any_text_is_read_back_from_the_file(word: str) -> None:
    original = load.parse(recipe().model_dump(mode="json")).model_copy(update={"arguments": {"nasty": word, word: "x"}})
    assert yaml.load(load.written(original.model_dump(mode="json")), load.Loader)["arguments"] == original.arguments


@pytest.mark.parametrize(
    "word", ["5e-4", "12e4", "0x1F", "1_000", "yes", "null", "~", "1:30", ".inf", "2026-11-23", "1.50", "007"]
)
def test_a_word_that_is_typed_into_the_file_without_quotes_stays_as_it_is(word: str) -> None:
    text = file_of(recipe()).replace("\narguments:\n", f"\narguments:\n  nasty: {word}\n  on: {word}\n")
    read = read_back(text)
    assert (read.arguments["nasty"], read.arguments["on"]) == (word, word)


@pytest.mark.parametrize("word", ["0.10", "1.10", "2026", "1e3", "2026-11-23", "0010"])
def test_a_version_that_is_typed_without_quotes_stays_as_it_is(word: str) -> None:
    text = file_of(recipe())
    versions = yaml.safe_load(text)["versions"]
    raw = yaml.safe_load(text) | {"versions": "HERE"}
    written = yaml.safe_dump(raw).replace("HERE", "{" + f"jax: {word}, xpk: '{versions['xpk']}'" + "}")
    assert (read_back(written).versions.jax, read_back(written).versions.xpk) == (word, versions["xpk"])


def test_an_exponent_is_a_whole_number_of_steps() -> None:
    assert arguments.steps({"steps": "1e2"}) == 100
    with pytest.raises(Exception, match="steps=1e-2 is not a whole number"):
        arguments.steps({"steps": "1e-2"})
    with pytest.raises(Exception, match="steps=1e999 is not a whole number"):
        arguments.steps({"steps": "1e999"})


def test_a_script_keeps_its_words() -> None:
    text = changed("steps=30", "steps=30 learning_rate=5e-4 a=12e4 b=0x1F c=on d=null e=1:30 f=007")
    got = read_back(file_of(recipe(text))).arguments
    assert {key: got[key] for key in ("learning_rate", *"abcdef")} == {
        "learning_rate": "5e-4", "a": "12e4", "b": "0x1F", "c": "on", "d": "null", "e": "1:30", "f": "007",
    }  # fmt: skip


@pytest.mark.parametrize("n", [131_072, 3_000_000])
def test_a_word_that_is_too_long_for_bash_is_refused(n: int) -> None:
    began = time.process_time()
    with pytest.raises(UserError, match=r"does not reach its call of xpk workload create.*Argument list too long"):
        recipe(changed("steps=30", f"steps=30 long={'a' * n}"))
    assert time.process_time() - began < 60


def test_a_word_of_the_longest_length_is_kept() -> None:
    assert len(recipe(changed("steps=30", f"steps=30 long={'a' * 120_000}")).arguments["long"]) == 120_000
