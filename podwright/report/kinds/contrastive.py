"""What a report says of a contrastive run: how well text, pictures and sounds find each other, beside chance."""

from __future__ import annotations

from typing import Any

from podwright.report import device_utilization, timing
from podwright.report.comparison.comparable import Curve, Figure
from podwright.report.figures import style
from podwright.report.figures.drawing import Draw, Plot, bars, in_percent, losses, points, rate
from podwright.report.records import Records, Result, newest, number
from podwright.report.wording import how_far, percent, training_loss
from podwright.rundir import Record

STEP = "step"
STEADY: timing.Steady = {
    "step_s": ("step", "s"),
    "data_wait_s": ("data wait", "s"),
    "samples_per_s": ("throughput", "samples/s"),
    "peak_memory_gib": ("peak memory per device", "GiB"),
}
TESTED: tuple[str, ...] = ("loss", "recall_at_1", "recall_at_5", "chance_at_1", "chance_at_5", "directions")
UNITS = {
    "loss": "nats per line, of those of its batch",
    "recall_at_1_before": "fraction of the queries whose right answer is the nearest, over all directions",
    "recall_at_1_after": "fraction of the queries whose right answer is the nearest, over all directions",
    "recall_at_5_after": "fraction of the queries that have a right answer among the nearest five",
    "chance_at_1": "the same, of answers that are drawn",
    "chance_at_5": "the same, of answers that are drawn",
    "data_wait_share": "fraction of the steps' time",
}
_COLORS = ("blue", "teal", "orange")


def figures(records: Records, tests: list[Record]) -> Result:
    steps = records.steps()
    before, after = newest(tests, "before"), newest(tests, "after")
    return {
        "loss": timing.trend(steps, "loss"),
        "loss_before": number(before.get("loss")),
        "loss_after": number(after.get("loss")),
        **{
            f"recall_at_{k}_{when}": number(t.get(f"recall_at_{k}"))
            for k in (1, 5)
            for when, t in (("before", before), ("after", after))
        },
        **{f"chance_at_{k}": number((after or before).get(f"chance_at_{k}")) for k in (1, 5)},
        "directions": _directions(before, after),
        "num_tested": (after or before).get("num"),
        **device_utilization.of_lines(records),
        "units": UNITS | device_utilization.UNITS,
    }


breakdown = timing.breakdown


def say(result: Result) -> str:
    """The results of the run, in a sentence or two."""
    after, chance = result["recall_at_1_after"], result["chance_at_1"]
    if after is None:
        return f"{how_far(result, STEP)} {training_loss(result, 'nats')}".strip()
    text = f"After {result['steps']} steps recall@1 on {result['num_tested']} held-out lines is {percent(after)}"
    return text + ("." if chance is None else f"; chance is {percent(chance)}.")


def also(result: Result) -> str:
    five = result["recall_at_5_after"]
    return "" if five is None else f"Recall@5 is {percent(five)}."


def _directions(before: Record, after: Record) -> list[Record]:
    """A row for each direction: of how many answers, what is found before and after, and what chance would find."""

    def rows(test: Record) -> dict[tuple[Any, Any], Record]:
        directions = test.get("directions")
        return (
            {(r.get("query"), r.get("target")): r for r in directions if isinstance(r, dict)}
            if isinstance(directions, list)
            else {}
        )

    first, last = rows(before), rows(after)
    return [
        {
            "query": query,
            "target": target,
            **{
                name: (last.get(way) or first[way]).get(name)
                for name in ("num", "answers", "chance_at_1", "chance_at_5")
            },
            **{f"recall_at_{k}_before": number(first.get(way, {}).get(f"recall_at_{k}")) for k in (1, 5)},
            **{f"recall_at_{k}_after": number(last.get(way, {}).get(f"recall_at_{k}")) for k in (1, 5)},
        }
        for way in (first | last)
        for query, target in [way]
    ]


def retrieval(records: Records, result: Result) -> Plot | None:
    tests = [t for t in result["evaluations"] if t["directions"]]
    if not tests:
        return None
    fig, (ax,) = style.figure("recall@1", x="step")
    seen: dict[frozenset[str], str] = {}
    for query, target in dict.fromkeys((d["query"], d["target"]) for t in tests for d in t["directions"]):
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
    ax.set_ylim(0, 1.03)
    in_percent(ax)
    style.legend(fig, ax)
    caption = "Recall@1 on held-out lines, for each direction between two modalities."
    return Plot("retrieval", "Retrieval", caption, style.to_svg(fig, "Retrieval over steps"))


def by_direction(records: Records, result: Result) -> Plot | None:
    rows = [r for r in result["directions"] if r["recall_at_1_after"] is not None]
    if not rows:
        return None
    series = (
        ("recall_at_1_after", "recall@1", "blue"),
        ("recall_at_5_after", "recall@5", "teal"),
        ("chance_at_1", "recall@1 by chance", "grey"),
        ("chance_at_5", "recall@5 by chance", "orange"),
    )
    caption = "After training. Equal texts count as one answer; if several answers match a query, each of them counts."
    svg = bars("recall", [f"{r['query']}\nto {r['target']}" for r in rows], rows, series, "Retrieval in each direction")
    return Plot("directions", "By direction", caption, svg)


def loss(records: Records, result: Result) -> Plot | None:
    caption = "Contrastive loss of each step's batch (faint) and smoothed."
    return losses(records, result, "nats per line", caption)


PLOTS: tuple[Draw, ...] = (retrieval, by_direction, loss, rate, device_utilization.throughput, device_utilization.plot)

_LEARNED = ("data", "training")
COMPARED: tuple[Figure, ...] = (
    Figure("recall_at_1_before", "recall@1 before", "fraction", ("data",), "difference"),
    Figure("recall_at_1_after", "recall@1 after", "fraction", _LEARNED, "difference"),
    Figure("recall_at_5_after", "recall@5 after", "fraction", _LEARNED, "difference"),
    Figure("loss_after", "held-out loss after", "nats/line", (*_LEARNED, "work", "devices"), "difference"),
    Figure("steady_state.step_s", "step time", "s", ("hardware", "work", "devices")),
    Figure("steady_state.samples_per_s", "throughput", "samples/s", ("hardware", "devices")),
    Figure("steady_state.peak_memory_gib", "peak memory per device", "GiB", ("hardware",)),
    Figure("wall_time.total_s", "run time", "s", ("hardware", "work", "devices", "training")),
)
CURVES: tuple[Curve, ...] = (
    Curve("loss", "Loss", "nats per line", ("data", "work", "devices"), tested="loss"),
    Curve("", "Recall@1", "of held-out queries", ("data",), tested="recall_at_1"),
    Curve("samples_per_s", "Samples per second", "samples/s", ("hardware", "devices"), warm=True),
)
