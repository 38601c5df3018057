"""What `podwright diagnose` says of lines of text."""

from collections.abc import Iterable

from podwright.rundir import Record
from podwright.watch import explain


def diagnosed(lines: Iterable[str]) -> list[Record]:
    return explain.stream(line.rstrip("\n").encode(errors="replace") + b"\n" for line in lines)
