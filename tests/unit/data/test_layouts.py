"""Rows of every layout in every container go from a file to a plan that is ok and to the examples that training takes."""

import bz2
import gzip
import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow
import pyarrow.parquet
import pytest

from podwright.data import faults, gsm8k, layouts, line_check, rows
from podwright.data.layouts import Example
from podwright.data.line_check import CheckOptions
from podwright.errors import UserError
from podwright.plan.checks import examples, token_lengths
from podwright.plan.findings import Verdict
from podwright.plan.make import make
from podwright.plan.options import Destination, PlanOptions
from podwright.recipe.load import load
from podwright.recipe.schema import GrpoColumns, GrpoData, GrpoRecipe
from podwright.slices import parse
from tests.unit.data.containers import as_csv, as_lines, as_parquet

NUMBER = 40


def turns(speaker: str, text: str, asker: str, replier: str) -> Callable[[int], list[dict[str, str]]]:
    return lambda n: [{speaker: asker, text: f"{n}+1?"}, {speaker: replier, text: f"It is\n#### {n + 1}"}]


CHAT = turns("role", "content", "user", "assistant")
LAYOUTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "GSM8K": lambda n: {"question": f"{n}+1?", "answer": f"It is\n#### {n + 1}"},
    "chat": lambda n: {"messages": CHAT(n)},
    "ShareGPT": lambda n: {"conversations": turns("from", "value", "human", "gpt")(n)},
    "Alpaca": lambda n: {"instruction": f"{n}+1?", "input": "", "output": f"It is\n#### {n + 1}"},
    "completion": lambda n: {"prompt": f"{n}+1?", "completion": f"It is\n#### {n + 1}"},
    "turns": lambda n: {"prompt": CHAT(n)[:1], "completion": CHAT(n)[1:]},
    "problem": lambda n: {"problem": f"{n}+1?", "solution": "It is", "answer": f"{n + 1}"},
    "DAPO": lambda n: {"prompt": CHAT(n)[:1], "reward_model": {"ground_truth": str(n + 1), "style": "rule"}},
    "columns": lambda n: {"q": f"{n}+1?", "extra_info": {"a": n + 1}, "level": n},
}
NESTED = ("chat", "ShareGPT", "turns", "DAPO", "columns")  # which CSV has as text
BARE = ("DAPO", "columns")  # answers without a worked one


CONTAINERS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "jsonl": as_lines,
    "json": lambda listed: b"\xef\xbb\xbf" + json.dumps(listed, indent=1).encode(),
    "jsonl.gz": lambda listed: gzip.compress(as_lines(listed)),
    "json.bz2": lambda listed: bz2.compress(json.dumps(listed).encode()),
    "jsonl.xz": lambda listed: lzma.compress(as_lines(listed)),
    "csv": as_csv,
    "tsv": lambda listed: as_csv(listed, "\t"),
    "csv.gz": lambda listed: gzip.compress(b"\xef\xbb\xbf" + as_csv(listed, ";")),
    "parquet": as_parquet,
}


HERE = Destination("cpu-1", parse("cpu-1"))


def recipe(source: Path | str, *overrides: str) -> GrpoRecipe:
    sizes = ("data.num_train=0", "data.num_test=0", "batch_size=4", "rollout.max_prompt_length=128")
    loaded = load("qwen3-tiny-arithmetic-grpo", [*sizes, f"data.source={source}", *overrides])
    assert isinstance(loaded, GrpoRecipe)
    return loaded


def columns_of(layout: str) -> tuple[str, ...]:
    return ("data.columns={question: q, answer: extra_info.a}",) if layout == "columns" else ()


