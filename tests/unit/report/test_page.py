"""The page of a run holds all results, works without scripts and requests, and shows what a model wrote as inert text."""

from __future__ import annotations

import html.parser
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import made_runs
import pytest

from podwright.cli.app import main
from podwright.report import markdown, page
from podwright.rundir import RunDir

MAKERS = [
    made_runs.finished, made_runs.stopped, made_runs.warm_only, made_runs.empty, made_runs.not_finite, made_runs.hostile,
]  # fmt: skip
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(html.parser.HTMLParser):
    """Checks that every element is closed in order, and collects tags, attributes and texts."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.values: list[tuple[str, str]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.values += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.values += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def html_of(run: RunDir) -> str:
    return (run.report / "report.html").read_text()


@pytest.mark.parametrize("make", MAKERS)
def test_the_terminal_gets_a_short_summary_and_the_paths(
    tmp_path: Path, make, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make(tmp_path / "made")
    run.journal.touch()
    assert main(["report", str(run.path), "--readme", str(tmp_path / "R.md")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert 5 <= len(lines) <= 14 and all(line.isprintable() for line in lines)
    assert not [line for line in lines if re.match(r"[a-z_.]+ = ", line)]
    shown = dict(line.split(": ", 1) for line in lines if line.startswith(("report: ", "all figures: ")))
    assert Path(shown["report"]) == run.report / "report.html" and Path(shown["all figures"]).is_file()
    assert f"added to {tmp_path / 'R.md'}" in lines


def test_the_summary_has_results_speed_and_expectation(tmp_path: Path) -> None:
    got = page.summary(page.write(made_runs.finished(tmp_path / "made", steps=40)))
    assert got[0].startswith("After 40 GRPO steps the model answers 78.2 % of 500 test questions correctly")
    assert "1.00 s per step (median), 0.710 GiB peak memory per device, 2 min 18 s in total." in got
    assert [line for line in got if line.startswith("The recipe ")]


@pytest.mark.parametrize("make", MAKERS)
def test_every_run_gets_a_whole_page_without_scripts_or_requests(tmp_path: Path, make) -> None:
    run = make(tmp_path / "made")
    page.write(run)
    text = html_of(run)
    parsed = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "form", "base"} & set(parsed.tags)
    for name, value in parsed.values:
        assert name not in ("src", "srcset", "action", "data", "background") and not name.startswith("on")
        assert name != "href" or value.startswith("#")
        assert name == "xmlns" or "//" not in value
    assert "url(http" not in text and "@import" not in text
    assert "default-src 'none'" in text
    assert "None" not in re.sub(r"(?s)<[^>]*>", "", text).split()
    assert {p.name for p in run.report.iterdir()} >= {"report.md", "report.html", "result.json"}
    assert not [p for p in run.report.iterdir() if p.name.startswith(".")]
    json.loads((run.report / "result.json").read_text())


def test_what_a_model_wrote_is_shown_and_inert_in_html(tmp_path: Path) -> None:
    run = made_runs.hostile(tmp_path / "made")
    page.write(run)
    parsed = Page(html_of(run))
    shown = "".join(parsed.text)
    assert made_runs.HOSTILE in shown
    assert "数学 ünï 🧮 \\u202e\\u2028 \\u0000\\u001b[31m" in shown
    assert "more characters)" in shown


def test_what_a_model_wrote_is_shown_and_inert_in_markdown(tmp_path: Path) -> None:
    pytest.importorskip("markdown_it")
    from markdown_it import MarkdownIt

    run = made_runs.hostile(tmp_path / "made")
    page.write(run, tmp_path / "README.md")
    for path in (run.report / "report.md", tmp_path / "README.md"):
        parsed = Page(MarkdownIt("gfm-like", {"linkify": False}).render(path.read_text()))
        assert not {"script", "strong>b"} & set(parsed.tags)
        for name, value in parsed.values:
            if name in ("src", "href"):
                assert "//" not in value, path
        assert "<script>alert(1)</script>" in "".join(parsed.text)
    assert parsed.tags.count("table") == 4


@pytest.mark.parametrize(
    "text",
    ["<b>x</b>", "a | b", "*a* _b_ `c` ~~d~~", "[x](https://e.org)", "![x](y)", "# x", "1. x", "- x", "+ x", "=== x", "&lt;", "<!-- x -->",
     "https://example.org", "www.example.org", "a@b.org", "a\n\n# b", "\\*a\\*", "$x$", "> x", "1) x", "**", "a\u2028b", "--- x"],
)  # fmt: skip
def test_escaped_text_reads_as_it_was_written(text: str) -> None:
    markdown_it = pytest.importorskip("markdown_it")
    parser = markdown_it.MarkdownIt("gfm-like", {"linkify": False})
    wanted = " ".join(text.replace("\u2028", "\\u2028").split())
    for escaped in (markdown.escape(text), markdown.code(text).replace("\\|", "|")):
        parsed = Page(parser.render(escaped))
        assert "".join(parsed.text).strip() == wanted
        assert set(parsed.tags) <= {"p", "code"}
    table = Page(parser.render(f"| a | b |\n|---|---|\n| {markdown.escape(text)} | {markdown.code(text)} |"))
    assert table.tags.count("td") == 2
    fenced = Page(parser.render(markdown.fence(text)))
    assert fenced.tags == ["pre", "code"]


def test_a_run_without_a_step_says_so(tmp_path: Path) -> None:
    run = made_runs.empty(tmp_path / "made")
    page.write(run)
    assert "No training step was completed." in html_of(run)


def test_where_traces_are_and_what_opens_them(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made", "almodel-tiny").start()
    made.pretrain_step(3, 5.0, 1.0)
    page.write(made.run)
    assert "xprof" not in html_of(made.run) + (made.run.report / "report.md").read_text()
    made.pretrain_step(4, 5.0, 9.0, profiled=True).pretrain_step(5, 5.0, 9.0, profiled=True)
    page.write(made.run)
    for text in (html_of(made.run), (made.run.report / "report.md").read_text()):
        assert "Traces of steps 4, 5" in text and f"xprof --logdir {made.run.profile}" in text


def test_how_it_ended_with_advice(tmp_path: Path) -> None:
    run = made_runs.stopped(tmp_path / "made")
    page.write(run)
    assert "<strong>What to do:</strong> type <code>podwright resume made</code>" in html_of(run)
    text = (run.report / "report.md").read_text()
    assert "The run was stopped after 73 of 80 GRPO steps. In the last test, before GRPO, 33.4 %" in text
    assert "The run was stopped: Ctrl-C. What to do: type `podwright resume made`" in text


def test_samples_stand_side_by_side(tmp_path: Path) -> None:
    pairs = page.pairs([
        {"when": "before", "question": "q1", "answer": "1", "completion": "a"},
        {"when": "before", "question": "q2", "answer": "2", "completion": "b"},
        {"when": "after", "question": "q2", "answer": "2", "completion": "c"},
    ])  # fmt: skip
    assert [(p["question"], p["before"]["completion"], p["after"] and p["after"]["completion"]) for p in pairs] == [
        ("q1", "a", None),
        ("q2", "b", "c"),
    ]


def test_writing_again_changes_nothing_and_drops_plots_that_are_gone(tmp_path: Path) -> None:
    run = made_runs.finished(tmp_path / "made", steps=20)
    page.write(run)
    first = {p.name: p.read_bytes() for p in run.report.iterdir()}
    (run.report / "old.svg").write_text("<svg/>")
    page.write(run)
    assert {p.name: p.read_bytes() for p in run.report.iterdir()} == first
    assert stat.S_IMODE((run.report / "report.html").stat().st_mode) == 0o644


def test_a_report_has_the_modes_that_the_umask_gives(tmp_path: Path) -> None:
    run = made_runs.empty(tmp_path / "made")
    before = os.umask(0o027)
    try:
        page.write(run)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in run.report.iterdir()} == {0o640}


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    run = made_runs.empty(tmp_path / "made")
    run.report.write_text("a file where the directory should be")
    with pytest.raises(OSError, match="File exists"):
        page.write(run)


def test_the_control_half_starts_without_the_heavy_libraries() -> None:
    blocked = ["jax", "torch", "numpy", "matplotlib", "jinja2", "mlflow", "tensorboard", "wandb"]
    modules = [
        "podwright.report.page", "podwright.report.figures.drawing", "podwright.track", "podwright.track.mlflow",
        "podwright.track.tensorboard", "podwright.track.wandb",
    ]  # fmt: skip
    program = f"import sys; sys.modules |= dict.fromkeys({blocked!r}); import {', '.join(modules)}"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(page.__file__).parents[2])


def test_a_figure_that_is_not_known_has_no_row(tmp_path: Path) -> None:
    run = made_runs.finished(tmp_path / "made")
    page.write(run)
    assert "(MFU)</th>" not in (run.report / "report.html").read_text().partition("Predicted and measured")[0]
