"""What a source of text or tokens holds, told by names, sizes and headers: the layout that `podwright data tokenize` writes.

DIR/meta.json        {format, tokenizer, vocab_size, eos_id, dtype, tokens, documents,
                      shards: [{file, tokens, documents, bytes, crc32 (of the tokens), ends_crc32 (of the file of ends)}]}
    00000.npy        1-D, unsigned, one document after another, each with the id that ends it
    00000.ends.npy   where in the shard each document ends
    tokenizer/       the tokenizer as a Hugging Face directory, unless it is `bytes`
Other people's 1-D .npy files are taken without meta.json. Both halves read sources through this file; NumPy is not needed.
"""

from __future__ import annotations

import ast
import codecs
import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from podwright.errors import UserError, counted
from podwright.recipe import text_lines
from podwright.recipe.conversions import to_text
from podwright.recipe.location import Location
from podwright.recipe.paths import absent, is_hub_id, require_all_numbered, require_file

FORMAT = "podwright-tokens-1"
RECORDS = ".array_record"
TEXT = (".jsonl", ".txt")
"""a document a line, or one document"""
META = "meta.json"
GENERATED = 20_000
"""documents of `arithmetic` when nobody says how many"""
ENDS = ".ends.npy"
DTYPES = {"<u2": "uint16", "<u4": "uint32", "<i4": "int32", "<i8": "int64", "|u1": "uint8"}
ITEM_BYTES = {"uint8": 1, "uint16": 2, "uint32": 4, "int32": 4, "int64": 8}
_KINDS = {
    "u": "unsigned integers",
    "i": "signed integers",
    "f": "floating-point numbers",
    "b": "booleans",
    "O": "Python objects",
    "U": "text",
}
_LISTED = 10  # files of a command
_NAMED = 3  # files of a message
_NOTES = {"readme", "license", "notice"}  # .txt files that are no data
_MAGIC = b"\x93NUMPY"


@dataclasses.dataclass(frozen=True)
class Shard:
    place: Location
    tokens: int
    dtype: str
    header: int
    """bytes before the first token"""
    documents: int | None = None
    """None: the file says nothing of documents"""
    crc32: int | None = None
    """of the tokens"""
    ends_crc32: int | None = None
    """of the file that says where documents end"""

    @property
    def ends(self) -> Location:
        place = self.place
        cut = len(".npy")
        return Location(place.typed[:-cut] + ENDS, place.path[:-cut] + ENDS, place.fs)


@dataclasses.dataclass(frozen=True)
class TokenFiles:
    place: Location
    shards: tuple[Shard, ...]
    tokenizer: str = ""
    """as it was typed for `podwright data tokenize`; "" for other people's files"""
    vocab_size: int | None = None
    eos_id: int | None = None

    @property
    def tokens(self) -> int:
        return sum(s.tokens for s in self.shards)

    @property
    def documents(self) -> int | None:
        counts = [s.documents for s in self.shards]
        return None if None in counts else sum(n or 0 for n in counts)


def is_text(source: str) -> bool:
    """Whether a source is text, which needs a tokenizer; else it holds token ids."""
    return source == "arithmetic" or source.endswith(TEXT)


def look(place: Location) -> TokenFiles:
    """The token files at `place`, a directory or one .npy file. UserError for what sizes and headers show to be wrong."""
    if place.suffix == ".npy":
        return TokenFiles(place, (array_file(place, place.size(), "give a file with tokens"),))
    if not place.is_dir():
        if place.exists():
            raise _no_source(place)
        if place.local is not None:
            raise _of_hub(place.typed) if is_hub_id(place.typed, place.local) else absent(place.typed, place.local)
        raise UserError(f"there is no {place.typed}", "check the path")
    files = place.files()
    if META in files:
        return _described(place, files)
    shards = [name for name in files if name.endswith(".npy") and not name.endswith(ENDS)]
    if not shards:
        fix = "give a directory that podwright data tokenize wrote, or one with .npy files"
        if some := [f"{place.typed.rstrip('/')}/{name}" for name in files if name.endswith(TEXT)]:
            command = shlex.join(["podwright", "data", "tokenize", *some[:_LISTED]]) + " ..." * (len(some) > _LISTED)
            fix = f"type {command} --tokenizer bytes --out {shlex.quote(place.typed.rstrip('/') + '-tokens')}, and give that directory"
        raise UserError(f"{place.typed} holds no token shards", fix)
    require_all_numbered(place.typed, shards)
    return TokenFiles(place, tuple(array_file(place / name, files[name]) for name in shards))


