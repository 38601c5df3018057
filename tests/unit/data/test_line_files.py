"""Lines of Phase 1 and Phase 2 in the layouts and containers of other programs are read, and are the same as in their own."""

import datetime
import decimal
import gzip
import json
import shlex
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

from podwright.data import annotated, line_check, line_files, lines, pairs
from podwright.data.line_check import CheckOptions
from podwright.errors import UserError
from podwright.recipe import ethogram
from podwright.recipe.contrastive import Pairs
from podwright.recipe.load import load
from podwright.recipe.multimodal import MultimodalData
from tests import verbs
from tests.unit.data.containers import as_csv, as_lines, as_parquet
from tests.unit.data.test_annotated import GOOD
from tests.unit.data.test_pairs import check

Rows = list[dict[str, Any]]
CAPTIONS = {
    "image and text": lambda n: {"image": f"{n}.png", "text": f"cat {n}"},
    "caption": lambda n: {"image": f"{n}.png", "caption": f"cat {n}", "width": 4},
    "image_path and sentence": lambda n: {"image_path": f"{n}.png", "sentence": f"cat {n}"},
    "file_name and description": lambda n: {"file_name": f"{n}.png", "description": f"cat {n}"},
}
ANSWERS = {
    "text": lambda n: {"instruction": f"What {n}?", "response": json.dumps(GOOD)},
    "object": lambda n: {"instruction": f"What {n}?", "response": GOOD},
    "prompt": lambda n: {"prompt": f"What {n}?", "completion": json.dumps(GOOD)},
    "LLaVA": lambda n: {
        "conversations": [
            {"from": "human", "value": f"<image>\nWhat {n}?"},
            {"from": "gpt", "value": json.dumps(GOOD)},
        ]
    },
    "messages": lambda n: {
        "messages": [{"role": "user", "content": f"What {n}?"}, {"role": "assistant", "content": json.dumps(GOOD)}]
    },
    "Alpaca": lambda n: {"instruction": f"What {n}?", "input": "", "output": json.dumps(GOOD)},
}


CONTAINERS = {
    "jsonl": as_lines,
    "jsonl.gz": lambda rows: gzip.compress(as_lines(rows)),
    "json": lambda rows: json.dumps(rows).encode(),
    "csv": as_csv,
    "parquet": as_parquet,
}


@pytest.mark.parametrize("layout", CAPTIONS)
@pytest.mark.parametrize("container", CONTAINERS)
def test_captions_are_pairs(tmp_path: Path, container: str, layout: str) -> None:
    path = tmp_path / f"a.{container}"
    path.write_bytes(CONTAINERS[container]([CAPTIONS[layout](n) for n in range(6)]))
    read = lines.sampled(Pairs(source=str(path)), pairs.reader())
    contents = [pair.contents for pair in (*read.lines.training, *read.lines.held_out)]
    assert contents == [{"text": f"cat {n}", "image": tmp_path / f"{n}.png"} for n in range(6)]
    record = line_check.check(path, CheckOptions())
    assert record is not None and record["faults"][0]["message"].endswith("there is no such file")


@pytest.mark.parametrize("layout", ANSWERS)
@pytest.mark.parametrize("container", CONTAINERS)
def test_other_layouts_have_instruction_and_response(tmp_path: Path, container: str, layout: str) -> None:
    if container == "csv" and layout in ("object", "LLaVA", "messages"):
        pytest.skip("CSV holds texts")
    path = tmp_path / f"a.{container}"
    path.write_bytes(CONTAINERS[container]([ANSWERS[layout](n) | {"image": f"{n}.png"} for n in range(3)]))
    file = line_files.read(path, annotated.reader(ethogram.SCHEMA))
    assert file.faults == [] and [example.instruction for example in file.good] == [f"What {n}?" for n in range(3)]
    assert all(example.answer == ethogram.SCHEMA.flattened(GOOD) for example in file.good)


