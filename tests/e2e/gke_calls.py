"""Stands in front of kubectl and gcloud, and writes down each call, with the object that it reads."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

WRAPPER = """#!{python} -IS
import json, os, subprocess, sys
program, made = {program!r}, {made!r}
text = sys.stdin.read() if "--filename=-" in sys.argv else ""
def record(code):
    body = json.loads(text or "null") if {bodies!r} else None
    with open(made, "a") as f:
        f.write(json.dumps({{"argv": [{name!r}, *sys.argv[1:]], "body": body, "code": code}}) + "\\n")
if "create" in sys.argv or text:
    code = subprocess.run([program, *sys.argv[1:]], **({{"input": text, "text": True}} if text else {{}})).returncode
    record(code)
    sys.exit(code)
record(None)
os.execv(program, [program, *sys.argv[1:]])
"""


class Recorded:
    """The calls of the tools in `path`. `bodies`: with the objects."""

    def __init__(self, folder: Path, path: str, bodies: bool = True) -> None:
        folder.mkdir(exist_ok=True)
        self.path = f"{folder}{os.pathsep}{path}"
        self._made = folder / "calls.jsonl"
        programs = {name: shutil.which(name, path=path) for name in ("kubectl", "gcloud")}
        for name, program in programs.items():
            assert program, f"there is no {name}"
            wrapper = folder / name
            values = {"python": sys.executable, "program": program, "made": str(self._made), "name": name}
            wrapper.write_text(WRAPPER.format(**values, bodies=bodies))
            wrapper.chmod(0o755)

    def made(self) -> list[dict[str, Any]]:
        """{"argv", "body", "code"} each, in order; `body` is what the call reads from its standard input, or None, and `code` the exit status of
        one that creates or replaces something."""
        return [json.loads(line) for line in self._made.read_text().splitlines()] if self._made.exists() else []
