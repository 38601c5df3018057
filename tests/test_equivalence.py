"""The equivalence corpus notices what vanished or changed between two states of the product, accepts what was added, and answers the same twice."""

import importlib
import json
import lzma
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "bench" / "equivalence"
BASE: dict[str, Any] = {
    "plans": {"a plan": {"code": 0, "document": {"verdict": "ok", "memory": [1.5, 2.0], "findings": {"mesh error": {"count": 1}}}}},
    "bad_inputs": {"a value": {"code": 3, "verdict": "refused", "names_value": True}},
    "scripts": {"a script": {"document": {"argv": ["xpk", "--zone=a"], "text": "one\ntwo\n"}}},
}  # fmt: skip


MOST_COVERED = 0.05


@pytest.fixture
def equivalence(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return importlib.import_module("equivalence")


@pytest.fixture
def differing(equivalence: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    """Compares BASE with BASE after `change`; the exit code and the lines printed."""
    monkeypatch.setattr(equivalence, "BENCH", tmp_path)
    (tmp_path / "equivalence").mkdir()

    def compared(change: Any, wanted: str = "[]") -> tuple[int, list[str]]:
        now = json.loads(json.dumps(BASE))
        change(now)
        (tmp_path / "equivalence" / "differences.yaml").write_text(wanted)
        for name, sections in (("base.json", BASE), ("now.json", now)):
            (tmp_path / name).write_text(json.dumps({"about": {}, "sections": sections}))
        code = equivalence.main(["compare", str(tmp_path / "base.json"), str(tmp_path / "now.json")])
        return code, capsys.readouterr().out.splitlines()

    return compared


def test_the_same_answers_and_added_keys_are_no_difference(differing: Any) -> None:
    def add(now: Any) -> None:
        now["plans"]["another plan"] = {"code": 1}
        now["plans"]["a plan"]["document"]["findings"]["memory error"] = {"count": 1}
        now["plans"]["a plan"]["document"]["memory"][0] += 1e-12

    assert differing(lambda now: None) == (0, [])
    assert differing(add) == (0, [])


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("plans/a plan/document/findings", {}, "vanished: plans/a plan/document/findings/mesh error: {'count': 1}"),
        ("plans/a plan", {}, "vanished: plans/a plan/code: 0"),
        ("plans/a plan/document/verdict", "refused", "changed: plans/a plan/document/verdict: 'ok' -> 'refused'"),
        ("plans/a plan/document/memory", [1.5, 2.1], "changed: plans/a plan/document/memory/1: 2.0 -> 2.1"),
        ("plans/a plan/document/memory", [1.5], "vanished: plans/a plan/document/memory/1: 2.0"),
        ("plans/a plan/document/memory", [0.5, 1.5, 2.0], "added: plans/a plan/document/memory/-1+: None -> 0.5"),
        ("plans/a plan/code", False, "changed: plans/a plan/code: 0 -> False"),
        ("bad_inputs/a value/verdict", "ok", "became ok: bad_inputs/a value/verdict: 'refused' -> 'ok'"),
        ("bad_inputs/a value/names_value", False, "changed: bad_inputs/a value/names_value: True -> False"),
        ("scripts/a script/document/argv", ["xpk", "--zone=b"], "changed: scripts/a script/document/argv/1: '--zone=a' -> '--zone=b'"),
        ("scripts/a script/document/text", "one\n2\n", "changed: scripts/a script/document/text/line 2: 'two' -> '2'"),
        ("scripts/a script/document/text", "one\nand\ntwo\n", "added: scripts/a script/document/text/line 1+: None -> 'and'"),
        ("scripts/a script/document/text", "two\n", "vanished: scripts/a script/document/text/line 1: 'one'"),
    ],
)  # fmt: skip
def test_what_vanished_or_changed_is_printed_with_its_path(differing: Any, path: str, value: Any, line: str) -> None:
    def change(now: Any) -> None:
        *parents, last = path.split("/")
        for key in parents:
            now = now[key]
        now[last] = value

    code, lines = differing(change)
    assert code == 1 and line in lines


def test_a_wanted_line_hides_no_other_line_and_no_other_item(differing: Any) -> None:
    def change(now: Any) -> None:
        now["scripts"]["a script"]["document"] = {"argv": ["xpk", "--new", "--zone=b"], "text": "1\ntwo\n3\n"}

    document = "scripts/a script/document"
    rows = f"[{{path: '{document}/text/line 1', reason: x}}, {{path: '{document}/argv/0+', reason: x}}]"
    assert differing(change, rows) == (1, [
        f"changed: {document}/argv/1: '--zone=a' -> '--new'",
        f"added: {document}/argv/1+: None -> '--zone=b'",
        f"added: {document}/text/line 2+: None -> '3'",
    ])  # fmt: skip