def _of_hub(name: str) -> UserError:
    what = f"there is no {name}: text and tokens are read from files, and data sets of the Hugging Face hub are not fetched"
    fetched = shlex.join(["hf", "download", "--repo-type", "dataset", name, "--local-dir", name.rpartition("/")[2]])
    return UserError(what, f'type {fetched}, and write its texts as lines such as {{"text": "..."}}')


def _no_source(place: Location) -> UserError:
    """Of a file whose name has none of the endings that are read."""
    if place.local is not None:
        require_file(place.typed, place.local)
    stripped = place.typed.rstrip("/")
    if stripped != place.typed:
        return UserError(f"{place.typed} is a file, not a directory", f"leave out the slash: {shlex.quote(stripped)}")
    head = place.read(0, 1 << 12)
    if fault := text_lines.other_format(place.typed, head):
        return fault
    if place.suffix == ".json" and head.lstrip().startswith(b"["):
        return UserError(f"{place.typed} holds a list, not one object a line", text_lines.unlisted(place.typed))
    if text_lines.is_utf8(head[:-3]) and b"\0" not in head:
        lower = place.suffix.lower()
        suffix = lower if lower in TEXT else ".jsonl" if head.lstrip().startswith(b"{") else ""
        if suffix and place.local is not None:
            new = place.typed.removesuffix(place.suffix) + suffix
            what = f"{place.typed} has none of the endings that sources have: {', '.join(TEXT)}, .npy"
            return UserError(what, f"type {shlex.join(['mv', place.typed, new])}, and use that file")
        what = f"{place.typed} has none of the endings that sources have: {', '.join(TEXT)}, .npy"
        return UserError(what, 'give lines such as {"text": "..."} in a .jsonl file, or one document in a .txt file')
    return UserError(
        f"{place.typed} is no source of text or tokens",
        "give a directory of token shards, a .npy file or a .jsonl file",
    )


def records(place: Location) -> list[Location]:
    """The array_record files of a directory; [] where it holds token shards or neither."""
    if place.suffix in (".npy", *TEXT) or not place.is_dir():
        return []
    files = place.files()
    places = [place / name for name in files if name.endswith(RECORDS)]
    if places and place.local is None:
        raise UserError(
            f"{place.typed} holds {RECORDS} files, which are read from this machine only", "copy the directory here"
        )
    if META in files:
        return []
    require_all_numbered(place.typed, (p.name for p in places))
    return places


def unread(place: Location, read: Sequence[Location]) -> list[str]:
    """Names of data files in a directory of which only the files `read` are read; [] of a single file."""
    if place.suffix in (".npy", *TEXT) or not place.is_dir():
        return []
    names = {file.name for file in read}
    return [
        name
        for name in place.files()
        if name.endswith((".npy", RECORDS, *TEXT))
        and not name.endswith(ENDS)
        and name not in names
        and name.partition(".")[0].lower() not in _NOTES
    ]


def not_read(place: Location, names: Sequence[str]) -> tuple[str, str]:
    """What a directory holds besides the files that are read, and what to type instead."""
    listed = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    folder = place.typed.rstrip("/")
    what = f"{folder} holds {counted(len(names), 'file')} that {'is' if len(names) == 1 else 'are'} not read: {listed}"
    return what, f"type {shlex.quote(f'data.source={folder}/{names[0]}')} to read that, or move it out of {folder}"


def empty_texts(number: int, total: int, about: str = "") -> tuple[str, str]:
    """What is wrong with a file in which so many of all texts are empty (`about`: where that is an estimate), and what to do."""
    return f"{about}{number:,} of {total:,} texts are empty", "remove these lines"


