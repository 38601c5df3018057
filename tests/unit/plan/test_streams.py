"""What a plan says of data to pretrain on, before anything is started."""

import json
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from podwright.data import documents, faults, shards, tokens
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.plan.checks import streams, text_sample
from podwright.plan.findings import Finding
from podwright.recipe.load import load, override
from tests.unit.plan import static


def check(source: Any, tokenizer: str = "", **more: Any) -> list[Finding]:
    asked = {"vocab_size": 300, "sequence_length": 32, "batch_size": 4, "max_steps": 10} | more
    return streams.check(str(source), tokenizer, **asked)


def refused(*says: str, source: Any, tokenizer: str = "", **more: Any) -> None:
    (found,) = check(source, tokenizer, **more)
    assert found.level == "error" and found.check == "data" and found.fix
    said = f"{found.message}; {found.fix}"
    assert all(word in said for word in says) and "\n" not in said, said


@pytest.fixture
def made(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"text {n} " * 5}) + "\n" for n in range(100)))
    shards.tokenize([str(path)], "bytes", tmp_path / "made", 1000)
    return tmp_path / "made"


def test_shards_are_counted_exactly_and_last_as_long_as_the_trainer_finds(made: Path) -> None:
    one, two = check(made, num_held=8, max_steps=100)
    rows, held = tokens.split(documents.load(str(made)), 32, 8, 0)
    number = documents.load(str(made)).tokens
    assert (
        f"{made} holds {number:,} tokens in 100 documents: one epoch is {len(rows) // 4} steps of 128 tokens"
        in one.message
    )
    lasts = tokens.batches(rows, 4, max_epochs=1).num_steps
    assert two.level == "warning" and f"is used up after {lasts} of 100 steps, 1 epoch" in two.message
    assert two.fix == f"type training.max_steps={lasts} or data.num_epochs={-(-400 // len(rows))}, or give more data"
    assert held is not None and len(check(made, num_held=8, max_steps=100, num_epochs=0)) == 1
    assert len(check(made, max_steps=lasts)) == 1


