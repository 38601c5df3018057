"""Who may import whom, and the budgets on size: docs/architecture.md as assertions. Raising a budget is a visible diff."""

import ast
import statistics
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from conftest import INSTALLED_FOR, SECONDS
from podwright.plan.kinds import PlanPart
from podwright.recipe import kinds, load
from podwright.recipe.kinds import KINDS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "podwright"

# The shared modules: each imports only what stands before it.
FLOOR_ORDER = (
    "extras",
    *("errors", "accelerators", "slices", "growing_file", "rundir", "failures", "counted_steps", "storage", "recipe"),
    "attention_kernels",
    "cgroup",
)
SHARED = set(FLOOR_ORDER)
CONTROL = {
    "cli",
    "shell",
    "sandbox",
    "importers",
    "plan",
    "targets",
    "run",
    "watch",
    "report",
    "track",
    "__main__",
    "__init__",
}
COMPUTE = {"train", "models", "kernels", "data"}

# part -> the parts it may import, besides itself and the shared modules; what is not listed imports the shared modules only
MAY_IMPORT = {
    "__main__": {"cli"},
    "cli": {"shell", "sandbox", "importers", "plan", "targets", "run", "watch", "report", "track"},
    "sandbox": {"shell"},
    "plan": {"shell"},
    "targets": {"shell"},
    "watch": {"targets"},
    "run": {"plan", "targets", "watch"},
    "report": {"plan", "watch", "run"},
    "track": {"watch", "run"},
    "train": {"models", "kernels", "data"},
    "models": {"kernels"},
}
# The launcher writes the report and feeds the trackers when a run ends. One file does it, and imports them when it needs them.
EXCEPTIONS = {("run/finish.py", "report"), ("run/finish.py", "track")}

HEAVY = {"jax", "jaxlib", "numpy", "flax", "optax", "orbax", "torch", "transformers", "tokenizers", "datasets"}
READS_ENVIRONMENT = {
    "train/attempt.py",
    "train/grpo/reward_process.py",
    "train/multimodal/entry.py",
    "train/multimodal/processes/network.py",  # a process of its own, which torch asks for its network
    "train/mesh.py",
    "shell.py",
    "cli/app.py",
    "targets/hosts/on_host.py",
    "track/mlflow_server.py",
}
STARTS_PROCESSES = {"shell.py", "targets/hosts/keeper.py"}  # the latter on another machine
TARGET_SHARED = {
    "__init__",
    "machines",
    "base",
    "detached",
    "handles",
    "alive",
    "settings",
    "scripts",
    "slurm_check",
    "slurm_states",
    "kinds",
    "entries",
}
TARGET_SHARED |= {"hosts", "google"}
BANNED_WORDS = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
# what happened to a value instead of what it is
BANNED_NAMES = {"found", "told", "said", "made", "asked", "one", "whole", "beside", "again", "inside"}
MUTATORS = {
    "append",
    "add",
    "clear",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "setdefault",
    "sort",
    "update",
    "discard",
}

FILE_CAP, FILE_CAP_MODELS, FILE_MEDIAN = 400, 600, 150
FUNCTION_CAP, LOOP_CAP, FUNCTION_MEDIAN, FUNCTION_P90 = 80, 120, 10, 40
LOOPS = {"train", "loop"}
DEPTH = 3
FIELDS_PER_KIND, FIELDS_OF_GRPO = 61, 70
CONTROL_DEPENDENCIES = 12
CLASS_CHECKS = 3  # isinstance on the class of a recipe
UNTYPED_DICTS = 10

FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in FILES}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def part_of(path: Path) -> str:
    """The folder below podwright/, or the name of a file that lies there itself."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[str]:
    """Dotted names of everything that is imported, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write the import out instead of with dots"
            # `from podwright import targets` names a part by what is imported, not by where from
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports(path: Path) -> Iterator[str]:
    return imported(TREES[path])


def parts_imported(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imports(path) if name.startswith("podwright.")} - {"__version__"}


def functions() -> Iterator[tuple[Path, ast.FunctionDef, int]]:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node, (node.end_lineno or node.lineno) - node.lineno + 1


