"""What `podwright run --dry-run` prints."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from podwright.cli import show
from podwright.rundir import Record
from podwright.targets.gke.jobset import text

if TYPE_CHECKING:
    from podwright.plan.document import Plan

Row = Record


def preview(planned: Plan, shown: Row) -> None:
    """What starting a run would create and call, after its plan."""
    show.plan(planned)
    request = shown.get("request")
    if calls := shown.get("calls"):
        _calls(shown["run_dir"], request, calls)
        return
    if request:
        print(f"would request {request['name']} in {request['zone']}:\n  {shlex.join(request['argv'])}")
    print(f"would create {shown['run_dir']} and start there, in {shown['cwd']}:")
    print("  " + " ".join([*(f"{k}={v}" for k, v in shown["env"].items()), *shown["argv"]]))
    for path, content in shown["files"].items():
        print(f"\n{path}:\n{content}", end="")


def _calls(run_dir: str, request: Row | None, calls: Sequence[Row]) -> None:
    """In order, then the objects that they read. What is no text in these is left out, and named by its size."""
    machines = f", request {request['name']} in {request['zone']}" if request else ""
    print(f"would create {run_dir}{machines}, and call until the end of a run without faults:")
    manifests = [call["manifest"] for call in calls if call["manifest"]]
    for call in calls:
        of = call["manifest"]
        reads = f" < {of['kind']} {of['metadata']['name']}" if of else ""
        print(f"  {shlex.join(call['argv'])}{reads}")
    for manifest in manifests:
        sizes = {key: f"({len(value):,} bytes as base64)" for key, value in manifest.get("binaryData", {}).items()}
        print("---\n" + text(manifest | ({"binaryData": sizes} if sizes else {})), end="")
