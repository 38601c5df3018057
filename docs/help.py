"""The parts of docs/ that are made from the code: `python docs/help.py` prints help.md, `--all` brings every page up to date.

A made part of a page stands between `<!-- made: NAME -->` and `<!-- /made -->`; tests/test_docs.py holds it against the code.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer.main
from pydantic import BaseModel

from podwright.accelerators import CPU, GIB, GPUS, TPUS, Accelerator
from podwright.attention_kernels import INSTALLED, HeadDims, Kernel, Layout, choose
from podwright.cli.app import app
from podwright.cli.exit_codes import ExitCode
from podwright.failures.match import rows as rows_of
from podwright.plan.compiled.roofline import PHASES
from podwright.plan.estimates import memory
from podwright.recipe import load
from podwright.recipe.advice import GENERAL
from podwright.recipe.contrastive import ContrastiveRecipe
from podwright.recipe.kinds import Recipe
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.recipe.pretrain import PretrainRecipe
from podwright.recipe.schema import LIMIT, GrpoRecipe
from podwright.run.states import ALLOCATION_TRANSITIONS, BUDGETS, ENDINGS, TRANSITIONS, Budget
from podwright.targets.settings.gke import GkeSettings
from podwright.targets.settings.slurm import SlurmSettings
from podwright.targets.settings.ssh import SshSettings
from podwright.targets.settings.tpu_vm import TpuVmSettings

DOCS = Path(__file__).resolve().parent
WIDTH = 100

_HELP = """# Help of every verb

Printed by `podwright VERB --help`; this page is made by `python docs/help.py`.

## Exit codes

The same for all verbs:

