"""Names, shapes and first and last values in what torch.save wrote, without torch; nothing of the file is executed: what it calls is a stand-in."""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from pathlib import Path
from types import MappingProxyType
from typing import Any

from podwright.errors import UserError
from podwright.plan.findings import Finding, of_error
from podwright.recipe import hf_weights
from podwright.recipe.hf_weights import StoredTensor

HEADS = "projection_heads."
Shapes = dict[str, tuple[int, ...]]

_DTYPES = MappingProxyType(
    {"DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"}
)
_LOCAL_HEADER = (
    30  # bytes of a zip file before the name of an entry, of which the last four are the lengths of what follows
)


class _Inert(dict[Any, Any]):
    """In the place of every class and function: takes what it is given; `given` has the shape where that was a tensor's."""

    def __init__(self, *given: Any):
        super().__init__()
        self.given = given

    def __setstate__(self, state: Any) -> None:
        pass


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _DTYPES.get(name, _Inert) if module == "torch" else _Inert

    def persistent_load(self, pid: Any) -> Any:
        """("storage", dtype, name of its entry, device, numbers)"""
        return pid


def shapes(path: Path) -> Shapes | None:
    """Of tensors by name; what is no tensor is left out, as in training. None for a file of another kind."""
    try:
        with zipfile.ZipFile(path) as archive:
            held = {name: _shape(value) for name, value in _content(archive).items()}
            return {name: shape for name, shape in held.items() if shape is not None}
    except Exception:  # of a file that is no pickle, the library raises whatever it stumbles over
        return None


def not_finite(path: Path) -> list[Finding]:
    """An error for a weight with NaN or infinity at either end, in the words of training."""
    try:
        with zipfile.ZipFile(path) as archive:
            tensors = {name: _tensor(path, archive, value) for name, value in _content(archive).items()}
        for name, tensor in tensors.items():
            if tensor is not None:
                hf_weights.require_finite(name, tensor, path)
    except UserError as e:
        return [of_error("model", e)]
    except Exception:  # as of `shapes`, which says so
        return []
    return []


def _content(archive: zipfile.ZipFile) -> dict[str, Any]:
    loaded = _Reader(io.BytesIO(archive.read(_pickled(archive)))).load()
    loaded = loaded.get("model", loaded.get("state_dict", loaded)) if isinstance(loaded, dict) else {}
    weights: dict[Any, Any] = loaded if isinstance(loaded, dict) else {}
    return {name: value for name, value in weights.items() if isinstance(name, str)}


def _pickled(archive: zipfile.ZipFile) -> str:
    return next(n for n in archive.namelist() if n.endswith("/data.pkl"))


def _tensor(path: Path, archive: zipfile.ZipFile, value: Any) -> StoredTensor | None:
    """Of _rebuild_tensor_v2(storage, offset, size, stride, ...), whose numbers stand in an entry of the archive that is not
    compressed; None of what is no tensor of floats."""
    given: tuple[Any, ...] = getattr(value, "given", ())
    if given and isinstance(given[0], _Inert):
        return _tensor(path, archive, given[0])
    if len(given) < 4 or given[0][1] not in _DTYPES.values():
        return None
    (_, dtype, key, _, numbers), offset, shape = given[0], given[1], given[2]
    entry = archive.getinfo(_pickled(archive).removesuffix("data.pkl") + f"data/{key}")
    if entry.compress_type != zipfile.ZIP_STORED or offset + math.prod(shape) > numbers:
        return None
    with path.open("rb") as f:
        f.seek(entry.header_offset + _LOCAL_HEADER - 4)
        lengths = f.read(4)
    start = entry.header_offset + _LOCAL_HEADER + sum(int.from_bytes(lengths[i : i + 2], "little") for i in (0, 2))
    return StoredTensor(path, dtype, tuple(shape), start + offset * entry.file_size // max(1, numbers))


def _shape(value: Any) -> tuple[int, ...] | None:
    """Of _rebuild_tensor_v2(storage, offset, size, ...), in _rebuild_parameter(tensor, ...) or not; None of what is no tensor"""
    given: tuple[Any, ...] = getattr(value, "given", ())
    if given and isinstance(given[0], _Inert):
        return _shape(given[0])
    size = given[2] if len(given) > 2 and isinstance(given[0], tuple) else None
    return size if isinstance(size, tuple) and all(isinstance(n, int) for n in size) else None


def misfits(source: str, stored: Shapes, dim: int, widths: dict[str, int | None]) -> list[Finding]:
    """Heads of an aligner.pt that are not for these features and this `dim`, in the words of training."""
    other = "change the encoders to those it was trained with"
    for modality, width in widths.items():
        matrix, *norms = head_names(modality)
        if (shape := stored.get(matrix)) is None:
            continue
        inner = width or (shape[1] if len(shape) == 2 else 0)
        if shape != (dim, inner):
            fix = f"type aligner.dim={shape[0]}" if shape and shape[0] != dim else other
            return [_misfit(source, matrix, shape, (dim, inner), fix)]
        for name in norms:
            if (held := stored.get(name, (inner,))) != (inner,):
                return [_misfit(source, name, held, (inner,), other)]
    return []


def head_names(modality: str) -> list[str]:
    """The weights of the head of an aligner.pt, its matrix first."""
    return [f"{HEADS}{modality}_head.{part}" for part in ("fc.weight", "ln.weight", "ln.bias")]


def _misfit(source: str, name: str, shape: tuple[int, ...], wanted: tuple[int, ...], fix: str) -> Finding:
    return Finding("model", "error", f"aligner.source={source}: {name} is {list(shape)} and not {list(wanted)}", fix)
