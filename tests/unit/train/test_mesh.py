"""Which device holds what under the recipe's mesh, on one slice and across slices; what processes know of each other and save for each other.

Positions are computed here by plain loops over the mesh, and the layout of TPU slices is asked of libtpu's own descriptions of them.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import socket
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import mesh_utils, topologies
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from podwright.errors import UserError
from podwright.recipe.pretrain import PretrainMesh
from podwright.recipe.schema import GrpoMesh
from podwright.storage.base import Cause, StorageFailure
from podwright.train import gathered, mesh
from tests.unit.train import mesh_processes

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("want", "devices", "shape"),
    [
        (GrpoMesh(), 8, {"data": 1, "fsdp": 8, "tensor": 1}),
        (GrpoMesh(), 1, {"data": 1, "fsdp": 1, "tensor": 1}),
        (GrpoMesh(data=2, tensor=2), 8, {"data": 2, "fsdp": 2, "tensor": 2}),
        (GrpoMesh(data=2, fsdp=1, tensor=4), 8, {"data": 2, "fsdp": 1, "tensor": 4}),
        (GrpoMesh(tensor=3), 6, {"data": 1, "fsdp": 2, "tensor": 3}),
        (PretrainMesh(context=2, expert=4), 8, {"data": 1, "fsdp": 1, "context": 2, "expert": 4, "tensor": 1}),
        (PretrainMesh(data=2, fsdp=2, context=2), 8, {"data": 2, "fsdp": 2, "context": 2, "expert": 1, "tensor": 1}),
    ],
    ids=str,
)
def test_fsdp_takes_the_devices_that_other_axes_leave(
    want: GrpoMesh | PretrainMesh, devices: int, shape: dict[str, int]
) -> None:
    laid = mesh.make_mesh(want, jax.devices()[:devices])
    assert list(laid.shape.items()) == list(shape.items())
    assert sorted(d.id for d in laid.devices.flat) == list(range(devices))
    assert set(laid.axis_types) == {AxisType.Auto}


def test_without_a_list_all_devices_are_taken() -> None:
    assert mesh.make_mesh(GrpoMesh(tensor=2)).devices.size == len(jax.devices()) == 8


@pytest.mark.parametrize(
    ("want", "devices", "typed"),
    [
        (GrpoMesh(data=3), 8, "data=3 x fsdp=-1 x tensor=1"),
        (GrpoMesh(data=16), 8, "data=16 x fsdp=-1 x tensor=1"),
        (GrpoMesh(tensor=5), 4, "data=1 x fsdp=-1 x tensor=5"),
        (GrpoMesh(fsdp=4), 8, "data=1 x fsdp=4 x tensor=1"),
        (GrpoMesh(data=2, fsdp=4, tensor=2), 8, "data=2 x fsdp=4 x tensor=2"),
        (GrpoMesh(fsdp=0), 8, "data=1 x fsdp=0 x tensor=1"),
        (PretrainMesh(context=3), 8, "data=1 x fsdp=-1 x context=3 x expert=1 x tensor=1"),
    ],
    ids=str,
)
def test_axes_that_do_not_cover_the_devices_are_refused(
    want: GrpoMesh | PretrainMesh, devices: int, typed: str
) -> None:
    with pytest.raises(UserError) as refused:
        mesh.make_mesh(want, jax.devices()[:devices])
    assert refused.value.what == f"mesh {typed} does not cover {devices} device(s)"
    assert "mesh.fsdp=-1" in refused.value.fix


@pytest.fixture
def tpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Devices as libtpu describes them for a topology, without a TPU."""
    pytest.importorskip("libtpu")
    for name in ("TPU_SKIP_MDS_QUERY", "ALLOW_MULTIPLE_LIBTPU_LOAD"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "localhost")

    def devices(name: str, slices: int) -> list[Any]:
        bounds = (2, 2, 1)
        described = topologies.get_topology_desc(
            platform="tpu", topology_name=name, num_slices=slices, chips_per_host_bounds=bounds
        )
        return list(described.devices)

    return devices


