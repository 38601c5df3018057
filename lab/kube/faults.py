"""What a test makes go wrong at the API server: rules that match a call, each for a number of calls or a time."""

import time
from dataclasses import dataclass, field
from typing import Any

from lab.kube.errors import ApiError

KINDS = ("http", "forbidden", "slow", "reset", "lost", "hang", "gone", "cut", "repeat")


@dataclass
class Rule:
    """One fault. `skip` calls pass before it; then it holds for `calls` of them, or `seconds` from when it was set, or for good."""

    kind: str
    verb: str = "*"  # get list watch create update patch delete deletecollection; logs are get of pods/log, exec is create of pods/exec
    resource: str = "*"  # jobsets, pods, pods/log, jobsets/status ...
    name: str = "*"  # of the object
    calls: int | None = None
    seconds: float | None = None
    skip: int = 0
    status: int = 500
    retry_after_s: float | None = None
    text: str = ""
    reason: str = ""
    delay_s: float = 0.0  # slow: before the answer
    lines: int | None = None  # cut: after so many lines of a log or events of a watch
    bytes: int | None = None  # cut: after so much of a log, also in the middle of a line
    after_s: float | None = None  # cut: after so much time
    clean: bool = False  # cut: the stream ends as at its end, after `text`; otherwise the connection breaks
    back_s: float = 0.0  # repeat: so much earlier than --since-time
    set_at: float = field(default_factory=time.monotonic)
    uses: int = 0

    def __post_init__(self) -> None:
        assert self.kind in KINDS, f"no fault of kind {self.kind}: {', '.join(KINDS)}"

    def matches(self, verb: str, resource: str, name: str) -> bool:
        return self.verb in ("*", verb) and self.resource in ("*", resource) and self.name in ("*", name)

    def over(self) -> bool:
        if self.seconds is not None and time.monotonic() > self.set_at + self.seconds:
            return True
        return self.calls is not None and self.uses >= self.calls + self.skip


class Faults:
    """The rules that hold now."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []

    def set(self, **rule: Any) -> None:
        self.rules.append(Rule(**rule))

    def of(self, verb: str, resource: str, name: str) -> list[Rule]:
        """The rules that a call meets; each counts the call."""
        self.rules = [rule for rule in self.rules if not rule.over()]
        met = [rule for rule in self.rules if rule.matches(verb, resource, name)]
        for rule in met:
            rule.uses += 1
        return [rule for rule in met if rule.uses > rule.skip]

    def denies(self, verb: str, resource: str) -> bool:
        """For `kubectl auth can-i`, which uses nothing up."""
        return any(
            rule.kind == "forbidden" and rule.matches(verb, resource, "*") for rule in self.rules if not rule.over()
        )


REASONS = {
    400: ("BadRequest", "the server rejected our request for an unknown reason"),
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "forbidden"),
    404: ("NotFound", "the server could not find the requested resource"),
    409: ("Conflict", "the object has been modified; please apply your changes to the latest version and try again"),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    500: ("InternalError", "Internal error occurred: etcdserver: leader changed"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "Timeout: request did not complete within requested timeout - context deadline exceeded"),
}


def http_error(rule: Rule) -> ApiError:
    """The `Status` of an http fault; `retryAfterSeconds` is what client-go goes by."""
    reason, text = REASONS.get(rule.status, ("", "unknown"))
    details = {"retryAfterSeconds": int(rule.retry_after_s)} if rule.retry_after_s is not None else {}
    return ApiError(rule.status, rule.reason or reason, rule.text or text, **details)


def missing_permission(verb: str, resource: str, group: str) -> str:
    """Of GKE's authorizer [?]: which permission of IAM would do."""
    noun = resource.split("/")[0] if group in ("", "batch", "apps") else "thirdPartyObjects"
    subresource = resource.partition("/")[2]
    action = {"log": "getLogs", "exec": "exec", "status": f"{verb}Status"}.get(subresource, verb)
    return f'requires one of ["container.{noun}.{action}"] permission(s).'


def forbidden(user: str, verb: str, resource: str, group: str, namespace: str, name: str) -> ApiError:
    """403 as GKE writes it."""
    plural = resource.split("/")[0]
    qualified = (f"{plural}.{group}" if group else plural) + (f' "{name}"' if name else "")
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    text = (
        f'{qualified} is forbidden: User "{user}" cannot {verb} resource "{resource}" in API group "{group}" {where}: '
    )
    return ApiError(403, "Forbidden", text + missing_permission(verb, resource, group), group=group, kind=plural)
