"""What `podwright run --dry-run` prints."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from podwright.cli import show
from podwright.rundir import Record
from podwright.targets.gke.jobset import text

if TYPE_CHECKING:
    from podwright.plan.document import Plan

Row = Record
LATER = {
    "TAG": "a checksum of the directory of the run and of the time at which it is created",
    "EXPIRES": "Unix seconds when the life of the run (max_life) is over",
    "PORT": "a port from 12000 to 31999, by TAG and the number of the attempt",
    "CONTROL_PORT": "the port after PORT",
    "DIGEST": "of the contents of the ConfigMap",
    "INPUT": "the name in the storage of a file of this machine, by a checksum of its contents",
    "MASTER_VERSION": "the version of the cluster",
    "UID": "that the cluster gives to the JobSet",
    "HOST-0": "the first of the requested hosts",
}
"""what a dry run prints a name in capitals for, since only the run or the cloud knows it"""


def preview(planned: Plan, shown: Row, *, force: bool = False) -> None:
    """What starting a run would create and call, after its plan; of one that is refused, what `--force` would have it do."""
    show.plan(planned)
    would = "would" if force or planned.verdict != "refused" else "with --force it would"
    request = shown.get("request")
    if calls := shown.get("calls"):
        _calls(would, shown["run_dir"], request, calls)
    else:
        _files(would, request, shown)
    printed = json.dumps([request, calls, shown["argv"], shown["env"], shown["files"]])
    later = [
        f"  {name}: {meaning}" for name, meaning in LATER.items() if re.search(rf"(?<![A-Z_]){name}(?![A-Z_])", printed)
    ]
    if later:
        print("\n".join(["names in capitals stand for values that are not known yet:", *later]))


def _files(would: str, request: Row | None, shown: Row) -> None:
    if request:
        print(f"{would} request {request['name']} in {request['zone']}:\n  {shlex.join(request['argv'])}")
    print(f"{would} create {shown['run_dir']} and start there, in {shown['cwd']}:")
    print("  " + " ".join([*(f"{k}={v}" for k, v in shown["env"].items()), *shown["argv"]]))
    for path, content in shown["files"].items():
        print(f"\n{path}:\n{content}", end="")


def _calls(would: str, run_dir: str, request: Row | None, calls: Sequence[Row]) -> None:
    """In order, then the objects that they read. What is no text in these is left out, and named by its size."""
    machines = f", request {request['name']} in {request['zone']}" if request else ""
    print(f"{would} create {run_dir}{machines}, and call until the end of a run without faults:")
    manifests = [call["manifest"] for call in calls if call["manifest"]]
    for call in calls:
        of = call["manifest"]
        reads = f" < {of['kind']} {of['metadata']['name']}" if of else ""
        print(f"  {shlex.join(call['argv'])}{reads}")
    for manifest in manifests:
        sizes = {key: f"({len(value):,} bytes as base64)" for key, value in manifest.get("binaryData", {}).items()}
        print("---\n" + text(manifest | ({"binaryData": sizes} if sizes else {})), end="")
