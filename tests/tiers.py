"""The tiers of the tests: `make test-long` in parts that go on after the tests that have passed, and what each test file takes and proves.

python -m tests.tiers long               # the parts that have not passed yet for these files; `make test-long`
python -m tests.tiers long --part 2/8    # one part; cuda: that of the tests which need JAX's CUDA plugin
python -m tests.tiers long --times 2     # until each part has passed twice
python -m tests.tiers ci                 # the part that the commit draws, in 25 minutes; what fails is run once more alone
python -m tests.tiers passed             # JSON: how often each part has passed for these files, and when
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
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests import clock as clocks

ROOT = Path(__file__).resolve().parents[1]
SECONDS, TABLE = ROOT / "tests/seconds.json", ROOT / "tests/README.md"
UNSTEADY = ROOT / "tests/unsteady.yaml"
PARTS = 8
PARTS_BY_HAND = ("cuda",)
CI_LIMIT_S = 25 * 60
PROGRAMS = ["munged", "slurmctld", "slurmd", "sbatch", "sshd", "ssh", "ip", "openssl", "curl", "kubectl", "chromium"]
"""with which no test of INSTALLED_FOR may be skipped; `.ci/run` installs them"""
FAILED, NOTHING_LEFT = 1, 5  # pytest's exit codes: tests failed; no test was to be run
WORKERS = ["-n", "3", "--dist", "worksteal"]  # a file may take longer than a worker's share of its part
FIXED_SEEDS = "--hypothesis-seed=0"
TESTED = ("podwright", "lab", "tests", "recipes", "conftest.py", "constraints.txt", "constraints-3.12.txt")
UNTESTED = (":(exclude)tests/README.md", ":(exclude)tests/unsteady.yaml")


def state() -> str:
    """A short hash of the product, the lab and the tests, as git knows or would add them: a part that passed counts until one of them changes."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *TESTED, *UNTESTED]
    digest = hashlib.sha256()
    for name in sorted(subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")):
        if name and (ROOT / name).is_file():
            digest.update(f"{name}\0".encode() + (ROOT / name).read_bytes())
    return digest.hexdigest()[:12]


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def run_pytest(argv: list[str], environment: dict[str, str]) -> int:
    """Its exit code. Ctrl-C reaches it too, and it is left to end its tests, which take down what they have started."""
    with subprocess.Popen(argv, cwd=ROOT, env=environment) as run:
        try:
            return run.wait()
        except KeyboardInterrupt:
            run.wait()
            raise


@dataclass(frozen=True)
class Outcome:
    """What became of tests, by their last lines in a clock. `broken`: pytest ended otherwise than with failed tests."""

    failed: list[str]
    skipped: list[str]
    left_out: list[str]
    broken: bool


def run_tests(words: list[str], clock: Path, until: float | None = None) -> Outcome:
    """Runs tests that have not passed by `clock`; none is begun after `until`, in seconds since 1970."""
    clock.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **clocks.environment(clock)}
    if until is not None:
        environment[clocks.UNTIL] = str(until)
    if os.geteuid() == 0 and all(map(shutil.which, PROGRAMS)):
        environment.setdefault("PODWRIGHT_SKIPS_FAIL", "1")
    argv = [sys.executable, "-m", "pytest", "-p", "tests.clock", *words]
    code = run_pytest(argv, environment)
    last: dict[str, dict[str, Any]] = {row["test"]: row for row in clocks.rows(clock)}
    skipped = [test for test, row in last.items() if row["skipped"]]
    left_out = [test for test, row in last.items() if row["left_out"]]
    failed = [test for test, row in last.items() if not row["passed"] and test not in (*skipped, *left_out)]
    ended = code == 0 or (code == FAILED and bool(failed)) or (code == NOTHING_LEFT and bool(last))
    return Outcome(failed, skipped, left_out, not ended)


def passed_file(part: str) -> Path:
    """Has a line for each time that the part has passed for this state."""
    return ROOT / ".long" / state() / part.replace("/", "-of-")


def times_passed(part: str) -> list[dict[str, Any]]:
    return clocks.rows(passed_file(part))


