"""Writes small Hugging Face directories with transformers 4.57 and 5, tokenizers and peft, and records what each transformers reads in them.

python bench/hf_directories.py [--environments ~/.cache/podwright-transformers] [--out tests/hf_directories]

Each version has an environment of its own (4 GB for both). Each writes its directories, then both open all of them; `answers.json` has
what they said: ids of texts, special tokens, the chat as text, the ids at which `generate` stops, weights that are missing or unexpected, and
logits. `written` in it are the logits of the model before it was saved. No file is written by hand: where a directory mixes the
files of two programs, as users' directories do, it has files of both or lacks some. Weights stay only where their names are what is looked at.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

VERSIONS = {"4": "transformers==4.57.6", "5": "transformers==5.23.0"}
PACKAGES = ("peft==0.21.2", "torch==2.13.0", "safetensors", "sentencepiece", "protobuf", "jinja2")
CHAT = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEXTS = (
    "A shelf has 51 books and gets 55 more.",
    "<|im_start|>user\n2+3?<|im_end|>\n<|im_start|>assistant\n",
    "<|begin_of_text|>Hello<|eot_id|> <|finetune_pad|>",
    "x <tool> y <Tool>z <tool>, <keep>\n <left>  <right>  mid<word>mid <word> end",
    "[PAD] <pad> <s>it's</s><unk> <|end|><extra_0> <image>",
    "  Two  spaces, 1234, naïve 字 <think>\n\n</think>\t<|endoftext|>",
    "Hello",
    " Hello",
)
LESSONS = ("1234 1234 51 55", "shelf books more gets")
TURNS = ({"role": "user", "content": "2+3?"}, {"role": "assistant", "content": "5"}, {"role": "user", "content": "9?"})
TEMPLATE = (
    "{%- for m in messages %}{{- '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
IDS = (5, 9, 3, 17, 100, 42)
BASE = 110
"""tokens of a byte-level vocabulary without those that are added; the special ones of CHAT come next"""
QWEN2_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_PIECES = QWEN2_PIECES.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

Writer = Callable[[Path], Any]
WRITERS: dict[str, tuple[Writer, str, bool]] = {}
"""name -> what writes it, the versions that do, and whether its weights stay"""


def directory(versions: str = "45", weights: bool = False) -> Callable[[Writer], Writer]:
    def register(writer: Writer) -> Writer:
        WRITERS[writer.__name__.replace("_", "-")] = (writer, versions, weights)
        return writer

    return register


def byte_level(special: Sequence[str], pieces: str = QWEN2_PIECES, ignore_merges: bool = False) -> Any:
    """A byte-level BPE of BASE tokens in Qwen2's manner, with these special tokens after them."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    inner = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    inner.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(pieces), "isolated")
    inner.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    inner.decoder = decoders.ByteLevel()
    inner.train_from_iterator([*TEXTS, *LESSONS], trainers.BpeTrainer(vocab_size=BASE, show_progress=False))
    assert inner.get_vocab_size() == BASE
    if special:
        inner.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return inner


def fast(inner: Any, **options: Any) -> Any:
    transformers: Any = importlib.import_module("transformers")

    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **options)


def qwen2(**options: Any) -> Any:
    """The class of Qwen2 and Qwen3, in either version made from a vocabulary and merges."""
    transformers: Any = importlib.import_module("transformers")

    model = json.loads(byte_level(()).to_str())["model"]
    if transformers.__version__.startswith("5"):
        merges = [tuple(merge) for merge in model["merges"]]
        return transformers.Qwen2Tokenizer(vocab=model["vocab"], merges=merges, **options)
    folder = Path(tempfile.mkdtemp())
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *map(" ".join, model["merges"])]))
    return transformers.Qwen2TokenizerFast(str(folder / "vocab.json"), str(folder / "merges.txt"), **options)