@pytest.mark.usefixtures("equivalence")
def test_the_wanted_differences_cover_little_of_each_section() -> None:
    """A row with a wildcard that covers a whole section would hide what else changes there."""
    compare = importlib.import_module("equivalence_compare")
    base = json.loads(lzma.decompress((DATA / "base.json.xz").read_bytes()))["sections"]
    wanted = compare.Wanted.read(DATA / "differences.yaml")
    shares = {name: round(wanted.covered({name: answers}), 3) for name, answers in base.items()}
    assert max(shares.values()) <= MOST_COVERED, shares


def test_wanted_differences_are_subtracted_and_need_a_reason(differing: Any) -> None:
    def change(now: Any) -> None:
        now["bad_inputs"]["a value"] |= {"verdict": "ok", "code": 0}

    row = "[{path: 'bad_inputs/a value/*', reason: rows of this layout are read}]"
    assert differing(change, row) == (1, ["became ok: bad_inputs/a value/verdict: 'refused' -> 'ok'"])
    assert differing(change, row.replace("read}", "read, may_become_ok: true}")) == (0, [])
    with pytest.raises(SystemExit, match="path, reason"):
        differing(change, "[{path: 'bad_inputs/*'}]")


def test_a_verdict_is_written_as_a_result(differing: Any, equivalence: ModuleType, tmp_path: Path) -> None:
    differing(lambda now: now["bad_inputs"]["a value"].update(code=4), "[{path: 'plans/*/code', reason: x}]")
    files = [str(tmp_path / name) for name in ("base.json", "now.json")]
    assert equivalence.main(["compare", *files, "--out", str(tmp_path / "verdict.json")]) == 1
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert verdict["left"] == ["changed: bad_inputs/a value/code: 3 -> 4"] and verdict["wanted"] == 0
    assert verdict["sections"]["plans"] == {"answers": 1, "covered": 0.2} and verdict["commit"]


def test_what_differs_from_day_to_day_is_left_out(equivalence: ModuleType) -> None:
    normal = importlib.import_module("equivalence_normal").Normal({"/a/b": "CWD", "/a": "TREE"})
    given = {
        "version": "0.2",
        "x": ["/a/b/c /a/d r-20261127-0102", 1 / 3],
        "y": "sha 0123456789abcdef 0123456789",
        "z": "ssh-ed25519 AAAA+/= me",
    }
    assert normal.value(given) == {
        "x": ["CWD/c TREE/d r-DATE", 0.333333333333],
        "y": "sha HASH 0123456789",
        "z": "ssh-ed25519 KEY me",
    }
    words = {"notes": ["8 steps", "of 2,000"], "fix": "type 7", "message": ""}
    assert normal.value(words) == {
        "notes": {"given": True, "numbers": {"8": 1, "2,000": 1}},
        "fix": {"given": True, "numbers": {}},
        "message": {"given": False, "numbers": {}},
    }


def test_the_corpus_has_as_much_as_it_promises() -> None:
    cases = yaml.safe_load((DATA / "cases.yaml").read_text())
    assert len(cases["plans"]) >= 20 and sum("--compile" in str(case) for case in cases["plans"].values()) >= 3
    bad = sum(len(rows) for part in ("bad_values", "bad_targets") for rows in cases[part].values())
    assert bad + len(cases["bad_scripts"]) + len(cases["bad_files"]) >= 150
    targets = {entry["kind"] for entry in yaml.safe_load((DATA / "targets.yaml").read_text()).values()}
    assert targets == {"slurm", "ssh", "tpu-vm", "gke"}
    with tarfile.open(DATA / "runs.tar.xz") as tar:
        names = {name.partition("/")[0] for name in tar.getnames()}
    assert len(names) >= 8 and {name.partition("-")[0] for name in names} == {
        "grpo", "pretrain", "contrastive", "multimodal", "maxtext",
    }  # fmt: skip
    with lzma.open(DATA / "lives.jsonl.xz", "rt") as f:
        assert len({json.loads(line)["name"] for line in f}) >= 200


@pytest.mark.long
def test_the_whole_corpus_is_answered_the_same_twice(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("base.json.xz", "now.json.xz")]
    for file in files:
        _call("record", "--out", file)
    assert _call("compare", *files).stdout == ""


def _call(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "bench" / "equivalence.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done
