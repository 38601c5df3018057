"""Mutation testing: whether the tests see a small wrong change of the code. `python tests/mutation.py --help` has the options.

A mutant is a module with one operator, number, condition or branch changed, or one call left out. For each of MODULES a seeded sample of
mutants runs against the fast tests that are to fail on it. Every mutant has a process of its own, forked from one that has imported the
libraries; what a mutant does to a file or a compiled program ends with it. Outcomes are appended to a JSON Lines file: a second start
goes on where the first one ended. Strings are never changed.

The first failure of a test ends a mutant. So the tests of a file run in the order of the seconds they take for each mutant that they have
failed on so far; a mutant that no test fails on takes them all. Programs come from JAX's persistent cache, whose key is the program itself.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import dataclasses
import importlib
import importlib.abc
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TRAIN, MODELS, PLAN, RUN = "tests/unit/train", "tests/unit/models", "tests/unit/plan", "tests/unit/run"
# module -> the test files that are to fail on its mutants; modules with fast tests come first
MODULES = {
    "podwright.train.grpo.loss": [f"{TRAIN}/test_loss.py", f"{TRAIN}/test_collect.py"],
    "podwright.train.grpo.evaluate": [f"{TRAIN}/test_evaluate.py"],
    "podwright.run.decide": [f"{RUN}/test_allocations.py", f"{RUN}/test_decide.py"],
    "podwright.plan.estimates.memory": [f"{PLAN}/test_memory.py"],
    "podwright.report.result": ["tests/unit/report/test_result.py"],
    "podwright.plan.checks.meshes": [f"{PLAN}/test_meshes.py", f"{PLAN}/test_pretrain.py"],
    "podwright.train.grpo.collect": [f"{TRAIN}/test_collect.py", f"{TRAIN}/test_loop.py"],
    "podwright.train.grpo.loop": [f"{TRAIN}/test_loop.py"],
    "podwright.train.muon": [f"{TRAIN}/test_muon.py"],
    "podwright.models.mla": [f"{MODELS}/test_mla.py"],
    "podwright.models.moe": [f"{MODELS}/test_moe.py"],
    "podwright.models.kda": [f"{MODELS}/test_kda.py"],
    "podwright.kernels.kda": ["tests/unit/kernels/test_kda.py"],
}
# imported before the fork, once for all mutants
LIBRARIES = ("numpy", "scipy.stats", "hypothesis", "jax", "jax.numpy", "jax.experimental.multihost_utils", "optax")
LIBRARIES += ("optax.contrib", "orbax.checkpoint", "torch", "transformers", "pydantic", "tokenizers", "yaml", "pytest")
LEAST = 20  # mutants of a module
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
NAMES = {"min": "max", "minimum": "maximum", "any": "all", "zeros": "ones", "zeros_like": "ones_like", "floor": "ceil"}
NAMES |= {other: name for name, other in NAMES.items()}


@dataclasses.dataclass(frozen=True)
class Mutant:
    module: str
    number: int
    """of all changes of the module, in the order of its syntax tree"""
    line: int
    before: str
    after: str
    source: str
    """of the whole changed module"""

    @property
    def key(self) -> str:
        return f"{self.module}:{self.number}"


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Every way to write `node` wrong."""
    if isinstance(node, ast.Compare):
        yield from (_with(node, "ops", n, SWAPS[type(op)]()) for n, op in enumerate(node.ops))
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPS:
        changed = copy.copy(node)
        changed.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
        yield changed
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        value: Any = not node.value if isinstance(node.value, bool) else node.value + 1
        yield ast.Constant(2 * node.value if isinstance(node.value, float) and node.value else value)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        changed = copy.copy(node)
        changed.test = ast.UnaryOp(ast.Not(), node.test)
        yield changed
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield ast.Pass()
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in NAMES:
            changed = copy.deepcopy(node)
            setattr(changed.func, "attr" if isinstance(changed.func, ast.Attribute) else "id", NAMES[name])
            yield changed
        if name == "where" and len(node.args) == 3:
            changed = copy.copy(node)
            changed.args = [node.args[0], node.args[2], node.args[1]]
            yield changed


def _with(node: ast.AST, field: str, place: int, value: ast.AST) -> ast.AST:
    changed = copy.copy(node)
    setattr(changed, field, [value if n == place else x for n, x in enumerate(getattr(node, field))])
    return changed


