"""What a plan says of data to pretrain on, before anything is started: by the readers of training, which refuse the same."""

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

from podwright.data import documents, faults, rows, shards, tokens
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.plan.checks import pretrain, streams, token_lengths
from podwright.plan.findings import Finding
from podwright.recipe.load import load, override
from podwright.recipe.pretrain import PretrainRecipe
from podwright.train.pretrain import data_check
from tests.unit.plan import static

VOCABULARY = 259


def recipe(source: Any, tokenizer: str = "", **more: Any) -> PretrainRecipe:
    sizes = {"sequence_length": 32, "batch_size": 4, "training.max_steps": 10, "evaluation.num_batches": 1}
    values = (
        sizes
        | {"data.source": source, "data.tokenizer": tokenizer}
        | {k.replace("__", "."): v for k, v in more.items()}
    )
    loaded = load("almodel-tiny", [f"{key}={value}" for key, value in values.items()])
    assert isinstance(loaded, PretrainRecipe)
    return loaded


def check(source: Any, tokenizer: str = "", **more: Any) -> list[Finding]:
    found = pretrain.check(recipe(source, tokenizer, **more), None, Path())
    return [finding for finding in found if finding.check == "data"]


def refused(*says: str, source: Any, tokenizer: str = "", **more: Any) -> Finding:
    (found,) = check(source, tokenizer, **more)
    assert found.level == "error" and found.fix
    message = f"{found.message}; {found.fix}"
    assert all(word in message for word in says) and "\n" not in message and len(message) < 400, message
    return found


def stock(source: Any, tokenizer: str = "") -> streams.TokenCounts:
    found = streams.look(recipe(source, tokenizer), VOCABULARY, Path())[0]
    assert found is not None
    return found


def texts(path: Path, listed: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in listed))
    return path


@pytest.fixture
def made(tmp_path: Path) -> Path:
    path = texts(tmp_path / "a.jsonl", [f"text {n} " * 5 for n in range(100)])
    shards.tokenize([str(path)], "bytes", tmp_path / "made", 1000)
    return tmp_path / "made"


