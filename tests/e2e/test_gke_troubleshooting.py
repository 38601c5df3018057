"""What goes wrong on a pod, by the table of docs/gke.md: each row is provoked on the simulated cloud by a command of the product, which goes
on by itself or says in one sentence what is wrong and what to type. The sentences are those of the page."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.kube import controllers, samples
from tests.e2e.gke_cluster import SLICE, A, B, MaxTextCluster, Pools, simulated
from tests.unit.recipe.maxtext.example import RAW, example
from tests.unit.report.test_maxtext_report import DEEPSEEK

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")
PAGE = Path(__file__).parents[2] / "docs" / "gke.md"
HEADING = "## What goes wrong on a pod"
OTHER_TYPE = (
    "ERROR: (gcloud.container.node-pools.create) ResponseError: code=400, message=Machine type with name "
    "'tpu7x-standard-4t' does not exist in zone."
)
TESTS: dict[str, list[Callable[..., None]]] = {}
"""by row of the page"""


def row(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def mark(test: Callable[..., None]) -> Callable[..., None]:
        TESTS.setdefault(name, []).append(test)
        return test

    return mark


def page() -> dict[str, list[str]]:
    """What the product prints, as the page quotes it, by row."""
    lines = PAGE.read_text().partition(HEADING + "\n")[2].partition("\n## ")[0].splitlines()
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if line.startswith("| ")]
    return {name: re.findall(r"`([^`]+)`", printed) for name, _, printed in cells[1:]}


def says(text: str, name: str, *parts: int) -> None:
    """Whether `text` has the sentences that the page quotes in a row: all, or those of these numbers."""
    quoted = page()[name]
    for part in [quoted[number] for number in parts] or quoted:
        pieces = [re.escape(piece) for piece in part.split("...")]
        assert re.search("[^\n]*".join(pieces), text), f"{part!r} is not in:\n{text}"


@pytest.fixture
def pools(pools: Pools) -> Pools:
    pools.replay(200)
    return pools


def reserved(pools: Pools, *reservations: str, zones: tuple[str, ...] = (A, B), **settings: Any) -> None:
    pools.target(zones=list(zones), reservations=list(reservations), **settings)


def ended(pools: Pools) -> str:
    """How its last attempt, or the run without one, has ended."""
    (event,) = pools.events("ended") + pools.events("abandoned")
    return f"{event['ending']}: {event['detail']}; {event['fix']}"


def finished(pools: Pools) -> None:
    assert [event["ending"] for event in pools.events("ended")] == ["FINISHED"]
    assert pools.left() == [] and pools.left_in_the_cloud() == []


def requested(pools: Pools) -> list[str]:
    """The places, in order."""
    return list(dict.fromkeys(event["request"]["zone"] for event in pools.events("allocation requested")))


def refusals(pools: Pools) -> str:
    return "\n".join(event["reason"] for event in pools.events("allocation refused"))


def findings(pools: Pools) -> str:
    """Of `target check`."""
    _, out, err = pools.call("target", "check", "pod", "--json")
    return "\n".join(f"{f['level']}: {f['message']}; {f['fix']}" for f in json.loads(out or err)["findings"])


def test_the_page_has_a_row_for_each_of_these_tests() -> None:
    assert list(page()) == list(TESTS) and all(page().values())


FLAVOR = "Kueue: `flavor doesn't match node affinity`"


@pytest.mark.long
@row(FLAVOR)
def test_a_queue_without_a_flavor_for_the_slice_is_refused_or_ends_the_run(pools: Pools) -> None:
    pools.target()
    pools.nodes()
    for each in samples.queues(8, topology="4x4"):
        pools.kube.create(each)
    words = [word for word in pools.words() if word != "--force"]
    code, out, err = pools.call(*words)
    assert code == 3 and not pools.path().exists()
    says(out + err, FLAVOR, 0)
    pools.run_toy()
    says(ended(pools), FLAVOR, 1)
    assert pools.left() == []


EXHAUSTED = "`RESOURCE_EXHAUSTED` of a reservation"


@row(EXHAUSTED)
@pytest.mark.long
def test_reservations_that_are_used_up_or_degraded_lead_to_the_next_and_its_zone(pools: Pools) -> None:
    for name, zone, fields in (
        ("r-1", A, {"in_use": 7}),
        ("r-2", A, {"status": "DEGRADED"}),
        ("r-3", A, {"usable": 1, "checked": False}),
        ("r-4", B, {}),
    ):
        pools.gcloud.reservation(name, zone, 8, project="my-project", **fields)
    reserved(pools, "r-1", "r-2", "r-3", "r-4")
    says(findings(pools), EXHAUSTED, 0)
    code, out, err = pools.run_toy()
    assert code == 0, out + err
    says(refusals(pools), EXHAUSTED, 1, 2, 3)
    assert requested(pools)[-1] == f"{B}/r-4" and {node["zone"] for node in pools.gcloud.ledger()} == {B}
    finished(pools)


ZONE = "`Reservation is incorrect for the requested resources`"


@row(ZONE)
@pytest.mark.long
def test_a_reservation_of_another_zone_is_used_where_it_is(pools: Pools) -> None:
    pools.gcloud.reservation("r-1", B, 8, project="my-project")
    pools.gcloud.reservation("r-2", A, 8, in_use=8, project="my-project")
    reserved(pools, "r-1", "r-2")
    code, out, err = pools.run_toy()
    assert code == 0 and requested(pools) == [f"{A}/r-1", f"{B}/r-1"], out + err
    finished(pools)


@row(ZONE)
@pytest.mark.long
def test_reservations_that_no_zone_has_end_the_run_with_where_to_look(pools: Pools) -> None:
    reserved(pools, "r-1")
    code, out, err = pools.run_toy()
    assert code == 1, out + err
    says(ended(pools), ZONE, 0)
    assert requested(pools) == [f"{A}/r-1", f"{B}/r-1"] and ended(pools).startswith("BAD_INPUT")
    assert pools.left_in_the_cloud() == []


@row(ZONE)
@pytest.mark.long
def test_a_reservation_for_other_machines_ends_the_run_with_the_check_that_shows_them(pools: Pools) -> None:
    pools.gcloud.reservation("r-1", A, 8, machine_type="tpu7x-ultranet-4t", project="my-project")
    reserved(pools, "r-1", zones=(A,))
    assert pools.run_toy()[0] == 1
    says(ended(pools), ZONE, 1)
    says(findings(pools), ZONE, 2)
    assert pools.left_in_the_cloud() == []


@row(ZONE)
def test_a_reservation_that_names_another_zone_is_no_setting(pools: Pools) -> None:
    place = "kind=gke", "project=my-project", "cluster=my-cluster", f"zones=[{A}]"
    code, out, err = pools.call("target", "add", "new", *place, f"reservations=[projects/p/zones/{B}/reservations/r]")
    assert code != 0
    says(out + err, ZONE, 3)


MACHINE = "a machine type that does not exist"


@row(MACHINE)
def test_a_machine_type_that_is_none_is_no_setting(pools: Pools) -> None:
    place = "kind=gke", "project=my-project", "cluster=my-cluster", f"zones=[{A}]"
    code, out, err = pools.call("target", "add", "new", *place, "machine_type=ct7x-4x4x8")
    assert code != 0
    says(out + err, MACHINE, 0)


@row(MACHINE)
@pytest.mark.long
@pytest.mark.parametrize("everywhere", [False, True])
def test_a_zone_without_the_machine_type_leads_to_the_next(pools: Pools, everywhere: bool) -> None:
    pools.gcloud.fault("container node-pools create", text=OTHER_TYPE, calls=2 if everywhere else 1)
    code, out, err = pools.run_toy()
    assert code == int(everywhere) and requested(pools) == [A, B], out + err
    says(refusals(pools), MACHINE, 1)
    if everywhere:
        assert ended(pools).startswith("BAD_INPUT")
        says(ended(pools), MACHINE, 1)
    else:
        finished(pools)


STUCK = "a pool that stays in `PROVISIONING`"


@row(STUCK)
@pytest.mark.long
def test_a_pool_that_cannot_be_cancelled_is_waited_for_and_then_deleted(pools: Pools) -> None:
    pools.gcloud.times(pool_retry=25.0)
    pools.gcloud.pool_outcome("stockout")
    started = pools.start_toy()
    pools.waits("Provisioning: ")
    _, stopped, _ = pools.call("stop", "r")
    says(stopped + pools.ends(started, 120), STUCK)
    assert ended(pools).startswith("STOPPED") and pools.left_in_the_cloud() == []
    assert not any("cancel" in call["argv"] for call in pools.gcloud.calls())


ERROR = "a pool in state `ERROR`, and `409 Already exists`"


@row(ERROR)
@pytest.mark.long
def test_an_error_leftover_of_the_run_is_deleted_first_and_one_of_others_stays(pools: Pools) -> None:
    pools.gcloud.foreign_pool("my-cluster", "np", 2, zone=A, project="my-project", status="ERROR")
    pools.gcloud.pool_outcome("stockout")
    pools.gcloud.fault("container node-pools create", kind="killed")  # and the second call is told that it exists
    assert pools.run_toy(LAUNCH_DIES="before:allocation refused")[0] == -9
    (left,) = [each for each in pools.gcloud.pools() if not each["foreign"]]
    assert left["status"] == "ERROR"
    code, out, err = pools.call("resume", "r")
    assert code == 0, out + err
    says(refusals(pools), ERROR, 0)
    assert len({event["allocation"] for event in pools.events("allocation requested")}) == 2
    assert sorted(each["name"] for each in pools.gcloud.pools()) == ["default-pool", "np"]
    finished(pools)


@row(ERROR)
@pytest.mark.long
def test_a_pool_of_others_with_the_name_of_one_of_the_run_ends_it_and_stays(pools: Pools) -> None:
    assert pools.run_toy(LAUNCH_DIES="after:allocation requested")[0] == -9
    (name,) = pools.events("allocation requested")[0]["request"]["details"]["pools"]
    pools.gcloud.foreign_pool("my-cluster", name, 2, zone=A, project="my-project", status="ERROR")
    assert pools.call("resume", "r")[0] == 1
    says(ended(pools), ERROR, 1)
    assert sorted(each["name"] for each in pools.gcloud.pools()) == ["default-pool", name]
    assert pools.left_in_the_cloud() == []


SLICES = "slices that do not reach each other"


@row(SLICES)
@pytest.mark.long
def test_what_several_slices_need_of_a_cluster_is_said_before_and_after(pools: Pools) -> None:
    recipe = example(topology=SLICE, num_slices=2, xpk={}, arguments=RAW["arguments"] | {"steps": "12"})
    (pools.folder / "toy.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
    log = pools.folder / "network.log"
    log.write_text("Num_devices: 32\nMEGASCALE transport: DEADLINE_EXCEEDED: slice 1 did not answer\nEXIT_CODE=1\n")
    pools.kube.set(replay=[{"pod": "*", "file": str(log), "exit_code": 1}])
    code, out, err = pools.run_toy()
    assert code == 1, out + err
    says(out + err, SLICES, 0)
    says(ended(pools), SLICES, 1)
    pools.gcloud.cluster("my-cluster", "us-central1", "my-project", networkConfig={"enableMultiNetworking": True})
    pools.target(zones=[A], provisioning="spot", topology=f"2x {SLICE}")
    assert "info: cluster my-cluster in us-central1 can give hosts several network interfaces" in findings(pools)


MEMORY = "`Ran out of memory in memory space hbm`"


@row(MEMORY)
@pytest.mark.long
def test_device_memory_that_is_full_is_an_ending_with_what_to_change(pools: Pools) -> None:
    log = pools.folder / "memory.log"
    log.write_text(
        "Num_devices: 16\njax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in "
        "memory space hbm. Used 101.32G of 94.75G hbm. Exceeded hbm capacity by 6.57G.\nEXIT_CODE=1\n"
    )
    pools.kube.set(replay=[{"pod": "*", "file": str(log), "exit_code": 1}])
    assert pools.run_toy()[0] == 1
    says(ended(pools), MEMORY)
    assert pools.left_in_the_cloud() == []


DIVIDES = "`should be divisible by 1024, but it is equal to 512`"


@row(DIVIDES)
def test_a_mesh_that_does_not_divide_the_model_is_refused_before_anything_is_created(tmp_path: Path) -> None:
    with simulated(tmp_path) as kube:
        bench = MaxTextCluster(tmp_path, kube)
        bench.recipe("tpu7x-8x8x8", DEEPSEEK | {"ici_fsdp_parallelism": "1024"}, nodes=False)
        code, out, err = bench.call(*bench.typed())
        assert code == 3 and not bench.path().exists() and not bench.created()
        says(out + err, DIVIDES)
        bench.close()
