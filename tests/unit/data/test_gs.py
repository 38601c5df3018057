"""gs:// through gcsfs, against a server of Google Cloud Storage's interface that runs here, and against one that never answers."""

import json
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest
from gcp_storage_emulator.server import create_server

from podwright.data import documents, shards
from podwright.data.tokens import Rows
from podwright.plan.checks import pretrain, token_lengths
from podwright.recipe.load import load
from podwright.recipe.location import Location
from podwright.recipe.pretrain import PretrainRecipe
from podwright.train import patient_gcs


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A free port that gcsfs is told to ask."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    monkeypatch.setenv(
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false"
    )  # asks by another protocol what kind of bucket it is
    yield f"127.0.0.1:{port}"
    fsspec.filesystem("gs").clear_instance_cache()


@pytest.fixture
def bucket(address: str) -> Iterator[str]:
    host, port = address.split(":")
    server = create_server(host, int(port), in_memory=True, default_bucket="bucket")
    server.start()
    yield "gs://bucket"
    server.stop()


def checked(source: str) -> list[str]:
    sizes = [
        "data.tokenizer=",
        "sequence_length=64",
        "batch_size=4",
        "training.max_steps=3",
        "evaluation.num_batches=1",
    ]
    recipe = load("almodel-tiny", [f"data.source={source}", *sizes])
    assert isinstance(recipe, PretrainRecipe)
    return [f"{f.level}: {f.message}" for f in pretrain.check(recipe, None, Path()) if f.check == "data"]


def test_tokens_of_a_bucket_are_those_of_a_disk(bucket: str, tmp_path: Path) -> None:
    text = tmp_path / "text.jsonl"
    text.write_text("".join(json.dumps({"text": f"line {i} " * (i % 7 + 1)}) + "\n" for i in range(300)))
    shards.tokenize([str(text)], "bytes", tmp_path / "made", 1000)
    fs = fsspec.filesystem("gs")
    for file in (tmp_path / "made").iterdir():
        fs.put(str(file), f"bucket/made/{file.name}")
    fs.put(str(text), "bucket/text.jsonl")
    assert [m.replace(f"{bucket}/made", "HERE") for m in checked(f"{bucket}/made")] == [
        m.replace(str(tmp_path / "made"), "HERE") for m in checked(str(tmp_path / "made"))
    ]
    assert checked(f"{bucket}/none") == [f"error: there is no {bucket}/none"]
    here, there = (Rows(documents.load(s, vocab_size=300), 64) for s in (str(tmp_path / "made"), f"{bucket}/made"))
    assert len(here) == len(there) > 50
    for i in (0, 7, len(here) - 1):
        assert all(np.array_equal(here[i][k], there[i][k]) for k in here[i])
    of_text = documents.load(f"{bucket}/text.jsonl", tokenizer="bytes", vocab_size=300)
    assert of_text.tokens == documents.load(str(tmp_path / "made")).tokens


@pytest.mark.usefixtures("counting_process")
def test_a_store_that_does_not_answer_keeps_no_plan_waiting(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_lengths, "_STORE_PATIENCE_S", 3.0)
    host, port = address.split(":")
    with socket.create_server((host, int(port))):
        began = time.monotonic()
        (finding,) = checked("gs://bucket/set")
        assert (
            finding.startswith("inconclusive: data and tokenizer were not checked")
            and "has not answered for 3 s" in finding
        )
        assert time.monotonic() - began < 30


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize("in_trainer", [False, True])
def test_a_client_logs_nothing_of_what_it_raises(caplog: pytest.LogCaptureFixture, in_trainer: bool) -> None:
    if in_trainer:
        patient_gcs.install()
    logging.getLogger("gcsfs").setLevel(logging.NOTSET)
    Location.of("gs://bucket/x")
    logging.getLogger("gcsfs").error("what it raises, with a traceback")
    assert not [record for record in caplog.records if record.name == "gcsfs"]
