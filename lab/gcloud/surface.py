"""Commands and flags that gcloud 528 has, as far as they are simulated; `parse` refuses the rest in gcloud's words.

Source: lib/surface and lib/googlecloudsdk/command_lib of the SDK; `gcloud meta lint-gcloud-commands` agrees with the tables (a test).
"""

import re
from dataclasses import dataclass

from lab.gcloud import surface_gke
from lab.gcloud.table import ALL, ASYNC, EVERYWHERE, LIST, ZONE, Command

TPUS = ("compute", "tpus")
NODE = {"network": 1, "subnetwork": 1, "internal-ips": 0, "service-account": 1, "scopes": 1, "tags": 1, "data-disk": 1}
NODE |= {"description": 1, "labels": 1, "metadata": 1, "metadata-from-file": 1, "range": 1, "shielded-secure-boot": 0}
NODE |= {"accelerator-type": 1, "type": 1, "topology": 1, "spot": 0, "reserved": 0}
REQUEST = NODE | {
    "node-id": 1,
    "node-count": 1,
    "node-prefix": 1,
    "runtime-version": 1,
    "guaranteed": 0,
    "min-duration": 1,
}
REQUEST |= {f"valid-{when}-{how}": 1 for when in ("after", "until") for how in ("duration", "time")}
REQUEST |= {f"reservation-host-{what}": 1 for what in ("project", "folder", "organization")}
ALPHA_NODE = {"autocheckpoint-enabled": 0, "boot-disk": 1, "reservation": 1, "provisioning-model": 1}
ALPHA_REQUEST = ALPHA_NODE | {"best-effort": 0, "max-run-duration": 1, "network-config": 1, "workload-type": 1}
UPDATE = {"description": 1, "internal-ips": 0, "update-labels": 1, "clear-labels": 0, "remove-labels": 1, "add-tags": 1}
UPDATE |= {"clear-tags": 0, "remove-tags": 1, "metadata-from-file": 1, "update-metadata": 1, "clear-metadata": 0}
UPDATE |= {"remove-metadata": 1}


QUEUED, VM = (*TPUS, "queued-resources"), (*TPUS, "tpu-vm")
COMMANDS: dict[tuple[str, ...], Command] = {
    (*QUEUED, "create"): Command(
        REQUEST | ZONE | ASYNC, "QUEUED_RESOURCE", "queued_resource", alpha=ALPHA_REQUEST, required=("runtime-version",)
    ),
    (*QUEUED, "describe"): Command(ZONE, "QUEUED_RESOURCE", "queued_resource"),
    (*QUEUED, "delete"): Command(ZONE | ASYNC | {"force": 0}, "QUEUED_RESOURCE", "queued_resource"),
    (*QUEUED, "list"): Command(ZONE | LIST),
    (*VM, "create"): Command(
        NODE | ZONE | ASYNC | {"version": 1, "preemptible": 0, "queue-count": 1},
        "TPU",
        "tpu",
        alpha=ALPHA_NODE,
        required=("version",),
    ),
    (*VM, "describe"): Command(ZONE, "TPU", "tpu"),
    (*VM, "delete"): Command(ZONE | ASYNC, "TPU", "tpu"),
    (*VM, "update"): Command(
        UPDATE | ZONE | ASYNC | {"attach-disk": 1, "detach-disk": 1}, "TPU", "tpu", alpha={"worker": 1}
    ),
    (*VM, "list"): Command(ZONE | LIST),
    (*VM, "get-guest-attributes"): Command(ZONE | LIST | {"query-path": 1}, "TPU", "tpu"),
    (*VM, "versions", "list"): Command(ZONE | LIST),
    (*VM, "versions", "describe"): Command(ZONE, "VERSION", "runtime_version"),
    (*VM, "accelerator-types", "list"): Command(ZONE | LIST),
    (*VM, "accelerator-types", "describe"): Command(ZONE, "ACCELERATOR_TYPE", "accelerator_type"),
    (*TPUS, "locations", "list"): Command(LIST, tracks=ALL),
    ("compute", "start-iap-tunnel"): Command(
        ZONE | {"listen-on-stdin": 0, "local-host-port": 1}, "INSTANCE_NAME", tracks=ALL
    ),
    ("services", "list"): Command(LIST | {"enabled": 0, "available": 0}, tracks=ALL),
    ("config", "get-value"): Command({}, "SECTION/PROPERTY", tracks=ALL),
    ("config", "get"): Command({}, "SECTION/PROPERTY", tracks=ALL),
    ("config", "list"): Command({"all": 0}, "SECTION/PROPERTY", tracks=ALL),
    ("auth", "list"): Command({"filter-account": 1, **LIST}, tracks=ALL),
    ("auth", "print-access-token"): Command({"lifetime": 1}, "ACCOUNT", tracks=ALL),
    ("auth", "application-default", "print-access-token"): Command({"lifetime": 1, "scopes": 1}, tracks=ALL),
    ("version",): Command({}, tracks=("",)),
    ("meta", "lint-gcloud-commands"): Command({"command-string": 1}, tracks=("",)),
    ("storage", "buckets", "describe"): Command({"raw": 0}, "URL", tracks=("", "alpha")),
    ("projects", "describe"): Command({}, "PROJECT_ID_OR_NUMBER", tracks=ALL),
    ("projects", "get-iam-policy"): Command(LIST, "PROJECT_ID_OR_NUMBER", tracks=ALL),
} | surface_gke.COMMANDS
GROUPS = {command[:length] for command in COMMANDS for length in range(len(command))}
NOT_IN_BETA = QUEUED
SEARCH = "\nTo search the help text of gcloud commands, run:\n  gcloud help -- SEARCH_TERMS\n"