def id_dtype(vocab_size: int) -> str:
    """Of the ids of a vocabulary, in shards and in records."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def lines(place: Location) -> Iterator[bytes]:
    """With their ends; UserError where the first bytes show a file that holds no UTF-8 text."""
    if place.local is not None and place.local.exists():
        require_file(place.typed, place.local)
    return text_lines.of_text(place.typed, place.lines())


def not_utf8(place: Location, where: str, line: bytes, others: Sequence[int] = ()) -> UserError:
    """Of a file whose `line` at `where` is not UTF-8, nor are those with the numbers `others`."""
    sample = place.read(0, text_lines.SAMPLE_BYTES) + b"\n" + line
    return text_lines.not_utf8(place.typed, where, sample, others)


def require_format(place: Location, head: bytes) -> None:
    """UserError where the first bytes of a file show that it holds no UTF-8 text."""
    if fault := text_lines.other_format(place.typed, head):
        raise fault


def decoded(place: Location, content: bytes, at: int, size: int) -> str:
    """A piece of a .txt file of `size` bytes that begins at byte `at`, without a byte order mark and the parts of characters at its
    ends; UserError where it is no text in UTF-8."""
    if not at:
        require_format(place, content[: text_lines.SAMPLE_BYTES])
    cut = next((n for n, byte in enumerate(content[:4]) if byte & 0xC0 != 0x80), 0) if at else 0
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(content[cut:], final=at + len(content) == size)
    except UnicodeDecodeError as e:
        begin = cut + e.start
        where = f" at byte {at + begin:,}" if at else f":{content.count(bytes((10,)), 0, begin) + 1}"
        raise not_utf8(place, f"{place.typed}{where}", content) from e
    if (zero := content.find(b"\0")) >= 0:
        what = f"{place.typed} is not text: byte {at + zero:,} is 0, as in a binary file"
        raise UserError(what, "give a file of text, as UTF-8")
    return text if at else text.removeprefix("\ufeff")


def text_of(place: Location, where: str, line: bytes) -> str:
    """The text of a line that a .jsonl file holds at `where`; UserError for whatever is wrong with it."""
    try:
        row = text_lines.parse_json(line)
    except UnicodeDecodeError as e:
        raise not_utf8(place, where, line) from e
    except text_lines.JsonFault as e:
        raise UserError(f"{where} is not JSON ({e})", "fix that line: one object a line") from e
    if not isinstance(row, dict) or "text" not in row:
        fix = text_lines.rename("text", row) or to_text(place.typed, row) or 'write {"text": "..."}'
        if isinstance(row, list) and row and isinstance(row[0], dict):
            fix = text_lines.unlisted(place.typed)
        raise UserError(f"{where} has no 'text'; {text_lines.keys_of(row)}", fix)
    return text_lines.require_text(where, "text", row["text"])


def fits(theirs: int | None, vocab_size: int | None, whose: str) -> None:
    if theirs and vocab_size and theirs > vocab_size:
        raise UserError(
            f"{whose} has a vocabulary of {theirs:,}, the model one of {vocab_size:,}",
            "train a model with a vocabulary as large",
        )


def out_of_range(where: str, offset: int, token: int, vocab_size: int) -> UserError:
    return UserError(
        f"{where}: token {token:,} at offset {offset:,} is outside the vocabulary of {vocab_size:,}",
        "tokenize with the model's own tokenizer, or copy the file again",
    )


def _described(place: Location, files: dict[str, int]) -> TokenFiles:
    meta = _meta(place / META)
    dtype, shards = meta["dtype"], []
    for entry in meta["shards"]:
        name, size = entry["file"], entry["bytes"]
        here = place / name
        if name not in files:
            raise UserError(f"{here.typed} is missing; {META} names it", "copy the whole directory again")
        if files[name] != size:
            fault = "truncated" if files[name] < size else "another file"
            raise UserError(
                f"{here.typed} is {fault}: it has {files[name]:,} bytes, {META} says {size:,}",
                "copy the directory again",
            )
        header = size - entry["tokens"] * ITEM_BYTES[dtype]
        if header < len(_MAGIC) or entry["tokens"] < 0:
            raise UserError(
                f"{META} says {entry['tokens']:,} tokens of {here.typed}, which has {size:,} bytes",
                "copy the directory again",
            )
        shard = Shard(here, entry["tokens"], dtype, header, entry["documents"], entry["crc32"], entry.get("ends_crc32"))
        if shard.ends.name not in files:
            raise UserError(f"{shard.ends.typed} is missing; {name} needs it", "copy the whole directory again")
        shards.append(shard)
    if not sum(s.tokens for s in shards):
        raise UserError(f"{place.typed} holds no tokens", "tokenize files that hold some text")
    return TokenFiles(place, tuple(shards), meta["tokenizer"], meta["vocab_size"], meta["eos_id"])


def _meta(place: Location) -> dict[str, Any]:
    try:
        meta: dict[str, Any] = text_lines.parse_json(place.read())
        if not isinstance(meta, dict):
            raise TypeError("format")
        if meta["format"] != FORMAT:
            raise UserError(
                f"{place.typed} says format {meta['format']!r}, known is {FORMAT!r}",
                "tokenize again with this Podwright",
            )
        if meta["dtype"] not in ITEM_BYTES:
            raise UserError(
                f"{place.typed} says dtype {meta['dtype']!r}, known are {', '.join(ITEM_BYTES)}", "tokenize again"
            )
        for key, kind in (("tokenizer", str), ("vocab_size", int), ("eos_id", int), ("shards", list)):
            if not isinstance(meta[key], kind):
                raise TypeError(key)
        for entry in meta["shards"]:
            _ = entry["file"] + "", entry["tokens"] + entry["documents"] + entry["bytes"] + entry["crc32"]
            _ = entry.get("ends_crc32", 0) + 0
    except (ValueError, TypeError, LookupError) as e:
        key = str(e.args[0]) if e.args else ""
        if isinstance(e, text_lines.JsonFault):
            reason = f"it is not JSON ({e})"
        elif isinstance(e, UnicodeDecodeError):
            reason = "it is not UTF-8"
        else:
            reason = f"{key if key.isidentifier() else 'what it says of shards'} is missing or of another type"
        raise UserError(f"{place.typed} cannot be read: {reason}", "tokenize again, or copy the directory again") from e
    return meta


def _numbers(kind: Any) -> str:
    """What an array holds, by the code of its header: `>u2` is big-endian 16-bit unsigned integers."""
    if not isinstance(kind, str) or len(kind) < 2 or kind[1] not in _KINDS:
        return "values that are no numbers"
    bits = f"{8 * int(kind[2:])}-bit " if kind[1] in "uif" and kind[2:].isdigit() else ""
    return ("big-endian " if kind[0] == ">" else "") + bits + _KINDS[kind[1]]


def array_file(place: Location, size: int, instead: str = "remove it") -> Shard:
    """A 1-D .npy file of `size` bytes by its header; UserError where it is none, or holds nothing (`instead`: what to do then)."""
    head = place.read(0, 10)
    if not head:
        raise UserError(f"{place.typed} is empty", f"copy it again, or {instead}")
    if head[:6] != _MAGIC or len(head) < 10:
        raise UserError(f"{place.typed} is no .npy file", "write it with numpy.save")
    wide = head[6] >= 2  # version 1 has two bytes for the length, later ones four
    start = 12 if wide else 10
    length = int.from_bytes(place.read(8, start), "little")
    try:
        described = ast.literal_eval(place.read(start, start + length).decode("latin1"))
        shape, kind = described["shape"], described["descr"]
        dims = [int(n) for n in shape]
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as e:
        raise UserError(
            f"{place.typed} has a header that cannot be read", "copy it again, or write it with numpy.save"
        ) from e
    if len(dims) != 1:
        raise UserError(
            f"{place.typed} has the shape {tuple(dims)}, not one dimension", "save the tokens as a 1-D array"
        )
    if not isinstance(kind, str) or kind not in DTYPES:
        raise UserError(
            f"{place.typed} holds {_numbers(kind)}, not token ids", f"save it as one of {', '.join(DTYPES.values())}"
        )
    dtype, header = DTYPES[kind], start + length
    if size != header + dims[0] * ITEM_BYTES[dtype]:
        there = max(0, size - header) // ITEM_BYTES[dtype]
        raise UserError(
            f"{place.typed} is truncated: its header says {dims[0]:,} tokens, {there:,} are there"
            if there < dims[0]
            else f"{place.typed} has {size:,} bytes, more than its header says",
            "copy it again",
        )
    if not dims[0]:
        raise UserError(f"{place.typed} holds no tokens", instead)
    return Shard(place, dims[0], dtype, header)
