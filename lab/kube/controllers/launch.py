"""`python -IS launch.py PARENT`: a container as a process of this machine. Its order comes as JSON on the first line of standard input.

`root`: an empty folder that becomes its root; `mounts`: [folder or file, path in the container, read-only]; `argv`, `environment`,
`directory`, `hostname`; `network`: its network namespace, as a path; `pid`: the file that gets the number of its first process;
`error`: the file that gets the reason why the command did not start. It ends with the process PARENT, and everything in it with it.
Folders of this machine are seen in it, except where something is mounted over them.
"""

import ctypes
import json
import os
import signal
import socket
import sys
from pathlib import Path

CLONE = 0x20000 | 0x20000000 | 0x4000000 | 0x8000000  # mounts, process numbers, host name, shared memory
NETWORK = 0x40000000
BIND, REC, PRIVATE, REMOUNT, READ_ONLY = 0x1000, 0x4000, 0x40000, 0x20, 1
LIBC = ctypes.CDLL(None, use_errno=True)


def end_with(parent: int) -> None:
    LIBC.prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(137)


def mount(source: str, target: str, kind: str, flags: int) -> None:
    if LIBC.mount(source.encode(), target.encode(), kind.encode(), flags, None):
        error = ctypes.get_errno()
        raise OSError(error, f"mount {source} at {target}: {os.strerror(error)}")


def main() -> int:
    end_with(int(sys.argv[1]))
    order = json.loads(sys.stdin.readline())
    network = os.open(order["network"], os.O_RDONLY | os.O_CLOEXEC)
    if LIBC.setns(network, NETWORK) or LIBC.unshare(CLONE):
        raise OSError(ctypes.get_errno(), "no namespaces: the lab's pods need root")
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        LIBC.prctl(1, signal.SIGKILL)
        os.close(go)
        if not os.read(ready, 1):  # the parent has ended before the line above
            os._exit(137)
        os.close(ready)
        become(order)
    os.close(ready)
    Path(order["pid"]).write_text(str(pid))
    os.write(go, b"1")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _, state = os.waitpid(pid, 0)
    return 128 + os.WTERMSIG(state) if os.WIFSIGNALED(state) else os.WEXITSTATUS(state)


def become(order: dict) -> None:
    """The container's command; why it could not be started goes to the file `error`."""
    error_file = os.open(order["error"], os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.setsid()
    try:
        enter(order["root"], order["mounts"])
        socket.sethostname(order["hostname"])
        os.chdir(order["directory"])
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.execvpe(order["argv"][0], order["argv"], order["environment"])
    except OSError as error:
        text = f"{error.strerror or error}"
        if isinstance(error, FileNotFoundError):
            text = f'exec: "{order["argv"][0]}": executable file not found in $PATH'
        os.write(error_file, text.encode())
    os._exit(128)


def enter(root: str, mounts: list) -> None:
    """A root of its own, with the folders of this machine in it, so that a path such as /podwright can be mounted."""
    mount("none", "/", "", REC | PRIVATE)
    mount("tmpfs", root, "tmpfs", 0)
    for entry in os.scandir("/"):
        place = f"{root}/{entry.name}"
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), place)
        elif entry.is_dir() and entry.name not in ("proc", "lost+found"):
            os.mkdir(place)
            mount(entry.path, place, "", BIND | REC)
    os.mkdir(f"{root}/proc")
    mount("proc", f"{root}/proc", "proc", 0)
    for source, target, read_only in mounts:
        place = root + target
        if os.path.isdir(source):
            os.makedirs(place, exist_ok=True)
        elif not os.path.exists(place):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            Path(place).touch()
        mount(source, place, "", BIND)
        if read_only:
            mount("none", place, "", BIND | REMOUNT | READ_ONLY)
    os.chroot(root)


if __name__ == "__main__":
    sys.exit(main())
