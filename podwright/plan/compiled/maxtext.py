"""Compiles the train step of a MaxText recipe by MaxText's own train_compile, in an environment of its own, for TPUs that are not here.

First MaxText reads the recipe's arguments (about 10 s), which shows unknown keys, wrong values and rules that they break. Then it
compiles. `quick` ends it once the compiler has assigned its buffers, as for other kinds of recipe; `full` lets it finish.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import psutil

from podwright import cgroup
from podwright.accelerators import GIB
from podwright.errors import UserError
from podwright.plan.compiled import cache, child, dump, maxtext_output, maxtext_verdict
from podwright.plan.compiled.compile import (
    TPU_ENV,
    CompileContext,
    Compiled,
    is_complete,
    kept_verdict,
    limit_bytes,
)
from podwright.plan.compiled.maxtext_environment import MaxText, environment
from podwright.plan.findings import Finding, InconclusiveCheck
from podwright.plan.kinds import CompiledPrograms
from podwright.plan.options import PlanOptions
from podwright.recipe.maxtext.schema import VARIABLE, MaxTextRecipe
from podwright.rundir import Record
from podwright.shell import Shell
from podwright.slices import Slice

PROGRAM, LOG = "train_step", "log.txt"
LIMIT_S = {"quick": 7200, "full": 14400}
"""generous, since a machine may be busy: each minute a line says how long it has taken"""
LINT_LIMIT_S = 300
_CHILD = Path(__file__).with_name("maxtext_child.py")
_TRAINS = re.compile(r"(?:src\.)?(?:MaxText\.train|maxtext\.trainers\.pre_train\.train)")
_OURS = {
    "base_output_directory",
    "run_name",
    "compile_topology",
    "compile_topology_num_slices",
    "compile_xla_flags",
    "compiled_trainstep_file",
    "dump_hlo",
    "hf_access_token",
    "jax_cache_dir",
    "log_config",
    "skip_jax_distributed_system",
}
"""arguments that change nothing of the program, or that are set here"""
_INHERITED = r"M_[A-Z0-9_]+"  # variables by which MaxText's arguments can be set
CROSS_COMPILE_SINCE = (0, 0, 14)
"""version of tokamax whose kernels are traced on a CPU with --tokamax_cross_compile (its ops/op.py)"""


def compiled(recipe: MaxTextRecipe, where: Slice, options: PlanOptions) -> CompiledPrograms:
    """What MaxText's compiler says of the recipe's train step on `where`.

    InconclusiveCheck where that MaxText or its Python is not to be had; UserError for devices that are no TPUs.
    """
    context = options.context
    assert context is not None
    if where.libtpu is None:
        raise UserError(
            f"no compiler here compiles MaxText for {where.name}", "type --on with a TPU slice", "no-compiler"
        )
    if not _TRAINS.fullmatch(recipe.launch.module):
        what = f"launch.module={recipe.launch.module} is not MaxText's pre-training, which is all that its train_compile compiles"
        raise InconclusiveCheck(f"the compiler was not run: {what}", "compile it with its own tools", "no-compiler")
    maxtext = environment(recipe.versions.maxtext, recipe.maxtext, options.cwd, context)
    depth = "full" if options.depth == "full" else "quick"
    spec = _spec(recipe, where)
    faults: list[Finding] = []

    def compile_in(scratch: Path) -> Compiled:
        reading = _reading(spec, scratch / "arguments", maxtext, context)
        faults.extend(maxtext_verdict.of_arguments(recipe, maxtext, reading))
        if faults:
            return Compiled(PROGRAM, "unknown", 0.0)
        what = f"compiling the train step of {recipe.name} for {where.name} by {maxtext.name}"
        context.announce(f"{what}: minutes to hours on two free cores, 2 to 10 GiB of memory")
        return _compile(spec, reading, where, depth, scratch, maxtext, context)

    program = kept_verdict(context.cache / _key(spec, depth, maxtext) / f"{PROGRAM}.json", context.progress, compile_in)
    if not program.cached:
        cache.prune(context.cache)
    return CompiledPrograms(tuple(faults), ()) if faults else maxtext_verdict.results(program, recipe, where, maxtext)


def _spec(recipe: MaxTextRecipe, where: Slice) -> Record:
    """All that a verdict depends on, besides versions."""
    assert where.libtpu
    arguments = {key: VARIABLE.sub("unset", value) for key, value in recipe.arguments.items() if key not in _OURS}
    return {
        "base": recipe.launch.base_config.rpartition("configs/")[2] or "base.yml",
        "arguments": [f"{key}={value}" for key, value in arguments.items()],
        "xla_flags": list(recipe.xla_flags),
        "topology": where.libtpu[0],
        "num_slices": where.num_slices,
    }


def _key(spec: Record, depth: str, maxtext: MaxText) -> str:
    sources = [Path(__file__).with_name(name).read_text() for name in ("maxtext.py", "maxtext_child.py", "dump.py")]
    parts = [spec, depth, maxtext.versions, maxtext.digest, Shell.flags(), sources]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def _reading(spec: Record, folder: Path, maxtext: MaxText, context: CompileContext) -> Record:
    """What maxtext_child.py says of the arguments; InconclusiveCheck where it does not come to an end."""
    folder.mkdir()
    (folder / "spec.json").write_text(json.dumps(spec))
    argv = [maxtext.python, "-P", str(_CHILD), str(folder / "spec.json"), str(folder / "record.json")]
    run, _ = _run(argv, folder, maxtext.env, context, LINT_LIMIT_S, lambda: "reading the arguments")
    if run.ended == 0:
        return dict(json.loads((folder / "record.json").read_text()))
    reason = run.cut_short or maxtext_output.failure(_text(folder)).reason
    what = f"the compiler was not run: {maxtext.name} could not read the arguments: {reason}"
    fix = "type maxtext=PATH with a checkout of the version that the recipe is written for"
    raise InconclusiveCheck(what, fix, "not-read")


def _compile(
    spec: Record, reading: Record, where: Slice, depth: str, scratch: Path, maxtext: MaxText, context: CompileContext
) -> Compiled:
    gmm = bool(reading["config"].get("use_tokamax_gmm"))
    quick = depth == "quick"
    limit_s = LIMIT_S[depth]
    if gmm and _version(maxtext.versions["tokamax"]) < CROSS_COMPILE_SINCE:
        error = (
            f"tokamax {maxtext.versions['tokamax']} traces its grouped matmul on TPUs only, tokamax 0.0.14 everywhere"
        )
        return Compiled(PROGRAM, "unknown", 0.0, error=error)
    argv = [maxtext.python, "-P", "-m", reading["module"], reading["base"], *spec["arguments"], *reading["added"]]
    argv += ["--tokamax_cross_compile=true"] if gmm else []
    # The recipe's flags by LIBTPU_INIT_ARGS, as its containers have them: `compile_xla_flags` is newer than half of the versions.
    flags = {
        "LIBTPU_INIT_ARGS": " ".join(spec["xla_flags"]),
        "XLA_FLAGS": f"--xla_dump_to={scratch} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=jit_train_step",
    }
    run, peak_bytes = _run(
        argv,
        scratch,
        maxtext.env | flags,
        context,
        limit_s,
        lambda: maxtext_output.phase(_text(scratch)),
        lambda: quick and is_complete(scratch),
    )
    output = _text(scratch)
    executable = dict(maxtext_output.sizes(output))
    if executable or (quick and is_complete(scratch)):
        # what the compiler dumped has each buffer; the executable has sums
        memory = dump.memory(scratch) if is_complete(scratch) else dump.of_executable(executable)
        limit = limit_bytes(where)
        assert limit is not None
        verdict = "fits" if executable or memory.need <= limit else "too large"
        return Compiled(PROGRAM, verdict, run.seconds, memory, executable=executable, notes=_notes(gmm, peak_bytes))
    if reason := run.cut_short:
        held = f"; it had {peak_bytes / GIB:.1f} GiB of this machine's {cgroup.memory_bytes() / GIB:.1f} GiB"
        return Compiled(PROGRAM, "unknown", run.seconds, error=f"{reason}{held}")
    failure = maxtext_output.failure(output)
    assigned = failure.need_bytes and any(scratch.glob("*after_optimizations-buffer-assignment.txt"))
    return maxtext_verdict.failed(failure, PROGRAM, run.seconds, maxtext, dump.memory(scratch) if assigned else None)


def _run(
    argv: list[str],
    scratch: Path,
    env: dict[str, str],
    context: CompileContext,
    limit_s: float,
    phase: Callable[[], str],
    is_done: Callable[[], bool] = lambda: False,
) -> tuple[child.ChildRun, int]:
    """Run MaxText's Python in `scratch`; also the most bytes of memory that it took."""
    peak_bytes = 0

    def tick(seconds: float, pid: int) -> None:
        nonlocal peak_bytes
        peak_bytes = max(peak_bytes, _resident_bytes(pid))
        context.progress(PROGRAM, phase(), seconds)

    run = child.run(
        context.runner,
        argv,
        cwd=scratch,
        env=TPU_ENV | env,
        log=scratch / LOG,
        limit_s=limit_s,
        tick=tick,
        is_done=is_done,
        without=_INHERITED,
    )
    return run, peak_bytes


def _text(scratch: Path) -> str:
    return (scratch / LOG).read_text(errors="replace")


def _resident_bytes(pid: int) -> int:
    """Memory of a process; 0 once it has ended."""
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return 0


def _notes(gmm: bool, peak_bytes: int) -> tuple[str, ...]:
    notes = [f"the compiler took {peak_bytes / GIB:.1f} GiB of this machine's memory"] if peak_bytes else []
    if gmm:
        notes.append(
            "tokamax's grouped matmul is compiled with tiles by its rule of thumb; its tuning cache may have others for TPUs"
        )
    return tuple(notes)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])
