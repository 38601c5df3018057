"""Disks that are small and cgroups with little memory, made for a test."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")


def missing() -> str:
    """Why no file system can be mounted here; "" when one can."""
    done = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True, check=False
    )
    return f"nothing can be mounted: {done.stderr.strip()}" if done.returncode else ""


@contextlib.contextmanager
def small(folder: Path, size: str) -> Iterator[None]:
    """`folder` on a disk of that `size`."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def missing_cgroups() -> str:
    """Why no cgroup with a limit can be made here; "" when one can."""
    try:
        with memory_cgroup(1 << 30):
            return ""
    except OSError as e:
        return f"no cgroup can be made: {e}"


@contextlib.contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[Path]:
    """A cgroup, v1 or v2, for processes that write themselves into its cgroup.procs."""
    first = V1.is_dir()
    folder = Path(tempfile.mkdtemp(prefix="podwright-test-", dir=V1 if first else V2))
    try:
        (folder / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(limit_bytes))
        yield folder
    finally:
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (folder.parent / "cgroup.procs").write_text(pid)
        os.rmdir(folder)
