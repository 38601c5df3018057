"""What processes of a multimodal run find out of each other."""

from pathlib import Path

import pytest

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
