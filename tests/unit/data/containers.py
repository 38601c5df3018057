"""Rows as the bytes of files that hold them."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow
import pyarrow.parquet

Rows = Sequence[Mapping[str, Any]]


def as_lines(rows: Rows) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_csv(rows: Rows, separator: str = ",") -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), delimiter=separator)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def as_parquet(rows: Rows) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), buffer)
    return buffer.getvalue()