@pytest.mark.parametrize("container", CONTAINERS)
def test_columns_of_any_name_are_read_where_the_recipe_names_them(tmp_path: Path, container: str) -> None:
    """By the trainer's reader of each kind and by the check, in whose file of good lines they stay."""
    captions = [{"img": f"{n}.png", "says": f"cat {n}", "text": "another"} for n in range(6)]
    answers = [{"img": f"{n}.png", "q": f"What {n}?", "a": json.dumps(GOOD)} for n in range(3)]
    for name, written in (("captions", captions), ("answers", answers)):
        (tmp_path / f"{name}.{container}").write_bytes(CONTAINERS[container](written))
    for n in range(6):
        PIL.Image.new("RGB", (8, 8)).save(tmp_path / f"{n}.png")
    path = tmp_path / f"captions.{container}"
    data = Pairs.model_validate({"source": str(path), "columns": {"text": "says", "image": "img"}})
    read = lines.sampled(data, pairs.reader(columns=data.columns))
    contents = [pair.contents for pair in (*read.lines.training, *read.lines.held_out)]
    assert contents == [{"text": f"cat {n}", "image": tmp_path / f"{n}.png"} for n in range(6)]
    code, found = check(path, *shlex.split(data.check_options), "--fix")
    assert (code, found["valid"], found["fields"]) == (0, 6, {"text": 6, "image": 6})
    assert [json.loads(line) for line in Path(found["fixed"]).read_text().splitlines()] == captions

    path = tmp_path / f"answers.{container}"
    columns = {"instruction": "q", "response": "a", "image": "img"}
    asked = MultimodalData.model_validate({"source": str(path), "columns": columns})
    file = line_files.read(path, lines.reader(asked))
    assert file.faults == [] and [example.instruction for example in file.good] == [f"What {n}?" for n in range(3)]
    assert [example.paths for example in file.good] == [{"image": tmp_path / f"{n}.png"} for n in range(3)]
    code, found = check(path, *shlex.split(asked.check_options))
    assert (code, found["valid"], "classes" in found) == (0, 3, True)


def test_columns_that_no_row_has_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(as_csv([{"img": "a.png", "says": "cat"}]))
    for columns, wrong in (({"text": "say"}, "say"), ({"text": "says", "image": "picture"}, "picture")):
        with pytest.raises(UserError, match=f"has no column {wrong!r} of data.columns") as refused:
            line_files.read(path, pairs.reader(columns=columns))
        assert refused.value.code == "no-column" and '"img", "says"' in refused.value.what
    path = tmp_path / "a.jsonl"
    rows = [{"img": "a.png", "says": "cat"}, {"says": "cat", "wav": "a.wav"}, {"img": "b.png", "wav": "b.wav"}]
    path.write_bytes(as_lines(rows))
    file = line_files.read(path, pairs.reader(columns={"text": "says", "image": "img"}))
    fields = [set(pair.contents) for pair in file.good]
    assert fields == [{"text", "image"}, {"text", "audio"}, {"image", "audio"}] and not file.faults


def test_columns_of_fields_that_a_kind_has_not_are_refused() -> None:
    with pytest.raises(UserError, match=r"^data.columns: its key colour must be 'text', 'image', 'audio' or 'video'"):
        load("phase1-tiny", ["data.columns={text: says, colour: hue}"])
    for typed in ('{text: ""}', "{text: 3}", "words", "null"):
        with pytest.raises(UserError, match=r"^data\.columns(\.text)?="):
            load("phase1-tiny", [f"data.columns={typed}"])


def test_a_check_reads_the_columns_that_are_typed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(as_lines([{"q": "1+1?", "a": "2"}, {"q": "1+2?", "a": "three"}]))
    code, found = check(path, "--columns", "{question: q, answer: a}")
    assert (code, found["lines"], found["num_faults"]) == (1, 2, 1) and "'three'" in found["faults"][0]["message"]
    code, found = check(path, "--columns", "{text: q}")
    assert (code, found["valid"]) == (0, 2)
    for split in ("train", "test"):
        (tmp_path / "both").mkdir(exist_ok=True)
        (tmp_path / "both" / f"{split}.jsonl").write_bytes(as_lines([{"q": "1+1?", "a": "2"}]))
    code, found = check(tmp_path / "both", "--columns", "{question: q, answer: a}")
    assert code == 0 and "has 1 line of the 1 of test.jsonl too" in found["warnings"][0], found
    for typed in ("{question: q}", "{colour: q}", "{}", "q", "{"):
        assert (
            "is not what data.columns of any recipe may be"
            in verbs.call("data", "check", str(path), "--columns", typed).stderr
        )
    (tmp_path / "a.npy").write_bytes(b"")
    assert verbs.call("data", "check", str(tmp_path / "a.npy"), "--columns", "{text: q}").code == 2


