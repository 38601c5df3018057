"""`python -m podwright.targets.gke.submit ATTEMPT`: create the objects of an attempt in its cluster; submit.json says how that went.

A process of its own, so that a launcher that is killed meanwhile leaves no half of it behind. A call that may have been received is made
again: the names are known before, and an object that is there is the attempt's own. Values of variables are read here and written to no file.
It inherits the lock by which others know that it is at work.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from podwright.errors import UserError
from podwright.rundir import Ending, Record, write_json
from podwright.shell import Shell
from podwright.targets import kinds
from podwright.targets.base import PlannedCall, Rendered
from podwright.targets.gke import trainer
from podwright.targets.gke.jobset import API_VERSION
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.google.replies import Consequence, Reply
from podwright.targets.settings.gke import GkeSettings

ORDER = "order.json"
RESULT = "submit.json"
OBJECTS = "objects.json"
"""manifests of the attempt in the order in which they are created; the JobSet is the last but those that may follow"""
CREATE = ("create", "--filename=-")
PATIENCE_S = 1800.0
"""for which a cluster that takes nothing is asked again"""
PAUSE_S = 3.0
_REPEATED = (Consequence.REPEAT, Consequence.UNKNOWN)


class Submission:
    def __init__(self, folder: Path, kubectl: Kubectl, clock_s: float):
        self._folder = folder
        self._kubectl = kubectl
        self._until = clock_s + PATIENCE_S
        self.sent = False
        """whether the cluster may have taken anything"""

    def create(self, manifest: Record) -> Reply | None:
        """Until it exists, cannot be created, a stop is wanted, or patience is at its end: why it does not exist, or None."""
        text = json.dumps(manifest)
        while not self.stopped:
            failure = self._kubectl.do(CREATE, text)
            refused = failure is not None and failure.consequence in (Consequence.FINAL, Consequence.ABSENT)
            self.sent = self.sent or not refused
            if failure is None or failure.consequence is Consequence.EXISTS:
                return None
            print(failure.reason, flush=True)  # what the attempt waits for
            if failure.consequence not in _REPEATED or time.monotonic() > self._until:
                return failure
            time.sleep(PAUSE_S)
        return None

    @property
    def stopped(self) -> bool:
        return (self._folder / "stop").exists()


def main() -> int:
    folder = Path(sys.argv[1])
    order = json.loads((folder / ORDER).read_text())
    shell = Shell()
    own: GkeSettings = kinds.recorded_settings("gke", order["settings"])
    kubectl = Kubectl(shell, own)
    submission = Submission(folder, kubectl, time.monotonic())
    outcome: Record = {}
    try:
        secrets = _secrets(order, own, shell.variables(order["variables"]))
        for manifest in (*secrets, *json.loads((folder / OBJECTS).read_text())):
            if failure := submission.create(manifest):
                outcome = _refused(failure)
                break
        if not outcome:
            adopt(kubectl, order["jobset"], _dependents(secrets, order))
    except UserError as e:
        outcome = {"ending": str(Ending.BAD_INPUT), "detail": e.what, "fix": e.fix, "bootstrap": False}
    write_json(folder / RESULT, outcome | {"sent": submission.sent})
    return 0


def adopt(kubectl: Kubectl, jobset: str, dependents: Sequence[str]) -> None:
    """Have the cluster delete `dependents` (KIND/NAME) with the JobSet. What fails is left to `release`, which deletes them by label."""
    if not dependents:
        return
    owner, _ = kubectl.json(("get", "jobset", jobset))
    if not owner:
        return
    for name in dependents:
        if failure := kubectl.do(_adoption(name, jobset, owner["metadata"]["uid"])):
            print(f"{name}: {failure.reason}")


def calls(shell: Shell, kubectl: Kubectl, rendered: Rendered) -> tuple[list[PlannedCall], list[PlannedCall]]:
    """What creates the objects of an attempt, and what makes the JobSet their owner, for a dry run. No value of a variable is in it."""
    texts = {path.name: text for path, text in rendered.files.items()}
    order = json.loads(texts[ORDER])
    own: GkeSettings = kinds.recorded_settings("gke", order["settings"])
    secrets = _secrets(order, own, dict.fromkeys(shell.variables(order["variables"]), ""))
    create = [PlannedCall(kubectl.argv(CREATE), manifest) for manifest in (*secrets, *json.loads(texts[OBJECTS]))]
    dependents = _dependents(secrets, order)
    return create, [PlannedCall(kubectl.argv(_adoption(name, order["jobset"], "UID"))) for name in dependents]


def _secrets(order: Record, own: GkeSettings, values: Mapping[str, str]) -> list[Record]:
    """One, or none where no variable of the target is set here."""
    if not values:
        return []
    manifest = trainer.secret(order["jobset"], own, order["labels"], values)
    manifest["metadata"]["annotations"] = order["annotations"]
    return [manifest]


def _dependents(secrets: Sequence[Record], order: Record) -> list[str]:
    return [*(f"secret/{each['metadata']['name']}" for each in secrets), *order["dependents"]]


def _adoption(name: str, jobset: str, uid: str) -> tuple[str, ...]:
    """Makes the JobSet the owner of `name` (KIND/NAME)."""
    reference = {"apiVersion": API_VERSION, "kind": "JobSet", "name": jobset, "uid": uid}
    patch = json.dumps({"metadata": {"ownerReferences": [reference]}})
    return ("patch", name, "--type=merge", f"--patch={patch}")


def _refused(failure: Reply) -> Record:
    final = failure.consequence not in _REPEATED
    ending = Ending.BAD_INPUT if final else Ending.UNKNOWN
    late = "" if final else f", for {PATIENCE_S / 60:g} min"
    detail = f"the attempt could not be submitted{late}: {failure.reason}"
    return {"ending": str(ending), "detail": detail, "fix": failure.fix, "bootstrap": not final}


if __name__ == "__main__":
    sys.exit(main())
