"""A launch script as a recipe: its call of xpk and the command of the container in typed parts.

bash says what the script calls, in a sandbox. With the values of the user it gives the exact words of the call. With a mark in place of
each value that a user fills in it gives the recipe, in which `${NAME}` stands wherever such a mark has come to.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from podwright import slices
from podwright.errors import UserError
from podwright.recipe.maxtext import script, xpk
from podwright.recipe.maxtext.imported import ImportedScript
from podwright.recipe.maxtext.schema import FROM_TARGET
from podwright.recipe.script_text import with_placeholders
from podwright.sandbox import container, evaluation, marks, variables
from podwright.sandbox.container import COMPILER_FLAGS, ContainerCommand
from podwright.sandbox.evaluation import Evaluated
from podwright.sandbox.marks import MARKS
from podwright.sandbox.stage import Script, Surroundings, has_proc
from podwright.sandbox.variables import Variables
from podwright.shell import Shell

_CANONICAL = xpk.OF_TARGET | dict.fromkeys(xpk.IMAGES, "WORKLOAD_IMAGE")


class _Runs:
    """One script, which bash runs with this and that value."""

    def __init__(
        self, path: Path, text: str, files: Mapping[str, str], now: datetime, values: Mapping[str, str], trust: bool
    ):
        self.path, self.text, self.files, self.trust = path, text, files, trust
        self.values = {name: value for name, value in values.items() if name not in ("USER", "HOME")}
        self.placeholders = with_placeholders(text, self.values)[1]
        texts = [text, *variables.sourced(text, files).values()]
        self.variables: Variables = variables.of_script(texts, self.values)
        zone = now.strftime("%z")
        user = values.get("USER", "user")
        timezone = f"<{now.tzname()}>{'-' if zone[:1] == '+' else '+'}{zone[1:3]}:{zone[3:]}" if zone else "UTC"
        home = values.get("HOME", "").rstrip("/") or f"/home/{user}"
        self._seen = Surroundings(user, home, int(now.timestamp()), timezone)

    def run(self, values: Mapping[str, str], variant: int = 0) -> Evaluated:
        """What bash makes of the script with `values` besides those of the user."""
        values = {**self.values, **values}
        text = variables.with_all_files(self.text) if variant else self.text
        source = Script(self.path, text, self.files)
        return self._run(source, values, dataclasses.replace(self._seen, variant=variant))

    def call(self, values: Mapping[str, str], variant: int) -> tuple[str, ...] | None:
        """The words of its one call of xpk; None for none, or several."""
        return _single(self.run(values, variant))

    def turned(self, name: str) -> tuple[str, ...] | None:
        """The words of the call where tests of a variable turn out the other way; None as above, and where no test names it."""
        if name not in variables.in_conditions(self.text):
            return None
        text = variables.with_other_outcomes(self.text, name)
        return _single(self._run(Script(self.path, text, self.files), self.values, self._seen))

    def hear(self, text: str, values: Mapping[str, str]) -> Evaluated:
        """What bash calls in the text of a container's command, where variables have `values`."""
        evaluated = self._run(Script(Path(".command"), text), values, self._seen)
        base = self._seen.variables()
        calls = [dataclasses.replace(call, env={**base, **call.env}) for call in evaluated.calls]
        return dataclasses.replace(evaluated, calls=tuple(calls))

    def _run(self, source: Script, values: Mapping[str, str], seen: Surroundings) -> Evaluated:
        evaluated = evaluation.run(source, values, Shell(), seen, trust=self.trust)
        if not evaluated.sandboxed:
            what = f"{self.path.name} is read by bash in a sandbox, and there is none here: {evaluated.why_not}"
            fix = f"type podwright recipe import {shlex.quote(str(self.path))} --trust, which runs it without"
            if self.trust or not has_proc():
                fix = "import it on a Linux machine"
            raise UserError(what, fix, "no-sandbox")
        return evaluated


def _single(evaluated: Evaluated) -> tuple[str, ...] | None:
    calls = evaluated.workloads()
    return calls[0].argv if len(calls) == 1 else None


def read(
    path: Path,
    text: str,
    values: Mapping[str, str],
    now: datetime,
    files: Mapping[str, str],
    xpk_version: str = "",
    trust: bool = False,
) -> ImportedScript:
    """The recipe of a launch script, or of a script that a container runs to train.

    `values`: variables and placeholders of the script by name; `topology` of a training script. `files`: those beside the script by
    name. `xpk_version`: that counts in place of the one that the script states. `trust`: where there can be no
    sandbox, bash runs without. UserError for what cannot be read exactly, and where bash cannot run.
    """
    runs = _Runs(path, text, files, now, values, trust)
    if not script.mentions_xpk(text):
        why = script.why_unread(text)
        has_launcher = why.startswith(script.UNREAD_LAUNCHER)
        if script.starts_maxtext(text) and not has_launcher:
            return _training_script(runs, values)
        if has_launcher or not variables.sourced(text, files):
            raise UserError(f"{path.name} {why}", "name a script that calls xpk workload create", "no-call-of-xpk")
    return _launch_script(runs, values, xpk_version)


