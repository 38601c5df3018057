"""The section of a run is written into a README, and all that stood there stays byte for byte."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import made_runs
import pytest

from podwright.errors import UserError
from podwright.report import page, readme

BEFORE = b"# My model\n\nWords of mine, <!-- a comment -->\n\n| a |\n|---|\n\ttab and trailing space \n\xff not UTF-8\n"
AFTER = b"\n## What I wrote below\nno newline at the end"


def section(content: bytes, name: str) -> bytes:
    begin, end = f"<!-- podwright:{name} begin -->".encode(), f"<!-- podwright:{name} end -->".encode()
    assert content.count(begin) == content.count(end) == 1
    return content[content.index(begin) : content.index(end) + len(end)]


def test_a_new_readme_starts_with_the_model(tmp_path: Path) -> None:
    page.write(made_runs.finished(tmp_path / "made", steps=8), tmp_path / "README.md")
    text = (tmp_path / "README.md").read_text()
    assert text.startswith("# qwen3-tiny\n\n<!-- podwright:made begin -->\n## made (")
    assert text.endswith("<!-- podwright:made end -->\n")
    assert "(made/report/report.md)" in text


def test_what_is_there_already_is_kept_byte_for_byte(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_bytes(BEFORE)
    run = made_runs.stopped(tmp_path / "made")
    page.write(run, file)
    assert file.read_bytes().startswith(BEFORE)
    file.write_bytes(file.read_bytes() + AFTER)
    old = section(file.read_bytes(), "made")

    made_runs.Made(run.path).event("notice", message="something new")
    page.write(run, file)
    page.write(run, file)
    new = section(file.read_bytes(), "made")
    assert b"something new" in new and new != old
    assert file.read_bytes() == BEFORE + b"\n" + new + b"\n" + AFTER


def test_two_runs_have_a_section_each(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    one, two = made_runs.stopped(tmp_path / "one"), made_runs.finished(tmp_path / "one-more", steps=8)
    page.write(one, file)
    page.write(two, file)
    of_two = section(file.read_bytes(), "one-more")
    page.write(one, file)
    assert section(file.read_bytes(), "one-more") == of_two
    assert b"## one (" in section(file.read_bytes(), "one")


def test_a_model_that_writes_our_marker_breaks_nothing(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    run = made_runs.hostile(tmp_path / "made")
    page.write(run, file)
    once = file.read_bytes()
    page.write(run, file)
    assert file.read_bytes() == once


@pytest.mark.parametrize("old", [b"", b"x", b"x\n", b"x\n\n", b"x\r\n", b"\xef\xbb\xbf# x\r\n\r\ny"])
def test_line_ends_follow_the_file_and_twice_is_once(old: bytes) -> None:
    path = Path("README.md")
    once = readme.with_section(old, "r", "a\nb\n", path)
    assert once.startswith(old)
    assert readme.with_section(once, "r", "a\nb\n", path) == once
    assert (b"a\r\nb" in once) == (b"\r\n" in old)
    assert once[len(old) :].lstrip(b"\r\n").startswith(b"<!-- podwright:r begin -->")


@pytest.mark.parametrize(
    "lines",
    [["r begin"], ["r end"], ["r end", "r begin"], ["r begin", "r begin", "r end"], ["r begin", "r end", "r end"]],
)
def test_markers_that_somebody_broke_are_an_error_and_nothing_is_lost(tmp_path: Path, lines: list[str]) -> None:
    file = tmp_path / "README.md"
    file.write_text("".join(f"<!-- podwright:{line} -->\n" for line in lines))
    before = file.read_bytes()
    with pytest.raises(UserError, match="restore the pair or delete both"):
        readme.put(file, "r", "text", "title")
    assert file.read_bytes() == before


def test_a_link_stays_a_link_and_the_mode_stays(tmp_path: Path) -> None:
    real = tmp_path / "real.md"
    real.write_text("# x\n")
    real.chmod(0o640)
    link = tmp_path / "README.md"
    link.symlink_to(real)
    readme.put(link, "r", "text", "title")
    assert link.is_symlink() and "text" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_write_that_fails_leaves_the_file_and_no_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "README.md"
    file.write_text("# x\n")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError):
        readme.put(file, "r", "text", "title")
    assert file.read_text() == "# x\n"
    assert list(tmp_path.iterdir()) == [file]


def test_places_where_no_readme_can_be(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no regular file"):
        readme.put(tmp_path, "r", "text", "title")


def test_names_that_would_end_a_comment(tmp_path: Path) -> None:
    once = readme.with_section(b"", "a--> b", "text", Path("README.md"))
    assert b"<!-- podwright:a--%3E%20b begin -->" in once
