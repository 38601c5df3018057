"""What an attempt on hosts over ssh is rendered to, what is made of all that ssh and the keepers may say, and what comes back."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.rundir import Ending, RunDir
from podwright.shell import Shell
from podwright.targets.base import Job, Process
from podwright.targets.hosts import gather, keeper, on_host, standing, start
from podwright.targets.hosts.host import Host, Trouble
from podwright.targets.settings.ssh import SshSettings
from podwright.targets.ssh import Ssh
from podwright.watch.diagnose import outcome

GOLDEN = Path(__file__).parents[2] / "golden" / "ssh"
TWO = SshSettings(
    kind="ssh",
    hosts=("me@gpu-1", "me@gpu-2:2222"),
    gpus_per_node=8,
    accelerator="H100-80GB",
    setup=("source /etc/profile.d/modules.sh", "module load 'cuda/12.4' # the newest"),
    python="~/venv/bin/python",
    ssh=("-F", "/project/ssh.config"),
)
RENDERED = {
    "two-hosts": (TWO, Job(Path("/project/runs/r"), 2, Path("/project"), 1.0)),
    "shared": (
        TWO.model_copy(
            update={
                "runs": "/nfs/runs",
                "tasks_per_node": 8,
                "address": "10.0.0.1",
                "python": "/nfs/python",
                "setup": (),
            }
        ),
        Job(Path("/nfs/runs/r"), 1, Path("/nfs/my work"), 1.0),
    ),
    "one-cpu": (SshSettings(kind="ssh", hosts=("box",)), Job(Path("/my runs/50%/r"), 1, Path("/my runs"), 1.0)),
}


@pytest.mark.parametrize("name", RENDERED)
def test_rendered_as_in_the_golden_files(name: str) -> None:
    settings, job = RENDERED[name]
    rendered = Ssh(Shell(), "lab", settings).render(job)
    for path, text in rendered.files.items():
        golden = GOLDEN / f"{name}-{path.name}"
        if os.environ.get("REMAKE_GOLDEN"):
            golden.parent.mkdir(exist_ok=True)
            golden.write_text(text)
        assert text == golden.read_text(), f"look at it, then type REMAKE_GOLDEN=1 pytest {Path(__file__).name}"
        assert (
            path.suffix != ".sh" or subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
        )
    assert rendered.argv[1:] == ("-m", "podwright.targets.hosts.start", str(job.run_dir / f"attempts/{job.attempt}"))


def test_runs_are_told_apart_on_their_hosts_and_attempts_by_their_ports() -> None:
    def rendered(folder: str, number: int, created: float) -> tuple[str, str]:
        made = Ssh(Shell(), "lab", TWO).render(Job(Path(folder), number, Path("/"), created))
        return made.handle["home"], next(text for path, text in made.files.items() if path.name == "job.json")

    first = rendered("/runs/r", 1, 1.0)
    assert first == rendered("/runs/r", 1, 1.0) and first[0].startswith(".podwright/r-")
    assert rendered("/runs/r", 2, 1.0)[0] == first[0] and rendered("/runs/r", 2, 1.0)[1] != first[1]
    assert len({first[0], rendered("/other/r", 1, 1.0)[0], rendered("/runs/r", 1, 2.0)[0]}) == 3


def test_ssh_is_called_so_that_it_asks_nothing_and_keeps_its_connection() -> None:
    argv = Host(Shell(), "me@gpu-2:2222", ("-F", "/project/ssh.config")).argv("cd 'a b' && true")
    assert argv[:3] == ["ssh", "-F", "/project/ssh.config"] and argv[-2:] == [
        "me@gpu-2",
        """sh -c 'cd '"'"'a b'"'"' && true'""",
    ]
    assert {"-oBatchMode=yes", "-oControlMaster=auto", "-p", "2222"} <= set(argv)
    (path,) = (option for option in argv if option.startswith("-oControlPath="))
    assert len(path.removeprefix("-oControlPath=").replace("%C", "0" * 40)) < 80  # of 104, and ssh adds 17
    assert path not in Host(Shell(), "me@gpu-2:2222").argv("true"), "another identity, another connection"


@pytest.mark.parametrize(
    ("said", "what", "fix", "ending"),
    [
        (
            "ssh: Could not resolve hostname gpu-2: Name or service not known\n",
            "host me@gpu-2:2222 is not known here",
            "~/.ssh/config",
            Ending.BAD_INPUT,
        ),
        (
            "ssh: connect to host gpu-2 port 2222: Connection refused\n",
            "refuses connections at port 2222",
            "sshd",
            Ending.NO_CAPACITY,
        ),
        (
            "ssh: connect to host gpu-2 port 2222: Connection timed out\n",
            "does not answer",
            "switched on",
            Ending.NO_CAPACITY,
        ),
        (
            "ssh: connect to host gpu-2 port 2222: No route to host\n",
            "does not answer",
            "switched on",
            Ending.NO_CAPACITY,
        ),
        (
            "me@gpu-2: Permission denied (publickey).\r\n",
            "takes none of your keys",
            "ssh-copy-id -p 2222 me@gpu-2",
            Ending.BAD_INPUT,
        ),
        (
            "No ED25519 host key is known for gpu-2\r\nHost key verification failed.\r\n",
            "not known here yet",
            "`ssh -p 2222",
            Ending.BAD_INPUT,
        ),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n",
            "shows another key",
            "ssh-keygen -R '[gpu-2]:2222'",
            Ending.BAD_INPUT,
        ),
        (
            "Connection closed by 10.0.0.2 port 2222\n",
            "the connection to host me@gpu-2:2222 broke",
            "try again",
            Ending.NO_CAPACITY,
        ),
        ("Timeout, server gpu-2 not responding.\n", "broke", "try again", Ending.NO_CAPACITY),
        (
            "tar: ./a: Cannot write: No space left on device\n",
            "the disk of host me@gpu-2:2222 is full",
            "folder",
            Ending.BAD_INPUT,
        ),
        (
            "PermissionError: [Errno 1] Operation not permitted: '/x'\n",
            "folder cannot be written on host",
            "set folder",
            Ending.BAD_INPUT,
        ),
        (
            "mkdir: cannot create directory '/x': Permission denied\n",
            "folder cannot be written on host",
            "set folder",
            Ending.BAD_INPUT,
        ),
        ("start.sh: line 3: exec: python3: not found\n", "has no such Python", "set python", Ending.BAD_INPUT),
        (
            "start.sh: line 3: /no/python: No such file or directory\n",
            "has no such Python",
            "set python",
            Ending.BAD_INPUT,
        ),
        ("ModuleNotFoundError: No module named 'pydantic'\n", "lacks pydantic", "install", Ending.BAD_INPUT),
        (
            "noise\na line of the target's setup failed: module load x\n",
            "failed: module load x (on host me@gpu-2:2222)",
            "mend",
            Ending.BAD_INPUT,
        ),
        ("sh: 1: tar: not found\n", "has no tar", "install it", Ending.BAD_INPUT),
        ("something else\n", "host me@gpu-2:2222: something else", "mend that there", Ending.CRASHED),
        ("", "host me@gpu-2:2222: exit code 7", "mend that there", Ending.CRASHED),
    ],
)
def test_what_is_said_over_ssh_is_one_line_with_what_to_do(said: str, what: str, fix: str, ending: Ending) -> None:
    trouble = Host(Shell(), "me@gpu-2:2222").trouble(7, said)
    assert what in trouble.what and fix in trouble.fix and trouble.ending is ending and "\n" not in str(trouble)


def told(phase: str = "running", alive: bool = True, rebooted: bool = False, **record: object) -> dict:
    base = {"phase": phase, "fault": None, "codes": {}, "missing": []}
    return {"record": base | record, "alive": alive, "rebooted": rebooted}


NAMES = ("h1", "h2")
SILENT = Trouble("host h2 does not answer", "switch it on", Ending.NO_CAPACITY)
NOTHING = {"record": None}
LOST = {"kind": "lost", "host": "h2"}


@pytest.mark.parametrize(
    ("answers", "process", "waiting"),
    [
        ((told(), told()), Process.RUNNING, ""),
        ((told("joining", missing=["h2"]), NOTHING), Process.RUNNING, "Joining: h2 has not come yet"),
        ((told(), SILENT), Process.RUNNING, "Unreachable: host h2 does not answer"),
        ((SILENT, SILENT), Process.RUNNING, "Unreachable: "),
        ((SILENT, told("ended", alive=False)), Process.RUNNING, "Unreachable: "),
        ((NOTHING, told("joining")), Process.RUNNING, ""),
        ((NOTHING, SILENT), Process.RUNNING, "Unreachable: "),
        ((NOTHING, NOTHING), Process.ABSENT, ""),
    ],
)
def test_an_attempt_that_nobody_can_say_has_ended_has_not(answers, process: Process, waiting: str) -> None:
    found = standing.judged(NAMES, answers)
    assert found.process is process and found.waiting.startswith(waiting) and bool(found.waiting) == bool(waiting)


@pytest.mark.parametrize(
    ("answers", "ending", "says"),
    [
        ((told("ended", codes={"0": 0}), told()), None, ""),
        ((told("ended", fault=LOST), SILENT), Ending.NODE_LOST, "host h2 was lost"),
        (
            (told("ended", fault=LOST), told(alive=False)),
            Ending.UNKNOWN,
            "somebody killed what watches over the processes on host h2",
        ),
        ((told("ended", fault=LOST), told(alive=False, rebooted=True)), Ending.NODE_LOST, "host h2 was started anew"),
        ((told(alive=False, rebooted=True), told()), Ending.NODE_LOST, "host h1 was started anew"),
        ((told(alive=False), told()), Ending.UNKNOWN, "on host h1"),
        ((SILENT, told("ended", fault={"kind": "lost", "host": "h1"})), Ending.NODE_LOST, "host h1 was lost"),
        (
            (told("ended", fault={"kind": "absent", "host": "h1", "port": 5, "why": "h2"}), NOTHING),
            Ending.CRASHED,
            "h2 did not come to h1 in time",
        ),
        (
            (told("ended", fault={"kind": "apart", "host": "h2", "port": 5, "why": "h1:5 (timed out)"}), NOTHING),
            Ending.CRASHED,
            "h2 cannot reach h1:5 (timed out)",
        ),
        (
            (told("ended", fault={"kind": "port", "host": "h1", "why": "port 5: Address already in use"}), NOTHING),
            Ending.CRASHED,
            "port 5: Address already in use",
        ),
    ],
)
def test_how_an_attempt_ended_and_that_it_is_kept(answers, ending: Ending | None, says: str) -> None:
    found = standing.judged(NAMES, answers)
    assert found.process is Process.ENDED and found.ending is ending and says in found.detail
    assert standing.told(json.loads(json.dumps(standing.record(found)))) == found


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
    found = outcome(run, 1, standing.judged(NAMES, (told("ended", fault=fault), told())), False)
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
    assert start._inputs(recipe | {"rewards": rewards}, tmp_path / "below") == ["corpus", "w.pt", "rewards.py"]
    with pytest.raises(UserError, match=r"data.source=\.\./below/corpus is above .+; give a path that every host has"):
        start._inputs({"data": {"source": "../below/corpus"}}, tmp_path / "below")


class Here(Host):
    """A host that is this machine, without ssh."""

    def argv(self, command: str) -> list[str]:
        return ["sh", "-c", command]


def test_checkpoints_come_back_whole_and_what_was_removed_goes(tmp_path: Path) -> None:
    far, run = tmp_path / "far", RunDir(tmp_path / "r")
    run.attempt(1).mkdir(parents=True)
    for name in ("checkpoints/2/state/a", "checkpoints/2/b", "model.pt"):
        (far / name).parent.mkdir(parents=True, exist_ok=True)
        (far / name).write_text(name)

    def come(**shipped: list[int]) -> None:
        there = {p.relative_to(far).as_posix(): on_host.stamp(p) for p in far.rglob("*") if p.is_file()}
        gather.files(run, 1, 0, Here(Shell(), "here"), str(far), {"files": there | missing, "shipped": shipped})

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


def test_a_process_that_the_run_does_not_have_is_one_line(tmp_path: Path) -> None:
    handle = Ssh(Shell(), "lab", TWO).render(Job(tmp_path / "r", 1, tmp_path, 1.0)).handle
    with pytest.raises(UserError, match="--process 2: there are 2; type 0 to 1"):
        Ssh(Shell(), "lab", TWO).logs(handle, 0, 2)


@pytest.fixture
def lonely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, int], dict]]:
    """How the keeper of one host of two ends when the other one never comes."""
    monkeypatch.setattr(keeper, "JOIN_S", 0.4)
    attempt, before = tmp_path / "r" / "attempts" / "1", signal.getsignal(signal.SIGTERM)
    attempt.mkdir(parents=True)

    def kept(number: int, port: int) -> dict:
        job = {"hosts": list(NAMES), "address": "127.0.0.1", "control": port, "per_node": 1, "shared": False}
        place = on_host.HostAttempt(attempt, number)
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
