"""Whether a source of text or tokens is there and whole, how much it holds, and how long that lasts: without NumPy, reading little.

Tokens of shards are counted exactly, by what their headers say; those of text are estimated from its first lines.
"""

from __future__ import annotations

import array
import dataclasses
import functools
import json
from pathlib import Path

from podwright.errors import UserError, counted
from podwright.plan.checks import patience
from podwright.plan.findings import Finding, Level
from podwright.recipe import corpus
from podwright.recipe.corpus import Shard
from podwright.recipe.location import Location, Unreachable
from podwright.recipe.paths import require_file_or_directory
from podwright.recipe.sampled_files import sampled_text

_SAMPLE = 4 << 20  # bytes of a text
_LOOKED_AT = 1 << 23, 1 << 18  # tokens, of this machine's files and of a store's: a fraction of a second
_CODES = {"uint8": "B", "uint16": "H", "uint32": "I", "int32": "i", "int64": "q"}
_BYTES_PER_TOKEN = 4.0
"""of English text with a vocabulary of 50,000 or more"""
_BYTE_VOCABULARY = 259
_PATIENCE_S = 10.0
_GENERATED_BYTES = 120
_ESTIMATE_WITHIN = 2  # times what is there: an estimate is not wrong by more
"""of a made-up problem, in the mean"""


@dataclasses.dataclass(frozen=True)
class Stock:
    tokens: int
    documents: int | None
    how_counted: str
    """how the tokens were counted; "" when exactly"""
    vocab_size: int | None = None
    looked_at: int | None = None
    """so many ids were held against the vocabulary; None: all, or it is not known"""


