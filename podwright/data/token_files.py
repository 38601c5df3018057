"""Files of token ids: the shards that `podwright data tokenize` writes, and other people's 1-D .npy files and array_record files.

DIR/meta.json        {format, tokenizer, vocab_size, eos_id, dtype, tokens, documents,
                      shards: [{file, tokens, documents, bytes, crc32 (of the tokens), ends_crc32 (of the file of ends)}]}
    00000.npy        1-D, unsigned, one document after another, each with the id that ends it
    00000.ends.npy   where in the shard each document ends
    tokenizer/       the tokenizer as a Hugging Face directory, unless it is `bytes`

Training, its plan and `podwright data check` read them by these functions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import shlex
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from podwright.errors import UserError, counted, listed
from podwright.recipe.corpus import ENDS, META, RECORDS, TEXT
from podwright.recipe.location import Location
from podwright.recipe.paths import absent, require_all_numbered, require_file

Ids = np.ndarray[Any, Any]
FORMAT: Literal["podwright-tokens-1"] = "podwright-tokens-1"
PIECE = 1 << 16
"""tokens of what stands for a document where nothing says where documents end"""
DTYPES = ("uint8", "uint16", "uint32", "int32", "int64")
_HEADER = 1 << 14  # bytes of a .npy file, more than its header has
_LEAST_HEADER = 10  # bytes, of the magic number, the version and the length of the rest
_SCAN = 1 << 22  # tokens at a time
_NOTES = {"readme", "license", "notice"}  # .txt files that are no data
_COPY_AGAIN = "copy the directory again"


class ShardEntry(BaseModel):
    """A shard in meta.json."""

    model_config = ConfigDict(strict=True)
    file: str
    tokens: int
    documents: int
    bytes: int
    crc32: int
    ends_crc32: int | None = None


class TokenMeta(BaseModel):
    """meta.json."""

    model_config = ConfigDict(strict=True)
    format: Literal["podwright-tokens-1"]
    tokenizer: str
    vocab_size: int
    eos_id: int
    dtype: Literal["uint8", "uint16", "uint32", "int32", "int64"]
    shards: list[ShardEntry]


@dataclasses.dataclass(frozen=True)
class Shard:
    place: Location
    tokens: int
    dtype: np.dtype[Any]
    """in the byte order of the file"""
    header: int
    """bytes before the first token"""
    documents: int | None = None
    """None: the file says nothing of documents"""
    crc32: int | None = None
    """of the tokens"""
    ends_crc32: int | None = None
    """of the file that says where documents end; shards of the first versions have none"""

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
        return sum(shard.tokens for shard in self.shards)

    @property
    def documents(self) -> int | None:
        counts = [shard.documents for shard in self.shards]
        if None in counts:
            return None
        return sum(n or 0 for n in counts)

    def unverified(self) -> str:
        """What a check says of shards without a checksum of where documents end; "" of others."""
        if all(shard.documents is None or shard.ends_crc32 is not None for shard in self.shards):
            return ""
        return f"where documents end was not verified by a checksum, which {META} has not; tokenize again to write it"


def look(place: Location) -> TokenFiles:
    """The token files at `place`, a directory or one .npy file. UserError for what sizes and headers show to be wrong."""
    if place.suffix == ".npy":
        return TokenFiles(place, (_array_file(place, place.size(), "give a file with tokens"),))
    if not place.is_dir():
        raise _no_directory(place)
    files = place.files()
    if META in files:
        return _described(place, files)
    shards = [name for name in files if name.endswith(".npy") and not name.endswith(ENDS)]
    if not shards:
        fix = "give a directory that podwright data tokenize wrote or one with .npy files, or name a file of text in it"
        raise UserError(f"{place.typed} holds no token shards", fix, "no-tokens")
    require_all_numbered(place.typed, shards)
    return TokenFiles(place, tuple(_array_file(place / name, files[name]) for name in shards))


def _no_directory(place: Location) -> UserError:
    if place.exists():
        if place.local is not None:
            require_file(place.typed, place.local)
        what = f"{place.typed} is no source of text or tokens"
        return UserError(
            what, f"give a directory of token shards, or a file with the ending .npy, {TEXT} or .jsonl", "no-tokens"
        )
    if place.local is None:
        return UserError(f"there is no {place.typed}", "check the path", "no-such-file")
    return absent(place.typed, place.local)


def records(place: Location) -> list[Location]:
    """The array_record files of a directory; [] where it holds token shards or neither."""
    if place.suffix == ".npy" or not place.is_dir():
        return []
    files = place.files()
    places = [place / name for name in files if name.endswith(RECORDS)]
    if places and place.local is None:
        what = f"{place.typed} holds {RECORDS} files, which are read from this machine only"
        raise UserError(what, "copy the directory here", "not-local")
    if META in files:
        return []
    require_all_numbered(place.typed, (file.name for file in places))
    return places


def unread(place: Location, read: Sequence[Location]) -> list[tuple[str, str]]:
    """What is wrong and what to type where a directory holds data files besides `read`; [] of a single file."""
    if place.suffix == ".npy" or not place.is_dir():
        return []
    names = {file.name for file in read}
    others = []
    for name in place.files():
        is_data = name.endswith((".npy", RECORDS, ".jsonl", TEXT))
        if is_data and not _is_note(name) and not name.endswith(ENDS) and name not in names:
            others.append(name)
    if not others:
        return []
    folder = place.typed.rstrip("/")
    are = "is" if len(others) == 1 else "are"
    what = f"{folder} holds {counted(len(others), 'file')} that {are} not read: {listed(others)}"
    fix = f"type {shlex.quote(f'data.source={folder}/{others[0]}')} to read that, or move it out of {folder}"
    return [(what, fix)]


def _is_note(name: str) -> bool:
    return name.partition(".")[0].lower() in _NOTES


def _described(place: Location, files: dict[str, int]) -> TokenFiles:
    meta = _meta(place / META)
    dtype = np.dtype(meta.dtype).newbyteorder("<")
    shards = []
    for entry in meta.shards:
        here = place / entry.file
        if entry.file not in files:
            raise UserError(
                f"{here.typed} is missing; {META} names it", "copy the whole directory again", "files-missing"
            )
        if files[entry.file] != entry.bytes:
            fault = "truncated" if files[entry.file] < entry.bytes else "another file"
            what = f"{here.typed} is {fault}: it has {files[entry.file]:,} bytes, {META} says {entry.bytes:,}"
            raise UserError(what, _COPY_AGAIN, "damaged-tokens")
        header = entry.bytes - entry.tokens * dtype.itemsize
        if header < _LEAST_HEADER or entry.tokens < 0:
            what = f"{META} says {entry.tokens:,} tokens of {here.typed}, which has {entry.bytes:,} bytes"
            raise UserError(what, _COPY_AGAIN, "damaged-tokens")
        shard = Shard(here, entry.tokens, dtype, header, entry.documents, entry.crc32, entry.ends_crc32)
        if shard.ends.name not in files:
            what = f"{shard.ends.typed} is missing; {entry.file} needs it"
            raise UserError(what, "copy the whole directory again", "files-missing")
        shards.append(shard)
    if not sum(shard.tokens for shard in shards):
        raise UserError(f"{place.typed} holds no tokens", "tokenize files that hold some text", "no-tokens")
    return TokenFiles(place, tuple(shards), meta.tokenizer, meta.vocab_size, meta.eos_id)


def _meta(place: Location) -> TokenMeta:
    try:
        return TokenMeta.model_validate_json(place.read())
    except ValidationError as e:
        first = e.errors()[0]
        where = ".".join(map(str, first["loc"]))
        reason = f"{where} is missing or none of this version" if where else "it is no JSON object"
        raise UserError(
            f"{place.typed} cannot be read: {reason}", "tokenize again, or copy the directory again", "damaged-tokens"
        ) from e


def _array_file(place: Location, size: int, instead: str = "remove it") -> Shard:
    """A 1-D .npy file of `size` bytes by its header; UserError where it is none, or holds nothing (`instead`: what to do then)."""
    head = io.BytesIO(place.read(0, _HEADER))
    try:
        version = np.lib.format.read_magic(head)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(head)
        else:
            shape, _, dtype = np.lib.format.read_array_header_2_0(head)
    except ValueError as e:
        raise UserError(f"{place.typed} is no .npy file", f"write it with numpy.save, or {instead}", "not-npy") from e
    if len(shape) != 1:
        raise UserError(
            f"{place.typed} has the shape {shape}, not one dimension", "save the tokens as a 1-D array", "not-npy"
        )
    if dtype.name not in DTYPES or dtype.str.startswith(">"):
        what = f"{place.typed} holds values of the type {dtype}, not token ids"
        raise UserError(what, f"save it as one of {', '.join(DTYPES)}", "not-npy")
    header = head.tell()
    (tokens,) = shape
    if size != header + tokens * dtype.itemsize:
        present = max(0, size - header) // dtype.itemsize
        what = f"{place.typed} is truncated or another file: its header says {tokens:,} tokens, {present:,} are there"
        raise UserError(what, "copy it again", "damaged-tokens")
    if not tokens:
        raise UserError(f"{place.typed} holds no tokens", instead, "no-tokens")
    return Shard(place, tokens, dtype.newbyteorder("<"), header)


def ends(shard: Shard, eos_id: int | None) -> Ids:
    """Where each document of a shard ends; UserError where the file that says so is damaged."""
    if shard.documents is None:
        if eos_id is None:
            return np.append(np.arange(PIECE, shard.tokens, PIECE), shard.tokens)
        at = [np.flatnonzero(ids == eos_id) + offset + 1 for offset, ids in scan(shard)]
        return np.union1d(np.concatenate(at), [shard.tokens])
    damaged = UserError(
        f"{shard.ends.typed} is not what was written, or does not fit {shard.place.name}", _COPY_AGAIN, "damaged-tokens"
    )
    content = shard.ends.read()
    if shard.ends_crc32 not in (None, zlib.crc32(content)):
        raise damaged
    try:
        written: Ids = np.load(io.BytesIO(content))
    except (ValueError, EOFError) as e:
        raise damaged from e
    if written.ndim != 1 or written.dtype.kind not in "iu":
        raise damaged
    written = written.astype(np.int64)
    last = written[-1] if len(written) else 0
    if len(written) != shard.documents or last != shard.tokens or (np.diff(written, prepend=0) <= 0).any():
        raise damaged
    return written


def scan(shard: Shard) -> Iterator[tuple[int, Ids]]:
    """(offset, tokens) from the first to the last, some millions at a time."""
    offset = 0
    for raw in shard.place.pieces(shard.header, _SCAN * shard.dtype.itemsize):
        ids = np.frombuffer(raw, shard.dtype)
        yield offset, ids
        offset += len(ids)


def read_records(file: Location, vocab_size: int | None) -> list[Ids]:
    """The ids of each record of an array_record file; UserError where a record is no number of ids, or has one outside the vocabulary."""
    dtype = np.dtype(id_dtype(vocab_size or 1)).newbyteorder("<")
    with _opened(file) as reader:
        contents: list[bytes] = reader.read_all()
    records, start = [], 0
    for number, raw in enumerate(contents):
        if len(raw) % dtype.itemsize:
            what = f"{file.typed}: record {number} has {len(raw):,} bytes, which are no {dtype.name} ids"
            raise UserError(what, "write ids of that width", "damaged-tokens")
        ids = np.frombuffer(raw, dtype)
        require_in_vocabulary(ids, vocab_size, file.typed, start)
        records.append(ids)
        start += len(ids)
    return records


def require_record(file: Location) -> None:
    """UserError for an array_record file that cannot be opened."""
    with _opened(file):
        pass


@contextlib.contextmanager
def _opened(file: Location) -> Iterator[Any]:
    from array_record.python.array_record_module import ArrayRecordReader

    try:
        reader = ArrayRecordReader(file.path)
        yield reader
        reader.close()
    except (RuntimeError, ValueError) as e:  # of the library's C++ side
        raise UserError(f"{file.typed} cannot be read as array_record", "copy it again", "damaged-tokens") from e


def id_dtype(vocab_size: int) -> str:
    """Of the ids of a vocabulary, in shards and in records."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def require_fits(theirs: int | None, vocab_size: int | None, whose: str) -> None:
    """UserError where a vocabulary is larger than the model's."""
    if theirs and vocab_size and theirs > vocab_size:
        what = f"{whose} has a vocabulary of {theirs:,}, the model one of {vocab_size:,}"
        raise UserError(what, "train a model with a vocabulary as large", "vocabulary-too-large")


