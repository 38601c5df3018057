"""What the text and the folder of a launch script say, before anything is run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from podwright.recipe.maxtext import readme
from podwright.recipe.schema import recipe_name

_TOPOLOGY = re.compile(r"(?:tpu)?v?\d+[a-z]*-\d+(?:x\d+)*", re.IGNORECASE)
_STATED = {
    "xpk": r"\bxpk==([A-Za-z0-9][A-Za-z0-9_.]*)",
    "python": r"(?m)^\s*(?:export\s+)?UV_PYTHON_VERSION=[\"']?([0-9][0-9.]*)",
}
UNREAD_LAUNCHER = "starts its training by"
_CALL = re.compile(r"(?:xpk(?:\.py)?|\$\{?\w+\}?)[\"']?\s+(?:\\\n\s*)?workload\s+create\b(?!-)")


def mentions_xpk(text: str) -> bool:
    """Whether a script seems to call xpk workload create."""
    return bool(_CALL.search(_code(text)))


def why_unread(text: str) -> str:
    """What a script does instead of calling xpk workload create, behind its name."""
    launcher = re.search(r"benchmark_runner|workload\s+create-pathways", _code(text))
    if launcher:
        return f"{UNREAD_LAUNCHER} {launcher[0]}, which is not read yet"
    return "does not call xpk workload create"


def starts_maxtext(text: str) -> bool:
    """Whether a script seems to start MaxText itself, as `python3 -m MaxText.train` does."""
    pattern = r"(?i)\bpython[\d.]*\s+(?:-u\s+)?(?:-m\s+)?\S*max(?:text|diffusion)\S*"
    return bool(re.search(pattern, _code(text)))


def _code(text: str) -> str:
    """A script without its lines of comments."""
    return re.sub(r"(?m)^[ \t]*#.*$", "", text)


def name_of(path: Path, shape: str) -> str:
    """From the folders of a script: model and configuration, where the latter names a slice (or `shape`); else the folder's own name."""
    folders = [part for part in path.resolve().parent.parts if part not in ("/", "xpk", "k8s")]
    here = folders[-1] if folders else path.stem
    names_slice = (shape and shape in here) or _TOPOLOGY.search(here)
    model = folders[-2] if len(folders) > 1 and names_slice else ""
    for name in ("-".join(filter(None, [model, here])), path.stem):
        if allowed := recipe_name(name):
            return allowed
    return "recipe"


def versions(text: str, files: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Versions by library, of the script and of the README beside it, and a note for each on which they differ. The script counts."""
    stated = next((readme.versions(content) for name, content in files.items() if name.lower() == "readme.md"), {})
    own: dict[str, str] = {}
    for library, pattern in _STATED.items():
        if match := re.search(pattern, text):
            own[library] = match[1]
    differences = {
        f"versions.{library}": f"{value} in the script, {stated[library]} in the README beside it"
        for library, value in own.items()
        if stated.get(library, value) != value
    }
    return stated | own, differences
