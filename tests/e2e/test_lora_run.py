"""A whole run that trains adapters: stopped and resumed bit for bit, its merged export read by transformers, evaluated."""

import json
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from podwright.models import convert, lora, qwen3
from podwright.rundir import read_jsonl
from podwright.train.grpo import standalone
from tests.e2e.trainer import ROOT, environment, figures, finish, prepare, start, train, weights

LORA = ["model.lora_rank=4", "optimizer.learning_rate=1e-2", "optimizer.warmup_ratio=0"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Four uninterrupted steps."""
    run, end = train(tmp_path_factory.mktemp("whole") / "run", *LORA)
    assert end["ending"] == "FINISHED", end
    return run


@pytest.mark.long
def test_stopped_and_resumed_equals_uninterrupted_bit_for_bit(whole, tmp_path):
    run = prepare(tmp_path / "run", *LORA, "checkpoint.every_n_steps=100")
    process = start(run)
    while not run.events.exists() or "grpo" not in [e.get("phase") for e in read_jsonl(run.events)]:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    end = finish(run, process)
    # A program from the cache is loaded at once, and a busy machine sends the signal behind a later step.
    assert end["ending"] == "STOPPED" and 1 <= end["step"] < 4
    assert finish(run, start(run, attempt=2), attempt=2)["ending"] == "FINISHED"
    assert [e["step"] for e in read_jsonl(run.events) if e["event"] == "resumed"] == [end["step"]]
    assert figures(run) == figures(whole) and weights(run) == weights(whole)


@pytest.mark.long
def test_only_adapters_are_trained_and_saved(whole):
    (said,) = [e for e in read_jsonl(whole.events) if e["event"] == "environment"]
    _, _, policy, _ = standalone._open(whole.path, standalone._recipe_for(whole.path))
    assert said["num_trained_params"] == sum(x.size for x in jax.tree.leaves(policy.adapters)) < said["num_params"]
    kls = [r["kl"] for r in figures(whole)["grpo"]]
    assert abs(kls[0]) < 1e-6 < kls[-1]


@pytest.mark.long
def test_the_export_is_the_trained_policy(whole):
    import torch
    import transformers

    setup, _, policy, step = standalone._open(whole.path, standalone._recipe_for(whole.path))
    assert step == 4
    weights(whole)
    theirs = transformers.Qwen3ForCausalLM.from_pretrained(whole.path.parent / f"{whole.name}-export")
    tokens = np.random.default_rng(0).integers(0, setup.dims.vocab_size, (2, 12))
    with torch.no_grad():
        exported = theirs(torch.tensor(tokens)).logits.numpy()
    ours, base = (logits(setup, tokens, w) for w in (lora.adapt(policy, setup.lora_scale), policy.base))
    np.testing.assert_allclose(exported, ours, atol=1e-4)
    assert np.abs(exported - base).max() > 1e-2


def logits(setup, tokens, params):
    hidden, _ = qwen3.hidden(setup.dims, params, jnp.asarray(tokens), jnp.float32, setup.mesh)
    return hidden @ qwen3.head(params).T


@pytest.mark.long
def test_eval_agrees_with_the_run(whole):
    options = {"path": str(whole.path), "data": "arithmetic", "limit": 0}
    argv = [sys.executable, "-m", "podwright.train", "eval", json.dumps(options)]
    done = subprocess.run(argv, cwd=ROOT, env=environment(), capture_output=True, text=True)
    found = json.loads(done.stdout)
    after = [e for e in read_jsonl(whole.events) if e["event"] == "evaluation"][-1]
    assert (found["strict"], found["mean_tokens"], found["step"]) == (after["strict"], after["mean_tokens"], 4)


@pytest.mark.long
def test_adapters_on_a_directory_need_no_copy_of_it(whole, tmp_path):
    import transformers

    weights(whole)
    source = whole.path.parent / f"{whole.name}-export"
    more = [f"model.source={source}", "warm_start=null", "model.compute_dtype=bfloat16", "training.max_steps=2"]
    run, end = train(tmp_path / "run", *LORA, *more)
    assert end["ending"] == "FINISHED" and not run.start.exists(), end
    setup, _, policy, _ = standalone._open(run.path, standalone._recipe_for(run.path))
    original = convert.read(source, setup.dims, setup.mesh)
    jax.tree.map(np.testing.assert_array_equal, policy.base, qwen3.cast(original, jnp.bfloat16))
    weights(run)
    exported = transformers.Qwen3ForCausalLM.from_pretrained(run.path.parent / "run-export")
    got = np.asarray(exported.model.layers[1].mlp.down_proj.weight.detach().float()).T
    a, b = (np.asarray(policy.adapters["layers"]["down"][k][1]) for k in "ab")
    expected = np.asarray(policy.base["layers"]["down"][1], np.float32) + setup.lora_scale * a @ b
    np.testing.assert_allclose(got, expected, rtol=2**-8, atol=1e-6)
