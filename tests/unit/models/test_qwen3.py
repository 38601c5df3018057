"""Parity with transformers: logits, greedy generation, and our own export read back there."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from safetensors import safe_open

from podwright.attention_kernels import Kernel
from podwright.errors import UserError
from podwright.models import attention, convert, param, qwen3
from podwright.recipe.models import Qwen3Dims
from podwright.train.grpo import rollout
from tests.unit.models import reference

GQA = [(True, 1), (True, 2), (False, 2), (False, 4)]


@pytest.mark.parametrize(("tied", "kv_heads"), GQA)
def test_logits_equal_transformers(tmp_path, one_device, tied, kv_heads):
    theirs = reference.checkpoint(tmp_path, tied=tied, kv_heads=kv_heads)
    dims = convert.read_config(tmp_path)
    params = convert.read(tmp_path, dims, one_device)
    tokens = np.random.default_rng(0).integers(0, 97, (3, 20))
    hidden, _ = qwen3.hidden(dims, params, tokens, jnp.float32, one_device)
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens)).logits.numpy()
    assert np.abs(expected).max() > 1  # a model whose logits are all alike would prove nothing
    np.testing.assert_allclose(hidden @ qwen3.head(params).T, expected, atol=1e-4)


def test_completions_of_a_group_equal_separate_sequences(tmp_path, one_device):
    theirs = reference.checkpoint(tmp_path)
    dims = convert.read_config(tmp_path)
    params = convert.read(tmp_path, dims, one_device)
    rng = np.random.default_rng(1)
    prompts, lengths, completions = rng.integers(0, 97, (2, 7)), np.array([7, 4]), rng.integers(0, 97, (2, 3, 5))
    batch = jax.sharding.NamedSharding(one_device, jax.sharding.PartitionSpec())
    group = qwen3.Group(jnp.asarray(prompts), jnp.asarray(lengths), jnp.asarray(completions))
    logits = qwen3.group_hidden(dims, params, group, jnp.float32, "layer", batch) @ qwen3.head(params).T
    for p in range(2):
        for g in range(3):
            sequence = np.concatenate([prompts[p, : lengths[p]], completions[p, g]])
            with torch.no_grad():
                expected = theirs(torch.tensor(sequence[None])).logits[0].numpy()[lengths[p] - 1 : -1]
            np.testing.assert_allclose(logits[p, g], expected, atol=1e-4)


def test_documents_of_a_row_equal_separate_sequences(tmp_path, one_device):
    """Values and gradients, in plain JAX and by the kernel's program; recomputed or not."""
    theirs = reference.checkpoint(tmp_path)
    dims = convert.read_config(tmp_path)
    params = convert.read(tmp_path, dims, one_device)
    tokens, lengths = np.random.default_rng(3).integers(0, 97, 24), (9, 4, 11)
    with torch.no_grad():
        apart = [
            theirs(torch.tensor(part[None])).logits[0].numpy() for part in np.split(tokens, np.cumsum(lengths)[:-1])
        ]
    positions, ids = np.concatenate([np.arange(n) for n in lengths])[None], np.repeat([1, 2, 3], lengths)[None]

    def total(params, remat):
        hidden = qwen3.packed_hidden(
            dims, params, jnp.asarray(tokens[None]), positions, jnp.asarray(ids), jnp.float32, remat, one_device
        )
        logits = hidden @ qwen3.head(params).T
        return (logits**2).sum(), logits

    (_, logits), gradient = jax.value_and_grad(total, has_aux=True)(params, "none")
    np.testing.assert_allclose(logits[0], np.concatenate(apart), atol=1e-4)
    again = jax.grad(lambda p: total(p, "attention")[0])(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3), gradient, again)


@pytest.mark.long
def test_the_kernel_of_packed_documents_equals_the_plain_form(monkeypatch, one_device):
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.standard_normal((2, 200, 2, *heads, 128)), jnp.float32) for heads in ((3,), (), ()))
    ids = jnp.asarray(np.repeat([0, 1, 2], (50, 90, 60))[None].repeat(2, 0))
    plain = attention.packed_groups(one_device, q, k, v, ids)
    monkeypatch.setattr(attention, "kernel_for", lambda *_: Kernel.SPLASH)
    monkeypatch.setattr(attention, "splash_packed", functools.partial(attention.splash_packed, interpret=True))
    kernel = attention.packed_groups(one_device, q, k, v, ids)
    np.testing.assert_allclose(kernel, plain, atol=2e-5)


