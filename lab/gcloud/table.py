"""What the tables of commands are made of."""

from dataclasses import dataclass, field

EVERYWHERE = {"project": 1, "format": 1, "quiet": 0, "account": 1, "configuration": 1, "verbosity": 1}
EVERYWHERE |= {"impersonate-service-account": 1, "billing-project": 1, "log-http": 0, "user-output-enabled": 0}
LIST = {"filter": 1, "limit": 1, "page-size": 1, "sort-by": 1}
ZONE, ASYNC = {"zone": 1}, {"async": 0}
ALL = ("", "alpha", "beta")


@dataclass(frozen=True)
class Command:
    """`flags`: {name: 1 with a value, 0 without}; `positional`: what its one argument is called, "" for none."""

    flags: dict[str, int]
    positional: str = ""
    noun: str = ""  # what messages call the resource
    tracks: tuple[str, ...] = ("", "alpha")
    alpha: dict[str, int] = field(default_factory=dict)
    beta: dict[str, int] = field(default_factory=dict)  # of the tracks beta and alpha
    required: tuple[str, ...] = ()
    exclusive: tuple[tuple[str, ...], ...] = ()  # of each of these groups at most one flag is accepted
    exactly_one: tuple[str, ...] = ()  # exactly one of these is needed
    choices: dict[str, tuple[str, ...]] = field(default_factory=dict)  # flag: the values that it may have
    numbers: tuple[str, ...] = ()  # flags whose value is an integer
    unsimulated: tuple[str, ...] = ()  # flags that would do nothing here
