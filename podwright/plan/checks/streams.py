"""Whether a source of text or tokens is there and whole, how much it holds, and how long that lasts: without NumPy, reading little.

Tokens of shards are counted exactly, by what their headers say; those of a large text are estimated from its ends and pieces between.
"""

from __future__ import annotations

import array
import dataclasses
import functools
import json
import shlex
from pathlib import Path

from podwright.errors import UserError, counted, expanded
from podwright.plan.checks import patience, text_sample
from podwright.plan.findings import Finding, Level, of_error
from podwright.recipe import arithmetic_capacity, corpus, document_ends, text_lines
from podwright.recipe.arithmetic_capacity import CORPUS_NUMBER, CORPUS_OPERATIONS
from podwright.recipe.corpus import Shard, TokenFiles
from podwright.recipe.location import Location, Unreachable
from podwright.recipe.paths import no_tokenizer, require_file_or_directory

_LOOKED_AT = 1 << 23, 1 << 18  # tokens, of this machine's files and of a store's: a fraction of a second
_ENDS_BYTES = 1 << 23, 1 << 18  # of the files that say where documents end, likewise
_BYTES_PER_TOKEN = 4.0
"""of English text with a vocabulary of 50,000 or more"""
_BYTE_VOCABULARY = 259
_SAMPLED = "estimated from"  # begins to say what was read of a text
_PATIENCE_S = 10.0
_GENERATED_BYTES = 120
"""of a generated problem, in the mean"""
_DOUBT = 0.5  # share that an estimate may be off by, as `_ESTIMATE_WITHIN` takes it
_ESTIMATE_WITHIN = 2  # times what is there: an estimate is not wrong by more