def where(path: Path, node: ast.AST) -> str:
    return f"{name_of(path)}:{getattr(node, 'lineno', 0)}"


def test_every_part_belongs_to_a_half_or_to_the_floor() -> None:
    assert {part_of(path) for path in FILES} <= SHARED | CONTROL | COMPUTE, (
        "say in tests/test_architecture.py which half it belongs to"
    )


def wrong_imports(path: Path) -> str:
    """What a file imports that its part may not; "" if nothing."""
    part = part_of(path)
    allowed = MAY_IMPORT.get(part, set()) | SHARED | {part}
    wrong = {found for found in parts_imported(path) - allowed if (name_of(path), found) not in EXCEPTIONS}
    if not wrong:
        return ""
    return f"{name_of(path)} imports {', '.join(sorted(wrong))}; {part} may import {', '.join(sorted(allowed))}"


def test_each_file_imports_only_what_its_part_may() -> None:
    wrong = [line for path in FILES if (line := wrong_imports(path))]
    assert not wrong, "\n".join(wrong)


def test_no_half_may_import_the_other() -> None:
    """The table above, held against the rule that it must not break."""
    for part, allowed in MAY_IMPORT.items():
        assert not allowed & (CONTROL if part in COMPUTE else COMPUTE), part


def test_the_floor_imports_none_of_the_halves_and_has_an_order() -> None:
    for path in FILES:
        if (part := part_of(path)) in SHARED:
            below = set(FLOOR_ORDER[: FLOOR_ORDER.index(part) + 1])
            assert parts_imported(path) <= below, f"{name_of(path)} may import only {', '.join(sorted(below))}"


def test_exceptions_are_still_needed() -> None:
    for name, part in EXCEPTIONS:
        assert part in parts_imported(PACKAGE / name), f"take ({name}, {part}) out of EXCEPTIONS"


def test_the_control_half_and_the_floor_import_no_heavy_library() -> None:
    wrong = [
        (name_of(p), m) for p in FILES if part_of(p) not in COMPUTE for m in imports(p) if m.split(".")[0] in HEAVY
    ]
    assert not wrong


def test_torch_is_only_in_the_multimodal_trainer() -> None:
    wrong = [
        name_of(p)
        for p in FILES
        if not name_of(p).startswith("train/multimodal/") and any(m.split(".")[0] == "torch" for m in imports(p))
    ]
    assert not wrong


def test_targets_do_not_import_each_other() -> None:
    for path in (PACKAGE / "targets").glob("*.py"):
        if path.stem not in TARGET_SHARED:
            others = {m.split(".")[2] for m in imports(path) if m.startswith("podwright.targets.")}
            assert others <= TARGET_SHARED | {path.stem}, name_of(path)


def test_trainers_do_not_import_each_other() -> None:
    trainers = {d.name for d in (PACKAGE / "train").iterdir() if d.is_dir() and any(d.glob("*.py"))}
    for trainer in trainers:
        for path in (PACKAGE / "train" / trainer).glob("*.py"):
            others = {m.split(".")[2] for m in imports(path) if m.startswith("podwright.train.")} & trainers
            assert others <= {trainer}, name_of(path)


def test_the_environment_is_read_in_few_places() -> None:
    def reads(tree: ast.AST) -> bool:
        attributes = {
            (n.value.id, n.attr)
            for n in ast.walk(tree)
            if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
        }
        names = {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "os" for a in n.names}
        return bool(
            attributes & {("os", "environ"), ("os", "getenv"), ("os", "environb")} or names & {"environ", "getenv"}
        )

    assert {name_of(path) for path, tree in TREES.items() if reads(tree)} <= READS_ENVIRONMENT


def test_processes_are_started_without_a_shell_and_in_one_place() -> None:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "shell":
                assert isinstance(node.value, ast.Constant) and node.value.value is False, where(path, node.value)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
                assert node.attr not in ("system", "popen"), where(path, node)
        if name_of(path) not in STARTS_PROCESSES and part_of(path) not in COMPUTE:
            assert not any(m.split(".")[0] == "subprocess" for m in imports(path)), (
                f"{name_of(path)}: start processes through shell.py"
            )


