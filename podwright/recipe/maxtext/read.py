"""A launch script as a recipe: its call of xpk and the command of the container in typed parts.

The script is read twice. With the values of the user it gives the exact words of the call. With a mark in place of each value that a user
fills in it gives the recipe, in which `${NAME}` stands wherever such a mark has come to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from podwright import slices
from podwright.errors import UserError
from podwright.recipe.maxtext import pod, readme, script, xpk
from podwright.recipe.maxtext.pod import COMPILER_FLAGS, ContainerCommand
from podwright.recipe.maxtext.script import ScriptReading

FROM_TARGET = ("PROJECT_ID", "CLUSTER_NAME", "ZONE", "BASE_OUTPUT_DIR", "WORKLOAD_IMAGE", "WORKLOAD_NAME")
"""variables that a target or its run fills in, whatever was typed at the import"""
_MARKS = "\ue000", "\ue001"
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
    """option of xpk that belongs to a target -> its value, where the script has one"""
    reading: ScriptReading
    command: str = field(default="")
    """the value of --command"""


def read(path: Path, text: str, values: Mapping[str, str], now: datetime, files: Mapping[str, str]) -> ImportedScript:
    """The recipe of a launch script. `files`: those beside it by name. UserError, with a line, for what cannot be read exactly."""
    reading = script.read(text, values, now, files, path.name)
    marks = _marks(text, reading, values)
    marked = script.read(text, {**values, **marks}, now, files, path.name)
    options = xpk.options(marked.call.argv)
    given = xpk.options(reading.call.argv)
    notes = {f"--{name}": f"there more than once; {value} does not count" for name, value in given.repeated.items()}
    notes |= {
        name: f"line {line}: it is not beside the script, and was not read" for name, line in reading.sourced.items()
    }
    command = pod.split(options.values.get("command", ""))
    device = xpk.first_of(given.values, xpk.DEVICES)
    stated, differences = versions(text, files)
    raw = _recipe(path, options.values, command, device, stated)
    notes |= differences | {f"arguments.{key}": _repeated(value) for key, value in command.repeated.items()}
    notes |= command.notes
    target = {name: given.values[name] for name in xpk.OF_TARGET if _literal(options.values.get(name, ""))}
    cleaned = {key: _unmarked(value) for key, value in notes.items()}
    return ImportedScript(_unmarked(raw), reading.call.argv, cleaned, target, reading, given.values.get("command", ""))


def _repeated(values: str) -> str:
    return f"there more than once; {values} does not count"


def _literal(value: str) -> bool:
    return bool(value) and _MARKS[0] not in value


def _marks(text: str, reading: ScriptReading, values: Mapping[str, str]) -> dict[str, str]:
    """Name of a variable or placeholder -> a mark in its place. What was typed and no target fills in stays as it is."""
    names = {name: name for name in (*reading.emptied, *reading.unset) if name not in values or name in FROM_TARGET}
    for option, canonical in _CANONICAL.items():
        if match := re.search(rf"--{option}(?:=|[ \t]+)[\"']?\$\{{?([A-Za-z_]\w*)\}}?[\"']?(?=\s|$)", text):
            names[match[1]] = canonical
    names |= {name: re.sub(r"\W", "_", name).upper().strip("_") for name in reading.placeholders}
    return {name: f"{_MARKS[0]}{canonical}{_MARKS[1]}" for name, canonical in names.items()}


def _unmarked(value: Any) -> Any:
    """With `${NAME}` for each mark."""
    if isinstance(value, dict):
        return {_unmarked(key): _unmarked(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_unmarked(entry) for entry in value]
    return re.sub(f"{_MARKS[0]}(.*?){_MARKS[1]}", r"${\1}", value) if isinstance(value, str) else value


def _recipe(
    path: Path, options: dict[str, str], command: ContainerCommand, device: str, stated: dict[str, str]
) -> dict[str, Any]:
    slice_ = topology(device)
    image = xpk.first_of(options, xpk.IMAGES) or f"{_MARKS[0]}WORKLOAD_IMAGE{_MARKS[1]}"
    environment = dict(command.environment)
    flags = environment.pop(COMPILER_FLAGS, "").split()
    model = command.arguments.get("model_name", "")
    steps = command.arguments.get("steps", "")
    others = {*xpk.OF_TARGET, *xpk.DEVICES, "docker-image", "command", "num-slices"}
    return {
        "kind": "maxtext",
        "name": name_of(path, slice_.topology),
        "description": f"{model or command.module} on {slice_.name}" + (f", {steps} steps" if steps else ""),
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


def topology(device: str) -> slices.Slice:
    """The slice that xpk calls `device`."""
    if not device:
        raise UserError("xpk workload create has no --device-type, or its value is empty", "type NAME=tpu7x-4x4x4")
    try:
        return slices.parse(device)
    except UserError as e:
        raise UserError(f"--device-type={device}: {e.what}", e.fix.replace("--on ", "")) from e


def name_of(path: Path, shape: str) -> str:
    """From the folders of a script: model and configuration, where the folder names a slice; else the folder's own name."""
    folders = [part for part in path.resolve().parent.parts if part not in ("/", "xpk", "k8s")]
    here = folders[-1] if folders else path.stem
    model = folders[-2] if len(folders) > 1 and (shape in here or _TOPOLOGY.search(here)) else ""
    name = "-".join(filter(None, [model, here])).lower()
    return re.sub(r"[^a-z0-9.-]+", "-", name).strip("-.") or path.stem


def versions(text: str, files: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Versions by library, of the script and of the README beside it, and a note for each on which they differ. The script counts."""
    stated = next((readme.versions(content) for name, content in files.items() if name.lower() == "readme.md"), {})
    own: dict[str, str] = {}
    if match := re.search(r"\bxpk==([\w.]+)", text):
        own["xpk"] = match[1]
    if match := re.search(r"(?m)^\s*(?:export\s+)?UV_PYTHON_VERSION=[\"']?([\d.]+)", text):
        own["python"] = match[1]
    differences = {
        f"versions.{library}": f"{value} in the script, {stated[library]} in the README beside it"
        for library, value in own.items()
        if stated.get(library, value) != value
    }
    return stated | own, differences