@dataclass
class Call:
    """A command line that gcloud accepts."""

    track: str
    command: tuple[str, ...]
    name: str
    flags: dict[str, str]
    rest: list[str]
    spec: Command

    @property
    def verb(self) -> str:
        """As knobs name it: the command without `compute tpus`."""
        return (
            " ".join(word for word in self.command if word not in TPUS)
            if self.command[:2] == TPUS
            else " ".join(self.command)
        )

    @property
    def dotted(self) -> str:
        """As it stands in an error message."""
        return ".".join(filter(None, ("gcloud", self.track, *self.command)))


class Refusal(Exception):
    """gcloud would end with `status` and `text` on stderr."""

    def __init__(self, text: str, status: int = 2) -> None:
        super().__init__(text)
        self.text, self.status = text, status


def parse(argv: list[str]) -> Call:
    words = list(argv)
    track = words.pop(0) if words and words[0] in ("alpha", "beta") else ""
    command: tuple[str, ...] = ()
    while words and not words[0].startswith("-") and command in GROUPS:
        longer = (*command, words[0])
        prefix = ".".join(filter(None, ("gcloud", track, *command)))
        if longer not in GROUPS and longer not in COMMANDS:
            raise Refusal(f"ERROR: ({prefix}) Invalid choice: '{words[0]}'.\n{SEARCH}")
        if longer == NOT_IN_BETA and track == "beta":
            others = "".join(f"  gcloud {t}{' '.join(longer)}\n" for t in ("", "alpha "))
            more = "This command is available in one or more alternate release tracks.  Try:\n"
            raise Refusal(f"ERROR: ({prefix}) Invalid choice: '{words[0]}'.\n{more}{others}")
        command = longer
        words.pop(0)
    if command not in COMMANDS:
        raise Refusal(
            f"ERROR: ({'.'.join(filter(None, ('gcloud', track, *command)))}) Command name argument expected.\n"
        )
    spec = COMMANDS[command]
    if track not in spec.tracks:
        raise Refusal(
            f"ERROR: ({'.'.join(('gcloud', track, *command[:-1]))}) Invalid choice: '{command[-1]}'.\n{SEARCH}"
        )
    call = Call(track, command, "", {}, [], spec)
    allowed = EVERYWHERE | spec.flags | (spec.alpha if track == "alpha" else {}) | (spec.beta if track else {})
    unknown: list[str] = []
    elsewhere: list[str] = []
    while words:
        word = words.pop(0)
        if word == "-q":
            word = "--quiet"
        if not word.startswith("--") or word == "--":
            call.rest.append(word)
            continue
        flag, equals, value = word[2:].partition("=")
        positive = flag.removeprefix("no-") if flag.removeprefix("no-") in allowed else flag
        if positive not in allowed:
            (elsewhere if flag in spec.alpha else unknown).append(word)
        elif allowed[positive] and not equals:
            if not words or words[0].startswith("--"):
                raise Refusal(f"ERROR: ({call.dotted}) argument --{flag}: expected one argument\n")
            call.flags[flag] = words.pop(0)
        else:
            call.flags[positive] = value if allowed[positive] else ("false" if positive != flag else value or "true")
    if elsewhere or unknown:
        raise Refusal(unrecognized(call, elsewhere, unknown))
    check(call)
    return call


