"""Rows of packed tokens: nothing lost, nothing twice, the same on any number of hosts and after any resume."""

import itertools
import json
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from podwright.data import documents, faults, shards, token_files, tokens
from podwright.data.documents import Documents
from podwright.data.tokenizer import Tokenizer
from podwright.data.tokens import Rows, batches, split
from podwright.errors import UserError
from podwright.recipe.load import load
from podwright.recipe.pretrain import PretrainRecipe
from podwright.train.pretrain import data_check


def made(lengths: list[int]) -> Documents:
    """Documents whose ids count on, so that each token says which one it is."""
    ids = np.arange(sum(lengths))
    return documents._cut((ids,), [np.cumsum(lengths)], "made", None, None, (ids,))


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and np.array_equal(a[k], b[k]) for k in a)


LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None)
@given(LENGTHS, st.integers(1, 50), st.integers(0, 9), st.integers(0, 3), st.sampled_from([1, 1, 4, 16]))
def test_every_token_stands_once_in_an_epoch(
    lengths: list[int], sequence_length: int, seed: int, epoch: int, multiple_of: int
) -> None:
    rows = Rows(made(lengths), sequence_length, seed=seed, multiple_of=multiple_of)
    found = [rows[epoch * len(rows) + i] for i in range(len(rows))]
    there = np.concatenate([r["tokens"][r["segment_ids"] > 0] for r in found])
    assert np.array_equal(np.sort(there), np.arange(sum(lengths)))
    room = sum(-(-n // multiple_of) * multiple_of for n in lengths)
    assert 0 <= sum(len(r["tokens"]) for r in found) - room < sequence_length


@settings(max_examples=150, deadline=None)
@given(LENGTHS, st.integers(1, 4), st.integers(0, 9))
def test_documents_begin_where_they_are_told_to(lengths: list[int], blocks: int, seed: int) -> None:
    close, apart = (Rows(made(lengths), 8 * blocks, seed=seed, multiple_of=m) for m in (1, 8))
    learnt = []
    for row in apart:
        begins = np.flatnonzero(np.diff(row["segment_ids"], prepend=0) > 0)
        assert not (begins % 8).any() and not row["positions"][begins].any()
        assert not row["tokens"][row["segment_ids"] == 0].any() and not row["loss_mask"][row["segment_ids"] == 0].any()
        targets = row["targets"][row["loss_mask"]]
        assert np.array_equal(targets, row["tokens"][row["loss_mask"]] + 1)
        learnt += targets.tolist()
    assert sorted(learnt) == sorted(t for row in close for t in row["targets"][row["loss_mask"]].tolist())


@settings(max_examples=150, deadline=None)
@given(LENGTHS, st.integers(1, 50), st.integers(0, 9))
def test_segments_positions_and_targets(lengths: list[int], sequence_length: int, seed: int) -> None:
    document_of = np.repeat(np.arange(len(lengths)), lengths)
    learnt = []
    for row in Rows(made(lengths), sequence_length, seed=seed):
        there = row["segment_ids"] > 0
        ids, segments, positions = (row[k][there] for k in ("tokens", "segment_ids", "positions"))
        assert there[: len(ids)].all() and segments[0] == 1
        same_document = document_of[ids][1:] == document_of[ids][:-1]
        assert np.array_equal(np.diff(segments), ~same_document)
        assert np.array_equal(positions[1:], np.where(same_document, positions[:-1] + 1, 0)) and positions[0] == 0
        assert not row["loss_mask"][~there].any() and not row["targets"][~row["loss_mask"]].any()
        targets = row["targets"][row["loss_mask"]]
        assert np.array_equal(targets, row["tokens"][row["loss_mask"]] + 1)
        learnt += targets.tolist()
    firsts = np.cumsum([0, *lengths[:-1]])
    assert sorted(learnt) == sorted(set(range(sum(lengths))) - set(firsts.tolist())), (
        "all but the first token of each document"
    )


def test_the_order_is_drawn_by_seed_and_epoch() -> None:
    some = made([5, 9, 30, 2, 14] * 8)

    def order(seed: int, epoch: int) -> list[int]:
        rows = Rows(some, 16, seed=seed)
        return [int(rows[epoch * len(rows) + i]["tokens"][0]) for i in range(len(rows))]

    assert order(1, 0) == order(1, 0)
    assert len({tuple(order(s, e)) for s, e in itertools.product((1, 2), (0, 1))}) == 4


def test_documents_stand_beside_others_in_every_epoch() -> None:
    """Not only rows come in another order: the documents that they are packed from do."""
    rows = Rows(made([5] * 60), 16, seed=3)

    def neighbours(epoch: int) -> set[tuple[int, int]]:
        pairs: set[tuple[int, int]] = set()
        for i in range(len(rows)):
            row = rows[epoch * len(rows) + i]
            numbers = (row["tokens"][row["segment_ids"] > 0] // 5).tolist()
            pairs |= {(a, b) for a, b in itertools.pairwise(numbers) if a != b}
        return pairs

    first, second = neighbours(0), neighbours(1)
    assert min(len(first), len(second)) > 30 and len(first & second) < 10


def test_rows_of_one_document_come_in_another_order_in_every_epoch() -> None:
    rows = Rows(made([4000]), 10, seed=3)
    epochs = [[int(rows[epoch * len(rows) + i]["tokens"][0]) for i in range(len(rows))] for epoch in (0, 1)]
    assert epochs[0] != epochs[1] and sorted(epochs[0]) == sorted(epochs[1])


def test_the_order_is_the_one_that_runs_have_been_started_with() -> None:
    """A change here makes every resume of a run that began before it read other data."""
    assert tokens._drawn(8, 3, 1, 0).tolist() == [0, 6, 2, 1, 3, 7, 4, 5]


def test_pieces_of_one_long_document_are_apart() -> None:
    rows = Rows(made([4000]), 10)
    firsts = [int(rows[i]["tokens"][0]) for i in range(len(rows))]
    assert sum(b - a == 10 for a, b in itertools.pairwise(firsts)) < 10


def test_hosts_share_the_batch_of_one() -> None:
    rows = Rows(made([7] * 100), 10)
    whole = list(batches(rows, 8, max_epochs=1))
    parts = [list(batches(rows, 8, process_rows=slice(a, a + 4), max_epochs=1)) for a in (0, 4)]
    assert len(whole) == 70 // 8
    for one, *shares in zip(whole, *parts, strict=True):
        assert same(one, {k: np.concatenate([s[k] for s in shares]) for k in one})


@pytest.mark.parametrize("step", [0, 3, 8, 9, 21])
def test_a_resume_goes_on_exactly(step: int) -> None:
    rows = Rows(made([7, 3, 20] * 24), 10)
    assert len(rows) == 72
    straight = list(itertools.islice(batches(rows, 8), 25))
    again = batches(Rows(made([7, 3, 20] * 24), 10), 8, start_step=step)
    for one, other in zip(straight[step:], again, strict=False):
        assert same(one, other)
    again.close()


def test_data_that_is_not_repeated_is_used_up() -> None:
    rows = Rows(made([10] * 10), 10)
    assert len(list(batches(rows, 4, max_epochs=1))) == batches(rows, 4, max_epochs=1).num_steps == 2
    assert len(list(batches(rows, 4, max_epochs=2))) == 5, "a batch may reach into the next epoch"
    assert len(list(batches(rows, 4, start_step=4, max_epochs=2))) == 1
    for step in (5, 9):
        assert list(batches(rows, 4, start_step=step, max_epochs=2)) == []


def test_waiting_is_measured() -> None:
    found = batches(Rows(made([10] * 10), 10), 2)
    next(found)
    assert 0 < found.waited_s < 60
    found.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=12, max_size=40), st.integers(1, 20), st.integers(1, 3), st.integers(0, 5))
def test_held_out_documents_are_never_trained_on(
    lengths: list[int], sequence_length: int, holdout: int, seed: int
) -> None:
    some = made(lengths)
    try:
        train, held = split(some, sequence_length, holdout, seed)
    except UserError:
        assert holdout * sequence_length + 40 > sum(lengths) // 2 or sum(lengths) <= sequence_length
        return
    assert held is not None and len(held) == holdout
    document_of = np.repeat(np.arange(len(lengths)), lengths)
    trained, tested = (
        {int(document_of[t]) for r in rows for t in r["tokens"][r["segment_ids"] > 0]} for rows in (train, held)
    )
    assert not trained & tested
    assert all((r["segment_ids"] > 0).all() for r in held)
    assert split(some, sequence_length, 0, seed)[1] is None


@pytest.mark.parametrize("lengths", [[1000], [900, 50, 50], [500, 500], [3, 990, 7]])
@pytest.mark.parametrize(("holdout", "multiple_of"), [(1, 1), (9, 1), (9, 16), (24, 1)])
def test_of_a_long_document_the_end_is_held_out_and_the_rest_trains(
    lengths: list[int], holdout: int, multiple_of: int
) -> None:
    """Where documents that are held out would be most of the tokens."""
    some = made(lengths)
    train, held = split(some, 20, holdout, 0, multiple_of)
    assert held is not None and len(held) == holdout
    trained, tested = ([t for r in rows for t in r["tokens"][r["segment_ids"] > 0]] for rows in (train, held))
    assert not set(trained) & set(tested)
    assert len(trained) >= len(set(trained)) >= 400
    assert train.documents.tokens + held.documents.tokens == some.tokens


def test_the_words_of_arithmetic_come_back() -> None:
    some = documents.load("arithmetic", tokenizer="bytes", num_documents=300, vocab_size=259)
    assert len(some) == 300 and some.tokenizer is not None
    read = some.read([(0, 0, int(some.length[0]))])[0]
    assert some.tokenizer.decode(read[1:-1].tolist()).rpartition("\n")[2].startswith("#### ")
    train, held = split(some, 128, 4)
    batch = next(batches(train, 4))
    assert batch["tokens"].shape == (4, 128) and held is not None and len(held) == 4


def jsonl(path: Path, *lines: Any) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_a_jsonl_file(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"text": "one"}, "", {"text": "zwö <|endoftext|>"})
    some = documents.load(str(path), tokenizer="bytes")
    assert some.length.tolist() == [5, 4 + 1 + 13 + 2]
    assert some.read([(1, 0, 20)])[0].tolist() == [256, *"zwö <|endoftext|>".encode(), 257]


