"""What `podwright data check` says of files that a kind of recipe reads by other keys than "text"."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podwright.data import documents, faults, shards
from podwright.errors import UserError
from podwright.plan.checks import pretrain
from podwright.recipe.load import load
from podwright.recipe.pretrain import PretrainRecipe


def test_questions_with_answers_are_checked_as_grpo_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    rows = [
        {"question": "1+1?", "answer": "1+1=2\n#### 2"},
        {"question": "1+2?", "answer": "three"},
        {"question": "1+3?"},
        {"question": " ", "answer": "#### 4"},
        {"title": "a"},
        {"text": "a", "question": "b"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    record = faults.check(str(path))
    assert (record["lines"], record["valid"]) == (6, 2)
    messages = [f["message"].removeprefix(f"{path}") for f in record["faults"]]
    starts = (
        ":2: the answer has no '#### n'",
        ":3 is of no layout",
        ":4: question is empty",
        ":5 has no column 'text'",
    )
    assert [f["line"] for f in record["faults"]] == [2, 3, 4, 5]
    assert all(message.startswith(start) for message, start in zip(messages, starts, strict=True)), messages


def _tokenized(folder: Path) -> Path:
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": f"text {n} " * 5}) + "\n" for n in range(100)))
    shards.tokenize([str(folder / "a.jsonl")], "bytes", folder / "tokens", 10**8)
    return folder / "tokens"


def _refusals(source: Path, **settings: Any) -> tuple[list[str], str, list[str]]:
    """What the plan, training and `podwright data check` say of a source."""
    sizes = ["data.tokenizer=", "sequence_length=64", "batch_size=4", "evaluation.num_batches=1"]
    recipe = load("almodel-tiny", [f"data.source={source}", *sizes, *(f"data.{k}={v}" for k, v in settings.items())])
    assert isinstance(recipe, PretrainRecipe)
    plan = [f for f in pretrain.check(recipe, None, Path()) if f.check == "data"]
    training = ""
    try:
        documents.load(str(source), vocab_size=259, **settings)
    except UserError as e:
        training = str(e)
    check = [fault["message"] for fault in faults.check(str(source), 259)["faults"]]
    return [f"{f.message}; {f.fix}" for f in plan if f.level == "error"], training, check


def _damage(ends: Path, damage: str) -> None:
    content = ends.read_bytes()
    if damage == "a byte flipped":
        ends.write_bytes(content[:-3] + bytes([content[-3] ^ 4]) + content[-2:])
    elif damage == "cut":
        ends.write_bytes(content[:-3])
    elif damage == "empty":
        ends.write_bytes(b"")
    elif damage == "another array":
        np.save(ends, np.load(ends).astype(np.float64))
    else:  # one document longer by a token, and the next one shorter
        array = np.load(ends)
        array[7] += 1
        np.save(ends, array)


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("damage", ["a byte flipped", "cut", "empty", "another array", "off by a token"])
def test_damaged_ends_of_documents_are_refused_by_plan_training_and_check(
    tmp_path: Path, damage: str, checksum: bool
) -> None:
    source = _tokenized(tmp_path)
    assert faults.check(str(source))["warnings"] == []
    if not checksum:  # as the first versions wrote them
        meta = json.loads((source / "meta.json").read_text())
        for shard in meta["shards"]:
            del shard["ends_crc32"]
        (source / "meta.json").write_text(json.dumps(meta))
        (warning,) = faults.check(str(source))["warnings"]
        assert "where documents end was not verified by a checksum" in warning
    _damage(source / "00000.ends.npy", damage)
    plan, training, check = _refusals(source)
    if damage == "off by a token" and not checksum:
        assert not plan and not training and not check
    else:
        assert plan == [training] and "00000.ends.npy" in training and len(check) == 1
        assert training.startswith(check[0])


def test_a_missing_file_of_ends_is_named(tmp_path: Path) -> None:
    source = _tokenized(tmp_path)
    (source / "00000.ends.npy").unlink()
    plan, training, (check,) = _refusals(source)
    assert (
        plan == [training] == [check]
        and "00000.ends.npy is missing; 00000.npy needs it; copy the whole directory again" in check
    )


def test_documents_that_are_only_their_end_token_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "a.npy"
    np.save(source, np.full(5000, 7, np.uint16))
    plan, training, _ = _refusals(source, eos_id=7)
    assert plan == [training] and f"every document of {source} is only its end token, data.eos_id=7" in training
    assert "data.eos_id=null" in training
    assert _refusals(source) == ([], "", [])
    assert faults.check(str(source), 259)["warnings"][0].startswith(f"all 5,000 tokens of {source} are 7")
    np.save(source, np.array([7, 8] * 2500, np.uint16))
    assert _refusals(source, eos_id=7) == ([], "", []) and faults.check(str(source), 259)["warnings"] == []


def test_shards_of_single_tokens_are_refused(tmp_path: Path) -> None:
    source = _tokenized(tmp_path)
    meta = json.loads((source / "meta.json").read_text())
    (shard,) = meta["shards"]
    shard["documents"] = shard["tokens"]
    np.save(source / "00000.ends.npy", np.arange(1, shard["tokens"] + 1))
    shard["ends_crc32"] = zlib.crc32((source / "00000.ends.npy").read_bytes())
    (source / "meta.json").write_text(json.dumps(meta))
    plan, training, check = _refusals(source)
    assert plan == [training] == check and "has a single token" in training


def test_an_array_without_tokens_is_not_to_be_removed_where_it_is_the_source(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(0, np.uint16))
    for source, fix in ((tmp_path / "a.npy", "give a file with tokens"), (tmp_path, "remove it")):
        plan, training, (check,) = _refusals(source)
        assert plan == [training] == [check] and check.endswith(f"a.npy holds no tokens; {fix}")
