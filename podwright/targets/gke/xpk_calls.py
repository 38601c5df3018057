"""The command line of `xpk workload create` for an attempt, and what its output lets one conclude. Pure but for what looks which xpk is here.

xpk names the JobSet after the workload. Everything else of it (queue, labels, containers, limits) is xpk's own.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Sequence

from podwright.errors import UserError
from podwright.failures.match import match
from podwright.recipe.maxtext.schema import MaxTextRecipe, command
from podwright.targets.base import Remark
from podwright.targets.gke import capacity, jobset, xpk_shape
from podwright.targets.gke.kubectl_replies import classify, context_of
from podwright.targets.google.replies import Consequence, Reply, of_failure
from podwright.targets.settings.gke import GkeSettings

PROGRAM = "xpk"
ASK_LIMIT_S = 120.0
"""for which `xpk version` may take: it starts slowly, and asks pip for newer ones"""
Ask = Callable[..., tuple[int, str, str]]
"""runs a command for so many seconds at most: exit code, stdout, stderr"""
_CHECKED = "podwright-check"
"""name of the workload in a dry run"""
_SHORTEST_TTL_S = 600
_PREFIX = "[XPK] "
_UNFOLLOWED = {
    "dry-run": "submits nothing",
    "use-pathways": "creates no JobSet of that name",
    "headless": "creates no JobSet of that name",
}
"""options of a recipe with which a run has nothing to follow -> why"""


def versioned(recipe: MaxTextRecipe, own: GkeSettings) -> MaxTextRecipe:
    """The recipe with the version of xpk that submits it: that of the target, else its own. UserError where neither names one."""
    version = own.xpk or recipe.versions.xpk
    if not version:
        what = "submit=xpk: neither the target nor the recipe names a version of xpk, by which pods differ"
        raise UserError(
            what, f"set xpk={xpk_shape.NEWEST} in the target's file, or type versions.xpk={xpk_shape.NEWEST}"
        )
    return recipe.model_copy(update={"versions": recipe.versions.model_copy(update={"xpk": version.removeprefix("v")})})


def require_followable(recipe: MaxTextRecipe) -> None:
    """UserError for an option of xpk with which a run could not be followed, or would be repeated twice over."""
    for name in recipe.xpk:
        if name in _UNFOLLOWED:
            raise UserError(f"xpk.{name} of the recipe {_UNFOLLOWED[name]}, so that a run could not be followed", "take it out")  # fmt: skip
    restarts = jobset.whole_number(recipe.xpk.get("max-restarts") or "0", "max-restarts")
    if restarts:
        what = f"xpk.max-restarts={restarts} has the cluster start the workload again, and a run does that itself"
        raise UserError(what, "type xpk.max-restarts=0")
    kept = recipe.xpk.get("ttl-seconds-after-finished", "")
    if kept and jobset.whole_number(kept, "ttl-seconds-after-finished") < _SHORTEST_TTL_S:
        what = f"xpk.ttl-seconds-after-finished={kept} has the cluster delete the workload before its logs are read"
        raise UserError(what, f"type xpk.ttl-seconds-after-finished={_SHORTEST_TTL_S} or more")


def require_installed(version: str, ask: Ask) -> str:
    """The version of the xpk on PATH; UserError unless it is `version` ("": any)."""
    wanted = version or xpk_shape.NEWEST
    fix = f"type pip install xpk=={wanted} in an environment of its own, and put its bin folder first in PATH"
    try:
        code, out, err = ask((PROGRAM, "version"), ASK_LIMIT_S)
    except FileNotFoundError:
        raise UserError(f"submit=xpk: xpk {version}".rstrip() + " is not installed on this machine", fix) from None
    match = re.search(r"xpk_version: v?(\S+)", out)
    if code or not match:
        raise UserError(f"submit=xpk: xpk version fails: {_last_line(err + out)}", fix)
    if match[1] != wanted and version:
        what = f"submit=xpk: the xpk of this machine is {match[1]}, and the run needs {version}"
        raise UserError(what, f"{fix}; or set xpk={match[1]} in the target's file")
    return match[1]


def require_accepted(recipe: MaxTextRecipe, own: GkeSettings, ask: Ask) -> None:
    """UserError unless the xpk on PATH is of the recipe's version and takes the call of a recipe whose variables have values: by its dry run, which
    asks nothing of cloud and cluster. What a dry run fails at for an unknown reason is left to the call itself."""
    call = (*workload_create(recipe, own, _CHECKED), "--dry-run")
    try:
        code, out, err = ask(call, ASK_LIMIT_S)
    except FileNotFoundError:
        code, out, err = 1, "", ""
    started = re.search(r"Starting xpk v(\S+)", out)
    if started is None or started[1] != recipe.versions.xpk:
        require_installed(recipe.versions.xpk, ask)
    reply = conclusion(f"{out}\n{err}", own)
    if code and reply.consequence is Consequence.FINAL:
        raise UserError(f"submit=xpk: {reply.reason}", reply.fix)


def check(own: GkeSettings, ask: Ask) -> list[Remark]:
    """Which xpk is here."""
    try:
        version = require_installed(own.xpk.removeprefix("v"), ask)
    except UserError as e:
        return [Remark("error", e.what, e.fix)]
    named = "" if own.xpk else "; recipes name the version that they need, or set xpk in the target's file"
    return [Remark("info", f"this machine has xpk {version}, which submits runs{named}")]


def options(recipe: MaxTextRecipe, own: GkeSettings) -> dict[str, str]:
    """Of `xpk workload create`, those that the target does not decide, in their order: with the image, and with the target's priority if it has one. UserError for what can be no option."""
    values = {key: value for key, value in recipe.xpk.items() if not capacity.decided_by_target(key, own)}
    values |= {"priority": own.priority} if own.priority else {}
    for name in values:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            raise UserError(f"xpk.{name} is no option of xpk", "correct the recipe")
    return ({} if "base-docker-image" in values else {"docker-image": recipe.image}) | values