def model(eos: Any = None, *, tie: bool = True, **options: Any) -> Any:
    """A random Qwen3 of one layer."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")

    torch.manual_seed(0)
    sizes: dict[str, Any] = dict(vocab_size=128, hidden_size=8, intermediate_size=16, num_hidden_layers=1)
    sizes |= dict(num_attention_heads=2, num_key_value_heads=1, head_dim=8, max_position_embeddings=512)
    ids = dict(bos_token_id=None, eos_token_id=eos, pad_token_id=None)
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**sizes | ids | options, tie_word_embeddings=tie))


def logits(built: Any) -> list[float]:
    torch: Any = importlib.import_module("torch")

    with torch.no_grad():
        values = built.float().eval()(torch.tensor([IDS])).logits[0, -1, :6]
    return [round(value, 5) for value in values.tolist()]


def save_states(path: Path, states: dict[str, Any]) -> None:
    """What a training loop of one's own writes: the state of the module as it is, beside the config of the model."""
    from safetensors.torch import save_file

    save_file({name: value.clone().contiguous() for name, value in states.items()}, path / "model.safetensors")


# Tokenizers


@directory()
def fast_bpe(path: Path) -> None:
    fast(byte_level(CHAT), eos_token="<|im_end|>", pad_token="<|endoftext|>").save_pretrained(path)
    model(BASE + 1).save_pretrained(path)


@directory()
def qwen2_class(path: Path) -> None:
    tokenizer = qwen2()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(path)
    model([BASE + 2, BASE]).save_pretrained(path)


@directory()
def llama3_style(path: Path) -> None:
    from tokenizers import processors

    names = ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|finetune_pad|>")
    inner = byte_level(names, LLAMA3_PIECES, ignore_merges=True)
    begin = inner.token_to_id(names[0])
    inner.post_processor = processors.TemplateProcessing(single=f"{names[0]} $A", special_tokens=[(names[0], begin)])
    ends = [inner.token_to_id(name) for name in names[1:3]]
    tokenizer = fast(inner, bos_token=names[0], eos_token=names[2])
    tokenizer.pad_token = names[3]
    tokenizer.save_pretrained(path)
    built = model(ends)
    built.generation_config.update(do_sample=True, temperature=0.6, top_p=0.9)
    built.save_pretrained(path)


