"""`python -IS launch.py PARENT`: a container as a process of this machine. Its order comes as JSON on the first line of standard input.

`root`: an empty folder that becomes its root; `mounts`: [folder or file, path in the container, read-only]; `argv`, `environment`,
`directory`, `hostname`; `pid`: the file that gets the number of its first process. It ends with the process PARENT, and everything in it with it.
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
    if LIBC.unshare(CLONE):
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
        print(f"lab: {error}", flush=True)
    os._exit(128 if isinstance(sys.exc_info()[1], FileNotFoundError) else 127)


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
