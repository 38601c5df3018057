"""What the verbs print: text for a person, or one JSON document. Decides nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podwright.cli import outcomes
from podwright.errors import UserError, counted, warn
from podwright.rundir import Record, RunDir, finite, flat

if TYPE_CHECKING:
    from podwright.plan.document import (
        FitEntry,
        MemoryEntry,
        PartSeconds,
        Plan,
        ProgramEntry,
        RunTotals,
        StepEntry,
    )
    from podwright.plan.findings import Finding

Row = Record
VERDICTS = {
    "ok": "OK: no problems found",
    "refused": "refused: it will not run",
    "inconclusive": "inconclusive: not everything could be checked",
}
BAR = 40  # characters


def document(value: Any) -> None:
    print(json.dumps(finite(value), indent=1, ensure_ascii=False, default=str))


def text(piece: str) -> None:
    sys.stdout.write(piece)
    sys.stdout.flush()


def error(e: UserError, as_json: bool) -> None:
    print(f"error: {' '.join(str(e).split())}", file=sys.stderr)
    if as_json:
        document(e.document())


def recipes(rows: Sequence[Row]) -> None:
    for r in rows:
        print(f"{r['name']}\n    {r['description']}\n    hardware: {r['hardware']}; time: {r['time']}")


def settings(values: Row, meanings: dict[str, str]) -> None:
    lines = {key: f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in flat(values, meanings).items()}
    width = min(60, max(map(len, lines.values())))
    for key, line in lines.items():
        print(f"{line:<{width}}  {meanings.get(key, '')}".rstrip())


def plan(planned: Plan) -> None:
    for f in planned.findings:
        if f.level == "info":
            print(_finding(f))
    for p in planned.programs:
        print(_program(p))
        if p.parts:
            print(f"{'':<10} {_where_time_goes(p.parts)}")
    if planned.step:
        _step_time(planned.step)
    if planned.memory and not planned.programs:
        estimates(planned.memory)
    if planned.fit:
        _fit(planned.fit, planned.target)
    for level in ("warning", "inconclusive", "error"):  # beside the verdict, the worst last
        for f in planned.findings:
            if f.level == level:
                print(_finding(f))
    print(f"{planned.recipe} on {planned.target}: {_verdict(planned.verdict, planned.findings)}")


def _verdict(verdict: str, findings: Sequence[Finding]) -> str:
    warnings = sum(f.level == "warning" for f in findings)
    if verdict == "ok" and warnings:
        return f"OK, with {counted(warnings, 'warning')}"
    return VERDICTS[verdict]


def _program(p: ProgramEntry) -> str:
    """One bar: arguments #, temporaries =, resident -, free memory dots."""
    if p.hbm_gib is None:
        return f"{p.name:<10} {p.verdict}"
    resident = sum(p.resident_gib.values())
    of = p.limit_gib or p.hbm_gib
    parts = (("#", p.arguments_gib), ("=", p.hbm_gib - p.arguments_gib - resident), ("-", resident))
    bar = "".join(mark * round(BAR * gib / of) for mark, gib in parts)[:BAR]
    limit = f" of {p.limit_gib:.2f}" if p.limit_gib else ""
    time = "" if p.predicted_s is None else f"  {_short(p.predicted_s)} s by {p.bound}"
    return f"{p.name:<10} {bar:.<{BAR}} {p.hbm_gib:6.2f}{limit} GiB  {p.verdict}{time}"


def _where_time_goes(parts: Sequence[PartSeconds]) -> str:
    """Seconds by the parts of the model, the largest first, and how much of each is computed again."""
    totals: dict[str, float] = {}
    for p in parts:
        totals[p.part] = totals.get(p.part, 0.0) + p.seconds
    recompute = {p.part: p.seconds for p in parts if p.phase == "recompute"}
    total = sum(totals.values())
    listed = []
    for part, seconds in sorted(totals.items(), key=lambda item: -item[1]):
        if seconds >= 0.01 * total:
            twice = f" ({_short(recompute[part])} recompute)" if recompute.get(part, 0.0) >= 0.01 * total else ""
            listed.append(f"{part} {_short(seconds)} s{twice}")
    return ", ".join(listed)


