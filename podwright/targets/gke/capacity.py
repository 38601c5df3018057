"""Options of `xpk workload create` in a MaxText recipe that a target decides: the kind of machines, and the priority. Pure."""

from __future__ import annotations

from podwright.recipe.maxtext.schema import MaxTextRecipe
from podwright.targets.base import Remark
from podwright.targets.settings.gke import GkeSettings

OPTIONS = {"reservation": "reserved", "spot": "spot", "on-demand": "on-demand", "flex": "flex-start"}
"""of xpk workload create, for clusters that create node pools by themselves -> `provisioning` of a target"""


def decided_by_target(option: str, own: GkeSettings) -> bool:
    """Whether an option of xpk is left out of its call: the node pools of the run are those that the target requests."""
    return option in OPTIONS and own.capacity != "existing"


def differences(recipe: MaxTextRecipe, own: GkeSettings) -> list[Remark]:
    """A warning for each option of the recipe that asks for other machines than the target requests, or for another priority."""
    remarks = []
    priority = recipe.xpk.get("priority") or own.priority
    if own.priority and priority != own.priority:
        remarks.append(_difference("priority", priority, f"priority={own.priority}", f"priority={priority}"))
    for option, capacity in OPTIONS.items():
        value = recipe.xpk.get(option)
        if value is None or (own.capacity == capacity and _has(own, capacity, value)):
            continue
        own_form = f"reservations=[{value or 'NAME'}]" if capacity == "reserved" else f"provisioning={capacity}"
        remarks.append(_difference(option, value, f"provisioning={own.capacity}", own_form))
    return remarks


def _difference(option: str, value: str, counts: str, own_form: str) -> Remark:
    written = f"xpk.{option}={value}".rstrip("=")
    what = f"the recipe has {written}, and the target {counts}: the target counts"
    return Remark("warning", what, f"leave xpk.{option} out, or set {own_form} of the target")


def _has(own: GkeSettings, capacity: str, value: str) -> bool:
    """Whether the reservation of a recipe is one of the target's, by its name without project and zone."""
    return capacity != "reserved" or _name(value) in map(_name, own.reservation_names)


def _name(reservation: str) -> str:
    return reservation.partition("/reservations/")[2] or reservation
