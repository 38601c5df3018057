"""What bench/results says of where a figure is from."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def stamped(folder: Path) -> dict[str, object]:
    code = "import json, stamp; print(json.dumps(stamp.stamp('bench/muon_tpu.py')))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder / "bench", capture_output=True, text=True, check=True
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_result_says_of_which_commit_it_is_and_whether_files_were_changed_since(tmp_path: Path) -> None:
    (tmp_path / "bench" / "results").mkdir(parents=True)
    shutil.copy(ROOT / "bench" / "stamp.py", tmp_path / "bench")
    (tmp_path / "code.py").write_text("1\n")
    (tmp_path / ".gitignore").write_text("__pycache__\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "a")
    clean = stamped(tmp_path)
    assert clean["commit"] == git(tmp_path, "rev-parse", "--short", "HEAD")
    assert clean["dirty"] is False and clean["bench"] == "muon_tpu"
    (tmp_path / "bench" / "results" / "muon_tpu.json").write_text("{}\n")
    assert stamped(tmp_path)["dirty"] is False, "the result itself is no change of what was measured"
    (tmp_path / "code.py").write_text("2\n")
    assert stamped(tmp_path)["dirty"] is True
    git(tmp_path, "checkout", "-q", "code.py")
    (tmp_path / "new.py").write_text("3\n")
    assert stamped(tmp_path)["dirty"] is True, "a new file may be imported"
