"""Compiles a recipe's own programs for devices that are not here, in child processes, and keeps the verdicts.

`quick` ends a child once the compiler has assigned its buffers: what follows is code generation, nine tenths of the
time, which tells nothing more of memory or of the schedule. Reading what was dumped is `dump.py` and `costs.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import re
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from podwright import extras
from podwright.accelerators import CPU, GIB
from podwright.errors import UserError
from podwright.plan.checks.meshes import axes, resolved
from podwright.plan.compiled import cache, calibrate, child, costs, dump, environment
from podwright.plan.compiled.cache import Progress
from podwright.plan.findings import InconclusiveCheck, missing_package
from podwright.recipe.dimensions import Dims
from podwright.recipe.kinds import JaxRecipe
from podwright.rundir import Record, flat
from podwright.shell import Shell
from podwright.slices import Slice

PACKAGE = Path(__file__).resolve().parents[2]
READING = ("compile", "dump", "costs", "hlo", "loops", "work", "roofline", "links", "calibrate")
COMPILED_IN = (
    "train",
    "models",
    "kernels",
    "attention_kernels.py",
    "recipe",
    *(f"plan/compiled/{name}.py" for name in READING),
)  # whose sources change a verdict
IRRELEVANT = ("name", "description", "expect", "rewards", "rewards_timeout", "data", "checkpoint", "trackers")
"""sections and keys of a recipe that no program depends on"""
_SHOWN = 3  # allocations named in one line
LIMIT_S = {"quick": 600, "full": 3600}
TPU_ENV = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
}
_ASSIGNED = "*.after_optimizations-memory-usage-report.txt"
_SCHEDULED = (
    "*.after_optimizations_after_buffer_assignment.txt"  # the next to be written; very large programs leave it out
)
_REFUSED = "*oom_intermediate_module.txt"  # they do not fit, as the compiler is about to say itself
_SCOPED = re.compile(
    r"Scoped allocation with size ([\d.]+)([KMG]) and limit \S+ exceeded scoped vmem limit by [\d.]+\w"
)
_SETTLED_S = 10.0


@dataclasses.dataclass(frozen=True)
class CompileContext:
    """With what is compiled."""

    cache: Path
    progress: Progress
    jax: str = ""
    """its version; "" for the one that is installed"""
    runner: Shell = dataclasses.field(default_factory=Shell)
    announce: Callable[[str], None] = lambda line: None
    """takes a line on what is about to take long"""

    def compiler(self, more: str = "") -> environment.Compiler:
        return environment.find(self.jax, self.cache, self.runner, self.progress, more)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """One program's verdict; bytes are per device."""

    name: str
    verdict: str
    """'fits', 'too large', 'failed' or 'unknown'"""
    seconds: float
    memory: dump.Memory | None = None
    resident: dict[str, int] = dataclasses.field(default_factory=dict)
    """what the loop keeps there while this program runs"""
    error: str = ""
    cost: costs.ProgramCost | None = None
    notes: tuple[str, ...] = ()
    """on the cost: what was left out of it, or why there is none"""
    kernels: int = 0
    """how many kernels of it were compiled alone, to the end"""
    kernels_s: float = 0.0
    log: str = ""
    """the path of what the compiler printed, where it failed and that was kept"""
    executable: dict[str, int] = dataclasses.field(default_factory=dict)
    """bytes by JAX's `memory_analysis` of the finished executable (compiles to the end only). Its peak_memory is what `memory` is held against: it
    counts generated code too; its temp_size is no need, it can be half as much again"""
    cached: bool = False

    @property
    def hbm_bytes(self) -> int | None:
        return None if self.memory is None else self.memory.need + sum(self.resident.values())

    def needs(self, limit_bytes: float) -> str:
        """In words, what it takes of a device's memory."""
        assert self.hbm_bytes is not None
        return f"{self.name} needs {self.hbm_bytes / GIB:.2f} of {limit_bytes / GIB:.2f} GiB per device"

    def largest(self) -> str:
        """The rest of that sentence: its largest arrays."""
        assert self.memory is not None
        largest = [f"{a.size_bytes / GIB:.2f} GiB {a.shape} by {a.what}" for a in self.memory.largest[:_SHOWN]]
        return f"; its largest: {', '.join(largest)}" if largest else ""


def limit_bytes(where: Slice) -> float | None:
    """Per device; None for CPU devices, which share what the machine has."""
    return where.accelerator.hbm_bytes or None


