"""The README that a log extends: rows, sections, edits by hand, both languages, files of other people."""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.report.maxtext import pages
from tests.unit.report.test_maxtext_report import read_log

HEAD = "Num_devices: 16, shape (16,)\nConfig param model_name: toy\nConfig param steps: 30\n"


def steps(seconds: float, number: int = 8) -> str:
    return "".join(
        f"completed step: {n}, seconds: {seconds:.3f}, TFLOP/s/device: 100.000, Tokens/s/device: {8192 / seconds:.3f}, "
        f"total_weights: 131072, loss: {4 - n / 10:.3f}\n"
        for n in range(number)
    )


def extend(readme: Path, log: str, language: str = "en", name: str = "train.log") -> list[str]:
    written = read_log(log, on="v6e-16", path=name)
    return pages.write(written, readme.parent / "out", readme, language)


FIRST, SECOND = HEAD + steps(2.0), HEAD + steps(1.6)
BEFORE = b"# Mine\r\n\r\nWords of mine, <!-- a comment -->\r\n\ttab and trailing space \r\n\xff not UTF-8\r\n"


def test_a_new_file_has_the_model_the_table_and_the_log(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    assert extend(readme, FIRST) == []
    text = readme.read_text()
    assert text.startswith("# toy training record\n\n## Model\n")
    row = next(line for line in text.splitlines() if " row " in line)
    assert row.startswith("| – | v6e-16 | – | 2.000 | 100.0 | 100.0 | 4,096.0 | 3.300 | 8 of 30 steps <!-- podwright:")
    head = "| Step | Time (s) | TFLOPs/s/device | TFLOPs/s/chip | Tokens/s/chip | Loss |"
    assert f"{head}\n|---:|---:|---:|---:|---:|---:|\n| 0 † | 2.000 |" in text
    assert "| 2 | 2.000 | 100.0 | 100.0 | 4,096.0 | 3.800 |" in text and "| 0 † |" in text
    assert "- **Steady state: 2.000 s/step (median of 6 steps" in text
    assert "- **Loss: 4.000 (step 0) to 3.300 (step 7), −17.5 %**" in text


def test_the_chinese_form_is_that_of_the_source(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    extend(readme, FIRST, "zh")
    text = readme.read_text()
    for heading in (
        "# toy 训练测试记录",
        "## 模型概况",
        "| 项目 | 值 |",
        "## 测试结果",
        "### 我的测试记录",
        "### 详细训练日志 - ",
    ):
        assert heading in text
    assert (
        "| 日期 | 配置 | Precision | Step Time (s) | TFLOPs/s/device | TFLOPs/s/chip | Tokens/s/chip | Loss (final) | 备注 |"
        in text
    )
    assert "| Step | 耗时 (s) | TFLOPs/s/device | TFLOPs/s/chip | Tokens/s/chip | Loss |" in text
    assert "稳态性能：2.000 s/step" in text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_same_log_again_changes_nothing(tmp_path: Path, language: str) -> None:
    readme = tmp_path / "README.md"
    extend(readme, FIRST, language)
    extend(readme, SECOND, language)
    before = readme.read_bytes()
    assert before.count(b" row ") == 2 and before.count(b" begin ") == 2
    assert extend(readme, FIRST, language) == [] and extend(readme, SECOND, language) == []
    assert readme.read_bytes() == before


def test_a_second_log_is_a_row_below_the_first_and_a_section(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    extend(readme, FIRST)
    first = readme.read_text().splitlines()
    extend(readme, SECOND)
    lines = readme.read_text().splitlines()
    at = next(i for i, line in enumerate(first) if " row " in line)
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


SOURCE_TABLE = """# DeepSeek3 训练测试记录

| 日期 | 配置 | Precision | Step Time (s) | TFLOPs/s/device | TFLOPs/s/chip | Tokens/s/chip | Loss (final) | 备注 |
|------|------|-----------|---------------|-----------------|---------------|---------------|--------------|------|
| 2026-02-01 | 4x4x8 | bf16 | 27.42 | 299.4 | 598.8 | 2390 | 9.1 | 手写 |

手写的说明。
"""


def test_a_row_joins_a_table_that_was_written_by_hand(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(SOURCE_TABLE)
    extend(readme, FIRST, "zh")
    lines = readme.read_text().splitlines()
    assert lines[:5] == SOURCE_TABLE.splitlines()[:5] and "| 2.000 | 100.0 |" in lines[5]
    assert lines[6:8] == ["", "手写的说明。"] and "## 测试结果" not in lines


def test_columns_of_their_own_stay_empty_and_others_are_matched_by_name(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(
        "| Config | Owner | Tokens/s/chip | Step Time (s) | Loss |\n|---|---|---|---|---|\n| a | me | 1 | 2 | 3 |\n"
    )
    extend(readme, FIRST)
    assert readme.read_text().splitlines()[3].startswith("| v6e-16 |  | 4,096.0 | 2.000 | 3.300 <!-- podwright:")


def test_a_table_of_something_else_is_left_alone(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    table = "| Date | Event |\n|---|---|\n| today | something |\n"
    readme.write_text(table)
    extend(readme, FIRST)
    assert readme.read_text().startswith(table + "\n## Results\n")


@pytest.mark.parametrize(
    ("what", "by_hand"),
    [("row", ("| 2.000 |", "| 2.0 s |")), ("section", ("Steady state:", "Steady state (checked):"))],
)
def test_what_was_edited_by_hand_is_kept_and_told(tmp_path: Path, what: str, by_hand: tuple[str, str]) -> None:
    readme = tmp_path / "README.md"
    extend(readme, FIRST)
    edited = readme.read_text().replace(*by_hand, 1)
    assert edited != readme.read_text()
    readme.write_text(edited)
    longer = HEAD + steps(2.0, 12)
    kept = extend(readme, longer)
    assert kept == [f"the {what} of this log was edited by hand and is left as it is"]
    assert by_hand[1] in readme.read_text()


def test_a_log_of_another_model_than_the_readmes_is_named(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    assert extend(readme, FIRST.replace("toy", "Toy-7B")) == []
    assert extend(readme, SECOND.replace("toy", "toy 7b")) == [], "another spelling of the name"
    other = SECOND.replace("toy", "llama3.1-70b")
    (_, said) = extend(readme, other)
    assert said == f"{readme} did not name the model llama3.1-70b of this log, which has a row and a section there now"
    assert extend(readme, other) == [], "it is there now"


def test_a_log_that_has_grown_brings_its_own_row_and_section_up_to_date(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    extend(readme, FIRST)
    assert extend(readme, HEAD + steps(2.0, 12)) == []
    text = readme.read_text()
    assert (
        text.count(" row ") == 1
        and "12 of 30 steps" in text
        and "8 of 30 steps" not in text
        and "| 11 | 2.000 |" in text
    )


def test_a_row_that_was_deleted_by_hand_comes_back_and_a_cut_section_is_left(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    extend(readme, FIRST)
    text = readme.read_text()
    readme.write_text("".join(line for line in text.splitlines(True) if " row " not in line).replace(" end -->", ""))
    assert extend(readme, FIRST) == ["the section of this log was edited by hand and is left as it is"]
    assert readme.read_text().count(" row ") == 1


def test_a_long_log_shows_its_beginning_and_its_end(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    extend(readme, HEAD + steps(2.0, 500))
    rows = [line for line in readme.read_text().splitlines() if line.count("|") == 7 and line[2].isdigit()]
    assert len(rows) == 30 and rows[19].startswith("| 19 |") and rows[20].startswith("| 490 |")


def test_names_that_are_markup_stay_in_their_cells(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    extend(readme, FIRST.replace("toy", "a|b <!-- podwright:x end --> `c`"))
    text = readme.read_text()
    assert r"# a\|b &lt;!-- podwright:x end --\> \`c\` training record" in text
    before = readme.read_bytes()
    extend(readme, FIRST.replace("toy", "a|b <!-- podwright:x end --> `c`"))
    assert readme.read_bytes() == before


def test_a_place_that_is_no_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a directory"):
        extend(tmp_path, FIRST)
    with pytest.raises(UserError, match="there is no directory"):
        written = read_log(FIRST)
        pages.write(written, tmp_path / "out", tmp_path / "none" / "README.md", "en")


def test_a_binary_file_is_no_readme(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_bytes(b"\x89PNG\0\0")
    with pytest.raises(UserError, match="is a binary file; name a README"):
        extend(readme, FIRST)
    assert readme.read_bytes() == b"\x89PNG\0\0"