def unrecognized(call: Call, elsewhere: list[str], unknown: list[str]) -> str:
    if not elsewhere:
        between = " " if len(unknown) == 1 else "\n  "
        return f"ERROR: ({call.dotted}) unrecognized arguments:{between}{between.join(unknown)} \n{SEARCH}"
    flags = [word.partition("=")[0] for word in elsewhere]
    tries = "".join(
        f"\n {flag} flag is available in one or more alternate release tracks. Try:\n\n  gcloud alpha {' '.join(call.command)} {flag}\n"
        for flag in flags
    )
    return f"ERROR: ({call.dotted}) unrecognized arguments:\n  {tries}\n  " + "\n  ".join(
        [*elsewhere, *unknown, SEARCH.lstrip()]
    )


def check(call: Call) -> None:
    """What must be there, and what excludes another."""
    spec, flags = call.spec, call.flags
    positional = call.rest[:1] if spec.positional else []
    extra = call.rest[1:] if spec.positional else call.rest
    if call.command == ("compute", "start-iap-tunnel"):
        extra = []
    if extra:
        raise Refusal(f"ERROR: ({call.dotted}) unrecognized arguments: {' '.join(extra)} \n{SEARCH}")
    if positional:
        call.name = positional[0]
    elif spec.noun:
        raise Refusal(f"ERROR: ({call.dotted}) argument --zone: {spec.positional} must be specified.\n{usage(call)}")
    elif spec.positional and call.command in surface_gke.COMMANDS:
        raise Refusal(f"ERROR: ({call.dotted}) argument {spec.positional}: Must be specified.\n{usage(call)}")
    for name in spec.required:
        if name not in flags:
            raise Refusal(f"ERROR: ({call.dotted}) argument --{name}: Must be specified.\n{usage(call)}")
    check_values(call)
    if call.command == (*QUEUED, "create"):
        groups = [
            ("(--accelerator-type | --topology --type)", ("accelerator-type", "type")),
            ("(--node-id | [--node-count : --node-prefix])", ("node-id", "node-count")),
        ]
        for text, names in groups:
            given = [name for name in names if name in flags]
            if len(given) != 1:
                which = f"argument --{given[0]}: " if given else ""
                raise Refusal(f"ERROR: ({call.dotted}) {which}Exactly one of {text} must be specified.\n{usage(call)}")


def check_values(call: Call) -> None:
    for group in call.spec.exclusive:
        given = [name for name in group if name in call.flags]
        if len(given) > 1:
            several = " | ".join(f"--{name}" for name in group)
            text = f"argument --{given[0]}: At most one of {several} can be specified."
            raise Refusal(f"ERROR: ({call.dotted}) {text}\n{usage(call)}")
    if call.spec.exactly_one and len([name for name in call.spec.exactly_one if name in call.flags]) != 1:
        several = " | ".join(f"--{name}" for name in call.spec.exactly_one)
        raise Refusal(f"ERROR: ({call.dotted}) Exactly one of ({several}) must be specified.\n{usage(call)}")
    for name, values in call.spec.choices.items():
        value = call.flags.get(name, values[0])
        if value not in values and not (name in surface_gke.ANY_CASE and value.upper() in values):
            text = f"argument --{name}: Invalid choice: '{value}'.\n\nValid choices are [{', '.join(values)}].\n"
            raise Refusal(f"ERROR: ({call.dotted}) {text}")
    for name in call.spec.numbers:
        value = call.flags.get(name, "0")
        if not re.fullmatch(r"[+-]?\d+", value):
            raise Refusal(f"ERROR: ({call.dotted}) argument --{name}: invalid int value: '{value}'\n{usage(call)}")


def usage(call: Call) -> str:
    """The last lines of gcloud's usage text; what stands before them lists flags."""
    words = " ".join(filter(None, ("gcloud", call.track, *call.command)))
    return f"Usage: {words} ({call.spec.positional} : --zone=ZONE) [optional flags]\n\nFor detailed information on this command and its flags, run:\n  {words} --help\n"