def require_read(path: Path, layout: str) -> None:
    """The plan is ok and counts the examples, and training takes them."""
    planned = recipe(path, *columns_of(layout))
    plan = make(planned, HERE, PlanOptions(cwd=path.parent))
    assert plan.verdict is Verdict.OK, plan.findings
    assert examples.counts(planned, path.parent) == examples.ExampleCounts(36, 4)
    train, test = gsm8k.parts(planned.data, 0)[:2]
    solution = "#### {}" if layout in BARE else "It is\n#### {}"
    expected = [Example(f"{n}+1?", str(n + 1), solution.format(n + 1)) for n in range(NUMBER)]
    assert sorted([*train, *test], key=lambda e: int(e.answer)) == expected and len(test) == 4


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_is_planned_and_trained_on(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "my data.jsonl"
    path.write_bytes(as_lines([LAYOUTS[layout](n) for n in range(NUMBER)]))
    require_read(path, layout)
    if layout != "columns":
        assert line_check.check(path, CheckOptions()) is None and faults.check(str(path))["num_faults"] == 0


@pytest.mark.parametrize("container", CONTAINERS)
def test_each_container_is_planned_and_trained_on(tmp_path: Path, container: str) -> None:
    layout = "problem" if "csv" in container or container == "tsv" else "DAPO"
    for split, numbers in (("train", range(36)), ("test", range(36, NUMBER))):
        (tmp_path / f"{split}.{container}").write_bytes(CONTAINERS[container]([LAYOUTS[layout](n) for n in numbers]))
    require_read(tmp_path, layout)
    record = faults.check(str(tmp_path))
    assert (record["lines"], record["num_faults"]) == (NUMBER, 0)


def as_csv_of_json(listed: list[dict[str, Any]]) -> bytes:
    return as_csv([{name: v if isinstance(v, str) else json.dumps(v) for name, v in row.items()} for row in listed])


@pytest.mark.parametrize(("suffix", "container"), [("parquet", as_parquet), ("csv", as_csv), ("csv", as_csv_of_json)])
def test_tables_keep_every_nested_layout(tmp_path: Path, suffix: str, container: Callable[..., bytes]) -> None:
    """CSV as pandas writes it, which is Python's spelling, or with JSON."""
    for layout in NESTED:
        path = tmp_path / f"{layout}.{suffix}"
        path.write_bytes(container([LAYOUTS[layout](n) for n in range(NUMBER)]))
        columns = GrpoColumns(question="q", answer="extra_info.a") if layout == "columns" else None
        assert [e.answer for e in gsm8k.read(path, columns)] == [str(n + 1) for n in range(NUMBER)]


@pytest.mark.parametrize(
    "question", ["[1, 2] has how many?", "[1, 2]", "[]", '{"a": 1}', "{'a': 1}", "[{'a': 1}]", "[{'a"]
)
def test_a_question_that_looks_like_a_list_or_an_object_stays_a_text(question: str) -> None:
    assert layouts.example("a:1", {"prompt": question, "completion": "#### 2"}).question == question


def test_what_the_system_says_stays_apart_from_the_question() -> None:
    system = {"role": "system", "content": "Be brief."}
    for row in (
        {"messages": [system, *CHAT(1)]},
        {"prompt": [system, *CHAT(1)[:1]], "completion": "#### 2"},
        {"prompt": [system, *CHAT(1)[:1]], "reward_model": {"ground_truth": "2"}},
        {"conversations": [{"from": "system", "value": "Be brief."}, *CHAT(1)]},
    ):
        example = layouts.example("a:1", row)
        assert (example.system, example.question, example.answer) == ("Be brief.", "1+1?", "2")
    chosen = layouts.example("a:1", {"q": [system, *CHAT(1)[:1]], "a": "2"}, GrpoColumns(question="q", answer="a"))
    assert (chosen.system, chosen.question) == ("Be brief.", "1+1?")
    line = layouts.with_response("a:1", {"messages": [system, *CHAT(1)]})
    assert line["instruction"] == "Be brief.\n\n1+1?"
    alpaca = {"instruction": "Add.", "input": "1+1", "output": "2"}
    assert layouts.example("a:1", alpaca) == Example("Add.\n1+1", "2", "#### 2")


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        ("18", "18"),
        (" 1,234\n", "1234"),
        ("$18", "18"),
        (r"$\frac{3}{4}$", "3/4"),
        ("12%", "12"),
        (7, "7"),
        (0.5, "0.5"),
    ],
)
def test_an_answer_that_is_a_number_is_the_right_one(answer: object, number: str) -> None:
    assert layouts.example("a:1", {"problem": "?", "answer": answer}) == Example("?", number, f"#### {number}")


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"q": "1+1?", "a": "2"}, "row-layout"),
        ({"problem": "1+1?", "solution": "2"}, "row-layout"),
        ({"question": "1+1?"}, "row-layout"),
        ({}, "row-layout"),
        ({"question": "1+1?", "answer": "it is 2"}, "answer-number"),
        ({"question": "1+1?", "answer": "2 plus nothing"}, "answer-number"),
        ({"question": "1+1?", "answer": "1 2"}, "answer-number"),
        ({"question": "1+1?", "answer": "#### 2 sqrt(2)"}, "answer-number"),
        ({"question": "1+1?", "answer": True}, "not-text"),
        ({"question": "1+1?", "answer": float("nan")}, "answer-number"),
        ({"question": " ", "answer": "2"}, "empty-text"),
        ({"messages": []}, "chat-turns"),
        ({"messages": None}, "chat-turns"),
        ({"messages": CHAT(1)[:1]}, "chat-turns"),
        ({"messages": [*CHAT(1), *CHAT(2)]}, "chat-turns"),
        ({"messages": [{"role": "tool", "content": "x"}, *CHAT(1)]}, "chat-turns"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}, *CHAT(1)[1:]]}, "not-text"),
        ({"prompt": CHAT(1), "completion": "2"}, "chat-turns"),
        ({"prompt": "1+1?", "reward_model": {"style": "rule"}}, "row-layout"),
    ],
)
def test_what_a_row_leaves_open_is_refused(row: dict[str, Any], code: str) -> None:
    with pytest.raises(UserError) as refused:
        layouts.example("a.jsonl:7", row)
    assert refused.value.code == code
    assert "a.jsonl:7" in str(refused.value) and len(str(refused.value)) <= 240, refused.value


