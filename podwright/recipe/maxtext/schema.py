"""The typed recipe of a MaxText run: what its launch script says, split into parts that can be read, changed and rendered.

Values that only a user has (project, cluster, bucket, image, the name of the workload) stand in it as `${NAME}` and are filled in
from a target or from the command line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from podwright import slices
from podwright.errors import UserError
from podwright.recipe.maxtext import legal
from podwright.recipe.schema import Expect, PathText, PositiveInt, RefusedValue, Section

VARIABLE = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)\}")
"""of a value that is filled in when the recipe is rendered"""
FROM_TARGET = ("PROJECT_ID", "CLUSTER_NAME", "ZONE", "BASE_OUTPUT_DIR", "WORKLOAD_IMAGE", "WORKLOAD_NAME")
"""variables that a target or its run fills in, whatever was typed at the import"""


def _is_slice(name: str) -> str:
    try:
        slices.one_of_tpus(name, "topology")
    except UserError as e:
        several = re.fullmatch(r".* has (\d+) slices", e.what)
        fix = f"{e.fix}, and num_slices={several[1]}" if several else e.fix
        raise RefusedValue(e.what, fix) from e
    return name


def _as_text(value: object) -> object:
    """A number or a truth value of YAML as MaxText's command line has it."""
    return str(value) if isinstance(value, bool | int | float) else value


TextOfValue = Annotated[str, BeforeValidator(_as_text)]


class MaxTextVersions(Section):
    """Stated by the script or by the README beside it; "" where they do not say."""

    maxtext: str = Field("", description="a release, a tag or a commit of MaxText")
    jax: str = Field("", description="of the image")
    libtpu: str = Field("", description="of the image")
    python: str = Field("", description="of the machine that submits")
    xpk: str = Field("", description="that the script asks for; the shape of a pod depends on it")


class MaxTextLaunch(Section):
    """What a container runs: `setup`, then `python -m module base_config ARGUMENTS`, then `after`."""

    module: str = Field(
        min_length=1,
        description="that python -m starts, or a file: of Python if it ends in .py, of bash with its own arguments if it ends in .sh",
    )
    base_config: str = Field(
        "", description="the YAML file of MaxText that the arguments change, as a path in the image"
    )
    python: str = Field("python3", min_length=1, description="the program that starts the module")
    setup: tuple[str, ...] = Field(
        (), description="shell commands before training, in order; the run ends where one of them fails"
    )
    after: str = Field(
        "", description="shell text behind the arguments, such as a pipe into a file and the upload of that file"
    )


class MaxTextRecipe(Section):
    kind: Literal["maxtext"]
    name: str
    description: str
    expect: Expect
    topology: Annotated[str, AfterValidator(_is_slice)] = Field(
        description="the slice that the arguments are written for, such as tpu7x-4x4x8"
    )
    num_slices: PositiveInt = Field(1, le=10_000, description="slices of that topology that train together")
    image: str = Field("${WORKLOAD_IMAGE}", description="the image of its container")
    launch: MaxTextLaunch
    arguments: dict[str, TextOfValue] = Field(
        description="arguments of MaxText by key, in their order, as MaxText gets them: without the shell's quotes"
    )
    xla_flags: tuple[str, ...] = Field((), description="flags of libtpu's compiler, in their order")
    environment: dict[str, TextOfValue] = Field(
        {}, description="variables of the container, in their order; LIBTPU_INIT_ARGS is made of xla_flags"
    )
    xpk: dict[str, TextOfValue] = Field(
        {},
        description="every other option of `xpk workload create`, in their order, without dashes; an option without a value has ''",
    )
    versions: MaxTextVersions = MaxTextVersions()
    maxtext: PathText = Field(
        "", description="a checkout of MaxText that --compile uses in place of the release that PyPI has"
    )
    source: str = Field("", description="the script that the recipe was imported from")

    @model_validator(mode="after")
    def _is_legal(self) -> MaxTextRecipe:
        legal.require(self.model_dump())
        return self

    @property
    def model_name(self) -> str:
        """MaxText's name of the model; "" where the arguments do not say it."""
        return self.arguments.get("model_name", "")

    @property
    def precision(self) -> str:
        """bf16, or fp8 where weights and activations are quantized."""
        quantization = self.arguments.get("quantization", "")
        return "fp8" if quantization.startswith("fp8") else quantization or "bf16"

    @property
    def trackers(self) -> tuple[str, ...]:
        """None: MaxText keeps its own."""
        return ()

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of what must be filled in, in their order."""
        texts = [
            self.image,
            self.launch.module,
            self.launch.base_config,
            *self.launch.setup,
            *self.xla_flags,
            *self.arguments.values(),
            *self.environment.values(),
            *self.xpk.values(),
            self.launch.after,
        ]
        return tuple(
            dict.fromkeys(name for text in texts for name in VARIABLE.findall(text) if name != "TPU_WORKER_ID")
        )


def filled(text: str, values: dict[str, str]) -> str:
    """`text` with `${NAME}` replaced by the value of that name; names without a value stay."""
    return VARIABLE.sub(lambda match: values.get(match[1], match[0]), text)


def command(recipe: MaxTextRecipe) -> str:
    """The shell text that a container runs, with its variables not filled in.

    The same words as in the script that the recipe was imported from; blanks between them are single ones.
    """
    return " ".join(command_lines(recipe))


def command_lines(recipe: MaxTextRecipe) -> list[str]:
    """The same in parts that a reader can take in, to be joined by blanks: a variable, a compiler flag, an argument each."""
    exports = dict(recipe.environment)
    if recipe.xla_flags:
        exports["LIBTPU_INIT_ARGS"] = " ".join(recipe.xla_flags)
    lines = ["set -e &&"]
    for name, value in exports.items():
        text = f"export {name}={quoted(value)} &&"
        lines += text.replace(" --", "\n--").split("\n") if name == "LIBTPU_INIT_ARGS" else [text]
    lines += [f"{each} &&" for each in recipe.launch.setup]
    starter = [recipe.launch.python, "-m", recipe.launch.module]
    if recipe.launch.module.endswith(".sh"):
        starter = ["bash", recipe.launch.module]
    elif recipe.launch.module.endswith(".py"):
        starter = [recipe.launch.python, recipe.launch.module]
    lines.append(" ".join([*starter, *filter(None, [recipe.launch.base_config])]))
    lines += [quoted(f"{key}={value}") for key, value in recipe.arguments.items()]
    return [*lines, *filter(None, [recipe.launch.after])]


def of_several_lines(parts: Iterable[str]) -> list[str]:
    """Those parts of a command that have a line break: a launcher hands it on as one line."""
    return [part for part in parts if "\n" in part or "\r" in part]


def quoted(word: str) -> str:
    """`word` for a shell, in which `${NAME}` stays what it is, so that it can be filled in."""
    plain = VARIABLE.sub("x", word)
    return word if shlex.quote(plain) == plain else "'" + word.replace("'", "'\"'\"'") + "'"
