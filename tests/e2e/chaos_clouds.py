"""What befalls the simulated cloud in a life on any target, by the kinds of chaos_hazards.py; chaos_vms.py and chaos_gke.py have the rest."""

from collections.abc import Callable
from typing import Any

from lab.gcloud.control import Gcloud
from tests.e2e.chaos_phases import Disturbance

Row = dict[str, Any]


def disturb(gcloud: Gcloud, what: str, how: Row) -> Disturbance:
    """`how` as the table has it; what is seen of the disturbance, and how to end one that ends."""
    match what:
        case "permission missing":
            gcloud.deny(*how["permissions"])
            return Disturbance("permission missing", lasts_s=how["seconds"], undo=_refusals(gcloud, gcloud.deny))
        case "login expired":
            gcloud.set(**{key: value for key, value in how.items() if key in ("login_expired", "account")})
            logs_in = lambda: gcloud.set(login_expired=False, account="lab@example.com")  # noqa: E731
            return Disturbance("login expired", lasts_s=how["seconds"], undo=_refusals(gcloud, logs_in))
        case "long lag":
            gcloud.set(lag={"describe": how["describe"], "list": how["list"]})
        case "slow deletion":
            gcloud.times(deleting=how["seconds"], pool_deleting=how["seconds"])
        case "failed deletion":
            gcloud.fail_deletions(how["count"])
        case "orphaned call":
            gcloud.fault(how["verb"], "orphaned", before=how["before"], delay_s=how["delay_s"])
        case _:
            raise AssertionError(f"no cloud knows the disturbance {what!r}")
    return Disturbance(what)


def _refusals(gcloud: Gcloud, end: Callable[[], None]) -> Callable[[], int]:
    """Ends what makes calls fail, and counts those that have failed since now."""
    before = _failed(gcloud)

    def undo() -> int:
        end()
        return _failed(gcloud) - before

    return undo


def _failed(gcloud: Gcloud) -> int:
    return sum(row["rc"] not in (0, None) for row in gcloud.calls())