def test_columns_that_are_not_there_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("q;a\n" + "".join(f"{n}+1?;{n + 1}\n" for n in range(NUMBER)))
    with pytest.raises(UserError) as refused:
        gsm8k.read(path)
    assert refused.value.code == "row-layout" and '"q", "a"' in refused.value.what
    typed = refused.value.fix.partition("type '")[2].partition("'")[0]
    good = typed.replace("question: COLUMN", "question: q").replace("answer: COLUMN", "answer: a")
    assert len(gsm8k.parts(recipe(path, good).data, 0)[0]) == 36
    (finding,) = examples.check(recipe(path, good.replace("q,", "r,")), tmp_path)
    assert (finding.level, finding.code) == ("error", "no-column") and "'r'" in finding.message


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.jsonl", b"question,answer\n1?,1\n", "not-json"),
        ("a.jsonl", b'{"question": "1?", "answer": "1"}\r{"question": "2?", "answer": "2"}\r', "not-json"),
        ("a.jsonl", json.dumps(LAYOUTS["GSM8K"](1), indent=1).encode(), "not-json"),
        ("a.jsonl", json.dumps([LAYOUTS["GSM8K"](1)]).encode(), "not-object"),
        ("a.jsonl", as_lines([LAYOUTS["GSM8K"](1)]).decode().encode("utf-16"), "not-utf8"),
        ("a.jsonl", gzip.compress(b"{}", mtime=0), "not-utf8"),
        ("a.json", b"[1, 2]", "not-object"),
        ("a.json", b'[{"question": "1?", "answer": "1"}', "not-json"),
        ("a.csv", "question,answer\nGr\u00fc\u00dfe,1\n".encode("latin-1"), "not-utf8"),
        ("a.csv", b'question,answer\n"1?,1\n2?,2\n', "not-csv"),
        ("a.csv", b"question,answer\n1?,1,2\n", "not-csv"),
        *((f"a.jsonl.{suffix}", b"none of these", "unreadable") for suffix in ("gz", "bz2", "xz")),
        ("a.jsonl.gz", gzip.compress(as_lines([LAYOUTS["GSM8K"](n) for n in range(99)]), mtime=0)[:-9], "unreadable"),
        ("a.pdf", b"%PDF-1.7", "unknown-format"),
        ("a.parquet", b"PAR1", "unreadable"),
        ("a.parquet", b"", "unreadable"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, name: str, content: bytes, code: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    (finding,) = examples.check(recipe(path), tmp_path)
    with pytest.raises(UserError) as refused:
        gsm8k.parts(GrpoData(source=str(path)), 0)
    assert (finding.level, finding.code, refused.value.code) == ("error", code, code), finding
    assert finding.message == refused.value.what and str(path) in finding.message
    assert "python3" not in finding.fix and "\n" not in finding.message


def test_without_its_package_a_container_is_not_called_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, package in (("a.parquet", "pyarrow.parquet"), ("a.jsonl.gz", "fsspec")):
        (tmp_path / name).write_bytes(b"")
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            token_lengths._checked.cache_clear()
            (finding,) = examples.check(recipe(tmp_path / name), tmp_path)
            verdicts = [
                make(recipe(tmp_path / name), destination, PlanOptions(cwd=tmp_path, starting=starting)).verdict
                for destination in (Destination("v6e-1", parse("v6e-1"), provisioning="spot"), HERE)
                for starting in (True, False)
            ]
        assert (finding.level, finding.code) == ("inconclusive", "missing-package"), finding
        assert finding.fix.startswith("type pip install")
        assert verdicts == [Verdict.REFUSED, *[Verdict.INCONCLUSIVE] * 3]
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            with pytest.raises(UserError, match=r"needs the package .*; type pip install"):
                faults.check(str(tmp_path / name))


def test_a_file_may_be_called_ndjson(tmp_path: Path) -> None:
    rows = '{"question": "1?", "answer": "#### 1"}\n{"question": "2?", "answer": "#### 2"}\n'
    (tmp_path / "a.ndjson").write_text(rows)
    train, test, _ = gsm8k.parts(GrpoData(source=str(tmp_path / "a.ndjson")), 0)
    assert len(train) == len(test) == 1
    assert faults.check(str(tmp_path / "a.ndjson"))["valid"] == 2


def test_zstd_is_read_or_its_package_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    if "zstd" not in fsspec.available_compressions():
        path.write_bytes(b"{}")
        with pytest.raises(rows.MissingPackage, match="type pip install zstandard"):
            gsm8k.read(path)
        return
    with fsspec.open(str(path), "wb", compression="zstd") as file:
        file.write(as_lines([LAYOUTS["GSM8K"](n) for n in range(NUMBER)]))
    assert len(gsm8k.read(path)) == NUMBER
    path.write_bytes(path.read_bytes()[:-9] + b"no zstd")
    with pytest.raises(UserError, match="cannot be read"):
        gsm8k.read(path)


def test_only_the_columns_that_are_read_are_decoded(tmp_path: Path) -> None:
    late = pyarrow.array([2**62, 1], pyarrow.timestamp("us"))
    table = pyarrow.table({"question": ["a", "b"], "answer": ["1", "2"], "written": late})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert [row["written"] for _, row in rows.rows(tmp_path / "a.parquet", layouts.names_read(None))] == [None, None]
