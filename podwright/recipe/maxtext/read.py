"""A launch script as a recipe: its call of xpk and the command of the container in typed parts.

The script is read twice. With the values of the user it gives the exact words of the call. With a mark in place of each value that a user
fills in it gives the recipe, in which `${NAME}` stands wherever such a mark has come to.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from podwright import slices
from podwright.errors import UserError
from podwright.recipe.maxtext import marked, pod, reading_limit, readme, script, xpk
from podwright.recipe.maxtext.bash.run import ScriptRun
from podwright.recipe.maxtext.bash.state import BashExit, BashReturn, LaunchCall
from podwright.recipe.maxtext.bash.syntax import UnreadableScript
from podwright.recipe.maxtext.marked import MARKS, OpenValue
from podwright.recipe.maxtext.pod import COMPILER_FLAGS, ContainerCommand
from podwright.recipe.maxtext.schema import FROM_TARGET
from podwright.recipe.maxtext.script import ScriptReading
from podwright.recipe.script_text import with_placeholders

_LONGEST_SCRIPT = 1 << 20  # characters
_CANONICAL = xpk.OF_TARGET | dict.fromkeys(xpk.IMAGES, "WORKLOAD_IMAGE")
_TOPOLOGY = re.compile(r"(?:tpu)?v?\d+[a-z]*-\d+(?:x\d+)*", re.IGNORECASE)


@dataclass(frozen=True)
class ImportedScript:
    recipe: dict[str, Any]
    argv: tuple[str, ...]
    """of `xpk workload create`, with the values that were given"""
    notes: dict[str, str]
    """part of the script -> what became of it"""
    target: dict[str, str]
    """option of xpk that belongs to a target, bucket or image -> its value, where the script has one or it was typed"""
    reading: ScriptReading
    workload_name: str = ""
    """with the values that were given"""
    name_variable: str = ""
    """of the script, that has the name of the workload; "" where no variable alone has it"""
    filled: dict[str, str] = field(default_factory=dict)
    """variable of the recipe -> its value in `argv`"""
    deciding: tuple[OpenValue, ...] = ()
    """values that the recipe leaves open, for others of which its words would be others"""


def read(
    path: Path, text: str, values: Mapping[str, str], now: datetime, files: Mapping[str, str], xpk_version: str = ""
) -> ImportedScript:
    """The recipe of a launch script, or of a script that a container runs to train.

    `values`: variables and placeholders of the script by name; `topology` of a training script. `files`: those beside the script by
    name. `xpk_version`: that counts in place of the one that the script states. UserError, with a line, for what cannot be read exactly.
    """
    if len(text) > _LONGEST_SCRIPT:
        what = f"{path.name} has {len(text):,} characters: a script of more than {_LONGEST_SCRIPT:,} is not read"
        raise UserError(what, "take long values out into a file of the image")
    if "\r\n" in text:
        what = f"{path.name} has Windows line ends (CRLF), which bash takes for parts of the words"
        raise UserError(what, f"type sed -i 's/\\r$//' {shlex.quote(str(path))}")
    if text.startswith("\ufeff"):
        what = f"{path.name} begins with a byte order mark, which bash takes for a part of the first word"
        raise UserError(what, f"type sed -i '1s/^\\xef\\xbb\\xbf//' {shlex.quote(str(path))}")
    if "\0" in text:
        what = f"{path.name} line {text.count(chr(10), 0, text.index(chr(0))) + 1}: a NUL byte, which bash leaves out"
        raise UserError(what, f"type tr -d '\\0' < {shlex.quote(str(path))} > COPY.sh")
    with reading_limit.limited(path.name):
        if not script.mentions_xpk(text) and starts_maxtext(text):
            return _training_script(path, text, values, now, files)
        return _launch_script(path, text, values, now, files, xpk_version)


def _launch_script(
    path: Path, text: str, values: Mapping[str, str], now: datetime, files: Mapping[str, str], xpk_version: str
) -> ImportedScript:
    reading = script.read(text, values, now, files, path.name)
    stated, differences = versions(text, files)
    xpk_version = xpk_version or stated.get("xpk", "")
    given = xpk.options(reading.call.argv, xpk_version)
    filled = _values_of_call(text, reading, values, given.values)
    names = _names(text, reading, values)
    unset = {names[name] for name in reading.unset if name in names and name not in values}
    call = marked.read(
        lambda marks, stand_ins, other: script.read(text, {**values, **marks}, now, files, path.name, stand_ins, other),
        reading.call.argv,
        names,
        {name: None if name in unset else value for name, value in filled.items()},
    )
    options = xpk.options(call.argv, xpk_version)
    notes = {f"--{name}": _repeated(value) for name, value in given.repeated.items()}
    notes |= {
        name: f"line {line}: it is not beside the script, and was not read" for name, line in reading.sourced.items()
    }
    try:
        command = _inlined(pod.split(options.values.get("command", "")), files)
    except UserError as e:
        raise UserError(re.sub(f"[{''.join(MARKS)}]", "", _unmarked(e.what)), e.fix) from e
    _require_maxtext(command)
    device = xpk.first_of(given.values, xpk.DEVICES)
    variable = next(filter(None, (_variable(option, text) for option in xpk.DEVICES)), "")
    if not device:
        remedy = f"type {variable}=tpu7x-4x4x4" if variable else "write --device-type=tpu7x-4x4x4 in the script"
        raise UserError("xpk workload create has no --device-type, or its value is empty", remedy)
    number = _number_of_slices(
        given.values.get("num-slices", "1"), "--num-slices", "write --num-slices=1 in the script"
    )
    raw = _recipe(path, options.values | number, command, topology(device, variable), stated)
    notes |= differences | {f"arguments.{key}": _repeated(value) for key, value in command.repeated.items()}
    notes |= command.notes
    own = {name: given.values.get(name, "") for name in ("cluster", "project", "zone", "namespace")}
    own |= {"bucket": values.get("BASE_OUTPUT_DIR", ""), "image": values.get("WORKLOAD_IMAGE", "")}
    target = {name: value for name, value in own.items() if value and "<" not in value}
    named = given.values.get("workload", ""), _variable("workload", text)
    parts = _unmarked(raw), reading.call.argv, _unmarked(notes)
    return ImportedScript(*parts, target, reading, *named, filled, call.deciding)


def _training_script(
    path: Path, text: str, values: Mapping[str, str], now: datetime, files: Mapping[str, str]
) -> ImportedScript:
    """Of a fork's own script: what it exports, runs before and passes to MaxText. On which slice, only the user knows."""
    filled, placeholders = with_placeholders(text, values)
    run = ScriptRun(values, files, now, lambda words: False)
    with contextlib.suppress(BashExit, BashReturn, UnreadableScript):
        run.script(filled)
    reading = ScriptReading(LaunchCall((), 0, {}), placeholders, run.emptied, {}, {}, given=run.given)
    marks = _marks(text, reading, values)
    known = {name: value for name, value in values.items() if name not in ("USER", "HOME")} | marks
    names = _names(text, reading, values)
    actual = {canonical: values.get(name, "") for name, canonical in names.items()}
    filled = with_placeholders(text, known)[0]
    command, deciding = marked.container(
        lambda stand_ins, other: pod.split(filled, known, path.name, stand_ins, other), names, actual
    )
    _require_maxtext(command)
    if not values.get("topology"):
        raise UserError(f"{path.name} does not say on which slice it trains", "type topology=tpu7x-4x4x4")
    devices = slices.of_tpus(values["topology"], "topology")
    number = _slices_of_training(run, values, path.name) or {"num-slices": str(devices.num_slices)}
    if devices.num_slices not in (1, int(number["num-slices"])):
        what = f"topology={values['topology']} has {devices.num_slices} slices, and num_slices={number['num-slices']}"
        raise UserError(what, "leave one of the two out")
    stated, differences = versions(text, files)
    raw = _recipe(path, number, command, dataclasses.replace(devices, num_slices=1), stated)
    notes = (
        differences | {f"arguments.{key}": _repeated(value) for key, value in command.repeated.items()} | command.notes
    )
    return ImportedScript(_unmarked(raw), (), _unmarked(notes), {}, reading, deciding=deciding)


