"""Placeholders in the text of a script; what bash makes of it is in tests/unit/sandbox."""

import pytest

from podwright.recipe.script_text import contexts, with_placeholders


@pytest.mark.parametrize(
    ("text", "expected", "names"),
    [
        ("xpk --project=<your-project> \\\n", "xpk --project='<your-project>' \\\n", ["your-project"]),
        ("xpk --zone <zone> --x\n", "xpk --zone '<zone>' --x\n", ["zone"]),
        ("xpk --zone <zone>", "xpk --zone '<zone>'", ["zone"]),
        ("cp gs://<bucket>/a b\n", "cp gs://'<bucket>'/a b\n", ["bucket"]),
        ("A=<my bucket path>\n", "A='<my bucket path>'\n", ["my bucket path"]),
        ('A="<x>"\nB=\'<x>\'\n', 'A="<x>"\nB=\'<x>\'\n', ["x"]),
        ('A="${A:-<REG>/<P>:1}"\n', 'A="${A:-<REG>/<P>:1}"\n', ["REG", "P"]),
        ("cat << E\nbucket: <x>\nit's\nE\nB=<y>\n", "cat << E\nbucket: <x>\nit's\nE\nB='<y>'\n", ["x", "y"]),
        ("A=$(cat gs://<b>/c)\n", "A=$(cat gs://'<b>'/c)\n", ["b"]),
    ],
)  # fmt: skip
def test_placeholders_become_words(text: str, expected: str, names: list[str]) -> None:
    assert with_placeholders(text) == (expected, names)


@pytest.mark.parametrize(
    "text",
    [
        "sort <names >sorted\n",
        "sort <names> sorted\n",
        "sort 0<names>sorted\n",
        "echo x # <your-project>\n",
        "cat <<E >file\nx\nE\n",
        "cat <<<word >file\n",
        "diff <(a) >(b)\n",
        "((x<y && z>w))\n",
        'if [[ $a < $b ]]; then echo "->"; fi\n',
        "program <in>&2\n",
    ],
)
def test_redirections_and_comments_stay(text: str) -> None:
    assert with_placeholders(text) == (text, [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=<your-project-id>", "A='it'\\''s $1'"),
        ('A="x/<project_id>"', 'A="x/it\'s \\$1"'),
        ("A='<Project ID>'", "A='it'\\''s $1'"),
        ('A="${B:-<PROJECT_ID>}"', 'A="${B:-it\'s \\$1}"'),
    ],
)
def test_a_value_fills_a_placeholder_in_the_quotes_around_it(text: str, expected: str) -> None:
    assert with_placeholders(text, {"PROJECT_ID": "it's $1"}) == (expected, [])


def test_every_character_has_a_context() -> None:
    text = "a='b' \"c$(d \"e\" `f`)g\" $'h\\'' ${i:-\"j\"} $((k<<1)) l=(m n) # o'p\ncat <<-'E' <<F\n\tq'r\n\tE\ns\nF\nt\\\nu"
    kinds = contexts(text)
    assert len(kinds) == len(text)
    assert {c: kinds[text.index(c)] for c in "bcefghijkmoqrsu"} == {
        **{
            "b": "s",
            "c": "d",
            "e": "d",
            "f": "n",
            "g": "d",
            "h": "s",
            "i": "e",
            "j": "d",
            "k": "e",
            "m": "n",
            "o": "c",
        },
        **{"q": "h", "r": "h", "s": "h", "u": "b"},
    }