def test_shards_are_counted_exactly_and_last_as_long_as_the_trainer_finds(made: Path) -> None:
    info, warning = check(made, training__max_steps=100)
    training, held = tokens.split(documents.load(str(made)), 32, 4, 0)
    number = documents.load(str(made)).tokens
    start = f"{made} holds {number:,} tokens in 100 documents: one epoch is {len(training) // 4} steps of 128 tokens"
    assert held is not None and info.message.startswith(start)
    lasts = tokens.batches(training, 4, max_epochs=1).num_steps
    assert warning.level == "warning" and f"is used up after {lasts} of 100 steps, 1 epoch" in warning.message
    need = -(-400 // len(training))
    assert warning.fix == f"type training.max_steps={lasts} or data.num_epochs={need}, or give more data"
    assert len(check(made, training__max_steps=100, data__num_epochs=0)) == 1
    assert len(check(made, training__max_steps=lasts)) == 1


def test_of_a_large_text_some_documents_stand_for_all(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made.parent / "a.jsonl"
    exact = documents.load(str(path), tokenizer="bytes").tokens
    assert stock(path, "bytes") == streams.TokenCounts(exact, 100)
    for name, size in {"SMALL_BYTES": 3000, "_END_BYTES": 500, "_PIECE_BYTES": 50, "_PIECES": 8}.items():
        monkeypatch.setattr(rows, name, size)
    path.touch()
    found = stock(path, "bytes")
    assert found.tokens == pytest.approx(exact, rel=0.1) and found.documents == pytest.approx(100, abs=10)
    message = check(path, "bytes")[0].message
    assert message.startswith(f"{path} holds about {found.tokens:,} tokens") and found.estimated
    assert message.endswith(f"; `podwright data check {path}` reads all")


def test_tokens_are_counted_by_the_tokenizer_that_trains(tmp_path: Path) -> None:
    listed = [f"some words and {n} more of them " * (n % 9) for n in range(400)]
    path = texts(tmp_path / "a.jsonl", listed)
    Tokenizer.train(listed, 261).save(tmp_path / "t")
    refused("has a vocabulary of 261, the model one of 259", source=path, tokenizer=tmp_path / "t")
    Tokenizer.bytes().save(tmp_path / "t")
    found, exact = stock(path, str(tmp_path / "t")), documents.load(str(path), tokenizer=str(tmp_path / "t"))
    assert found.documents == 400 and not found.estimated and found.tokens == exact.tokens
    (tmp_path / "t/tokenizer.json").write_text("{}")
    refused("the tokenizer in", "cannot be read", source=path, tokenizer=tmp_path / "t")


def test_the_mean_length_of_a_problem_is_true(tmp_path: Path) -> None:
    some = documents.load("arithmetic", tokenizer="bytes", num_documents=2000)
    Tokenizer.bytes().save(tmp_path / "t")
    for tokenizer in ("bytes", str(tmp_path / "t")):
        found, _ = streams.look(recipe("arithmetic", tokenizer, data__num_documents=2000), VOCABULARY, Path())
        assert found is not None and found.tokens == pytest.approx(some.tokens, rel=0.05)
    assert stock("arithmetic", "bytes").documents == 20_000


def test_what_is_wrong_is_one_error(made: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused("empty holds no token shards", source=tmp_path / "empty")
    refused("there is no none; check the path", source="none")
    refused("a.jsonl is text, and there is no tokenizer for it; type data.tokenizer=bytes", source=tmp_path / "a.jsonl")
    refused("there is no tokenizer bites; did you mean bytes?", source="arithmetic", tokenizer="bites")
    number = documents.load(str(made)).tokens
    refused(f"sequence_length=10,000 is more than all {number:,} tokens", source=made, sequence_length=10_000)
    refused("80 rows of 32 tokens held out of", "smaller batch_size", source=made, evaluation__num_batches=20)
    cut = (made / "00001.npy").read_bytes()
    (made / "00001.npy").write_bytes(cut[:-2])
    refused("00001.npy is truncated: it has", source=made)
    (made / "00001.npy").unlink()
    refused("00001.npy is missing", source=made)


@pytest.mark.parametrize("num_empty", [100, 3, 0])
def test_empty_texts_are_warned_of(tmp_path: Path, num_empty: int) -> None:
    path = texts(tmp_path / "a.jsonl", [" " if n < num_empty else "some words" for n in range(100)])
    warnings = [f"{f.message}; {f.fix}" for f in check(path, "bytes", training__max_steps=1) if f.level == "warning"]
    what = f"{num_empty} of 100 texts are empty; remove these lines"
    assert warnings == [f"{path}: {what}"] * (num_empty > 0)
    assert faults.check(str(path))["warnings"] == [what] * (num_empty > 0)


def test_empty_texts_of_a_large_file_are_estimated(tmp_path: Path) -> None:
    path = texts(tmp_path / "a.jsonl", [" "] * 700_000)
    (warning,) = [f.message for f in check(path, "bytes", training__max_steps=1) if f.level == "warning"]
    assert warning == f"{path}: about 700,000 of 700,000 texts are empty"


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


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "a.jsonl has no documents"),
        ("\n\n", "a.jsonl has no documents"),
        ('{"text": "a"}\n{"txt": "a"}\n', "a.jsonl:2 has no column 'text'"),
        ('{"text": "a"}\n{"text": "\\ud800"}\n', "a.jsonl:2: text holds half a character"),
        ('{"text": "a"}\n{"text": \n', "a.jsonl:2 is not JSON: "),
        ("abc,text\n", "a.jsonl:1 is not JSON: "),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    finding = refused(says, source=path, tokenizer="bytes")
    with pytest.raises(UserError) as caught:
        documents.load(str(path), tokenizer="bytes")
    assert (finding.message, finding.fix) == (caught.value.what, caught.value.fix)


def test_a_bad_id_is_named(tmp_path: Path) -> None:
    ids = np.ones(1000, np.int32)
    np.save(tmp_path / "b.npy", ids)
    ids[700] = VOCABULARY
    np.save(tmp_path / "a.npy", ids)
    refused(f"{tmp_path}/a.npy: token 259 at offset 700 is outside the vocabulary of 259", source=tmp_path)
    ids[700] = VOCABULARY - 1
    np.save(tmp_path / "a.npy", ids)
    assert check(tmp_path)[0].level == "info"
    ids[700] = -1
    np.save(tmp_path / "a.npy", ids)
    refused("token -1 at offset 700", source=tmp_path)


def test_a_plan_looks_at_the_first_ids_of_much_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", np.ones(1000, np.uint16))
    monkeypatch.setattr(data_check, "_IDS", (300, 100))
    looked_at = f"300 of its ids were looked at; `podwright data check {tmp_path}` reads all"
    assert looked_at in check(tmp_path)[0].message


def test_a_store_is_looked_at_as_a_disk_is(made: Path) -> None:
    fsspec.filesystem("memory").put(str(made), "/plans/made", recursive=True)
    assert check("memory://plans/made")[0].message == check(made)[0].message.replace(str(made), "memory://plans/made")
    fsspec.filesystem("memory").put(str(made.parent / "a.jsonl"), "/plans/a.jsonl")
    assert (
        check("memory://plans/a.jsonl", "bytes")[0].message.partition("holds")[2]
        == check(made)[0].message.partition("holds")[2]
    )
    fsspec.filesystem("memory").mkdir("/plans/empty")
    refused("memory://plans/empty holds no token shards", source="memory://plans/empty")
    refused("there is no memory://plans/none", source="memory://plans/none")


def test_a_store_that_this_machine_cannot_ask_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "gs", raising=False)
    (found,) = check("gs://b/x")
    assert (found.level, found.fix) == ("inconclusive", "type pip install -e '.[gcs]' in podwright's clone")
    assert found.message == "how long the data lasts is not known: reading gs://b/x needs the package gcsfs"


def test_a_store_behind_no_network_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{free.getsockname()[1]}")
    (found,) = check("gs://away/x")
    assert found.level == "inconclusive"
    start = "how long the data lasts is not known: gs://away/x cannot be reached: no connection to"
    assert found.message.startswith(start)


@pytest.mark.usefixtures("counting_process")
def test_a_store_that_does_not_answer_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and says nothing
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(token_lengths, "_STORE_PATIENCE_S", 4.0)
        (first,) = check("gs://silent/x")
        monkeypatch.setattr(
            token_lengths, "_STORE_PATIENCE_S", 5.0
        )  # which the message would name if it were asked again
        (after,) = check("gs://silent/x")
    assert first.level == after.level == "inconclusive" and first.message == after.message
    assert "has not answered for 4 s" in first.message


def test_data_that_is_too_little_by_an_estimate_only_is_a_warning() -> None:
    near, far = (
        check("arithmetic", "bytes", data__num_documents=1000, sequence_length=length)[0]
        for length in (200_000, 300_000)
    )
    assert near.level == "warning" and "more than all about 122,000" in near.message
    assert far.level == "error", "no estimate is wrong by a factor of two"


def test_what_the_plan_refuses_the_trainer_refuses_too(made: Path) -> None:
    for length, num_batches in ((10_000, 1), (32, 20)):
        with pytest.raises(UserError) as caught:
            tokens.split(documents.load(str(made)), length, 4 * num_batches, 0)
        (found,) = check(made, sequence_length=length, evaluation__num_batches=num_batches)
        assert caught.value.what.partition(" in 100")[0] == found.message


def test_a_text_of_a_single_document_trains_as_the_plan_says(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some words " * 100)
    sizes = {"evaluation__num_batches": 2, "training__max_steps": 100}
    found = check(tmp_path / "a.txt", "bytes", **sizes)[0]
    assert "holds 1,102 tokens, the last 257 of them held out, in 1 document: one epoch is 6 steps" in found.message
    loaded = documents.load(str(tmp_path / "a.txt"), tokenizer="bytes")
    training, held = tokens.split(loaded, 32, 8)
    assert held is not None and held.documents.tokens == 257 and len(training) // 4 == 6


def test_array_records_are_counted_and_damaged_ones_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(tmp_path / "a.array_record"), "group_size:1")
    for _ in range(50):
        writer.write(np.arange(100, dtype="<u2").tobytes())
    writer.close()
    assert stock(tmp_path) == streams.TokenCounts(5000, 50)
    monkeypatch.setattr(rows, "SMALL_BYTES", 10)
    (tmp_path / "a.array_record").touch()
    assert stock(tmp_path).looked_at == 0, "the files are opened only"
    (tmp_path / "a.array_record").write_bytes(bytes(100_000))
    refused("a.array_record cannot be read as array_record", source=tmp_path)


def test_the_end_of_a_large_text_is_read_and_a_pipe_is_not(tmp_path: Path) -> None:
    large = tmp_path / "large.jsonl"
    large.write_text('{"text": "abc"}\n' * 600_000 + '{"text": "ab')
    refused("large.jsonl at byte 9,600,000 is not JSON", source=large, tokenizer="bytes")
    os.mkfifo(tmp_path / "pipe.jsonl")
    refused("pipe.jsonl is a pipe, not a file", source=tmp_path / "pipe.jsonl", tokenizer="bytes")
    refused("/dev/zero is a device, not a file", source="/dev/zero")


@pytest.mark.parametrize(("number", "level"), [(4_000_000, "info"), (6_000_000, "error"), (50_000_000, "error")])
def test_arithmetic_is_held_to_the_problems_that_there_are(number: int, level: str) -> None:
    found = check("arithmetic", "bytes", data__num_documents=number)[-1]
    assert found.level == level
    if level != "info":
        fewer = int(found.fix.removeprefix("type data.num_documents=").removesuffix(" or less"))
        assert check("arithmetic", "bytes", data__num_documents=fewer)[-1].level == "info"


@pytest.mark.parametrize("suffix", ["npy", "array_record"])
def test_a_numbered_set_of_token_files_is_complete(tmp_path: Path, suffix: str) -> None:
    for number in (0, 2):
        with (tmp_path / f"part-0000{number}-of-00003.{suffix}").open("wb") as file:
            np.save(file, np.ones(1000, np.uint16))
    refused(f"{tmp_path} lacks 1 of the 3 part files", source=tmp_path)


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
        [line(500_000 + n) for n in range(30)],
    ],
    ids=["one huge line without text first", "last", "one huge text", "lines of many lengths", "empty lines", "books"],
)
def test_the_tokens_of_a_text_are_estimated_within_a_factor_of_two(tmp_path: Path, content: list[str]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(content))
    exact = sum(len(json.loads(text)["text"]) + 2 for text in "".join(content).split("\n") if text)
    found = stock(path, "bytes")
    assert 0.5 < found.tokens / exact < 2 and found.estimated