def device_option(recipe: MaxTextRecipe) -> str:
    return "tpu-type" if "base-docker-image" in recipe.xpk else "device-type"


def workload_create(recipe: MaxTextRecipe, own: GkeSettings, name: str) -> tuple[str, ...]:
    """The call that creates workload `name`; of a recipe whose variables have values."""
    slice_ = jobset.slice_of(recipe)
    zonal = own.location.count("-") == 2  # xpk takes a zone, and finds the cluster there or in its region
    return (
        *(PROGRAM, "workload", "create"),
        f"--cluster={own.cluster}",
        f"--project={own.project}",
        f"--zone={own.location if zonal else own.zones[0]}",
        f"--workload={name}",
        f"--{device_option(recipe)}={slice_.names()['xpk']}",
        f"--num-slices={slice_.num_slices}",
        *(f"--{key}={value}" if value else f"--{key}" for key, value in options(recipe, own).items()),
        f"--command={command(recipe)}",
    )


def conclusion(output: str, own: GkeSettings, target: str = "NAME") -> Reply:
    """Of a call that created nothing for `target`, by what it printed on both streams."""
    fields = {"target": target, "cluster": own.cluster, "project": own.project, "context": context_of(own)}
    of_others = "\n".join(_of_others(output))
    if failure := match(f"{output}\n{of_others}", "xpk"):
        return of_failure(failure, fields)
    reply = classify(of_others, own)
    unclear = reply.consequence in (Consequence.EXISTS, Consequence.ABSENT) or reply.reason.startswith("Unclear")
    return Reply(Consequence.UNKNOWN, f"Unclear: xpk says {_last_line(output)!r}") if unclear else reply


def _of_others(output: str) -> list[str]:
    """What programs that xpk calls have printed: their own lines, and those that xpk shows as bytes of Python."""
    lines = []
    for line in output.splitlines():
        if not line.startswith(_PREFIX):
            lines.append(line)
        elif line.startswith((f"{_PREFIX}b'", f'{_PREFIX}b"')):
            with contextlib.suppress(ValueError, SyntaxError):
                lines += ast.literal_eval(line.removeprefix(_PREFIX)).decode(errors="replace").splitlines()
    return lines


def _last_line(output: str) -> str:
    """The last that is more than a frame around others."""
    ends = ("XPK failed, error code", "Exiting XPK")
    lines: Sequence[str] = [line.removeprefix(_PREFIX).strip() for line in output.splitlines()]
    lines = [line for line in lines if line.strip("*") and not line.startswith(ends)]
    return lines[-1][:300] if lines else "nothing"