def compile_all(
    recipe: JaxRecipe,
    dims: Dims,
    where: Slice,
    names: Sequence[str],
    *,
    full: bool,
    shop: CompileContext,
    more: str = "",
    irrelevant: Callable[[str], Collection[str]] = lambda name: (),
) -> list[Compiled]:
    """The verdict on each program in `names`, one compiler at a time; what is in `shop.cache` already takes no time and waits for nobody.

    `more`: a package that the compiler's environment needs besides jax; `irrelevant`: sections and keys of the recipe on which
    the program of that name does not depend. InconclusiveCheck where a package is not installed.
    """
    compiler = find_compiler(where, shop, more)
    if compiler is None:
        raise UserError(
            f"no compiler here compiles for {where.name} without its devices", "leave --compile out", "no-compiler"
        )
    depth = "full" if full or where.libtpu is None else "quick"
    spec = {
        "recipe": recipe.model_dump(mode="json"),
        "dims": dataclasses.asdict(dims),
        "topology": where.libtpu and dict(zip(("name", "options"), where.libtpu, strict=True)),
    }
    prices = None
    if where.accelerator is CPU:
        dtype = recipe.model.compute_dtype
        made_of = _made_of(compiler)
        prices = calibrate.prices(where.num_devices, dtype, made_of, compiler, shop.cache, shop.runner, shop.progress)
    mesh = dict(zip(axes(recipe), resolved(recipe, where), strict=True))

    def compiled(name: str, folder: Path) -> Compiled:
        program = _compile(spec | {"program": name}, where, depth, folder, shop, compiler)
        if program.memory is None:
            return program
        cost, notes = costs.read(folder, where, mesh, program.memory.temporaries, prices)
        return dataclasses.replace(program, cost=cost, notes=notes)

    results = []
    for name in names:
        kept = shop.cache / _key(spec, where, depth, prices, compiler, irrelevant(name)) / f"{name}.json"
        results.append(kept_verdict(kept, shop.progress, functools.partial(compiled, name)))
    if not all(program.cached for program in results):
        cache.prune(shop.cache)
    return results


def kept_verdict(kept: Path, progress: Progress, compile_in: Callable[[Path], Compiled]) -> Compiled:
    """The verdict that was kept at `kept`, else that of `compile_in`, which takes a folder for what is dumped. It is kept unless it is unknown."""
    if (known := read_verdict(kept)) is not None:
        return known
    with cache.exclusive(kept.stem, progress):
        if (known := read_verdict(kept)) is not None:  # another plan may have kept it meanwhile
            return known
        folder = cache.writable(kept.with_suffix(""))
        try:
            compiled = compile_in(folder)
            log = folder / "log.txt"
            kept_log = kept.with_suffix(".txt")
            has_log = compiled.verdict in ("failed", "unknown") and log.exists()
            if has_log and cache.keep(kept_log, log.read_text(errors="replace")):
                compiled = dataclasses.replace(compiled, log=str(kept_log))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if compiled.verdict != "unknown":
            cache.keep(kept, json.dumps(dataclasses.asdict(compiled)))
        return compiled


