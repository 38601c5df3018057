"""Attempts on hosts, whatever the transport: their state from the keepers' answers, what comes back, and an attempt from start to end."""

import base64
import contextlib
import errno
import fcntl
import json
import shutil
import signal
import socket
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from podwright.errors import UserError
from podwright.rundir import Ending, RunDir, recipe_of, write_json
from podwright.shell import Shell
from podwright.storage import inputs, open_storage
from podwright.targets.base import Handle, Job, Polled, Process, Stopped, Target, Traits
from podwright.targets.hosts import gather, host_attempt, keeper, probe, start, status
from podwright.targets.hosts.host_attempt import HostAttempt
from podwright.targets.hosts.runner import HostProfile, HostRunner
from podwright.targets.hosts.transport import Host, Trouble, of_each
from podwright.watch import logs
from podwright.watch.diagnose import outcome
from tests import scarce
from tests.unit.targets.home_transport import HomeTransport, connect


def answer(phase: str = "running", alive: bool = True, rebooted: bool = False, **record: object) -> dict:
    base = {"phase": phase, "fault": None, "codes": {}, "missing": []}
    return {"record": base | record, "alive": alive, "rebooted": rebooted}


NAMES = ("h1", "h2")
SILENT = Trouble("host h2 does not answer", "switch it on", Ending.NO_CAPACITY)
NOTHING = {"record": None}
HERE = Host(Shell(), HomeTransport("here", "/"))
LOST = {"kind": "lost", "host": "h2"}


@pytest.mark.parametrize(
    ("answers", "process", "waiting"),
    [
        ((answer(), answer()), Process.RUNNING, ""),
        ((answer("joining", missing=["h2"]), NOTHING), Process.RUNNING, "Joining: waiting for h2 to connect to h1"),
        ((answer(), SILENT), Process.RUNNING, "Unreachable: host h2 does not answer"),
        ((SILENT, SILENT), Process.RUNNING, "Unreachable: "),
        ((SILENT, answer("ended", alive=False)), Process.RUNNING, "Unreachable: "),
        ((NOTHING, answer("joining")), Process.RUNNING, ""),
        ((NOTHING, SILENT), Process.RUNNING, "Unreachable: "),
        ((NOTHING, NOTHING), Process.ABSENT, ""),
    ],
)
def test_an_attempt_that_nobody_can_say_has_ended_has_not(answers, process: Process, waiting: str) -> None:
    polled = status.combined(NAMES, answers)
    assert polled.process is process and polled.waiting.startswith(waiting) and bool(polled.waiting) == bool(waiting)


def test_a_first_host_that_is_not_reached_is_waited_for_with_a_limit_once_all_others_have_ended() -> None:
    """Whose end only it could tell; silence is what has a limit and a price."""
    ended = answer("ended", alive=False)
    over = status.combined(("h1", "h2", "h3"), (SILENT, ended, ended))
    assert over.process is Process.RUNNING and over.silent and over.waiting == "Unreachable: host h2 does not answer"
    assert not status.combined(("h1", "h2", "h3"), (SILENT, ended, answer())).silent, "the others are at work"
    assert status.combined(NAMES, (NOTHING, ended)).process is Process.ABSENT, "nobody is left who could tell"


@pytest.mark.parametrize(
    ("answers", "ending", "says"),
    [
        ((answer("ended", codes={"0": 0}), answer()), None, ""),
        ((answer("ended", fault=LOST), SILENT), Ending.NODE_LOST, "host h2 was lost"),
        (
            (answer("ended", fault=LOST), answer(alive=False)),
            Ending.UNKNOWN,
            "the keeper of the attempt was killed on host h2",
        ),
        (
            (answer("ended", fault=LOST), answer(alive=False, rebooted=True)),
            Ending.NODE_LOST,
            "host h2 was rebooted during the attempt",
        ),
        ((answer(alive=False, rebooted=True), answer()), Ending.NODE_LOST, "host h1 was rebooted"),
        ((answer(alive=False), answer()), Ending.UNKNOWN, "on host h1"),
        ((SILENT, answer("ended", fault={"kind": "lost", "host": "h1"})), Ending.NODE_LOST, "host h1 was lost"),
        (
            (answer("ended", fault={"kind": "absent", "host": "h1", "port": 5, "why": "h2"}), NOTHING),
            Ending.CRASHED,
            "h2 did not connect to host h1 within 180 s",
        ),
        (
            (answer("ended", fault={"kind": "apart", "host": "h2", "port": 5, "why": "h1:5 (timed out)"}), NOTHING),
            Ending.CRASHED,
            "host h2 cannot connect to h1:5 (timed out)",
        ),
        (
            (answer("ended", fault={"kind": "port", "host": "h1", "why": "port 5: Address already in use"}), NOTHING),
            Ending.CRASHED,
            "host h1 cannot listen for the other hosts on port 5: Address already in use",
        ),
    ],
)
def test_how_an_attempt_ended_and_that_it_is_kept(answers, ending: Ending | None, says: str) -> None:
    polled = status.combined(NAMES, answers)
    assert polled.process is Process.ENDED and polled.ending is ending and says in polled.detail
    assert status.from_record(json.loads(json.dumps(status.to_record(polled)))) == polled