def count(module: str) -> int:
    """How many mutants there are of it."""
    return sum(1 for *_, node in _code(_tree(module)) for _ in changes(node))


def mutants(module: str, numbers: Sequence[int]) -> list[Mutant]:
    """Those of these numbers; annotations and strings are left as they are."""
    tree, number, listed = _tree(module), -1, []
    for parent, field, place, node in _code(tree):
        for changed in changes(node):
            number += 1
            if number in numbers:
                _put(parent, field, place, ast.copy_location(changed, node))
                source = ast.unparse(ast.fix_missing_locations(tree))
                _put(parent, field, place, node)
                texts = [ast.unparse(x).partition("\n")[0] for x in (node, changed)]
                line = getattr(node, "lineno", 0)
                listed.append(Mutant(module, number, line, *texts, source))
    return listed


def _tree(module: str) -> ast.Module:
    return ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())


def _code(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """(parent, field, place in it, node) of everything that runs."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "type_params"):
            continue
        for place, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST):
                yield node, field, place if isinstance(value, list) else None, child
                yield from _code(child)


def _put(parent: ast.AST, field: str, place: int | None, node: ast.AST) -> None:
    if place is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[place] = node


def sample(seed: int, total: int) -> list[Mutant]:
    """LEAST of every module, and the rest in proportion to the number of its mutants."""
    sizes = {module: count(module) for module in MODULES}
    spare, drawn = max(0, total - LEAST * len(MODULES)), list[Mutant]()
    for module, size in sizes.items():
        num = min(size, LEAST + round(spare * size / sum(sizes.values())))
        drawn += mutants(module, random.Random(f"{seed} {module}").sample(range(size), num))
    return drawn


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the mutant in place of its module."""

    def __init__(self, module: str, source: str):
        self.module, self.source = module, source

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.util.spec_from_loader(name, self) if name == self.module else None

    def exec_module(self, module: Any) -> None:
        module.__file__ = str(ROOT / f"{self.module.replace('.', '/')}.py")
        exec(compile(self.source, module.__file__, "exec"), module.__dict__)


def hand_on(mutant: Mutant, folder: str) -> None:
    """Processes that a test starts import the mutant too, where the test leaves PYTHONPATH as it is."""
    Path(folder, "mutant.py").write_text(mutant.source)
    lines = ["import sys", f"sys.path.append({str(ROOT)!r})", "from tests.mutation import Changed, Path"]
    lines += [
        f"source = Path({folder!r}, 'mutant.py').read_text()",
        f"sys.meta_path.insert(0, Changed({mutant.module!r}, source))",
    ]
    Path(folder, "sitecustomize.py").write_text("\n".join(lines))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))