def test_no_module_state_changes_after_import() -> None:
    wrong = []
    for path, tree in TREES.items():
        wrong += [where(path, node) for node in ast.walk(tree) if isinstance(node, ast.Global)]
        shared = {t.id for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) for t in targets_of(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                others = shared - names_bound_in(node)
                wrong += [where(path, n) for n in ast.walk(node) if changed_name(n) in others]
    assert not wrong


def targets_of(node: ast.Assign | ast.AnnAssign) -> list[ast.Name]:
    return [t for t in (node.targets if isinstance(node, ast.Assign) else [node.target]) if isinstance(t, ast.Name)]


def names_bound_in(function: ast.AST) -> set[str]:
    arguments = {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
    return arguments | {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def changed_name(node: ast.AST) -> str | None:
    """The name whose value a node changes in place: NAME[...] = , del NAME[...], NAME.append(...)."""
    if (
        isinstance(node, ast.Subscript | ast.Attribute)
        and isinstance(node.ctx, ast.Store | ast.Del)
        and isinstance(node.value, ast.Name)
    ):
        return node.value.id
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        return node.func.value.id if node.func.attr in MUTATORS else None
    return None


def test_no_inheritance_deeper_than_one() -> None:
    bases = {
        n.name: [b.id for b in n.bases if isinstance(b, ast.Name)]
        for t in TREES.values()
        for n in ast.walk(t)
        if isinstance(n, ast.ClassDef)
    }
    deep = [name for name, above in bases.items() if any(set(bases.get(b, [])) & set(bases) for b in above)]
    assert not deep


def test_class_names_are_unique() -> None:
    names = Counter(n.name for t in TREES.values() for n in ast.walk(t) if isinstance(n, ast.ClassDef))
    assert not {name: count for name, count in names.items() if count > 1}


def test_recipes_are_told_apart_by_their_kind() -> None:
    """Outside the modules of a kind nobody asks of which class a recipe is: recipe/kinds.py has what differs."""
    schemas = {kind.schema.__name__ for kind in KINDS.values()} | {"Recipe", "JaxRecipe", "TorchRecipe"}
    checks = [
        where(path, node)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and schemas & {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
    ]
    assert len(checks) <= CLASS_CHECKS, checks


def test_plans_are_typed() -> None:
    untyped = {
        name_of(path): count
        for path in FILES
        if part_of(path) in ("plan", "cli") and (count := path.read_text().count("dict[str, Any]"))
    }
    assert sum(untyped.values()) <= UNTYPED_DICTS, untyped


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_answered_for_in_every_room(kind: str) -> None:
    row = KINDS[kind]
    assert row.schema.model_fields["kind"].annotation == Literal[kind]
    assert isinstance(kinds.resolve(row.plan), PlanPart)
    assert kinds.resolve(row.report).FACTS.step
    assert bool(row.trainer) == bool(row.command)
    assert not row.trainer or kinds.resolve(row.trainer).kind == kind
    templates = {path.name for path in (PACKAGE / "report" / "templates").iterdir()}
    parts = {f"head-{kind}.md.j2", f"section-{kind}.md.j2", f"hero-{kind}.html.j2", f"tests-{kind}.html.j2"}
    assert parts <= templates


def test_names_say_what_a_file_decides() -> None:
    named = [*PACKAGE.rglob("*.py"), *(p for p in PACKAGE.rglob("*") if p.is_dir())]
    assert not [name_of(p) for p in named if set(p.stem.split("_")) & BANNED_WORDS]


def given_names(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """What a module names: values, parameters, fields, functions, classes and what it imports under another name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node, node.arg
        elif isinstance(node, ast.alias) and node.asname:
            yield node, node.asname
        elif isinstance(
            node,
            ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar,
        ):
            yield node, node.name or ""


def test_names_say_what_a_value_is() -> None:
    wrong = [
        f"{where(path, node)} {name}"
        for path, tree in TREES.items()
        for node, name in given_names(tree)
        if name.strip("_").lower() in BANNED_NAMES
    ]
    assert not wrong and not [name_of(path) for path in FILES if path.stem.strip("_") in BANNED_NAMES]
    for path in (ROOT / "bench").glob("*.py"):
        names = {name.strip("_").lower() for _, name in given_names(ast.parse(path.read_text()))}
        assert not names & BANNED_NAMES, path.name


def test_the_name_check_sees_every_way_to_name() -> None:
    body = "one = 1\nfor told in x: pass\nself._made = 1\ndef found(): pass\ndef f(asked): pass\nimport a as inside\n"
    body += "class Whole: said: int\n[again for again in x]\n(beside := 1)\nlambda one: 1\nwith x as told: pass\n"
    named = {name.strip("_").lower() for _, name in given_names(ast.parse(body))}
    assert named - {"f"} == BANNED_NAMES


def test_every_module_says_what_it_decides() -> None:
    for path, tree in TREES.items():
        text = ast.get_docstring(tree)
        assert text and len(text.splitlines()) <= 20, f"{name_of(path)} needs a docstring of a few lines"


def test_folders_are_at_most_three_deep() -> None:
    deep = [
        name_of(p)
        for p in PACKAGE.rglob("*")
        if p.is_file() and len(p.relative_to(PACKAGE).parts) - 1 > DEPTH and "__pycache__" not in p.parts
    ]
    assert not deep


def test_files_are_short() -> None:
    lines = {name_of(p): len(p.read_text().splitlines()) for p in FILES}
    long = {
        name: n
        for name, n in lines.items()
        if n > (FILE_CAP_MODELS if name.startswith(("models/", "kernels/")) else FILE_CAP)
    }
    assert not long
    assert statistics.median(lines.values()) <= FILE_MEDIAN


def test_functions_are_short() -> None:
    def cap(function: ast.FunctionDef) -> int:
        return LOOP_CAP if function.name in LOOPS else FUNCTION_CAP

    long = {f"{where(p, f)} {f.name}": n for p, f, n in functions() if n > cap(f)}
    assert not long
    sizes = sorted(n for _, _, n in functions())
    assert statistics.median(sizes) <= FUNCTION_MEDIAN
    assert sizes[int(0.9 * (len(sizes) - 1))] <= FUNCTION_P90


@pytest.mark.parametrize("kind", KINDS)
def test_recipes_have_few_fields(kind: str) -> None:
    keys = load.fields(KINDS[kind].schema)
    most = FIELDS_OF_GRPO if kind == "grpo" else FIELDS_PER_KIND
    assert len(keys) <= most, f"{len(keys)} keys: derive a value instead of asking for it"


def test_few_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= CONTROL_DEPENDENCIES


def test_the_import_check_sees_hidden_imports() -> None:
    tree = ast.parse("def f():\n    from podwright import targets\n    import torch\n")
    assert set(imported(tree)) == {"podwright.targets", "torch"}


def test_the_state_check_sees_changes_in_place() -> None:
    body = ast.parse("A[0] = 1\nB.append(2)\ndel C[0]\nD.x = 1").body
    assert [next(filter(None, map(changed_name, ast.walk(node)))) for node in body] == ["A", "B", "C", "D"]


def test_the_product_imports_no_lab_and_no_tests_and_the_lab_no_tests() -> None:
    faults = [
        f"{path.relative_to(ROOT)} imports {name}"
        for folder, barred in (("podwright", {"lab", "tests", "bench"}), ("lab", {"tests", "bench"}))
        for path in (ROOT / folder).rglob("*.py")
        for name in imported(ast.parse(path.read_text()))
        if name.split(".")[0] in barred
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("names", [tuple(SECONDS), INSTALLED_FOR], ids=["SECONDS", "INSTALLED_FOR"])
def test_the_files_that_conftest_names_are_there(names: tuple[str, ...]) -> None:
    assert len(set(names)) == len(names) and all((ROOT / name).is_file() for name in names)


def test_every_file_that_is_skipped_without_a_cluster_or_a_browser_is_named() -> None:
    """By what it asks before it skips: `missing()` of a lab, or the browser."""
    asks = [".missing()", "browser() is None"]
    skipped = {
        path.relative_to(ROOT).as_posix()
        for path in [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "lab").rglob("test_*.py")]
        if any(line.startswith("pytestmark") and ask in line for line in path.read_text().splitlines() for ask in asks)
    }
    assert skipped == set(INSTALLED_FOR)