def _launch_script(runs: _Runs, values: Mapping[str, str], xpk_version: str) -> ImportedScript:
    path, text, files = runs.path, runs.text, runs.files
    evaluated = runs.run({})
    argv = _argv(runs, evaluated)
    _require_typed_values(runs, argv, evaluated.workloads()[0].env)
    stated, differences = script.versions(text, files)
    xpk_version = xpk_version or stated.get("xpk", "")
    given = xpk.options(argv, xpk_version)
    names = _names(runs, values)
    filled = _values_of_call(runs, names, values, given.values)
    call = _marked(runs, argv, names, filled)
    options = xpk.options(call.argv, xpk_version)
    notes = {f"--{name}": _repeated(value) for name, value in given.repeated.items()}
    notes |= {
        each.argv[1]: "it is not beside the script, and was not read"
        for each in evaluated.calls
        if each.name == "source" and each.argv[1:] and not each.argv[1].endswith("bin/activate")
    }
    try:
        command = _inlined(container.split(options.values.get("command", ""), runs.hear), runs)
    except UserError as e:
        raise UserError(re.sub(f"[{''.join(MARKS)}]", "", _unmarked(e.what)), e.fix, e.code) from e
    _require_maxtext(command)
    device = xpk.first_of(given.values, xpk.DEVICES)
    variable = next(filter(None, (_variable(option, text) for option in xpk.DEVICES)), "")
    if not device:
        remedy = f"type {variable}=tpu7x-4x4x4" if variable else "write --device-type=tpu7x-4x4x4 in the script"
        raise UserError("xpk workload create has no --device-type, or its value is empty", remedy, "no-topology")
    number = _number_of_slices(given.values.get("num-slices", "1"), "--num-slices")
    slice_ = slices.one_of_tpus(device, variable or "--device-type")
    raw = _recipe(path, options.values | number, command, slice_, stated)
    notes |= differences | {f"arguments.{key}": _repeated(value) for key, value in command.repeated.items()}
    notes |= command.notes
    own = {name: given.values.get(name, "") for name in ("cluster", "project", "zone", "namespace")}
    own |= {"bucket": values.get("BASE_OUTPUT_DIR", ""), "image": values.get("WORKLOAD_IMAGE", "")}
    target = {name: value for name, value in own.items() if value and "<" not in value}
    deciding = {each.name for each in call.deciding}
    unset = {}
    for name, line in runs.variables.unset.items():
        mark = marks.mark(names[name])
        if name in deciding or any(mark in word for word in call.argv):
            unset[name] = line
    return ImportedScript(
        _unmarked(raw),
        argv,
        _unmarked(notes),
        target,
        filled,
        unset,
        call.deciding,
        "" if evaluated.exit_code else evaluated.problem,
        evaluated.trusted,
    )


def _marked(
    runs: _Runs, argv: tuple[str, ...], names: Mapping[str, str], values: Mapping[str, str]
) -> marks.MarkedCall:
    try:
        return marks.read(runs.call, argv, names, values, runs.turned)
    except marks.DiffersByMachine as e:
        what = f"{runs.path.name}: {str(e)!r} of its call of xpk depends on a file, or on what differs at each run"
        raise UserError(what, "write the value out in a copy of the script", "depends-on-machine") from e


def _argv(runs: _Runs, evaluated: Evaluated) -> tuple[str, ...]:
    """The words of the one call of xpk in a run. UserError for another number of calls, and for words that bash cannot know here."""
    calls = evaluated.workloads()
    name = runs.path.name
    problem = evaluated.problem.removeprefix(f"{runs.path} ")
    if len(calls) > 1:
        raise UserError(f"{name} calls xpk workload create {len(calls)} times", "leave one in a copy", "several-calls")
    if not calls:
        what = f"{name} does not reach its call of xpk workload create" + (f" ({problem})" if problem else "")
        fix = "take out in a copy of the script what ends it, hides xpk or takes too long"
        missing = re.search(r": line \d+: (\w+): ", evaluated.output)
        if missing and missing[1] in runs.variables.unset:
            fix = f"type {missing[1]}=VALUE"
        raise UserError(what, fix, "no-call-of-xpk")
    unknown = re.search("\2([^\3]*)", " ".join(calls[0].argv))
    if unknown:
        what = f"{name}: what {unknown[1][:60]} prints is known only where the script runs"
        raise UserError(what, "write the value out in a copy of the script", "depends-on-machine")
    return calls[0].argv