def starts_maxtext(text: str) -> bool:
    """Whether a script seems to start MaxText itself, as `python3 -m MaxText.train` does."""
    code = re.sub(r"(?m)^[ \t]*#.*$", "", text)
    return bool(re.search(r"(?i)\bpython[\d.]*\s+(?:-u\s+)?(?:-m\s+)?\S*max(?:text|diffusion)\S*", code))


def _inlined(command: ContainerCommand, files: Mapping[str, str]) -> ContainerCommand:
    """With the commands of a training script that the container runs, where that script lies beside the launch script."""
    name = command.module.rpartition("/")[2]
    if not name.endswith(".sh") or name not in files or command.arguments:
        return command
    inner = pod.split(files[name], command.environment, name)
    inner.environment = command.environment | inner.environment
    inner.setup = [line for line in command.setup if name not in line] + inner.setup
    inner.after = " ".join(filter(None, [inner.after, command.after]))
    inner.notes[command.module] = f"its commands are those of {name} beside the launch script"
    return inner


def _require_maxtext(command: ContainerCommand) -> None:
    """UserError for a program that is none of MaxText, MaxDiffusion or a fork with a configuration of theirs."""
    known = re.search(r"(?i)max(?:text|diffusion)", command.module)
    if not known and not command.base_config and not command.module.endswith(".sh"):
        raise UserError(
            f"--command trains with {command.module}, which is no MaxText", "import a script that trains with MaxText"
        )