def test_other_peoples_files(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.array([1, 2, 0, 3, 0], np.uint16))
    np.save(tmp_path / "a.npy", np.array([4, 0, 5], np.int64))
    some = documents.load(str(tmp_path), eos_id=0, vocab_size=6)
    assert [ids.tolist() for ids in some.read([(d, 0, int(n)) for d, n in enumerate(some.length)])] == [
        [4, 0],
        [5],
        [1, 2, 0],
        [3, 0],
    ]
    assert documents.load(str(tmp_path / "b.npy")).length.tolist() == [5], "nothing says where its documents end"
    np.save(tmp_path / "long.npy", np.zeros(2 * token_files.PIECE + 1, np.uint32))
    assert documents.load(str(tmp_path / "long.npy")).length.tolist() == [token_files.PIECE, token_files.PIECE, 1]


def recorded(path: Path, *records: bytes) -> Path:
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()
    return path


def test_array_records(tmp_path: Path) -> None:
    recorded(tmp_path / "a.array_record", np.arange(5, dtype="<u2").tobytes(), b"", np.arange(3, dtype="<u2").tobytes())
    recorded(tmp_path / "b.array_record", np.arange(7, dtype="<u2").tobytes())
    some = documents.load(str(tmp_path), vocab_size=7)
    assert [ids.tolist() for ids in some.read([(d, 0, int(n)) for d, n in enumerate(some.length)])] == [
        [*range(n)] for n in (5, 3, 7)
    ]
    refused("record 0 has 10 bytes, which are no uint32 ids", source=tmp_path, vocab_size=70_000)
    refused("does not say how wide its ids are", source=tmp_path)
    fsspec.filesystem("memory").put(str(tmp_path), "/records", recursive=True)
    refused("are read from this machine only; copy the directory here", source="memory://records", vocab_size=7)
    (tmp_path / "b.array_record").write_bytes((tmp_path / "b.array_record").read_bytes()[:-20])
    refused("b.array_record cannot be read as array_record", source=tmp_path, vocab_size=7)
    record = faults.check(str(tmp_path))
    assert (record["shards"], record["valid"], record["num_faults"]) == (2, 1, 1)
    assert record["faults"][0]["message"].endswith("b.array_record cannot be read as array_record; copy it again")
    recipe = load("almodel-tiny", [f"data.source={tmp_path}"])
    assert isinstance(recipe, PretrainRecipe)
    (finding,) = data_check.findings(recipe)
    assert finding["level"] == "error" and "cannot be read as array_record" in finding["message"]
    recorded(tmp_path / "b.array_record", np.arange(7, dtype="<u2").tobytes())
    assert faults.check(str(tmp_path), 259)["num_faults"] == 0
    (counts,) = data_check.findings(recipe)
    assert (counts["level"], counts["tokens"], counts["documents"]) == ("info", 15, 3)


