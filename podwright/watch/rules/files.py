"""Disks and file systems."""

from __future__ import annotations

from podwright.rundir import Ending
from podwright.watch.rules.rule import RESUME, rule

RULES = (
    rule(
        "disk-full",
        r"No space left on device|[Dd]isk quota exceeded|[Ff]ile system is full|inline_container.*unexpected pos",
        Ending.CRASHED,
        "a disk is full, or your share of it",
        f"free some space (checkpoints of old runs), {RESUME}",
    ),
    rule(
        "read-only",
        r"Read-only file system",
        Ending.CRASHED,
        "the file system takes no writes; a network file system turns so when its server has failed",
        f"mount it for writing or give another --runs, {RESUME}",
    ),
    rule(
        "mount-gone",
        r"Stale file handle|Transport endpoint is not connected|Input/output error|ESTALE",
        Ending.CRASHED,
        "a shared file system went away while it was in use",
        f"mount it again on that node, {RESUME}",
    ),
    rule(
        "no-permission",
        r"Permission denied(?! \(publickey)",
        Ending.CRASHED,
        "the user who runs this may not read or write that file",
        f"give it to them (chown, chmod, or another --runs), {RESUME}",
    ),
)