"""
_MADE = re.compile(r"(<!-- made: ([a-z-]+) -->\n).*?(<!-- /made -->)", re.DOTALL)

MEANINGS = {
    ExitCode.OK: "done; of a verb that waits for a run: it has finished. `stop`: the run has stopped or finished",
    ExitCode.FAILED: "the run failed, lost its machine or was stopped. `diagnose`: no known failure is there. `data check`: there are faults. `clean`: something is left to remove, or paid machines were kept because it is not known whether a run needs them",
    ExitCode.USAGE: "what was typed or supplied is wrong; the line on stderr says what to type",
    ExitCode.REFUSED: "`plan`, `run`, `doctor` or `target check` found an error: a run would fail there",
    ExitCode.INCONCLUSIVE: "`plan`, `doctor` or `target check` found no error, but could not check everything",
    ExitCode.INTERRUPTED: "Ctrl-C; what a run had done is kept",
}


def verbs() -> dict[str, Any]:
    """Every command by its words: `run`, `recipes show`; the group `recipes` too."""
    return dict(_walk(typer.main.get_command(app), ()))


def _walk(group: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        yield " ".join((*path, name)), command
        if hasattr(command, "commands"):
            yield from _walk(command, (*path, name))


def help_page() -> str:
    parts = [_HELP + exit_codes()]
    for words, command in sorted(verbs().items()):
        text = context(words, command).get_help()
        parts.append(f"## podwright {words}\n\n```text\n{_tidy(text)}\n```\n")
    return "\n".join(parts)


def context(words: str, command: Any) -> Any:
    """What click knows while it parses `podwright WORDS ...`, at one width wherever it runs."""
    return command.context_class(command, info_name=f"podwright {words}", terminal_width=WIDTH, max_content_width=WIDTH)


def exit_codes() -> str:
    return _table(("code", "name", "meaning"), [(str(int(code)), code.name, text) for code, text in MEANINGS.items()])


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def recipe_keys(kind: type[Recipe] = GrpoRecipe) -> str:
    """Every key of a kind of recipe: what it may be, its default, its meaning."""
    schema = kind.model_json_schema()
    rows = list(_keys(schema, schema, ""))
    meanings = load.fields(kind)
    assert [key for key, *_ in rows if "[]" not in key] == list(meanings), "every key has its row"
    return _table(
        ("key", "values", "default", "meaning"),
        [(f"`{key}`", may, default, meaning) for key, may, default, meaning in rows],
    )


def _keys(schema: dict[str, Any], section: dict[str, Any], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for name, field in section["properties"].items():
        key, inner = prefix + name, _section(schema, field)
        if inner is not None:
            yield from _keys(schema, inner, f"{key}.")
            continue
        default = _code(field["default"]) if "default" in field else "required"
        yield key, _values(field), default, field.get("description", "")
        if "$ref" in field.get("items", {}):
            yield from _keys(schema, _named(schema, field["items"]), f"{key}[].")


def _section(schema: dict[str, Any], field: dict[str, Any]) -> dict[str, Any] | None:
    """The section that `field` holds, be it optional or not; None for a plain value."""
    for option in (field, *field.get("anyOf", [])):
        if "$ref" in option:
            return _named(schema, option)
    return None


def _named(schema: dict[str, Any], reference: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema["$defs"][reference["$ref"].rpartition("/")[2]]
    return found


def _values(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_values(option) for option in field["anyOf"])
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    kind = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true, false"}.get(
        field["type"], field["type"]
    )
    if field["type"] == "array":
        items = field["items"]
        kind = f"list of: {_values(items)}" if "$ref" not in items else "list of sections"
    return kind + _bounds(field)


def _bounds(field: dict[str, Any]) -> str:
    words = {
        "minimum": "at least",
        "exclusiveMinimum": "more than",
        "maximum": "at most",
        "exclusiveMaximum": "less than",
    }
    bounds = [
        f"{word} {_figure(field[name])}" for name, word in words.items() if name in field and field[name] != LIMIT
    ]
    return f", {' and '.join(bounds)}" if bounds else ""


def _figure(value: float) -> str:
    return f"{int(value):,}" if abs(value) < 1e12 and value == int(value) else f"{value:g}"


def _code(value: Any) -> str:
    return f"`{json.dumps(value)}`"


def endings() -> str:
    rows = [
        (f"`{e}`", f.status, f.budget if f.budget is not Budget.NONE else "", _advice(f.advice))
        for e, f in ENDINGS.items()
    ]
    return _table(("ending", "status", "retry budget", "what it says to do"), rows)


def _advice(text: str) -> str:
    return text.format_map(asdict(GENERAL) | {"run": "NAME"})


def diagnosis() -> str:
    rows = []
    for row in rows_of("log"):
        texts = [text.format_map(asdict(GENERAL) | row.values) for text in (row.cause, row.remedy)]
        rows.append((f"`{row.name}`", f"`{row.ending}`", *texts))
    return _table(("failure", "ending", "why", "what to do"), rows)


def budgets() -> str:
    return _table(
        ("budget", "automatic retries"), [(kind, str(BUDGETS[kind])) for kind in BUDGETS if kind is not Budget.NONE]
    )


def transitions() -> str:
    return _table(
        ("phase", "event in the journal", "phase after it"),
        [(f"`{p}`", event, f"`{q}`") for (p, event), q in TRANSITIONS.items()],
    )


def allocation_transitions() -> str:
    return _table(
        ("phase", "event in the journal", "phase after it"),
        [("", "allocation requested", "`requested`")]
        + [(f"`{p}`", event, f"`{q}`") for (p, event), q in ALLOCATION_TRANSITIONS.items()],
    )


def accelerators() -> str:
    heads = (
        "name",
        "usable memory",
        "bf16",
        "fp16",
        "fp8",
        "int8",
        "memory bandwidth",
        "links of a chip",
        "network of a chip",
        "source",
    )
    return _table(heads, [_accelerator(row) for row in (*TPUS, *GPUS)])


def _accelerator(row: Accelerator) -> tuple[str, ...]:
    peaks = [
        f"{flops / 1e12:,.4g}" if flops else ""
        for flops in (row.bf16_flops, row.fp16_flops, row.fp8_flops, row.int8_flops)
    ]
    rates = (
        f"{row.hbm_bandwidth / 1e12:.3g} TB/s",
        f"{row.ici_bandwidth / 1e9:.0f} GB/s",
        f"{row.dcn_bandwidth / 1e9:.3g} GB/s",
    )
    return (row.name, f"{row.hbm_bytes / GIB:.2f} GiB", *peaks, *rates, row.source)


KERNEL_TESTS = {
    Kernel.SPLASH: "test_splash.py::test_the_kernel_equals_the_plain_form",
    Kernel.CUDNN: "test_gpu_attention.py::test_a_kernel_gives_what_the_plain_form_gives",
    Kernel.CUDNN_OFFSETS: "test_gpu_attention.py::test_a_kernel_gives_what_the_plain_form_gives",
    Kernel.CUDNN_MASK: "test_gpu_attention.py::test_a_kernel_gives_what_the_plain_form_gives",
    Kernel.MOSAIC: "test_gpu_attention.py::test_a_kernel_gives_what_the_plain_form_gives",
    Kernel.TRITON: "test_decode.py::test_the_kernel_equals_the_plain_form",
    Kernel.PLAIN: "test_gpu_attention.py::test_the_plain_form_is_the_definition_of_its_mask",
}
"""below tests/unit/kernels/"""


def kernels() -> str:
    """Which attention runs: each layout on the accelerators that have the same kernels for all of them."""
    cases = [
        (what, layout, heads)
        for what, heads in (("dense, heads of 128", HeadDims(128, 128)), ("MLA, 192 and 128", HeadDims(192, 128)))
        for layout in Layout
    ]
    columns: dict[tuple[str, ...], list[str]] = {}
    for row in (*TPUS, *GPUS, CPU):
        platform = "tpu" if row.pod else "gpu" if row.node else "cpu"
        column = tuple(
            str(choose(platform, row.compute_capability, heads, layout, INSTALLED)) for _, layout, heads in cases
        )
        columns.setdefault(column, []).append(row.name)
    rows = [(what, str(layout), *(column[i] for column in columns)) for i, (what, layout, _) in enumerate(cases)]
    tests = [(str(kernel), f"`{test}`") for kernel, test in KERNEL_TESTS.items()]
    named = _table(("model", "layout", *(", ".join(names) for names in columns.values())), rows)
    return f"{named}\n{_table(('kernel', 'held against the plain form by (tests/unit/kernels)'), tests)}"


def slice_names() -> str:
    heads = (
        "generation",
        "N of a name counts",
        "sold as",
        "xpk",
        "GKE node label",
        "GKE machine types",
        "gcloud `--version`",
    )
    rows = []
    for row in TPUS:
        pod = row.pod
        assert pod
        sold = ", ".join("x".join(map(str, t if pod.max_cubes else t[:2])) for t in pod.topologies)
        cubes = (
            f", and AxBxC of multiples of 4, A <= B <= C, up to {pod.max_cubes * 64:,} chips" if pod.max_cubes else ""
        )
        machines = ", ".join(f"`{name}`" for name in pod.machine_types.values())
        xpk = f"`{pod.prefix}-{'AxBxC' if pod.max_cubes else 'N'}`"
        runtime = f"`{pod.runtime}`" if pod.runtime else ""
        names = (xpk, f"`{pod.gke_accelerator}`") if pod.gke_accelerator else ("", "")
        rows.append((row.name, pod.counts, sold + cubes, *names, machines, runtime))
    return _table(heads, rows)


def memory_parts() -> str:
    return _table(("part", "what it is"), [(name, meaning) for name, meaning in memory.PARTS.items()])


def estimates() -> str:
    """What bench/plan_estimates.py found last: estimated of compiled GiB, and seconds of a step."""
    rows = []
    for r in _kept("plan_estimates")["rows"]:
        found = {p["name"]: f"{p['estimated_gib']:.2f} of {p['compiled_gib']:.2f}" for p in r["programs"]}
        step = f"{r['estimated_step_s']:.2f} of {r['compiled_step_s']:.2f}" if r.get("compiled_step_s", 0) > 0.1 else ""
        settings = f"`{r['overrides']}`" if r["overrides"] else "as shipped"
        rows.append(
            (
                r["recipe"],
                r["on"],
                settings,
                *(found.get(n, "") for n in ("update", "score", "rollout", "evaluate")),
                f"{r['peak_error']:+.0%}",
                step,
            )
        )
    return _table(("recipe", "slice", "settings", "update", "score", "rollout", "evaluate", "peak", "a step, s"), rows)


def estimates_pretrain() -> str:
    """The same of pretraining."""
    rows = []
    for r in _kept("plan_estimates_pretrain")["rows"]:
        found = {p["name"]: f"{p['estimated_gib']:.2f} of {p['compiled_gib']:.2f}" for p in r["programs"]}
        settings = f"`{r['overrides']}`" if r["overrides"] else "as shipped"
        rows.append((r["recipe"], r["on"], settings, found["update"], found["evaluate"], f"{r['peak_error']:+.0%}"))
    return _table(("recipe", "slice", "settings", "update", "evaluate", "peak"), rows)


def sizes() -> str:
    """What bench/plan_sizes.py found last."""
    rows = []
    for r in _kept("plan_sizes")["rows"]:
        told = r.get("compiled")
        said = (
            f"{'fits' if told['fits'] else 'refused'}: {max(told['need_gib'].values())} GiB, {told['step_s']} s"
            if told
            else ""
        )
        rows.append(
            (
                r["model"],
                r["slice"],
                str(r["chips"]),
                f"`{r['settings']}`",
                f"{r['need_gib']} of {r['limit_gib']}",
                str(r["step_s"]),
                said,
            )
        )
    return _table(
        ("model", "smallest slice", "chips", "fastest settings", "GiB, estimated", "a step, s", "by the compiler"), rows
    )


def pretraining() -> str:
    """What bench/plan_pretrain.py found last: memory, time and what the compiler took, of what is not refused."""
    rows = []
    for r in _kept("plan_pretrain")["rows"]:
        if not r["programs"]:
            continue
        update, step = r["programs"][0], r["step"]
        found = (
            f"{update['hbm_gib']:.2f} of {update['limit_gib']:.2f}",
            f"{step['step_s']:.2f}",
            f"{step['tflops_per_device']:.0f}",
        )
        settings = f"`{r['overrides']}`" if r["overrides"] else "as shipped"
        rows.append(
            (
                r["recipe"],
                r["on"],
                settings,
                *found,
                f"{step['mfu']:.1%}",
                f"{r['wall_s']:.0f} s, {r['resident_gib']:.1f} GiB",
            )
        )
    return _table(
        ("recipe", "slice", "settings", "GiB", "a step, s", "TFLOP/s/device", "of peak", "verdict after"), rows
    )


def time_of_parts() -> str:
    """Where the time of the first row's update goes."""
    parts = _kept("plan_pretrain")["rows"][0]["programs"][0]["parts"]
    found: dict[str, dict[str, float]] = {}
    for p in parts:
        found.setdefault(p["part"], {})[p["phase"]] = p["seconds"]
    whole = sum(p["seconds"] for p in parts)
    rows = []
    for part, phases in sorted(found.items(), key=lambda item: -sum(item[1].values())):
        seconds = [phases.get(phase, 0.0) for phase in PHASES]
        told = (f"{x:.3f}" if x >= 0.0005 else "" for x in seconds)
        rows.append((part, *told, f"{sum(seconds) / whole:.1%}"))
    return _table(("part", *(f"{phase}, s" for phase in PHASES), "share"), rows)


