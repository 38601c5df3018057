"""Scripts that would make a reader slow or large: each is read, or refused in one line, in little time and memory."""

import time
from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.recipe import load
from podwright.recipe.maxtext import lint
from podwright.recipe.maxtext.schema import MaxTextRecipe
from podwright.recipe.script_text import with_placeholders
from podwright.sandbox import read
from tests.unit.recipe.maxtext.oracle import NOW

N = 200_000  # characters
LIMIT_S = 60  # of processor time of this process; bash has limits of its own
CALL = 'xpk workload create --cluster=c --device-type=tpu7x-4x4x4 --docker-image=i --command="{}"\n'
TRAIN = "python3 -m MaxText.train base.yml steps=30"


def script(before: str = "", command: str = TRAIN) -> str:
    return f"{before}\n{CALL.format(command)}"


SCRIPTS = {
    "defaults within defaults": script("X=" + "${a:-" * (N // 8) + "x" + "}" * (N // 8)),
    "substitutions within substitutions": script("X=" + "$(echo " * (N // 8) + "x" + ")" * (N // 8)),
    "parentheses": script("(" * (N // 2) + ")" * (N // 2)),
    "arithmetic": script("X=$((" + "(" * (N // 2) + ")" * (N // 2) + "))"),
    "conditions within conditions": script("if true; then " * (N // 20) + "true" + "; fi" * (N // 20)),
    "lines": script("\n".join(f"A{i}={i}" for i in range(N // 12))),
    "blank lines without a call": "\n" * N + TRAIN,
    "comments before training": "# x\n" * (N // 4) + TRAIN,
    "here-documents": script("".join(f"cat <<E{i}\nx\nE{i}\n" for i in range(N // 25))),
    "alternatives": script("case x in " + "|".join(f"a{i}" for i in range(N // 8)) + ") true ;; esac"),
    "stars": script("X=" + "a" * (N // 4) + "\ncase $X in *a*a*a*a*a*a*b) true ;; esac"),
    "placeholders": script("echo " + "x=<a> " * (N // 7)),
    "braces": script("echo x={" + "," * N),
    "brackets": script("echo " + "[" * N),
    "slashes": script("X=" + "/" * N),
    "variables": script("echo " + "$A" * (N // 3)),
    "words of printf": script("X=$(printf %s " + "a " * (N // 3) + ")"),
    "a width of printf": script("X=$(printf %99999999999s x)"),
    "doubled values": script("X=x\n" + "X=$X$X\n" * 40),
    "long values": script("X=" + "a" * N + "\n" + "".join(f"A{i}=$X.\n" for i in range(N // 22))),
    "long output": script("X=" + "a" * N + "\nY=$(" + "echo $X;" * 9000 + ")"),
    "a replacement that grows": script("X=" + "a" * 16_000 + "\nY=${X//a/" + "b" * N + "}"),
    "sed that grows": script("X=" + "a" * N + "\nY=$(echo $X | sed s/a/" + "b" * N + "/g)"),
    "branches": script("".join(f"A{i}=1\n" for i in range(N // 20)) + "foo || true\n" * (N // 20)),
    "functions that call themselves": script("f() { X=${X:-$(f)}; }\nf"),
    "calls in a loop": script("for i in " + "a " * 5000 + "; do xpk workload create --x; done"),
    "blanks in the command": script("", "cd /app &&" + " " * 100_000 + TRAIN),
    "copies in the command": script("", f"{TRAIN} | tee x && " + "cp " * 40_000),
    "logins in the command": script("", "echo " + "wandb login " * 10_000 + f" && {TRAIN}"),
}  # fmt: skip


@pytest.mark.brief(6)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_read_or_refused_in_a_minute(name: str) -> None:
    began = time.process_time()
    try:
        imported = read.read(Path("/x/run.sh"), SCRIPTS[name], {"USER": "u", "HOME": "/h"}, NOW, {})
        recipe = load.require(load.parse(imported.recipe), MaxTextRecipe)
        assert all(f.message for f in (*lint.of_recipe(recipe), *lint.of_script(imported)))
    except UserError as e:
        assert "\n" not in e.what and len(e.what) < 300 and e.fix
    assert time.process_time() - began < LIMIT_S


def test_a_placeholder_behind_a_number_is_a_redirection() -> None:
    text = "sort 2<names>x; --a=12<name> <name> --b\nc a2<name>"
    assert with_placeholders(text)[0] == "sort 2<names>x; --a=12'<name>' '<name>' --b\nc a2'<name>'"