def _step_time(step: StepEntry) -> None:
    """One line for a step, one for the run, and what to know of both."""
    parts = ", ".join(f"{p.name} {_short(p.seconds)}{f' by {p.bound}' if p.bound else ''}" for p in step.programs)
    share = "" if step.mfu is None else f", MFU {100 * step.mfu:.1f} %"
    done = f"{_short(step.tokens_per_s_per_device)} tokens/s/device"
    if step.completions_per_s is not None:
        done = f"{_short(step.completions_per_s)} completions/s"
    how = "estimated" if step.estimated else "predicted"
    print(f"step: {_short(step.step_s)} s {how} ({parts}); {done}{share}")
    if (run := step.run) is not None:
        _run_time(run)
    for note in step.notes:
        print(f"  {note}")


def _run_time(run: RunTotals) -> None:
    tests = f" and {run.evaluations} evaluations" if run.evaluations else ""
    chips = "" if run.chip_hours is None else f", {_short(run.chip_hours)} chip-hours"
    cost = "" if run.cost is None or run.costs else f", {_short(run.cost)} at {run.price:g} a chip-hour"
    print(f"run: {run.steps} steps{tests}: {_short(run.hours)} h{chips}{cost}")
    for row in run.costs:
        price = f"cost {row.source}"
        if row.cost is not None:
            price = f"{_short(row.cost)} USD at {row.price:g} a chip-hour ({row.source})"
        print(f"  {row.provisioning}: {price}")


def _fit(fit: FitEntry, target: str) -> None:
    print(f"fit: {fit.fitting} of {fit.searched} settings fit {fit.on}; the fastest, and the fastest with less memory:")
    for r in fit.settings:
        how = "compiled" if r.compiled else "estimated"
        verdict = {True: "", False: "  refused", None: "  inconclusive"}[r.fits]
        seconds = "" if r.step_s is None else _short(r.step_s)
        mark = "*" if r.chosen else " "
        print(f"{mark} {seconds:>6} s  {r.need_gib:6.1f} GiB  {how:<9}  {r.typed}{verdict}")
    print(f"type: {fit.typed} --on {target}" if fit.typed else "the settings of the recipe are the fastest that fit")


def _short(x: float) -> str:
    if x >= 100:
        return f"{x:,.0f}"
    return f"{x:.1f}" if x >= 1 else f"{x:.2g}"


def estimates(entries: Sequence[MemoryEntry]) -> None:
    """A line for each program, with the parts of its memory."""
    for e in entries:
        parts = ", ".join(f"{part} {_short(gib)}" for part, gib in e.parts_gib.items())
        print(f"{e.name:<10} about {e.estimated_gib:.1f} of {e.limit_gib:.2f} GiB: {parts}")


def problems(planned: Plan) -> None:
    """What a person should know before a run starts."""
    for f in planned.findings:
        if f.level != "info":
            print(_finding(f), file=sys.stderr)
    if planned.fit:
        print(f"info: --fit chose {planned.fit.typed or 'the settings of the recipe'}", file=sys.stderr)


def targets(rows: Sequence[Row]) -> None:
    """Values as they can be typed."""
    from podwright.targets.entries import flow

    if not rows:
        print("no targets yet; `podwright target add NAME kind=slurm` (or ssh, tpu-vm, gke) adds one")
    for r in rows:
        pairs = "  ".join(f"{key}={flow(value)}" for key, value in r.items() if key not in ("name", "fault"))
        print(f"{r['name']}  {pairs}{r['fault']}")


def checked(target: str, findings: Sequence[Finding], verdict: str) -> None:
    for f in findings:
        print(_finding(f))
    print(f"{target}: {_verdict(verdict, findings)}")


def runs(rows: Sequence[Row]) -> None:
    if not rows:
        print("no runs yet; `podwright run RECIPE` starts one, --runs DIR lists another directory")
        return
    table = [["NAME", "TARGET", "STATUS", "STEP"]]
    has_machines = any(r["allocation"] for r in rows)
    if has_machines:
        table[0] += ["MACHINES", "COST"]
    for r in rows:
        line = [r["name"], r["target"] or "", _status(r), _step(r)]
        if has_machines:
            line += [_machines(r["allocation"]), _cost_so_far(r["usage"])]
        table.append(line)
    columns(table)


