"""The typed recipe of a MaxText run: what its launch script says, split into parts that can be read, changed and rendered.

Values that only a user has (project, cluster, bucket, image, the name of the workload) stand in it as `${NAME}` and are filled in
from a target or from the command line. Its texts come to stand in shell scripts, on the machine of whoever submits and in a pod; so
each may be what its key says and nothing else. `launch.setup` and `launch.after` are shell text by intent, and run in the pod alone.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from podwright import slices
from podwright.errors import UserError
from podwright.recipe.maxtext import arguments as arguments_of
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


_BRACED = re.compile(r"\$\{[A-Za-z_]\w*-?\}", re.ASCII)
IMAGE = re.compile(
    r"[a-z0-9][a-z0-9._-]*(?::\d+)?(?:/[a-z0-9][a-z0-9._-]*)*(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?", re.ASCII
)
_PATH = re.compile(r"[\w./+@:-]+", re.ASCII)
_WORDS = re.compile(r"[\w./+@:=,%-]+(?: [\w./+@:=,%-]+)*", re.ASCII)
_VERSION = re.compile(r"[A-Za-z0-9][\w.+/-]*(?: \([\w.+/:, -]*\))?", re.ASCII)
_SHELL_TEXT = ("launch.setup", "launch.after")


def _form(pattern: re.Pattern[str], form: str) -> AfterValidator:
    """A validator of texts of one form, in which `${NAME}` counts as a word."""

    def checked(text: str) -> str:
        if text and not pattern.fullmatch(_BRACED.sub("x", text)):
            raise ValueError(f"must be {form}")
        return text

    return AfterValidator(checked)


TextOfValue = Annotated[str, BeforeValidator(_as_text)]
FilePath = Annotated[str, _form(_PATH, "letters, digits, dots and slashes, such as MaxText/configs/base.yml")]
Version = Annotated[str, _form(_VERSION, "a release, a tag or a commit, such as 1.2.3")]


def _require_printable(value: object, key: str = "") -> None:
    """RefusedValue for a control character in a text of a recipe, as `model_dump` has it."""
    if isinstance(value, Mapping):
        for name, entry in value.items():
            _require_printable(entry, f"{key}.{name}" if key else name)
    elif isinstance(value, list | tuple):
        for entry in value:
            _require_printable(entry, key)
    elif isinstance(value, str):
        allowed = "\n\t" if key in _SHELL_TEXT else ""
        for character in value:
            if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") and character not in allowed:
                what = f"{key}={value[:60]!r} has the control character {character!r}"
                raise RefusedValue(what, "write it on one line, without control characters")


class MaxTextVersions(Section):
    """Stated by the script or by the README beside it; "" where they do not say."""

    maxtext: Version = Field("", description="a release, a tag or a commit of MaxText")
    jax: Version = Field("", description="of the image")
    libtpu: Version = Field("", description="of the image")
    python: Version = Field("", description="of the machine that submits")
    xpk: Version = Field("", description="that the script asks for; the shape of a pod depends on it")


class MaxTextLaunch(Section):
    """What a container runs: `setup`, then `python -m module base_config ARGUMENTS`, then `after`."""

    module: FilePath = Field(
        min_length=1,
        description="that python -m starts, or a file: of Python if it ends in .py, of bash with its own arguments if it ends in .sh",
    )
    base_config: FilePath = Field(
        "", description="the YAML file of MaxText that the arguments change, as a path in the image"
    )
    python: Annotated[str, _form(_WORDS, "words without quotes, such as python3")] = Field(
        "python3", min_length=1, description="the program that starts the module"
    )
    setup: tuple[str, ...] = Field(
        (), description="shell commands before training, in order; the run ends where one of them fails"
    )
    after: str = Field(
        "", description="shell text behind the arguments, such as a pipe into a file and the upload of that file"
    )


class MaxTextRecipe(Section):
    kind: Literal["maxtext"]
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_. +-]*$")
    description: str
    expect: Expect
    topology: Annotated[str, AfterValidator(_is_slice)] = Field(
        description="the slice that the arguments are written for, such as tpu7x-4x4x8"
    )
    num_slices: PositiveInt = Field(1, le=10_000, description="slices of that topology that train together")
    image: Annotated[
        str, _form(IMAGE, "an image in small letters, such as us-docker.pkg.dev/PROJECT/REPOSITORY/maxtext:TAG")
    ] = Field("${WORKLOAD_IMAGE}", min_length=1, description="the image of its container")
    launch: MaxTextLaunch
    arguments: dict[Annotated[str, Field(pattern=r"^(--?)?[A-Za-z_][A-Za-z0-9_.-]*$")], TextOfValue] = Field(
        description="arguments of MaxText by key, in their order, as MaxText gets them: without the shell's quotes"
    )
    xla_flags: tuple[str, ...] = Field((), description="flags of libtpu's compiler, in their order")
    environment: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], TextOfValue] = Field(
        {}, description="variables of the container, in their order; LIBTPU_INIT_ARGS is made of xla_flags"
    )
    xpk: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")], TextOfValue] = Field(
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
        _require_printable(self.model_dump())
        if self.xla_flags and "LIBTPU_INIT_ARGS" in self.environment:
            what = "environment.LIBTPU_INIT_ARGS would be overwritten: it is made of xla_flags"
            raise RefusedValue(what, "write its flags into xla_flags")
        return self

    @property
    def model_name(self) -> str:
        """MaxText's name of the model; "" where the arguments do not say it."""
        return self.arguments.get("model_name", "")

    @property
    def precision(self) -> str:
        return arguments_of.precision(self.arguments)

    @property
    def trackers(self) -> tuple[str, ...]:
        """None: MaxText keeps its own."""
        return ()

    @property
    def texts(self) -> dict[str, str]:
        """Every text in which a variable may be, by its dotted key, in the order of the recipe."""
        named = {
            "image": self.image,
            "launch.module": self.launch.module,
            "launch.base_config": self.launch.base_config,
            "launch.setup": "\n".join(self.launch.setup),
            "xla_flags": " ".join(self.xla_flags),
        }
        for section in ("arguments", "environment", "xpk"):
            named |= {f"{section}.{key}": text for key, text in getattr(self, section).items()}
        return named | {"launch.after": self.launch.after}

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of what must be filled in, in their order."""
        names = dict.fromkeys(VARIABLE.findall("\n".join(self.texts.values())))
        names.pop("TPU_WORKER_ID", None)
        return tuple(names)


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