def test_what_the_rest_follows_from_is_named() -> None:
    exits, killed = ({"kind": "process", "host": "h", "process": n, "code": c} for n, c in ((0, 1), (1, -9)))
    assert keeper.worst([exits, killed]) == killed and keeper.worst([exits, killed, LOST]) == LOST
    assert keeper.worst([exits, {**exits, "process": 1}]) == exits and keeper.worst([]) is None


@pytest.mark.parametrize(
    ("first", "second", "ending", "says"),
    [
        ("CRASHED", None, Ending.UNKNOWN, "process 1 on h2: killed by SIGKILL"),
        ("STOPPED", None, Ending.UNKNOWN, "process 1 on h2: killed by SIGKILL"),
        (None, None, Ending.UNKNOWN, "process 1 on h2: killed by SIGKILL"),
        ("CRASHED", "OUT_OF_MEMORY", Ending.OUT_OF_MEMORY, "full (process 1 on h2)"),
        ("FINISHED", None, Ending.FINISHED, "gone"),
    ],
)
def test_the_first_process_is_not_believed_when_it_tells_of_anothers_end(
    tmp_path: Path, first, second, ending: Ending, says: str
) -> None:
    run = RunDir(tmp_path / "r")
    run.attempt(1).mkdir(parents=True)
    run.log(1).write_text("[rank0]: Connection closed by peer [127.0.0.12]\n")
    for number, (word, detail) in enumerate(((first, "gone"), (second, "full"))):
        if word:
            run.exit(1, number).write_text(json.dumps({"ending": word, "detail": detail, "step": 3}))
    fault = {"kind": "process", "host": "h2", "process": 1, "code": -9}
    found = outcome(run, 1, status.combined(NAMES, (answer("ended", fault=fault), answer())), False)
    assert found.ending is ending and says in found.detail, found


def test_inputs_named_from_here_are_brought_along_and_those_above_are_refused(tmp_path: Path) -> None:
    for name in ("corpus", "rewards.py", "w.pt"):
        (tmp_path / "below" / name).mkdir(parents=True)
    recipe = {
        "model": {"source": "Qwen/Qwen3-0.6B"},
        "data": {"source": "corpus"},
        "encoders": {"image_weights": "w.pt", "image": "w.pt"},
    }
    rewards = [{"function": "rewards.py:mine"}, {"function": "podwright.train.grpo.reward:format_reward"}]
    assert start.paths_below(inputs.named(recipe | {"rewards": rewards}), tmp_path / "below") == [
        "corpus",
        "w.pt",
        "rewards.py",
    ]
    with pytest.raises(
        UserError, match=r"data.source=\.\./below/corpus is outside /.+; move it there, or give an absolute"
    ):
        start.paths_below({"data.source": "../below/corpus"}, tmp_path / "below")


def test_what_is_in_a_storage_is_neither_brought_to_hosts_nor_back(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "r")
    attempt = HostAttempt(run.attempt(1), 0)
    attempt.attempt.mkdir(parents=True)
    (tmp_path / "corpus").mkdir()
    write_json(run.recipe, {"kind": "pretrain", "training": {"max_steps": 1}, "data": {"source": "corpus"}})
    order = {"handle": {"run_dir": str(run.path)}, "cwd": str(tmp_path)}
    assert start._inputs(order) == ["corpus"]
    write_json(run.storage, {"url": str(tmp_path / "kept")})
    inputs.upload(run, recipe_of(run), tmp_path, open_storage(run.storage_url))
    assert start._inputs(order) == []
    for name in ("records.json", "inputs/0/corpus/train.jsonl", "model.pt"):
        (run.path / name).parent.mkdir(parents=True, exist_ok=True)
        (run.path / name).touch()
    assert list(attempt.complete_files()) == ["model.pt"]


def test_checkpoints_come_back_whole_and_what_was_removed_goes(tmp_path: Path) -> None:
    far, run = tmp_path / "far", RunDir(tmp_path / "r")
    run.attempt(1).mkdir(parents=True)
    for name in ("checkpoints/2/state/a", "checkpoints/2/b", "model.pt"):
        (far / name).parent.mkdir(parents=True, exist_ok=True)
        (far / name).write_text(name)

    def come(**shipped: list[int]) -> None:
        there = {p.relative_to(far).as_posix(): host_attempt.stamp(p) for p in far.rglob("*") if p.is_file()}
        answer = {"files": there | missing, "shipped": shipped}
        gather.files(run, 1, 0, HERE, str(far), answer, lambda _: {})

    missing: dict[str, list[int]] = {"checkpoints/4/gone-already": [1, 1], "../outside": [1, 1]}
    (far / "checkpoints/4").mkdir()
    (far / "checkpoints/4/half").write_text("half")
    come()
    assert (run.checkpoints / "2/state/a").read_text() == "checkpoints/2/state/a" and (run.path / "model.pt").exists()
    assert not (run.checkpoints / "4").exists() and not (tmp_path / "outside").exists()
    missing.clear()
    (run.checkpoints / "2/b").write_text("mine")
    for path in (far / "checkpoints/2/state/a", far / "model.pt"):
        path.unlink()
    come()
    assert (run.checkpoints / "4/half").read_text() == "half" and not (run.path / "model.pt").exists()
    assert not (run.checkpoints / "2/state").exists() and (run.checkpoints / "2/b").read_text() == "mine", (
        "what has not changed is not taken"
    )


