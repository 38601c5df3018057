"""The cache of compiled programs: what may hold it, what a kill leaves in it, and that its programs compute the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import compilation_cache

from podwright.rundir import RunDir, read_events
from podwright.train import compile_cache
from podwright.train.emit import Emitter
from podwright.train.grpo import program
from tests.unit.train import small

ROOT = Path(__file__).resolve().parents[3]
CUT = """
import os, signal, sys
from pathlib import Path
from podwright.train import compile_cache
write = Path.write_bytes
def cut(path, data):
    write(path, data[:len(data) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
assert compile_cache.use() == ""
Path.write_bytes = cut
import jax
jax.jit(lambda x: (x * 3).sum())(jax.numpy.arange(7.0))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """That of PODWRIGHT_CACHE, with jax as it is in a new process where the user has named no cache."""
    before = {name: jax.config.values[name] for name in ("jax_compilation_cache_dir", MINIMUM)}
    monkeypatch.setenv("PODWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compilation_cache, "get_file_cache", compilation_cache.get_file_cache)
    jax.config.update("jax_compilation_cache_dir", None)
    as_in_a_new_process()
    yield tmp_path / "cache"
    for name, value in before.items():
        jax.config.update(name, value)
    as_in_a_new_process()


MINIMUM = "jax_persistent_cache_min_compile_time_secs"


def as_in_a_new_process() -> None:
    jax.clear_caches()
    compilation_cache.reset_cache()


def computed(count: compile_cache.ProgramCount) -> tuple[float, str]:
    as_in_a_new_process()
    return float(jax.jit(lambda x: (x * 3).sum())(np.arange(7.0, dtype=np.float32))), count.take()


def entries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*-cache"))


def test_a_second_process_finds_the_programs_of_the_first(folder: Path) -> None:
    count = compile_cache.ProgramCount()
    assert count.take() == "compiled"
    assert compile_cache.use() == "" and computed(count) == (63.0, "compiled")
    assert (folder / "compiled").stat().st_mode & 0o777 == 0o700
    assert [path.parent.parent for path in entries(folder)] == [folder / "compiled"]
    os.utime(entries(folder)[0], (1, 1))
    assert computed(count) == (63.0, "cached")
    assert entries(folder)[0].stat().st_mtime > 1  # was used


def test_a_kill_during_the_write_leaves_no_entry_and_the_next_process_keeps_one(folder: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    killed = subprocess.run([sys.executable, "-c", CUT], cwd=ROOT, env=env, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert entries(folder) == [] and len(list(folder.rglob("*.part"))) == 1
    count = compile_cache.ProgramCount()
    assert compile_cache.use() == "" and computed(count) == (63.0, "compiled")
    assert computed(count) == (63.0, "cached")


@pytest.mark.filterwarnings("ignore:Error reading persistent")
@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b[:-9] + b"\0" * 9])
def test_an_entry_that_cannot_be_read_is_made_again(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    count = compile_cache.ProgramCount()
    compile_cache.use()
    assert computed(count) == (63.0, "compiled")
    for path in entries(folder):
        path.write_bytes(damage(path.read_bytes()))
    assert computed(count) == (63.0, "compiled")
    assert computed(count) == (63.0, "cached")


@pytest.mark.parametrize("place", ["", "compiled"])
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_is_refused(folder: Path, mode: int, place: str) -> None:
    """Of the one above it others could replace it."""
    (folder / "compiled").mkdir(parents=True)
    (folder / place).chmod(mode)
    refusal = compile_cache.use()
    assert "belongs to another user or can be written by others; name a folder of yours in PODWRIGHT_CACHE" in refusal
    assert "\n" not in refusal and not jax.config.values["jax_compilation_cache_dir"]
    count = compile_cache.ProgramCount()
    assert computed(count) == computed(count) == (63.0, "compiled")


def test_a_folder_in_one_like_tmp_is_used(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o1777)
    assert compile_cache.use() == ""


def test_a_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compile_cache.use() == ""
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setattr(os, "geteuid", lambda: (folder / "compiled").stat().st_uid + 1)
    assert "belongs to another user" in compile_cache.use()


def test_a_folder_that_cannot_be_made_is_said_and_nothing_is_raised(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_text("")
    assert f"{folder / 'compiled'} cannot be used (Not a directory)" in compile_cache.use()
    monkeypatch.setenv("PODWRIGHT_CACHE", "~no-user/cache")
    assert "~no-user is no user of this machine" in compile_cache.use()


def test_the_cache_that_a_user_names_to_jax_is_left_as_it_is(folder: Path, tmp_path: Path) -> None:
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "theirs"))
    assert compile_cache.use() == "" and jax.config.values["jax_compilation_cache_dir"] == str(tmp_path / "theirs")
    assert not folder.exists()


def test_another_type_of_cpu_has_another_folder(tmp_path: Path) -> None:
    def named(flags: str, clock: str, name: str = "Xeon") -> str:
        path = tmp_path / "cpuinfo"
        cores = f"model name\t: {name}\ncpu MHz\t\t: {clock}\nflags\t\t: {flags}\n\n"
        path.write_text(cores + cores.replace(clock, "1.0"))
        return compile_cache.cpu_name(path)

    assert named("fpu avx2", "2000") == named("fpu avx2", "2100")
    assert len({named("fpu avx2", "1"), named("fpu avx2 avx512f", "1"), named("fpu avx2", "1", "EPYC")}) == 3
    assert compile_cache.cpu_name(tmp_path / "missing").startswith("cpu-")


def test_the_entries_that_were_not_used_for_longest_are_deleted(folder: Path) -> None:
    top = folder / "compiled"
    for number, name in enumerate(("cpu-1/a-cache", "cpu-2/b-cache", "c-cache", "x/.d-cache.7.part")):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(b"0" * 40)
        now = time.time()
        os.utime(top / name, (now - number, now - number))
    compile_cache.evict(top, 100)
    assert {path.name for path in top.rglob("*") if path.is_file()} == {"a-cache", "b-cache"}


@pytest.mark.long
def test_programs_from_the_cache_compute_the_same_to_the_last_bit(folder: Path) -> None:
    def updated() -> list[np.ndarray]:
        as_in_a_new_process()
        setup = small.setup()
        made, weights = program.programs(setup), small.params(small.setup())
        state = program.new_state(setup, weights)
        trained, figures = made["update"](
            state, small.batch(setup, made, weights, small.params(setup, 1)), small.rate(setup, 0)
        )
        return [np.asarray(x) for x in jax.tree.leaves((trained, figures))]

    expected, count = updated(), compile_cache.ProgramCount()
    assert compile_cache.use() == ""
    cold = updated(), count.take()
    warm = updated(), count.take()
    assert (cold[1], warm[1]) == ("compiled", "cached")
    for each in (cold[0], warm[0]):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(expected, each, strict=True))


def test_the_first_step_of_each_stage_says_where_its_programs_came_from(tmp_path: Path) -> None:
    run, words = RunDir(tmp_path), iter(["compiled", "cached"])
    emit = Emitter(run, 2, mine=True, programs=lambda: next(words))
    for stage, step in (("warm_start", 1), ("warm_start", 2), ("grpo", 5), ("grpo", 6)):
        emit.metrics(stage, step, {"step_s": jnp.float32(step / 2)})
    firsts = [{k: v for k, v in e.items() if k != "time"} for e in read_events(run.events)]
    about = {"event": "first_step", "attempt": 2}
    assert firsts == [
        about | {"stage": "warm_start", "step": 1, "seconds": 0.5, "programs": "compiled"},
        about | {"stage": "grpo", "step": 5, "seconds": 2.5, "programs": "cached"},
    ]
