"""Text to token ids and back, and questions as chat prompts; read from and written to Hugging Face tokenizer directories.

A tokenizer is its files: loading keeps them as they are and saving writes them out again. Rendering is `chat.py`.
Documents to train a language model on are ids of plain text between the tokenizer's own begin and end.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from podwright.data import added_tokens, chat
from podwright.errors import UserError, message_of
from podwright.recipe import hf_config, text_lines

END_OF_TEXT, START_OF_TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (END_OF_TEXT, START_OF_TURN, END_OF_TURN)
BEGIN, PAD = "<|bos|>", "<|pad|>"
THINK = ("<think>", "</think>")
"""Tokens of their own in Qwen3, but not special ones: decoding keeps them."""

_GENERATION = "generation_config.json"
FILES = (
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", _GENERATION),
    *("special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt"),
)
"""of a tokenizer in a Hugging Face directory"""
_MARK = "Answer briefly."  # whatever a template may do with a text, it leaves words whole
_NUM_BYTES = 256
_START = 1000  # characters of a text that show whether its words are known
# Words, single digits, punctuation and white space come apart as in Qwen2 and Qwen3.
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# The time to learn from a word grows with the square of its length.
_LEARNED_WORD = 1000
_LONG_WORDS = re.compile(rf"(\w{{{_LEARNED_WORD}}})\w+|(\s{{{_LEARNED_WORD}}})\s+|([^\w\s]{{{_LEARNED_WORD}}})[^\w\s]+")


class Tokenizer:
    """The tokenizer that `files` (name -> content of a Hugging Face directory) describe."""

    def __init__(self, files: Mapping[str, bytes], ids_are_bytes: bool = False):
        self._files = dict(files)
        self._place = ""
        self._ids_are_bytes = (
            ids_are_bytes  # which Python reads off a text a hundred times as fast as the library finds them
        )
        self._inner = tokenizers.Tokenizer.from_str(self._files["tokenizer.json"].decode())
        self._inner.no_truncation()
        self._inner.no_padding()
        self.date = datetime.date.today()
        """that templates have for today's"""
        config = self._settings("tokenizer_config.json")
        self._is_plain = bool(config.get("split_special_tokens"))
        names, ids = self._settings("special_tokens_map.json"), self._settings("added_tokens.json")
        self._names = added_tokens.add(self._inner, config, names, ids)
        self.template = chat.find_template(config, self._files.get("chat_template.jinja"))
        self._template = chat.compiled(self.template)
        self.vocab_size = max(self._inner.get_vocab().values()) + 1
        """one more than the largest id; a model may have more rows than that"""
        self.stop_ids = self._find_stop_ids()
        """ids that end an answer, the end of a turn first"""
        pad = self._inner.token_to_id(self._names.get("pad_token", END_OF_TEXT))
        self.pad_id = self.stop_ids[-1] if pad is None else pad
        end = self._inner.token_to_id(END_OF_TEXT)
        end = self._inner.token_to_id(self._names.get("eos_token", "")) if end is None else end
        self.end_id: int = self.stop_ids[0] if end is None else end
        """ends a document, which is not always what ends an answer"""

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """The tokenizer of the Hugging Face directory `path`; UserError when there is none or it cannot be read."""
        if not (path / "tokenizer.json").is_file():
            of_run = path.name == "tokenizer" and (path.parent / "recipe.json").is_file()
            fix = "give a Hugging Face directory that was saved with a fast tokenizer"
            raise UserError(
                f"{path} has no tokenizer.json", "bring it back from a copy" if of_run else fix, "no-tokenizer"
            )
        files = {name: (path / name).read_bytes() for name in FILES if (path / name).is_file()}
        model = hf_config.read(path) if (path / "config.json").is_file() else {}
        if _GENERATION not in files and "eos_token_id" in model:
            # transformers makes the file of config.json where it is missing, and reads no other id from there
            files[_GENERATION] = json.dumps({"eos_token_id": model["eos_token_id"]}).encode()
        loaded = cls.of_files(files, str(path))
        loaded._require_one_reading(model.get("model_type"))
        return loaded

    @classmethod
    def of_files(cls, files: Mapping[str, bytes], place: str) -> Tokenizer:
        """The tokenizer of these files; UserError, with the `place` that they are from, when it cannot be read."""
        for name, content in files.items():
            if fault := text_lines.pointer(f"{place}/{name}", content):
                raise fault
        try:
            loaded = cls(files)
            loaded._place = f"{place}: "
            return loaded
        except UserError as e:
            raise UserError(f"{place}: {e.what}", e.fix, e.code) from e
        except Exception as e:  # the library raises bare Exception for a tokenizer.json it cannot use
            what = f"the tokenizer in {place} cannot be read ({message_of(e)})"
            fix = "fetch the directory again, or install a newer version of the package tokenizers"
            raise UserError(what, fix, "unreadable") from e

    @classmethod
    def train(cls, texts: Sequence[str], vocab_size: int) -> Tokenizer:
        """Byte-level BPE in Qwen's manner with at most `vocab_size` tokens; the same texts give the same files, byte for byte."""
        added = len(SPECIAL) + len(THINK)
        if vocab_size < _NUM_BYTES + added:
            raise UserError(
                f"a vocabulary of {vocab_size} has no room for all bytes",
                f"use {_NUM_BYTES + added} or more",
                "unusable-tokenizer",
            )
        inner = tokenizers.Tokenizer(models.BPE())
        inner.normalizer = normalizers.NFC()
        split = pre_tokenizers.Split(Regex(_PIECES), "isolated")
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        inner.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
        inner.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size - added,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        inner.train_from_iterator(_with_roles(texts), trainer)
        inner.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
        inner.add_tokens([AddedToken(token, special=False, normalized=False) for token in THINK])
        return cls(_files_of(inner) | {"chat_template.jinja": chat.TEMPLATE.encode()})

    @classmethod
    def bytes(cls) -> Tokenizer:
        """The ids are the 256 bytes, then begin, end and padding: a vocabulary of 259 that needs no training."""
        special = (BEGIN, END_OF_TEXT, PAD)
        inner = tokenizers.Tokenizer(models.BPE({letter: byte for byte, letter in enumerate(_letters())}, []))
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        inner.decoder = decoders.ByteLevel()
        inner.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
        inner.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A", special_tokens=[(BEGIN, _NUM_BYTES)])
        names = {"bos_token": BEGIN, "eos_token": END_OF_TEXT, "pad_token": PAD}
        return cls(_files_of(inner, **names, tokenizer_class="PreTrainedTokenizerFast"), ids_are_bytes=True)

    @property
    def texts(self) -> dict[str, str]:
        """The files by name, which `of_files` reads."""
        return {name: content.decode() for name, content in self._files.items()}

    def save(self, path: Path) -> None:
        """Writes the files into the directory `path`; transformers' AutoTokenizer reads them as the same tokenizer."""
        path.mkdir(parents=True, exist_ok=True)
        for name, content in self._files.items():
            (path / name).write_bytes(content)

    def chat(self, question: str, instruction: str, enable_thinking: bool | None, system: str = "") -> str:
        """The prompt of `turns` that has the assistant speak next."""
        turns = self.turns(question, instruction, system)
        return self.render(turns, add_generation_prompt=True, enable_thinking=enable_thinking)

    @functools.cached_property
    def has_system_turn(self) -> bool:
        """Whether the chat template has a system turn. Some refuse one, and some leave it out."""
        turns = [{"role": "system", "content": _MARK}, {"role": "user", "content": "a"}]
        with contextlib.suppress(UserError):
            return _MARK in self.render(turns, add_generation_prompt=True)
        return False

    def turns(self, question: str, instruction: str, system: str) -> list[dict[str, str]]:
        """The conversation that asks `question`, with `instruction` behind it and after a system turn if `system` is not empty.

        Where the chat template has no system turn, its text begins the user's turn: Gemma's template itself puts it there.
        """
        content = f"{question} {instruction}" if instruction else question
        if system and not self.has_system_turn:
            content = f"{system}\n\n{content}"
            system = ""
        before = [{"role": "system", "content": system}] if system else []
        return [*before, {"role": "user", "content": content}]

    def require_messages(self, system_prompt: str) -> None:
        """UserError where the template gives different messages of a user the same prompt."""
        system = [{"role": "system", "content": system_prompt}] if system_prompt else []
        prompts = set()
        for content in ("a", "b"):
            messages = [*system, {"role": "user", "content": content}]
            prompts.add(self.render(messages, add_generation_prompt=True, enable_thinking=True))
        if len(prompts) == 1:
            what = f"{self._place}the chat template leaves the user's message out: every prompt is the same text"
            raise UserError(what, chat.FIX, "chat-template")

    def require_known(self, texts: Iterable[str]) -> None:
        """UserError where all of `texts`, by their first characters, become the token for what is unknown."""
        name = getattr(self._inner.model, "unk_token", None) or self._names.get("unk_token", "")
        unknown = self._inner.token_to_id(name)
        starts = [text[:_START] for text in texts if text.strip()] if unknown is not None else []
        if starts and all(set(self.encode(start)) == {unknown} for start in starts):
            what = f"{self._place}the tokenizer has no token for any word of the data: every token is {name}"
            raise UserError(what, "give the tokenizer that the model was trained with", "unusable-tokenizer")

    def render(
        self, messages: list[dict[str, str]], *, add_generation_prompt: bool, enable_thinking: bool | None = None
    ) -> str:
        """A conversation of {"role", "content"} turns as text, by the tokenizer's own chat template or Qwen3's format.

        `enable_thinking` None is not passed on: the template decides. `tools` and `documents` are None as in transformers.
        """
        thinking = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
        variables = {"tools": None, "documents": None, "strftime_now": self.date.strftime, **self._names, **thinking}
        try:
            return chat.render(
                self._template, messages=messages, add_generation_prompt=add_generation_prompt, **variables
            )
        except UserError as e:
            raise UserError(f"{self._place}{e.what}", e.fix, e.code) from e

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; special tokens written in it become their ids, unless `split_special_tokens` is set, and nothing is added.

        UserError where the vocabulary has no ids for it.
        """
        self._inner.encode_special_tokens = self._is_plain
        try:
            return self._inner.encode(text, add_special_tokens=False).ids
        except Exception as e:  # the library raises bare Exception
            raise self._not_encoded(e) from e

    def documents(self, texts: Sequence[str]) -> list[list[int]]:
        """Each text as one document: the begin that the tokenizer puts before every text, if any, its ids, the end.

        A special token written in a text is plain text here: a document ends where it ends.
        """
        begin = [
            first
            for first in self._inner.encode("").ids[:1]
            if first == self._inner.token_to_id(self._names.get("bos_token", ""))
        ]
        if self._ids_are_bytes:
            return [[*begin, *text.encode(), self.end_id] for text in texts]
        self._inner.encode_special_tokens = True
        try:
            encodings = self._inner.encode_batch_fast(list(texts), add_special_tokens=False)
        except Exception as e:  # the library raises bare Exception
            raise self._not_encoded(e) from e
        return [[*begin, *e.ids, self.end_id] for e in encodings]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of `ids`; bytes that are no whole character come out as U+FFFD, ids without a token as nothing."""
        return self._inner.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def _not_encoded(self, error: Exception) -> UserError:
        fix = "give a tokenizer whose vocabulary has all bytes, or a token for what is unknown"
        return UserError(
            f"{self._place}the tokenizer cannot encode a text of the data ({message_of(error)})",
            fix,
            "unusable-tokenizer",
        )

    def _require_one_reading(self, model_type: object) -> None:
        """UserError where versions of transformers have different ids for a text, or none has those of tokenizer.json."""
        config = self._settings("tokenizer_config.json")
        decoder, name = config.get(added_tokens.DECODER), config.get("tokenizer_class") or str(model_type)
        pieces = self._inner.pre_tokenizer
        fix = ""
        # Version 5 makes Qwen2Tokenizer, also that of such a model, of vocabulary, merges and decoder, with pieces of its own.
        if name.startswith(("Qwen2Tokenizer", "qwen2", "qwen3")):
            is_qwens = pieces and json.dumps(_PIECES).encode() in pieces.__getstate__()
            num_listed = self._inner.get_vocab_size(False) + len(decoder or ())
            if not is_qwens or (decoder and num_listed < self._inner.get_vocab_size()):
                fix = '"tokenizer_class": "PreTrainedTokenizerFast"'
        # Version 4, which has no TokenizersBackend, takes the config's value, version 5 that of tokenizer.json.
        prefix = getattr(pieces, "add_prefix_space", None)
        if prefix not in (None, config.get("add_prefix_space", False)) and name != "TokenizersBackend":
            fix = f'"add_prefix_space": {json.dumps(prefix)}'
        if fix:
            what = f"{self._place}versions of transformers differ on the ids of its tokenizer.json"
            raise UserError(what, f"write {fix} into its tokenizer_config.json", "unusable-tokenizer")

    def _settings(self, name: str) -> dict[str, Any]:
        """The JSON object in the file `name`; {} where there is no such file."""
        try:
            settings = json.loads(self._files.get(name, b"{}"))
        except ValueError:
            settings = None
        if not isinstance(settings, dict):
            raise UserError(f"{name} is no JSON object", "fetch the directory again", "unusable-tokenizer")
        return settings

    def _find_stop_ids(self) -> tuple[int, ...]:
        """<|im_end|>, <|endoftext|>, the configured end of sequence and those at which `generate` of transformers stops, each once."""
        names = [END_OF_TURN, END_OF_TEXT, self._names.get("eos_token", "")]
        ids = [i for name in names if (i := self._inner.token_to_id(name)) is not None]
        listed = self._settings(_GENERATION).get("eos_token_id")
        listed = [] if listed is None else listed if isinstance(listed, list) else [listed]
        if not all(isinstance(i, int) for i in listed):
            what = f"eos_token_id in {_GENERATION}, or in config.json without it, is {json.dumps(listed)}"
            raise UserError(what, "write the id of a token, or a list of ids", "unusable-tokenizer")
        ids += listed
        if not ids:
            raise UserError(
                "the tokenizer has no token that ends a text",
                "name eos_token in its tokenizer_config.json",
                "unusable-tokenizer",
            )
        return tuple(dict.fromkeys(ids))