def check(
    source: str,
    tokenizer: str = "",
    num_documents: int = 0,
    *,
    vocab_size: int | None,
    sequence_length: int,
    batch_size: int,
    max_steps: int,
    num_epochs: int = 1,
    num_held: int = 0,
    multiple_of: int = 1,
    cwd: Path = Path(),
) -> list[Finding]:
    """Problems of the data of a pretraining recipe, or how much it is. `num_held` rows are held out of it.

    `vocab_size` is the model's, where it is known; `num_epochs` 0: the data is repeated without end.
    Documents that begin at multiples of `multiple_of` tokens are reckoned to take half of one more each.
    """
    try:
        stock = _stock(source, tokenizer, num_documents, vocab_size, cwd)
    except Unreachable as e:  # the machine that trains may well reach it
        return [Finding("data", "inconclusive", f"how long the data lasts is not known: {e.what}", e.fix)]
    except UserError as e:
        return [Finding("data", "error", e.what, e.fix)]
    held = num_held * sequence_length + 1 if num_held else 0
    room = stock.tokens + (stock.documents or 0) * (multiple_of - 1) // 2
    rows = -(-(room - held) // sequence_length)
    about = f"{'about ' if stock.how_counted else ''}{stock.tokens:,} tokens"

    def level(wanted: int, there: int) -> Level:
        return "warning" if stock.how_counted and wanted <= _ESTIMATE_WITHIN * there else "error"

    if stock.tokens <= sequence_length:
        most = max(1, stock.tokens // 10)
        wrong = f"sequence_length={sequence_length:,} is more than all {about} of {source}"
        fix = f"type sequence_length={most} or less, or give more data"
        return [Finding("data", level(sequence_length, stock.tokens), wrong, fix)]
    if 2 * held > stock.tokens:
        wrong = f"{counted(num_held, 'row')} of {sequence_length:,} tokens held out of {source} are most of its {about}"
        fewer = "evaluation.num_batches=1, or a smaller batch_size" if num_held > batch_size else "a smaller batch_size"
        return [Finding("data", level(2 * held, stock.tokens), wrong, f"type {fewer}, or give more data")]
    if rows < batch_size:
        wrong = (
            f"batch_size={batch_size} is more than the {counted(rows, 'row')} of {sequence_length:,} tokens in {source}"
        )
        fix = f"type batch_size={max(1, rows)} or less, or give more data"
        return [Finding("data", level(batch_size, rows), wrong, fix)]
    return _lasting(stock, about, source, rows, batch_size, sequence_length, max_steps, num_epochs)


def take(
    source: str, tokenizer: str = "", num_documents: int = 0, vocab_size: int | None = None, cwd: Path = Path()
) -> Stock:
    """How much there is; UserError for what can be seen to be wrong with it."""
    if source != "arithmetic" and (local := Location.of(source, cwd).local) is not None and local.exists():
        require_file_or_directory(f"data.source={source}", local)
    if source == "arithmetic" or source.endswith(corpus.TEXT):
        theirs = _vocabulary(source, tokenizer, cwd)
        corpus.fits(theirs, vocab_size, f"the tokenizer {tokenizer}")
        stock = (
            _generated(tokenizer, num_documents)
            if source == "arithmetic"
            else _text(Location.of(source, cwd), tokenizer)
        )
        return dataclasses.replace(stock, vocab_size=theirs)
    if records := corpus.records(Location.of(source, cwd)):
        item = corpus.ITEM_BYTES[corpus.id_dtype(vocab_size or 1)]
        return Stock(
            sum(r.size() for r in records) // item,
            None,
            "by the size of its files, which may be packed closer or wider",
        )
    files = corpus.look(Location.of(source, cwd))
    corpus.fits(files.vocab_size, vocab_size, source)
    known = vocab_size or files.vocab_size
    if known:
        most = max(1, _LOOKED_AT[files.place.local is None] // len(files.shards))
        seen = sum(_ids(shard, known, most) for shard in files.shards)
        if seen < files.tokens:
            return Stock(files.tokens, files.documents, "", files.vocab_size, seen)
    return Stock(files.tokens, files.documents, "", files.vocab_size)


def _stock(source: str, tokenizer: str, num_documents: int, vocab_size: int | None, cwd: Path) -> Stock:
    """`take`; of a store, which is waited for a while, once a process."""
    if "://" not in source:
        return take(source, tokenizer, num_documents, vocab_size, cwd)
    if patience.left_out("data"):
        raise Unreachable(f"{source} was not looked at: {patience.LEFT_OUT}", "leave --only out, or add data to it")
    answer = _of_store(source, tokenizer, num_documents, vocab_size, cwd)
    if isinstance(answer, UserError):
        raise answer
    return answer


@functools.lru_cache(maxsize=16)  # a plan needs the answer several times
def _of_store(source: str, tokenizer: str, num_documents: int, vocab_size: int | None, cwd: Path) -> Stock | UserError:
    """The client of a store that does not answer tries again for minutes, which no plan waits for."""
    try:
        Location.require_client(source)
        if why := patience.no_connection(source):
            return Unreachable(
                f"{source} cannot be reached: {why}", "check the network, or copy the data to this machine"
            )
        stock = patience.soon(_PATIENCE_S, lambda: take(source, tokenizer, num_documents, vocab_size, cwd))
    except UserError as e:
        return e
    return stock or Unreachable(
        f"{source} has not answered within {_PATIENCE_S:.0f} s", "check the path, your credentials and the network"
    )


def _lasting(
    stock: Stock,
    about: str,
    source: str,
    rows: int,
    batch_size: int,
    sequence_length: int,
    max_steps: int,
    num_epochs: int,
) -> list[Finding]:
    documents = f" in {counted(stock.documents, 'document')}" if stock.documents else ""
    how = f" ({stock.how_counted})" if stock.how_counted else ""
    steps, seen = rows // batch_size, max_steps * batch_size / rows
    message = (
        f"{source} holds {about}{documents}{how}: one epoch is {counted(steps, 'step')} of {batch_size * sequence_length:,} tokens; "
        f"training.max_steps={max_steps:,} is {seen:.2g} epoch{'s' * (f'{seen:.2g}' != '1')}"
    )
    if stock.looked_at is not None:
        message += (
            f"; of the ids the first {stock.looked_at:,} were looked at, `podwright data check {source}` looks at all"
        )
    findings = [Finding("data", "info", message)]
    lasts = num_epochs * rows // batch_size
    if num_epochs and lasts < max_steps:
        epochs = counted(num_epochs, "epoch")
        wrong = f"{source} is used up after {'about ' if stock.how_counted else ''}{lasts:,} of {counted(max_steps, 'step')}, {epochs}"
        need = -(-max_steps * batch_size // rows)
        findings.append(
            Finding(
                "data",
                "warning",
                wrong,
                f"type training.max_steps={lasts} or data.num_epochs={need}, or give more data",
            )
        )
    return findings


def _generated(tokenizer: str, num_documents: int) -> Stock:
    number = num_documents or corpus.GENERATED
    each = _GENERATED_BYTES + 2 if tokenizer == "bytes" else _GENERATED_BYTES / _BYTES_PER_TOKEN + 1
    return Stock(round(number * each), number, "estimated by the mean length of a problem")


def _text(place: Location, tokenizer: str) -> Stock:
    size = place.size()
    if not size:
        raise UserError(f"{place.typed} is empty", 'give a file with lines such as {"text": "..."}')
    read = lines = text = 0
    for number, line in enumerate(corpus.lines(place), 1):
        if read >= _SAMPLE:
            break
        read += len(line)
        if place.suffix == ".txt":
            text += len(line)
        elif line.strip():
            lines, text = lines + 1, text + len(corpus.text_of(place, f"{place.typed}:{number}", line).encode())
    if read < size and place.local is not None and place.suffix != ".txt":
        for where, line in sampled_text(place.local)[0]:  # its end, and pieces between
            corpus.text_of(place, where, line)
    lines = lines or int(place.suffix == ".txt")
    if not lines:
        raise UserError(f"{place.typed} has no documents", 'give a file with lines such as {"text": "..."}')
    all_, part = size / read, "" if read >= size else f"estimated from its first {read / 1e6:.1f} MB"
    documents = 1 if place.suffix == ".txt" else round(lines * all_)
    if tokenizer == "bytes":
        return Stock(round(text * all_) + 2 * documents, documents, part)
    taken = f"taking {_BYTES_PER_TOKEN:.0f} bytes for a token; podwright data count counts them"
    return Stock(round(text * all_ / _BYTES_PER_TOKEN) + documents, documents, ", ".join(filter(None, (part, taken))))


def _vocabulary(source: str, tokenizer: str, cwd: Path) -> int:
    if not tokenizer:
        raise UserError(
            f"{source} is text, and there is no tokenizer for it",
            "type data.tokenizer=bytes, or a Hugging Face directory",
        )
    if tokenizer == "bytes":
        return _BYTE_VOCABULARY
    path = cwd / Path(tokenizer).expanduser()
    file = path if path.name == "tokenizer.json" else path / "tokenizer.json"
    if not file.is_file():
        raise UserError(
            f"{tokenizer} has no tokenizer.json",
            "type data.tokenizer=bytes, or a Hugging Face directory with a fast tokenizer",
        )
    try:
        described = json.loads(file.read_text())
        words = described["model"]["vocab"]
        ids = list(words.values()) if isinstance(words, dict) else range(len(words))
        return int(max([*ids, *(added["id"] for added in described["added_tokens"])])) + 1
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is no tokenizer in JSON"
        raise UserError(f"{file} cannot be read ({reason})", "fetch the tokenizer again") from e


def _ids(shard: Shard, vocab_size: int, most: int) -> int:
    """Hold the first `most` ids of a shard against the vocabulary; how many there were."""
    item = corpus.ITEM_BYTES[shard.dtype]
    ids = array.array(
        _CODES[shard.dtype], shard.place.read(shard.header, shard.header + min(most, shard.tokens) * item)
    )
    if max(ids) >= vocab_size or (shard.dtype.startswith("int") and min(ids) < 0):
        at = next(i for i, token in enumerate(ids) if not 0 <= token < vocab_size)
        raise corpus.out_of_range(shard.place.typed, at, ids[at], vocab_size)
    return len(ids)
