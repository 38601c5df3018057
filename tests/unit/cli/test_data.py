"""The verbs of `podwright data`; their questions to the trainer's packages are answered in processes of their own."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests import verbs

ROOT = Path(__file__).parents[3]


def call(cwd: Path, *argv: str) -> tuple[int, str, str]:
    result = verbs.call("data", *argv, env={"PYTHONPATH": str(ROOT)}, cwd=cwd)
    return result.code, result.stdout, result.stderr


def test_from_text_to_shards_that_are_checked(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    code, out, err = call(
        tmp_path, "tokenize", "a.jsonl", "--tokenizer", "bytes", "--out", "made", "--shard-tokens", "1", "--json"
    )
    assert code == 0, err
    assert json.loads(out) | {
        "out": "made",
        "tokens": 10,
        "documents": 2,
        "shards": 2,
        "vocab_size": 259,
    } == json.loads(out)
    assert sorted(p.name for p in (tmp_path / "made").iterdir())[-1] == "meta.json"
    assert call(tmp_path, "count", "made")[1] == "made: 2 documents, 10 tokens, 2 shards\n"
    code, out, _ = call(tmp_path, "check", "made", "--json")
    assert code == 0 and json.loads(out)["faults"] == []
    code, out, _ = call(tmp_path, "check", "made", "--vocab-size", "257")
    assert code == 1 and out.startswith(
        "error: made/00000.npy: token 257 at offset 4 is outside the vocabulary of 257\n"
    )


def test_a_column_of_another_name_is_counted_and_tokenized_as_a_recipe_would_read_it(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "one"}\n{"body": "two"}\n')
    named = ("--columns", "{text: body}")
    assert call(tmp_path, "count", "a.jsonl", "--tokenizer", "bytes", *named)[1].startswith(
        "a.jsonl: 2 documents, 10 t"
    )
    assert call(tmp_path, "tokenize", "a.jsonl", "--tokenizer", "bytes", "--out", "made", *named)[0] == 0
    assert call(tmp_path, "count", "made")[1] == "made: 2 documents, 10 tokens, 1 shard\n"
    for verb in (("count", "a.jsonl", "--tokenizer", "bytes"), ("check", "a.jsonl")):
        code, out, err = call(tmp_path, *verb)
        assert code and "type --columns '{text: COLUMN}'" in out + err and "data.columns" not in out + err
    assert "'{question: COLUMN, answer: COLUMN}'" in out
    wrong = call(tmp_path, "count", "a.jsonl", "--tokenizer", "bytes", "--columns", "{question: a, answer: b}")
    assert wrong[0] == 2 and wrong[2].endswith("names no column of texts; type --columns '{text: COLUMN}'\n")


@pytest.mark.long
def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    code, out, err = call(tmp_path, "tokenize", "a.jsonl", "--tokenizer", "bytes", "--out", "made")
    assert (code, out, err) == (2, "", "error: there is no a.jsonl; check the path\n")
    code, out, _ = call(tmp_path, "check", "none", "--json")
    assert code == 2 and json.loads(out) == {
        "error": "there is no none",
        "fix": "check the path",
        "code": "no-such-file",
    }
    for text in ("", "\n \n"):
        (tmp_path / "empty.jsonl").write_text(text)
        code, out, _ = call(tmp_path, "check", "empty.jsonl")
        assert code == 1 and out == "error: empty.jsonl holds no lines\nempty.jsonl: 1 fault in 0 lines, 0 valid\n"


def test_token_files_that_do_not_say_where_documents_end_are_counted(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.arange(100, dtype=np.uint16))
    assert call(tmp_path, "count", "ids.npy") == (0, "ids.npy: documents unknown, 100 tokens, 1 shard\n", "")
    code, out, _ = call(tmp_path, "check", "ids.npy")
    there = "1 shard, 1 valid, 100 tokens, documents unknown, vocabulary unknown, largest id 99"
    assert (code, out) == (0, f"ids.npy: OK: no problems found in {there}\n")


def test_the_home_of_a_user_that_is_not_here_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    refused = "error: ~no-user/x: ~no-user is no user of this machine; give the path from / on\n"
    assert call(tmp_path, "count", "a.jsonl", "--tokenizer", "~no-user/x") == (2, "", refused)
    assert call(tmp_path, "check", "a.jsonl", "--root", "~no-user/x") == (2, "", refused)


@pytest.mark.long
def test_lines_are_drawn_checked_and_repaired(tmp_path: Path) -> None:
    assert call(tmp_path, "draw", "cats", "--num-train", "3", "--num-test", "1")[0] == 0
    (tmp_path / "cats/train/00001.png").write_bytes(b"")
    code, out, err = call(tmp_path, "check", "cats", "--json")
    found = json.loads(out)
    assert (code, found["lines"], found["valid"], found["num_faults"]) == (1, 4, 3, 1), err
    assert found["faults"][0]["message"].startswith("cats/train.jsonl: line 2: image ")
    assert [found["files"][part]["lines"] for part in ("train", "val")] == [3, 1]
    code, out, err = call(tmp_path, "check", "cats/train.jsonl", "--fix", "--json")
    found = json.loads(out)
    assert (code, found["lines"], found["valid"], found["fixed"]) == (1, 3, 2, "cats/train.good.jsonl"), err
    assert found["faults"][0]["line"] == 2 and found["faults"][0]["field"] == "image"
    kept = (tmp_path / "cats/train.good.jsonl").read_bytes()
    (tmp_path / "cats/train.jsonl").write_bytes(kept + b"{}\n")
    code, _, err = call(tmp_path, "check", "cats/train.jsonl", "--fix")
    assert (
        code == 2
        and err.startswith("error: cats/train.good.jsonl is there already; move it away")
        and err.count("\n") == 1
    )
    assert (tmp_path / "cats/train.good.jsonl").read_bytes() == kept
    code, out, _ = call(tmp_path, "check", "cats/train.good.jsonl")
    first, *classes = out.splitlines()
    assert (code, first) == (0, "cats/train.good.jsonl: OK: no problems found in 2 lines, 2 valid")
    assert all(re.fullmatch(r"  [\w.]+: \w+ \(\d\)(, \w+ \(\d\))*", line) for line in classes) and classes
    for weights in ("phase2-tiny", "phase2-qwen2.5-0.5b-cluster"):
        code, out, err = call(tmp_path, "check", "cats/train.good.jsonl", "--recipe", weights)
        assert code == 0 if weights == "phase2-tiny" else "is not on this machine: tokens cannot be counted" in err, err
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "cats/val.jsonl").write_text("")
    code, out, err = call(tmp_path, "check", "cats")
    assert code == 1 and "error: cats/val.jsonl holds no lines\n" in out, err
    code, _, err = call(tmp_path, "check", "a.txt", "--fix")
    assert code == 2 and "--fix is for annotated lines" in err


@pytest.mark.long
def test_files_are_looked_for_below_a_root(tmp_path: Path) -> None:
    """Of annotated lines and of pairs, whose paths are relative to another folder than their own."""
    assert call(tmp_path, "draw", "cats", "--num-train", "4", "--num-test", "1")[0] == 0
    (tmp_path / "cats" / "lists").mkdir()
    (tmp_path / "cats" / "train.jsonl").rename(tmp_path / "cats" / "lists" / "annotated.jsonl")
    pairs = [{"text": f"cat {n}", "image": "val/00000.png"} for n in range(2)]
    (tmp_path / "cats" / "lists" / "pairs.jsonl").write_text("".join(json.dumps(x) + "\n" for x in pairs))
    for name in ("annotated", "pairs"):
        code, out, err = call(tmp_path, "check", f"cats/lists/{name}.jsonl")
        assert code == 1 and "there is no such file" in out, err
        code, out, err = call(tmp_path, "check", f"cats/lists/{name}.jsonl", "--root", "cats")
        assert code == 0 and "OK: no problems found in " in out and "warning" not in out, err
