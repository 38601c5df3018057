"""Qwen3 weights to and from Hugging Face directories: config.json, (sharded) safetensors.

The names and layouts are a table; reading and writing walk it. Tokenizer files are data/tokenizer.py's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from podwright.errors import UserError
from podwright.models import param, qwen3
from podwright.recipe import hf_config, hf_weights
from podwright.recipe.models import Qwen3Dims
from podwright.rundir import write_json

Tree = Any
MAX_SHARD_BYTES = 4 * 1024**3

# Theirs are [out, in], ours [in, heads, head_dim] and so on.
_LAYER = hf_weights.QWEN3_LAYER
_TOP: dict[str, str] = {"embed": "model.embed_tokens", "norm": "model.norm", "lm_head": "lm_head"}


def _to_theirs(name: str, ours: np.ndarray) -> np.ndarray:
    if ours.ndim == 1 or name in _TOP:
        return ours
    flat = ours.reshape(-1, ours.shape[-1]) if name == "o" else ours.reshape(ours.shape[0], -1)
    return np.ascontiguousarray(flat.T)


def _to_ours(theirs: np.ndarray, shape: tuple[int, ...], name: str) -> np.ndarray:
    return theirs.reshape(shape) if theirs.ndim == 1 or name in _TOP else theirs.T.reshape(shape)


def read_config(path: Path) -> Qwen3Dims:
    """The dimensions of the checkpoint in `path`; UserError unless every value of its config.json and every tensor is implemented."""
    dims = hf_config.qwen3(hf_config.read(path))
    hf_weights.check(path, hf_weights.qwen3(dims))
    return dims


def read(path: Path, dims: Qwen3Dims, mesh: Mesh) -> Tree:
    """The weights in directory `path` as float32 arrays on `mesh`; each process holds only its own shards."""
    fetch = _opener(path, dims)

    def array_of(keys: Any, p: param.Param) -> Array:
        name = keys[-1].key
        if name in _TOP:
            value = _to_ours(fetch(f"{_TOP[name]}.weight"), p.shape, name)
        else:
            layers = (fetch(f"model.layers.{i}.{_LAYER[name]}.weight") for i in range(p.shape[0]))
            value = np.stack([_to_ours(w, p.shape[1:], name) for w in layers])
        sharding = NamedSharding(mesh, p.spec(mesh))
        return jax.make_array_from_callback(p.shape, sharding, lambda index: value[index])

    return jax.tree_util.tree_map_with_path(array_of, qwen3.declare(dims), is_leaf=param.is_param)


def _opener(path: Path, dims: Qwen3Dims) -> Callable[[str], np.ndarray]:
    """What fetches a tensor by Hugging Face's name, in float32."""
    tensors = hf_weights.check(path, hf_weights.qwen3(dims))

    def stored(name: str) -> np.ndarray:
        tensor = tensors[name]
        with safe_open(tensor.file, "np") as file:
            value: np.ndarray = file.get_tensor(tensor.name)
        return value

    if dims.tie_word_embeddings and hf_weights.HEAD in tensors:
        head, embedding = stored(hf_weights.HEAD), stored(hf_weights.EMBEDDING)
        if head.tobytes() != embedding.tobytes():
            raise hf_weights.untied(path)

    def finite(name: str) -> np.ndarray:
        with np.errstate(over="ignore"):
            value: np.ndarray = stored(name).astype(np.float32)
        if not np.isfinite(value).all():
            raise hf_weights.not_finite(name, path)
        return value

    return finite


def write(
    path: Path, dims: Qwen3Dims, params: Tree, mesh: Mesh, dtype: str, stop_ids: tuple[int, ...], pad_id: int
) -> None:
    """A directory that transformers loads. Every process must call it; the first one writes.

    The host holds one shard and one stacked weight at a time.
    """
    mine = jax.process_index() == 0
    path.mkdir(parents=True, exist_ok=True)
    where = _shards(dims, jnp.dtype(dtype).itemsize)
    last = {file: name for name, file in where.items()}
    shard: dict[str, np.ndarray] = {}
    for name, value in _theirs(dims, params, mesh):
        if not mine:
            continue
        shard[name] = value.astype(jnp.dtype(dtype))
        if name == last[where[name]]:
            _save(shard, path / where[name])
            shard = {}
    if not mine:
        return
    if len(last) > 1:
        total = dims.num_params() * jnp.dtype(dtype).itemsize
        write_json(path / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where})
    write_json(path / "config.json", _config(dims, dtype, stop_ids, pad_id))


def _save(shard: dict[str, np.ndarray], file: Path) -> None:
    try:
        save_file(shard, file, metadata={"format": "pt"})
    except SafetensorError as e:
        raise UserError(
            f"{file} cannot be written ({e})", "free some space there, or name another directory", "not-writable"
        ) from e


def _shards(dims: Qwen3Dims, itemsize: int) -> dict[str, str]:
    """Hugging Face's name -> file, for every tensor in the order of `_theirs`."""
    declared = qwen3.declare(dims)
    sizes = {f"{_TOP[name]}.weight": math.prod(declared[name].shape) for name in _TOP if name in declared}
    for name in _LAYER:
        num_layers, *shape = declared["layers"][name].shape
        sizes |= {f"model.layers.{i}.{_LAYER[name]}.weight": math.prod(shape) for i in range(num_layers)}
    number: dict[str, int] = {}
    used, count = 0, 1
    for tensor, size in sizes.items():
        if used and used + size * itemsize > MAX_SHARD_BYTES:
            used, count = 0, count + 1
        number[tensor] = count
        used += size * itemsize
    return {tensor: _file(n, count) for tensor, n in number.items()}


def _file(number: int, of: int) -> str:
    return "model.safetensors" if of == 1 else f"model-{number:05d}-of-{of:05d}.safetensors"


def _theirs(dims: Qwen3Dims, params: Tree, mesh: Mesh) -> Iterator[tuple[str, np.ndarray]]:
    """Name and float32 value of every Hugging Face tensor; at most one of our stacked weights is gathered at a time."""
    gather = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, PartitionSpec()))
    for name in _TOP:
        if name in params:
            yield f"{_TOP[name]}.weight", np.asarray(gather(params[name]))
    for name in _LAYER:
        values = np.asarray(gather(params["layers"][name]))
        for i in range(dims.num_layers):
            yield f"model.layers.{i}.{_LAYER[name]}.weight", _to_theirs(name, values[i])


def _config(dims: Qwen3Dims, dtype: str, stop_ids: tuple[int, ...], pad_id: int) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": pad_id,
        "dtype": dtype,
        "torch_dtype": dtype,
        "eos_token_id": stop_ids[0],
        "pad_token_id": pad_id,
        "head_dim": dims.head_dim,
        "hidden_act": "silu",
        "hidden_size": dims.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": dims.intermediate_size,
        "max_position_embeddings": dims.max_positions,
        "num_attention_heads": dims.num_heads,
        "num_hidden_layers": dims.num_layers,
        "num_key_value_heads": dims.num_kv_heads,
        "rms_norm_eps": dims.norm_eps,
        "rope_theta": dims.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": dims.rope_theta},
        "sliding_window": None,
        "use_sliding_window": False,
        "tie_word_embeddings": dims.tie_word_embeddings,
        "use_cache": True,
        "vocab_size": dims.vocab_size,
    }