def _repeated(values: str) -> str:
    return f"there more than once: the last one counts, not {values}"


def _marks(text: str, reading: ScriptReading, values: Mapping[str, str]) -> dict[str, str]:
    """Name of a variable or placeholder -> a mark in its place."""
    return {name: marked.mark(canonical) for name, canonical in _names(text, reading, values).items()}


def _names(text: str, reading: ScriptReading, values: Mapping[str, str]) -> dict[str, str]:
    """Name of a variable or placeholder -> that of the recipe's variable, in capitals. What was typed and no target fills in stays as it is."""
    names = dict[str, str]()
    for name in sorted({*reading.emptied, *reading.unset, *reading.given}, key=lambda name: name != name.upper()):
        if name not in values or name in FROM_TARGET:
            names[name] = name.upper()
            while list(names.values()).count(names[name]) > 1:
                names[name] += "_"
    names |= {name: canonical for option, canonical in _CANONICAL.items() if (name := _variable(option, text))}
    return names | {name: re.sub(r"\W", "_", name).upper().strip("_") for name in reading.placeholders}


def _values_of_call(
    text: str, reading: ScriptReading, values: Mapping[str, str], options: Mapping[str, str]
) -> dict[str, str]:
    """Variable of the recipe -> its value in the call, whose options are `options`."""
    names = _names(text, reading, values)
    known = {canonical: values.get(name, "") for name, canonical in names.items()}
    known |= {names[name]: f"<{name}>" for name in reading.placeholders}
    return known | {
        each: options[name] for name, each in _CANONICAL.items() if name in options and _variable(name, text)
    }


def _variable(option: str, text: str) -> str:
    """The name of the variable whose value an option of xpk has in a script; ""."""
    match = re.search(rf"--{option}(?:=|[ \t]+)[\"']?\$\{{?([A-Za-z_]\w*)\}}?[\"']?(?=\s|$)", text)
    return match[1] if match else ""


