"""What processes of a multimodal run find out of each other."""

from pathlib import Path

import pytest
from torch.distributed import run
from torch.distributed.elastic.multiprocessing import errors

from podwright.train.multimodal.processes import launch
from podwright.train.multimodal.processes.world import World


def test_processes_that_see_the_same_folder_are_neighbours_however_late_one_of_them_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Process 1 leaves its sign when process 0 waits for it, and looks for that of process 0 when that waits again; process 2 has another disk."""
    signs, looked = [], []

    def meet(world: World) -> None:
        (own,) = tmp_path.glob(".near-*-0")
        if not signs:
            signs.append(own.with_name(own.name.removesuffix("0") + "1"))
            signs[0].touch()
        else:
            looked.append(own.exists())

    monkeypatch.setattr(World, "from_first", lambda world, make: make())
    monkeypatch.setattr(World, "barrier", meet)
    joined = World(rank=0, size=3).around(tmp_path)
    assert joined.neighbours == (0, 1) and looked == [True]
    assert list(tmp_path.iterdir()) == signs, "its own sign is gone"


@pytest.mark.parametrize(
    ("codes", "seconds", "first"),
    [((1, -9), (5, 6), (1, -9)), ((1, 2), (6, 5), (1, 2)), ((-11, -9), (5, 6), (0, -11)), ((), (), None)],
)
def test_of_processes_that_failed_the_one_that_a_signal_ended_is_named_else_the_first(
    monkeypatch: pytest.MonkeyPatch,
    codes: tuple[int, ...],
    seconds: tuple[int, ...],
    first: tuple[int, int] | None,
) -> None:
    """The others fail since it is gone."""
    failures = {n: errors.ProcessFailure(n, 100 + n, code, "") for n, code in enumerate(codes)}
    for failure, second in zip(failures.values(), seconds, strict=True):
        failure.timestamp = second

    def torchrun(argv: list[str]) -> None:
        started.append(argv)
        if failures:
            raise errors.ChildFailedError("podwright.train", failures)

    started, environment = list[list[str]](), dict[str, str]()
    monkeypatch.setattr(run, "main", torchrun)
    assert launch.several(2, ["runs/r", "--attempt", "3"], environment) == first
    assert [argv[-5:] for argv in started] == [["-m", "podwright.train", "runs/r", "--attempt", "3"]]
    assert "--nproc-per-node=2" in started[0] and environment == {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "120"}
