"""A second transport: a command on this machine with another home, as `kubectl exec -i POD -- sh -c COMMAND` is one in a pod."""

import re
from dataclasses import dataclass

from podwright.rundir import Ending, Record
from podwright.targets.hosts.transport import Trouble


@dataclass(frozen=True)
class HomeTransport:
    name: str
    home: str
    address: str = "127.0.0.1"

    @property
    def record(self) -> Record:
        return {"name": self.name, "home": self.home}

    def argv(self, command: str) -> list[str]:
        return ["env", f"HOME={self.home}", "sh", "-c", f"cd || exit 255; {command}"]

    def explain(self, stderr: str) -> Trouble | None:
        if re.search("can't cd to", stderr):
            return Trouble(f"host {self.name} is off", "switch it on", Ending.NO_CAPACITY, stderr)
        return None


def connect(record: Record) -> HomeTransport:
    return HomeTransport(record["name"], record["home"])