@pytest.mark.parametrize(("tied", "kv_heads"), GQA)
def test_greedy_generation_equals_transformers_token_for_token(tmp_path, one_device, tied, kv_heads):
    theirs = reference.checkpoint(tmp_path, tied=tied, kv_heads=kv_heads)
    dims = convert.read_config(tmp_path)
    params = convert.read(tmp_path, dims, one_device)
    prompt = np.random.default_rng(2).integers(1, 97, (1, 9))
    with torch.no_grad():
        expected = theirs.generate(torch.tensor(prompt), max_new_tokens=24, do_sample=False, eos_token_id=5)[
            0, 9:
        ].tolist()
    padded = np.pad(prompt, ((0, 0), (0, 3)))
    out = _generate(dims, one_device, params, padded, np.array([9]), max_new_tokens=24, stop_ids=(5,))
    assert out.tokens_PGT[0, 0, : int(out.lengths_PG[0, 0])].tolist() == expected


@pytest.mark.long
@pytest.mark.parametrize("stop", [-1, 5])
def test_loops_over_a_growing_cache_say_what_one_loop_says(tmp_path, one_device, monkeypatch, stop):
    """17 tokens by loops of 5, 10, 15 and 17, against one loop; with a stop token that may end them early."""
    reference.checkpoint(tmp_path)
    dims = convert.read_config(tmp_path)
    params = convert.read(tmp_path, dims, one_device)
    prompts, lengths = np.random.default_rng(3).integers(0, 97, (2, 9)), np.array([9, 4])
    given = {"max_new_tokens": 17, "stop_ids": (stop,), "num_generations": 3, "sampling": rollout.Sampling(1.0)}
    whole = _generate(dims, one_device, params, prompts, lengths, **given)
    monkeypatch.setattr(rollout, "PIECE", 4)
    monkeypatch.setattr(rollout, "LANES", 1)
    assert rollout._rooms(17) == [5, 10, 15, 17]
    parts = _generate(dims, one_device, params, prompts, lengths, **given)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert whole.stopped_PG.any() == (stop == 5)


@pytest.mark.parametrize(
    ("most", "rooms"),
    [(8, [8]), (512, [512]), (1024, [512, 1024]), (2048, [512, 1024, 1536, 2048]), (3000, [768, 1536, 2304, 3000])],
)
def test_few_loops_of_whole_lanes(most, rooms):
    assert rollout._rooms(most) == rooms


def test_generation_stops_at_either_stop_token(tmp_path, one_device):
    reference.checkpoint(tmp_path)
    dims = convert.read_config(tmp_path)
    params = convert.read(tmp_path, dims, one_device)
    prompt = np.random.default_rng(3).integers(1, 97, (1, 9))
    free = (
        _generate(dims, one_device, params, prompt, np.array([9]), max_new_tokens=16, stop_ids=(-1,))
        .tokens_PGT[0, 0]
        .tolist()
    )
    first = next(i for i, token in enumerate(free) if i and token not in free[:i])
    stops = (96 if free[first] != 96 else 95, free[first])
    out = _generate(dims, one_device, params, prompt, np.array([9]), max_new_tokens=16, stop_ids=stops)
    assert int(out.lengths_PG[0, 0]) == first + 1
    assert bool(out.stopped_PG[0, 0])
    assert out.tokens_PGT[0, 0].tolist() == free[: first + 1] + [0] * (15 - first)


@pytest.mark.parametrize("tied", [True, False])
def test_our_export_loads_in_transformers_and_says_the_same(tmp_path, one_device, tied):
    theirs = reference.checkpoint(tmp_path / "in", tied=tied)
    dims = convert.read_config(tmp_path / "in")
    params = convert.read(tmp_path / "in", dims, one_device)
    convert.write(tmp_path / "out", dims, params, one_device, "float32", (5, 6), 0)
    again = transformers.Qwen3ForCausalLM.from_pretrained(tmp_path / "out")
    for (name, ours), (_, original) in zip(again.named_parameters(), theirs.named_parameters(), strict=True):
        assert torch.equal(ours, original), name
    assert again.config.rope_parameters["rope_theta"] == 1e4
    assert again.generation_config.eos_token_id == 5
    assert convert.read_config(tmp_path / "out") == dims