@directory()
def chat_tokens_in_the_config(path: Path) -> None:
    """tokenizer.json by `tokenizers` from before the chat tokens, the files beside it from after they were added."""
    tokenizer = fast(byte_level(CHAT[:1]), pad_token="<|endoftext|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(path)
    byte_level(CHAT[:1]).save(str(path / "tokenizer.json"))
    model().save_pretrained(path)


@directory()
def chat_tokens_in_the_config_of_qwen2(path: Path) -> None:
    qwen2_class(path)
    byte_level(CHAT[:1]).save(str(path / "tokenizer.json"))


@directory("4")
def special_tokens_map_only(path: Path) -> None:
    """As of transformers before 4.34, which wrote no added_tokens_decoder: the newer tokenizer_config.json is left out."""
    from tokenizers import AddedToken

    end = AddedToken("<|im_end|>", rstrip=True, normalized=False, special=True)
    tokenizer = fast(byte_level(CHAT[:1]), eos_token=end, pad_token="[PAD]", unk_token="<|endoftext|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.save_pretrained(path)
    (path / "tokenizer_config.json").unlink()
    byte_level(CHAT[:1]).save(str(path / "tokenizer.json"))
    model().save_pretrained(path)


@directory("4")
def added_tokens_file_only(path: Path) -> None:
    """added_tokens.json and special_tokens_map.json of a slow tokenizer, tokenizer.json of `tokenizers`."""
    slow_qwen2(path)
    for name in ("tokenizer_config.json", "vocab.json", "merges.txt"):
        (path / name).unlink()
    byte_level(CHAT[:1]).save(str(path / "tokenizer.json"))


@directory("4")
def slow_qwen2(path: Path) -> None:
    """Without tokenizer.json."""
    transformers: Any = importlib.import_module("transformers")

    qwen2().save_pretrained(path)
    tokenizer = transformers.Qwen2Tokenizer(str(path / "vocab.json"), str(path / "merges.txt"))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.add_tokens(["<tool>"])
    for file in path.iterdir():
        file.unlink()
    tokenizer.save_pretrained(path)
    model([BASE + 2, BASE]).save_pretrained(path)


@directory("4")
def legacy_format(path: Path) -> None:
    tokenizer = qwen2()
    tokenizer.add_tokens(["<tool>"])
    tokenizer.save_pretrained(path, legacy_format=True)
    model(BASE).save_pretrained(path)


@directory()
def tokens_of_every_kind(path: Path) -> None:
    """Special or not, normalized or not, that take the space beside them or stand only as words."""
    from tokenizers import AddedToken

    tokenizer = fast(byte_level(CHAT), eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.add_tokens(["<tool>", AddedToken("<left>", lstrip=True), AddedToken("<right>", rstrip=True)])
    tokenizer.add_tokens([AddedToken("<word>", single_word=True), AddedToken("<keep>", normalized=False)])
    tokenizer.add_tokens(["<|end|>"], special_tokens=True)
    tokenizer.save_pretrained(path)
    byte_level(CHAT).save(str(path / "tokenizer.json"))
    model(BASE + 2).save_pretrained(path)


@directory()
def padding_added(path: Path) -> None:
    tokenizer = fast(byte_level(CHAT), eos_token="<|im_end|>")
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(path)
    built = model(BASE + 2)
    built.resize_token_embeddings(len(tokenizer))
    built.save_pretrained(path)


@directory("5")
def names_without_tokens(path: Path) -> None:
    """Special tokens by name alone, as version 5 writes no added_tokens_decoder."""
    fast(byte_level(CHAT), eos_token="<|end|>", pad_token="[PAD]", bos_token="<s>").save_pretrained(path)
    byte_level(CHAT).save(str(path / "tokenizer.json"))
    model(BASE + 1).save_pretrained(path)


@directory("4")
def lower_case_words(path: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

    words = ("<unk>", "a", "shelf", "has", "books", "and", "gets", "more", "hello", "x", "y", "z", "end", "</s>")
    inner = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
    inner.normalizer, inner.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    tokenizer = fast(inner, unk_token="<unk>", eos_token="</s>")
    tokenizer.add_tokens(["<tool>", AddedToken("<keep>", normalized=False)])
    tokenizer.save_pretrained(path)
    inner.save(str(path / "tokenizer.json"))
    model(13).save_pretrained(path)


@directory()
def llama2_style(path: Path) -> None:
    """Pieces as of SentencePiece, in the class of Llama."""
    transformers: Any = importlib.import_module("transformers")
    from tokenizers import AddedToken, Tokenizer, models, normalizers, trainers

    inner = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    special = [AddedToken(token, special=True, normalized=False) for token in ("<unk>", "<s>", "</s>")]
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=[*special, *names], show_progress=False)
    inner.train_from_iterator([text.replace("<unk>", "").replace("<s>", "") for text in TEXTS], trainer)
    described = json.loads(inner.to_str())
    described["added_tokens"] = [token for token in described["added_tokens"] if token["content"] not in names]
    options = dict(unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    if transformers.__version__.startswith("5"):
        merges = [tuple(merge) for merge in described["model"]["merges"]]
        tokenizer = transformers.LlamaTokenizer(vocab=described["model"]["vocab"], merges=merges, **options)
    else:
        tokenizer = transformers.LlamaTokenizerFast(
            tokenizer_object=Tokenizer.from_str(json.dumps(described)), **options
        )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<extra_0>"]})
    tokenizer.save_pretrained(path)
    model(2, vocab_size=330).save_pretrained(path)


@directory()
def gpt2_class(path: Path) -> None:
    transformers: Any = importlib.import_module("transformers")
    from tokenizers import pre_tokenizers

    inner = byte_level(CHAT[:1])
    inner.normalizer, inner.pre_tokenizer = None, pre_tokenizers.ByteLevel(add_prefix_space=False)
    if transformers.__version__.startswith("5"):
        described = json.loads(inner.to_str())["model"]
        merges = [tuple(merge) for merge in described["merges"]]
        tokenizer = transformers.GPT2Tokenizer(vocab=described["vocab"], merges=merges)
    else:
        tokenizer = transformers.GPT2TokenizerFast(tokenizer_object=inner)
    tokenizer.pad_token = "<|endoftext|>"
    tokenizer.save_pretrained(path)
    model(BASE).save_pretrained(path)


@directory()
def byte_level_of_its_default(path: Path) -> None:
    """`tokenizers` puts a space before the first word unless told not to."""
    from tokenizers import pre_tokenizers

    inner = byte_level(CHAT)
    inner.pre_tokenizer = pre_tokenizers.ByteLevel()
    fast(inner, eos_token="<|im_end|>").save_pretrained(path)
    model(BASE + 2).save_pretrained(path)


@directory()
def byte_level_of_its_default_by_tokenizers(path: Path) -> None:
    from tokenizers import pre_tokenizers

    inner = byte_level(CHAT)
    inner.pre_tokenizer = pre_tokenizers.ByteLevel()
    fast(inner, eos_token="<|im_end|>").save_pretrained(path)
    inner.save(str(path / "tokenizer.json"))
    model(BASE + 2).save_pretrained(path)


@directory()
def qwen2_class_of_other_pieces(path: Path) -> None:
    """tokenizer.json of `tokenizers` with pieces of another form, beside the files of Qwen2's class."""
    qwen2_class(path)
    byte_level(CHAT, LLAMA3_PIECES).save(str(path / "tokenizer.json"))


@directory()
def qwen3_without_a_class(path: Path) -> None:
    """Only tokenizer.json beside a model of Qwen3, whose class transformers then takes."""
    byte_level(CHAT, LLAMA3_PIECES).save(str(path / "tokenizer.json"))
    model(BASE + 2).save_pretrained(path)


@directory()
def tokens_in_tokenizer_json_only(path: Path) -> None:
    """Of Qwen2's class, with a tokenizer_config.json from before the chat tokens were added to tokenizer.json."""
    qwen2().save_pretrained(path)
    byte_level(CHAT).save(str(path / "tokenizer.json"))
    model(BASE + 2).save_pretrained(path)


@directory("5")
def templates_by_name(path: Path) -> None:
    tokenizer = fast(byte_level(CHAT), eos_token="<|im_end|>")
    tokenizer.chat_template = {"default": TEMPLATE, "tool_use": "tools"}
    tokenizer.save_pretrained(path)
    model(BASE + 2).save_pretrained(path)


@directory("4")
def template_in_the_config(path: Path) -> None:
    tokenizer = fast(byte_level(CHAT), eos_token="<|im_end|>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(path, save_jinja_files=False)
    model(BASE + 2).save_pretrained(path)


@directory("4")
def named_extras(path: Path) -> None:
    """Tokens of a model with images."""
    extras = {"image_token": "<image>"}
    fast(byte_level(CHAT), eos_token="<|im_end|>", extra_special_tokens=extras).save_pretrained(path)
    byte_level(CHAT).save(str(path / "tokenizer.json"))
    model(BASE + 2).save_pretrained(path)


# Ids that end an answer


@directory("5")
def ends_in_the_config_only(path: Path) -> None:
    """The tokenizer names none, and generation_config.json was not copied."""
    fast(byte_level(CHAT[1:])).save_pretrained(path)
    model([BASE + 1, 7]).save_pretrained(path)
    (path / "generation_config.json").unlink()


@directory("4")
def one_end_in_the_config(path: Path) -> None:
    fast(byte_level(CHAT[1:])).save_pretrained(path)
    model(BASE + 1).config.save_pretrained(path)


@directory()
def ends_differ(path: Path) -> None:
    """config.json has one, generation_config.json has others, the tokenizer another."""
    fast(byte_level(CHAT), eos_token="<|endoftext|>").save_pretrained(path)
    built = model(BASE + 1)
    built.generation_config.eos_token_id = [BASE + 2, 11]
    built.save_pretrained(path)


@directory("5")
def generation_config_without_an_end(path: Path) -> None:
    fast(byte_level(CHAT[1:])).save_pretrained(path)
    built = model(BASE + 1)
    built.generation_config.eos_token_id = None
    built.save_pretrained(path)


# Names of weights


@directory(weights=True)
def tied(path: Path) -> Any:
    built = model(BASE + 2)
    built.save_pretrained(path)
    return built


@directory("5", weights=True)
def untied_in_shards(path: Path) -> Any:
    built = model(BASE + 2, tie=False)
    built.save_pretrained(path, max_shard_size="8KB")
    return built


@directory("4", weights=True)
def bfloat16(path: Path) -> Any:
    torch: Any = importlib.import_module("torch")

    built = model(BASE + 2).to(torch.bfloat16)
    built.save_pretrained(path)
    return built


@directory(weights=True)
def without_model(path: Path) -> Any:
    """As Qwen3-Embedding: saved without its head."""
    built = model(BASE + 2)
    built.model.save_pretrained(path)
    return built


@directory("5", weights=True)
def without_model_in_shards(path: Path) -> Any:
    built = model(BASE + 2)
    built.model.save_pretrained(path, max_shard_size="8KB")
    return built


@directory("5", weights=True)
def untied_without_a_head(path: Path) -> None:
    model(BASE + 2, tie=False).model.save_pretrained(path)


@directory("5", weights=True)
def compiled_state(path: Path) -> Any:
    torch: Any = importlib.import_module("torch")

    built = model(BASE + 2)
    save_states(path, torch.compile(built).state_dict())
    built.config.save_pretrained(path)
    return built


@directory("5", weights=True)
def compiled_layers(path: Path) -> Any:
    torch: Any = importlib.import_module("torch")

    built = model(BASE + 2)
    for n, layer in enumerate(built.model.layers):
        built.model.layers[n] = torch.compile(layer)
    save_states(path, built.state_dict())
    built.config.save_pretrained(path)
    return built


@directory("5", weights=True)
def data_parallel(path: Path) -> Any:
    torch: Any = importlib.import_module("torch")

    built = model(BASE + 2, tie=False)
    save_states(path, torch.nn.DataParallel(torch.compile(built)).state_dict())
    built.config.save_pretrained(path)
    return built


def adapted(base: Any, **options: Any) -> Any:
    import peft

    torch: Any = importlib.import_module("torch")

    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", **options)
    torch.manual_seed(1)
    built = peft.get_peft_model(base, config)
    for name, value in built.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(value)
    return built


@directory("5", weights=True)
def adapter_only(path: Path) -> None:
    adapted(model(BASE + 2)).save_pretrained(path)


@directory("5", weights=True)
def adapter_beside_a_config(path: Path) -> None:
    built = adapted(model(BASE + 2))
    built.save_pretrained(path)
    built.base_model.model.config.save_pretrained(path)


@directory("4", weights=True)
def adapter_beside_its_base(path: Path) -> None:
    model(BASE + 2).save_pretrained(path)
    adapted(model(BASE + 2)).save_pretrained(path)


@directory("5", weights=True)
def adapter_merged(path: Path) -> Any:
    built = adapted(model(BASE + 2)).merge_and_unload()
    built.save_pretrained(path)
    return built


@directory("5", weights=True)
def adapter_merged_with_names_of_peft(path: Path) -> Any:
    wrapped = adapted(model(BASE + 2))
    built = wrapped.merge_and_unload()
    save_states(path, wrapped.state_dict())
    built.config.save_pretrained(path)
    return built


@directory("5", weights=True)
def adapter_not_merged(path: Path) -> None:
    wrapped = adapted(model(BASE + 2))
    save_states(path, wrapped.state_dict())
    wrapped.base_model.model.config.save_pretrained(path)


@directory("5", weights=True)
def adapter_merged_in_place(path: Path) -> None:
    """Its names are those of `adapter_not_merged`: what the base holds cannot be told."""
    wrapped = adapted(model(BASE + 2))
    wrapped.merge_adapter()
    save_states(path, wrapped.state_dict())
    wrapped.base_model.model.config.save_pretrained(path)


# What runs in the environment of each version


def write(out: Path, version: str) -> None:
    for name, (writer, versions, _) in WRITERS.items():
        if version not in versions:
            continue
        path = out / (f"{name}-{version}" if len(versions) > 1 else name)
        path.mkdir(parents=True)
        built = writer(path)
        written: dict[str, Any] = {"by": VERSIONS[version]}
        if built is not None:
            written["logits"] = logits(built)
        (out / f"{path.name}.written").write_text(json.dumps(written))


def ask(out: Path) -> dict[str, Any]:
    """What this version of transformers reads in each directory."""
    return {path.name: {**tokenizer_of(path), **model_of(path)} for path in sorted(out.iterdir()) if path.is_dir()}


def tokenizer_of(path: Path) -> dict[str, Any]:
    transformers: Any = importlib.import_module("transformers")

    if not list(path.glob("*token*")) and not (path / "vocab.json").exists():
        return {}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    except Exception as e:
        return {"tokenizer_error": f"{type(e).__name__}: {e}".splitlines()[0][:120].replace(str(path), "DIR")}
    names = ("bos_token", "eos_token", "pad_token", "unk_token")
    answer: dict[str, Any] = {
        "ids": [tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS],
        "begin": tokenizer("")["input_ids"],
        "special": {name: [getattr(tokenizer, name), getattr(tokenizer, f"{name}_id")] for name in names},
        "size": len(tokenizer),
        "class": type(tokenizer).__name__,
    }
    if tokenizer.chat_template:
        answer["chat"] = tokenizer.apply_chat_template(list(TURNS), tokenize=False, add_generation_prompt=True)
    return answer


def model_of(path: Path) -> dict[str, Any]:
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")

    if not (path / "config.json").exists():
        return {}
    try:
        built, info = transformers.AutoModelForCausalLM.from_pretrained(path, output_loading_info=True)
    except Exception as e:
        return {"model_error": f"{type(e).__name__}: {e}".splitlines()[0][:120].replace(str(path), "DIR")}
    stops: list[int] = []
    criteria = built._get_stopping_criteria

    def seen(*args: Any, **options: Any) -> Any:
        chosen = criteria(*args, **options)
        for each in chosen:
            if hasattr(each, "eos_token_id"):
                stops.extend(each.eos_token_id.tolist())
        return chosen

    built._get_stopping_criteria = seen
    built.generate(torch.tensor([IDS]), attention_mask=torch.ones(1, len(IDS)), max_new_tokens=1)
    missing, unexpected = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    return {"stops": stops, "missing": missing, "unexpected": unexpected, "logits": logits(built)}


# What runs here


def environment(folder: Path, version: str) -> Path:
    """The Python of an environment with this version, which is made once."""
    place = folder / f"transformers-{version}"
    if not (place / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        packages = [VERSIONS[version], *PACKAGES]
        subprocess.run([str(place / "bin/python"), "-m", "pip", "install", "-q", *packages], check=True)
        (place / "made").touch()
    return place / "bin/python"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    cache = Path.home() / ".cache/podwright-transformers"
    parser.add_argument("--environments", type=Path, default=cache)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "tests/hf_directories")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        part, version = options.child
        if part == "write":
            write(options.out, version)
        else:
            (options.out / f"{version}.answers").write_text(json.dumps(ask(options.out)))
        return 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for part in ("write", "ask"):
            for version in VERSIONS:
                python = environment(options.environments, version)
                child = [str(python), __file__, "--out", place, "--child", part, version]
                subprocess.run(child, check=True)
        keep(folder, options.out)
    return 0


def keep(folder: Path, out: Path) -> None:
    """The directories without weights that say nothing, and the answers of both versions."""
    shutil.rmtree(out, ignore_errors=True)
    about = json.dumps({"texts": TEXTS, "turns": TURNS, "ids": IDS, "versions": VERSIONS}, ensure_ascii=False)
    rows = []
    by_version = {version: json.loads((folder / f"{version}.answers").read_text()) for version in VERSIONS}
    for path in sorted(path for path in folder.iterdir() if path.is_dir()):
        row = {"written": json.loads((folder / f"{path.name}.written").read_text())}
        for version in VERSIONS:
            row[version] = by_version[version][path.name]
        rows.append(f"{json.dumps(path.name)}: {json.dumps(row)}")
        has_weights = WRITERS[path.name if path.name in WRITERS else path.name[:-2]][2]
        shutil.copytree(path, out / path.name)
        for file in (out / path.name).iterdir():
            if (file.suffix == ".safetensors" and not has_weights) or file.name == "README.md":
                file.unlink()
    text = about[:-1] + ', "directories": {\n' + ",\n".join(rows) + "\n}}\n"
    json.loads(text)
    (out / "answers.json").write_text(text)


if __name__ == "__main__":
    raise SystemExit(main())