def multimodal_memory() -> str:
    rows = _kept("phase2_memory")["cases"].items()
    heads = ("what is trained, and how", "counted, GiB", "taken, GiB", "counted / taken")
    return _table(
        heads,
        [(name, f"{r['predicted_gib']:.2f}", f"{r['measured_gib']:.2f}", f"{r['ratio']:.2f}") for name, r in rows],
    )


def multimodal_batches() -> str:
    kept = _kept("phase2_batches")
    sides = list(kept["gib_with_16_lines"])
    rows = [
        (name, row["guide"] or "", *(f"{row[side]:,}" for side in sides))
        for name, row in kept["per_device_batch_size"].items()
    ]
    rows.append(("16 lines, GiB", "", *(f"{kept['gib_with_16_lines'][side]:.1f}" for side in sides)))
    return _table(("lines a GPU holds", "the guide", *sides), rows)


def chaos_lives() -> str:
    """What bench/chaos.py counted last."""
    heads = {
        "lives": "lives",
        "kills": "kills",
        "cloud_faults": "faults of the cloud",
        "attempts": "attempts",
        "slices": "slices",
        "recomputed": "steps recomputed (at most)",
        "slices_left": "slices left",
        "wrong_records": "wrong records",
        "stuck": "runs stuck",
        "wrong": "lives with any fault",
    }
    return _lives("chaos", "trainer", heads)


