"""The look of every plot: size, palette, axes, and how a figure becomes a small SVG that follows light and dark pages."""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# name: (on a light page, on a dark page)
PALETTE = {
    "ink": ("#4a5261", "#aab3c2"),
    "grid": ("#e4e7ec", "#303744"),
    "blue": ("#2b6cdf", "#6fa5ff"),
    "orange": ("#d96b27", "#f2995c"),
    "teal": ("#16937a", "#46c4aa"),
    "purple": ("#8551c7", "#b78ff2"),
    "red": ("#c93f55", "#f27f90"),
    "grey": ("#98a1b0", "#727c8d"),
}
SERIES = ("blue", "orange", "teal", "purple", "red", "grey")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
WIDTH, HEIGHT = 460, 250
_SHEET = Path(__file__).with_name("podwright.mplstyle")


def color(name: str) -> str:
    return PALETTE[name][0]


def variables(column: int) -> str:
    """CSS declarations of the palette: column 0 for light pages, 1 for dark ones."""
    return "".join(f"--pw-{name}:{colors[column]};" for name, colors in PALETTE.items())


@contextlib.contextmanager
def settings() -> Iterator[None]:
    """Matplotlib's settings while a plot is drawn and saved; nothing changes for other users of matplotlib."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a matplotlibrc of the user's would change the pages
        matplotlib.rcParams.update(matplotlib.rc_params_from_file(_SHEET, use_default_template=False))
        yield


def figure(*y_units: str, x: str = "GRPO step", height: int = HEIGHT) -> tuple[Figure, list[Axes]]:
    """A figure with one pair of axes above another for each unit; the lowest carries the x label."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import MaxNLocator

    fig = Figure(
        figsize=(WIDTH / 72, height / 72), layout=ConstrainedLayoutEngine(w_pad=0.04, h_pad=0.04), facecolor="none"
    )
    grid = fig.subplots(len(y_units), 1, sharex=True, squeeze=False)
    axes = [row[0] for row in grid]
    for ax, unit in zip(axes, y_units, strict=True):
        ax.set_title(unit, pad=7)
        ax.set_facecolor("none")
        ax.margins(x=0.01)
    axes[-1].set_xlabel(x)
    axes[-1].xaxis.set_major_locator(MaxNLocator(8, integer=True))
    return fig, axes


def legend(fig: Figure, *axes: Axes) -> None:
    """Labels above the axes, beside the unit if there is room, else in rows of their own; long names are shortened."""
    handles, labels = [], []
    for ax in axes:
        some, names = ax.get_legend_handles_labels()
        handles += some
        labels += [n if len(n) <= 26 else n[:25] + "…" for n in names]
    if len(labels) < 2:
        return
    room = 52 - len(axes[0].get_title(loc="left"))
    if sum(len(label) + 5 for label in labels) <= room:
        axes[0].legend(handles, labels, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(labels))
    else:
        fig.legend(handles, labels, loc="outside upper left", ncols=3)


def to_svg(fig: Figure, title: str) -> str:
    """An SVG element without XML prologue, date or generator; colours are CSS variables with the light palette behind them."""
    for line in (line for ax in fig.axes for line in ax.lines):
        # A line of one point is not seen; a broken one from edge to edge marks a value.
        if len(line.get_path()) < (2 if line.get_linestyle() == "--" else 3):
            line.set_marker("o")
    out = io.StringIO()
    fig.savefig(out, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*|<style.*?</style>\s*", "", text, flags=re.S)
    text = re.sub(r"<g id=\"[^\"]*\"/>\s*| transform=\"rotate\(-0[^\"]*\"| font-family: [^;\"]*;", "", text)
    text = re.sub(r"<g id=\"[^\"]*\">", "<g>", text)
    text = re.sub(r' (?:xmlns:xlink|version)="[^"]*"', "", text, count=2)
    text = text.replace("xlink:href", "href")
    text = re.sub(r"-?\d+\.\d{2,}", lambda m: _rounded(m.group()), text)
    text = re.sub(r"(fill|stroke): (#[0-9a-f]{6})", _themed, text)
    label = f' role="img" aria-label="{title}" stroke-linejoin="round" font-family="{FONT}">'
    return re.sub(r"(<svg[^>]*)>", rf"\1{label}", text, count=1).strip() + "\n"


def standalone(svg: str) -> str:
    """The same SVG as a file of its own, with its palette inside."""
    style = f"<style>svg{{{variables(0)}}}@media(prefers-color-scheme:dark){{svg{{{variables(1)}}}}}</style>"
    return re.sub(r"(<svg[^>]*>)", rf"\1{style}", svg, count=1)


def _rounded(text: str) -> str:
    value = float(text)
    digits = 1 if abs(value) >= 1 else max(2, 2 - math.floor(math.log10(abs(value) or 1)))
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") or "0"


def _themed(match: re.Match[str]) -> str:
    names = {colors[0]: name for name, colors in PALETTE.items()}
    attribute, value = match.groups()
    if value not in names:
        return match.group()
    return f"{attribute}: {value}; {attribute}: var(--pw-{names[value]},{value})"  # twice: viewers without CSS variables take the first
