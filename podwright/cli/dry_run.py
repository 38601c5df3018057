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
LATER = re.compile(
    r"(?<![A-Z_])(TAG|EXPIRES|PORT|CONTROL_PORT|DIGEST|INPUT|MASTER_VERSION|PUBLIC_KEY|UID|HOST-0)(?![A-Z_])"
)
"""what stands for values that only the run or the cloud knows"""


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
    if later := sorted(set(LATER.findall(printed))):
        print(f"stand for values that are known when the run is there: {', '.join(later)}")


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
