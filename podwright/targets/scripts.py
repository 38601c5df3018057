"""The scripts of templates/, filled in."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jinja2

from podwright.shell import FLAG_LISTS
from podwright.targets.base import Job

_TEMPLATES = Path(__file__).with_name("templates")


def filled(name: str, values: dict[str, Any], *, trim: bool = False, **filters: Callable[[str], str]) -> str:
    """`trim`: lines that only hold a statement of the template are left out."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
        trim_blocks=trim,
        lstrip_blocks=trim,
    )
    environment.filters |= {"quoted": shlex.quote, **filters}
    return environment.get_template(name).render(values)


def exports(environment: Mapping[str, str]) -> list[str]:
    """Words after `export`, which come before the target's own variables; lists of flags go after what the user has set."""
    before = {name: f'"${{{name}:+${name} }}"' for name in FLAG_LISTS}
    return [f"{name}={before.get(name, '')}{shlex.quote(value)}" for name, value in environment.items()]


def train_command(*words: str) -> str:
    """`podwright.train` with `words` as words of shell, in which $python is a variable of the script."""
    return f'"$python" -m podwright.train {" ".join(map(shlex.quote, words))}'


def command_line(job: Job) -> str:
    """The job's command as words of shell, in which $python and $run are variables of the script."""
    line = " ".join(map(shlex.quote, job.argv("\1", "\2")))
    for mark, variable in (("\1", '"$python"'), ("\2", '"$run"')):
        line = line.replace(f"'{mark}'", variable).replace(mark, f"'{variable}'")
    return line