def _with_roles(texts: Sequence[str]) -> Iterator[str]:
    """The words of the chat format stand once in every prompt, so they count as often as there are texts.

    Of a word longer than `_LEARNED_WORD` characters the rest is left out.
    """
    for text in texts:
        yield _LONG_WORDS.sub(lambda word: word[1] or word[2] or word[3], text)
        yield "user\n"
        yield "assistant\n"


def _letters() -> Iterator[str]:
    """The characters that stand for the bytes 0 to 255 in byte-level vocabularies: printable ones for themselves, others from U+0100 on."""
    others = iter(range(_NUM_BYTES, 2 * _NUM_BYTES))
    for byte in range(_NUM_BYTES):
        printable = 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255
        yield chr(byte if printable else next(others))


def _files_of(inner: tokenizers.Tokenizer, **settings: str) -> dict[str, bytes]:
    """Those of a tokenizer of Qwen's class, unless `settings` has another."""
    added = {str(n): token.__getstate__() for n, token in sorted(inner.get_added_tokens_decoder().items())}
    config = {
        "add_prefix_space": False,
        added_tokens.DECODER: added,
        "clean_up_tokenization_spaces": False,
        "eos_token": END_OF_TURN,
        "pad_token": END_OF_TEXT,
        "tokenizer_class": "Qwen2Tokenizer",
    }
    content = json.dumps(config | settings, indent=2) + "\n"
    return {"tokenizer.json": inner.to_str(pretty=True).encode(), "tokenizer_config.json": content.encode()}