@dataclasses.dataclass(frozen=True)
class Stock:
    tokens: int
    documents: int | None
    how_counted: str
    """how the tokens were counted; "" when exactly"""
    vocab_size: int | None = None
    looked_at: int | None = None
    """so many ids were held against the vocabulary; None: all, or it is not known"""
    doubt: float = 0.0
    """by what share an estimate may be off"""
    unread: tuple[str, ...] = ()
    """names of data files beside those that are read"""
    num_empty: int = 0
    """of `documents`, texts that are empty"""


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
    sequence_multiple: int = 1,
    max_positions: int | None = None,
    eos_id: int | None = None,
    cwd: Path = Path(),
) -> list[Finding]:
    """Problems of the data of a pretraining recipe, or how much it is. `num_held` rows are held out of it.

    `vocab_size` is the model's, where it is known; `num_epochs` 0: the data is repeated without end.
    Documents that begin at multiples of `multiple_of` tokens are reckoned to take half of one more each. A sequence has a multiple of
    `sequence_multiple` tokens, and no more than `max_positions`, which is None where the model is not known.
    """
    try:
        stock = _stock(source, tokenizer, num_documents, vocab_size, eos_id, cwd)
    except Unreachable as e:  # the machine that trains may well reach it
        return [Finding("data", "inconclusive", f"how long the data lasts is not known: {e.what}", e.fix)]
    except UserError as e:
        return [of_error("data", e)]
    if stock.doubt > _DOUBT:
        what = f"how long {source} lasts is not known: its lines differ too much, or are too long, for an estimate from a part of them"
        fix = f"type podwright data count {shlex.quote(source)} --tokenizer {shlex.quote(tokenizer)}"
        return [Finding("data", "inconclusive", what, fix)]
    held = num_held * sequence_length + 1 if num_held else 0
    room = stock.tokens + (stock.documents or 0) * (multiple_of - 1) // 2
    rows = -(-(room - held) // sequence_length)
    about = f"{'about ' if stock.how_counted else ''}{stock.tokens:,} tokens"
    shorter = _shorter(
        source, stock, num_documents, sequence_length, batch_size, num_held, sequence_multiple, max_positions
    )

    def level(wanted: int, there: int) -> Level:
        return "warning" if stock.how_counted and wanted <= _ESTIMATE_WITHIN * there else "error"

    if stock.tokens <= sequence_length:
        wrong = f"sequence_length={sequence_length:,} is more than all {about} of {source}"
        return [Finding("data", level(sequence_length, stock.tokens), wrong, shorter)]
    all_rows, num_batches = -(-stock.tokens // sequence_length), num_held // batch_size
    if 2 * held > stock.tokens:
        wrong = f"{counted(num_held, 'row')} of {sequence_length:,} tokens held out of {source} are most of its {about}"
        fix = _smaller(all_rows, batch_size, num_batches) or shorter
        return [Finding("data", level(2 * held, stock.tokens), wrong, fix)]
    if rows < batch_size:
        wrong = (
            f"batch_size={batch_size} is more than the {counted(rows, 'row')} of {sequence_length:,} tokens in {source}"
        )
        fix = _smaller(all_rows, batch_size, num_batches) or shorter
        return [Finding("data", level(batch_size, rows), wrong, fix)]
    if stock.documents == 1 and held:
        about += f", the last {held:,} of them held out,"
    findings = _lasting(stock, about, source, rows, batch_size, sequence_length, max_steps, num_epochs)
    if stock.num_empty and stock.documents:
        rough = "about " if stock.how_counted.startswith(_SAMPLED) else ""
        what, fix = corpus.empty_texts(stock.num_empty, stock.documents, rough)
        findings.append(Finding("data", "warning", f"{source}: {what}", fix))
    if stock.unread:
        findings.append(Finding("data", "warning", *corpus.not_read(Location.of(source, cwd), stock.unread)))
    if source == "arithmetic" and (why := _shortage(num_documents)[0]):
        findings.append(Finding("data", "inconclusive", why, _fewer(num_documents)))
    return findings


def largest_batch(rows: int, num_batches: int) -> int:
    """That leaves as many rows to train on as a step takes, and at least as many as are held out, so many batches."""
    return min((rows - 1) // (num_batches + 1), (rows - 1) // (2 * num_batches)) if num_batches else rows


def num_rows(
    source: str,
    tokenizer: str,
    num_documents: int,
    vocab_size: int | None,
    sequence_length: int,
    eos_id: int | None,
    cwd: Path,
) -> int | None:
    """None where they cannot be counted here, not even about."""
    try:
        stock = _stock(source, tokenizer, num_documents, vocab_size, eos_id, cwd)
    except UserError:
        return None
    return None if stock.doubt > _DOUBT else -(-stock.tokens // sequence_length)


def _smaller(rows: int, batch_size: int, num_batches: int) -> str:
    """What to type where a batch, and so many of them that are held out, are more than there is; "" where no batch will do."""
    fewer = min((rows - 1) // batch_size - 1, (rows - 1) // (2 * batch_size))
    if num_batches > 1 and fewer >= 1:
        return f"type evaluation.num_batches={fewer} or less, or give more data"
    if most := largest_batch(rows, num_batches):
        return f"type batch_size={most} or less, or give more data"
    return ""


def _shorter(
    source: str,
    stock: Stock,
    num_documents: int,
    sequence_length: int,
    batch_size: int,
    num_held: int,
    multiple: int,
    max_positions: int | None,
) -> str:
    """What to type where no batch is small enough: more made-up problems, or a sequence with which one batch can be held out."""
    enough = max(2 * (num_held * sequence_length + 1), (num_held + batch_size) * sequence_length)
    if source == "arithmetic":
        more = -(-enough * (stock.documents or 1) // stock.tokens)
        if not _shortage(more)[0]:
            return f"type data.num_documents={more} or more"
    size = (stock.tokens // 2 - 1) // batch_size
    size = min(size, max_positions or size) // multiple * multiple
    give = f"give at least {enough:,} tokens"
    return f"type sequence_length={size} evaluation.num_batches=1, or {give}" if size > 0 else give


def take(
    source: str,
    tokenizer: str = "",
    num_documents: int = 0,
    vocab_size: int | None = None,
    eos_id: int | None = None,
    cwd: Path = Path(),
) -> Stock:
    """How much there is; UserError for what can be seen to be wrong with it."""
    if source != "arithmetic" and (local := Location.of(source, cwd).local) is not None and local.exists():
        require_file_or_directory(f"data.source={source}", local)
    if corpus.is_text(source):
        theirs = _vocabulary(source, tokenizer, cwd)
        corpus.fits(theirs, vocab_size, f"the tokenizer {tokenizer}")
        stock = (
            _generated(tokenizer, num_documents)
            if source == "arithmetic"
            else _text(Location.of(source, cwd), tokenizer)
        )
        return dataclasses.replace(stock, vocab_size=theirs)
    place = Location.of(source, cwd)
    if records := corpus.records(place):
        item = corpus.ITEM_BYTES[corpus.id_dtype(vocab_size or 1)]
        return Stock(
            sum(r.size() for r in records) // item,
            None,
            "by the size of its files, which may be packed closer or wider",
            unread=tuple(corpus.unread(place, records)),
        )
    files = corpus.look(place)
    unread = tuple(corpus.unread(place, [shard.place for shard in files.shards]))
    corpus.fits(files.vocab_size, vocab_size, source)
    _require_ends(files)
    if known := vocab_size or files.vocab_size:
        most = max(1, _LOOKED_AT[files.place.local is None] // len(files.shards))
        heads = [_ids(shard, known, most) for shard in files.shards]
        seen = sum(map(len, heads))
        if eos_id is not None and not files.documents and seen == files.tokens == sum(h.count(eos_id) for h in heads):
            raise document_ends.nothing_to_predict(source, eos_id)
        if seen < files.tokens:
            return Stock(files.tokens, files.documents, "", files.vocab_size, seen, unread=unread)
    return Stock(files.tokens, files.documents, "", files.vocab_size, unread=unread)


def _stock(
    source: str, tokenizer: str, num_documents: int, vocab_size: int | None, eos_id: int | None, cwd: Path
) -> Stock:
    """`take`; of a store, which is waited for a while, once a process."""
    if "://" not in source:
        return take(source, tokenizer, num_documents, vocab_size, eos_id, cwd)
    if patience.left_out("data"):
        raise Unreachable(f"{source} was not looked at: {patience.LEFT_OUT}", "leave --only out, or add data to it")
    answer = _of_store(source, tokenizer, num_documents, vocab_size, eos_id, cwd)
    if isinstance(answer, UserError):
        raise answer
    return answer


@functools.lru_cache(maxsize=16)  # a plan needs the answer several times
def _of_store(
    source: str, tokenizer: str, num_documents: int, vocab_size: int | None, eos_id: int | None, cwd: Path
) -> Stock | UserError:
    """The client of a store that does not answer tries again for minutes, which no plan waits for."""
    try:
        Location.require_client(source)
        if why := patience.no_connection(source):
            return Unreachable(
                f"{source} cannot be reached: {why}", "check the network, or copy the data to this machine"
            )
        stock = patience.soon(_PATIENCE_S, lambda: take(source, tokenizer, num_documents, vocab_size, eos_id, cwd))
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
    if stock.how_counted.startswith(_SAMPLED):
        message += f"; the rest was not read, `podwright data check {shlex.quote(source)}` reads all of it"
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
    why, certain = _shortage(num_documents)
    if certain:
        raise UserError(why, _fewer(num_documents))
    each = _GENERATED_BYTES + 2 if tokenizer == "bytes" else _GENERATED_BYTES / _BYTES_PER_TOKEN + 1
    return Stock(round(number * each), number, "estimated by the mean length of a problem")


def _shortage(num_documents: int) -> tuple[str, bool]:
    return arithmetic_capacity.shortage(num_documents or corpus.GENERATED, 1, CORPUS_OPERATIONS, CORPUS_NUMBER)


def _fewer(num_documents: int) -> str:
    fewer, _ = arithmetic_capacity.largest(num_documents, 1, CORPUS_OPERATIONS, CORPUS_NUMBER)
    return f"type data.num_documents={fewer} or less"


def _text(place: Location, tokenizer: str) -> Stock:
    sample = text_sample.look(place)
    read = f"{_SAMPLED} {sample.read_bytes / 1e6:.1f} MB at its ends and between" if not sample.complete else ""
    if tokenizer == "bytes":
        tokens = sample.text_bytes + 2 * sample.documents
        return Stock(tokens, sample.documents, read, doubt=sample.doubt, num_empty=sample.num_empty)
    taken = f"taking {_BYTES_PER_TOKEN:.0f} bytes for a token; podwright data count counts them"
    how = ", ".join(filter(None, (read, taken)))
    tokens = round(sample.text_bytes / _BYTES_PER_TOKEN) + sample.documents
    return Stock(tokens, sample.documents, how, doubt=sample.doubt, num_empty=sample.num_empty)


def _vocabulary(source: str, tokenizer: str, cwd: Path) -> int:
    if not tokenizer:
        raise UserError(
            f"{source} is text, and there is no tokenizer for it",
            "type data.tokenizer=bytes, or a Hugging Face directory",
        )
    if tokenizer == "bytes":
        return _BYTE_VOCABULARY
    path = cwd / expanded(tokenizer)
    file = path if path.name == "tokenizer.json" else path / "tokenizer.json"
    if not file.is_file():
        raise no_tokenizer(tokenizer, path)
    try:
        content = file.read_bytes()
        if fault := text_lines.pointer(str(file), content):
            raise fault
        described = json.loads(content)
        words = described["model"]["vocab"]
        ids = list(words.values()) if isinstance(words, dict) else range(len(words))
        return int(max([*ids, *(added["id"] for added in described["added_tokens"])])) + 1
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is no tokenizer in JSON"
        raise UserError(f"{file} cannot be read ({reason})", "fetch the tokenizer again") from e


def _require_ends(files: TokenFiles) -> None:
    """UserError for what training refuses of where documents end, in as many shards as are read in a moment."""
    if files.tokens == files.documents:
        raise document_ends.nothing_to_predict(files.place.typed)
    left = _ENDS_BYTES[files.place.local is None]
    for shard in files.shards:
        left -= (shard.documents or 0) * corpus.ITEM_BYTES["int64"]
        if shard.documents and left >= 0:
            document_ends.require(shard)


def _ids(shard: Shard, vocab_size: int, most: int) -> array.array[int]:
    """The first `most` ids of a shard, held against the vocabulary."""
    item = corpus.ITEM_BYTES[shard.dtype]
    ids = array.array(
        document_ends.CODES[shard.dtype], shard.place.read(shard.header, shard.header + min(most, shard.tokens) * item)
    )
    if max(ids) >= vocab_size or (shard.dtype.startswith("int") and min(ids) < 0):
        at = next(i for i, token in enumerate(ids) if not 0 <= token < vocab_size)
        raise corpus.out_of_range(shard.place.typed, at, ids[at], vocab_size)
    return ids