def test_hosts_that_are_gathered_at_the_same_time_lose_nothing_of_each_other(tmp_path: Path) -> None:
    count, rounds = 8, 5
    run, fars = RunDir(tmp_path / "r"), [tmp_path / f"far-{n}" for n in range(count)]
    run.attempt(1).mkdir(parents=True)
    for step in range(rounds):
        for n, far in enumerate(fars):
            shutil.rmtree(far, ignore_errors=True)  # the files of the last round are removed here while others come
            for name in (f"samples/{step}/{n}.txt", f"traces-{n}/{step}.pb"):
                (far / name).parent.mkdir(parents=True, exist_ok=True)
                (far / name).write_text(name)

        def gathered(n: int, _: object) -> None:
            files = [path for path in fars[n].rglob("*") if path.is_file()]
            listed = {path.relative_to(fars[n]).as_posix(): host_attempt.stamp(path) for path in files}
            gather.files(run, 1, n, HERE, str(fars[n]), {"files": listed, "shipped": {}}, lambda _: {})

        assert of_each([HERE] * count, gathered) == [None] * count
        names = {f"samples/{step}/{n}.txt" for n in range(count)} | {f"traces-{n}/{step}.pb" for n in range(count)}
        there = {path.relative_to(run.path).as_posix() for path in run.path.rglob("*") if path.is_file()}
        assert {name for name in there if not name.startswith("attempts/")} == names
        assert len(list(run.attempt(1).glob("gathered-*.json"))) == count and not [*run.attempt(1).glob("gathering*")]


def test_a_checkpoint_that_came_without_the_records_of_its_steps_is_not_kept(tmp_path: Path) -> None:
    far, run = tmp_path / "far", RunDir(tmp_path / "r")
    run.attempt(1).mkdir(parents=True)
    (far / "checkpoints/2").mkdir(parents=True)
    (far / "checkpoints/2/state").touch()
    answer = {"files": {"checkpoints/2/state": host_attempt.stamp(far / "checkpoints/2/state")}, "shipped": {}}

    def lost(_: object) -> dict:
        raise Trouble("host here does not answer", "switch it on")

    def records(_: object) -> dict:
        assert not (run.checkpoints / "2").exists(), "records come first"
        return {"tails": {"metrics.jsonl": base64.b64encode(b"{}\n").decode()}}

    with pytest.raises(Trouble):
        gather.files(run, 1, 0, HERE, str(far), answer, lost)
    assert not (run.checkpoints / "2").exists()
    gather.files(run, 1, 0, HERE, str(far), answer, records)
    assert (run.checkpoints / "2/state").exists() and run.metrics.read_text() == "{}\n"


@pytest.fixture
def lonely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, int], dict]]:
    """How the keeper of one host of two ends when the other one never comes."""
    monkeypatch.setattr(keeper, "JOIN_S", 0.4)
    attempt, before = tmp_path / "r" / "attempts" / "1", signal.getsignal(signal.SIGTERM)
    attempt.mkdir(parents=True)

    def kept(number: int, port: int) -> dict:
        job = {"hosts": list(NAMES), "address": "127.0.0.1", "control": port, "per_node": 1, "shared": False}
        place = host_attempt.HostAttempt(attempt, number)
        keeper.Keeper(place, job, "right").keep()
        assert not (attempt / "log.txt").exists(), "no process is started before all have come"
        return place.record()

    yield kept
    signal.signal(signal.SIGTERM, before)


