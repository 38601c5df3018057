"""`podwright target exec` on hosts of which some cannot even be called: every host has a result, and none is waited for without end."""

import errno
from dataclasses import dataclass, field
from pathlib import Path

from podwright.errors import UserError
from podwright.run import execution
from podwright.shell import Shell
from podwright.targets.hosts.transport import Host
from tests.unit.targets.home_transport import HomeTransport


@dataclass(frozen=True)
class Uncallable(HomeTransport):
    fault: Exception = field(default_factory=lambda: UserError("no private folder", "free /tmp", "no-folder"))

    def argv(self, command: str) -> list[str]:
        raise self.fault


@dataclass(frozen=True)
class WithoutProgram(HomeTransport):
    def argv(self, command: str) -> list[str]:
        return ["no-such-ssh", command]


def test_a_host_that_cannot_be_called_has_a_result_beside_those_of_the_others(tmp_path: Path) -> None:
    transports = [
        Uncallable("first", ""),
        Uncallable("full", "", fault=OSError(errno.ENOSPC, "No space left on device")),
        WithoutProgram("old", ""),
        HomeTransport("sound", str(tmp_path)),
    ]
    items = list(execution.execute([Host(Shell(), transport) for transport in transports], "echo here"))
    results = [item for item in items if isinstance(item, execution.HostResult)]
    assert [(r.host, r.code) for r in results] == [("first", 255), ("full", 255), ("old", 255), ("sound", 0)]
    assert [str(r.trouble) for r in results if r.trouble] == [
        "no private folder; free /tmp",
        "this machine: [Errno 28] No space left on device; type the command again",
        "command no-such-ssh not found on this machine; install no-such-ssh here",
    ]
    assert [item.text for item in items if isinstance(item, execution.OutputLine)] == ["here\n"]
