"""One call of the simulated gcloud: requests to the API under its account, and its answers and refusals in gcloud's words.

Forms of output were taken from gcloud 528 itself, run against a server that answered as the API does.
"""

import json
import os
import re
import time
from pathlib import Path
from typing import Any

from lab.gcloud import services, store
from lab.gcloud.api import ApiError, Json, PlannedRefusal
from lab.gcloud.surface import Call, Refusal

POLL_S = 0.05
WAITED_S = 1800.0


class Session:
    """One call of gcloud: the lab's state, and what the call prints."""

    def __init__(self, root: Path, call: Call) -> None:
        self.root, self.call = root, call
        self.refused: ApiError | None = None  # what the services answer to everything
        self.out: list[str] = []
        self.err: list[str] = []
        knobs = store.read(root)["knobs"]
        self.properties: dict[str, str] = knobs["properties"] | from_environment()
        self.account, self.login_expired = knobs["account"], knobs["login_expired"]

    def say(self, line: str) -> None:
        self.err.append(line + "\n")

    def show(self, value: Any) -> None:
        """On stdout, as --format=json does, and a `describe` without a format: in YAML, which JSON is too; `value(key)` prints one field. Other
        formats are not simulated."""
        chosen = self.call.flags.get("format", "")
        if chosen == "json" or (not chosen and self.call.command[-1] == "describe"):
            self.out.append(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
        elif match := re.fullmatch(r"value\(([\w.]+)\)", chosen):
            rows = value if isinstance(value, list) else [value]
            self.out.append("".join(f"{lookup(row, match[1]) or ''}\n" for row in rows))
        else:
            raise Refusal(f"lab: only --format=json and --format=value(KEY) are simulated, not {chosen!r}\n", 70)

    def pairs(self, flag: str) -> dict[str, str]:
        """KEY=VALUE,...; `^X^` in front makes X the separator, as `gcloud topic escaping` says."""
        text, separator = self.call.flags.get(flag, ""), ","
        if match := re.match(r"\^([^^]+)\^", text):
            separator, text = match[1], text[match.end() :]
        parts = [part for part in text.split(separator) if part]
        for part in parts:
            if "=" not in part:
                hint = "Please see `gcloud topic flags-file` or `gcloud topic escaping` for information on providing list or dictionary flag "
                hint += "values with special characters."
                raise self.fail(f"argument --{flag}: Bad syntax for dict arg: [{part}]. {hint}", 2)
        return dict(part.split("=", 1) for part in parts)

    def show_list(self, items: list[Json]) -> None:
        """Those that the call's filter lets pass."""
        if expression := self.call.flags.get("filter"):
            keys = {re.split(r"!=|=|:|~", term)[0] for term in terms(expression)}
            self.warn_of_filter({key for key in keys if all(lookup(item, key) is None for item in items)})
            items = [item for item in items if matches(item, expression)]
        self.show(items)

    def warn_of_filter(self, absent: set[str]) -> None:
        """gcloud does so where no item of a list has a key of its filter, also where there is no item."""
        if absent:
            keys = ", ".join(sorted(absent))
            self.say(f"WARNING: The following filter keys were not present in any resource : {keys}")

    def fail(self, text: str, status: int = 1) -> Refusal:
        return Refusal(f"ERROR: ({self.call.dotted}) {text}\n", status)

    def setting(self, flag: str, name: str, missing: str) -> str:
        """A flag's value, else that of gcloud's configuration."""
        if value := self.call.flags.get(flag) or self.properties.get(name, ""):
            return value
        noun = self.call.spec.noun
        head, resource = (noun, noun) if noun else (missing, {"zone": "location"}.get(missing, missing))
        ways = [f"provide the argument `{noun}` on the command line with a fully specified name"] if noun else []
        ways += [f"provide the argument `--{missing}` on the command line", f"set the property `{name}`"]
        raise self.fail(
            f"Error parsing [{head}].\nThe [{resource}] resource is not properly specified.\nFailed to find attribute [{missing}]. "
            "The attribute can be set in the following ways: \n" + "\n".join(f"- {way}" for way in ways)
        )

    def missing_property(self, section: str, name: str, flag: str) -> Refusal:
        variable = f"CLOUDSDK_{section.upper()}_{name.upper()}"
        return self.fail(
            f"The required property [{name}] is not currently set.\nIt can be set on a per-command basis by re-running your command with the "
            f"[--{flag}] flag.\n\nYou may set it for your current workspace by running:\n\n  $ gcloud config set "
            f"{name if section == 'core' else f'{section}/{name}'} VALUE\n\nor it can be set temporarily by the environment variable [{variable}]"
        )

    @property
    def project(self) -> str:
        """That of --project, else of gcloud's configuration."""
        if value := self.call.flags.get("project") or self.properties.get("core/project"):
            return value
        raise self.missing_property("core", "project", "project")

    @property
    def parent(self) -> str:
        project = self.setting("project", "core/project", "project")
        return f"projects/{project}/locations/{self.setting('zone', 'compute/zone', 'zone')}"

    def request(self, method: str, path: str, body: Json | None = None, **query: str) -> Json:
        """One request to the TPU API."""
        version = "v2alpha1" if self.call.track == "alpha" else "v2"
        return self.send(method, f"/{version}/{path}", body, **query)

    def send(self, method: str, path: str, body: Json | None = None, **query: str) -> Json:
        """One request to a service, under the account of gcloud; its refusal ends the call."""
        try:
            return self.attempt(method, path, body, **query)
        except ApiError as error:
            raise self.fail(self.describe(error)) from None

    def attempt(self, method: str, path: str, body: Json | None = None, **query: str) -> Json:
        """As `send`, but a refusal of the service is ApiError."""
        if not self.account:
            raise self.fail(NO_LOGIN)
        if self.login_expired:
            raise self.fail(EXPIRED)
        if self.refused:
            raise self.refused
        with store.opened(self.root) as state:
            try:
                return services.handle(state, method, path, query, body)
            except PlannedRefusal as error:
                refusal = error
        raise refusal

    def describe(self, error: ApiError) -> str:
        """The service's refusal in gcloud's words."""
        if self.call.command[0] == "container":
            return self.with_account(f"ResponseError: code={error.status}, message={error.message}", error.status)
        if self.call.command[:2] in (("compute", "resource-policies"), ("compute", "machine-types")):
            return f"Could not fetch resource:\n - {error.message}\n"
        if self.call.command[:2] == ("compute", "reservations") and error.status < 500:
            return self.with_account(f"HTTPError {error.status}: {error.message}", error.status)
        if error.status >= 500 or error.raw:
            return http_error(self.call, error)
        text = self.with_account(f"{error.name}: {error.message}", error.status)
        if not error.details:
            return text
        info, links = error.details
        lines = [
            text,
            *(part for link in links["links"] for part in (link["description"], link["url"])),
            f"- '@type': {info['@type']}",
            f"  domain: {info['domain']}",
            "  metadata:",
            *(f"    {key}: {value}" for key, value in sorted(info["metadata"].items())),
            f"  reason: {info['reason']}",
        ]
        return "\n".join(lines)

    def with_account(self, text: str, status: int) -> str:
        if status not in (401, 403, 404):
            return text
        account = f"This command is authenticated as {self.account} which is the active account specified by the [core/account] property"
        return f"{text} {account}." if text.endswith(".") else f"{text}. {account}"

    def operation(self, started: Json, issued: str, done: str) -> Json:
        """Wait for an operation, or say how to look at it; the operation as it is then."""
        name, shown = started["name"], self.call.name
        self.say(f"{issued} issued for: [{shown}]")
        if "async" in self.call.flags:
            self.say(f"Check operation [{name}] for status.")
            return started
        limit, waiting = time.monotonic() + WAITED_S, not started["done"]
        while not started["done"]:
            if time.monotonic() > limit:
                raise self.fail(waited(name))
            time.sleep(POLL_S)
            started = self.request("GET", name)
        failed = started.get("error")
        if waiting:
            self.say(f"Waiting for operation [{name}] to complete...\n.....{'failed' if failed else 'done'}.")
        if failed:
            raise self.fail(json.dumps(failed, indent=2, sort_keys=True))
        self.say(f"{done} {self.call.spec.noun} [{shown}].")
        return started


_LOG_IN = """Please run:

  $ gcloud auth login

to obtain new credentials.

If you have already logged in with a different account, run:

  $ gcloud config set account ACCOUNT

to select an already authenticated account to use."""
NO_LOGIN = f"You do not currently have an active account selected.\n{_LOG_IN}"
NO_DEFAULT = (
    "Your default credentials were not found. To set up Application Default Credentials, see "
    "https://cloud.google.com/docs/authentication/external/set-up-adc for more information."
)
EXPIRED = (
    "There was a problem refreshing your current auth tokens: Reauthentication failed. cannot prompt during "
    f"non-interactive execution.\n{_LOG_IN}"
)


def from_environment() -> dict[str, str]:
    """Properties that variables such as CLOUDSDK_CORE_PROJECT set."""
    names = [
        name.split("_", 2) for name in os.environ if re.fullmatch(r"CLOUDSDK_(CORE|COMPUTE|CONTAINER)_[A-Z_]+", name)
    ]
    return {f"{section.lower()}/{key.lower()}": os.environ[f"CLOUDSDK_{section}_{key}"] for _, section, key in names}


def waited(operation: str) -> str:
    return (
        f"Operation {operation} has not finished in {WAITED_S:.0f} seconds. The operations may still be underway remotely and may still succeed; "
        "use gcloud list and describe commands or https://console.developers.google.com/ to check resource state."
    )


def http_error(call: Call, error: ApiError) -> str:
    """A 5xx, which gcloud shows as the HTTP client's exception; older ones showed other refusals so too."""
    collection = "nodes" if "tpu-vm" in call.command else "queuedResources"
    service, places = "tpu.googleapis.com/v2", "locations"
    if "reservations" in call.command:
        service, places, collection = "compute.googleapis.com/compute/v1", "zones", "reservations"
    path = "/".join(filter(None, (collection, call.name)))
    place = f"projects/{call.flags.get('project', '')}/{places}/{call.flags.get('zone', '')}"
    headers = {"content-type": "application/json; charset=UTF-8", "server": "ESF", "status": error.status}
    return (
        f"HttpError accessing <https://{service}/{place}/{path}?alt=json>: response: <{headers}>, "
        f"content <{json.dumps(error.body(), indent=2)}\n>\n"
        "This may be due to network connectivity issues. Please check your network settings, and the status of the service you are trying to reach."
    )


def lookup(value: Any, path: str) -> Any:
    """A field of a message: names, and [i] into lists."""
    for part in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, list):
            value = value[int(part)] if part.isdigit() and int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def terms(expression: str) -> list[str]:
    return re.split(r"\s+AND\s+|\s+", expression.strip())


def matches(item: Any, expression: str) -> bool:
    """Of gcloud's filters: terms KEY=VALUE, KEY!=VALUE, KEY:VALUE, KEY:* and KEY~PATTERN, joined by AND or a blank."""
    for term in terms(expression):
        parts = re.fullmatch(r"([\w.\[\]-]+)(!=|=|:|~)(.*)", term)
        if not parts:
            raise Refusal(f"lab: the filter term {term!r} is not simulated\n", 70)
        key, operator, wanted = parts[1], parts[2], parts[3].strip("'\"")
        value = lookup(item, key)
        text = "" if value is None else str(value)
        match operator:
            case "=":
                true = text == wanted
            case "!=":
                true = text != wanted
            case ":":
                true = value is not None and (wanted == "*" or wanted.rstrip("*").lower() in text.lower())
            case _:
                true = value is not None and re.search(wanted, text) is not None
        if not true:
            return False
    return True
