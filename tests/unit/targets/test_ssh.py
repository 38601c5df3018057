"""What an attempt over ssh is rendered to, how ssh is called, and what its messages mean."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.rundir import Ending
from podwright.shell import Shell
from podwright.targets.base import Job
from podwright.targets.handles import log_since
from podwright.targets.hosts.ssh_transport import SshTransport
from podwright.targets.hosts.transport import Host
from podwright.targets.settings.ssh import SshSettings
from podwright.targets.ssh import Ssh

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


def test_every_gpu_of_a_host_gets_a_process_of_a_kind_that_uses_one() -> None:
    for each, tasks in ((False, 1), (True, 8)):
        job = Job(Path("/runs/r"), 1, Path("/"), 1.0, one_gpu_each=each)
        files = {path.name: text for path, text in Ssh(Shell(), "lab", TWO).render(job).files.items()}
        assert json.loads(files["job.json"])["per_node"] == tasks


def test_processes_of_one_host_meet_on_that_host_whatever_other_machines_call_it() -> None:
    one = SshSettings(kind="ssh", hosts=("alias",), tasks_per_node=2, address="10.255.255.1")
    job = Job(Path("/runs/r"), 1, Path("/"), 1.0)
    files = {path.name: text for path, text in Ssh(Shell(), "lab", one).render(job).files.items()}
    assert "MASTER_ADDR=127.0.0.1 " in files["start.sh"] and '"address": "127.0.0.1"' in files["job.json"]
    two = one.model_copy(update={"hosts": ("alias", "other")})
    assert "MASTER_ADDR=10.255.255.1 " in next(iter(Ssh(Shell(), "lab", two).render(job).files.values()))


def test_runs_are_told_apart_on_their_hosts_and_attempts_by_their_ports() -> None:
    def rendered(folder: str, number: int, created: float) -> tuple[str, str]:
        made = Ssh(Shell(), "lab", TWO).render(Job(Path(folder), number, Path("/"), created))
        return made.handle["home"], next(text for path, text in made.files.items() if path.name == "job.json")

    first = rendered("/runs/r", 1, 1.0)
    assert first == rendered("/runs/r", 1, 1.0) and first[0].startswith(".podwright/r-")
    assert rendered("/runs/r", 2, 1.0)[0] == first[0] and rendered("/runs/r", 2, 1.0)[1] != first[1]
    assert len({first[0], rendered("/other/r", 1, 1.0)[0], rendered("/runs/r", 1, 2.0)[0]}) == 3


def test_ssh_is_called_so_that_it_asks_nothing_and_keeps_its_connection() -> None:
    argv = SshTransport("me@gpu-2:2222", ("-F", "/project/ssh.config")).argv("cd 'a b' && true")
    assert argv[:3] == ["ssh", "-F", "/project/ssh.config"] and argv[-2:] == [
        "me@gpu-2",
        """sh -c 'cd '"'"'a b'"'"' && true'""",
    ]
    assert {"-oBatchMode=yes", "-oControlMaster=auto", "-p", "2222"} <= set(argv)
    (path,) = (option for option in argv if option.startswith("-oControlPath="))
    assert len(path.removeprefix("-oControlPath=").replace("%C", "0" * 40)) < 80  # of 104, and ssh adds 17
    assert path not in SshTransport("me@gpu-2:2222").argv("true"), "another identity, another connection"


@pytest.mark.parametrize(
    ("stderr", "what", "fix", "ending"),
    [
        (
            "ssh: Could not resolve hostname gpu-2: Name or service not known\n",
            "the name of host me@gpu-2:2222 cannot be resolved on this machine",
            "~/.ssh/config",
            Ending.BAD_INPUT,
        ),
        (
            "ssh: connect to host gpu-2 port 2222: Connection refused\n",
            "refuses connections on port 2222",
            "write the port of sshd in hosts of the target: me@gpu-2:PORT",
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
            "accepts none of your SSH keys",
            "`ssh -p 2222 me@gpu-2 true`",
            Ending.BAD_INPUT,
        ),
        (
            "No ED25519 host key is known for gpu-2\r\nHost key verification failed.\r\n",
            "the SSH host key of me@gpu-2:2222 is not in known_hosts",
            "`ssh -p 2222",
            Ending.BAD_INPUT,
        ),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n",
            "the SSH host key of me@gpu-2:2222 has changed",
            "`ssh -p 2222 me@gpu-2 true`, which names the line of known_hosts",
            Ending.BAD_INPUT,
        ),
        (
            "Connection closed by 10.0.0.2 port 2222\n",
            "the SSH connection to host me@gpu-2:2222 was lost: Connection closed by 10.0.0.2 port 2222",
            "try again",
            Ending.NO_CAPACITY,
        ),
        ("Timeout, server gpu-2 not responding.\n", "was lost: Timeout, server gpu-2", "try again", Ending.NO_CAPACITY),
        (
            "tar: ./a: Cannot write: No space left on device\n",
            "the disk of host me@gpu-2:2222 is full: tar: ./a: Cannot write",
            "folder",
            Ending.BAD_INPUT,
        ),
        (
            "PermissionError: [Errno 1] Operation not permitted: '/x'\n  a line of context\n",
            "folder of the target cannot be written on host me@gpu-2:2222: /x (Operation not permitted)",
            "set folder",
            Ending.BAD_INPUT,
        ),
        (
            "mkdir: cannot create directory '/x': Permission denied\n",
            "folder of the target cannot be written on host",
            "set folder",
            Ending.BAD_INPUT,
        ),
        (
            "start.sh: line 3: exec: python3: not found\n",
            "cannot start Python: start.sh: line 3",
            "set python",
            Ending.BAD_INPUT,
        ),
        (
            "start.sh: line 3: /no/python: No such file or directory\n",
            "host me@gpu-2:2222 cannot start Python: start.sh: line 3: /no/python: No such file",
            "set python",
            Ending.BAD_INPUT,
        ),
        ("ModuleNotFoundError: No module named 'pydantic'\n", "lacks pydantic", "install", Ending.BAD_INPUT),
        (
            "noise\na line of the target's setup failed: module load x\n",
            "setup failed on host me@gpu-2:2222: module load x",
            "correct that line",
            Ending.BAD_INPUT,
        ),
        (
            "start.sh: line 9: exec: /tmp: cannot execute: Is a directory\n",
            "host me@gpu-2:2222 cannot start Python",
            "set python",
            Ending.BAD_INPUT,
        ),
        (
            "FileExistsError: [Errno 17] File exists: '/etc/passwd'\n",
            "/etc/passwd is a file on host me@gpu-2:2222",
            "set folder",
            Ending.BAD_INPUT,
        ),
        (
            "start.sh: eval: line 1: syntax error near unexpected token `fi'\nstart.sh: eval: line 1: `fi'\n"
            "a line of the target's setup failed: fi\n",
            "setup has a syntax error on host me@gpu-2:2222: fi (syntax error near unexpected token `fi')",
            "correct that line",
            Ending.BAD_INPUT,
        ),
        (
            "unknown option -- -\nusage: ssh [-46AaCf]\n [-w local_tun[:remote_tun]] destination [command]\n",
            "ssh on this machine does not accept ssh=[] of the target",
            "correct ssh of the target",
            Ending.BAD_INPUT,
        ),
        ("sh: 1: tar: not found\n", "command tar not found on host", "install tar there", Ending.BAD_INPUT),
        ("something else\n", "failed on host me@gpu-2:2222: something else", "correct that", Ending.CRASHED),
        ("", "failed on host me@gpu-2:2222: exit code 7", "correct that", Ending.CRASHED),
    ],
)
def test_each_message_of_ssh_becomes_one_line_with_what_to_do(stderr: str, what: str, fix: str, ending: Ending) -> None:
    trouble = Host(Shell(), SshTransport("me@gpu-2:2222")).trouble(7, stderr)
    assert what in trouble.what and fix in trouble.fix and trouble.ending is ending and "\n" not in str(trouble)


def test_a_host_that_takes_too_long_is_said_with_the_limit() -> None:
    trouble = Host(Shell(), SshTransport("gpu-2")).trouble(-9, "", 60.0)
    assert trouble.what == "host gpu-2 did not answer within 60 s" and trouble.ending is Ending.NO_CAPACITY


def test_a_process_that_the_run_does_not_have_is_one_line(tmp_path: Path) -> None:
    handle = Ssh(Shell(), "lab", TWO).render(Job(tmp_path / "r", 1, tmp_path, 1.0)).handle
    with pytest.raises(UserError, match="--process 2: attempt 1 of r has no such process; type a number from 0 to 1"):
        log_since(handle, 0, 2)


def test_runs_that_name_a_file_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = TWO.model_copy(update={"runs": f"{tmp_path}/file/runs"})
    (remark,) = Ssh(Shell(), "boxes", settings).check()
    assert (remark.level, remark.fix) == ("error", "correct runs of the target")
    assert remark.what == f"runs={tmp_path}/file/runs: {tmp_path}/file is a file, not a folder"


@pytest.mark.parametrize(
    "options", [("-J", "nogate"), ("-Jnogate",), ("-o", "ProxyJump=nogate"), ("-oProxyJump=nogate",)]
)
def test_a_jump_host_that_is_not_reached_is_named(options: tuple[str, ...]) -> None:
    said = "kex_exchange_identification: Connection closed by remote host\n"
    trouble = SshTransport("gpu-2", options).explain(said)
    assert trouble and trouble.what.startswith("host gpu-2 was not reached through jump host nogate: ")
    assert trouble.fix.startswith("type ssh nogate true") and trouble.ending is Ending.NO_CAPACITY
    assert "jump" not in str(SshTransport("gpu-2", ("-F", "c")).explain(said))


@pytest.mark.parametrize(
    "stderr",
    [
        "Host key verification failed.\n",
        "me@b: Permission denied (publickey).\n",
        "REMOTE HOST IDENTIFICATION HAS CHANGED\n",
    ],
)
def test_a_command_to_type_has_the_options_of_the_target(stderr: str) -> None:
    options = ("-i", "/my keys/id", "-oUserKnownHostsFile=/k", "-J", "gate")
    trouble = SshTransport("me@b:2222", options).explain(stderr)
    assert trouble and "`ssh -i '/my keys/id' -oUserKnownHostsFile=/k -J gate -p 2222 me@b true`" in trouble.fix
