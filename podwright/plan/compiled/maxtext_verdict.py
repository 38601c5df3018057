"""What MaxText says of a recipe's arguments and of its compiled train step: findings with what to type, and the entry of a plan's document."""

from __future__ import annotations

from textwrap import shorten

from podwright.errors import both_ends, nearest
from podwright.plan.compiled import dump, verdict
from podwright.plan.compiled.compile import Compiled, limit_bytes
from podwright.plan.compiled.maxtext_environment import MaxText
from podwright.plan.compiled.maxtext_output import CompileFailure
from podwright.plan.findings import Finding, Level
from podwright.plan.kinds import CompiledPrograms
from podwright.recipe.maxtext.argument_types import OLDER_KEYS
from podwright.recipe.maxtext.schema import VARIABLE, MaxTextRecipe
from podwright.rundir import Record
from podwright.slices import Slice

_SHOWN_VALUES = 8
VERSIONS_DIFFER = 0.08
"""share of the limit by which versions may change what is needed: llama3.1-70b 8k-bf16 on tpu7x-4x4x4 takes 91.71 GiB by
maxtext-tutorial-v1.5.0 with libtpu 0.0.30 and 85.50 GiB by maxtext 0.2.5 with libtpu 0.0.52"""


def other_version(recipe: MaxTextRecipe, maxtext: MaxText) -> str:
    """What to type where this version of MaxText does not do."""
    if maxtext.is_pinned or not recipe.versions.maxtext:
        return "type maxtext=PATH with a checkout of the version that the recipe is written for"
    return f"check out {recipe.versions.maxtext} in {maxtext.name.removeprefix('the checkout ')}"


def of_arguments(recipe: MaxTextRecipe, maxtext: MaxText, reading: Record) -> list[Finding]:
    """A finding for each argument that this MaxText refuses; of a version that is not the recipe's own they are inconclusive."""
    level: Level = "error" if maxtext.is_pinned else "inconclusive"
    return [Finding("compile", level, *_of_fault(fault, recipe, maxtext)) for fault in reading["faults"]]


def _of_fault(fault: Record, recipe: MaxTextRecipe, maxtext: MaxText) -> tuple[str, str, str]:
    """What is wrong, what to type, and the code."""
    key, reason, known = fault["key"], fault["reason"], fault["known"]
    if key not in recipe.arguments:
        return (
            f"{maxtext.name} refuses the arguments: {shorten(reason, 300)}",
            other_version(recipe, maxtext),
            "bad-value",
        )
    value = recipe.arguments[key]
    if variables := VARIABLE.findall(value):
        what = f"arguments.{key}={value} has no value of {variables[0]}"
        return what, f"type arguments.{key}=VALUE", "unset-value"
    if reason == "unknown":
        guess = renamed if (renamed := OLDER_KEYS.get(key)) in known else nearest(key, known)
        what = f"{maxtext.name} has no argument {key}" + (f"; it has {guess}" if guess else "")
        return what, other_version(recipe, maxtext), "unknown-key"
    if known:
        shown = ", ".join(each or "''" for each in known[:_SHOWN_VALUES])
        what = f"{maxtext.name} does not take {key}={value}; it takes {shown}"
        return what, f"type arguments.{key}={nearest(value, known) or known[0]}", "bad-value"
    what = f"{maxtext.name} does not take {key}={value}: {shorten(reason, 300)}"
    return what, f"type arguments.{key}=VALUE", "bad-value"


def failed(
    failure: CompileFailure, name: str, seconds: float, maxtext: MaxText, memory: dump.Memory | None
) -> Compiled:
    """The verdict where MaxText's compiler ended without a program; `memory`: what it dumped before."""
    if failure.need_bytes is not None:
        stated = dump.Memory(0, 0, 0, failure.need_bytes, 0, ())  # its message does not say of what
        return Compiled(name, "too large", seconds, memory or stated, error=failure.reason)
    if failure.on_cpu:
        reason = f"a kernel of tokamax {maxtext.versions['tokamax']} is traced on TPUs only ({both_ends(failure.reason, 40)})"
        return Compiled(name, "unknown", seconds, error=reason)
    return Compiled(name, "failed", seconds, error=failure.reason)


def results(program: Compiled, recipe: MaxTextRecipe, where: Slice, maxtext: MaxText) -> CompiledPrograms:
    """The findings on the compiled step and its entry."""
    limit = limit_bytes(where)
    assert limit is not None
    differ = _differing(recipe, maxtext)
    used = f"{maxtext.name}, jax {maxtext.versions['jax']} and libtpu {maxtext.versions['libtpu']}"
    named = f"; the recipe has {' and '.join(differ)}" if differ else ""
    findings = [
        *_of_program(program, limit, recipe, maxtext),
        Finding("compile", "info", f"compiled with {used}{named}"),
    ]
    return CompiledPrograms(tuple(findings), (verdict.entry(program, limit),))


def _differing(recipe: MaxTextRecipe, maxtext: MaxText) -> list[str]:
    """The versions that the recipe names and that did not compile it."""
    pinned = [] if maxtext.is_pinned else [f"MaxText {recipe.versions.maxtext}".rstrip()]
    named = {"jax": recipe.versions.jax, "libtpu": recipe.versions.libtpu}
    return pinned + [f"{name} {v}" for name, v in named.items() if v and v != maxtext.versions[name]]


def _of_program(program: Compiled, limit: float, recipe: MaxTextRecipe, maxtext: MaxText) -> list[Finding]:
    """A failure is certain only with the recipe's own versions."""
    level: Level = "inconclusive" if _differing(recipe, maxtext) else "error"
    if program.verdict == "unknown":
        what = f"{program.name}: {program.error}, and whether it fits is not known"
        fix = "try it on a machine with more memory and less to do"
        if "tokamax" in program.error:
            fix = "type arguments.use_tokamax_gmm=False, or maxtext=PATH of a checkout with a newer tokamax"
        return [Finding("compile", "inconclusive", what, fix, "not-compiled")]
    if program.verdict == "failed":
        fix = verdict.mend(program, "xla_flags") or other_version(recipe, maxtext)
        what = f"{program.name} does not compile: {program.error}"
        return [Finding("compile", level, what, fix, "does-not-compile")]
    assert program.hbm_bytes is not None and program.memory is not None
    needs = program.needs(limit)
    if level == "inconclusive" and abs(program.hbm_bytes / limit - 1) < VERSIONS_DIFFER:
        what = f"{needs}, and the recipe's own versions may change that by {100 * VERSIONS_DIFFER:.0f} %"
        return [Finding("compile", "inconclusive", what, other_version(recipe, maxtext), "near-the-limit")]
    if program.verdict == "fits":
        return []  # its entry says what it needs
    fix = "type a smaller arguments.per_device_batch_size, or a larger topology"
    return [Finding("compile", "error", needs + program.largest(), fix, "too-large")]