def chaos_gke_lives() -> str:
    """What bench/chaos.py counted last of lives on GKE."""
    heads = {
        "lives": "lives",
        "kills": "kills",
        "cloud_faults": "faults of the cloud",
        "attempts": "attempts",
        "slices": "allocations with nodes",
        "recomputed": "steps recomputed (at most)",
        "slices_left": "lives with something left",
        "others_changed": "objects of others changed",
        "wrong_records": "wrong records",
        "stuck": "runs stuck",
        "wrong": "lives with any fault",
    }
    return _lives("chaos_gke", "node pools", heads)


def _lives(bench: str, first: str, heads: dict[str, str]) -> str:
    rows = []
    for kind, count in _kept(bench)["lives"].items():
        cells = {name: f"{count[name]:,}" for name in heads}
        cells["recomputed"] += f" ({count['recomputed_at_most']})"
        rows.append((kind, *cells.values()))
    return _table((first, *heads.values()), rows)


def chaos_gke_kills() -> str:
    kept = _kept("chaos_gke")
    rows = [(phase, str(count)) for phase, count in kept["kills_by_phase"].items()]
    events = [(f"the line `{event}` of the journal", str(sum(n))) for event, n in kept["kills_by_event"].items()]
    return _table(("phase, or line", "kills"), [*rows, *((f"before or after {name}", n) for name, n in events)])


