"""The SSH key by which this user reaches TPU VMs, the host keys that they are known by, and locks; all lie beside the file of targets."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from podwright.errors import UserError
from podwright.rundir import part_of
from podwright.shell import Shell, targets_file
from podwright.targets import alive

USER = "podwright"
"""account on the machines; their image makes it for the key in their metadata"""


def folder() -> Path:
    return targets_file().parent / "tpu-vm"


def private_key() -> Path:
    return folder() / "id_ed25519"


def public_key(shell: Shell) -> str:
    """Of this user's key, which is created first if there is none. UserError where it cannot be."""
    path = private_key()
    try:
        folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        with (folder() / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                _create(shell, path)
        return path.with_suffix(".pub").read_text().strip()
    except FileNotFoundError as e:
        if e.filename == "ssh-keygen":
            raise UserError(
                "command ssh-keygen not found on this machine", "install the OpenSSH client", "missing-program"
            ) from None
        raise UserError(
            f"{path.with_suffix('.pub')} is missing", f"type: rm {path}; a new key is then created", "no-ssh-key"
        ) from e
    except OSError as e:
        raise UserError(
            f"no SSH key can be kept in {folder()}: {e.strerror}", "make that folder writable", "no-ssh-key"
        ) from e


def _create(shell: Shell, path: Path) -> None:
    """Both files, or none: ssh-keygen may be killed between the two."""
    with tempfile.TemporaryDirectory(dir=path.parent) as place:
        new = Path(place) / path.name
        code, _, stderr = shell.ask(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", USER, "-f", str(new)])
        if code:
            raise UserError(
                f"no SSH key could be created as {path}: {stderr.strip()}", "see ssh-keygen's message", "no-ssh-key"
            )
        new.with_suffix(".pub").replace(path.with_suffix(".pub"))
        new.replace(path)


def known_hosts(name: str) -> Path:
    """Of the slice called `name`."""
    return folder() / f"known_hosts-{name}"


def creating(name: str) -> Path:
    """Locked while gcloud is at work on the request for the slice called `name`."""
    return folder() / f"creating-{name}"


def creation_log(name: str) -> Path:
    """What a gcloud that waits for a node has printed."""
    return folder() / f"creating-{name}.txt"


def alias(name: str, worker: int) -> str:
    """By which the host key of a worker is kept: its address may be another slice's tomorrow."""
    return f"tpu.{name}-{worker}"


def write_known_hosts(name: str, keys: Mapping[int, Sequence[str]]) -> None:
    """`keys`: of each worker, as ssh writes them: TYPE BASE64."""
    lines = [f"{alias(name, worker)} {key}\n" for worker, of_worker in sorted(keys.items()) for key in of_worker]
    with part_of(known_hosts(name)) as part:
        part.write_text("".join(lines))


def forget(name: str) -> None:
    known_hosts(name).unlink(missing_ok=True)
    alive.forget(creating(name))
