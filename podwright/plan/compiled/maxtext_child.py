"""Run by MaxText's own Python, apart from this package: how that MaxText reads a recipe's arguments, and what it would compile for.

    python -P maxtext_child.py SPEC RECORD

SPEC (JSON): base, the base config below MaxText's configs/; arguments, a list of KEY=VALUE; topology, as libtpu names it; num_slices.
RECORD (JSON) is what `lint` returns. MaxText stops at its first fault, so an argument with a fault is left out and the rest is read again.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

# Since February 2026 the package is `maxtext`, in folders; until then it was `MaxText`, flat. Some versions have shims of the other name.
LAYOUTS = (
    ("maxtext.configs.pyconfig", "maxtext.trainers.pre_train.train_compile", "maxtext.utils.accelerator_to_spec_map"),
    ("MaxText.pyconfig", "MaxText.train_compile", "MaxText.accelerator_to_spec_map"),
)
# `_prepare_for_pydantic` of pyconfig.py since December 2025; `pyconfig_deprecated.py` before.
UNKNOWN_KEY = (
    re.compile(r"^'(\w+)' not in '(.*)"),
    re.compile(r"^Key (\w+) was passed at the command line but isn't in"),
)
MOST_FAULTS = 40


def lint(base: str, arguments: list[str], topology: str, num_slices: int) -> dict[str, Any]:
    """What the MaxText of this Python says of the arguments.

    faults: of each argument that it refuses `key` ("" for a rule over several), `reason` and, where it names them, `known` values;
    module: the one that compiles; base: the path of the base config; added: arguments for the compile besides the recipe's;
    config: some values as MaxText has them after its defaults and the model's, {} where it refuses the rest as well.
    """
    config_module, compile_module, map_module = next(layout for layout in LAYOUTS if all(map(_exists, layout)))
    pyconfig = importlib.import_module(config_module)
    configs = Path(str(pyconfig.__file__)).parent
    candidates = (configs / base, configs / "configs" / base)
    path = next((path for path in candidates if path.is_file()), None)
    name = _topology_name(importlib.import_module(map_module).UserFacingNameToSystemCharacteristics, topology)
    if path is None or name is None:
        reason = f"it does not compile for {topology}" if path else f"it has no base config {base}"
        return {"faults": [{"key": "", "reason": reason, "known": []}]}
    added = [
        f"compile_topology={name}",
        f"compile_topology_num_slices={num_slices}",
        "skip_jax_distributed_system=True",
    ]
    added += ["run_name=plan", f"base_output_directory={Path.cwd() / 'output'}", "log_config=False"]
    faults, config = _faults(pyconfig, str(path), [*arguments, *added])
    return {"faults": faults, "module": compile_module, "base": str(path), "added": added, "config": config}


def _topology_name(table: dict[str, Any], topology: str) -> str | None:
    """MaxText's name of a topology, such as tpu7x-128 for tpu7x:4x4x4; libtpu's `v5` is v5p."""
    names = {row.topology_name: name for name, row in table.items() if row.platform == "tpu"}
    return names.get(topology) or names.get(topology.replace("v5p:", "v5:"))


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _faults(pyconfig: Any, base: str, arguments: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    # `initialize` ends the process on a fault and writes to /dev/termination-log; what it calls raises.
    read = getattr(pyconfig, "_initialize_pydantic", None) or pyconfig.initialize
    faults: list[dict[str, Any]] = []
    for _ in range(MOST_FAULTS):
        try:
            config = read(["train_compile", base, *arguments])
        except Exception as e:
            new = _of(e)
            faults += new
            keys = {fault["key"] for fault in new}
            rest = [argument for argument in arguments if argument.partition("=")[0] not in keys]
            if len(rest) == len(arguments):
                return faults, {}
            arguments = rest
            continue
        values = {}
        for name in ("use_tokamax_gmm", "num_experts"):
            value = getattr(config, name, None)
            if isinstance(value, str | int):
                values[name] = value
        return faults, values
    return faults, {}


def _of(error: Exception) -> list[dict[str, Any]]:
    """The faults that one exception of MaxText's names."""
    if callable(errors := getattr(error, "errors", None)):  # of pydantic
        faults = []
        for entry in errors():
            key = str(entry["loc"][0]) if entry["loc"] else ""
            known = re.findall(r"'([^']*)'", entry["msg"]) if entry["type"] in ("enum", "literal_error") else []
            faults.append({"key": key, "reason": re.sub(r"^Value error, ", "", entry["msg"]), "known": known})
        return faults
    text = str(error)
    for pattern in UNKNOWN_KEY:
        if match := pattern.match(text):
            known = re.findall(r"'(\w+)'", text[match.end(1) + 1 :])
            return [{"key": match[1], "reason": "unknown", "known": known}]
    return [{"key": "", "reason": text or type(error).__name__, "known": []}]


if __name__ == "__main__":
    spec = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(
        json.dumps(lint(spec["base"], spec["arguments"], spec["topology"], spec["num_slices"]))
    )
