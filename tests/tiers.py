"""The tiers of the tests: `make test-long` in parts that go on after the tests that have passed, and what each test file takes and proves.

python -m tests.tiers long               # the parts that have not passed yet for these files; `make test-long`
python -m tests.tiers long --part 2/4    # one part
python -m tests.tiers record CLOCK ...   # seconds of each file from runs with `-p tests.clock`
python -m tests.tiers table              # the table of tests/README.md
"""

import argparse
import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

from tests import clock as clocks

ROOT = Path(__file__).resolve().parents[1]
SECONDS, TABLE = ROOT / "tests/seconds.json", ROOT / "tests/README.md"
PARTS = 4
PROGRAMS = ["munged", "slurmctld", "slurmd", "sbatch", "sshd", "ssh", "ip", "openssl", "curl", "kubectl", "chromium"]
"""with which no test of INSTALLED_FOR may be skipped; `.ci/run` installs them"""
NOTHING_LEFT = 5  # pytest's exit code where no test was to be run
WORKERS = ["-n", "3", "--dist", "worksteal"]  # a file may take longer than a worker's share of its part


def state() -> str:
    """A short hash of all files that git knows or would add: a part that passed counts until one of them changes."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    digest = hashlib.sha256()
    for name in sorted(subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")):
        if name and (ROOT / name).is_file():
            digest.update(f"{name}\0".encode() + (ROOT / name).read_bytes())
    return digest.hexdigest()[:12]


def run_pytest(argv: list[str], environment: dict[str, str]) -> int:
    """Its exit code. Ctrl-C reaches it too, and it is left to end its tests, which take down what they have started."""
    with subprocess.Popen(argv, cwd=ROOT, env=environment) as run:
        try:
            return run.wait()
        except KeyboardInterrupt:
            run.wait()
            raise


def run_long(chosen: list[str]) -> int:
    """Runs parts one after the other, and all of them though one fails; returns the exit code."""
    failed, skipping = list[str](), list[str]()
    for part in chosen:
        passed = ROOT / ".long" / state() / part.replace("/", "-of-")
        if passed.exists():
            print(f"part {part} has passed; delete {passed.relative_to(ROOT)} to run it again")
            continue
        argv = [sys.executable, "-m", "pytest", *WORKERS, "-m", "long", "--durations=25", f"--part={part}"]
        clock = passed.with_suffix(".clock")
        clock.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, **clocks.environment(clock)}
        if os.geteuid() == 0 and all(map(shutil.which, PROGRAMS)):
            environment.setdefault("PODWRIGHT_SKIPS_FAIL", "1")
        code = run_pytest([*argv, "-p", "tests.clock"], environment)
        rows = [json.loads(line) for line in clock.read_text().splitlines()] if clock.exists() else []
        skipped = [test for test, row in {row["test"]: row for row in rows}.items() if row.get("skipped")]
        if code and not (code == NOTHING_LEFT and rows):
            failed.append(part)
        elif skipped:
            skipping.append(part)
            print(f"part {part} does not count as passed, since it skipped {len(skipped)} tests, such as {skipped[0]}")
        elif any(word.startswith(("-k", "-m")) for word in os.environ.get("PYTEST_ADDOPTS", "").split()):
            print(f"part {part} does not count as passed, since PYTEST_ADDOPTS leaves out tests")
        else:
            passed.touch()
    print(
        f"parts that failed: {', '.join(failed) or 'none'}; passed but for skipped tests: {', '.join(skipping) or 'none'}"
    )
    return bool(failed)


def record(clocks: list[Path]) -> None:
    """Writes what the files took in these runs, wall time in seconds; files of other runs keep what they have."""
    known, measured = json.loads(SECONDS.read_text()), defaultdict[str, Counter[str]](Counter)
    for clock in clocks:
        for row in map(json.loads, clock.read_text().splitlines()):
            measured[row["test"].partition("::")[0]]["long" if row["long"] else "test"] += row["wall_s"]
    for file, tiers in measured.items():
        known[file] = known.get(file, {}) | {tier: round(seconds, 1) for tier, seconds in tiers.items()}
    kept = {file: dict(sorted(tiers.items())) for file, tiers in sorted(known.items()) if (ROOT / file).is_file()}
    SECONDS.write_text("{\n" + ",\n".join(f" {json.dumps(f)}: {json.dumps(t)}" for f, t in kept.items()) + "\n}\n")


def table() -> str:
    """One row for each test file: the seconds in each tier, and what it proves by the first sentence of its docstring."""
    rows = ["| file | `make test`, s | `make test-long`, s | proves |", "| --- | --- | --- | --- |"]
    for file, tiers in json.loads(SECONDS.read_text()).items():
        docstring = ast.get_docstring(ast.parse((ROOT / file).read_text())) or ""
        sentence = " ".join(docstring.partition("\n\n")[0].split()).replace("|", "\\|")
        figures = [f"{tiers[tier]:.0f}" if tier in tiers else "" for tier in ("test", "long")]
        rows.append(f"| {file} | {figures[0]} | {figures[1]} | {sentence} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.tiers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("long").add_argument("--part", help="such as 2/4")
    verbs.add_parser("record").add_argument("clocks", nargs="+", type=Path)
    verbs.add_parser("table")
    options = parser.parse_args()
    if options.verb == "long":
        try:
            return run_long([options.part] if options.part else [f"{n}/{PARTS}" for n in range(1, PARTS + 1)])
        except KeyboardInterrupt:
            print("broken off; make test-long goes on after the tests that have passed")
            return 130
    if options.verb == "record":
        record(options.clocks)
    else:
        head = TABLE.read_text().partition("| file |")[0]
        TABLE.write_text(head + table())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
