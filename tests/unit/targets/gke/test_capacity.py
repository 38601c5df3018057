"""Options of xpk in a recipe against what the target of a run requests: the target counts, and each difference is a line."""

import json
from pathlib import Path
from typing import Any

import pytest

from podwright.cli.app import main
from podwright.recipe import load
from podwright.targets.gke import capacity, rendering
from tests.unit.recipe.maxtext.example import RAW, example
from tests.unit.targets.gke.entry import ENTRY, gke

R1 = {"reservations": ["r1", "r2"]}


@pytest.mark.parametrize(
    ("options", "settings", "words"),
    [
        ({"spot": ""}, {"provisioning": "spot"}, None),
        ({"on-demand": ""}, {"provisioning": "on-demand"}, None),
        ({"flex": ""}, {"provisioning": "flex-start"}, None),
        ({"reservation": "r2"}, R1, None),
        ({"reservation": "projects/p/reservations/r1"}, R1, None),
        ({"max-restarts": "0"}, R1, None),
        ({"spot": ""}, R1, ("xpk.spot, and the target provisioning=reserved", "provisioning=spot")),
        ({"flex": ""}, {"provisioning": "spot"}, ("xpk.flex, and the target provisioning=spot:", "provisioning=flex-start")),
        ({"reservation": "r3"}, R1, ("xpk.reservation=r3, and", "reservations=[r3]")),
        ({"reservation": "r1"}, {"provisioning": "on-demand"}, ("provisioning=on-demand: the target counts", "reservations=[r1]")),
        ({"on-demand": ""}, {}, ("provisioning=existing:", "provisioning=on-demand")),
        ({"priority": "high"}, {"priority": "low"}, ("xpk.priority=high, and the target priority=low:", "priority=high")),
        ({"priority": "high"}, {"priority": "high"}, None),
        ({"priority": "high"}, {}, None),
    ],
)  # fmt: skip
def test_what_the_target_decides_otherwise_is_one_line(
    options: dict[str, str], settings: dict[str, Any], words: tuple[str, str] | None
) -> None:
    remarks = capacity.differences(example(xpk=options), gke(**settings))
    if words is None:
        assert remarks == []
    else:
        (remark,) = remarks
        assert remark.level == "warning" and words[0] in remark.what
        assert remark.fix == f"leave xpk.{next(iter(options))} out, or set {words[1]} of the target"


def test_the_call_of_xpk_has_the_machines_of_the_recipe_where_the_target_decides_none() -> None:
    recipe = example(xpk={"spot": "", "reservation": "r1", "max-restarts": "0"})
    script = rendering.render(recipe, gke(), "pod", {}).files["submit_toy.sh"]
    assert "--spot" in script and "--reservation=r1" in script


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its path; target `pod` requests spot machines."""
    (tmp_path / "targets.yaml").write_text(json.dumps({"pod": ENTRY | {"provisioning": "spot"}}))
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(load.written(RAW | {"xpk": {"on-demand": ""}}))
    return "r.yaml"


LINE = "the recipe has xpk.on-demand, and the target provisioning=spot: the target counts; leave xpk.on-demand out, or set provisioning=on-demand of the target"


def test_render_says_so(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", recipe, "--on", "pod", "-o", "scripts"]) == 0
    assert f"warning: {LINE}\n" in capsys.readouterr().out
    assert main(["render", recipe, "--on", "pod", "-o", "scripts", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == [LINE]


def test_plan_and_run_say_so(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", recipe, "--on", "pod", "--only", "mesh,target", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [f"{f['message']}; {f['fix']}" for f in findings if "on-demand" in f["message"]] == [LINE]
    main(["run", recipe, "--on", "pod", "--name", "r", "--dry-run", "--force", "--json"])
    out, err = capsys.readouterr()
    assert "the target counts" in out + err
