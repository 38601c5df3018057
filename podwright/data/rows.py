"""Rows out of JSONL files, parquet directories and the Hugging Face hub, each with a name for the place it stands at.

What a row must hold is the caller's to decide.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from podwright.errors import UserError

Rows = Iterator[tuple[str, Mapping[str, Any]]]
"""("file:line" or "set row n", the row)"""

_CONFIGS = {"openai/gsm8k": "main"}  # hub sets of which one configuration must be chosen
_INSTALL = "type pip install -e '.[hub]' in podwright's clone"


def jsonl(path: Path) -> Rows:
    """The objects of a JSON-lines file; byte order mark, CRLF and blank lines are passed over."""
    # Split as bytes: str.splitlines would also cut at characters such as U+2028, which JSON allows inside a string.
    for number, line in enumerate(_read(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line.strip():
            where = f"{path}:{number}"
            yield where, _object(where, line)


def directory(path: Path) -> tuple[Rows, Rows]:
    """(train, test) of a directory: train.jsonl and test.jsonl, or train*.parquet and test*.parquet as the hub lays them out."""
    files = [path / "train.jsonl", path / "test.jsonl"]
    if files[0].is_file() and files[1].is_file():
        return jsonl(files[0]), jsonl(files[1])
    for folder in (path, path / "main", path / "data"):
        train, test = (sorted(folder.glob(f"{split}*.parquet")) for split in ("train", "test"))
        if train and test:
            return _parquet(train), _parquet(test)
    missing = files[0] if not files[0].is_file() else files[1]
    if missing == files[1]:
        raise UserError(
            f"there is no {missing}", f"add it, or type data.source={files[0]} to hold a part of that file out"
        )
    raise UserError(
        f"there is no {missing}", "give a directory with train.jsonl and test.jsonl (or parquet files of these names)"
    )


def hub(name: str) -> tuple[Rows, Rows]:
    """(train, test) of a Hugging Face data set, downloaded or from its cache; test may be called validation."""
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or name.endswith((".jsonl", ".json", ".parquet")):
        raise UserError(f"there is no file or directory {name}", "check data.source")
    try:
        import datasets
    except ImportError as e:
        raise UserError("reading the hub needs the package datasets", _INSTALL) from e
    try:
        dataset = datasets.load_dataset(name, _CONFIGS.get(name))
    except Exception as e:  # the hub's clients raise dozens of types, all of them meaning that there is no data
        reason = (str(e).splitlines() or [""])[0][:160]
        raise UserError(
            f"data.source={name} is no local path and cannot be had from the Hugging Face hub ({type(e).__name__}: {reason})",
            "download it where there is a network and type data.source=DIRECTORY with train.jsonl and test.jsonl",
        ) from e
    test = "test" if "test" in dataset else "validation"
    if "train" not in dataset or test not in dataset:
        raise UserError(f"{name} has the parts {', '.join(dataset)}", "give a set with train and test")
    return _named(f"{name} train", dataset["train"]), _named(f"{name} {test}", dataset[test])


def _named(name: str, table: Any) -> Rows:
    for number, row in enumerate(table, 1):
        yield f"{name} row {number}", row


def _parquet(paths: list[Path]) -> Rows:
    try:
        import pyarrow.parquet
    except ImportError as e:
        raise UserError("reading parquet files needs the package pyarrow", _INSTALL) from e
    for path in paths:
        try:
            table = pyarrow.parquet.read_table(path)
        except (OSError, pyarrow.ArrowException) as e:
            raise UserError(
                f"{path} cannot be read as parquet", "fetch it again, or give train.jsonl and test.jsonl"
            ) from e
        yield from _named(str(path), table.to_pylist())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as e:
        raise UserError(f"{path} cannot be read ({e.strerror})", "check the path and its permissions") from e


def _object(where: str, line: bytes) -> Mapping[str, Any]:
    try:
        row = json.loads(line.decode())
    except UnicodeDecodeError as e:
        raise UserError(f"{where} is not UTF-8", "save the file as UTF-8") from e
    except json.JSONDecodeError as e:
        raise UserError(
            f"{where} is not JSON ({e.msg} at column {e.colno})", "mend that line: one object a line"
        ) from e
    if not isinstance(row, dict):
        raise UserError(
            f"{where} is a JSON {type(row).__name__}, not an object", 'write {"question": ..., "answer": ...}'
        )
    return row
