"""Draws what a plan says each program needs of a device's memory: stacked bars, part by part, and the limit.

A compiled program has the compiler's own parts, another one those of the closed form.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from podwright.errors import UserError
from podwright.report.figures import style

COLORS: dict[str, tuple[str, float]] = yaml.safe_load(Path(__file__).with_name("memory_chart.yaml").read_text())
"""by part of the memory: its colour, and how opaque it is"""
_ROW, _REST = 34, 96  # points


def write(plan: dict[str, Any], path: Path) -> None:
    bars = _compiled(plan) or [(e["name"], e["parts_gib"]) for e in plan["memory"]]
    if not bars:
        raise UserError(
            f"there is nothing to draw in {path}: this plan says nothing about memory",
            "leave --svg out",
            "no-memory-estimate",
        )
    limit = (plan["programs"] or plan["memory"])[0]["limit_gib"]
    drawn = style.standalone(svg(f"{plan['recipe']} on {plan['target']}", bars, limit))
    path.write_text(drawn)


def _compiled(plan: dict[str, Any]) -> list[tuple[str, dict[str, float]]]:
    return [
        (
            p["name"],
            {
                "arguments": p["arguments_gib"],
                "temporaries": p["hbm_gib"] - p["arguments_gib"] - sum(p["resident_gib"].values()),
                "resident": sum(p["resident_gib"].values()),
            },
        )
        for p in plan["programs"]
        if p["hbm_gib"] is not None
    ]


def svg(title: str, bars: list[tuple[str, dict[str, float]]], limit_gib: float | None) -> str:
    from matplotlib.ticker import MaxNLocator

    with style.settings():
        fig, (ax,) = style.figure(title, x="GiB per device", height=_ROW * len(bars) + _REST)
        ax.grid(axis="y", visible=False)
        left = [0.0] * len(bars)
        for part, (color, alpha) in COLORS.items():
            if not any(part in parts for _, parts in bars):
                continue
            sizes = [parts.get(part, 0.0) for _, parts in bars]
            ax.barh(range(len(bars)), sizes, left=left, height=0.6, color=style.color(color), alpha=alpha, label=part)
            left = [a + b for a, b in zip(left, sizes, strict=True)]
        if limit_gib:
            ax.axvline(limit_gib, color=style.color("ink"), linewidth=1.2)
        ax.set_yticks(range(len(bars)), [name for name, _ in bars])
        ax.invert_yaxis()
        ax.set_xlim(0, 1.04 * max([*left, limit_gib or 0.0]))
        ax.xaxis.set_major_locator(MaxNLocator(8))
        style.legend(fig, ax)
        return style.to_svg(fig, title)
