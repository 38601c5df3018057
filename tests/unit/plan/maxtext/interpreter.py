#!/usr/bin/env python3
"""Stands for python3.12 and for the Python of an environment: writes down what it is started with, and does what the folder of its
state says. The real ones are in test_real.py.

STATE/argv.jsonl   one line a start: arguments, and the variables that matter
STATE/install      "fail": uv refuses with the text of STATE/log; "wait": it takes half a second
STATE/reading.json what maxtext_child.py answers; without it, it ends as train_compile does
STATE/log          what train_compile prints
STATE/code         its exit code, or the signal that ends it as a negative number; "wait": it does not end
STATE/dump         a folder whose files it writes where XLA_FLAGS says
"""

import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

VARIABLES = ("PYTHONPATH", "PYTHONNOUSERSITE", "LIBTPU_INIT_ARGS", "XLA_FLAGS", "JAX_PLATFORMS", "M_STEPS")


def main(state: Path, words: list[str]) -> int:
    with (state / "argv.jsonl").open("a") as out:
        out.write(json.dumps({"argv": words, "env": {n: os.environ[n] for n in VARIABLES if n in os.environ}}) + "\n")
    if words[:2] == ["-m", "venv"]:
        binary = Path(words[2]) / "bin"
        binary.mkdir(parents=True)
        shutil.copy(Path(sys.argv[0]), binary / "python")
        return 0
    if words[:2] == ["-m", "pip"]:
        return 0
    if words[:2] == ["-m", "uv"]:
        how = _text(state / "install")
        if how == "wait":
            time.sleep(0.5)
        if how == "fail":
            print(_text(state / "log"))
        return int(how == "fail")
    if words[:2] == ["-I", "-c"]:
        print(json.dumps({name: "9.9" for name in words[3:]}))
        return 0
    if words[1].endswith("maxtext_child.py") and (state / "reading.json").exists():
        Path(words[3]).write_text(_text(state / "reading.json"))
        return 0
    return _train_compile(state)


def _train_compile(state: Path) -> int:
    if (state / "dump").is_dir():
        (folder,) = re.findall(r"--xla_dump_to=(\S+)", os.environ["XLA_FLAGS"])
        shutil.copytree(state / "dump", folder, dirs_exist_ok=True)
    print(_text(state / "log"), flush=True)
    code = _text(state / "code") or "0"
    if code == "wait":
        time.sleep(60)
    if code.startswith("-"):
        os.kill(os.getpid(), -int(code))
    return int(code)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(Path(os.environ["INTERPRETER_STATE"]), sys.argv[1:]))