def test_on_a_slice_devices_stand_as_its_links_do(tpus: Callable[..., list[Any]]) -> None:
    devices = tpus("v6e:4x4", 1)
    laid = mesh.make_mesh(GrpoMesh(tensor=4), devices)
    np.testing.assert_array_equal(laid.devices, mesh_utils.create_device_mesh((1, 4, 4), devices))
    assert [d.id for d in laid.devices.flat] != [d.id for d in devices]  # which the order of the list is not


@pytest.mark.parametrize(
    ("want", "slices", "across"),
    [
        (GrpoMesh(data=2, tensor=4), 2, {"data"}),
        (GrpoMesh(tensor=4), 2, {"fsdp"}),
        (GrpoMesh(data=4), 2, {"data"}),
        (GrpoMesh(data=2), 4, {"data", "fsdp"}),
        (PretrainMesh(data=2, expert=4), 2, {"data"}),
    ],
    ids=lambda value: ",".join(sorted(value)) if isinstance(value, set) else str(value),
)
def test_only_data_and_fsdp_lie_across_slices(
    tpus: Callable[..., list[Any]], want: GrpoMesh | PretrainMesh, slices: int, across: set[str]
) -> None:
    devices = tpus("v6e:2x4" if isinstance(want, GrpoMesh) else "v6e:4x4", slices)
    laid = mesh.make_mesh(want, devices)
    assert {d.id for d in laid.devices.flat} == {d.id for d in devices} and laid.devices.size == len(devices)
    assert set(laid.axis_types) == {AxisType.Auto}
    numbers = np.vectorize(lambda d: d.slice_index)(laid.devices)
    crossing = set()
    for place, axis in enumerate(laid.axis_names):
        lines = np.moveaxis(numbers, place, -1).reshape(-1, numbers.shape[place])
        crossing |= {axis} if any(len(set(line)) > 1 for line in lines) else set()
        # a slice is entered once along an axis, so that a ring crosses the slow network as rarely as it can
        assert all(len(list(itertools.groupby(line))) == len(set(line)) for line in lines)
    assert crossing == across


def test_a_mesh_that_would_put_tensor_across_slices_is_refused(tpus: Callable[..., list[Any]]) -> None:
    devices = tpus("v6e:2x2", 2)
    with pytest.raises(UserError) as refused:
        mesh.make_mesh(GrpoMesh(data=1, tensor=8), devices)
    assert refused.value.what == "mesh data=1 x fsdp=1 cannot be shared out to 2 slices"
    assert refused.value.fix == "type mesh.data=2 mesh.fsdp=-1 mesh.tensor=1"
    assert mesh.make_mesh(GrpoMesh(data=2, fsdp=-1, tensor=1), devices).devices.shape == (2, 4, 1)


@pytest.mark.parametrize(("generation", "may"), [("v5e", True), ("v6e", False)])
def test_links_are_split_between_axes_where_jax_would_on_one_slice(
    tpus: Callable[..., list[Any]], generation: str, may: bool
) -> None:
    """8 x 2 devices on the 4 x 4 of a slice, along one side of which two axes have to share the links."""
    devices, want = tpus(f"{generation}:4x4", 2), GrpoMesh(data=2, fsdp=8, tensor=2)
    if may:
        assert mesh.make_mesh(want, devices).devices.shape == (2, 8, 2)
    else:
        with pytest.raises(NotImplementedError):
            mesh.make_mesh(want, devices)


def laid_out(**sizes: int) -> Mesh:
    return mesh.make_mesh(PretrainMesh(**sizes), jax.devices()[: math.prod(sizes.values())])