class Order:
    """A plugin of pytest: runs the tests that are likely to fail soon first, and keeps what each of them took and whether it failed."""

    def __init__(self) -> None:
        self.seconds, self.failures = Counter[str](), Counter[str]()
        self.folder = tempfile.TemporaryDirectory(prefix="podwright-mutants-")
        self.log = Path(self.folder.name, "reports.jsonl")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        files = {name: place for place, name in enumerate(dict.fromkeys(item.path for item in items))}
        cost = {item: self.seconds[item.nodeid] / (1 + self.failures[item.nodeid]) for item in items}
        items.sort(key=lambda item: (files[item.path], cost[item]))

    def pytest_runtest_logreport(self, report: Any) -> None:
        with self.log.open("a") as f:
            f.write(json.dumps([report.nodeid, report.duration, report.failed]) + "\n")

    def read(self, keep_seconds: bool) -> str:
        """The first test that failed in the process that has ended; "" if none did. The seconds are those without a mutant."""
        rows, first = [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else [], ""
        self.log.unlink(missing_ok=True)
        for name, seconds, failed in rows:
            self.seconds[name] += seconds if keep_seconds else 0
            first = first or (name if failed else "")
        self.failures[first] += 1
        return first


def outcome(mutant: Mutant | None, tests: list[str], limit_s: int, order: Order) -> tuple[str, float]:
    """("killed", "survived" or "timeout", seconds of processor time, of which `limit_s` is the most); code that never ends is killed by that."""
    begin, child = time.monotonic(), os.fork()
    if not child:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 1)
            os.dup2(nothing.fileno(), 2)
        if mutant:
            sys.meta_path.insert(0, Changed(mutant.module, mutant.source))
            hand_on(mutant, order.folder.name)
        import hypothesis
        import pytest

        hypothesis.settings.register_profile("mutation", deadline=None, derandomize=True)
        hypothesis.settings.load_profile("mutation")
        code = 1
        with contextlib.suppress(BaseException):
            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-m", "not long", *tests], plugins=[order]))
        os._exit(code)
    done, status, used = os.wait4(child, os.WNOHANG)
    while not done and time.monotonic() - begin < 10 * limit_s:
        time.sleep(0.05)
        done, status, used = os.wait4(child, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # and what its tests have started
    if not done:
        _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    spent = used.ru_utime + used.ru_stime
    return ("timeout" if code < 0 else "killed" if code else "survived"), spent


def prepare() -> None:
    """The environment of the tests, and the libraries, none of which has started a thread of its own yet."""
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)
    cache = os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", tempfile.mkdtemp(prefix="podwright-mutants-"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
    print(f"compiled programs are kept in {cache}")
    importlib.import_module("conftest")
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def run(chosen: list[Mutant], out: Path, again: bool, most: int, limit_s: int) -> None:
    """Each mutant that has no outcome in `out` yet, `most` of a module; with `again` those that survived, once more.

    Before them the tests run without a mutant, which has to pass, and says how much processor time they may take unless `limit_s` does.
    """
    before = latest(out)
    wanted = [m for m in chosen if (before[m.key]["outcome"] == "survived" if m.key in before else not again)]
    prepare()
    for module, tests in MODULES.items():
        listed = [m for m in wanted if m.module == module]
        if not listed:
            continue
        listed = random.Random(module).sample(listed, min(most, len(listed)))
        order = Order()
        state, seconds = outcome(None, tests, max(1000, limit_s), order)
        order.read(keep_seconds=True)
        print(f"{module}: {len(listed)} mutants; without one its tests take {seconds:.0f} s", flush=True)
        if state != "survived":
            print(f"{module}: its tests fail without any mutant", flush=True)
            continue
        for m in listed:
            state, spent = outcome(m, tests, limit_s or round(30 + 3 * seconds), order)
            failed = order.read(keep_seconds=False)
            record = {"module": m.module, "number": m.number, "line": m.line, "before": m.before, "after": m.after}
            with out.open("a") as f:
                f.write(json.dumps(record | {"outcome": state, "seconds": round(spent, 1), "test": failed}) + "\n")


def latest(out: Path) -> dict[str, dict[str, Any]]:
    """The last outcome of each mutant."""
    records = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return {f"{r['module']}:{r['number']}": r for r in records}


def summary(chosen: list[Mutant], out: Path) -> str:
    known = latest(out)
    lines = []
    for module in [*dict.fromkeys(m.module for m in chosen), ""]:
        listed = [m for m in chosen if m.module.startswith(module)]
        counts = Counter(known[m.key]["outcome"] for m in listed if m.key in known)
        ran, killed = sum(counts.values()), counts["killed"] + counts["timeout"]
        lines.append(
            f"{module or 'all':34} {len(listed):4} drawn {ran:4} ran {killed:4} killed ({counts['timeout']} by time)"
        )
    survivors = [m for m in chosen if m.key in known and known[m.key]["outcome"] == "survived"]
    lines += [f"{m.key} line {m.line}: {m.before}  ->  {m.after}" for m in survivors]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--total", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument("--only", default="", help="modules whose name has this in it")
    parser.add_argument("--module", help="a module outside the list; needs --tests")
    parser.add_argument("--tests", nargs="+", default=[], metavar="FILE", help="the test files that are to fail on it")
    parser.add_argument("--most", type=int, default=sys.maxsize, help="run so many of each module")
    parser.add_argument(
        "--limit", type=int, default=0, help="seconds of processor time that the tests of a mutant may take"
    )
    parser.add_argument("--again", action="store_true", help="only those that survived so far")
    parser.add_argument("--summary", action="store_true", help="run nothing, print what is known")
    options = parser.parse_args()
    if options.module:
        if not options.tests:
            parser.error(
                f"--module {options.module} needs --tests: type the test files that are to fail on its mutants"
            )
        MODULES.clear()
        MODULES[options.module] = options.tests
    chosen = [m for m in sample(options.seed, options.total) if options.only in m.module]
    out = options.out.resolve()
    if not options.summary:
        run(chosen, out, options.again, options.most, options.limit)
    print(summary(chosen, out))


if __name__ == "__main__":
    main()
