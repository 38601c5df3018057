"""The tables of a log's write-up as rows of text: the model, the run, its steps, the published figures."""

from __future__ import annotations

from typing import Any

from podwright.errors import abbreviated
from podwright.report.maxtext.words import Words, day, decimals, percent
from podwright.report.records import Result, number
from podwright.report.wording import DASH, figure, signed_percent
from podwright.rundir import Record

COLUMNS = (
    "date",
    "config",
    "precision",
    "step_s",
    "tflops_device",
    "tflops_chip",
    "tokens_chip",
    "loss_final",
    "notes",
)
STEP_COLUMNS = ("step", "seconds", "tflops_device", "tflops_chip", "tokens_chip", "loss_final")
FIRST_ROWS, LAST_ROWS = 20, 10
"""of a longer log that a table shows"""
MARK = "†"


def overview(r: Result, t: Words) -> list[tuple[str, str]]:
    versions = r["environment"]["versions"]
    rows = [
        (t("model"), r["model"] or t("not_known")),
        (t("params"), _params(r["environment"], t)),
        (t("hardware"), t.hardware(r)),
        (t("framework"), f"MaxText {versions['maxtext']}" if "maxtext" in versions else "MaxText"),
    ]
    names = {"jax": "JAX", "libtpu": "Libtpu", "xpk": "XPK"}
    return rows + [(name, versions.get(key) or t("not_known")) for key, name in names.items()]


def _params(environment: Record, t: Words) -> str:
    """That the log has, else by the model's dimensions."""
    if environment["num_params"]:
        return figure(environment["num_params"])
    counted = environment.get("by_architecture") or {}
    if not counted.get("num_params"):
        return t("not_known")
    return t("params_text", total=abbreviated(counted["num_params"]), active=abbreviated(counted["num_active_params"]))


def run_row(r: Result, t: Words) -> dict[str, str]:
    """A cell for each of COLUMNS."""
    s = r["steady_state"]
    return {
        "date": day(r["wall_time"]["started"]),
        "config": r["config"] or r["name"],
        "precision": r["precision"] or DASH,
        "step_s": decimals(s["step_s"], 3),
        "tflops_device": decimals(s["tflops_per_device"], 1),
        "tflops_chip": decimals(s["tflops_per_chip"], 1),
        "tokens_device": decimals(s["tokens_per_s_per_device"], 1),
        "tokens_chip": decimals(s["tokens_per_s_per_chip"], 1),
        "loss_final": "NaN" if r["loss"].get("ends_not_finite") else decimals(r["loss"]["last"], 3),
        "notes": "; ".join(_notes(r, t)),
    }


def _notes(r: Result, t: Words) -> list[str]:
    notes = [t.of_steps(r) + (f" ({r['ending']})" if r["ending"] not in (None, "FINISHED") else "")]
    flops = next((c for c in r["checks"] if c["check"] == "flops"), None)
    if flops and flops["verdict"] == "warning":
        notes.append(
            f"TFLOP/s: {decimals(flops['logged'], 1)} in the log"
            if t.language == "en"
            else f"日志 TFLOP/s {decimals(flops['logged'], 1)}"
        )
    if r["published"] and (row := next(iter(published(r)), None)):
        notes.append(f"{t('published')} {row[2]} ({row[3]})")
    return notes


def published(r: Result) -> list[tuple[str, str, str, str]]:
    """(figure, measured, published, difference) of what both have."""
    stated, s = r["published"] or {}, r["steady_state"]
    rows = []
    for key, name, places in (
        ("step_s", "Step Time (s)", 3),
        ("tflops_per_chip", "TFLOP/s/chip", 1),
        ("tokens_per_s_per_chip", "Tokens/s/chip", 1),
    ):
        theirs, ours = number(stated.get(key)), number(s[key])
        if theirs and ours is not None:
            rows.append((name, decimals(ours, places), decimals(theirs, places), signed_percent(ours / theirs - 1)))
    return rows


def speed(r: Result, t: Words) -> list[tuple[str, str]]:
    s, memory, wall = r["steady_state"], r["memory"], r["wall_time"]
    rows = [
        (t("step_s"), decimals(s["step_s"], 3)),
        ("TFLOP/s/device", decimals(s["tflops_per_device"], 1)),
        ("TFLOP/s/chip", decimals(s["tflops_per_chip"], 1)),
        ("Tokens/s/device", decimals(s["tokens_per_s_per_device"], 1)),
        ("Tokens/s/chip", decimals(s["tokens_per_s_per_chip"], 1)),
        (t("mfu"), percent(s["mfu"])),
        (
            t("memory"),
            f"{decimals(memory['used_gib'], 2)} / {decimals(memory['limit_gib'], 2)} GB ({percent(memory['share'])})",
        ),
        (t("goodput"), percent(wall["goodput"])),
    ]
    return [row for row in rows if DASH not in row[1][:1]]


def steps(r: Result, records: list[Record]) -> list[list[str]]:
    """Cells of STEP_COLUMNS for the steps; of a long log its beginning and its end, with a row of dots between them."""
    each, ratio = r["environment"]["devices_per_chip"], r["flops"]["ratio"]
    architecture = r["steady_state"]["tflops_source"] == "architecture"
    left_out = {e["step"] for e in r["excluded"]}
    rows = [_step(s, each, ratio if architecture else None, s["step"] in left_out) for s in records]
    if len(rows) <= FIRST_ROWS + LAST_ROWS + 1:
        return rows
    return [*rows[:FIRST_ROWS], ["…"] * len(STEP_COLUMNS), *rows[-LAST_ROWS:]]


def _step(s: Record, each: int | None, ratio: float | None, left_out: bool) -> list[str]:
    tflops = _over(s["tflops_per_device"], ratio)
    return [
        f"{s['step']}{f' {MARK}' if left_out else ''}",
        decimals(s["step_s"], 3),
        decimals(tflops, 1),
        decimals(_times(tflops, each), 1),
        decimals(_times(s["tokens_per_s_per_device"], each), 1),
        decimals(s["loss"], 3),
    ]


def _over(value: Any, ratio: float | None) -> float | None:
    amount = number(value)
    return amount if amount is None or not ratio else amount / ratio


def _times(value: Any, factor: int | None) -> float | None:
    amount = number(value)
    return None if amount is None or factor is None else amount * factor
