"""Token shards: text comes back out of them, they are whole or not there, and a check names each thing that is wrong."""

import json
import shutil
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from podwright.data import documents, faults, shards
from podwright.data.tokenizer import Tokenizer
from podwright.data.tokens import Rows
from podwright.errors import UserError

TEXTS = [f"The {n}th text, {'of many words ' * (n % 7)}é\u2028" for n in range(200)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    return path


@pytest.fixture
def made(source: Path, tmp_path: Path) -> Path:
    out = tmp_path / "made"
    shards.tokenize([str(source)], "bytes", out, 1000)
    return out


def test_the_texts_come_back_out_of_rows(made: Path) -> None:
    some = documents.load(str(made))
    assert some.tokenizer and len(some) == len(TEXTS) and len(some.parts) > 5
    ids = np.concatenate([r["tokens"][r["segment_ids"] > 0] for r in Rows(some, 64)])
    assert len(ids) == some.tokens == sum(len(t.encode()) + 2 for t in TEXTS)
    read = some.read([(d, 0, int(n)) for d, n in enumerate(some.length)])
    assert [some.tokenizer.decode(i.tolist()) for i in read] == TEXTS


def test_a_hugging_face_tokenizer_travels_with_its_shards(source: Path, tmp_path: Path) -> None:
    Tokenizer.train(TEXTS, 300).save(tmp_path / "tokenizer")
    found = shards.tokenize([str(source)], str(tmp_path / "tokenizer"), tmp_path / "out", 10**8)
    shutil.rmtree(tmp_path / "tokenizer")
    some = documents.load(str(tmp_path / "out"))
    assert found["shards"] == 1 and found["documents"] == 200 and found["tokens"] == some.tokens and some.tokenizer
    assert some.tokenizer.decode(some.read([(150, 0, int(some.length[150]))])[0].tolist()) == TEXTS[150]


def test_shards_in_a_store(made: Path) -> None:
    store = fsspec.filesystem("memory")
    store.put(str(made), "/bucket/made", recursive=True)
    here, there = documents.load(str(made)), documents.load("memory://bucket/made")
    assert all(np.array_equal(a["tokens"], b["tokens"]) for a, b in zip(Rows(here, 100), Rows(there, 100), strict=True))
    assert there.tokenizer is not None


def test_shards_are_whole_or_not_there(source: Path, made: Path, tmp_path: Path) -> None:
    source.write_text(source.read_text() + '{"txt": 1}\n')
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match=r"a\.jsonl:201 has no column 'text'"):
        shards.tokenize([str(source)], "bytes", tmp_path / "new", 1000)
    assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(UserError, match=r"--out .*made is there already and not empty; name a directory"):
        shards.tokenize([str(source)], "bytes", made, 1000)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ({"files": ["a.bin"]}, "a.bin is not text to tokenize; give files of texts"),
        ({"files": ["none.jsonl"]}, "there is no none.jsonl; check the path"),
        ({"tokenizer": "bites"}, "there is no tokenizer bites; did you mean bytes"),
        ({"out": Path("gs://bucket/out")}, "is not on this machine"),
    ],
)
def test_what_cannot_be_tokenized(
    argv: dict[str, Any], says: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=says):
        shards.tokenize(
            **{"files": [str(source)], "tokenizer": "bytes", "out": tmp_path / "out", "shard_tokens": 10} | argv
        )
    assert not (tmp_path / "out").exists()


def test_counting(source: Path, made: Path) -> None:
    number = sum(len(t.encode()) + 2 for t in TEXTS)
    found = shards.count(str(source), "bytes")
    assert (found["documents"], found["tokens"], found["bytes"]) == (200, number, number - 400)
    assert shards.count(str(made)) == {
        "source": str(made),
        "documents": 200,
        "tokens": number,
        "shards": len([*made.glob("0*.npy")]) // 2,
    }
    with pytest.raises(UserError, match=r"a\.jsonl is text; say what is to count its tokens: --tokenizer bytes"):
        shards.count(str(source))