def test_an_id_of_a_record_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path / "a.array_record", np.arange(5, dtype="<u2").tobytes(), np.array([1, 60_000], "<u2").tobytes())
    assert faults.check(str(tmp_path))["warnings"], "without a vocabulary nothing is known of the ids"
    record = faults.check(str(tmp_path), 259)
    assert (record["valid"], record["num_faults"], record["warnings"]) == (0, 1, [])
    assert "token 60,000 at offset 6 " in record["faults"][0]["message"]
    recipe = load("almodel-tiny", [f"data.source={tmp_path}"])
    assert isinstance(recipe, PretrainRecipe)
    (finding,) = data_check.findings(recipe)
    assert (finding["level"], finding["code"]) == ("error", "outside-vocabulary")
    refused("outside the vocabulary", source=tmp_path, vocab_size=259)


def test_files_in_a_store_are_read_as_those_of_a_disk(tmp_path: Path) -> None:
    """memory:// is a store as gs:// is: asked through fsspec, by ranges."""
    ids = np.random.default_rng(0).integers(0, 50, 3000).astype(np.uint16)
    for a in range(3):
        np.save(tmp_path / f"{a}.npy", ids[1000 * a :][:1000])
        fsspec.filesystem("memory").pipe(f"/bucket/set/{a}.npy", (tmp_path / f"{a}.npy").read_bytes())
    here, there, url = (
        documents.load(s, eos_id=7) for s in (str(tmp_path), "memory://bucket/set", f"file://{tmp_path}")
    )
    assert len(here) > 30 and here.length.tolist() == there.length.tolist() == url.length.tolist()
    for one, other in zip(*(batches(Rows(some, 32), 4, max_epochs=1) for some in (here, there)), strict=True):
        assert same(one, other)


