"""The Markdown pages are pinned; after a change on purpose type `python tests/unit/report/test_golden.py` and read the diff."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import made_runs
import pytest

from podwright.report import page
from podwright.rundir import write_json

GOLDEN = Path(__file__).parents[2] / "golden" / "report"


def pages(folder: Path) -> dict[str, str]:
    run = made_runs.finished(folder / "made", steps=40, recipe=str(GOLDEN / "recipe.yaml"))
    write_json(run.plan, made_runs.compiled_plan().document())
    page.write(run, folder / "README.md")
    return {
        "report.md": normalised((run.report / "report.md").read_text(), folder),
        "README.md": normalised((folder / "README.md").read_text(), folder),
    }


def normalised(text: str, folder: Path) -> str:
    """Without the folder, the fingerprint and the table of settings, which follows the schema."""
    text = re.sub(r"(?s)(## Settings\n).*?(\n## )", r"\1\n(settings)\n\2", text)
    return re.sub(r"`[0-9a-f]{12}`", "`FINGERPRINT`", text).replace(str(folder), "RUNS")


@pytest.mark.parametrize("name", ["report.md", "README.md"])
def test_page(tmp_path: Path, name: str) -> None:
    assert pages(tmp_path)[name] == (GOLDEN / name).read_text(), f"if this is on purpose: {__doc__}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made_in:
        for file, content in pages(Path(made_in)).items():
            (GOLDEN / file).write_text(content)
