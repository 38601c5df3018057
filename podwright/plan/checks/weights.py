"""Names and shapes in what torch.save wrote, without torch; nothing of the file is executed: what it calls is a stand-in."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

from podwright.plan.findings import Finding

Shapes = dict[str, tuple[int, ...]]


class _Inert(dict[Any, Any]):
    """In the place of every class and function: takes what it is given; `given` has the shape where that was a tensor's."""

    def __init__(self, *given: Any):
        super().__init__()
        self.given = given

    def __setstate__(self, state: Any) -> None:
        pass


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _Inert

    def persistent_load(self, pid: Any) -> Any:
        return None


def shapes(path: Path) -> Shapes | None:
    """By name; () for what is no tensor. None for a file of another kind."""
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(n for n in archive.namelist() if n.endswith("/data.pkl"))
            loaded = _Reader(io.BytesIO(archive.read(name))).load()
    except Exception:  # of a file that is no pickle, the library raises whatever it stumbles over
        return None
    loaded = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else {}
    return {str(name): _shape(value) for name, value in loaded.items()}


def _shape(value: Any) -> tuple[int, ...]:
    """_rebuild_tensor_v2(storage, offset, size, ...), in _rebuild_parameter(tensor, ...) or not"""
    given: tuple[Any, ...] = getattr(value, "given", ())
    if given and isinstance(given[0], _Inert):
        return _shape(given[0])
    size = given[2] if len(given) > 2 else ()
    return size if isinstance(size, tuple) and all(isinstance(n, int) for n in size) else ()


def misfits(source: str, stored: Shapes, dim: int, widths: dict[str, int | None]) -> list[Finding]:
    """Heads of an aligner.pt that are not for these features and this `dim`, in the words of training."""
    for modality, width in widths.items():
        name = f"projection_heads.{modality}_head.fc.weight"
        if len(shape := stored.get(name, ())) != 2 or shape == (dim, width or shape[1]):
            continue
        what = f"aligner.source={source}: {name} is {list(shape)} and not {[dim, width or shape[1]]}"
        other = "change the encoders to those it was trained with"
        return [Finding("model", "error", what, other if shape[0] == dim else f"type aligner.dim={shape[0]}")]
    return []
