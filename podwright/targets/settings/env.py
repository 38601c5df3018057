"""The key `env` of a target: variables of the launcher's shell that processes on other machines get."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field


def _are_names(value: tuple[str, ...]) -> tuple[str, ...]:
    if wrong := next((v for v in value if not v.isidentifier()), None):
        named = wrong.partition("=")[0]  # what follows may be a secret
        raise ValueError(f"has {named!r}: it takes names of variables, never their values; write it like [HF_TOKEN]")
    return value


EnvSetting = Annotated[
    tuple[str, ...],
    AfterValidator(_are_names),
    Field(description="variables of your shell that the processes get; they are never in a file"),
]
DEFAULT_ENV = ("HF_TOKEN",)
