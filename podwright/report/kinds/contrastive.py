"""What a report says of a contrastive run: how well text, pictures and sounds find each other, beside chance."""

from __future__ import annotations

import functools
from typing import Any

from podwright.report import device_utilization, timing
from podwright.report.figures import style
from podwright.report.figures.drawing import Draw, Plot, in_percent, losses, points, rate
from podwright.report.kinds import KindFacts
from podwright.report.records import Records, Result, newest, number
from podwright.report.wording import percent, so_far
from podwright.rundir import Record

FACTS = KindFacts.of("contrastive")

_COLORS = ("blue", "teal", "orange")


def figures(records: Records, tests: list[Record]) -> Result:
    steps = records.steps()
    before, after = newest(tests, "before"), newest(tests, "after")
    return {
        "loss": timing.trend(steps, "loss"),
        "loss_before": number(before.get("loss")),
        "loss_after": number(after.get("loss")),
        "recall_at_1_before": number(before.get("recall_at_1")),
        "recall_at_1_after": number(after.get("recall_at_1")),
        "recall_at_5_before": number(before.get("recall_at_5")),
        "recall_at_5_after": number(after.get("recall_at_5")),
        "chance_at_1": number((after or before).get("chance_at_1")),
        "chance_at_5": number((after or before).get("chance_at_5")),
        "directions": _directions(before, after),
        "num_tested": (after or before).get("num"),
        **device_utilization.of_lines(records),
        "units": FACTS.units,
    }


breakdown = timing.breakdown


def say(result: Result) -> str:
    """The results of the run, in a sentence or two."""
    after, chance = result["recall_at_1_after"], result["chance_at_1"]
    if after is None:
        return so_far(result, FACTS.step, "nats")
    text = f"After {result['steps']} steps recall@1 on {result['num_tested']} held-out lines is {percent(after)}"
    return text + ("." if chance is None else f"; chance is {percent(chance)}.")


def also(result: Result) -> str:
    five = result["recall_at_5_after"]
    return "" if five is None else f"Recall@5 is {percent(five)}."


def _directions(before: Record, after: Record) -> list[Record]:
    """A row for each direction: of how many answers, what is found before and after, and what chance would find."""

    def rows(test: Record) -> dict[tuple[Any, Any], Record]:
        return {(r.get("query"), r.get("target")): r for r in test.get("directions") or []}

    first, last = rows(before), rows(after)
    table = []
    for query, target in first | last:
        way = query, target
        row = {"query": query, "target": target}
        for name in ("num", "answers", "chance_at_1", "chance_at_5"):
            row[name] = (last.get(way) or first[way]).get(name)
        for k in (1, 5):
            row[f"recall_at_{k}_before"] = number(first.get(way, {}).get(f"recall_at_{k}"))
            row[f"recall_at_{k}_after"] = number(last.get(way, {}).get(f"recall_at_{k}"))
        table.append(row)
    return table


def retrieval(records: Records, result: Result) -> Plot | None:
    tests = [t for t in result["evaluations"] if t["directions"]]
    if not tests:
        return None
    fig, (ax,) = style.figure("recall@1", x="step")
    seen: dict[frozenset[str], str] = {}
    directions = [(d["query"], d["target"]) for t in tests for d in t["directions"]]
    for query, target in dict.fromkeys(directions):
        places = [
            (t["step"] or 0, d["recall_at_1"])
            for t in tests
            for d in t["directions"]
            if (d["query"], d["target"]) == (query, target)
        ]
        back = frozenset((query, target)) in seen
        color = seen.setdefault(frozenset((query, target)), _COLORS[len(seen) % len(_COLORS)])
        points(ax, places, color, f"{query} to {target}", width=1.3, line="--" if back else "-")
    if (chance := result["chance_at_1"]) is not None:
        ax.axhline(chance, color=style.color("grey"), linestyle=":", linewidth=1.0, label="chance")
    in_percent(ax, 1.03)
    style.legend(fig, ax)
    caption = "Recall@1 on held-out lines, for each direction between two modalities."
    return Plot("retrieval", "Retrieval", caption, style.to_svg(fig, "Retrieval over steps"))


PLOTS: tuple[Draw, ...] = (
    retrieval,
    FACTS.charts["directions"],
    functools.partial(
        losses, unit="nats per line", caption="Contrastive loss of each step's batch (faint) and smoothed."
    ),
    rate,
    FACTS.courses["samples-per-s"],
    device_utilization.plot,
)