SIZES = [
    {"data": 2, "fsdp": 2, "context": 1, "expert": 1, "tensor": 2},
    {"data": 1, "fsdp": 2, "context": 2, "expert": 2, "tensor": 1},
    {"data": 2, "fsdp": 1, "context": 2, "expert": 1, "tensor": 2},
    {"data": 1, "fsdp": 1, "context": 1, "expert": 1, "tensor": 1},
    {"data": 2, "fsdp": 2, "context": 1, "expert": 2, "tensor": 1},
]


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "x".join(map(str, sizes.values())))
def test_rows_are_shared_out_over_data_fsdp_and_expert_and_tokens_over_context(sizes: dict[str, int]) -> None:
    laid = laid_out(**sizes)
    num = sizes["data"] * sizes["fsdp"] * sizes["expert"]
    assert mesh.num_batch_shards(laid) == num
    shape = (2 * num, 6, 5)
    rows, tokens = (f(laid).devices_indices_map(shape) for f in (mesh.batch_sharding, mesh.token_sharding))
    for d, f, c, e, t in np.ndindex(*laid.devices.shape):
        device = laid.devices[d, f, c, e, t]
        row = (d * sizes["fsdp"] + f) * sizes["expert"] + e
        part = 6 // sizes["context"]
        where = [s.indices(n) for s, n in zip(rows[device], shape, strict=True)]
        assert where == [(2 * row, 2 * row + 2, 1), (0, 6, 1), (0, 5, 1)]
        where = [s.indices(n) for s, n in zip(tokens[device], shape, strict=True)]
        assert where == [(2 * row, 2 * row + 2, 1), (part * c, part * c + part, 1), (0, 5, 1)]


def test_a_mesh_of_grpo_shares_out_rows_and_not_tokens() -> None:
    laid = mesh.make_mesh(GrpoMesh(data=2, tensor=2))
    assert mesh.num_batch_shards(laid) == 4
    assert mesh.batch_sharding(laid).shard_shape((8, 6)) == mesh.token_sharding(laid).shard_shape((8, 6)) == (2, 6)


def test_rows_that_the_shards_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="partitioned 4 times, but the dimension size is 6"):
        mesh.to_device(np.zeros((6, 2)), laid_out(data=2, fsdp=2))


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "x".join(map(str, sizes.values())))
def test_values_come_back_from_the_devices_as_they_were(sizes: dict[str, int]) -> None:
    laid = laid_out(**sizes)
    value = np.random.default_rng(0).integers(0, 99, (8, 3, 2)).astype(np.int16)
    array = mesh.to_device(value, laid)
    assert array.sharding.is_equivalent_to(mesh.batch_sharding(laid), 3) and array.dtype == np.int16
    np.testing.assert_array_equal(mesh.gather(array), value)
    rows = mesh.own_rows(array)
    assert sorted(rows) == list(range(8))
    np.testing.assert_array_equal([rows[i] for i in range(8)], value)


def test_what_is_gathered_is_all_of_an_array_however_it_is_sharded() -> None:
    laid = laid_out(fsdp=4, tensor=2)
    value = np.arange(64.0).reshape(8, 8).astype(np.float32)
    array = jax.device_put(value, NamedSharding(laid, PartitionSpec("tensor", "fsdp")))
    found = mesh.gather(array)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, value)


def test_a_process_that_the_launcher_counts_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PROCESS_ID", "0")
    mesh.require_own_number()
    monkeypatch.setenv("JAX_PROCESS_ID", "3")
    with pytest.raises(UserError, match="is process 0 for jax, and 3 for the launcher; resume the run"):
        mesh.require_own_number()


def test_processes_wait_for_one_that_installs_its_packages_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **options: given.update(options))
    for name, value in {"COORDINATOR_ADDRESS": "host:1", "NUM_PROCESSES": "2", "PROCESS_ID": "1"}.items():
        monkeypatch.setenv(f"JAX_{name}", value)
    monkeypatch.setattr(mesh.interface, "choose", lambda *_: "")  # this process has its devices
    mesh.start_processes()
    assert given["initialization_timeout"] >= 1800