def test_progress_says_until_when(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_EVERY_S", 0.0)
    on = shards.progress(4_000_000)
    on(1_000_000)
    on(2_000_000)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and said[0].startswith("25% of 4 MB, ") and said[1].endswith(" left")


def test_nothing_is_wrong_with_what_was_just_made(made: Path, source: Path) -> None:
    found = faults.check(str(made))
    assert (
        found["faults"] == []
        and found["valid"] == found["shards"] > 5
        and (found["max_token"], found["vocab_size"]) == (257, 259)
    )
    assert faults.check(str(source)) == {
        "source": str(source),
        "lines": 200,
        "valid": 200,
        "num_faults": 0,
        "faults": [],
        "warnings": [],
    }


def test_every_bad_line_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a"}\n\n{\n{"txt": 1}\n{"text": 1}\n{"text": "\xff"}\n')
    found = faults.check(str(path))
    assert (found["lines"], found["valid"], found["num_faults"]) == (5, 1, 4)
    assert [(f["line"], f["field"]) for f in found["faults"]] == [(3, None), (4, "text"), (5, "text"), (6, None)]
    path.write_text("no json\n" * 300)
    assert (faults.check(str(path))["num_faults"], len(faults.check(str(path))["faults"])) == (300, 100)


@pytest.mark.parametrize(
    ("name", "content", "fault", "warning"),
    [
        ("a.txt", b"a\nb\0c\n", "a.txt is not UTF-8 text; save it as UTF-8", ""),
        ("a.txt", b" \n \n", "", "1 of 1 text are empty; remove these lines"),
        ("a.txt", b"", "a.txt is empty; give a file with plain text", ""),
        ("a.jsonl", b'{"text": ""}\n{"text": "a"}\n', "", "1 of 2 texts are empty; remove these lines"),
        ("a.npy", b"no tokens", "a.npy is no .npy file; write it with numpy.save", ""),
        ("a.bin", b"\1\0\2", "a.bin is no source of text or tokens; give a directory", ""),
    ],
)
def test_a_check_says_what_a_plan_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, fault: str, warning: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    record = faults.check(name)
    assert [f["message"].startswith(fault) for f in record["faults"]] == ([True] if fault else [])
    assert record.get("warnings", []) == ([warning] if warning else [])


def test_generated_text_has_no_file_to_check() -> None:
    with pytest.raises(UserError, match="there is no arithmetic; check the path"):
        faults.check("arithmetic")


def test_every_bad_shard_is_listed(made: Path) -> None:
    def change(name: str, at: int, value: int) -> None:
        ids = np.load(made / name)
        ids[at] = value
        np.save(made / name, ids)

    change("00001.npy", 5, 300)
    change("00001.npy", 9, 300)
    change("00003.npy", 7, 65)
    ends = np.load(made / "00002.ends.npy")
    np.save(made / "00002.ends.npy", ends[:-1])
    found = faults.check(str(made))
    assert found["valid"] == found["shards"] - 3
    assert [
        (f["file"].removeprefix(f"{made}/"), f["offset"], f["message"].removeprefix(f"{made}/"))
        for f in found["faults"]
    ] == [
        ("00001.npy", 5, "00001.npy: token 300 at offset 5 is outside the vocabulary of 259, and 1 more"),
        ("00001.npy", None, "00001.npy is not what was written: its checksum differs from meta.json"),
        ("00002.ends.npy", None, "00002.ends.npy is not what was written, or does not fit 00002.npy"),
        ("00003.npy", None, "00003.npy is not what was written: its checksum differs from meta.json"),
    ]
    assert faults.check(str(made), 200)["valid"] == 0


def test_what_does_not_fit_meta_json(made: Path) -> None:
    def refused(*says: str) -> None:
        with pytest.raises(UserError) as caught:
            documents.load(str(made))
        assert all(s in str(caught.value) for s in says) and "\n" not in str(caught.value), str(caught.value)
        found = faults.check(str(made))
        assert found["num_faults"] >= 1 and any(says[0] in f["message"] for f in found["faults"])

    ends = (made / "00001.ends.npy").read_bytes()
    (made / "00001.ends.npy").write_bytes(ends[:-8])
    refused("00001.ends.npy is not what was written", "copy the directory again")
    (made / "00001.ends.npy").unlink()
    refused("00001.ends.npy is missing; 00001.npy needs it")
    (made / "00001.ends.npy").write_bytes(ends)
    shard = (made / "00000.npy").read_bytes()
    (made / "00000.npy").write_bytes(shard[:-10])
    refused("00000.npy is truncated: it has ", "bytes, meta.json says")
    (made / "00000.npy").unlink()
    refused("00000.npy is missing; meta.json names it")
    meta = json.loads((made / "meta.json").read_text())
    for change, says in [
        ({"format": "x"}, "meta.json cannot be read: format is missing or none of this version"),
        ({"dtype": "float32"}, "meta.json cannot be read: dtype is missing or none of this version"),
        ({"eos_id": None}, "meta.json cannot be read: eos_id is missing or none of this version"),
        ({"shards": []}, "holds no tokens"),
    ]:
        (made / "meta.json").write_text(json.dumps(meta | change))
        refused(says)
    (made / "meta.json").write_text("{")
    refused("meta.json cannot be read: it is no JSON object")
