"""The README that MaxText runs extend: a table of runs, a section for each, and what other people wrote there."""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.report import page
from podwright.report.maxtext import log_run

HEAD = "Num_devices: 16, shape (16,)\nConfig param model_name: toy\nConfig param steps: 30\n"


def steps(seconds: float, number: int = 8) -> str:
    return "".join(
        f"completed step: {n}, seconds: {seconds:.3f}, TFLOP/s/device: 100.000, Tokens/s/device: {8192 / seconds:.3f}, "
        f"total_weights: 131072, loss: {4 - n / 10:.3f}\n"
        for n in range(number)
    )


def extend(readme: Path, log: str, language: str = "en") -> str:
    """All logs go to one directory, in which each replaces the one before."""
    run = log_run.create(readme.parent / "out", [log.encode()], "train.log", None, "v6e-16")
    page.write(run, readme, language)
    return readme.read_bytes().decode(errors="surrogateescape")


FIRST, SECOND = HEAD + steps(2.0), HEAD + steps(1.6)
BEFORE = b"# Mine\r\n\r\nWords of mine, <!-- a comment -->\r\n\ttab and trailing space \r\n\xff not UTF-8\r\n"


def test_a_new_file_has_the_table_of_runs_and_the_log(tmp_path: Path) -> None:
    text = extend(tmp_path / "README.md", FIRST)
    assert text.startswith("# toy\n\n<!-- podwright:runs/results begin -->\n## Results\n")
    row = next(line for line in text.splitlines() if " row -->" in line)
    assert row.startswith("| – | v6e-16 | – | 2.000 | 100.0 | 100.0 | 4,096.0 | 3.300 | 8 of 30 steps <!-- podwright:")
    head = "| Step | Time (s) | TFLOPs/s/device | TFLOPs/s/chip | Tokens/s/chip | Loss |"
    assert f"{head}\n|---:|---:|---:|---:|---:|---:|\n| 0 | 2.000 |" in text
    assert "| 2 | 2.000 | 100.0 | 100.0 | 4,096.0 | 3.800 |" in text and "first step of an attempt: compiles" in text
    assert "Steady state: 2.000 s/step (median of 6 steps" in text and "| hardware | v6e: 16 chips, 16 devices" in text
    assert "Loss: 4.000 (step 0) to 3.300 (step 7), −17.5 %." in text and "(out/report/report.md)" in text


def test_the_chinese_form_is_that_of_the_source(tmp_path: Path) -> None:
    text = extend(tmp_path / "README.md", FIRST, "zh")
    for part in (
        "# toy 训练测试记录",
        "### 模型概况",
        "| 项目 | 值 |",
        "## 测试结果",
        "## 详细训练日志 - ",
        "| 日期 | 配置 | Precision | Step Time (s) | TFLOPs/s/device | TFLOPs/s/chip | Tokens/s/chip | Loss (final) | 备注 |",
        "| Step | 耗时 (s) | TFLOPs/s/device | TFLOPs/s/chip | Tokens/s/chip | Loss |",
        "稳态性能：2.000 s/step",
    ):
        assert part in text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_same_log_again_changes_nothing(tmp_path: Path, language: str) -> None:
    readme = tmp_path / "README.md"
    extend(readme, FIRST, language)
    before = extend(readme, SECOND, language)
    assert before.count(" row -->") == 2 and before.count(" begin -->") == 3
    assert extend(readme, FIRST, language) == extend(readme, SECOND, language) == before


def test_a_second_log_is_a_row_below_the_first_and_a_section(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    first = extend(readme, FIRST).splitlines()
    lines = extend(readme, SECOND).splitlines()
    at = next(i for i, line in enumerate(first) if " row -->" in line)
    assert lines[: at + 1] == first[: at + 1] and "| 1.600 |" in lines[at + 1]
    assert [*lines[: at + 1], *lines[at + 2 :]][: len(first)] == first
    assert lines.count("## Results") == 1


def test_other_peoples_bytes_are_kept(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_bytes(BEFORE)
    extend(readme, FIRST)
    content = readme.read_bytes()
    assert content.startswith(BEFORE) and b"\n" not in content.replace(b"\r\n", b"")
    readme.write_bytes(content + b"after, no newline at the end")
    extend(readme, FIRST)
    assert readme.read_bytes() == content + b"after, no newline at the end"
    extend(readme, SECOND)
    assert b"\n" not in readme.read_bytes().replace(b"\r\n", b"") and readme.read_bytes().startswith(BEFORE)


def test_rows_of_other_runs_and_text_in_the_table_are_kept(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    text = extend(readme, FIRST)
    end = "<!-- podwright:runs/results end -->"
    by_hand = text.replace("| 2.000 | 100.0 |", "| 2.0 s | 100.0 |", 1).replace(
        end, f"| a row by hand |\n\nWords.\n{end}"
    )
    readme.write_text(by_hand)
    lines = extend(readme, SECOND).splitlines()
    at = lines.index("| a row by hand |")
    assert (
        "| 2.0 s |" in lines[at - 1] and "| 1.600 |" in lines[at + 1] and lines[at + 2 : at + 5] == ["", "Words.", end]
    )


def test_a_log_that_has_grown_brings_its_row_and_section_up_to_date(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    extend(readme, FIRST)
    text = extend(readme, HEAD + steps(2.0, 12))
    assert text.count(" row -->") == 1 and "| 11 | 2.000 |" in text
    assert "12 of 30 steps" in text and "8 of 30 steps" not in text


@pytest.mark.parametrize("name", ["runs/results", "train-"])
def test_half_a_pair_of_markers_is_an_error_that_changes_nothing(tmp_path: Path, name: str) -> None:
    readme = tmp_path / "README.md"
    lines = extend(readme, FIRST).splitlines(keepends=True)
    cut = "".join(line for line in lines if not (name in line and " end -->" in line))
    readme.write_text(cut)
    with pytest.raises(UserError, match="once each and in this order; restore the pair or delete both"):
        extend(readme, FIRST)
    assert readme.read_text() == cut


def test_a_long_log_shows_its_beginning_and_its_end(tmp_path: Path) -> None:
    text = extend(tmp_path / "README.md", HEAD + steps(2.0, 500))
    rows = [line for line in text.splitlines() if line.count("|") == 7 and line[2].isdigit()]
    assert len(rows) == 30 and rows[19].startswith("| 19 |") and rows[20].startswith("| 490 |")


def test_names_that_are_markup_stay_in_their_cells(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    log = FIRST.replace("toy", "a|b <!-- podwright:x end --> `c`")
    text = extend(readme, log)
    assert text.startswith(r"# a\|b \<!-- podwright:x end --\> \`c\`")
    assert extend(readme, log) == text


def test_a_binary_file_is_no_readme(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_bytes(b"\x89PNG\0\0")
    with pytest.raises(UserError, match="is a binary file; name a README"):
        extend(readme, FIRST)
    assert readme.read_bytes() == b"\x89PNG\0\0"