def test_hosts_that_do_not_come_together_end_and_say_why(lonely: Callable[[int, int], dict]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert lonely(0, port)["fault"] == {"kind": "port", "host": "h1", "why": f"port {port}: Address already in use"}
    assert lonely(1, port)["fault"]["kind"] == "apart" and "Connection refused" in lonely(1, port)["fault"]["why"]
    stranger = threading.Thread(target=_knock, args=(port,))
    stranger.start()
    assert lonely(0, port)["fault"] == {"kind": "absent", "host": "h1", "port": port, "why": "h2"}
    stranger.join()


def test_a_folder_that_is_deleted_just_before_the_start_is_said_to_all_hosts(tmp_path: Path) -> None:
    job = {"hosts": list(NAMES), "address": "127.0.0.1", "control": 1, "per_node": 1, "shared": False}
    gone = tmp_path / "r" / "attempts" / "1"
    ours, other = socket.socketpair()
    kept = keeper.Keeper(host_attempt.HostAttempt(gone, 1), job, "right")
    kept.links[0] = keeper.Link(ours)
    kept.start()
    fault = {"kind": "deleted", "host": "h2", "why": str(gone)}
    assert keeper.Link(other).hear() == [{"faults": [fault]}]
    assert not kept.children and not gone.exists() and keeper.worst(kept.faults) == fault
    kept.links[0].close()


def test_a_process_that_fails_for_its_deleted_script_is_laid_to_the_folder(tmp_path: Path) -> None:
    job = {"hosts": list(NAMES), "address": "127.0.0.1", "control": 1, "per_node": 1, "shared": False}
    attempt = tmp_path / "r" / "attempts" / "1"
    attempt.mkdir(parents=True)  # a deletion that is under way has taken process.sh already
    kept = keeper.Keeper(host_attempt.HostAttempt(attempt, 1), job, "right")
    kept.start()
    assert kept.children[1].wait() == 127
    kept.look()
    assert kept.faults == [{"kind": "deleted", "host": "h2", "why": str(attempt)}]
    (attempt / "process.sh").write_text("exit 4\n")
    kept = keeper.Keeper(host_attempt.HostAttempt(attempt, 1), job, "right")
    kept.start()
    assert kept.children[1].wait() == 4
    kept.look()
    assert [(fault["kind"], fault["code"]) for fault in kept.faults] == [("process", 4)]


class SignalledProcess:
    """A process of an attempt that goes on whatever signal comes, as a trainer does in the middle of a step."""

    def __init__(self) -> None:
        self.pid, self.signals = 0, list[int]()

    def poll(self) -> None:
        return None

    def send_signal(self, number: int) -> None:
        self.signals.append(number)


@pytest.mark.parametrize("noticed", [0, 1])
def test_a_notice_of_preemption_on_one_host_hurries_the_processes_of_all(tmp_path: Path, noticed: int) -> None:
    """The second signal is the one by which a trainer drops its step: machines of a cloud go in seconds."""
    attempt = tmp_path / "r" / "attempts" / "1"
    attempt.mkdir(parents=True)
    job = {"hosts": ["h0", "h1", "h2"], "address": "127.0.0.1", "control": 1, "per_node": 1, "shared": False}
    keepers = [keeper.Keeper(HostAttempt(attempt, number), job, "right") for number in range(3)]
    processes = [SignalledProcess() for _ in keepers]
    for number, (kept, process) in enumerate(zip(keepers, processes, strict=True)):
        kept.children[number] = cast(Any, process)
    for number in (1, 2):
        ends = socket.socketpair()
        keepers[0].links[number], keepers[number].links[0] = map(keeper.Link, ends)
    for kept in keepers:
        kept.obey()
    assert not any(process.signals for process in processes)
    keepers[noticed].guest.preempted = True
    for kept in (*keepers[1:], *keepers, *keepers):
        kept.listen()
        kept.obey()
        kept.write()
        assert kept.place.record()["preempted"] is kept.preempted
    for process in processes:
        assert process.signals[:2] == [signal.SIGTERM, signal.SIGINT] and set(process.signals[2:]) <= {signal.SIGINT}
    assert all(kept.preempted for kept in keepers)
    for kept in keepers:
        for link in kept.links.values():
            link.close()


@pytest.mark.parametrize(("noticed", "signals"), [(True, [signal.SIGTERM, signal.SIGINT]), (False, [signal.SIGTERM])])
def test_only_a_notice_of_preemption_hurries_the_processes_of_a_host(
    tmp_path: Path, noticed: bool, signals: list[int]
) -> None:
    """Without one, a person has requested the stop, and the step at work may end."""
    attempt = tmp_path / "r" / "attempts" / "1"
    attempt.mkdir(parents=True)
    job = {"hosts": ["h0"], "address": "127.0.0.1", "control": 1, "per_node": 1, "shared": False}
    kept, process = keeper.Keeper(HostAttempt(attempt, 0), job, "right"), SignalledProcess()
    kept.children[0] = cast(Any, process)
    kept.guest.preempted = noticed
    if not noticed:
        (attempt / "stop").touch()
    kept.obey()
    kept.obey()
    assert process.signals == signals and kept.preempted is noticed


def _knock(port: int) -> None:
    for _ in range(100):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
                s.sendall(
                    b'{"token": "wrong", "host": 1}\n{"token": "\\u00e9", "host": 1}\n{"token": "\\ud800"}\n[1]\nnoise\n'
                )
                s.recv(1)
                return
        except OSError:
            time.sleep(0.01)


SCRIPT = """trap 'echo saved > "$2/saved-$RANK"; exit 3' TERM
echo "$RANK of $WORLD_SIZE says $GREETING"
echo "$1" > "$2/artifact-$RANK"
[ "$3" != fills ] || { head -c 200M /dev/zero > "$2/large-$RANK" || exit 1; }
[ "$3" != hungry ] || [ "$RANK" = 0 ] || { python3 -c "bytearray(1 << 30)"; exit $?; }
[ "$3" = at-once ] || while :; do sleep 0.05; done
"""


class HomeTarget(HostRunner):
    """What `logs` asks of a target."""

    traits = Traits(poll_s=0.0, ships_files=True)


class TwoHomes:
    """A run of a command that is not ours, on two hosts of the second transport."""

    def __init__(
        self,
        folder: Path,
        mode: str,
        absent: str = "",
        setup: Sequence[str] = (),
        python: str = sys.executable,
        attempt: int = 1,
    ):
        self.homes = [folder / name for name in NAMES]
        for home in self.homes:
            if home.name != absent:
                home.mkdir(exist_ok=True)
        self.run = RunDir(folder / "runs" / "r")
        self.run.path.mkdir(parents=True)
        (self.run.path / "recipe.json").write_text('{"kind": "grpo", "training": {"max_steps": 1}}')
        (self.run.path / "work.sh").write_text(SCRIPT)
        self.command = ("bash", "{run_dir}/work.sh", "it's 1", "{run_dir}", mode)
        self.runner = HomeTarget(Shell(), HostProfile(python=python, setup=setup), connect)
        self.handle = self.submit(attempt)

    def submit(self, attempt: int) -> Handle:
        environment = {"GREETING": "a 'quoted' word", "RANK": "7"}
        folder = self.run.path.parents[1]
        job = Job(self.run.path, attempt, folder, 1.0, command=self.command, environment=environment)
        transports = [HomeTransport(home.name, str(home)) for home in self.homes]
        return self.runner.submit(self.runner.render_on(transports, job, {"target": "homes"}))

    def until(self, process: Process) -> Polled:
        limit = time.monotonic() + 30
        while (polled := self.runner.poll(self.handle)).process is not process or polled.waiting:
            assert time.monotonic() < limit, polled
            time.sleep(0.05)
        return polled

    def until_they_take_signals(self) -> None:
        """A process runs, by its keeper, before its script has set the trap; a stop at that moment kills it."""
        self.until(Process.RUNNING)
        limit = time.monotonic() + 30
        while any(not list(home.rglob(f"artifact-{n}")) for n, home in enumerate(self.homes)):
            assert time.monotonic() < limit
            time.sleep(0.05)

    def text(self, name: str) -> str:
        path = self.run.path / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., TwoHomes]]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    started = []

    def start(
        mode: str, absent: str = "", setup: Sequence[str] = (), python: str = sys.executable, attempt: int = 1
    ) -> TwoHomes:
        started.append(TwoHomes(tmp_path, mode, absent, setup, python, attempt))
        return started[-1]

    yield start
    for each in started:
        each.runner.release(each.handle)


