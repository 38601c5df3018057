"""Texts to pretrain on come out of rows of every layout and of every container, and a plan counts what training reads."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from podwright.data import documents, faults, texts
from podwright.errors import UserError
from podwright.recipe.load import load
from podwright.recipe.pretrain import PretrainRecipe, TextColumns
from podwright.train.pretrain import data_check
from tests.unit.data.containers import as_csv, as_lines, as_parquet

NUMBER = 40
QUESTION, REPLY = "What is {}+1?\u00fc", "It is\n#### {}"


def turns(
    role: str, content: str, asker: str, replier: str, *first: dict[str, str]
) -> Callable[[int], list[dict[str, str]]]:
    return lambda n: [
        *first,
        {role: asker, content: QUESTION.format(n)},
        {role: replier, content: REPLY.format(n + 1)},
    ]


CHAT = turns("role", "content", "user", "assistant")
LAYOUTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "text": lambda n: {"text": f"{QUESTION.format(n)}\n\n{REPLY.format(n + 1)}", "id": n},
    "content": lambda n: {"content": f"{QUESTION.format(n)}\n\n{REPLY.format(n + 1)}"},
    "chat": lambda n: {"messages": CHAT(n)},
    "ShareGPT": lambda n: {"conversations": turns("from", "value", "human", "gpt")(n)},
    "Alpaca": lambda n: {"instruction": QUESTION.format(n), "input": "", "output": REPLY.format(n + 1)},
    "completion": lambda n: {"prompt": QUESTION.format(n), "completion": REPLY.format(n + 1)},
    "turns": lambda n: {"prompt": CHAT(n)[:1], "completion": CHAT(n)[1:]},
    "GSM8K": lambda n: {"question": QUESTION.format(n), "answer": REPLY.format(n + 1)},
    "MATH": lambda n: {"problem": QUESTION.format(n), "solution": REPLY.format(n + 1), "answer": str(n + 1)},
    "response": lambda n: {"instruction": QUESTION.format(n), "response": REPLY.format(n + 1)},
}
EXPECTED = [f"{QUESTION.format(n)}\n\n{REPLY.format(n + 1)}" for n in range(NUMBER)]


CONTAINERS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "a.jsonl": as_lines,
    "b.jsonl": lambda listed: b"\xef\xbb\xbf" + as_lines(listed).replace(b"\n", b"\r\n"),
    "a.json": lambda listed: json.dumps(listed, indent=1).encode(),
    "b.json": as_lines,
    "a.jsonl.gz": lambda listed: gzip.compress(as_lines(listed)),
    "a.json.bz2": lambda listed: bz2.compress(as_lines(listed)),
    "a.jsonl.xz": lambda listed: lzma.compress(as_lines(listed)),
    "a.csv": as_csv,
    "a.tsv": lambda listed: as_csv(listed, "\t"),
    "a.csv.gz": lambda listed: gzip.compress(as_csv(listed)),
    "a.parquet": as_parquet,
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_of_every_layout_and_container_are_texts(tmp_path: Path, layout: str, container: str) -> None:
    path = tmp_path / container
    path.write_bytes(CONTAINERS[container]([LAYOUTS[layout](n) for n in range(NUMBER)]))
    assert list(texts.read(str(path))) == EXPECTED
    assert faults.check(str(path))["valid"] == NUMBER
    recipe = load("almodel-tiny", [f"data.source={path}", "data.tokenizer=bytes"])
    assert isinstance(recipe, PretrainRecipe)
    (counts,) = data_check.findings(recipe)
    trained = documents.load(str(path), tokenizer="bytes")
    assert (counts["tokens"], counts["documents"]) == (trained.tokens, NUMBER)


def test_a_column_is_named_where_the_layout_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(as_lines([{"body": {"raw": f"text {n}"}, "title": "x"} for n in range(NUMBER)]))
    with pytest.raises(UserError) as refused:
        list(texts.read(str(path)))
    assert refused.value.what.endswith("""is of no layout that is read; its columns are "body", "title\"""")
    assert refused.value.fix == "type 'data.columns={text: COLUMN}' with the name of the column"
    recipe = load("almodel-tiny", [f"data.source={path}", "data.columns={text: body.raw}"])
    assert isinstance(recipe, PretrainRecipe) and recipe.data.columns == TextColumns(text="body.raw")
    assert next(texts.read(str(path), columns=recipe.data.columns)) == "text 0"
    (counts,) = data_check.findings(recipe)
    assert counts["documents"] == NUMBER
    with pytest.raises(UserError, match=r"a\.jsonl:1 has no column 'boddy' of data\.columns"):
        next(texts.read(str(path), columns=TextColumns(text="boddy")))


@pytest.mark.parametrize(
    "row", [{"question": "1+1?"}, {"title": "a"}, {"messages": "a"}, {"messages": [{"role": "x"}]}]
)
def test_a_row_that_leaves_its_text_open_is_refused(tmp_path: Path, row: dict[str, Any]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(as_lines([row]))
    with pytest.raises(UserError):
        list(texts.read(str(path)))


def test_a_system_prompt_and_the_input_of_alpaca_are_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    chat = turns("role", "content", "user", "assistant", {"role": "system", "content": "Be brief."})
    path.write_bytes(as_lines([{"messages": chat(0)}, {"instruction": "Add.", "input": "1+1", "output": "2"}]))
    assert list(texts.read(str(path))) == [f"Be brief.\n\n{EXPECTED[0]}", "Add.\n\n1+1\n\n2"]


def test_texts_of_a_store_may_be_compressed(tmp_path: Path) -> None:
    content = gzip.compress(as_lines([LAYOUTS["chat"](n) for n in range(NUMBER)]))
    fsspec.filesystem("memory").pipe("/texts/a.jsonl.gz", content)
    assert list(texts.read("memory://texts/a.jsonl.gz")) == EXPECTED
    fsspec.filesystem("memory").pipe("/texts/a.parquet", as_parquet([LAYOUTS["text"](0)]))
    with pytest.raises(UserError, match="those are read from this machine only"):
        list(texts.read("memory://texts/a.parquet"))


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz"])
def test_a_text_file_is_one_document(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfone\n\ntwo") if suffix == ".txt.gz" else b"\xef\xbb\xbfone\n\ntwo")
    assert list(texts.read(str(path))) == ["one\n\ntwo"]
    assert texts.sampled(str(path)).complete