def require_in_vocabulary(ids: Ids, vocab_size: int | None, where: str, start: int) -> None:
    """UserError for the first of the ids, which begin at token `start` of a file, that is outside the vocabulary."""
    if vocab_size is None or not ids.size or (ids.max() < vocab_size and ids.min() >= 0):
        return
    at = int(np.flatnonzero((ids >= vocab_size) | (ids < 0))[0])
    raise out_of_range(where, start + at, int(ids[at]), vocab_size)


def out_of_range(where: str, offset: int, token: int, vocab_size: int) -> UserError:
    what = f"{where}: token {token:,} at offset {offset:,} is outside the vocabulary of {vocab_size:,}"
    return UserError(what, "tokenize with the model's own tokenizer, or copy the file again", "outside-vocabulary")


def nothing_to_predict(source: str, eos_id: int | None = None) -> UserError:
    """Of a source whose documents have one token each, which `data.eos_id` made of it where `eos_id` is given."""
    if eos_id is not None:
        what = f"every document of {source} is only its end token, data.eos_id={eos_id}"
        return UserError(
            what, "type data.eos_id=ID with the id that ends documents in it, or data.eos_id=null", "nothing-to-predict"
        )
    what = f"every document of {source} has a single token, so that there is no next token to predict"
    return UserError(what, "tokenize files that hold some text", "damaged-tokens")
