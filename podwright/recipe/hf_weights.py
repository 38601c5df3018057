"""The weights of a Hugging Face checkpoint by the headers of its safetensors files: which tensors, their dtypes and shapes.

The compute half reads them, in training and where a plan asks it (`python -m podwright.train check`); the library judges the files.
"""

from __future__ import annotations

import array
import dataclasses
import json
import math
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pydantic import BaseModel, Field, ValidationError

from podwright.errors import UserError, listed
from podwright.recipe.hf_config import refuse_adapter, refuse_pointer
from podwright.recipe.llm import LlmDims
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.paths import require_file

Shapes = dict[str, tuple[int, ...]]

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
_OWN = "give a checkpoint whose config.json is its own"
_BYTES = MappingProxyType({"F64": 8, "F32": 4, "F16": 2, "BF16": 2})  # dtypes that are read
_WRAPPERS = re.compile(
    r"^(?:module\.|base_model\.model\.|model\.(?=model\.|lm_head\.)|_orig_mod\.|_fsdp_wrapped_module\.|_forward_module\."
    r"|pretrained_model\.|actor_module\.)+"
    r"|(?<=\.)(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)
"""what DataParallel, peft, Lightning, torch.compile, FSDP, DeepSpeed, TRL, verl and checkpointing put before and into the names of a module
that they wrap"""
_UNUSED = re.compile(r".*\.rotary_emb\.inv_freq|model\.v_head\..*")
"""a buffer that old files hold, which follows from config.json, and the value head of PPO beside a model"""
_OTHER_WEIGHTS = re.compile(r"(pytorch_model|consolidated|flax_model|tf_model).*\.(bin|pth?|h5|msgpack)|.*\.gguf")
_SAMPLES = (32, 1 << 16)  # pieces of a weight, and their bytes, by which two are compared
_LOOKED_AT = 1 << 12  # bytes at each end of a weight that are looked at for NaN
_EXPONENTS = MappingProxyType(
    {"F64": ("Q", 0x47EFFFFFF0000000), "F32": ("I", 0xFF << 23), "F16": ("H", 0x1F << 10), "BF16": ("H", 0xFF << 7)}
)
"""code of module array by dtype, and the bits of the least value that is infinity in float32, such as 2**128 - 2**103 in float64"""

QWEN3_LAYER: Mapping[str, str] = MappingProxyType(
    {
        "attention_norm": "input_layernorm",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "q_norm": "self_attn.q_norm",
        "k_norm": "self_attn.k_norm",
        "o": "self_attn.o_proj",
        "mlp_norm": "post_attention_layernorm",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    }
)
"""our name of a layer's weight -> Hugging Face's"""


class _Index(BaseModel):
    """The index of a checkpoint in several files."""

    weight_map: dict[str, str] = Field(min_length=1)


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    file: Path
    dtype: str
    shape: tuple[int, ...]
    name: str
    """in the file"""
    start: int
    """its first byte in the file"""

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * _BYTES.get(self.dtype, 1)


def present(directory: Path) -> bool:
    return (directory / SINGLE).is_file() or (directory / INDEX).is_file()


def refuse_other_layouts(directory: Path) -> None:
    """UserError for a directory without weights that are read here, but with a link to some or with weights in another layout."""
    if present(directory):
        return
    refuse_adapter(directory)
    for name in (SINGLE, INDEX):
        require_regular(directory / name)
    for name in sorted(path.name for path in directory.iterdir()):
        if name.endswith(".safetensors") or _OTHER_WEIGHTS.fullmatch(name):
            what = f"{directory} has {name}, and neither {SINGLE} nor {INDEX}"
            raise UserError(
                what, "download the model's safetensors files with their index, or save it in that format", "no-weights"
            )


def require_regular(file: Path) -> None:
    """UserError for a dead link, a directory, a pipe or a device of that name; nothing may be there."""
    if os.path.lexists(file):
        require_file(str(file), file)


def stored(directory: Path) -> dict[str, StoredTensor]:
    """By name, of model.safetensors, else of the shards that the index names: the order in which transformers looks."""
    if (directory / SINGLE).is_file() or not (directory / INDEX).is_file():
        refuse_other_layouts(directory)
        return _header(directory / SINGLE)
    index = directory / INDEX
    shard_of = _shard_of(index)
    files = {name: directory / name for name in shard_of.values()}
    tensors: dict[str, StoredTensor] = {}
    for name, file in sorted(files.items()):
        held = _header(file)
        listed = {tensor for tensor, shard in shard_of.items() if shard == name}
        if odd := sorted(listed ^ held.keys()):
            where = "lists, but the file does not hold it" if odd[0] in listed else "does not list, but the file holds"
            raise UserError(
                f"{name} does not fit {index}: {odd[0]} is a weight that the index {where}",
                "download the checkpoint again",
                "weights-differ",
            )
        tensors |= held
    return tensors


def _shard_of(index: Path) -> dict[str, str]:
    """The file of each weight, as the index of shards has it; UserError, which names the index, where it has none."""
    fix = "download that file again"
    try:
        content = index.read_bytes()
        refuse_pointer(index, content)
        return _Index.model_validate_json(content).weight_map
    except OSError as e:
        raise UserError(f"{index} cannot be read ({e.strerror})", fix, "unreadable") from e
    except ValidationError as e:
        raise UserError(f"{index} has no weight_map that gives the file of each weight", fix, "unreadable") from e


def _header(file: Path) -> dict[str, StoredTensor]:
    from safetensors import SafetensorError, safe_open

    require_regular(file)
    try:
        with file.open("rb") as f:
            refuse_pointer(file, f.read(100))
            with safe_open(file, "np"):  # refuses what is damaged or cut
                pass
            f.seek(0)
            size = int.from_bytes(f.read(8), "little")
            header = json.loads(f.read(size))
    except FileNotFoundError as e:
        raise UserError(
            f"{file.parent} has no {file.name}", "check that the download is complete", "no-such-file"
        ) from e
    except OSError as e:
        raise _unreadable(file, e.strerror or "reading it fails") from e
    except SafetensorError as e:
        raise _unreadable(file, "it is cut off, damaged, or not in the safetensors format") from e
    header.pop("__metadata__", None)
    return {
        name: StoredTensor(file, entry["dtype"], tuple(entry["shape"]), name, 8 + size + entry["data_offsets"][0])
        for name, entry in header.items()
    }


def _unreadable(file: Path, reason: str) -> UserError:
    return UserError(
        f"{file} cannot be read ({reason})", "check that the download is complete, or copy it again", "unreadable"
    )


def check(directory: Path, wanted: Shapes, by_transformers: bool = False) -> dict[str, StoredTensor]:
    """What is stored, when it is exactly `wanted` in a floating dtype. A model without a head of its own may have a copy
    of the embedding as its head, as many published files do.

    Names may lack `model.`, as of a body that was saved without its head, and be those of a wrapped module, which transformers takes
    for other weights.
    """
    refuse_adapter(directory)
    tensors: dict[str, StoredTensor] = {}
    for stored_name, tensor in stored(directory).items():
        plain = _WRAPPERS.sub("", stored_name)
        name = plain if plain.startswith(("model.", HEAD)) else f"model.{plain}"
        if "lora_" in plain or (by_transformers and plain != stored_name) or name in tensors:
            what = f"weight {stored_name} in {directory} has the name of a wrapper (peft, torch.compile)"
            fix = "save the model inside, for peft by model.merge_and_unload().save_pretrained(DIR)"
            raise UserError(what, fix, "wrapped-weights")
        tensors[name] = tensor
    for name, tensor in tensors.items():
        require_float(name, tensor, directory)
    for name, shape in wanted.items():
        if name not in tensors:
            fix = _OWN
            if name == HEAD:
                fix = "write tie_word_embeddings: true into config.json if the embedding is its head, or add the weight"
            what = f"weight {name} is not in {directory}, which has {listed((t.name for t in tensors.values()), 50)}"
            raise UserError(what, fix, "weights-differ")
        if tensors[name].shape != shape:
            what = f"weight {name} in {directory} has shape {list(tensors[name].shape)}"
            raise UserError(f"{what}; its config.json asks for {list(shape)}", _OWN, "weight-shape")
    for name in tensors.keys() - wanted.keys():
        if name == HEAD:
            _require_tied(directory, tensors)
        elif not _UNUSED.fullmatch(name):
            raise UserError(
                f"weight {name} in {directory} has no place in the model of its config.json",
                _OWN,
                "weights-differ",
            )
    for name, tensor in tensors.items():
        require_finite(name, tensor, directory)
    return tensors


def require_float(name: str, tensor: StoredTensor, directory: Path) -> None:
    """UserError for a weight in a dtype that is not read."""
    if tensor.dtype not in _BYTES:
        what = f"weight {name} in {directory} is {tensor.dtype}, which is not supported"
        raise UserError(what, "give the bfloat16 checkpoint that it was made from", "unsupported-dtype")


def require_finite(name: str, tensor: StoredTensor, directory: Path) -> None:
    """UserError for a value at either end of a weight that is NaN or infinite in float32, to which weights are converted; whoever loads
    it looks at the rest."""
    code, infinity = _EXPONENTS[tensor.dtype]
    magnitude = (1 << 8 * _BYTES[tensor.dtype] - 1) - 1  # all bits but the sign; magnitudes are ordered as their bits
    for piece in _pieces(tensor, 2, _LOOKED_AT):
        values = array.array(code, piece)
        if sys.byteorder == "big":
            values.byteswap()
        if any(value & magnitude >= infinity for value in values):
            raise not_finite(name, directory)


def not_finite(name: str, where: Path) -> UserError:
    """Of a weight with NaN or infinity, with which no learning rate helps."""
    what = f"weight {name} in {where} holds values that are not finite in float32 (NaN or infinity)"
    return UserError(what, "give a checkpoint from before its training diverged, or copy it again", "not-finite")


def _require_tied(directory: Path, tensors: Mapping[str, StoredTensor]) -> None:
    head, embedding = tensors[HEAD], tensors[EMBEDDING]
    if (head.dtype, head.shape) != (embedding.dtype, embedding.shape) or _pieces(head, *_SAMPLES) != _pieces(
        embedding, *_SAMPLES
    ):
        raise untied(directory)


def untied(directory: Path) -> UserError:
    return UserError(
        f"{directory} holds an {HEAD} that differs from {EMBEDDING}, and its config.json says tie_word_embeddings=true",
        "write tie_word_embeddings: false into config.json if the model was trained with a head of its own",
        "untied-head",
    )


def _pieces(tensor: StoredTensor, number: int, size: int) -> list[bytes]:
    """Pieces from its first byte to its last, of `size` bytes or all of it where it is smaller."""
    last = max(0, tensor.num_bytes - size)
    with tensor.file.open("rb") as f:
        pieces = []
        for i in range(number):
            f.seek(tensor.start + last * i // (number - 1))
            pieces.append(f.read(min(size, tensor.num_bytes)))
        return pieces


def qwen3(dims: Qwen3Dims) -> Shapes:
    """Names and shapes, [out, in], in the files of a dense Qwen3."""
    d, ff = dims.hidden_size, dims.intermediate_size
    queries, keys = dims.num_heads * dims.head_dim, dims.num_kv_heads * dims.head_dim
    layer: Shapes = {
        **dict.fromkeys(("attention_norm", "mlp_norm"), (d,)),
        **dict.fromkeys(("q_norm", "k_norm"), (dims.head_dim,)),
        "q": (queries, d),
        **dict.fromkeys(("k", "v"), (keys, d)),
        "o": (d, queries),
        **dict.fromkeys(("gate", "up"), (ff, d)),
        "down": (d, ff),
    }
    names = {f"{QWEN3_LAYER[name]}.weight": shape for name, shape in layer.items()}
    return _stacked(names, dims.num_layers, dims.vocab_size, d, dims.tie_word_embeddings)


def qwen2(dims: LlmDims) -> Shapes:
    """Names and shapes, [out, in], in the files of a Qwen2: biases on queries, keys and values."""
    d, ff = dims.hidden_size, dims.intermediate_size
    keys = d // dims.num_attention_heads * dims.num_key_value_heads
    layer: Shapes = {
        **dict.fromkeys(("input_layernorm.weight", "post_attention_layernorm.weight", "self_attn.q_proj.bias"), (d,)),
        **dict.fromkeys(("self_attn.q_proj.weight", "self_attn.o_proj.weight"), (d, d)),
        **dict.fromkeys(("self_attn.k_proj.weight", "self_attn.v_proj.weight"), (keys, d)),
        **dict.fromkeys(("self_attn.k_proj.bias", "self_attn.v_proj.bias"), (keys,)),
        **dict.fromkeys(("mlp.gate_proj.weight", "mlp.up_proj.weight"), (ff, d)),
        "mlp.down_proj.weight": (d, ff),
    }
    return _stacked(layer, dims.num_hidden_layers, dims.vocab_size, d, dims.tie_word_embeddings)


def _stacked(layer: Shapes, num_layers: int, vocab_size: int, hidden_size: int, tied: bool) -> Shapes:
    ends: Shapes = {EMBEDDING: (vocab_size, hidden_size), "model.norm.weight": (hidden_size,)}
    ends |= {} if tied else {HEAD: (vocab_size, hidden_size)}
    return ends | {f"model.layers.{i}.{name}": shape for i in range(num_layers) for name, shape in layer.items()}
