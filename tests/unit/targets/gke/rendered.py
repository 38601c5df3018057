"""Rendered scripts, run with stand-ins for the tools of the cloud: each call is written down, and answered by a table."""

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

from podwright.targets.gke import folder, rendering
from tests.unit.recipe.maxtext.example import example
from tests.unit.targets.gke.entry import gke

TOOLS = ("gcloud", "kubectl", "docker", "git", "xpk", "gke-gcloud-auth-plugin")
STAND_IN = """#!/bin/bash
name=${0##*/}
{ printf '%s' "$name"; printf ' %q' "$@"; echo; } >> "$CALLS"
case " $* " in *" -f - "*) cat > "$CALLS.stdin" ;; esac
while IFS=$'\\t' read -r pattern code answer; do
  # shellcheck disable=SC2053
  if [[ "$name $*" == $pattern ]]; then printf '%b' "$answer" >&$((code ? 2 : 1)); exit "$code"; fi
done < "$ANSWERS"
"""
WELL = {
    "gcloud auth list*": "me@example.org\n",
    "gcloud container clusters describe*status*": "RUNNING\n",
    "gcloud container clusters describe*currentMasterVersion*": "1.34.1-gke.100\n",
    "kubectl*get nodes*--output=name": "node\n" * 16,
    "xpk version": "[XPK] xpk_version: 1.8.0\n",
}
"""answers of a cluster that has everything; what is in no table is answered with nothing and code 0"""


class Scripts:
    """What was rendered of `recipe` for `settings`, in `path`."""

    def __init__(self, path: Path, recipe: Any = None, typed: dict[str, str] | None = None, **settings: Any) -> None:
        self.path, self.bin = path / "rendered", path / "bin"
        self.rendered = rendering.render(recipe or example(), gke(**settings), "pod", typed or {})
        folder.write(self.path, self.rendered.files)
        self.bin.mkdir(exist_ok=True)
        for tool in TOOLS:
            (self.bin / tool).write_text(STAND_IN)
            (self.bin / tool).chmod(0o755)
        self.calls_file = path / "calls"

    def run(self, name: str, *words: str, answers: dict[str, Any] | None = None, **env: str) -> tuple[int, str]:
        """Exit code and all output. An answer is a text, or a text and an exit code; that of a call that fails goes to stderr."""
        rules = {**(answers or {}), **{key: text for key, text in WELL.items() if key not in (answers or {})}}
        lines = []
        for pattern, answer in rules.items():
            text, code = answer if isinstance(answer, tuple) else (answer, 0)
            encoded = text.replace("\\", "\\\\").replace("\n", "\\n")
            lines.append(f"{pattern}\t{code}\t{encoded}\n")
        answers_file = self.calls_file.with_name("answers")
        answers_file.write_text("".join(lines))
        self.calls_file.write_text("")
        full = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "CALLS": str(self.calls_file),
            "ANSWERS": str(answers_file),
            "HOME": str(self.path),
            **env,
        }
        argv = ["bash", str(self.path / name), *words]
        done = subprocess.run(argv, env=full, capture_output=True, text=True, check=False, cwd="/", timeout=300)
        return done.returncode, done.stdout + done.stderr

    def calls(self, tool: str = "") -> list[list[str]]:
        words = [shlex.split(line) for line in self.calls_file.read_text().splitlines()]
        return [each for each in words if not tool or each[0] == tool]

    @property
    def submitted(self) -> str:
        """What `kubectl create` read."""
        return Path(f"{self.calls_file}.stdin").read_text()


def path_of(name: str) -> str:
    """Of a program that pip installs beside the interpreter, or on PATH; "" for none."""
    import shutil
    import sys

    return shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}") or ""