def refused(*says: str, source: Any, **more: Any) -> None:
    with pytest.raises(UserError) as caught:
        documents.load(str(source), **more)
    said = str(caught.value)
    assert all(word in said for word in says), said
    assert "\n" not in said and caught.value.fix


def test_what_is_wrong_with_a_file_is_one_line(tmp_path: Path) -> None:
    def npy(name: str, array: Any) -> Path:
        np.save(tmp_path / name, array)
        return tmp_path / name

    refused("there is no", "none", source=tmp_path / "none")
    (tmp_path / "empty").mkdir()
    refused("empty holds no token shards", "podwright data tokenize", source=tmp_path / "empty")
    (tmp_path / "empty/a.jsonl").write_text("{}")
    refused("empty holds no token shards", "name a file of text in it", source=tmp_path / "empty")
    refused("has the shape (2, 3), not one dimension", source=npy("two.npy", np.zeros((2, 3), np.uint16)))
    for kind in ("float32", ">u2", "bool", "int8", "object"):
        path = npy("other.npy", np.zeros(3, kind))
        refused(f"holds values of the type {kind}, not token ids; save it as one of uint8, uint16", source=path)
    refused("holds no tokens", source=npy("none.npy", np.zeros(0, np.uint16)))
    cut = npy("cut.npy", np.zeros(100, np.uint16))
    cut.write_bytes(cut.read_bytes()[:-20])
    refused("cut.npy is truncated or another file: its header says 100 tokens, 90 are there", source=cut)
    cut.write_bytes(b"")
    refused("cut.npy is no .npy file", source=cut)
    cut.write_bytes(b"no array at all")
    refused("cut.npy is no .npy file", source=cut)
    (tmp_path / "a.bin").write_bytes(b"123")
    refused("a.bin is no source of text or tokens", ".npy, .txt or .jsonl", source=tmp_path / "a.bin")


