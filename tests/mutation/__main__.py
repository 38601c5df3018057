"""Draws mutants by seed, runs against each the tests that reach it, and keeps which test kills it.

    python -m tests.mutation --minutes 20    # goes on where the last call ended; `make mutants`
    python -m tests.mutation --missed bench/results/FILE --tier test-long    # do the long tests kill what those of that result did not?
    python -m tests.mutation --killed bench/results/FILE    # does each test of that result still kill its mutant? No run with probes is needed
    python -m tests.mutation --standing bench/results/FILE    # the mutants of that result whose lines stand, and new ones until there are 300
    python -m tests.mutation --summary

The first calls run the tests once with probes (`reach`). Then a mutant runs against the tests that call its function, the cheapest first, until one fails
or they have taken `--budget` seconds of processor time. Verdicts are appended to verdicts.jsonl in `--folder`, which belongs to one state of product and tests.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.mutation.changes import ROOT, Mutant, count, files, line_text, mutants, sample
from tests.mutation.reach import KeptReach, Reach
from tests.mutation.tree import Tree
from tests.tiers import WORKERS

TIERS = {
    "test": ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder", "-m", "not long"],
    "test-long": [*WORKERS, "-m", "long"],
}
KILLED = ("killed", "timeout")
SECONDS_OF_A_KILLER = 60.0
# They look at the text of the product, and a probe or a mutant changes it.
TEXTUAL = ("tests/test_architecture.py", "tests/test_docs.py", "tests/test_bench_results.py")

# A mutant of what ends processes may end all that it sees: so it sees its own alone. Needs root; without it such a mutant is run as the others.
APART = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
if os.geteuid() or subprocess.run([*APART, "true"], capture_output=True, check=False).returncode:
    APART = []


def state() -> str:
    """A short hash of the product's code and of its tests: a verdict is one of both."""
    tests = [path for folder in ("tests", "lab") for path in (ROOT / folder).rglob("*.py")]
    digest = hashlib.sha256()
    for path in (*map(ROOT.joinpath, files()), ROOT / "conftest.py", *sorted(tests)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def find_reach(folder: Path, parts: int, until: float, tier: str) -> Reach:
    """Runs what is missing of the tests with probes, part by part."""
    reach = Reach(folder / "reach")
    tree = Tree(folder / "probed")
    for part in range(1, parts + 1):
        done = folder / f"{tier}-{part}-of-{parts}"
        if not done.exists() and time.time() < until:
            tree.make()
            if not reach.run(tree, [*TIERS[tier], f"--part={part}/{parts}", *(f"--ignore={name}" for name in TEXTUAL)]):
                raise SystemExit(f"part {part} of the tests was not run to its end, so no mutant is judged")
            done.touch()
    return reach.read()


class Judge(threading.Thread):
    """Takes mutants from a queue, one at a time, in a tree of its own."""

    def __init__(self, tree: Tree, jobs: queue.Queue[Mutant], reach: Reach, options: argparse.Namespace):
        super().__init__()
        self.tree, self.jobs, self.reach, self.options = tree, jobs, reach, options

    def run(self) -> None:
        self.tree.make()
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["JAX_COMPILATION_CACHE_DIR"] = str(self.options.folder / "programs")
        environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        argv = [*APART, str(self.tree.python), "-m", "tests.mutation.worker"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(argv, cwd=self.tree.folder, env=environment, **pipes) as worker:
            while time.time() < self.options.until:
                try:
                    mutant = self.jobs.get_nowait()
                except queue.Empty:
                    break
                self.judge(mutant, worker)
            worker.stdin.close()  # type: ignore[union-attr]

    def judge(self, mutant: Mutant, worker: subprocess.Popen[str]) -> None:
        reaching = self.reach.of(mutant.file, mutant.line, self.options.tier)
        tests = self.chosen(reaching)
        record = {"file": mutant.file, "number": mutant.number, "line": mutant.line}
        record |= {"before": mutant.before, "after": mutant.after, "reached_by": len(reaching), "ran": len(tests)}
        record |= {"tier": self.options.tier, "budget_s": self.options.budget}
        record |= self.verdict(mutant, tests, worker)
        with self.options.verdicts.open("a") as out:
            out.write(json.dumps(record) + "\n")
        print(f"{record['verdict']:11} {record['cpu_s']:6.1f} s  {mutant.key}  {record['test']}", flush=True)

    def verdict(self, mutant: Mutant, tests: list[str], worker: subprocess.Popen[str]) -> dict[str, Any]:
        """A kill counts if the test fails on the mutant once more and passes without it: some tests fail on a busy machine."""
        while tests:
            self.tree.write(mutant.file, mutant.source)
            first = self.ask(worker, tests)
            test = first["test"]
            if first["verdict"] != "killed" or test not in tests:
                self.tree.restore(mutant.file)
                return first
            again = self.ask(worker, [test])
            self.tree.restore(mutant.file)
            if again["verdict"] == "killed" and self.ask(worker, [test])["verdict"] == "survived":
                return first
            tests = [name for name in tests if name != test]
        return {"verdict": "not reached", "test": "", "cpu_s": 0.0}

    def ask(self, worker: subprocess.Popen[str], tests: list[str]) -> dict[str, Any]:
        assert worker.stdin and worker.stdout
        limit_s = round(60 + 3 * sum(self.reach.seconds[test] for test in tests))
        worker.stdin.write(json.dumps({"tests": tests, "limit_s": limit_s}) + "\n")
        worker.stdin.flush()
        answer: dict[str, Any] = json.loads(worker.stdout.readline())
        return answer

    def chosen(self, reaching: set[str]) -> list[str]:
        """The cheapest tests within the budget, file by file; at least one."""
        cheapest, spent = list[str](), 0.0
        for test in sorted(reaching, key=lambda name: (self.reach.seconds[name], name)):
            spent += self.reach.seconds[test]
            if cheapest and spent > self.options.budget:
                break
            cheapest.append(test)
        order = {name: place for place, name in reversed(list(enumerate(test.partition("::")[0] for test in cheapest)))}
        return sorted(cheapest, key=lambda test: order[test.partition("::")[0]])


def standing(result: Path, killed: bool) -> list[tuple[Mutant, str]]:
    """(mutant, the test that killed it) of a kept result, of those that were killed or of the others, each where its line stands in the product
    now. Those are named whose line is gone."""
    kept, chosen = json.loads(result.read_text()), list[tuple[Mutant, str]]()
    for row in kept["mutants"]:
        if (row["verdict"] in KILLED) != killed:
            continue
        same = list[Mutant]()
        if (ROOT / row["file"]).exists():
            shown = ["git", "show", f"{kept['commit']}:{row['file']}"]
            then = subprocess.run(shown, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
            same = [
                mutant
                for mutant in mutants(row["file"], set(range(count(row["file"]))))
                if (mutant.before, mutant.after) == (row["before"], row["after"])
                and line_text(mutant.file, mutant.line) == then[row["line"] - 1].strip()
            ]
        if same:
            chosen.append((min(same, key=lambda mutant: abs(mutant.line - row["line"])), row["test"]))
        else:
            print(f"gone: {row['file']}:{row['line']} {row['before']}  ->  {row['after']}")
    return chosen


def draw(options: argparse.Namespace) -> list[Mutant]:
    """The mutants that the options --missed, --killed, --standing, --seed and --total ask for."""
    if options.standing:
        kept = [*standing(options.standing, killed=True), *standing(options.standing, killed=False)]
        return sample(options.seed, options.total, [mutant for mutant, _ in kept])
    result = options.missed or options.killed
    if result:
        return [mutant for mutant, _ in standing(result, killed=bool(options.killed))]
    return sample(options.seed, options.total)


def killers(chosen: list[tuple[Mutant, str]]) -> dict[str, dict[str, float]]:
    """For `KeptReach`: the test that killed each mutant, where its file is still there."""
    kept: dict[str, dict[str, float]] = {}
    for mutant, test in chosen:
        if test and (ROOT / test.partition("::")[0]).is_file():
            kept.setdefault(f"{mutant.file}|{line_text(mutant.file, mutant.line)}", {})[test] = SECONDS_OF_A_KILLER
    return kept


def latest(verdicts: Path) -> dict[str, dict[str, Any]]:
    """The last verdict of each mutant."""
    records = [json.loads(line) for line in verdicts.read_text().splitlines()] if verdicts.exists() else []
    return {f"{record['file']}:{record['number']}": record for record in records}


def summary(chosen: list[Mutant], verdicts: dict[str, dict[str, Any]]) -> str:
    counts = Counter(verdicts[m.key]["verdict"] for m in chosen if m.key in verdicts)
    killed = sum(counts[verdict] for verdict in KILLED)
    lines = [f"{len(chosen)} drawn, {sum(counts.values())} ran, {killed} killed ({counts['timeout']} by time)"]
    for m in chosen:
        record = verdicts.get(m.key)
        if record and record["verdict"] not in KILLED:
            ran = f"{record['ran']} of {record['reached_by']} tests"
            lines.append(f"{record['verdict']}: {m.file}:{m.line} {m.before}  ->  {m.after} ({ran})")
    return "\n".join(lines)


def main() -> None:
    description, _, epilog = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser("python -m tests.mutation", description=description, epilog=epilog)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--total", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--budget", type=float, default=120, help="processor seconds of tests a mutant")
    parser.add_argument("--tier", choices=TIERS, default="test", help="whose tests get probes")
    parser.add_argument(
        "--again", action="store_true", help="those without a kill once more, as after --tier test-long"
    )
    parser.add_argument(
        "--missed", type=Path, help="in place of a sample, the mutants that no test of this result killed"
    )
    parser.add_argument("--killed", type=Path, help="in place of a sample, those that one killed; it alone runs again")
    parser.add_argument(
        "--standing", type=Path, help="those of this result whose lines stand, and new ones up to --total"
    )
    parser.add_argument("--reach", type=Path, help="go by the tests that this file names, without a run with probes")
    parser.add_argument("--only", default="", help="files whose name has this in it")
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutants" / state())
    parser.add_argument("--summary", action="store_true", help="run nothing, print what is known")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    options.verdicts = options.folder / "verdicts.jsonl"
    options.until = time.time() + 60 * options.minutes
    for result in filter(None, (options.missed, options.killed, options.standing)):
        if not result.is_file():
            parser.error(f"there is no result {result}")
    kept = standing(options.killed, killed=True) if options.killed else []
    drawn = draw(options)
    chosen = [mutant for mutant in drawn if options.only in mutant.file]
    if not options.summary:
        options.folder.mkdir(parents=True, exist_ok=True)
        if options.reach or options.killed:
            known_tests = json.loads(options.reach.read_text()) if options.reach else {}
            reach: Reach = KeptReach(options.folder, killers(kept) | known_tests)
        else:
            reach = find_reach(options.folder, 4, options.until, options.tier)
            if not reach.lines:
                parser.error("no part of the tests has run with probes yet: give more --minutes")
        known, jobs = latest(options.verdicts), queue.Queue[Mutant]()
        for mutant in chosen:
            verdict = known.get(mutant.key, {}).get("verdict")
            if verdict is None or (options.again and verdict not in KILLED):
                jobs.put(mutant)
        judges = [Judge(Tree(options.folder / f"tree-{n}"), jobs, reach, options) for n in range(2)]
        for judge in judges:
            judge.start()
        for judge in judges:
            judge.join()
    print(summary(chosen, latest(options.verdicts)))


if __name__ == "__main__":
    main()
