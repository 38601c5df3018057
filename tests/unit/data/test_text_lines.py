"""What a file is when it is not UTF-8 text, and what is wrong with a line of JSON: one cause, with what to type."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest

from podwright.data import faults, gsm8k, layouts, lines, shards, texts
from podwright.errors import UserError
from podwright.recipe.multimodal import MultimodalData
from podwright.recipe.schema import GrpoData

LINES = b'{"text": "one"}\n{"text": "two"}\n'
GERMAN = '{"text": "Gr\u00fc\u00dfe aus K\u00f6ln"}\n' * 5


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.jsonl", LINES)
    return buffer.getvalue()


def tarred() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("a.jsonl")
        entry.size = len(LINES)
        archive.addfile(entry, io.BytesIO(LINES))
    return buffer.getvalue()


OTHER_FORMATS = {
    "gzip": (gzip.compress(LINES), "is compressed (gzip)"),
    "bzip2": (bz2.compress(LINES), "is compressed (bzip2)"),
    "xz": (lzma.compress(LINES), "is compressed (xz)"),
    "zstd": (b"(\xb5/\xfd" + bytes(range(60)), "is compressed (zstd)"),
    "zip": (zipped(), "is a zip archive"),
    "tar": (tarred(), "is a tar archive"),
    "parquet": (b"PAR1\0\1", "is a parquet file"),
    "png": (b"\x89PNG\r\n\x1a\n", "is a PNG picture"),
    "a list": (json.dumps([{"text": "one"}], indent=1).encode(), "JSON over several lines"),
    "indented": (json.dumps({"text": "one"}, indent=1).encode(), "JSON over several lines"),
    "UTF-16": (LINES.decode().encode("utf-16"), "is UTF-16, not UTF-8"),
    "UTF-16BE": (LINES.decode().encode("utf-16-be"), "is UTF-16BE, not UTF-8"),
    "UTF-32": (LINES.decode().encode("utf-32"), "is UTF-32, not UTF-8"),
}


@pytest.mark.parametrize("kind", OTHER_FORMATS)
@pytest.mark.parametrize("suffix", [".jsonl", ".txt"])
def test_another_format_is_one_fault_of_the_file(tmp_path: Path, kind: str, suffix: str) -> None:
    content, what = OTHER_FORMATS[kind]
    if "JSON" in what and suffix == ".txt":
        pytest.skip("a document may be JSON")
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    record = faults.check(str(path))
    assert record["num_faults"] >= 1
    message = record["faults"][0]["message"]
    assert message.startswith(f"{path}") and (" is not UTF-8 text; " in message or ":1 is not JSON: " in message)
    with pytest.raises(UserError) as refused:
        list(texts.read(str(path)))
    assert str(refused.value) == message
    with pytest.raises(UserError) as of_count:
        shards.count(str(path), "bytes")
    assert str(of_count.value) == message
    if suffix == ".jsonl":
        with pytest.raises(UserError) as of_questions:
            gsm8k.read(path)
        assert of_questions.value.code in ("not-utf8", "not-json")
        with pytest.raises(UserError, match=r"not UTF-8 text|is not JSON|not an object"):
            lines.split(path, data := MultimodalData(source=str(path)), lines.reader(data))


def test_lines_that_are_not_utf8_among_others_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes((LINES + GERMAN.encode() + b'{"text": "caf\xe9"}\n') * 3)
    record = faults.check(str(path))
    assert (record["lines"], record["valid"], record["num_faults"]) == (24, 21, 3)
    assert record["faults"][0] == {
        "line": 8,
        "field": None,
        "code": "not-utf8",
        "message": f"{path}:8 is not UTF-8 text; save it as UTF-8",
    }


def test_marks_and_ends_of_windows_are_passed_over(tmp_path: Path) -> None:
    for name, content in (("a.jsonl", LINES.replace(b"\n", b"\r\n")), ("b.txt", b"one")):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + content)
        assert faults.check(str(tmp_path / name))["faults"] == []
        assert next(texts.read(str(tmp_path / name))) == "one"


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "it is nested too deeply"),
        (b'{"text": "a", "n": ' + b"1" * 5000 + b"}", "a number with more than 4,300 digits"),
        (b'{"text": "a\0b"}', "at column 12"),
        (b"\0" * 40, "at column 1"),
        (b'{"text": "a', "at column 10"),
        (b'{"text": "a"', "at column 13"),
        (b"{'text': 1}", "at column 2"),
        (b'{"text": "a\\x"}', "at column 12"),
        (b'{"text": "a"} {"text": "b"}', "at column 15"),
        (b'{"text": "a\\ud800"}', "half a character"),
        (b'{"text": null}', "text is null, not text"),
        (b'{"text": 5}', "text is a number, not text"),
        (b'{"text": true}', "text is true or false, not text"),
        (b'{"text": ["a", "b"]}', "text is a list, not text"),
        (b'{"text": {"a": 1}}', "text is an object, not text"),
        (b'{" text": "a"}', "has no column 'text' and is of no layout that is read; its columns are \" text\""),
        (b"[1]", "is a list, not an object"),
    ],
    ids=range(17),
)
def test_a_fault_of_a_line_has_its_place(tmp_path: Path, line: bytes, fault: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES + line + b"\n")
    record = faults.check(str(path))
    (entry,) = record["faults"]
    assert (entry["line"], record["valid"]) == (3, 2) and fault in entry["message"]
    with pytest.raises(UserError) as refused:
        list(texts.read(str(path)))
    assert fault in str(refused.value) and "\n" not in str(refused.value)


def test_a_field_of_another_type_says_what_it_is() -> None:
    for value, what in (
        (None, "null"),
        ({"a": 1}, "an object"),
        (5, "a number"),
        (b"x", "a value of another type"),
    ):
        row = {"question": value, "answer": "#### 2"}  # b"x": of a parquet file
        with pytest.raises(UserError, match=rf"row 1: question is {what}, not text") as refused:
            layouts.example("row 1", row)
        assert refused.value.code == "not-text"


def test_a_pipe_and_a_link_without_its_file_are_not_waited_for(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "link.jsonl").symlink_to("nowhere")
    assert "is a pipe" in faults.check(str(tmp_path / "pipe.jsonl"))["faults"][0]["message"]
    with pytest.raises(UserError, match=r"link\.jsonl is a link to nowhere, which is not there; fix the link"):
        faults.check(str(tmp_path / "link.jsonl"))


def test_spaces_of_a_name_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / " a.jsonl").write_bytes(LINES)
    (tmp_path / "b.jsonl").write_bytes(LINES)
    for typed, message in (
        ("a.jsonl", "there is no a.jsonl; did you mean ' a.jsonl'?"),
        ("b.jsonl ", "there is no 'b.jsonl '; did you mean b.jsonl?"),
    ):
        with pytest.raises(UserError) as refused:
            faults.check(typed)
        assert str(refused.value) == message
    for source, message in (
        ("a.jsonl", "data.source=a.jsonl is not there; did you mean 'data.source= a.jsonl'?"),
        ("b.jsonl ", "data.source='b.jsonl ' is not there; did you mean data.source=b.jsonl?"),
    ):
        with pytest.raises(UserError) as refused:
            gsm8k.parts(GrpoData(source=source), 0)
        assert str(refused.value) == message
