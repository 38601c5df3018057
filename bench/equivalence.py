"""Is a state of the product equivalent to an earlier one? It answers a corpus of inputs, and two records of the answers are compared.

python bench/equivalence.py record --out FILE [--tree PATH] [--scripts PATH] [--only SECTION,...]
python bench/equivalence.py compare BASE NOW [--only SECTION,...] [--out FILE]

PATH of --tree is another checkout of this project, which answers the inputs of this one. PATH of --scripts is a checkout of
https://github.com/AI-Hypercomputer/tpu-recipes at commit c8cfe2f6, whose 25 launch scripts are read too. `compare` prints what vanished or
changed, less the wanted differences of bench/equivalence/differences.yaml; keys may be added. Exit code 1: something is left.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import lzma
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from equivalence_compare import Wanted, differences
from stamp import stamp

BENCH = Path(__file__).resolve().parent
SECTIONS = ("plans", "dry_runs", "imports", "scripts", "bad_inputs", "runs", "logs", "lives")
PACKAGES = ("jax", "jaxlib", "libtpu", "torch", "transformers", "tokenizers", "numpy", "matplotlib")
PROGRAMS = (
    "gcloud",
    "kubectl",
    "xpk",
    "ssh",
    "scp",
    "docker",
    "sbatch",
    "sinfo",
    "squeue",
    "scontrol",
    "sacct",
    "nvidia-smi",
)
"""a corpus that asked real clusters would answer differently each time"""
STAND_IN = """#!/bin/sh
case "${0##*/} $*" in "xpk version") echo "[XPK] xpk_version: 1.16.0"; exit 0 ;; esac
echo 'no answer' >&2
exit 1
"""


def record(tree: Path, out: Path, scripts: Path | None, only: list[str]) -> None:
    sections: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for section in only or SECTIONS:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryDirectory() as folder:
            answers = Path(folder, "answers.json")
            given = ["--scripts", str(scripts.resolve())] if scripts else []
            argv = [sys.executable, str(BENCH / "equivalence_child.py"), section, str(answers), *given]
            subprocess.run(argv, env=environment(tree.resolve(), Path(folder)), check=True)
            sections[section] = json.loads(answers.read_text())
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds[section] = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)
        print(f"{section}: {len(sections[section])} answers, {seconds[section]} s of CPU time", file=sys.stderr)
    head = subprocess.run(["git", "-C", str(tree), "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    about = stamp(__file__) | {"tree": head, "cpu_s": seconds, "versions": versions()}
    document = {"about": about, "sections": sections}
    text = json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    out.write_bytes(lzma.compress(text.encode()) if out.suffix == ".xz" else text.encode())


def versions() -> dict[str, str]:
    """Of what compiles and reads: with others the same product answers differently."""
    known = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            known[package] = importlib.metadata.version(package)
    return known


def environment(tree: Path, folder: Path) -> dict[str, str]:
    """Of a child: nobody's targets and caches, and no cluster, cloud or hub that answers."""
    programs, home = folder / "programs", folder / "home"
    programs.mkdir()
    home.mkdir()
    # a copy, for the product keeps the ssh key of TPU VMs where the targets are
    targets = shutil.copy(BENCH / "equivalence" / "targets.yaml", folder)
    for name in PROGRAMS:
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("PODWRIGHT_", "JAX_", "XLA_", "HF_"))
    }
    return kept | {
        "PYTHONPATH": str(tree),
        "PATH": f"{programs}:{kept.get('PATH', '/usr/bin:/bin')}",
        "HOME": str(home),
        "USER": "tester",
        "LOGNAME": "tester",
        "TZ": "UTC",
        "COLUMNS": "200",
        "PODWRIGHT_TARGETS": str(targets),
        "HF_HUB_OFFLINE": "1",
        "MPLCONFIGDIR": str(Path.home() / ".cache" / "matplotlib"),  # else each child makes a list of fonts first
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9",
    }


def load(path: Path) -> dict[str, Any]:
    """A record, without the numbers of the source's lines."""
    content = path.read_bytes()
    text = (lzma.decompress(content) if path.suffix == ".xz" else content).decode()
    loaded: dict[str, Any] = json.loads(re.sub(r"(?<=\w\.py):\d+", "", text))
    return loaded


def compare(base: Path, now: Path, only: list[str], out: Path | None = None) -> int:
    records = [load(path) for path in (base, now)]
    environments = [each["about"].get("versions") for each in records]
    if environments[0] != environments[1]:
        print(f"the records were made with different packages: {environments}", file=sys.stderr)
    sections = [each["sections"] for each in records]
    if only:
        sections = [{name: answers for name, answers in each.items() if name in only} for each in sections]
    wanted = Wanted.read(BENCH / "equivalence" / "differences.yaml")
    left = wanted.subtract(differences(*sections))
    if out:
        trees = {name: each["about"].get("tree", "") for name, each in zip(("base", "now"), records, strict=True)}
        counts = {
            name: {"answers": len(answers), "covered": round(wanted.covered({name: answers}), 4)}
            for name, answers in sections[0].items()
        }
        verdict = {"left": [str(difference) for difference in left], "wanted": wanted.subtracted, "sections": counts}
        out.write_text(json.dumps(stamp(__file__) | trees | verdict, indent=1) + "\n")
    for difference in left:
        print(difference)
    for pattern in wanted.unused():
        print(f"differences.yaml: nothing differs any more at {pattern}", file=sys.stderr)
    print(f"{len(left)} differences, and {wanted.subtracted} that are wanted", file=sys.stderr)
    return 1 if left else 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording, comparing = verbs.add_parser("record"), verbs.add_parser("compare")
    recording.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON; compressed if it ends in .xz")
    recording.add_argument("--tree", type=Path, default=BENCH.parent, metavar="PATH")
    recording.add_argument("--scripts", type=Path, metavar="PATH")
    comparing.add_argument("base", type=Path)
    comparing.add_argument("now", type=Path)
    comparing.add_argument("--out", type=Path, metavar="FILE", help="the verdict as JSON, as for bench/results")
    for each in (recording, comparing):
        each.add_argument("--only", default="", metavar="SECTION,...", help=", ".join(SECTIONS))
    options = parser.parse_args(argv)
    only = [name for name in options.only.split(",") if name]
    if unknown := set(only) - set(SECTIONS):
        parser.error(f"--only {','.join(sorted(unknown))}: there are {', '.join(SECTIONS)}")
    if options.verb == "compare":
        return compare(options.base, options.now, only, options.out)
    record(options.tree, options.out, options.scripts, only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
