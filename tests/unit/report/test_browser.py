"""The page in a real browser, at the widths of a desk and of a phone."""

from __future__ import annotations

import html
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import made_runs
import pytest

from podwright.report import page
from podwright.report.comparison import side_by_side
from podwright.rundir import write_json


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


shooting = _load(Path(__file__).parents[3] / "docs" / "screenshot.py")
pytestmark = pytest.mark.skipif(shooting.browser() is None, reason="no browser: apt-get install chromium")

# The page forbids scripts, so another page holds it in a frame and measures it from outside.
MEASURE = """<!doctype html>
<iframe id="f" srcdoc="{page}" style="width:{width}px;height:900px;border:0"></iframe><p id="found"></p>
<script>
f.onload = () => {{
  const page = f.contentDocument, all = q => [...page.querySelectorAll(q)], box = e => e.getBoundingClientRect();
  const wide = all("section,figure,pre,p,h1,td,svg,li,dd").filter(e => !e.closest(".wide") && box(e).right > {width} + 1);
  const plots = all("figure svg"), flat = plots.filter(e => box(e).height < 100);
  found.textContent =
    `cut=${{all(".wide").filter(e => e.scrollWidth > e.clientWidth).length}} ` +
    `scroll=${{page.documentElement.scrollWidth}} wide=${{wide.length}} flat=${{flat.length}} plots=${{plots.length}}`;
}};
</script>"""


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("make", [made_runs.finished, made_runs.hostile])
def test_nothing_sticks_out(tmp_path: Path, make, width: int) -> None:
    run = make(tmp_path / "made")
    page.write(run)
    scroll, wide, flat, plots = _measured(run.report / "report.html", width)
    assert scroll <= width and (wide, flat) == (0, 0)
    assert plots == (8 if make is made_runs.finished else 7)


def test_no_table_is_cut_at_the_width_of_a_phone(tmp_path: Path) -> None:
    run = made_runs.finished(tmp_path / "made")
    write_json(run.plan, made_runs.compiled_plan().document())
    page.write(run)
    assert "cut=0" in _seen(run.report / "report.html", 400)


@pytest.mark.long
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_sticks_out_of_pretraining_and_of_a_comparison(tmp_path: Path, width: int) -> None:
    runs = [
        made_runs.out_of_data(tmp_path / "one"),
        made_runs.pretrained(tmp_path / "two"),
        made_runs.pretrain_stopped(tmp_path / "three"),
    ]
    page.write(runs[0])
    side_by_side.write(runs[1:] + runs[:1], tmp_path / "compared")
    for file, num in ((runs[0].report / "report.html", 5), (tmp_path / "compared" / "compare.html", 4)):
        scroll, wide, flat, plots = _measured(file, width)
        assert scroll <= width and (wide, flat, plots) == (0, 0, num), file


def _measured(file: Path, width: int) -> tuple[int, int, int, int]:
    """How far the page scrolls, how much sticks out, plots that are flat, plots."""
    found = re.search(r"scroll=(\d+) wide=(\d+) flat=(\d+) plots=(\d+)", _seen(file, width))
    assert found is not None
    scroll, wide, flat, plots = map(int, found.groups())
    return scroll, wide, flat, plots


def _seen(file: Path, width: int) -> str:
    """What MEASURE writes of the page in a frame of that width."""
    frame = file.with_name("frame.html")
    frame.write_text(MEASURE.format(page=html.escape(file.read_text()), width=width))
    dom = str(shooting.chromium(frame, "--dump-dom", f"--window-size={max(width, 800)},1000"))
    return dom.rsplit("<p id", 1)[1]


def test_a_picture_of_it(tmp_path: Path) -> None:
    from PIL import Image

    run = made_runs.finished(tmp_path / "made")
    page.write(run)
    shooting.screenshot(run.report / "report.html", tmp_path / "out.png", 1120, 1180)
    shooting.screenshot(run.report / "report.html", tmp_path / "dark.png", 1120, 1180, dark=True)
    with Image.open(tmp_path / "out.png") as light, Image.open(tmp_path / "dark.png") as dark:
        assert light.size == (1120, 1180)
        assert light.getpixel((2, 2)) > (200, 200, 200) and dark.getpixel((2, 2)) < (60, 60, 60)
    assert (tmp_path / "out.png").stat().st_size <= 300_000