def test_what_is_wrong_with_a_line_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for line, said in [
        ("{", "a.jsonl:3 is not JSON"),
        ({"txt": ""}, "a.jsonl:3 has no column 'text' and is of no layout that is read; its columns are \"txt\"; type"),
        ([1], "a.jsonl:3 is a list, not an object"),
        ({"text": 3}, "a.jsonl:3: text is a number, not text"),
    ]:
        refused(said, source=jsonl(path, {"text": "a"}, {"text": "b"}, line), tokenizer="bytes")
    path.write_bytes(b'{"text": "\xff"}\n')
    refused("a.jsonl:1 is not UTF-8", source=path, tokenizer="bytes")
    refused("has no documents", source=jsonl(path, ""), tokenizer="bytes")
    refused("is text, and there is no tokenizer for it", "bytes", source=path)
    refused("there is no tokenizer bites", source=path, tokenizer="bites")


def test_a_token_outside_the_vocabulary_is_named(tmp_path: Path) -> None:
    ids = np.ones(1000, np.uint16)
    ids[777] = 300
    np.save(tmp_path / "a.npy", ids)
    found = batches(split(documents.load(str(tmp_path), vocab_size=300), 10)[0], 10, max_epochs=1)
    with pytest.raises(
        UserError, match=r"a\.npy: token 300 at offset 777 is outside the vocabulary of 300; tokenize with"
    ):
        list(found)
    assert len(list(batches(split(documents.load(str(tmp_path), vocab_size=301), 10)[0], 10, max_epochs=1))) == 10
    np.save(tmp_path / "a.npy", ids.astype(np.int32) - 2)
    with pytest.raises(UserError, match=r"token -1 at offset (0|999) "):
        list(batches(split(documents.load(str(tmp_path), vocab_size=301), 999)[0], 1))


def test_shards_of_a_larger_vocabulary_than_the_model_s_are_refused_whatever_ids_they_hold(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "abc abc"}\n' * 9)
    shards.tokenize([str(tmp_path / "a.jsonl")], "bytes", tmp_path / "t", 1000, None)
    assert documents.load(str(tmp_path / "t"), vocab_size=259).tokens
    with pytest.raises(UserError, match="has a vocabulary of 259, the model one of 258"):
        documents.load(str(tmp_path / "t"), vocab_size=258)


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    refused(
        "the tokenizer bytes has a vocabulary of 259, the model one of 258",
        source="arithmetic",
        tokenizer="bytes",
        vocab_size=258,
    )


def test_too_little_data_is_one_line() -> None:
    with pytest.raises(
        UserError,
        match=r"sequence_length=100 is more than all 100 tokens of made; type a sequence_length of 10 or less",
    ):
        split(made([50, 50]), 100)
    with pytest.raises(
        UserError, match=r"batch_size=6 is more than the 5 rows of 20 tokens in made; type batch_size=5 or less"
    ):
        batches(Rows(made([100]), 20), 6)
    with pytest.raises(
        UserError,
        match=r"4 rows of 20 tokens held out of made are most of its 100 tokens in 10 documents; hold out fewer",
    ):
        split(made([10] * 10), 20, 4)


def test_a_store_without_its_package_says_what_to_install() -> None:
    refused("nosuch://bucket is no place that can be read", source="nosuch://bucket")


def test_bytes_are_their_own_ids(tmp_path: Path) -> None:
    made = Tokenizer.bytes()
    made.save(tmp_path)
    texts = ["", "héllo <|endoftext|>\n\0\u2028"]
    assert (made.vocab_size, made.end_id, made.pad_id) == (259, 257, 258)
    assert (
        made.documents(texts) == Tokenizer.load(tmp_path).documents(texts) == [[256, *t.encode(), 257] for t in texts]
    )
    assert made.decode(made.documents(texts)[1]) == texts[1]
