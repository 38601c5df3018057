"""Annotated lines: every fault is found with its line and field, and nothing that a line holds breaks the search."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwright.data import line_check, synthetic_images
from podwright.data.line_check import CheckOptions
from podwright.errors import UserError
from podwright.recipe import ethogram

GOOD = {
    "diagnostic": {
        "physical_markers": {"ears": "forward", "tail": "upright", "posture": "relaxed", "vocalization": "purr"},
        "classification": {
            "ethogram_group": "social_affiliative",
            "affective_state": "content",
            "arousal_level": "low",
            "risk_rating": 1,
        },
    },
    "behavioral_summary": 'It "purrs".',
    "human_actionable_insight": "可以抚摸。",
}
MARKERS, CLASSES = ethogram.MARKERS, ethogram.CLASSIFICATION


def check(path: Path, **options: Any) -> tuple[dict[str, Any], list[int]]:
    record, file = line_check.of_annotated(path, CheckOptions(**options))
    faulty = {fault["line"] for fault in record["faults"]}
    return record, [example.line for example in file.good if example.line not in faulty]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cats")
    synthetic_images.write(made, 3, 1, 0)
    (made / "broken.png").write_bytes(b"\x89PNG\r\n")
    (made / "text.wav").write_text("no sound")
    return made


def answer(**changes: Any) -> str:
    """GOOD with dotted fields (dots written as __) changed; ... takes one out."""
    values = json.loads(json.dumps(GOOD))
    for name, value in changes.items():
        *path, last = {
            "risk": f"{CLASSES}.risk_rating",
            "group": f"{CLASSES}.ethogram_group",
            "ears": f"{MARKERS}.ears",
        }.get(name, name).split(".")
        here = values
        for part in path:
            here = here[part]
        if value is ...:
            del here[last]
        else:
            here[last] = value
    return json.dumps(values)


def line(**changes: Any) -> dict[str, Any]:
    made = {"instruction": "What?", "response": answer(), "image": "val/00000.png"} | changes
    return {k: v for k, v in made.items() if v is not ...}


FAULTS = [
    ("not JSON", None, "is not JSON"),
    ("[1]", None, "is a list, not an object"),
    (line(instruction=...), "instruction", "is missing"),
    (line(instruction=""), "instruction", "'' is not a text"),
    (line(instruction=3), "instruction", "3 is not a text"),
    (line(image=...), "image", "a line needs one of them"),
    (line(image=None), "image", "null is not a path"),
    (line(image=["a"]), "image", '["a"] is not a path'),
    (line(image="absent.png"), "image", "there is no such file"),
    (line(image="broken.png"), "image", "it cannot be read"),
    (line(image="a\0b.png"), "image", "its name holds a NUL byte"),
    (line(image="val"), "image", "it cannot be read"),
    (line(audio="text.wav"), "audio", "it cannot be read"),
    (line(video="val/00000.wav"), "video", "has no pictures"),
    (line(response="{"), "response", "is not JSON"),
    (line(response="[" * 100_000), "response", "is not JSON"),
    (line(response="[]"), "response", "[] is not an object"),
    (line(response='"\\ud800"'), "response", "is not an object"),
    (line(response=answer(behavioral_summary="\ud800")), "behavioral_summary", "is not a text"),
    (line(response=answer(ears="up")), f"{MARKERS}.ears", "'up' is none of forward, sideways"),
    (line(response=answer(ears=["forward"])), f"{MARKERS}.ears", '["forward"] is none of'),
    (line(response=answer(ears=...)), f"{MARKERS}.ears", "is missing"),
    (line(response=answer(diagnostic={})), f"{CLASSES}.risk_rating", "is missing"),
    (line(response=answer(diagnostic=7)), f"{MARKERS}.tail", "is missing"),
    (line(response=answer(mood="good")), "mood", "'mood' is no field of the schema of answers V3"),
    (line(response=answer(risk=True)), f"{CLASSES}.risk_rating", "true is not a whole number from 1 to 5"),
    (line(response=answer(risk=2.0)), f"{CLASSES}.risk_rating", "2.0 is not a whole number"),
    (line(response=answer(risk=6)), f"{CLASSES}.risk_rating", "6 is not a whole number"),
    (line(response=answer(risk="3")), f"{CLASSES}.risk_rating", "'3' is not a whole number"),
    (
        line(response=answer(group="agonistic", risk=3)),
        f"{CLASSES}.risk_rating",
        "3 is below 4, the least for ethogram_group agonistic",
    ),
    (line(response=answer(human_actionable_insight=" ")), "human_actionable_insight", "' ' is not a text"),
]


@pytest.mark.parametrize(("bad", "field", "message"), FAULTS, ids=range(len(FAULTS)))
def test_every_fault_has_its_line_field_and_value(folder: Path, bad: Any, field: str | None, message: str) -> None:
    path = folder / "lines.jsonl"
    path.write_text("\n".join([json.dumps(line()), "", bad if isinstance(bad, str) else json.dumps(bad)]) + "\n")
    found, good = check(path)
    assert (found["lines"], found["valid"], good) == (2, 1, [1])
    mine = [f for f in found["faults"] if f["field"] == field and message in f["message"]]
    assert mine and all(f["line"] == 3 and f["message"].startswith("line 3: ") for f in found["faults"]), found[
        "faults"
    ]
    assert not any("\n" in f["message"] for f in found["faults"])


def test_a_good_file_a_repeated_line_and_a_contradiction(folder: Path) -> None:
    path = folder / "twice.jsonl"
    lines = [line(), line(image="train/00000.png"), line(), line(response=answer(risk=2))]
    path.write_bytes("\n".join(map(json.dumps, lines)).encode())
    found, _ = check(path)
    assert [(f["line"], f["message"]) for f in found["faults"]] == [
        (3, "line 3: line repeats line 1"),
        (4, "line 4: line asks what line 1 asks, and has another response"),
    ]
    assert found["classes"][f"{CLASSES}.risk_rating"] == {"1": 2}
    fixed = Path(check(path, fix=True)[0]["fixed"])
    assert (
        fixed.name == "twice.good.jsonl"
        and fixed.read_bytes() == b"\n".join(path.read_bytes().split(b"\n")[:2]) + b"\n"
    )
    assert check(fixed)[0]["num_faults"] == 0


def test_a_file_of_one_class_is_said_to_be(folder: Path) -> None:
    path = folder / "same.jsonl"
    path.write_text("".join(json.dumps(line(instruction=f"{n}?")) + "\n" for n in range(20)))
    assert "diagnostic.physical_markers.ears is forward in 20 of 20 lines" in check(path)[0]["warnings"][0]
    path.write_text("")
    assert check(path)[0]["faults"][0]["message"].endswith("holds no lines")


def test_lengths_are_held_against_the_budget(folder: Path) -> None:
    with pytest.raises(UserError, match="leave --recipe out, or name a recipe"):
        check(folder / "val.jsonl", recipe="phase2-qwen2.5-0.5b-cluster")
    assert check(folder / "val.jsonl", recipe="phase2-tiny")[0]["valid"] == 1, "a tokenizer learned from lines"
    lines = [json.dumps(line(instruction=word)) for word in ("What?", "What? " * 400)]
    (folder / "long.jsonl").write_text("\n".join(lines))
    (fault,) = check(folder / "long.jsonl", recipe="phase2-tiny")[0]["faults"]
    assert fault["line"] == 2 and "tokens, max_text_length=" in fault["message"]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["forward", "agonistic", "val/00000.png"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*GOOD, "risk_rating", "ears", "x"]) | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)
LINES = st.one_of(
    st.binary(max_size=80).map(lambda b: b.replace(b"\n", b"")),
    JSON.map(lambda v: json.dumps(v).encode()),
    st.fixed_dictionaries(
        {},
        optional={
            "instruction": JSON,
            "response": JSON | JSON.map(json.dumps) | st.just(answer()),
            "image": JSON,
            "audio": JSON,
            "video": JSON | st.text(max_size=300),
        },
    ).map(lambda v: json.dumps(v).encode()),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(LINES, max_size=4))
def test_nothing_that_a_line_holds_breaks_the_search(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.jsonl"
        path.write_bytes(b"\n".join(lines))
        found, good = check(path)
        json.dumps(found, allow_nan=False).encode()
        assert found["valid"] == len(good) <= found["lines"]
        assert all(set(f) == {"line", "field", "code", "message"} for f in found["faults"])
        assert (
            found["lines"] == found["valid"] + len({f["line"] for f in found["faults"] if f["line"]})
            or found["num_faults"] > 100
        )


@given(
    st.fixed_dictionaries({f: st.sampled_from(v) for f, v in ethogram.CHOICES.items()}),
    st.integers(1, 5),
    st.text(min_size=1),
)
def test_what_is_written_in_pieces_is_the_answer(values: dict[str, Any], risk: int, text: str) -> None:
    whole = {**values, ethogram.RISK: risk, "behavioral_summary": text, "human_actionable_insight": text}
    assert ethogram.SCHEMA.flattened(json.loads("".join(piece for _, piece in ethogram.SCHEMA.pieces(whole)))) == whole