def test_a_line_that_could_be_read_before_means_the_same(tmp_path: Path) -> None:
    """Other keys are somebody else's where a line has what it needs, and two texts leave open which is meant."""
    path = tmp_path / "a.jsonl"
    rows = [
        {"text": "a", "image": "a.png", "wav": "a.wav"},
        {"caption": "a", "description": "b", "image": "a.png"},
    ]
    path.write_bytes(as_lines(rows))
    file = line_files.read(path, pairs.reader())
    assert [set(pair.contents) for pair in file.good] == [{"text", "image"}, {"image"}]
    row = ANSWERS["text"](0) | {"image": "a.png", "sound": "loud"}
    path.write_bytes(as_lines([row]))
    (example,) = line_files.read(path, annotated.reader(ethogram.SCHEMA)).good
    assert set(example.paths) == {"image"}


def test_what_is_no_json_and_no_utf8_is_one_fault_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(as_lines([CAPTIONS["caption"](0)]) + b'{"text"\n' + '{"text": "é"}\n'.encode("latin-1") + b"[1]\n")
    file = line_files.read(path, pairs.reader())
    assert [fault["line"] for fault in file.faults] == [2, 3, 4] and len(file.good) == 1
    messages = " ".join(fault["message"] for fault in file.faults)
    assert "line 2: is not JSON: " in messages and "line 3: is not UTF-8 text" in messages
    with pytest.raises(UserError, match="has 3 bad lines, such as line 2: is not JSON") as refused:
        line_files.require_good(file)
    assert refused.value.code == "bad-lines" and refused.value.fix == f"type podwright data check {path} --fix"


@pytest.mark.parametrize("leaf", [datetime.datetime(2026, 1, 1), b"walking", decimal.Decimal("1.5")], ids=str)
def test_a_value_of_a_table_that_json_has_not_is_a_fault_of_its_field(tmp_path: Path, leaf: object) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(
        as_parquet([{"instruction": "What?", "image": "a.png", "response": GOOD | {"behavioral_summary": leaf}}])
    )
    file = line_files.read(path, annotated.reader(ethogram.SCHEMA))
    assert file.good == [] and [fault["field"] for fault in file.faults] == ["behavioral_summary"]


def test_a_directory_without_lines_to_train_on_is_refused_as_a_run_refuses_it(tmp_path: Path) -> None:
    (tmp_path / "val.jsonl").write_bytes(as_lines([{"image": "a.png", "text": "cat"}]))
    with pytest.raises(UserError) as refused:
        line_check.check(tmp_path, CheckOptions())
    assert refused.value.code == "no-such-file" and "train.jsonl" in refused.value.what


def test_a_second_file_of_a_part_is_warned_of(tmp_path: Path) -> None:
    for name in ("train.jsonl", "train.csv", "val.jsonl", "val.json"):
        container = name.partition(".")[2]
        (tmp_path / name).write_bytes(CONTAINERS[container]([{"image": "a.png", "text": name}]))
    record = line_check.check(tmp_path, CheckOptions())
    assert record is not None
    (warning,) = record["warnings"]
    assert "train.csv, val.json" in warning
    file = line_files.read(tmp_path / "train.jsonl", pairs.reader())
    assert not list(line_check.between(str(file.path), [file])), "which was named"


def test_the_good_rows_of_a_table_keep_the_columns_that_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    PIL.Image.new("RGB", (8, 8)).save(tmp_path / "0.png")
    captions = [{"image": f"{n}.png", "text": f"cat {n}", "width": n, "licence": "mine"} for n in range(2)]
    path.write_bytes(as_parquet(captions))
    code, found = check(path, "--fix")
    assert (code, found["valid"]) == (1, 1)
    assert [json.loads(line) for line in Path(found["fixed"]).read_text().splitlines()] == captions[:1]


def test_a_long_cell_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(as_csv([{"image": "0.png", "text": "cat " * 40_000}]))
    (pair,) = line_files.read(path, pairs.reader()).good
    assert len(str(pair.contents["text"])) == 160_000