def test_a_command_that_is_not_ours_runs_over_another_transport(homes: Callable[..., TwoHomes]) -> None:
    ours = homes("at-once")
    assert ours.until(Process.ENDED).returncode == 0
    assert "0 of 2 says a 'quoted' word" in ours.text("attempts/1/log.txt")
    assert "1 of 2 says a 'quoted' word" in ours.text("attempts/1/log-1.txt")
    assert ours.text("artifact-0") == "it's 1\n" and not ours.text("artifact-1"), "files come from the first host"
    assert ours.runner.release(ours.handle).done and not [p for h in ours.homes for p in (h / ".podwright").iterdir()]


def test_hosts_that_another_launcher_asks_are_not_seen(homes: Callable[..., TwoHomes]) -> None:
    ours = homes("forever")
    ours.until(Process.RUNNING)
    with (ours.run.attempt(1) / "gather.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        polled = ours.runner.poll(ours.handle)
    assert polled.unseen and not polled.silent and polled.waiting.startswith("Gathering: another podwright"), polled
    assert not ours.until(Process.RUNNING).unseen
    ours.runner.stop(ours.handle, force=True)


@pytest.mark.skipif(bool(scarce.missing()), reason=scarce.missing() or "there are some")
def test_a_host_whose_disk_fills_is_named_with_the_place(homes: Callable[..., TwoHomes], tmp_path: Path) -> None:
    (tmp_path / "h1").mkdir()
    with scarce.small(tmp_path / "h1", "24m"):
        ours = homes("fills")
        ended = ours.until(Process.ENDED)
        (place,) = (tmp_path / "h1" / ".podwright").glob("r-*/*/runs/r/attempts/1")
        assert ended.ending is Ending.CRASHED and f"the disk of host h1 is full: {place} (0.0 MiB of" in ended.detail
        assert "process 0 on h1 failed" in ended.detail and "free some space there" in ended.fix
        assert ours.runner.release(ours.handle).done


@pytest.mark.skipif(bool(scarce.missing_cgroups()), reason=scarce.missing_cgroups() or "there are some")
def test_a_process_that_the_kernel_kills_for_memory_is_named(homes: Callable[..., TwoHomes]) -> None:
    with scarce.memory_cgroup(256 << 20) as cgroup:
        ended = homes("hungry", setup=(f"echo $$ > {cgroup}/cgroup.procs",)).until(Process.ENDED)
    assert ended.ending is Ending.OUT_OF_MEMORY and ended.failed_hosts == ("h2",), ended
    assert (
        ended.detail
        == f"process 1 on h2: the kernel killed it for memory: cgroup {cgroup} was at its limit of 0.25 GiB"
    )


def processes_below(folder: Path) -> list[str]:
    """Command lines that name it."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in lines if str(folder) in line]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"python": "/bin/true"}, "host h1 answers nothing: setup ends the shell, or python=/bin/true is no Python"),
        ({"setup": ["exec true"]}, "host h1 answers nothing: setup ends the shell, or "),
    ],
)
def test_a_host_on_which_nothing_is_started_is_named_by_the_check_and_by_the_run(
    homes: Callable[..., TwoHomes], settings: dict, says: str
) -> None:
    theirs = homes("at-once", **settings)
    hosts = [Host(Shell(), HomeTransport(home.name, str(home))) for home in theirs.homes]
    remarks = probe.check(HostProfile(**({"python": sys.executable} | settings)), hosts)
    assert [remark.level for remark in remarks] == ["error", "error"] and remarks[0].what.startswith(says)
    ended = theirs.until(Process.ENDED)
    assert ended.ending is Ending.BAD_INPUT and "setup of the target ends the shell, or python" in ended.detail


@pytest.mark.parametrize("line", ["if true; then", "export A='b", "fi", "echo $(", "} || { :"])
def test_a_syntax_error_in_setup_is_named_with_its_line_by_the_check_and_by_the_run(
    homes: Callable[..., TwoHomes], line: str
) -> None:
    setup = ["export BEFORE=1 # a comment", line]
    theirs = homes("at-once", setup=setup)
    hosts = [Host(Shell(), HomeTransport(home.name, str(home))) for home in theirs.homes]
    remarks = probe.check(HostProfile(python=sys.executable, setup=setup), hosts)
    assert [remark.level for remark in remarks] == ["error", "error"]
    says = f"a line of the target's setup has a syntax error on host h1: {line} ("
    assert remarks[0].what.startswith(says)
    ended = theirs.until(Process.ENDED)
    assert ended.ending is Ending.BAD_INPUT and ended.detail.startswith(says), ended.detail


@pytest.mark.parametrize("line", ["exit 0", "exit 3 # here", "set -u; echo $NOT_SET_ANYWHERE"])
def test_a_line_of_setup_that_ends_the_shell_is_named_by_the_check_and_by_the_run(
    homes: Callable[..., TwoHomes], line: str
) -> None:
    setup = ["export A=1", line]
    theirs = homes("at-once", setup=setup)
    hosts = [Host(Shell(), HomeTransport(home.name, str(home))) for home in theirs.homes]
    remarks = probe.check(HostProfile(python=sys.executable, setup=setup), hosts)
    says = f"a line of the target's setup ends the shell on host h1: {line}"
    assert [remark.level for remark in remarks] == ["error", "error"] and remarks[0].what == says
    ended = theirs.until(Process.ENDED)
    assert (ended.ending, ended.detail) == (Ending.BAD_INPUT, says)


def test_a_file_that_cannot_be_read_for_the_hosts_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDir(tmp_path / "runs" / "r")
    secret, add = run.path / "secret", tarfile.TarFile.add

    def refuse(tar: tarfile.TarFile, name: Any, *given: Any, **more: Any) -> None:
        if name == secret:
            raise PermissionError(errno.EACCES, "Permission denied", str(name))
        add(tar, name, *given, **more)

    write_json(run.recipe, {"kind": "grpo", "training": {"max_steps": 1}})
    secret.touch()
    (tmp_path / "h").mkdir()
    place = {"run_dir": str(run.path), "attempt_dir": str(tmp_path / "h" / "x"), "home": "x", "shared": False}
    handle = place | {"hosts": [HomeTransport("h", str(tmp_path / "h")).record]}
    order = {"transport": HomeTransport.__module__, "handle": handle, "files": [], "cwd": str(tmp_path)}
    write_json(run.attempt(1) / "order.json", order)
    monkeypatch.setattr(tarfile.TarFile, "add", refuse)
    monkeypatch.setattr(sys, "argv", ["start", str(run.attempt(1))])
    assert start.main() == 1
    record = json.loads((run.attempt(1) / "submit.json").read_text())
    assert record["ending"] == "BAD_INPUT" and str(secret) in record["detail"]


@pytest.mark.parametrize("python", ["/bin/ls", "/bin/false", "/bin/cat"])
def test_a_program_that_is_no_python_is_named(tmp_path: Path, python: str) -> None:
    (tmp_path / "h").mkdir()
    (remark,) = probe.check(HostProfile(python=python), [Host(Shell(), HomeTransport("h", str(tmp_path / "h")))])
    assert remark.what == f"python={python} of the target is no Python interpreter on host h"


def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "h").mkdir()
    (remark,) = probe.check(HostProfile(python="/no/py3"), [Host(Shell(), HomeTransport("h", str(tmp_path / "h")))])
    assert remark.what.startswith("host h cannot start Python: ") and "/no/py3" in remark.what


def test_a_folder_that_cannot_be_made_is_named_without_words_of_python(tmp_path: Path) -> None:
    (tmp_path / "h").mkdir()
    host = Host(Shell(), HomeTransport("h", str(tmp_path / "h")))
    (remark,) = probe.check(HostProfile(python=sys.executable, folder="/proc/x"), [host])
    assert remark.what == "folder of the target cannot be written on host h: /proc/x (No such file or directory)"


def test_a_line_of_setup_that_fails_is_named_by_the_run(homes: Callable[..., TwoHomes]) -> None:
    ended = homes("at-once", setup=["export A=1", "false # here"]).until(Process.ENDED)
    assert (ended.ending, ended.bootstrap) == (Ending.BAD_INPUT, True)
    assert ended.detail == "a line of the target's setup failed on host h1: false # here"


def test_a_check_compares_gpus_and_the_storage_with_what_each_host_has(tmp_path: Path) -> None:
    shared, script = tmp_path / "shared", tmp_path / "bin"
    for folder in (shared, script, tmp_path / "h"):
        folder.mkdir()
    host = Host(Shell(), HomeTransport("h", str(tmp_path / "h")))
    profile = HostProfile(python=sys.executable)
    assert [r.level for r in probe.check(profile, [host], str(shared))] == ["info"]
    assert list(shared.iterdir()) == []
    hide = HostProfile(python=sys.executable, setup=[f"find {shared} -type f -delete"])  # as a folder of its own does
    (remark,) = probe.check(hide, [host], str(shared))
    assert (
        remark.level == "error"
        and f"does not see a file that this machine has written in storage={shared}" in remark.what
    )
    (script / "nvidia-smi").write_text("#!/bin/sh\n[ -z \"$BROKEN\" ] || exit 9\necho 'GPU 0: NVIDIA H100'\n")
    (script / "nvidia-smi").chmod(0o755)
    has_one = f"export PATH={script}:$PATH"
    for setup, number, level in (
        ([has_one], 1, "info"),
        ([has_one], 8, "error"),
        ([has_one, "export BROKEN=1"], 1, "inconclusive"),
    ):
        profile = HostProfile(python=sys.executable, setup=setup, gpus_per_node=number)
        plugin, *remarks = probe.check(profile, [host])
        assert (plugin.level, plugin.of_jax) == ("error", True)
        assert plugin.what == "the Python of host h has no jax for NVIDIA GPUs" and "'.[cuda12]'" in plugin.fix
        (remark,) = remarks
        assert remark.level == level, remark
        assert level != "error" or remark.what == "host h has 1 GPU, and gpus_per_node=8"
    (script / "jax_cuda13_plugin.py").touch()
    profile = HostProfile(python=sys.executable, setup=[has_one, f"export PYTHONPATH={script}"], gpus_per_node=1)
    assert [remark.level for remark in probe.check(profile, [host])] == ["info"]


@pytest.mark.parametrize("emptied", [("h1",), ("h2",), NAMES])
def test_an_attempt_whose_folder_is_deleted_on_a_host_ends_everywhere(
    homes: Callable[..., TwoHomes], tmp_path: Path, emptied: tuple[str, ...]
) -> None:
    ours = homes("until-stopped")
    ours.until(Process.RUNNING)
    for name in emptied:
        shutil.rmtree(tmp_path / name / ".podwright")
    ended = ours.until(Process.ENDED)
    assert ended.ending is Ending.CRASHED and ended.fix.startswith("resume the run")
    assert ended.detail.startswith(f"the folder of the attempt was deleted on host {', '.join(emptied)} (")
    limit = time.monotonic() + 20
    while left := [line for name in NAMES for line in processes_below(tmp_path / name)]:
        assert time.monotonic() < limit, left
        time.sleep(0.1)
    assert not [name for name in emptied if (tmp_path / name / ".podwright").exists()], "nothing is created again"
    assert ours.runner.release(ours.handle).done


def test_logs_bring_what_is_new_from_hosts_without_a_shared_folder(homes: Callable[..., TwoHomes]) -> None:
    ours = homes("until-stopped")
    target, text = cast(Target, ours.runner), ""
    limit = time.monotonic() + 30
    while "1 of 2 says" not in text:
        assert time.monotonic() < limit, text
        text = "".join(logs.read(target, ours.handle, process=1))
    assert ours.runner.stop(ours.handle).acknowledged
    assert "0 of 2 says" in "".join(logs.read(target, ours.handle, follow=True))
    assert ours.runner.poll(ours.handle).process is Process.ENDED


def test_a_late_release_leaves_what_a_later_attempt_has_on_the_host(homes: Callable[..., TwoHomes]) -> None:
    ours = homes("at-once")
    ours.until(Process.ENDED)
    (home,) = (ours.homes[0] / ".podwright").iterdir()
    later = home / "work" / "runs" / "r" / "attempts" / "2"
    shutil.rmtree(later.with_name("1"))
    later.mkdir()  # as the start of attempt 2 from another machine leaves it
    assert ours.runner.release(ours.handle).done
    assert later.is_dir() and list((ours.homes[1] / ".podwright").iterdir()) == []


def test_a_late_start_ends_nothing_of_a_later_attempt(homes: Callable[..., TwoHomes]) -> None:
    """As of a laptop that was asleep while another machine went on with the run."""
    ours = homes("until-stopped", attempt=2)
    ours.until_they_take_signals()
    late = ours.submit(1)
    refused = ours.runner.poll(late)
    assert refused.process is Process.ENDED and "attempt 2 of it is on host h1" in refused.detail, refused
    assert ours.runner.poll(ours.handle) == Polled(Process.RUNNING), "its processes are at work"
    assert ours.runner.release(late).done and ours.runner.poll(ours.handle) == Polled(Process.RUNNING)


def test_a_stop_and_a_release_are_confirmed_only_when_every_host_has_answered(homes: Callable[..., TwoHomes]) -> None:
    ours = homes("until-stopped")
    ours.until_they_take_signals()
    second, away = ours.homes[1], ours.homes[1].with_name("away")
    second.rename(away)
    stopped = ours.runner.stop(ours.handle)
    assert not stopped.acknowledged and stopped.reason == "host h2 is off; switch it on"
    away.rename(second)
    assert ours.runner.stop(ours.handle).acknowledged
    assert ours.until(Process.ENDED).returncode == 3 and ours.text("saved-0") == "saved\n"
    second.rename(away)
    released = ours.runner.release(ours.handle)
    assert not released.done and released.reason == "host h2 is off; switch it on"
    away.rename(second)
    assert ours.runner.release(ours.handle).done and ours.runner.release(ours.handle).done


@pytest.mark.parametrize("force", [False, True])
def test_a_stop_of_an_attempt_without_a_folder_is_acknowledged_and_asks_no_host(tmp_path: Path, force: bool) -> None:
    """The launcher ended before it had made the folder, so nothing was started; these hosts are off."""
    run, runner = RunDir(tmp_path / "runs" / "r"), HomeTarget(Shell(), HostProfile(), connect)
    job = Job(run.path, 1, tmp_path, 1.0, command=("true",))
    transports = [HomeTransport(name, str(tmp_path / name)) for name in NAMES]
    handle = runner.render_on(transports, job, {"target": "homes"}).handle
    assert runner.stop(handle, force=force) == Stopped(True)
    assert runner.poll(handle).process is Process.ABSENT and not run.path.exists()
    run.attempt(1).mkdir(parents=True)
    assert not runner.stop(handle, force=force).acknowledged, "these may have been started"
    signs = {"stop", "kill"} if force else {"stop"}
    assert {path.name for path in run.attempt(1).iterdir()} == signs


def test_a_host_that_was_never_reached_does_not_keep_a_release_waiting(homes: Callable[..., TwoHomes]) -> None:
    ours = homes("at-once", absent="h2")
    polled = ours.until(Process.ENDED)
    assert polled.ending is Ending.NO_CAPACITY and polled.bootstrap and polled.detail == "host h2 is off"
    assert ours.runner.release(ours.handle).done and not list((ours.homes[0] / ".podwright").iterdir())


@pytest.mark.parametrize("fault", [FileNotFoundError, FileExistsError])
def test_a_folder_that_another_host_removes_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: type[OSError]
) -> None:
    """mkdir raises FileExistsError where the folder vanishes before it has looked whether that is one."""
    (tmp_path / "staged").write_text("a")
    faults = iter([fault()])
    mkdir = Path.mkdir

    def vanishing(path: Path, *args: bool, **options: bool) -> None:
        for error in faults:
            raise error
        mkdir(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", vanishing)
    gather._move(tmp_path / "staged", tmp_path / "run" / "file")
    assert (tmp_path / "run" / "file").read_text() == "a"


def test_a_move_below_a_file_is_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "staged").write_text("a")
    (tmp_path / "run").write_text("a file where a folder belongs")
    with pytest.raises(FileExistsError):
        gather._move(tmp_path / "staged", tmp_path / "run" / "file")
    assert (tmp_path / "staged").exists()


@pytest.mark.parametrize("number", [errno.ENOTEMPTY, errno.EEXIST])
def test_a_checkpoint_that_another_host_has_begun_meanwhile_is_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The folder is not there when it is looked for, and holds files when the staged one is renamed to it. File systems differ in
    the error."""
    staged, path, replace = tmp_path / "staged" / "2", tmp_path / "run" / "checkpoints" / "2", Path.replace
    (staged / "state").mkdir(parents=True)
    (staged / "state" / "a").write_text("of this host")

    def after_another_host(source: Path, target: Path) -> Path:
        if source == staged:
            (path / "state").mkdir(parents=True)
            (path / "state" / "b").write_text("of another host")
            with pytest.raises(OSError) as e:
                replace(source, target)
            assert e.value.errno == errno.ENOTEMPTY  # here
            raise OSError(number, "the folder is not empty")
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", after_another_host)
    gather._settle(staged, path)
    texts = {file.name: file.read_text() for file in (path / "state").iterdir()}
    assert texts == {"a": "of this host", "b": "of another host"}


def test_the_last_record_is_written_when_a_folder_that_was_away_comes_back(tmp_path: Path) -> None:
    place = HostAttempt(tmp_path / "run" / "attempts" / "1", 0)
    place.write_record({"phase": "ended"})
    assert not place.attempt.exists(), "a run that was deleted is not made again"
    back = threading.Timer(0.3, place.attempt.mkdir, kwargs={"parents": True})
    back.start()
    place.write_record({"phase": "ended"}, patience_s=20.0)
    back.join()
    assert place.record() == {"phase": "ended"}