def _unmarked(value: Any) -> Any:
    """With `${NAME}` for each mark."""
    if isinstance(value, dict):
        return {_unmarked(key): _unmarked(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_unmarked(entry) for entry in value]
    return re.sub(f"{MARKS[0]}(.*?){MARKS[1]}", r"${\1}", value) if isinstance(value, str) else value


def _recipe(
    path: Path, options: dict[str, str], command: ContainerCommand, slice_: slices.Slice, stated: dict[str, str]
) -> dict[str, Any]:
    image = xpk.first_of(options, xpk.IMAGES) or f"{MARKS[0]}WORKLOAD_IMAGE{MARKS[1]}"
    environment = dict(command.environment)
    flags = environment.pop(COMPILER_FLAGS, "").split()
    others = {*xpk.OF_TARGET, *xpk.DEVICES, "namespace", "docker-image", "command", "num-slices"}
    return {
        "kind": "maxtext",
        "name": name_of(path, slice_.topology),
        "description": described(command.arguments, command.module, slice_.name),
        "expect": {"hardware": slice_.name, "time": "not measured", "metric": "step_s"},
        "topology": slice_.name,
        "num_slices": int(options.get("num-slices", "1")),
        "image": image,
        "launch": {
            "module": command.module,
            "base_config": command.base_config,
            "python": command.python,
            "setup": command.setup,
            "after": command.after,
        },
        "arguments": command.arguments,
        "xla_flags": flags,
        "environment": environment,
        "xpk": {name: value for name, value in options.items() if name not in others},
        "versions": stated,
        "source": str(path),
    }


def described(arguments: Mapping[str, str], module: str, topology: str) -> str:
    """The description of a recipe that is imported: model, slice and steps."""
    steps = arguments.get("steps", "")
    return f"{arguments.get('model_name', '') or module} on {topology}" + (f", {steps} steps" if steps else "")


def _slices_of_training(run: ScriptRun, values: Mapping[str, str], script_name: str) -> dict[str, str]:
    """`num-slices` that was typed, or that the training script has as NUM_SLICES; {} without either."""
    if "num_slices" in values:
        return _number_of_slices(values["num_slices"], "num_slices", "type num_slices=1")
    own = run.state.variables.get("NUM_SLICES", "")
    if isinstance(own, UnreadableScript):
        raise UserError(f"{script_name} {own.what}", "type NUM_SLICES=1, or the number of slices that it trains on")
    return _number_of_slices(str(own), "NUM_SLICES", "type NUM_SLICES=1") if own else {}


def _number_of_slices(text: str, key: str, fix: str) -> dict[str, str]:
    """`num-slices` as it counts. UserError for what is no whole number above 0."""
    if not re.fullmatch(r"0*[1-9]\d*", text, re.ASCII):
        raise UserError(f"{key}={text} is no whole number above 0", fix)
    return {"num-slices": text}


def topology(device: str, variable: str) -> slices.Slice:
    """The slice that xpk calls `device`. `variable`: of the script, that has this value; "" for none."""
    try:
        return slices.one_of_tpus(device, variable or "--device-type")
    except UserError as e:
        if variable:
            raise
        fix = re.sub(r"^did you mean (.*)\?$", r"write \1", e.fix).replace("type ", "write ")
        raise UserError(e.what, f"{fix} in the script") from e


def name_of(path: Path, shape: str) -> str:
    """From the folders of a script: model and configuration, where the latter names a slice (or `shape`); else the folder's own name."""
    folders = [part for part in path.resolve().parent.parts if part not in ("/", "xpk", "k8s")]
    here = folders[-1] if folders else path.stem
    model = folders[-2] if len(folders) > 1 and ((shape and shape in here) or _TOPOLOGY.search(here)) else ""
    names = ["-".join(filter(None, [model, here])), path.stem]
    return next(filter(None, (re.sub(r"[^a-z0-9.-]+", "-", each.lower()).strip("-.") for each in names)), "recipe")


def versions(text: str, files: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Versions by library, of the script and of the README beside it, and a note for each on which they differ. The script counts."""
    stated = next((readme.versions(content) for name, content in files.items() if name.lower() == "readme.md"), {})
    own: dict[str, str] = {}
    if match := re.search(r"\bxpk==([A-Za-z0-9][A-Za-z0-9_.]*)", text):
        own["xpk"] = match[1]
    if match := re.search(r"(?m)^\s*(?:export\s+)?UV_PYTHON_VERSION=[\"']?([0-9][0-9.]*)", text):
        own["python"] = match[1]
    differences = {
        f"versions.{library}": f"{value} in the script, {stated[library]} in the README beside it"
        for library, value in own.items()
        if stated.get(library, value) != value
    }
    return stated | own, differences
