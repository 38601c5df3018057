"""Lines for Phase 1: what is drawn is true, and every fault of a file is named."""

import itertools
import json
import struct
import wave
from pathlib import Path

import numpy as np
import pytest

from podwright.data import faults, line_check, line_files, lines, media, pairs, synthetic_pairs
from podwright.data.line_check import CheckOptions
from podwright.errors import UserError
from podwright.recipe.contrastive import Pairs
from tests import verbs


def test_what_is_drawn_is_told_by_its_seed_and_its_sentence(tmp_path: Path) -> None:
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        synthetic_pairs.write(tmp_path / folder, 30, 4, seed)
    same, other = (
        [(tmp_path / x / n).read_bytes() == (tmp_path / "a" / n).read_bytes() for n in ("train.jsonl", "val/00000.wav")]
        for x in "bc"
    )
    assert all(same) and not any(other)
    training, held_out = (
        line_files.read(tmp_path / "a" / f"{part}.jsonl", pairs.reader()) for part in ("train", "val")
    )
    assert training.faults == [] and len(training.good) == 30
    assert {len(pair.contents) for pair in training.good} == {2, 3}
    assert all(set(pair.contents) == {"text", "image", "audio"} for pair in held_out.good)
    assert synthetic_pairs.sentence("flattened", "puffed", "tense", seen=True, heard=True) == (
        "A cat with flattened ears, a puffed tail and a tense body lets out a meow three times in a high voice."
    )
    assert synthetic_pairs.sentence("alert", "lashing", "lateral_recumbent", seen=True, heard=False).endswith(
        "a lateral recumbent body."
    )
    for one in training.good:
        text = str(one.contents.get("text", "ears voice"))
        assert ("ears" in text) >= ("image" in one.contents) and ("voice" in text) >= ("audio" in one.contents)


def test_a_sound_has_as_many_calls_as_its_sentence_says(tmp_path: Path) -> None:
    synthetic_pairs.write(tmp_path, 0, 20, 0)
    for one in line_files.read(tmp_path / "val.jsonl", pairs.reader()).good:
        text, path = one.contents["text"], one.contents["audio"]
        assert isinstance(text, str) and isinstance(path, Path)
        loud = abs(media.sound(path)).reshape(-1, 512).mean(1) > 0.02
        pauses = sum(bool(a and not b) for a, b in itertools.pairwise(loud))
        wanted = next(n for n, word in enumerate(("once", "twice", "three", "four"), 1) if word in text)
        assert pauses == wanted or "purr" in text, (text, pauses)


def check(path: Path, *options: str) -> tuple[int, dict]:
    done = verbs.call("data", "check", str(path), "--json", *options)
    return done.code, json.loads(done.stdout)


def test_a_check_names_every_fault_and_writes_the_good_lines(tmp_path: Path) -> None:
    argv = ["data", "draw", str(tmp_path), "--pairs", "--num-train", "6", "--num-test", "1"]
    assert verbs.call(*argv).code == 0
    path = tmp_path / "train.jsonl"
    good = path.read_text()
    code, found = check(tmp_path)
    assert code == 0 and (found["lines"], found["valid"], list(found["files"])) == (7, 7, ["train", "val"])
    bad = [
        {"text": ["a"], "image": "val/00000.png"},
        {"text": "a", "image": "none.png"},
        {"other": 1, "text": ""},
        {"text": "\ud800", "audio": 3},
    ]
    path.write_text(
        good + "".join(json.dumps(x) + "\n" for x in bad) + '{"text": "alone"}\n{"video": null, "text": "x"\n'
    )
    code, found = check(path, "--fix")
    assert code == 1 and (found["lines"], found["valid"], found["alone"], found["num_faults"]) == (12, 7, 1, 6)
    said = [f["message"] for f in found["faults"]]
    assert (
        said[0] == 'line 7: text ["a"] is not a text'
        and "line 8: image" in said[1]
        and "there is no such file" in said[1]
    )
    assert (
        said[2] == "line 9: line has none of text, image, audio, video"
        and "half a character" in said[3]
        and "3 is not a path" in said[4]
    )
    assert "is not JSON" in said[5] and found["fields"]["text"] >= 5
    assert Path(found["fixed"]).read_text() == good + '{"text": "alone"}\n'


def test_annotated_lines_are_not_taken_for_pairs() -> None:
    for line, expected in (
        ({"text": "a", "image": "b"}, True),
        ({"image": "a", "audio": "b"}, True),
        ({"instruction": "a", "image": "b", "text": "c"}, False),
        ({"text": "a document"}, False),
        ({"image": "a"}, False),
    ):
        assert pairs.is_pair(line) == expected, line


