"""Schemas of answers are data: a second one, of pumps, and what is no schema."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from podwright.cli import app
from podwright.data import line_check, synthetic_images
from podwright.data.line_check import CheckOptions
from podwright.errors import UserError
from podwright.recipe import answers, ethogram
from podwright.recipe.load import load, stored

PUMPS = Path(__file__).with_name("pumps.yaml")
SCHEMA = answers.of(answers.content(str(PUMPS)))
BURST = 'cavitating "hard"'


def response(state: str = "normal", urgency: Any = 1, **others: Any) -> str:
    sound = {"pitch": "low", "heard": "A hum."}
    return json.dumps(
        {"state": state, "plan": {"urgency": urgency, "order": "seal"}, "sound": sound, "advice": "Wait."} | others
    )


def line(number: int, **changes: Any) -> dict[str, Any]:
    return {"instruction": f"Pump {number}?", "response": response(), "image": "val/00000.png"} | changes


def test_the_shipped_schema_is_one_file() -> None:
    assert list(answers.shipped()) == ["ethogram"] and ethogram.SCHEMA.version == "V3" and ethogram.SCHEMA.file == ""
    assert len(ethogram.SCHEMA.fields) == 8 and ethogram.SCHEMA.options[ethogram.RISK] == (1, 2, 3, 4, 5)
    assert ethogram.SCHEMA.allowed(ethogram.RISK, {f"{ethogram.CLASSIFICATION}.affective_state": "distressed"}) == (
        4,
        5,
    )
    assert load("phase2-tiny").model_dump()["data"]["answers"] == "ethogram"


def test_a_recipe_keeps_the_schema_and_needs_the_file_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.yaml").write_text(PUMPS.read_text())
    recipe = load("phase2-tiny", ["data.answers=p.yaml"])
    Path("p.yaml").unlink()
    again = stored(json.loads(recipe.model_dump_json()))
    assert again == recipe and again.data.schema_of_answers.fields == SCHEMA.fields  # type: ignore[union-attr]
    assert again.data.check_options == " --answers p.yaml"  # type: ignore[union-attr]
    typed = json.dumps(recipe.model_dump(mode="json")["data"]["answers"])  # as a report says how to run it again
    assert load("phase2-tiny", [f"data.answers={typed}"]) == recipe
    with pytest.raises(UserError, match=r"data.answers=p.yaml is not there; give a YAML file, or ethogram"):
        load("phase2-tiny", ["data.answers=p.yaml"])
    with pytest.raises(UserError, match=r"data.answers=ethograms is not there; did you mean ethogram"):
        load("phase2-tiny", ["data.answers=ethograms"])
    with pytest.raises(UserError, match=r"data.answers=3 is no schema of answers; give a YAML file, or ethogram"):
        load("phase2-tiny", ["data.answers=3"])


@given(
    st.sampled_from(SCHEMA.options["state"]),
    st.sampled_from(SCHEMA.options["plan.urgency"]),
    st.sampled_from(SCHEMA.options["plan.order"]),
    st.text(min_size=1),
)
def test_an_answer_is_written_in_pieces(state: str, urgency: int, order: str, text: str) -> None:
    values = {
        "state": state,
        "plan.urgency": urgency,
        "plan.order": order,
        "sound.pitch": "low",
        "sound.heard": text,
        "advice": text,
    }
    pieces = SCHEMA.pieces(values)
    assert SCHEMA.flattened(json.loads("".join(piece for _, piece in pieces))) == values
    until = next(n for n, (field, _) in enumerate(pieces) if field == SCHEMA.fields[-1])
    begun = "".join(piece for _, piece in pieces[: until + 1])
    assert SCHEMA.flattened(json.loads(begun + SCHEMA.closing), texts=False) == {f: values[f] for f in SCHEMA.fields}


FAULTS = [
    (response(state="idle"), "state", "'idle' is none of normal, leaking, cavitating"),
    (response(urgency=11), "plan.urgency", "11 is not a whole number from 0 to 10"),
    (response(urgency=False), "plan.urgency", "false is not a whole number from 0 to 10"),
    (response(state="leaking", urgency=6), "plan.urgency", "6 is below 7, the least for state leaking"),
    (response(plan={"urgency": 1}), "plan.order", "is missing"),
    (response(sound={"pitch": "low", "heard": " "}), "sound.heard", "' ' is not a text"),
    (
        response(sound={"pitch": "low", "heard": "x", "level": 3}),
        "sound.level",
        "'level' is no field of the schema of answers pump-2",
    ),
    (response(diagnostic={}), "diagnostic", "'diagnostic' is no field of the schema of answers pump-2"),
]


def test_data_check_judges_by_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    synthetic_images.write(tmp_path, 1, 1, 0)
    bad = [line(n, response=text) for n, (text, _, _) in enumerate(FAULTS)]
    good = [line(90), line(91, response=response(state=BURST, urgency=10))]
    path = tmp_path / "pumps.jsonl"
    path.write_text("".join(json.dumps(x) + "\n" for x in [*bad, *good, line(90, response=response(urgency=2))]))
    monkeypatch.chdir(tmp_path)
    assert app.main(["data", "check", "pumps.jsonl", "--answers", str(PUMPS), "--fix", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["lines"], found["valid"], found["num_faults"]) == (len(FAULTS) + 3, 2, len(FAULTS) + 1)
    for entry, (n, (_, field, message)) in zip(found["faults"], enumerate(FAULTS, 1), strict=False):
        assert (entry["line"], entry["field"]) == (n, field) and message in entry["message"]
    assert f"asks what line {len(FAULTS) + 1} asks, and has another response" in found["faults"][-1]["message"]
    assert found["classes"]["plan.urgency"] == {"1": 1, "10": 1} and found["classes"]["state"] == {
        BURST: 1,
        "normal": 1,
    }
    fixed, _ = line_check.of_annotated(tmp_path / "pumps.good.jsonl", CheckOptions(answers=str(PUMPS)))
    assert fixed["num_faults"] == 0
    assert line_check.of_annotated(path, CheckOptions())[0]["valid"] == 0, "of cats it is no answer"


def changed(**changes: Any) -> dict[str, Any]:
    raw = yaml.safe_load(PUMPS.read_text()) | changes
    return {key: value for key, value in raw.items() if value is not ...}


FIELDS = {"a": ["x", "y"], "b.c": {"from": 1, "to": 3}}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (changed(fields=...), "fields="),
        (changed(fields={}), r"fields=\{\}: "),
        (changed(field={}), "field=\\{\\}: "),
        (changed(version=3), "version=3: "),
        (changed(instruction=["x"]), "instruction="),
        (changed(texts="advice"), "texts='advice': "),
        (changed(texts=["state"]), "state is there twice"),
        (changed(texts=["ad vice"]), "texts.0='ad vice': "),
        (changed(fields=FIELDS | {"1x": ["x", "y"]}, at_least=[]), "fields.1x"),
        (changed(fields=FIELDS | {"a.b": ["x", "y"]}, at_least=[]), "a is a field, and has fields below it"),
        (
            changed(fields=FIELDS | {"d": ["x", "y"], "b.e": ["x", "y"]}, at_least=[]),
            "is not next to the other fields of its group",
        ),
        (changed(fields=FIELDS | {"d.a": ["x", "y"]}, at_least=[]), "two fields end in a, the name under which"),
        (changed(fields=FIELDS | {"d": ["x"]}, at_least=[]), "fields.d=.*two values or more"),
        (changed(fields=FIELDS | {"d": ["x", "x"]}, at_least=[]), "each of them once"),
        (
            changed(fields=FIELDS | {"d": [True, False]}, at_least=[]),
            "fields.d=.*must be a list of texts, in quotes as 'no'",
        ),
        (changed(fields=FIELDS | {"d": ["x", " "]}, at_least=[]), "fields.d=.*must be a list of texts"),
        (changed(fields=FIELDS | {"d": "xy"}, at_least=[]), "fields.d='xy': must be a list"),
        (
            changed(fields=FIELDS | {"d": {"from": 3, "to": 3}}, at_least=[]),
            "fields.d=.*must be a range of at most 101 whole numbers",
        ),
        (
            changed(fields=FIELDS | {"d": {"from": 1.0, "to": 3}}, at_least=[]),
            "fields.d=.*must be a range of at most 101 whole numbers",
        ),
        (
            changed(fields=FIELDS | {"d": {"from": 1}}, at_least=[]),
            "fields.d=.*must be a range of at most 101 whole numbers",
        ),
        (
            changed(fields=FIELDS | {"d": {"from": 0, "to": 500}}, at_least=[]),
            "fields.d=.*must be a range of at most 101 whole numbers",
        ),
        (changed(at_least=3), "at_least=3: "),
        (changed(at_least=[{"field": "state"}]), "at_least.0.value="),
        (changed(at_least=[{"field": "state", "value": 3, "when": {}}]), "3 is no rating of state"),
        (changed(at_least=[{"field": "plan.urgency", "value": 11, "when": {}}]), "11 is no rating of plan.urgency"),
        (
            changed(at_least=[{"field": "plan.urgency", "value": 3, "when": {"sound.pitch": ["low"]}}]),
            "is no field before plan.urgency",
        ),
        (
            changed(at_least=[{"field": "plan.urgency", "value": 3, "when": {"state": ["idle"]}}]),
            "'idle' is no value of state",
        ),
    ],
)
def test_what_is_no_schema_is_said(tmp_path: Path, raw: dict[str, Any], message: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(raw, sort_keys=False))
    with pytest.raises(UserError, match=f"^{path}: .*{message}"):
        load("phase2-tiny", [f"data.answers={path}"])