def _require_typed_values(runs: _Runs, argv: tuple[str, ...], environment: Mapping[str, str]) -> None:
    """UserError for a typed value that its script has replaced before its call `argv`, whose exported variables are `environment`."""
    for name, value in runs.values.items():
        now = environment.get(name, value)
        # `ZONE=other xpk --zone=$ZONE` still passes the typed value
        if value not in now and not any(value in word for word in argv):
            what = f"{runs.path.name} sets {name} to {now[:40]!r} itself, in place of {value[:40]!r}"
            fix = f"leave {name}={shlex.quote(value)} out, or take the line out in a copy of the script"
            raise UserError(what, fix, "value-replaced")


def _training_script(runs: _Runs, values: Mapping[str, str]) -> ImportedScript:
    """Of a fork's own script: what it exports, runs before and passes to MaxText. On which slice, only the user knows."""
    path, text = runs.path, runs.text
    names = _names(runs, values)
    known = runs.values | {name: marks.mark(canonical) for name, canonical in names.items()}
    command = container.split(with_placeholders(text, known)[0], runs.hear, path.name, typed=known)
    _require_maxtext(command)
    if not values.get("topology"):
        raise UserError(
            f"{path.name} does not say on which slice it trains", "type topology=tpu7x-4x4x4", "no-topology"
        )
    devices = slices.of_tpus(values["topology"], "topology")
    number = _slices_of_training(text, values, path.name) or {"num-slices": str(devices.num_slices)}
    if devices.num_slices not in (1, int(number["num-slices"])):
        what = f"topology={values['topology']} has {devices.num_slices} slices, and num_slices={number['num-slices']}"
        raise UserError(what, "leave one of the two out", "settings-contradict")
    stated, differences = script.versions(text, runs.files)
    raw = _recipe(path, number, command, dataclasses.replace(devices, num_slices=1), stated)
    notes = (
        differences | {f"arguments.{key}": _repeated(value) for key, value in command.repeated.items()} | command.notes
    )
    return ImportedScript(_unmarked(raw), (), _unmarked(notes), {})


def _inlined(command: ContainerCommand, runs: _Runs) -> ContainerCommand:
    """With the commands of a training script that the container runs, where that script lies beside the launch script."""
    name = command.module.rpartition("/")[2]
    if not name.endswith(".sh") or name not in runs.files or command.arguments:
        return command
    inner = container.split(runs.files[name], runs.hear, name, known=command.environment)
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
            f"--command trains with {command.module}, which is no MaxText",
            "import a script that trains with MaxText",
            "no-training",
        )


def _repeated(values: str) -> str:
    return f"there more than once: the last one counts, not {values}"


def _names(runs: _Runs, values: Mapping[str, str]) -> dict[str, str]:
    """Name of a variable or placeholder -> that of the recipe's variable, in capitals. What was typed and no target fills in stays as it is."""
    names = dict[str, str]()
    its = runs.variables
    scripted = {*its.emptied, *its.unset, *its.given}
    for name in sorted(scripted, key=lambda name: (name != name.upper(), name)):
        if name not in values or name in FROM_TARGET:
            names[name] = name.upper()
            while list(names.values()).count(names[name]) > 1:
                names[name] += "_"
    names |= {name: canonical for option, canonical in _CANONICAL.items() if (name := _variable(option, runs.text))}
    return names | {name: re.sub(r"\W", "_", name).upper().strip("_") for name in runs.placeholders}


def _values_of_call(
    runs: _Runs, names: Mapping[str, str], values: Mapping[str, str], options: Mapping[str, str]
) -> dict[str, str]:
    """Variable of the recipe -> its value in the call, whose options are `options`."""
    known = {canonical: values.get(name, "") for name, canonical in names.items()}
    known |= {names[name]: f"<{name}>" for name in runs.placeholders}
    return known | {
        each: options[name] for name, each in _CANONICAL.items() if name in options and _variable(name, runs.text)
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
        "name": script.name_of(path, slice_.topology),
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


def _slices_of_training(text: str, values: Mapping[str, str], script_name: str) -> dict[str, str]:
    """`num-slices` that was typed, or that the training script has as NUM_SLICES; {} without either."""
    for key in ("num_slices", "NUM_SLICES"):
        if key in values:
            return _number_of_slices(values[key], key)
    assigned = re.search(r"(?m)^[ \t]*(?:export[ \t]+)?NUM_SLICES=[\"']?(?:\$\{\w+:?-)?([^\s\"'};]*)", text)
    if not assigned or not assigned[1]:
        return {}
    if "$" in assigned[1]:
        line = text.count("\n", 0, assigned.start(1)) + 1
        what = f"{script_name} line {line}: NUM_SLICES is known only where the script runs"
        raise UserError(what, "type NUM_SLICES=1, or the number of slices that it trains on", "depends-on-machine")
    return _number_of_slices(assigned[1], "NUM_SLICES")


def _number_of_slices(text: str, key: str) -> dict[str, str]:
    """`num-slices` as it counts. UserError for what is no whole number above 0."""
    if not re.fullmatch(r"0*[1-9]\d*", text, re.ASCII):
        raise UserError(f"{key}={text} is no whole number above 0", f"write {key}=1", "not-a-number")
    return {"num-slices": text}
