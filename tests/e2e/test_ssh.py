"""Runs on two hosts over a real sshd each, which share no disk: watched, stopped, robbed of processes, hosts and launchers."""

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lab import sshd
from podwright.counted_steps import read_steps
from podwright.rundir import RunDir
from tests.e2e import short_patience
from tests.e2e.conftest import LAUNCH, RECIPE, Bench, wait_for
from tests.e2e.test_multimodal_run import SMALL, podwright
from tests.e2e.test_slurm_training import ENDLESS, TRAINED

pytestmark = pytest.mark.skipif(bool(sshd.missing()), reason=sshd.missing() or "there are some")
STEADY = {"STANDIN_STEP_S": "0.2", "STANDIN_OTHER": "600"}
NOTICED_S = 60.0  # the other process would work for STANDIN_OTHER seconds


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Hosts]:
    with sshd.Hosts(tmp_path_factory.getbasetemp()) as made:
        yield made


class Pair(Bench):
    """A bench whose target `lab` is the two hosts."""

    def __init__(self, folder: Path, lab: sshd.Hosts):
        super().__init__(folder)
        self.lab = lab
        self.python = sshd.stand_in(lab.root / "python", LAUNCH.with_name("standin.py"))
        self.target()

    def target(self, name: str = "lab", **settings: object) -> None:
        given = {
            "hosts": self.lab.names,
            "python": str(self.python),
            "folder": f"{self.lab.root}/disk",
            "ssh": ["-F", f"{self.lab.root}/config"],
        }
        given |= {"env": ["STANDIN_STEP_S", "STANDIN_DO", "STANDIN_OTHER", "TELL"]} | settings
        lines = [f"  {key}: {json.dumps(value)}" for key, value in given.items() if value is not None]
        with (self.folder / "targets.yaml").open("a") as f:
            f.write("\n".join([f"{name}:", "  kind: ssh", *lines, ""]))

    def start(self, *argv: str, **env: str):
        return super().start(*argv, PODWRIGHT_TARGETS=str(self.folder / "targets.yaml"), **env)

    def ended(self) -> list[str]:
        return [r["ending"] for r in self.records("journal.jsonl") if r["event"] == "ended"]

    def last_end(self) -> dict[str, Any]:
        return [r for r in self.records("journal.jsonl") if r["event"] == "ended"][-1]

    def on(self, host: str, name: str = "", attempt: int = 1) -> Path:
        """A file of the run on a host, seen from here."""
        (home,) = (self.lab.root / f"disk-{host}").glob("r-*")
        return home / "work/runs/r" / (name or f"attempts/{attempt}")

    def brought(self) -> list[str]:
        return [f"{host}/{path.name}" for host in sshd.HOSTS for path in (self.lab.root / f"disk-{host}").iterdir()]

    def at_work(self) -> list[int]:
        """What the run has started on both hosts and still lives: by their working folder, which nobody else has."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if f"{self.lab.root}/disk" in os.readlink(path / "cwd"):
                    found.append(int(path.name))
            except OSError:
                continue
        return found

    def process(self, number: int) -> int:
        """Its number as seen from here: what has the environment of that rank."""
        for path in Path("/proc").glob("[0-9]*"):
            try:
                here = f"{self.lab.root}/disk" in os.readlink(path / "cwd")
                if here and f"\0RANK={number}\0".encode() in b"\0" + (path / "environ").read_bytes():
                    return int(path.name)
            except OSError:
                continue
        raise AssertionError(f"no process {number}")

    def wait_for_step(self, number: int) -> None:
        """On the first host, whether or not anybody brings it here."""
        wait_for(lambda: f'"step": {number},' in self.text_on("h1", "metrics.jsonl"))

    def text_on(self, host: str, name: str) -> str:
        try:
            return self.on(host, name).read_text()
        except (OSError, ValueError):
            return ""


@pytest.fixture
def pair(tmp_path: Path, lab: sshd.Hosts) -> Iterator[Pair]:
    made = Pair(tmp_path, lab)
    yield made
    made.close()


def test_a_command_runs_on_all_hosts_and_its_worst_exit_code_counts(pair: Pair) -> None:
    first, second = pair.lab.names
    code, out, err = pair.call("target", "exec", "lab", "--", "echo here")
    assert code == 0 and [line.split(" | ") for line in out.splitlines()] == [[first, "here"], [second, "here"]], (
        out,
        err,
    )
    code, out, err = pair.call("target", "exec", "lab", "--host", "1", "--", "echo", "$HOME", ";")
    assert (code, out) == (0, f"{second} | $HOME ;\n"), err
    pair.target("away", hosts=[first, "127.0.0.1:1"])
    code, out, err = pair.call("target", "exec", "away", "--json", "--", "exit 3")
    answers = json.loads(out)["hosts"]
    assert code == 255 and [answer["code"] for answer in answers] == [3, 255]
    assert "refuses connections on port 1" in answers[1]["stderr"]
    code, _, err = pair.call("target", "exec", "lab", "--run", "r", "--", "true")
    assert code == 2 and "leave --run out" in err


def test_a_run_goes_through_and_everything_comes_back(pair: Pair) -> None:
    of_the_kind = {"TELL_KIND": "a 'quoted' word"}
    code, out, err = pair.run(3, "--on", "lab", TELL="a secret", LAUNCH_ENVIRONMENT=json.dumps(of_the_kind))
    assert code == 0, (out, err)
    assert pair.ended() == ["FINISHED"] and pair.steps() == [1, 2, 3] and pair.path("checkpoint").read_text() == "3"
    assert (
        pair.path("latest").resolve() == pair.path("attempts/1").resolve()
        and pair.brought() == []
        and pair.at_work() == []
    )
    _, log, _ = pair.call("logs", "r")
    _, other, _ = pair.call("logs", "r", "--process", "1")
    shown = dict(line.split("=", 1) for line in other.splitlines() if "=" in line)
    assert (
        "process 0 of 2 on h1" in log
        and "step 3 done" in log
        and "process 1 of 2 on h2" in other
        and "step" not in other
    )
    port = shown["MASTER_PORT"]
    address = {"MASTER_ADDR": "127.0.0.11", "JAX_COORDINATOR_ADDRESS": f"127.0.0.11:{port}"}
    ranks = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2"}
    assert (address | ranks | {"JAX_PLATFORMS": "cpu", "TELL": "a secret"} | of_the_kind).items() <= shown.items(), (
        shown
    )
    assert not [
        p for p in pair.path().rglob("*") if p.is_file() and p.name != "log-1.txt" and b"a secret" in p.read_bytes()
    ]


@pytest.mark.long
@pytest.mark.parametrize("dies", [pytest.param("after:submitting", marks=pytest.mark.long), "while it is started"])
def test_a_launcher_that_dies_leaves_a_run_that_is_taken_up_and_started_once(pair: Pair, dies: str) -> None:
    launcher = pair.start_run(3, "--on", "lab", LAUNCH_DIES=dies)
    if dies.startswith("while"):
        wait_for(pair.path("attempts/1/start.txt").exists)
        launcher.kill()
    launcher.communicate()
    assert launcher.returncode == -signal.SIGKILL and pair.ended() == []
    code, out, err = pair.call("resume", "r")
    assert code == 0, (out, err)
    assert pair.ended()[-1] == "FINISHED" and pair.steps() == [1, 2, 3] and pair.brought() == []


def test_a_launcher_is_not_missed_and_a_stop_saves_what_resume_goes_on_from(pair: Pair) -> None:
    launcher = pair.start_run(100, "--on", "lab", **STEADY)
    pair.wait_for_step(3)
    launcher.kill()
    launcher.wait()
    pair.wait_for_step(8)
    row = pair.standing()
    assert (row["state"], row["ending"]) == ("running", None) and row["step"] >= 8
    assert pair.call("stop", "r")[0] == 0 and pair.call("stop", "r")[0] == 0
    assert pair.ended() == ["STOPPED"] and pair.brought() == [] and pair.at_work() == []
    last = max(pair.steps())
    assert pair.path("checkpoint").read_text() == str(last)
    assert pair.call("resume", "r", STANDIN_STEP_S="0.01")[0] == 0
    assert pair.ended() == ["STOPPED", "FINISHED"] and pair.steps() == list(range(1, 101))
    assert "step 1 done" in pair.path("attempts/1/log.txt").read_text() and pair.path("latest").resolve().name == "2"


@pytest.mark.long
def test_a_stop_that_no_host_received_is_repeated_until_one_did_and_saves_every_step(pair: Pair) -> None:
    launcher = pair.start_run(500, "--on", "lab", **STEADY)
    pair.wait_for_step(3)
    launcher.kill()
    launcher.wait()
    for host in sshd.HOSTS:
        pair.lab.pause(host)
    try:
        stopping = pair.start("stop", "r")
        time.sleep(25)  # longer than ssh needs to give up
        events = [r["event"] for r in pair.records("journal.jsonl")]
        assert "stopping" in events and "signalled" not in events and stopping.poll() is None
    finally:
        for host in sshd.HOSTS:
            pair.lab.unpause(host)
    stopping.communicate(timeout=900)
    events = [r["event"] for r in pair.records("journal.jsonl")]
    assert events.count("signalled") == 1 and pair.ended() == ["STOPPED"], events
    assert pair.path("checkpoint").read_text() == str(max(pair.steps())) and pair.steps()[-1] > 20
    assert pair.brought() == [] and pair.at_work() == []


@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.long), 1])
def test_a_process_killed_is_the_end_of_all_within_seconds_with_nobody_at_it(pair: Pair, number: int) -> None:
    assert pair.run(500, "--on", "lab", "--detach", **STEADY)[0] == 0
    pair.wait_for_step(2)
    wait_for(lambda: "RANK=1" in pair.text_on("h2", "attempts/1/log-1.txt"))
    os.kill(pair.process(number), signal.SIGKILL)
    wait_for(lambda: not pair.at_work(), NOTICED_S)
    _, out, _ = pair.call("watch", "r")
    host = pair.lab.names[number]
    assert (
        pair.ended() == ["UNKNOWN"] and f"process {number} on {host}: killed by SIGKILL" in pair.last_end()["detail"]
    ), out
    assert pair.brought() == []


@pytest.mark.long
def test_a_keeper_killed_takes_its_processes_along(pair: Pair) -> None:
    assert pair.run(500, "--on", "lab", "--detach", **STEADY)[0] == 0
    pair.wait_for_step(2)
    wait_for(lambda: "RANK=1" in pair.text_on("h2", "attempts/1/log-1.txt"))
    keeper = next(p for p in pair.at_work() if b"attempts/1\x001\0" in Path(f"/proc/{p}/cmdline").read_bytes())
    os.kill(keeper, signal.SIGKILL)
    wait_for(lambda: not pair.at_work(), NOTICED_S)
    pair.call("watch", "r")
    assert (
        pair.ended() == ["UNKNOWN"]
        and f"the keeper of the attempt was killed on host {pair.lab.names[1]}" in pair.last_end()["detail"]
    )


@pytest.mark.long
def test_a_lost_host_is_said_and_the_run_goes_on_when_it_is_back(pair: Pair) -> None:
    assert pair.run(30, "--on", "lab", "--detach", **STEADY)[0] == 0
    pair.wait_for_step(5)
    pair.lab.lose("h2")
    try:
        wait_for(lambda: not pair.at_work())
        pair.call("watch", "r")
        assert pair.ended() == ["NODE_LOST"] and f"host {pair.lab.names[1]} was lost" in pair.last_end()["detail"]
        code, out, _ = pair.call("resume", "r")
        assert code == 1 and pair.ended()[:2] == ["NODE_LOST", "NO_CAPACITY"], out
        assert f"host {pair.lab.names[1]} refuses connections on port" in out
    finally:
        pair.lab.start("h2")
    assert pair.call("resume", "r", STANDIN_STEP_S="0.01")[0] == 0
    assert pair.ended()[-1] == "FINISHED" and pair.steps() == list(range(1, 31))


@pytest.mark.long
def test_what_stands_in_the_way_is_said_in_a_line_before_and_after(pair: Pair) -> None:
    lab = pair.lab
    name, port = lab.names[0], lab.names[0].rpartition(":")[2]
    refused = lab.config("refused", "other")
    unknown = lab.config("unknown", "id", known="nobody")
    wanted = {
        "nohost": (
            {"hosts": ["no-such-host.invalid"]},
            "the name of host no-such-host.invalid cannot be resolved",
            "~/.ssh/config",
        ),
        "noport": ({"hosts": ["127.0.0.11:1"]}, "host 127.0.0.11:1 refuses connections on port 1", "127.0.0.11:PORT"),
        "nokey": (
            {"ssh": ["-F", str(refused)]},
            f"host {name} accepts none of your SSH keys",
            f"`ssh -F {refused} -p {port} 127.0.0.11 true`",
        ),
        "newkey": (
            {"ssh": ["-F", str(unknown)]},
            f"the SSH host key of {name} is not in known_hosts",
            f"`ssh -F {unknown} -p {port} 127.0.0.11 true`",
        ),
        "nopython": ({"python": "/no/python"}, f"host {name} cannot start Python: ", "set python"),
        "bare": ({"python": "/usr/bin/python3"}, f"the Python of host {name} lacks", "pip install"),
        "setup": (
            {"setup": ["module load 'no such'"]},
            f"a line of the target's setup failed on host {name}: module load 'no such'",
            "correct that line",
        ),
        "readonly": ({"folder": "/proc/x"}, "folder of the target cannot be written", "set folder"),
        "apart": (
            {"runs": str(pair.folder)},
            f"host {name} does not see a file that this machine has written in {pair.folder}",
            "mount the same folder",
        ),
    }
    for target, (settings, what, fix) in wanted.items():
        pair.target(target, **settings)
        code, out, _ = pair.call("target", "check", target, "--json")
        first = next(f for f in json.loads(out)["findings"] if f["level"] == "error")
        assert (
            code == 3 and first["message"].startswith(what) and fix in first["fix"] and "\n" not in first["message"]
        ), (target, first)
    code, out, _ = pair.run(2, "--on", "nokey")
    assert code == 1 and pair.ended() == ["BAD_INPUT"] and f"host {name} accepts none of your SSH keys" in out, out
    assert "ssh-key" in [match["rule"] for match in json.loads(pair.call("diagnose", "r", "--json")[1])["matches"]]
    code, out, _ = pair.call("target", "check", "lab")
    assert code == 0 and "2 host(s) answer" in out and "lab: OK: no problems found" in out
    assert pair.brought() == []


def test_a_doctor_looks_at_every_host(pair: Pair) -> None:
    pair.target("real", python=sys.executable)
    (pair.folder / "cats").mkdir()
    code, out, err = pair.call(
        "doctor", "phase2-tiny", "data.source=cats", "aligner.source=/no/aligner.pt", "--on", "real", "--json"
    )
    told = json.loads(out)
    assert code == 3 and sorted(machine["host"] for machine in told["machines"]) == pair.lab.names, (out, err)
    assert [f["message"] for f in told["findings"] if "does not see" in f["message"]] == [
        f"{name} does not see /no/aligner.pt" for name in pair.lab.names
    ]
    assert all(
        {"h1", "h2"} & set(machine["peers"]) for machine in told["machines"]
    )  # its own name, by which some look for it
    (network,) = [f["message"] for f in told["findings"] if f["check"] == "network"]
    assert network.startswith("2 machines met within ") and network.endswith(" GB/s each, by gloo")
    assert (
        all(list(machine["folders"]) == [f"{pair.lab.root}/disk"] for machine in told["machines"])
        and pair.brought() == []
    )


def test_a_dry_run_shows_what_would_be_started_and_touches_nothing(pair: Pair) -> None:
    code, out, _ = pair.call("run", *RECIPE, "mesh.fsdp=2", "--name", "r", "--on", "lab", "--dry-run")
    assert (
        code == 0 and "podwright.targets.hosts.start" in out and "JAX_PROCESS_ID=$rank" in out and "on_host keep" in out
    )
    assert not (pair.folder / "runs").exists() and pair.brought() == []


@pytest.fixture
def sharing(lab: sshd.Hosts) -> Iterator[Pair]:
    """In a folder that both hosts see."""
    folder = Path(tempfile.mkdtemp(dir=lab.root))
    (folder / "shared").mkdir()
    made = Pair(folder, lab)
    yield made
    made.call("stop", "r")


def test_with_a_shared_folder_nothing_is_brought_and_nothing_taken_away(sharing: Pair) -> None:
    sharing.target("shared", runs=str(sharing.folder / "shared"), setup=[f"export PYTHONPATH={LAUNCH.parents[1]}"])
    launcher = sharing.start_run(100, "--on", "shared", **STEADY)
    wait_for(lambda: 3 in sharing.steps())
    launcher.kill()
    launcher.communicate()
    assert sharing.call("stop", "r")[0] == 0 and sharing.ended() == ["STOPPED"]
    assert (
        sharing.path().is_symlink()
        and sharing.brought() == []
        and sharing.path("checkpoint").read_text() == str(max(sharing.steps()))
    )
    assert "process 1 of 2 on h2" in sharing.path("attempts/1/log-1.txt").read_text()


@pytest.mark.long
@pytest.mark.crowded
def test_jax_on_two_hosts_with_a_shared_folder_trains_as_in_one_process(sharing: Pair) -> None:
    sharing.target(
        "real",
        python=sys.executable,
        runs=str(sharing.folder / "shared"),
        setup=[f"export PYTHONPATH={LAUNCH.parents[1]}"],
    )
    here = podwright(sharing.folder, "run", *TRAINED, "--name", "here", "--on", "cpu-2")
    assert here.returncode == 0, here.stderr
    code, out, _ = sharing.call("run", *TRAINED, "--name", "r", "--on", "real")
    assert code == 0 and sharing.ended() == ["FINISHED"], (
        out,
        sharing.path("attempts/1/log-1.txt").read_text()[-3000:],
    )
    told = [
        {r["step"]: r["loss"] for r in read_steps(RunDir(sharing.folder / "runs" / name), "pretrain")}
        for name in ("here", "r")
    ]
    assert len(told[0]) == 12 and told[1] == pytest.approx(told[0], rel=1e-4)


@pytest.mark.long
@pytest.mark.crowded
def test_jax_on_two_hosts_that_share_no_folder_saves_through_the_first_one(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.target("real", python=sys.executable)
    here = podwright(pair.folder, "run", *TRAINED, "--name", "here", "--on", "cpu-2")
    assert here.returncode == 0, here.stderr
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(pair.folder / "targets.yaml"))
    there = podwright(pair.folder, "run", *TRAINED, "--name", "r", "--on", "real")
    assert there.returncode == 0 and pair.ended() == ["FINISHED"], (
        there.stderr,
        pair.path("attempts/1/log.txt").read_text()[-3000:],
    )
    losses = [
        {r["step"]: r["loss"] for r in read_steps(RunDir(pair.folder / "runs" / name), "pretrain")}
        for name in ("here", "r")
    ]
    assert len(losses[0]) == 12 and losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert pair.path("checkpoints/12/commit_success.txt").exists()


@pytest.mark.long
def test_a_stopped_process_ends_a_jax_run_as_stalled_with_the_stacks_of_both(sharing: Pair) -> None:
    runs = sharing.folder / "shared"
    sharing.target("patient", python=str(short_patience.interpreter(runs / "python")), runs=str(runs))
    code, out, err = sharing.call("run", *TRAINED, *ENDLESS, "--name", "r", "--on", "patient", "--detach")
    assert code == 0, (out, err)
    wait_for(lambda: 9 in sharing.steps())
    os.kill(short_patience.process(runs / "r", 1), signal.SIGSTOP)
    wait_for(sharing.path("attempts/1/exit.json").exists, short_patience.LONGEST_S)
    sharing.call("watch", "r")
    assert sharing.ended() == ["STALLED"] and "rank 1 " in sharing.last_end()["detail"], sharing.last_end()
    short_patience.assert_stacks_of_both(RunDir(sharing.path()), 1, "train/pretrain/loop.py")


@pytest.mark.long
def test_training_on_two_hosts_that_share_no_disk_is_stopped_and_ends_as_on_one_machine(pair: Pair) -> None:
    pair.target("real", python=sys.executable, env=["OMP_NUM_THREADS"])
    (pair.folder / "cats").mkdir()
    assert pair.call("data", "draw", "cats", "--num-train", "40", "--num-test", "4")[0] == 0
    asked = ("phase2-tiny", "data.source=cats", *SMALL, "training.max_steps=12")
    here = podwright(pair.folder, "run", *asked, "--name", "here", "--on", "cpu-2")
    assert here.returncode == 0, here.stderr
    code, out, err = pair.call("run", *asked, "--name", "r", "--on", "real", "--detach", OMP_NUM_THREADS="1")
    assert code == 0, (out, err)
    pair.wait_for_step(3)
    held = pair.process(1)
    os.kill(held, signal.SIGSTOP)  # its last steps are shorter than a stop takes on a busy machine
    stopping = pair.start("stop", "r")
    wait_for(lambda: any(r["event"] == "signalled" for r in pair.records("journal.jsonl")))
    os.kill(held, signal.SIGCONT)
    out, err = stopping.communicate(timeout=900)
    assert stopping.returncode == 0 and pair.ended() == ["STOPPED"] and pair.brought() == [], (out, err)
    code, out, err = pair.call("resume", "r", OMP_NUM_THREADS="1")
    assert code == 0 and pair.ended() == ["STOPPED", "FINISHED"], (out, err)
    (seen, *_) = [e for e in pair.records("events.jsonl") if e["event"] == "environment"]
    assert seen["processes"] == 2 and "process 1 of 2 on h2" in pair.path("attempts/2/log-1.txt").read_text()
    one, other = (
        torch.load(pair.folder / "runs" / name / "model.pt", weights_only=True)["model_state_dict"]
        for name in ("here", "r")
    )
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    losses = [
        {r["step"]: r["loss"] for r in read_steps(RunDir(pair.folder / "runs" / name), "multimodal")}
        for name in ("here", "r")
    ]
    assert losses[1] == losses[0]
    assert pair.steps() == list(range(1, 13)) and (pair.path() / "report" / "report.html").exists()
    assert all(len(pair.path(f"attempts/2/devices-{n}.csv").read_text().splitlines()) > 1 for n in (0, 1))