def test_a_sound_that_is_cut_off_and_a_directory_are_named(tmp_path: Path) -> None:
    synthetic_pairs.write(tmp_path, 0, 6, 0)
    path = next(
        x
        for one in line_files.read(tmp_path / "val.jsonl", pairs.reader()).good
        if isinstance(x := one.contents.get("audio"), Path)
    )
    content = path.read_bytes()
    assert media.check("audio", path) == ""
    path.write_bytes(content[: len(content) // 2])
    says, there = len(content) - 44, len(content) // 2 - 44
    what = f"it is WAV, cut off: its header says {says:,} bytes of sound, {there:,} are there"
    assert media.check("audio", path) == what
    path.write_bytes(content[:40] + b"\xff\xff\xff\xff" + content[44:])  # as written into a pipe
    assert media.check("audio", path) == ""
    assert {media.check(field, tmp_path) for field in ("image", "audio", "video")} == {
        "it cannot be read (a directory, not a file)"
    }


@pytest.mark.parametrize("sample", [np.nan, np.inf, 1e30])
def test_a_sound_with_a_sample_of_which_features_are_no_numbers_is_named(tmp_path: Path, sample: float) -> None:
    """Training ended as NOT_FINITE, and advised to check the data, where nothing was wrong."""
    sound = np.sin(np.arange(16_000) / 20).astype("<f4")
    for name, value in (("good", 0.5), ("loud", -(2.0**31)), ("bad", sample)):
        sound[5000] = value
        chunks = b"fmt " + struct.pack("<IHHIIHH", 16, 3, 1, 16_000, 64_000, 4, 32)
        chunks += b"data" + struct.pack("<I", sound.nbytes) + sound.tobytes()
        (tmp_path / f"{name}.wav").write_bytes(b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks)
    assert [media.check("audio", tmp_path / f"{name}.wav") for name in ("good", "loud", "bad")] == [
        *("", ""),
        "its sound holds samples that are not finite, or beyond 1e+12",
    ]


@pytest.mark.parametrize(("seconds", "kept"), [(1.5, 1.5), (3.5, 2.0)])
def test_only_the_end_of_a_sound_that_is_longer_than_is_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, kept: float
) -> None:
    monkeypatch.setattr(media, "_MOST_SECONDS", 2.0)
    sound = (8000 * np.sin(np.arange(int(seconds * 16_000)) / 20)).astype("<i2")
    with wave.open(str(tmp_path / "a.wav"), "wb") as f:
        f.setparams((1, 2, 16_000, 0, "NONE", ""))
        f.writeframes(sound.tobytes())
    samples = media.sound(tmp_path / "a.wav")
    assert kept * 16_000 <= len(samples) <= (kept + 0.2) * 16_000
    assert np.allclose(samples, sound[: len(samples)] / 2**15, atol=1e-3)


def test_pairs_without_a_text_are_no_annotated_lines(tmp_path: Path) -> None:
    synthetic_pairs.write(tmp_path, 0, 6, 0)
    path = tmp_path / "val.jsonl"
    rows = [json.loads(row) for row in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({key: row[key] for key in ("image", "audio")}) + "\n" for row in rows))
    record = line_check.check(path, CheckOptions())
    assert record is not None and (record["valid"], record["num_faults"]) == (6, 0), record
    path.write_text("".join(json.dumps({"text": row["text"], "audio": ""}) + "\n" for row in rows))
    record = line_check.check(path, CheckOptions())
    assert record is not None and "no pair to train on" in record["faults"][0]["message"], "as a plan refuses it"


@pytest.mark.parametrize(
    ("target", "fault"), [("nowhere", "nowhere, which is not there"), ("val.jsonl", "which is not there")]
)
def test_a_link_to_nothing_is_no_absent_file(tmp_path: Path, target: str, fault: str) -> None:
    """Lines would be held out of train.jsonl in place of those."""
    synthetic_pairs.write(tmp_path, 20, 4, 0)
    (tmp_path / "val.jsonl").unlink()
    (tmp_path / "val.jsonl").symlink_to(target)
    for read in (
        lambda: line_check.check(tmp_path, CheckOptions()),
        lambda: lines.split(tmp_path, Pairs(source=str(tmp_path)), pairs.reader()),
        lambda: faults.check(str(tmp_path / "val.jsonl")),
    ):
        with pytest.raises(UserError, match=f"val.jsonl is a link to .*{fault}"):
            read()