def test_sharded_checkpoints_are_read_and_written(tmp_path, one_device, monkeypatch):
    theirs = reference.checkpoint(tmp_path / "in", max_shard_size="60KB")
    assert (tmp_path / "in" / "model.safetensors.index.json").exists()
    dims = convert.read_config(tmp_path / "in")
    params = convert.read(tmp_path / "in", dims, one_device)
    monkeypatch.setattr(convert, "MAX_SHARD_BYTES", 50_000)
    convert.write(tmp_path / "out", dims, params, one_device, "bfloat16", (5,), 0)
    assert len(list((tmp_path / "out").glob("model-*.safetensors"))) > 2
    again = transformers.Qwen3ForCausalLM.from_pretrained(tmp_path / "out")
    for ours, original in zip(again.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(ours.to(torch.bfloat16), original.to(torch.bfloat16))
    files = [safe_open(f, "np") for f in sorted((tmp_path / "out").glob("*.safetensors"))]
    sizes = [sum(f.get_tensor(name).nbytes for name in f.keys()) for f in files]  # noqa: SIM118 - a file is no dict
    assert (
        max(sizes) <= 50_000
        and sum(sizes)
        == json.loads((tmp_path / "out/model.safetensors.index.json").read_text())["metadata"]["total_size"]
    )
    back = convert.read(tmp_path / "out", dims, one_device)
    np.testing.assert_array_equal(back["layers"]["q"], params["layers"]["q"].astype(jnp.bfloat16).astype(jnp.float32))


def test_the_host_holds_one_shard_while_writing(tmp_path, one_device, monkeypatch):
    """Each file is on the disk before the first tensor of the next one is fetched."""
    dims = Qwen3Dims(48, 80, 3, 4, 2, 16, 97, True)
    params = param.initialize(qwen3.declare(dims), one_device, 0)
    monkeypatch.setattr(convert, "MAX_SHARD_BYTES", 50_000)
    theirs, there = convert._theirs, []

    def watched(*args):
        for name, value in theirs(*args):
            there.append(len(list(tmp_path.glob("*.safetensors"))))
            yield name, value

    monkeypatch.setattr(convert, "_theirs", watched)
    convert.write(tmp_path, dims, params, one_device, "float32", (5,), 0)
    number = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    assert there == [int(file[6:11]) - 1 for file in number.values()] and there[-1] > 2


def test_a_file_that_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(
        UserError, match=r"gone/x cannot be written .*; free some space there, or name another directory"
    ):
        convert._save({"x": np.zeros(9)}, tmp_path / "gone" / "x")


def test_a_checkpoint_of_other_dimensions_is_one_line(tmp_path, one_device):
    reference.checkpoint(tmp_path)
    for wrong, words in (
        (
            Qwen3Dims(48, 96, 3, 4, 2, 16, 97, True),
            r"gate_proj\.weight in .* has shape .*; its config\.json asks for \[96, 48\]",
        ),
        (
            Qwen3Dims(48, 80, 3, 4, 2, 16, 97, False),
            r"weight lm_head\.weight is not in .*; write tie_word_embeddings: true",
        ),
    ):
        with pytest.raises(UserError, match=words):
            convert.read(tmp_path, wrong, one_device)


def _generate(
    dims,
    mesh,
    params,
    prompts,
    lengths,
    *,
    max_new_tokens,
    stop_ids,
    num_generations=1,
    sampling=rollout.GREEDY,
    seed=0,
):
    return rollout.generate(
        dims,
        mesh,
        params,
        jnp.asarray(prompts),
        jnp.asarray(lengths),
        jax.random.key(seed),
        num_generations=num_generations,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        stop_ids=stop_ids,
        pad_id=0,
        dtype=jnp.float32,
    )
