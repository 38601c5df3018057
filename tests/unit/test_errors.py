"""What a fault of a disk is called."""

import errno
import os
from pathlib import Path

import pytest

from podwright.errors import abbreviated, counted, from_os, listed, message_of


def full() -> OSError:
    """As the system says it of a write, without a name."""
    with pytest.raises(OSError) as caught, Path("/dev/full").open("wb", buffering=0) as f:
        f.write(b"x")
    assert caught.value.errno == errno.ENOSPC and caught.value.filename is None
    return caught.value


def test_a_full_disk_is_a_fault_with_and_without_a_path() -> None:
    error, named = from_os(full()), from_os(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/x"))
    assert error and named and (error.code, named.code) == ("full-disk", "full-disk")
    assert error.what == "No space left on device" and named.what == "/data/x: No space left on device"
    assert from_os(OSError(errno.ECHILD, "no child")) is None


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("/data/.R.md.4711.part", "/data/R.md"),
        (".out.12.part/model.safetensors", "out/model.safetensors"),
        ("/runs/a/step-00000003.pt.unfinished", "/runs/a/step-00000003.pt"),
        ("/data/a.part", "/data/a.part"),
        ("/data/.hidden", "/data/.hidden"),
    ],
)
def test_a_message_names_the_path_that_was_typed_and_not_the_unfinished_file(written: str, named: str) -> None:
    error = from_os(OSError(errno.EACCES, "", written))
    assert error and error.what == f"{named}: Permission denied"


@pytest.mark.parametrize(("number", "text"), [(0, "0 GPUs"), (1, "1 GPU"), (2000, "2,000 GPUs")])
def test_one_is_singular(number: int, text: str) -> None:
    assert counted(number, "GPU") == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.00 K"),
        (131_072, "131 K"),
        (999_499, "999 K"),
        (999_500, "1.00 M"),
        (9_994_999, "9.99 M"),
        (9_995_000, "10.0 M"),
        (99_950_000, "100 M"),
        (494_032_768, "494 M"),
        (1_720_574_976, "1.72 B"),
        (671_026_419_200, "671 B"),
        (1_234_567_890_123, "1,235 B"),
    ],
)
def test_large_counts_have_three_digits(number: int, text: str) -> None:
    assert abbreviated(number) == text


def test_a_message_is_one_line_without_colours() -> None:
    assert message_of(ValueError("\x1b[1mno\x1b[0m, it is not\nmore")) == "no, it is not"
    assert message_of(ValueError()) == "" and message_of(ValueError("x" * 99)) == f"{'x' * 40}...{'x' * 40}"


def test_of_many_names_those_are_listed_that_fit() -> None:
    assert listed(["a", "b"]) == "a, b"
    long = listed(f"machine-{n}" for n in range(50))
    assert len(long) <= 80 and long.startswith("machine-0, machine-1, ") and long.endswith(" ...")
