"""What a run on requested TPUs costs: at prices with a source, else the plan names the key that sets one."""

import json
from pathlib import Path

import pytest

from podwright import targets
from podwright.cli import destination
from podwright.plan.document import CostEntry, Plan
from podwright.plan.make import make
from podwright.plan.options import Destination, PlanOptions
from podwright.plan.prices import LIST_PRICES
from podwright.recipe.load import load
from podwright.slices import parse

ENTRY = {"kind": "tpu-vm", "project": "my-project", "zones": ["us-east5-b"], "accelerator_type": "v6e-16"}
V6E = LIST_PRICES["v6e"]


def planned(where: Destination, **options: object) -> Plan:
    return make(load("qwen3-1.7b-gsm8k-grpo"), where, PlanOptions(**options))  # type: ignore[arg-type]


def of_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **keys: object) -> Destination:
    (tmp_path / "targets.yaml").write_text(json.dumps({"my-v6e-16": ENTRY | keys}))
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    recipe = load("qwen3-1.7b-gsm8k-grpo")
    return destination.of(targets.resolve("my-v6e-16"), recipe, only=["memory"])


def costs(plan: Plan) -> dict[str, CostEntry]:
    assert plan.step is not None
    return {row.provisioning: row for row in plan.step.run.costs}


def test_the_shipped_recipe_costs_the_list_price_on_demand_and_says_that_spot_is_not_known() -> None:
    plan = planned(Destination("v6e-16", parse("v6e-16")))
    assert plan.step and plan.step.run.chip_hours
    rows = costs(plan)
    assert list(rows) == ["on-demand", "spot"]
    assert rows["on-demand"].cost == pytest.approx(plan.step.run.chip_hours * V6E.usd)
    assert rows["on-demand"].source.endswith("2024-12-11")
    assert rows["spot"].cost is None and rows["spot"].source.startswith("not known: ")


def test_an_entry_of_a_tpu_vm_is_planned_as_the_slice_that_it_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, sliced = planned(of_target(tmp_path, monkeypatch)), planned(Destination("v6e-16", parse("v6e-16")))
    assert (entry.slice, entry.memory) == (sliced.slice, sliced.memory)
    assert entry.step and sliced.step and entry.step.step_s == sliced.step.step_s
    assert costs(entry)["spot"].source == "not known: set price of target my-v6e-16, in USD per chip-hour"


@pytest.mark.parametrize("provisioning", ["spot", "on-demand", "reserved"])
def test_the_price_of_a_target_is_that_of_how_it_requests_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provisioning: str
) -> None:
    plan = planned(of_target(tmp_path, monkeypatch, price=1.25, provisioning=provisioning))
    rows = costs(plan)
    assert {name for name, row in rows.items() if row.price == 1.25} == {provisioning}
    assert rows[provisioning].source == "price of target my-v6e-16"
    assert plan.step and (plan.step.run.price, plan.step.run.cost) == (1.25, rows[provisioning].cost)


def test_a_typed_price_stands_alone_and_chips_without_a_source_have_no_cost() -> None:
    typed = planned(Destination("v6e-16", parse("v6e-16")), price=3.0)
    assert typed.step and typed.step.run.price == 3.0 and typed.step.run.costs == ()
    unknown = planned(Destination("v5p-32", parse("v5p-32")))
    assert {row.cost for row in costs(unknown).values()} == {None}
    assert unknown.step and unknown.step.run.cost is None
    gpus = planned(Destination("16xH100-80GB", parse("16xH100-80GB")))
    assert costs(gpus) == {}