@pytest.mark.parametrize("size", [1000, 12_000_000])
@pytest.mark.parametrize("at", [0, 0.5, 1], ids=["first", "between", "last"])
@pytest.mark.parametrize("piece", ["café\xe9".encode("latin-1"), bytes(range(256)), "text".encode("utf-16-le")])
def test_a_text_file_is_utf_8(tmp_path: Path, size: int, at: float, piece: bytes) -> None:
    good, path = "größer ".encode(), tmp_path / "a.txt"
    times = size // len(good)
    path.write_bytes(good * times)
    assert check(path, "bytes", sequence_length=16)[0].level == "info"
    before = round(times * at)
    repeats = 60_000 if size > 10_000 and at == 0.5 else 1  # as much as no gap between pieces hides
    path.write_bytes(good * before + piece * repeats + good * (times - before))
    refused("a.txt is not UTF-8 text", source=path, tokenizer="bytes", sequence_length=16)
    with pytest.raises(UserError, match="as UTF-8"):
        documents.load(str(path), tokenizer="bytes")


@pytest.mark.parametrize("content", [b"%PDF-1.4\n", b"version https://git-lfs.github.com/spec/v1\n"])
def test_a_document_of_another_format_is_no_text(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content + b"x" * 1000)
    refused("a.txt is ", source=path, tokenizer="bytes")


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