def columns(table: Sequence[Sequence[str]]) -> None:
    """Lines of cells under each other; the first is the head."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def checkpoints(name: str, url: str, rows: Sequence[Row]) -> None:
    if not rows:
        print(f"run {name} has no checkpoint yet in {url}")
        return
    table = [("STEP", "SAVED", "SIZE")]
    for r in rows:
        saved = datetime.fromtimestamp(r["time"]).isoformat(" ", "seconds")
        table.append((str(r["step"]), saved, f"{_short(r['size_bytes'] / (1 << 20))} MiB"))
    columns(table)
    print(f"in {url}/checkpoints")


def damaged(r: Row) -> None:
    """Which record files of a run are damaged, on stderr."""
    for sentence in r["damaged"]:
        warn(sentence)


def standing(r: Row) -> None:
    """How a run stands, and what to type next."""
    damaged(r)
    if r["usage"]:
        print(_usage(r["usage"]))
    if r["ending"] is None:
        why = f" ({r['detail']})" if r["detail"] else ""
        follow = r["unattended"] or f"`podwright watch {RunDir(Path(r['run_dir'])).typed}` follows it"
        print(f"{r['name']} is {r['state']}{why} at step {r['step']}/{r['max_steps']}; {follow}")
        return
    detail = f": {r['detail']}" if r["detail"] else ""
    print(f"{r['name']} {r['ending']} at step {r['step']}/{r['max_steps']}{detail}")
    if r["report"]:
        print(f"report: {r['report']}")
    print(r["fix"])
    if r["cleanup"]:
        print(r["cleanup"])
    if r["unattended"]:
        print(r["unattended"])


def _usage(used: Row) -> str:
    sources = ", ".join(sorted(set(used["prices"].values())))
    price = f" (price: {sources})" if sources else ""
    cost = "cost not known" if used["cost"] is None else f"about {_short(used['cost'])} USD{price}"
    return f"machines: {_short(used['chip_hours'])} chip-hours, {cost}{', still allocated' if used['open'] else ''}"


def _machines(allocation: Row | None) -> str:
    """The newest allocation by the journal; nothing of one that is gone."""
    return "" if not allocation or allocation["state"] == "gone" else f"{allocation['state']} in {allocation['zone']}"


def _cost_so_far(used: Row | None) -> str:
    if used is None:
        return ""
    chip_hours = f"{_short(used['chip_hours'])} chip-hours"
    return chip_hours if used["cost"] is None else f"{used['cost']:.2f} USD ({chip_hours})"


def report(summary: Sequence[str], folder: Path, readme: Path | None, profile: Row | None = None) -> None:
    """The results in a few lines, and where the pages are; every figure is in --json. `profile`: that was downloaded."""
    for line in summary:
        print(line)
    if readme is not None:
        print(f"added to {readme}")
    print(f"report: {folder / 'report.html'}")
    print(f"all figures: {folder / 'result.json'}")
    if profile and profile["fault"]:
        warn(f"no profile was downloaded: {profile['fault']}")
    elif profile:
        print(f"downloaded {counted(len(profile['files']), 'profile file')}; type {profile['command']}")


def explained(matches: Sequence[Row]) -> None:
    if not matches:
        text("no known failure in this log; read its end, and docs/diagnosis.md for the failures that are known\n")
    for match in matches:
        others = match.get("logs", 1) - 1
        more = f" and {counted(others, 'other log')}" if others else ""
        where = f" ({match['file']}{more})" if "file" in match else ""
        text(f"{match['rule']}: {match['cause']}{where}\n  log: {match['evidence']}\n  fix: {match['remedy']}\n")


def faults(result: Row) -> None:
    """Of `data check`: each fault, each warning, and how much there is."""
    for fault in result["faults"]:
        print(f"error: {fault['message']}")
    for part in (result, *result.get("files", {}).values()):
        for warning in part.get("warnings", []):
            print(f"warning: {warning}")
    for line in outcomes.check(result):
        print(line)


def parsed(out: str) -> Row:
    """The document that a child process printed; {} when it printed something else, which then goes to stderr."""
    try:
        value = json.loads(out)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return value
    sys.stderr.write(out)
    return {}


def _status(r: Row) -> str:
    """How the run ended, or what it is doing; for a waiting run with the reason, in a word."""
    if r["state"] == "waiting" and r["detail"]:
        return f"waiting ({r['detail'].partition(':')[0]})"
    return str(r["ending"] if r["state"] == "ended" and r["ending"] else r["state"])


def _step(r: Row) -> str:
    return "" if r["step"] is None else f"{r['step']}/{r['max_steps']}"


def _finding(f: Finding) -> str:
    fix = f"; {f.fix}" if f.fix else ""
    return f"{f.level}: {f.message}{fix}"