def run_long(chosen: list[str], times: int = 1) -> int:
    """Runs parts one after the other, and all of them though one fails; returns the exit code."""
    failed, skipping = list[str](), list[str]()
    for part in chosen:
        while len(times_passed(part)) < times:
            number = len(times_passed(part))
            clock = passed_file(part).with_suffix(f".{number + 1}.clock")
            outcome = run_tests([*WORKERS, "-m", "long", "--durations=25", f"--part={part}"], clock)
            if outcome.failed or outcome.broken:
                failed.append(part)
                break
            if outcome.skipped:
                skipping.append(part)
                print(
                    f"part {part} does not count as passed, since it skipped {len(outcome.skipped)} tests, such as {outcome.skipped[0]}"
                )
                break
            if any(word.startswith(("-k", "-m")) for word in os.environ.get("PYTEST_ADDOPTS", "").split()):
                print(f"part {part} does not count as passed, since PYTEST_ADDOPTS leaves out tests")
                break
            keep_as_passed(part, clock)
        else:
            print(
                f"part {part} has passed {len(times_passed(part))} times; delete {passed_file(part).relative_to(ROOT)} to run it again"
            )
    print(
        f"parts that failed: {', '.join(failed) or 'none'}; passed but for skipped tests: {', '.join(skipping) or 'none'}"
    )
    return bool(failed)


def keep_as_passed(part: str, clock: Path) -> None:
    last = {row["test"]: row for row in clocks.rows(clock)}
    line = {
        "part": part,
        "commit": commit()[:8],
        "ended": time.strftime("%Y-%m-%d %H:%M"),
        "tests": len(last),
        "minutes_of_tests": round(sum(row["wall_s"] for row in last.values()) / 60, 1),
    }
    with open(passed_file(part), "a") as out:
        out.write(json.dumps(line) + "\n")


def run_for_ci(limit_s: float = CI_LIMIT_S) -> int:
    """Runs the part that the hash of HEAD draws; no test is begun after the limit. A failed test is run once more, with no other beside it.

    It is a failure if it fails again; if it passes, it is printed and written to tests/unsteady.yaml.
    """
    head = commit()
    part = f"{int(head, 16) % PARTS + 1}/{PARTS}"
    print(
        f"long tests: part {part}, drawn by commit {head[:8]}; none is begun after {limit_s / 60:.0f} minutes",
        flush=True,
    )
    clock = passed_file(part).with_suffix(".ci.clock")
    clock.unlink(missing_ok=True)
    first = run_tests([*WORKERS, "-m", "long", FIXED_SEEDS, f"--part={part}"], clock, time.time() + limit_s)
    again = Outcome([], [], [], False)
    if first.failed:
        print(f"once more, alone: {', '.join(first.failed)}", flush=True)
        again = run_tests(["-p", "no:xdist", FIXED_SEEDS, *first.failed], clock)
    unsteady = [test for test in first.failed if test not in again.failed]
    if unsteady:
        rows = yaml.safe_load(UNSTEADY.read_text()) or []
        rows += [{"test": test, "part": part, "commit": head[:8]} for test in unsteady]
        UNSTEADY.write_text(UNSTEADY_HEAD + yaml.safe_dump(rows, sort_keys=False))
    for what, tests in (
        ("left out, for the time was over", first.left_out),
        ("skipped", first.skipped),
        ("failed, and passed alone", unsteady),
        ("failed twice", again.failed),
    ):
        print(f"part {part}: {len(tests)} {what}{': ' if tests else ''}{', '.join(tests)}")
    return int(first.broken or again.broken or bool(again.failed))


UNSTEADY_HEAD = """# Long tests that failed beside others and passed alone, as `python -m tests.tiers ci` writes them. Each is to be mended, and its row deleted.
"""


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


def parts() -> list[str]:
    return [f"{number}/{PARTS}" for number in range(1, PARTS + 1)]


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.tiers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    verbs = parser.add_subparsers(dest="verb", required=True)
    long = verbs.add_parser("long")
    long.add_argument("--part", help="such as 2/8, or cuda")
    long.add_argument("--times", type=int, default=1, help="until each part has passed so often")
    verbs.add_parser("ci")
    verbs.add_parser("passed")
    verbs.add_parser("record").add_argument("clocks", nargs="+", type=Path)
    verbs.add_parser("table")
    options = parser.parse_args()
    if options.verb == "long":
        try:
            return run_long([options.part] if options.part else parts(), options.times)
        except KeyboardInterrupt:
            print("broken off; make test-long goes on after the tests that have passed")
            return 130
    if options.verb == "ci":
        return run_for_ci()
    if options.verb == "passed":
        print(json.dumps({part: times_passed(part) for part in (*parts(), *PARTS_BY_HAND)}, indent=1))
        return 0
    if options.verb == "record":
        record(options.clocks)
    else:
        head = TABLE.read_text().partition("| file |")[0]
        TABLE.write_text(head + table())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