def chaos_gke_faults() -> str:
    return _table(("fault", "times"), [(kind, str(n)) for kind, n in _kept("chaos_gke")["faults_by_kind"].items()])


def chaos_kills() -> str:
    rows = [(phase, *map(str, counts)) for phase, counts in _kept("chaos")["kills_by_phase"].items()]
    return _table(("phase", "kills with the stand-in trainer", "with GRPO"), rows)


def chaos_faults() -> str:
    return _table(("fault", "times"), [(kind, str(n)) for kind, n in _kept("chaos")["faults_by_kind"].items()])


def _kept(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sorted((DOCS.parent / "bench/results").glob(f"{name}-*.json"))[-1].read_text())
    return found


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def target_keys(settings: type[BaseModel]) -> str:
    rows = []
    for name, field in settings.model_fields.items():
        default = "required" if field.is_required() else _code(field.default) if field.default not in ("", ()) else ""
        rows.append((f"`{name}`", default, field.description or f"as `sbatch --{name.replace('_', '-')}`"))
    return _table(("key", "default", "meaning"), rows)


PARTS: dict[str, Callable[[], str]] = {
    "recipe-keys": recipe_keys,
    "pretrain-keys": lambda: recipe_keys(PretrainRecipe),
    "multimodal-keys": lambda: recipe_keys(MultimodalRecipe),
    "contrastive-keys": lambda: recipe_keys(ContrastiveRecipe),
    "endings": endings,
    "diagnosis": diagnosis,
    "budgets": budgets,
    "transitions": transitions,
    "allocation-transitions": allocation_transitions,
    "accelerators": accelerators,
    "slices": slice_names,
    "kernels": kernels,
    "memory-parts": memory_parts,
    "estimates": estimates,
    "estimates-pretrain": estimates_pretrain,
    "sizes": sizes,
    "pretraining": pretraining,
    "time-of-parts": time_of_parts,
    "slurm-keys": lambda: target_keys(SlurmSettings),
    "ssh-keys": lambda: target_keys(SshSettings),
    "gke-keys": lambda: target_keys(GkeSettings),
    "tpu-vm-keys": lambda: target_keys(TpuVmSettings),
    "chaos-lives": chaos_lives,
    "chaos-kills": chaos_kills,
    "chaos-faults": chaos_faults,
    "chaos-gke-lives": chaos_gke_lives,
    "chaos-gke-kills": chaos_gke_kills,
    "chaos-gke-faults": chaos_gke_faults,
    "multimodal-memory": multimodal_memory,
    "multimodal-batches": multimodal_batches,
}


def brought_up_to_date(text: str) -> str:
    """`text` with its made parts made again; KeyError for a part that nobody makes."""
    return _MADE.sub(lambda m: f"{m[1]}{PARTS[m[2]]()}{m[3]}", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="write help.md and the made parts of the other pages")
    if not parser.parse_args().all:
        sys.stdout.write(help_page())
        return 0
    (DOCS / "help.md").write_text(help_page())
    for page in sorted(DOCS.glob("*.md")):
        page.write_text(brought_up_to_date(page.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
