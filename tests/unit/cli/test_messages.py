"""What libraries of the trainer write to stderr is not shown, except after a crash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
VERB = """
import logging, os, signal, sys, warnings
from podwright.errors import UserError
from podwright.train import verbs, __main__


def verb(argv):
    os.write(2, b"E0000 common_lib.cc:554] native noise\\n")
    logging.getLogger("absl").warning("logged noise")
    warnings.warn("warned noise")
    print("4 questions", file=sys.stderr)
    if argv == ["wrong"]:
        raise UserError("data is wrong", "type another", "a-code")
    if argv == ["crash"]:
        os.kill(os.getpid(), signal.SIGABRT)
    return {"num": 4}


verbs.VERBS = {"eval": verb}
sys.exit(__main__.main())
"""
CALL = """
import sys
from podwright.shell import Shell

print(Shell().answer([sys.executable, "verb.py"], ["eval", *sys.argv[1:]]))
"""


@pytest.mark.parametrize(
    ("word", "out", "noise"),
    [
        ("", """(0, '{"num": 4}\\n')\n""", False),
        ("wrong", """(2, '{"error": "data is wrong", "fix": "type another", "code": "a-code"}\\n')\n""", False),
        ("crash", "(-6, '')\n", True),
    ],
)
def test_noise_of_libraries_is_shown_only_after_a_crash(tmp_path: Path, word: str, out: str, noise: bool) -> None:
    (tmp_path / "verb.py").write_text(VERB)
    command, environment = [sys.executable, "-c", CALL, word], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == out, done.stderr
    assert done.stderr == "4 questions\n" + noise * "E0000 common_lib.cc:554] native noise\n"