@pytest.mark.parametrize("text", ["0", "-1", "abc", "", "nan"])
def test_a_share_of_memory_that_is_none_is_one_line(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.delenv("JAX_COORDINATOR_ADDRESS", raising=False)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", text)
    with pytest.raises(UserError, match=r"is no share of a GPU's memory; type XLA_PYTHON_CLIENT_MEM_FRACTION=0.92"):
        mesh.start_processes()


def test_each_process_asks_itself_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_COORDINATOR_ADDRESS", raising=False)
    mesh.start_processes()
    assert jax.process_count() == 1
    value, array = object(), np.array([1, 2])
    assert mesh.from_first(lambda: value) is value
    assert mesh.gathered(value) == [value]
    assert mesh.combined(array) is array
    assert mesh.anywhere(True) is True and mesh.anywhere(False) is False
    answers = iter([False, True])
    stops = mesh.agreed(lambda: next(answers))
    assert [stops(), stops()] == [False, True]
    mesh.tell("key", "word")
    assert mesh.look_up("key") is None


@pytest.mark.parametrize(
    "fault",
    [UserError("what", "fix", "a-code"), StorageFailure("storage gs://b failed", "log in", Cause.LOGIN)],
    ids=repr,
)
def test_a_fault_is_raised_where_it_happened(fault: UserError) -> None:
    with pytest.raises(type(fault)) as raised, mesh.together():
        raise fault
    assert raised.value is fault
    with mesh.together():
        pass
    with pytest.raises(KeyError), mesh.together():
        raise KeyError  # no UserError: it ends the process


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes, with two devices each, knows at the end of mesh_processes.py."""
    folder = tmp_path_factory.mktemp("processes")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    fixed = {
        "XLA_FLAGS": os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=2"),
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_PROCESSES": "2",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", mesh_processes.__name__, str(folder / f"{n}.json")],
            env=os.environ | fixed | {"JAX_PROCESS_ID": str(n)},
            cwd=ROOT,
        )
        for n in range(2)
    ]
    assert [p.wait(120) for p in processes] == [0, 0]
    return [json.loads((folder / f"{n}.json").read_text()) for n in range(2)]


def test_processes_use_compiled_programs_where_they_share_the_folder(known: list[dict[str, Any]]) -> None:
    for record in known:
        found = record["caches"]
        assert found["shares"] == [True, False] and found["shared"] == ""
        assert "programs are compiled at each start: the processes do not share" in found["apart"]
        assert found["programs"][0] == "compiled"
    # each process has a program for its own device: the first one writes its own, and nobody that of the second
    assert known[0]["caches"]["programs"][1] == "cached"


def test_a_decision_is_the_same_in_every_process(known: list[dict[str, Any]]) -> None:
    for rank, record in enumerate(known):
        assert record["processes"] == 2
        assert record["anywhere"] == [False, True, True, True] and record["agreed"] == [True, True]
        assert record["from_first"] == [{"rank": 0, "text": "é" * 700}, 1 - rank]
        assert record["gathered"] == [{"rank": 0, "text": ""}, {"rank": 1, "text": "é" * 300}]
        assert record["combined"] == [3, 0, 1] and record["dtype"] == "bool"
        assert record["words"] == ["word of 0", None]


def test_a_fault_of_one_process_is_raised_in_all(known: list[dict[str, Any]]) -> None:
    for rank, record in enumerate(known):

        def of(number: int, own: int = rank) -> str:
            return f"what {number}" + ("" if number == own else f" (in process {number})")

        assert record["nobody"] == []
        assert record["first"] == ["UserError", of(0), "fix 0", ""]
        assert record["second"] == ["UserError", of(1), "fix 1", ""]
        assert record["both"] == ["UserError", of(rank), f"fix {rank}", ""]
        assert record["storage"] == ["StorageFailure", of(1), "fix 1", "quota"]
        assert record["refused"] == ["UserError", of(0), "fix", ""]


@pytest.mark.parametrize("name", ["rows", "copies"])
def test_each_row_belongs_to_one_process_and_all_reach_every_one(known: list[dict[str, Any]], name: str) -> None:
    """A process gives its own rows only: those of the others are not a number there."""
    own: dict[str, list[float]] = {}
    for record in known:
        assert len(record["arrays"][name]["devices"]) == 4
        np.testing.assert_array_equal(record["arrays"][name]["whole"], mesh_processes.ROWS)
        assert not set(own) & set(record["arrays"][name]["own"])
        own |= record["arrays"][name]["own"]
    np.testing.assert_array_equal([own[str(i)] for i in range(8)], mesh_processes.ROWS)
    # devices of the two take turns: two rows of each device in turn, or two devices with the same rows, of which the first counts
    owners = [[int(i) for i in record["arrays"][name]["own"]] for record in known]
    assert owners == ([[0, 1, 4, 5], [2, 3, 6, 7]] if name == "rows" else [list(range(8)), []])


def arrays(*specs: PartitionSpec) -> dict[str, jax.Array]:
    """Of several kinds and sizes, a -0.0 among them, on eight devices; `specs` for what has rows and columns."""
    laid, rng = mesh.make_mesh(GrpoMesh(data=2, fsdp=2, tensor=2), jax.devices()), np.random.default_rng(0)
    values = {
        "weight": rng.normal(size=(16, 6)).astype(np.float32),
        "columns": -np.zeros((3, 8), np.float32),
        "half": rng.normal(size=(10, 3)).astype(jax.numpy.bfloat16),
        "rows": np.arange(24, dtype=np.int32),
        "step": np.int32(5),
    }
    places = dict(zip(values, (*specs, PartitionSpec(("data", "fsdp")), PartitionSpec()), strict=True))
    return {name: jax.device_put(x, NamedSharding(laid, places[name])) for name, x in values.items()}


SAVED = (PartitionSpec("fsdp", "tensor"), PartitionSpec(None, "fsdp"), PartitionSpec("data", None))
RESUMED = (PartitionSpec("tensor", None), PartitionSpec(None, ("data", "fsdp")), PartitionSpec("tensor"))


def same_bits(one: object, other: object) -> bool:
    a, b = np.asarray(one), np.asarray(other)
    return (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes())


def test_what_the_first_process_saves_for_all_and_sends_to_all_is_the_same_bit_for_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In pieces of 30 bytes or a row; what is sent lies under the shardings of whoever resumes."""
    monkeypatch.setattr(gathered, "PIECE_BYTES", 30)
    saved, wanted = arrays(*SAVED), arrays(*RESUMED)
    whole = gathered.collect(saved)
    assert whole.keys() == saved.keys() and all(same_bits(whole[name], saved[name]) for name in saved)
    abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), wanted)
    sent = gathered.distribute(whole, abstract)
    assert all(same_bits(sent[name], saved[name]) for name in saved)
    assert all(sent[name].sharding == wanted[name].sharding for name in saved)


@pytest.mark.parametrize("name", ["weight", "columns", "half", "rows", "step"])
def test_each_process_fills_in_the_shards_that_it_has_and_no_other(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Two processes of four devices: what the second one has is added to what the first one has."""
    monkeypatch.setattr(gathered, "PIECE_BYTES", 30)
    array, second = arrays(*SAVED)[name], list[np.ndarray]()

    def of_process(number: int) -> Any:
        devices = jax.devices()[4 * number : 4 * number + 4]
        shards = [shard for shard in array.addressable_shards if shard.device in devices]
        fields = {"shape": array.shape, "dtype": array.dtype, "nbytes": array.nbytes}
        return types.SimpleNamespace(addressable_shards=shards, **fields)

    monkeypatch.setattr(gathered.multihost_utils, "broadcast_one_to_all", lambda x, is_source: second.append(x) or x)
    assert gathered._collect(of_process(1), False) is None
    pieces = iter(second)
    monkeypatch.setattr(gathered.multihost_utils, "broadcast_one_to_all", lambda x, is_source: x + next(pieces))
    assert same_bits(gathered._collect(of_process(0), True), array)
    assert next(pieces, None) is None
