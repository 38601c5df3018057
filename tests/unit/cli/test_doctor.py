"""`podwright doctor` of this machine, whose machines are asked in a process of their own."""

import json
from pathlib import Path

from tests import verbs

ROOT = Path(__file__).parents[3]


def call(cwd: Path, *argv: str) -> tuple[int, str, str]:
    env = {"PYTHONPATH": str(ROOT), "PODWRIGHT_TARGETS": str(cwd / "targets.yaml"), "XLA_FLAGS": ""}
    result = verbs.call("doctor", *argv, env=env, cwd=cwd)
    return result.code, result.stdout, result.stderr


def test_this_machine(tmp_path: Path) -> None:
    code, out, err = call(tmp_path, "almodel-tiny", "--json")
    told = json.loads(out)
    assert code == 0 and (told["verdict"], told["ok"]) == ("ok", True) and len(told["machines"]) == 1, err
    assert told["findings"][0]["check"] == "machines" and not any(f["level"] == "error" for f in told["findings"])
    (tmp_path / "file").write_text("")
    code, out, _ = call(tmp_path, "almodel-tiny", "data.source=./none", "--runs", "file/runs")
    assert code == 3 and f"does not see {tmp_path}/none; put it on" in out and "file/runs cannot be written" in out
    assert out.endswith("local: refused: it will not run\n")


def test_the_verdict_is_that_of_the_plan_of_the_recipe(tmp_path: Path) -> None:
    unseen = ("qwen3-tiny-arithmetic-grpo", "model.source=Qwen/Qwen3-0.6B", "model.name=qwen3-0.6b")
    code, out, _ = call(tmp_path, *unseen)
    assert code == 4 and "inconclusive: model.source=Qwen/Qwen3-0.6B" in out
    assert out.endswith("local: inconclusive: not everything could be checked\n")
    code, out, _ = call(tmp_path, *unseen, "--json")
    told = json.loads(out)
    assert (code, told["verdict"], told["ok"]) == (4, "inconclusive", None)
    code, out, _ = call(tmp_path, "qwen3-tiny-arithmetic-grpo", "mesh.fsdp=3", "--on", "cpu-8", "--json")
    told = json.loads(out)
    assert (code, told["verdict"], told["ok"]) == (3, "refused", False)


def test_the_files_of_a_recipe_are_looked_for_from_where_its_user_stands(tmp_path: Path) -> None:
    code, out, err = call(tmp_path, "phase2-qwen2.5-0.5b-cluster")
    assert code == 3 and out.endswith("local: refused: it will not run\n"), err
    for name in ("data/phase2", "checkpoints/alignment/aligner.pt", "models/Cnn14_16k_mAP=0.438.pth"):
        assert f"does not see {tmp_path}/{name}; " in out


def test_what_is_wrong_with_what_was_typed_is_one_line(tmp_path: Path) -> None:
    assert call(tmp_path, "--on", "v6e-16")[0] == 2
    code, out, err = call(tmp_path, "almodel-tyni", "--json")
    assert code == 2 and "did you mean almodel-tiny" in json.loads(out)["fix"] and err.count("\n") == 1
