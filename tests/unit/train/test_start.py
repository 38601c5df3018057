"""Where a run's weights come from: a directory, the hub's cache, a hub that cannot be reached."""

import contextlib
import dataclasses
import errno
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants
import numpy as np
import pytest
from safetensors.numpy import save_file

from podwright.data.layouts import Example
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.recipe import hf_config, hf_weights
from podwright.recipe.models import MODELS
from podwright.rundir import RunDir, read_jsonl
from podwright.train.emit import Emitter
from podwright.train.grpo import start, warm_start
from tests.unit.train import small

MICRO = MODELS["qwen3-micro"]
A, B = "a" * 40, "b" * 40


def write_config(folder, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    d = MICRO
    config = {
        "model_type": "qwen3",
        "hidden_size": d.hidden_size,
        "intermediate_size": d.intermediate_size,
        "num_hidden_layers": d.num_layers,
        "num_attention_heads": d.num_heads,
        "num_key_value_heads": d.num_kv_heads,
        "head_dim": d.head_dim,
        "vocab_size": d.vocab_size,
        "tie_word_embeddings": True,
        "max_position_embeddings": d.max_positions,
        "rope_theta": d.rope_theta,
    }
    (folder / "config.json").write_text(json.dumps(config | changes))
    shapes = hf_weights.qwen3(hf_config.qwen3(config | changes))
    save_file({name: np.zeros(shape, np.float16) for name, shape in shapes.items()}, folder / "model.safetensors")
    return folder


def dimensions(folder, name):
    recipe = small.recipe(f"model.name={name}", f"model.source={folder}")
    return start.dimensions(recipe, start.find_source(recipe))


def test_a_known_name_must_agree_with_the_checkpoint_and_any_other_is_a_label(tmp_path):
    assert dimensions(write_config(tmp_path), "qwen3-micro") == MICRO
    assert dimensions(write_config(tmp_path, num_hidden_layers=5), "mine") == dataclasses.replace(MICRO, num_layers=5)
    with pytest.raises(
        UserError, match=r"is no qwen3-micro: it has num_layers=5 instead of 2; .*as in model\.name=mine"
    ):
        dimensions(tmp_path, "qwen3-micro")
    with pytest.raises(UserError, match="'mine' is not a known model"):
        dimensions("random", "mine")


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_config_that_cannot_be_read_is_one_line(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"no readable config\.json"):
        dimensions(tmp_path, "mine")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A hub cache that holds two commits of some/model, the newer of which is A."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--some--model"
    for commit in (A, B):
        write_config(folder / "snapshots" / commit)
    (folder / "refs").mkdir()
    (folder / "refs/main").write_text(A)
    return folder


def test_a_hub_id_is_the_commit_it_stands_for_or_the_one_that_is_asked_for(cache):
    recipe = small.recipe("model.source=some/model")
    assert start.find_source(recipe) == start.Source(cache / "snapshots" / A, A)
    assert start.find_source(recipe, B) == start.Source(cache / "snapshots" / B, B)
    with pytest.raises(UserError, match=f"cannot be fetched from the hub at commit {'c' * 40}"):
        start.find_source(recipe, "c" * 40)


def test_a_full_disk_is_no_model_that_is_missing(monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/models/blobs/1")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", full)
    with pytest.raises(UserError) as e:
        start.find_source(small.recipe("model.source=some/model"))
    assert e.value.code == "full-disk"


def test_every_process_has_the_tokenizer_that_the_first_one_kept(tmp_path, monkeypatch):
    run = RunDir(tmp_path)
    rows = [Example(f"{n} + {n}?", str(2 * n), f"#### {2 * n}") for n in range(9)]
    kept = start.tokenizer(run, start.Source(None), MICRO, rows)
    sent = kept.texts
    monkeypatch.setattr(start, "from_first", lambda find: sent)
    more = [*rows, Example("apples, pears and plums?", "1", "apples, pears and plums #### 1")]
    monkeypatch.setattr(start.jax, "process_index", lambda: 1)
    elsewhere = start.tokenizer(RunDir(tmp_path / "of another host"), start.Source(None), MICRO, more)
    assert elsewhere.texts == sent and elsewhere.encode("apples") == kept.encode("apples")


@contextlib.contextmanager
def answering(answer: bytes):
    """A proxy that says the same to everybody; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = server.accept()
                    with peer:
                        peer.recv(65536)
                        peer.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.brief(1)
@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", b"this is no HTTP\r\n\r\n", b""],
    ids=["refuses", "babbles", "hangs up"],
)
def test_a_hub_that_cannot_be_reached_is_one_line(tmp_path, answer):
    code = (
        "from podwright.recipe import load\nfrom podwright.train.grpo import start\nfrom podwright.errors import UserError\n"
        "try:\n    start.find_source(load.load('qwen3-tiny-arithmetic-grpo', ['model.source=some/model']))\n"
        "except UserError as e:\n    print(e)"
    )
    with answering(answer) as proxy:
        env = os.environ | {"HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path), "https_proxy": proxy, "HTTPS_PROXY": proxy}
        argv = [sys.executable, "-c", code]
        done = subprocess.run(argv, cwd=Path(__file__).parents[3], env=env, capture_output=True, text=True, timeout=120)
    assert "cannot be fetched from the hub" in done.stdout and "type model.source=DIRECTORY" in done.stdout, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("bad", "blames_weights"), [(1, True), (2, True), (3, False)])
def test_a_warm_start_that_is_not_finite_blames_the_rate_only_after_an_update(
    tmp_path, monkeypatch, bad, blames_weights
):
    setup = small.setup("warm_start.max_steps=50", "optimizer.warmup_ratio=0.1")  # the rate of the first step is 0
    shapes = (8, 6), (8,), (2, 8, 6), (2, 8)
    lessons = warm_start.Lessons(*[np.ones(shape, np.int32) for shape in shapes])
    monkeypatch.setattr(warm_start, "_lessons", lambda *_: lessons)
    losses = iter([1.0] * (bad - 1) + [np.nan])

    def step(state, *_):
        return state, {"loss": next(losses), "grad_norm": 1.0}

    emit = Emitter(RunDir(tmp_path), 1, mine=False)
    with pytest.raises(UserError, match=rf"step {bad} of the warm start: loss=nan") as refused:
        examples = [None] * 8
        warm_start.train(setup, step, small.params(setup), examples, None, emit, lambda: False, lambda _: None)
    assert ("learning_rate" in refused.value.fix) != blames_weights == ("start from other weights" in refused.value.fix)


@pytest.mark.parametrize(("too_long", "says"), [(0, []), (2, ["2 of 6 worked answers are left out"])])
def test_answers_that_the_warm_start_leaves_out_are_counted(tmp_path, too_long, says):
    setup = small.setup("rollout.max_prompt_length=96", "rollout.total_generation_steps=16")
    examples = [Example(f"{n}+1?", str(n + 1), f"{'x' * 16 * (n < too_long)}#### {n + 1}") for n in range(6)]
    emit = Emitter(RunDir(tmp_path), 1, mine=True)
    arguments = setup, None, small.params(setup), examples, Tokenizer.bytes(), emit
    assert warm_start.train(*arguments, stopping=lambda: True, stepped=lambda _: None) is None
    notices = [event["message"] for event in read_jsonl(emit.run.events) if event["event"] == "notice"]
    assert [notice.partition(" of the warm start: longer than 16 tokens")[0] for notice in notices] == says
