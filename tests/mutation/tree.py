"""A copy of the checkout with an environment that imports the product from the copy, in every process that a test starts.

The environment has the packages of the one that runs this, without a copy of them.
"""

import os
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

from tests.mutation.changes import ROOT

PROBE = "mutation_probe"


class Tree:
    def __init__(self, folder: Path):
        self.folder = folder
        self.python = folder / ".venv/bin/python"
        self.writes = 0

    def make(self) -> None:
        """Copies the files that git knows or would add, and makes the environment."""
        shutil.rmtree(self.folder, ignore_errors=True)
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines():
            if (ROOT / name).is_file():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.folder / name)
        venv.EnvBuilder(symlinks=True).create(self.folder / ".venv")
        (packages,) = (self.folder / ".venv/lib").glob("python*/site-packages")
        shared = next(path for path in site.getsitepackages() if Path(path).is_dir())
        lines = [str(self.folder), f"import site; site.addsitedir({shared!r})"]
        (packages / "tree.pth").write_text("\n".join([*lines, ""]))
        for program in Path(sys.executable).parent.iterdir():
            self._link(program, self.folder / ".venv/bin" / program.name)

    def write(self, file: str, source: str) -> None:
        path = self.folder / file
        path.write_text(source)
        # Python compiles a module again if the second of its last change differs; two mutants may come within one second.
        self.writes += 1
        os.utime(path, (self.writes, self.writes))

    def restore(self, file: str) -> None:
        shutil.copy2(ROOT / file, self.folder / file)

    def _link(self, program: Path, place: Path) -> None:
        if place.exists() or not program.is_file():
            return
        beginning = f"#!{sys.executable}".encode()
        content = program.read_bytes() if program.stat().st_size < 2**16 else b""
        if content.startswith(beginning):
            place.write_bytes(content.replace(beginning, f"#!{self.python}".encode(), 1))
            place.chmod(0o755)
        else:
            os.symlink(program, place)
