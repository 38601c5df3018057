"""Lines of Phase 1 and Phase 2 in the layouts and containers of other programs are read, and are the same as in their own."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from podwright.data import annotated, line_check, line_files, lines, pairs
from podwright.data.line_check import CheckOptions
from podwright.errors import UserError
from podwright.recipe import ethogram
from podwright.recipe.contrastive import Pairs
from tests.unit.data.containers import as_csv, as_lines, as_parquet
from tests.unit.data.test_annotated import GOOD

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