def _key(
    spec: Record,
    where: Slice,
    depth: str,
    prices: calibrate.Prices | None,
    compiler: environment.Compiler,
    irrelevant: Collection[str],
) -> str:
    """Of all that a program's verdict depends on; `irrelevant`: sections and keys of the recipe that it does not."""
    values = flat(spec["recipe"])
    left_out = {*IRRELEVANT, *irrelevant}
    relevant = {key: value for key, value in values.items() if not left_out & {key, key.partition(".")[0]}}
    parts = [
        relevant,
        spec["dims"],
        spec["topology"],
        where.num_devices,
        depth,
        prices and prices.seconds,
        *_made_of(compiler),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def _made_of(compiler: environment.Compiler) -> list[Any]:
    """What else decides how a program is compiled: versions, flags and this package's sources."""
    sources = hashlib.sha256()
    for part in COMPILED_IN:
        path = PACKAGE / part
        for file in [path] if path.suffix else sorted(path.rglob("*.py")):
            sources.update(file.read_bytes())
    return [compiler.versions, Shell.flags(), sources.hexdigest()]


def read_verdict(path: Path) -> Compiled | None:
    """A verdict that was kept; None where there is none."""
    try:
        kept = TypeAdapter(Compiled).validate_json(path.read_text())
    except (OSError, ValueError):
        return None
    cache.used(path)
    return dataclasses.replace(kept, cached=True)


def _compile(
    spec: Record, where: Slice, depth: str, folder: Path, shop: CompileContext, compiler: environment.Compiler
) -> Compiled:
    name = spec["program"]
    (folder / "spec.json").write_text(json.dumps(spec))
    record, log = folder / "record.jsonl", folder / "log.txt"
    argv = [compiler.python, "-m", "podwright.train", "compile", str(folder / "spec.json"), str(record)]

    def tick(seconds: float, pid: int) -> None:
        shop.progress(name, next(reversed(_records(record)), "starting"), seconds)

    run = child.run(
        shop.runner,
        argv,
        cwd=Path.cwd(),
        env=compiler.env | _environment(where, folder),
        log=log,
        limit_s=LIMIT_S[depth],
        tick=tick,
        is_done=lambda: depth == "quick" and is_complete(folder),
    )
    return _verdict(name, _records(record), where, folder, run)


def _environment(where: Slice, folder: Path) -> dict[str, str]:
    if where.libtpu is None:
        return calibrate.environment(where.num_devices)
    return TPU_ENV | {"XLA_FLAGS": f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=jit_step"}


def _records(path: Path) -> Record:
    """What the child has written so far, by phase."""
    try:
        lines = path.read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return {}
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    return {record["phase"]: record for record in records}


def is_complete(folder: Path) -> bool:
    """Whether the compiler has dumped its buffer assignment and gone on instead of refusing what it found: it does so within 0.1 s for
    GRPO of a 1.7B model, after the memory report is written."""
    assigned = max((p.stat().st_mtime for p in folder.glob(_ASSIGNED)), default=math.inf)
    gone_on = any(folder.glob(_SCHEDULED)) or time.time() - assigned > _SETTLED_S
    return assigned < math.inf and gone_on and not any(folder.glob(_REFUSED))


def _verdict(name: str, phases: Record, where: Slice, folder: Path, run: child.ChildRun) -> Compiled:
    resident = phases.get("lowering", {}).get("resident", {})
    memory = _memory(phases, folder)
    seconds = run.seconds
    if "refused" in phases:
        kernel, error = max(phases["refused"]["errors"].items(), key=lambda item: scoped_kib(item[1]))
        large = memory is not None and "RESOURCE_EXHAUSTED" in error and not scoped_kib(error)
        message = f"kernel {kernel}, compiled alone: {_words(error)}" if kernel else _words(error)
        return Compiled(name, "too large" if large else "failed", seconds, memory, resident, message)
    if memory is not None:
        executable = phases.get("compiled", {}).get("memory", {})
        compiled = Compiled(name, "fits", seconds, memory, resident, executable=executable, **_kernels(phases))
        assert compiled.hbm_bytes is not None
        limit = limit_bytes(where)
        if limit is not None and compiled.hbm_bytes > limit:
            return dataclasses.replace(compiled, verdict="too large")
        return compiled
    if run.cut_short:
        return Compiled(name, "unknown", seconds, error=run.cut_short)
    error = _last_words(folder / "log.txt")
    if missing := missing_package(error):
        raise InconclusiveCheck(
            f"the compiler was not run: {missing} is not installed here", extras.install("jax"), "not-installed"
        )
    return Compiled(name, "failed", seconds, error=error)


def _memory(phases: Record, folder: Path) -> dump.Memory | None:
    if any(folder.glob("*after_optimizations-buffer-assignment.txt")) and ("refused" in phases or is_complete(folder)):
        return dump.memory(folder)
    if "compiled" in phases:
        return dump.of_executable(phases["compiled"]["memory"])
    return None


def _kernels(phases: Record) -> Record:
    return {key: phases["compiling"][key] for key in ("kernels", "kernels_s")}


def scoped_kib(error: str) -> int:
    """How much on-chip memory a kernel wanted when it did not get it, maybe less than in the end; 0 for any other error."""
    match = _SCOPED.search(error)
    if not match:
        return 0
    kib = {"K": 1, "M": 1024, "G": 1024**2}[match[2]]
    return math.ceil(float(match[1]) * kib)


def _words(error: str) -> str:
    """The line of the compiler's message that says what is wrong."""
    scoped = _SCOPED.search(error)
    if scoped:
        return scoped[0]
    first_line = next(iter(error.strip().splitlines()), "")
    return first_line[:500]


def _last_words(log: Path) -> str:
    """What a child that died without a record said: a flag the compiler does not know ends the process, say."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR", "error")) or "Error" in line]
    return (errors or lines or ["the compiler ended without a word"])[-1][:500]


def find_compiler(where: Slice, shop: CompileContext, more: str = "") -> environment.Compiler | None:
    """What compiles for the devices of `where`; None for GPUs and for TPUs that libtpu does not know, for which nothing does without them.

    InconclusiveCheck where the compiler is not installed, nor the package `more` that its environment needs besides jax.
    """
    if where.libtpu is None and where.accelerator is not CPU:
        return None
    compiler = shop.compiler(more)
    if where.libtpu and not compiler.versions.get("libtpu"):
        raise InconclusiveCheck(
            "the TPU compiler was not run: libtpu is not installed here", extras.install("tpu-compile"), "not-installed"
        )
    if more and not compiler.versions.get(more):
        raise InconclusiveCheck(
            f"the compiler was not run: the library {more}, which this recipe needs, is not installed here",
            "type --jax 0.11.2, and the plan makes an environment with it",
            "not-installed",
        )
    return compiler


def has_compiler(where: Slice) -> bool:
    """Whether a compiler for the TPUs of `where` is installed here."""
    return where.libtpu is not None and bool(environment.here().versions["libtpu"])