def test_text_is_estimated_from_its_ends_and_pieces_between(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made.parent / "a.jsonl"
    exact = documents.load(str(path), tokenizer="bytes").tokens
    assert streams.take(str(path), "bytes") == streams.Stock(exact, 100, "", 259)
    for name, size in {"_SMALL_BYTES": 3000, "_END_BYTES": 500, "_PIECE_BYTES": 50, "_PIECES": 8}.items():
        monkeypatch.setattr(text_sample, name, size)
    found = streams.take(str(path), "bytes")
    assert found.tokens == pytest.approx(exact, rel=0.1)
    assert found.how_counted == "estimated from 0.0 MB at its ends and between"
    message = check(path, "bytes")[0].message
    assert message.startswith(f"{path} holds about {found.tokens:,} tokens")
    assert message.endswith(f"; the rest was not read, `podwright data check {path}` reads all of it")


def test_other_vocabularies_are_estimated_and_held_against_the_model(tmp_path: Path) -> None:
    text = "some words and more of them " * 400
    (tmp_path / "a.txt").write_text(text)
    made = Tokenizer.train([text], 290)
    made.save(tmp_path / "t")
    found = streams.take(str(tmp_path / "a.txt"), str(tmp_path / "t"))
    assert (
        found.tokens == len(text) / 4 + 1
        and "taking 4 bytes for a token; podwright data count counts them" in found.how_counted
    )
    assert found.vocab_size == made.vocab_size
    asked = {"source": tmp_path / "a.txt", "tokenizer": str(tmp_path / "t")}
    refused(f"has a vocabulary of {made.vocab_size}, the model one of 200", **asked, vocab_size=200)
    (tmp_path / "t/tokenizer.json").write_text("{}")
    refused("tokenizer.json cannot be read (it is no tokenizer in JSON)", **asked)


def test_the_mean_length_of_a_problem_is_true() -> None:
    some = documents.load("arithmetic", tokenizer="bytes", num_documents=2000)
    assert streams.take("arithmetic", "bytes", 2000).tokens == pytest.approx(some.tokens, rel=0.05)
    assert streams.take("arithmetic", "bytes").documents == 20_000


def test_what_is_wrong_is_one_error(made: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused("empty holds no token shards", source=tmp_path / "empty")
    refused("there is no none; check the path", source="none")
    refused("a.jsonl is text, and there is no tokenizer for it; type data.tokenizer=bytes", source=tmp_path / "a.jsonl")
    refused("there is no tokenizer bites; did you mean bytes?", source="arithmetic", tokenizer="bites")
    refused(
        "the tokenizer bytes has a vocabulary of 259, the model one of 258",
        source="arithmetic",
        tokenizer="bytes",
        vocab_size=258,
    )
    refused("has a vocabulary of 259, the model one of 200", source=made, vocab_size=200)
    number = documents.load(str(made)).tokens
    refused(f"sequence_length=10,000 is more than all {number:,} tokens", source=made, sequence_length=10_000)
    rows = -(-number // 32)
    refused(
        f"batch_size=400 is more than the {rows} rows of 32 tokens",
        f"type batch_size={rows}",
        source=made,
        batch_size=400,
    )
    refused("80 rows of 32 tokens held out of", "type evaluation.num_batches=16 or less", source=made, num_held=80)
    cut = (made / "00001.npy").read_bytes()
    (made / "00001.npy").write_bytes(cut[:-2])
    refused("00001.npy is truncated: it has", source=made)
    (made / "00001.npy").unlink()
    refused("00001.npy is missing", source=made)


@pytest.mark.parametrize(("number", "num_empty"), [(100, 100), (100, 3), (100, 0), (40_000, 40_000)])
def test_empty_texts_are_warned_of_in_the_words_of_a_check(tmp_path: Path, number: int, num_empty: int) -> None:
    path = tmp_path / "a.jsonl"
    texts = [" " if n < num_empty else "some words" for n in range(number)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    warnings = [f for f in check(path, "bytes", max_steps=1) if f.level == "warning"]
    what = [f"{num_empty:,} of {number:,} texts are empty; remove these lines"] * (num_empty > 0)
    assert [f"{f.message}; {f.fix}" for f in warnings] == [f"{path}: {warning}" for warning in what]
    assert faults.check(str(path))["warnings"] == what


@pytest.mark.parametrize("number", [3, 30, 200])
@pytest.mark.parametrize("sequence_length", [64, 256, 4096])
def test_what_to_type_for_too_few_tokens_is_accepted(number: int, sequence_length: int) -> None:
    batch = ["training.max_steps=1", f"sequence_length={sequence_length}"]
    few = load("almodel-tiny", [*batch, f"data.num_documents={number}"])
    errors = [f for f in static.check(few, None, Path()) if f.level == "error" and f.check == "data"]
    for finding in errors:
        typed = re.findall(r"[\w.]+=\d+", finding.fix.partition(", or ")[0])
        assert typed, finding
        enough = load("almodel-tiny", [f"data.num_documents={number}"])
        enough = override(enough, [*batch, *typed])
        assert not [f for f in static.check(enough, None, Path()) if f.level == "error" and f.check == "data"]
    assert errors or number > 3


def test_a_sequence_that_is_short_enough_is_named_for_a_source_of_few_tokens(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 498 + "\n")
    (finding,) = check(tmp_path / "a.txt", "bytes", sequence_length=400, batch_size=8, num_held=16, sequence_multiple=8)
    assert finding.fix == "type sequence_length=24 evaluation.num_batches=1, or give at least 12,802 tokens"
    (after, *_) = check(tmp_path / "a.txt", "bytes", sequence_length=24, batch_size=8, num_held=8, sequence_multiple=8)
    assert after.level == "info"
    sizes = {"sequence_length": 400, "batch_size": 1, "num_held": 2, "sequence_multiple": 8}
    (finding,) = check(tmp_path / "a.txt", "bytes", **sizes, max_positions=100)
    assert finding.fix.startswith("type sequence_length=96 evaluation.num_batches=1")


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("")
    refused("a.jsonl is empty", source=path, tokenizer="bytes")
    path.write_text("\n\n")
    refused("a.jsonl has no documents", source=path, tokenizer="bytes")
    path.write_text('{"text": "a"}\n{"txt": "a"}\n')
    refused("a.jsonl:2 has no 'text'; found the keys \"txt\"", 'write {"text"', source=path, tokenizer="bytes")
    path.write_text('{"text": "a"}\n{"text": "\\ud800"}\n')
    refused("a.jsonl:2: text holds half a character", "write the whole character", source=path, tokenizer="bytes")
    path.write_text('{"text": "a"}\n{"text": \n')
    refused("a.jsonl:2 is not JSON", source=path, tokenizer="bytes")


def test_a_bad_id_is_named(tmp_path: Path) -> None:
    ids = np.ones(1000, np.int32)
    np.save(tmp_path / "b.npy", ids)
    ids[700] = 300
    np.save(tmp_path / "a.npy", ids)
    refused(f"{tmp_path}/a.npy: token 300 at offset 700 is outside the vocabulary of 300", source=tmp_path)
    assert check(tmp_path, vocab_size=301)[0].level == "info"
    ids[700] = -1
    np.save(tmp_path / "a.npy", ids)
    refused("token -1 at offset 700", source=tmp_path)


def test_a_plan_looks_at_the_first_ids_of_much_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", np.ones(1000, np.uint16))
    monkeypatch.setattr(streams, "_LOOKED_AT", (300, 100))
    assert (
        f"of the ids the first 300 were looked at, `podwright data check {tmp_path}` looks at all"
        in check(tmp_path)[0].message
    )


def test_a_store_is_looked_at_as_a_disk_is(made: Path) -> None:
    fsspec.filesystem("memory").put(str(made), "/plans/made", recursive=True)
    assert check("memory://plans/made")[0].message == check(made)[0].message.replace(str(made), "memory://plans/made")
    fsspec.filesystem("memory").mkdir("/plans/empty")
    refused("memory://plans/empty holds no token shards", source="memory://plans/empty")
    refused("there is no memory://plans/none", source="memory://plans/none")


def test_a_store_that_this_machine_cannot_ask_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "gs", raising=False)
    (found,) = check("gs://b/x")
    assert (found.level, found.fix) == ("inconclusive", "type pip install -e '.[gcs]' in podwright's clone")
    assert found.message == "how long the data lasts is not known: reading gs://b/x needs the package gcsfs"


def test_a_store_behind_no_network_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_PATIENCE_S", 60.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{free.getsockname()[1]}")
    (found,) = check("gs://away/x")
    assert found.level == "inconclusive", "not that it has not answered within 60 s"
    assert found.message.startswith(
        "how long the data lasts is not known: gs://away/x cannot be reached: no connection to"
    )


def test_a_store_that_does_not_answer_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and says nothing
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(streams, "_PATIENCE_S", 2.0)
        (first,) = check("gs://silent/x")
        monkeypatch.setattr(streams, "_PATIENCE_S", 3.0)  # which the message would name if it were waited for again
        (again,) = check("gs://silent/x")
    assert "has not answered within 2 s" in first.message
    assert again.level == "inconclusive" and "has not answered within 2 s" in again.message


def test_data_that_is_too_little_by_an_estimate_only_is_a_warning() -> None:
    near, far = (
        check("arithmetic", "bytes", num_documents=1000, sequence_length=length)[0] for length in (200_000, 300_000)
    )
    assert near.level == "warning" and "more than all about 122,000" in near.message
    assert far.level == "error", "no estimate is wrong by a factor of two"


def test_what_the_plan_refuses_the_trainer_refuses_too(made: Path) -> None:
    for length, held in ((10_000, 0), (32, 80)):
        with pytest.raises(UserError) as caught:
            tokens.split(documents.load(str(made)), length, held, 0)
        (found,) = check(made, sequence_length=length, num_held=held)
        assert caught.value.what.partition(" in 100")[0] == found.message


def test_a_text_of_a_single_document_trains_as_the_plan_says(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some words " * 100)
    (found, _) = check(tmp_path / "a.txt", "bytes", num_held=8, max_steps=100)
    assert "holds 1,102 tokens, the last 257 of them held out, in 1 document: one epoch is 6 steps" in found.message
    loaded = documents.load(str(tmp_path / "a.txt"), tokenizer="bytes")
    training, held = tokens.split(loaded, 32, 8)
    assert held is not None and held.documents.tokens == 257 and len(training) // 4 == 6
    refused("20 rows of 32 tokens held out", source=tmp_path / "a.txt", tokenizer="bytes", num_held=20)
    with pytest.raises(UserError, match="20 rows of 32 tokens held out"):
        tokens.split(loaded, 32, 20)


def test_array_records_are_judged_by_their_size(tmp_path: Path) -> None:
    (tmp_path / "a.array_record").write_bytes(bytes(100_000))
    assert check(tmp_path)[0].message.startswith(f"{tmp_path} holds about 50,000 tokens (by the size of its files")


def test_the_end_of_a_large_text_is_read_and_a_pipe_is_not(tmp_path: Path) -> None:
    large = tmp_path / "large.jsonl"
    large.write_text('{"text": "abc"}\n' * 600_000 + '{"text": "ab')
    refused("large.jsonl at byte 9,600,000 is not JSON", "fix that line", source=large, tokenizer="bytes")
    os.mkfifo(tmp_path / "pipe.jsonl")
    refused("pipe.jsonl is a pipe, not a file", source=tmp_path / "pipe.jsonl", tokenizer="bytes")
    refused("data.source=/dev/zero is a device, not a file", source="/dev/zero")


@pytest.mark.parametrize(("number", "level"), [(4_000_000, "info"), (6_000_000, "error"), (50_000_000, "error")])
def test_arithmetic_is_held_to_the_problems_that_there_are(number: int, level: str) -> None:
    found = check("arithmetic", "bytes", num_documents=number)[-1]
    assert found.level == level
    if level != "info":
        fewer = int(found.fix.removeprefix("type data.num_documents=").removesuffix(" or less"))
        assert check("arithmetic", "bytes", num_documents=fewer)[-1].level == "info"


@pytest.mark.parametrize("suffix", ["npy", "array_record"])
def test_a_numbered_set_of_token_files_is_complete(tmp_path: Path, suffix: str) -> None:
    for number in (0, 2):
        with (tmp_path / f"part-0000{number}-of-00003.{suffix}").open("wb") as file:
            np.save(file, np.ones(1000, np.uint16))
    refused(f"{tmp_path} lacks 1 of the 3 part files: number 1", source=tmp_path)


def line(text: int, other: int = 0) -> str:
    return json.dumps({"text": "a" * text, "other": "b" * other}) + "\n"


@pytest.mark.parametrize(
    "content",
    [
        [line(1, 6_000_000), *[line(1000)] * 8000],
        [*[line(1000)] * 12_000, line(1, 1_500_000)],
        [line(1_500_000), *[line(10, 1000)] * 8000],
        [line(100, 100 * (n % 50)) for n in range(8000)],
        ["\n" * 3_000_000, *[line(500)] * 20_000],
    ],
    ids=["one huge line without text first", "last", "one huge text", "lines of many lengths", "empty lines"],
)
def test_the_tokens_of_a_text_are_estimated_within_a_factor_of_two_or_not_at_all(
    tmp_path: Path, content: list[str]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(content))
    exact = sum(len(json.loads(text)["text"]) + 2 for text in "".join(content).split("\n") if text)
    stock = streams.take(str(path), "bytes")
    assert not 0.5 < stock.tokens / exact < 2 or stock.doubt < 0.5
    assert 0.5 < stock.tokens / exact < 2 or stock.doubt > 0.5
    (finding,) = [f for f in check(path, "bytes") if f.level != "warning"]
    assert (finding.level == "inconclusive") == (stock.doubt > 0.5)
    if stock.doubt > 0.5:
        assert finding.fix == f"type podwright data count {path} --tokenizer bytes"


@pytest.mark.parametrize("size", [1000, 12_000_000])
@pytest.mark.parametrize("at", [0, 0.5, 1], ids=["first", "between", "last"])
@pytest.mark.parametrize(
    ("piece", "fault"),
    [
        ("café\xe9".encode("latin-1"), " is not UTF-8"),
        (bytes(range(256)), " is not "),
        ("text".encode("utf-16-le"), " is not text: byte "),
    ],
)
def test_a_text_file_is_utf_8(tmp_path: Path, size: int, at: float, piece: bytes, fault: str) -> None:
    good, path = "größer ".encode(), tmp_path / "a.txt"
    times = size // len(good)
    path.write_bytes(good * times)
    assert check(path, "bytes", sequence_length=16)[0].level == "info"
    before = round(times * at)
    repeats = 30_000 if size > 10_000 and at == 0.5 else 1  # as much as no gap between pieces hides
    path.write_bytes(good * before + piece * repeats + good * (times - before))
    refused("a.txt", fault, source=path, tokenizer="bytes", sequence_length=16)
    with pytest.raises(UserError, match="as UTF-8"):
        documents.load(str(path), tokenizer="bytes")


@pytest.mark.parametrize(
    ("batch_size", "num_batches"), [(400, 0), (4, 20), (40, 8), (70, 1), (64, 2), (129, 1), (500, 3)]
)
def test_a_smaller_batch_or_test_that_is_named_is_small_enough(made: Path, batch_size: int, num_batches: int) -> None:
    (finding,) = check(made, batch_size=batch_size, num_held=num_batches * batch_size)
    fix = dict(re.findall(r"(batch_size|num_batches)=(\d+)", finding.fix))
    assert finding.level == "error" and fix
    batch_size, num_batches = int(fix.get("batch_size", batch_size)), int(fix.get("num_batches", num_batches))
    assert check(made, batch_size=batch_size, num_held=num_batches * batch_size)[0].level == "info", finding


@pytest.mark.parametrize("described", [True, False], ids=["with meta.json", "plain .npy"])
def test_data_files_beside_shards_are_named_as_not_read(tmp_path: Path, made: Path, described: bool) -> None:
    if not described:
        made = tmp_path / "plain"
        made.mkdir()
        np.save(made / "0.npy", np.arange(2000, dtype=np.uint16) % 250)
    (made / "README.txt").write_text("of what")
    assert {f.level for f in check(made)} == {"info"}
    (made / "more.jsonl").write_text('{"text": "more"}\n')
    warning = next(f for f in check(made) if f.level == "warning")
    assert warning.message == f"{made} holds 1 file that is not read: more.jsonl"
    assert warning.fix == f"type data.source={made}/more.jsonl to read that, or move it out of {made}"
    (record,) = faults.check(str(made))["warnings"]
    assert record == f"{warning.message}; {warning.fix}"
