"""The checkpoints that a verb lists and copies are those that a trainer would resume from."""

import json
import os

import pytest

from podwright.cli.app import main
from podwright.errors import UserError
from podwright.run import checkpoints
from podwright.rundir import RunDir, write_json
from podwright.storage import open_storage
from podwright.train.run_storage import RunStorage


@pytest.fixture
def kept(tmp_path, url):
    """A run with the checkpoints 4 and 12, one that was put aside and one that is not complete, all in a storage."""
    run = RunDir(tmp_path / "runs" / "r")
    run.path.mkdir(parents=True)
    run.journal.write_text(
        json.dumps({"event": "created", "time": 1.0, "recipe": "x", "target": "t", "cwd": "/"}) + "\n"
    )
    url = f"{url}/r-00000000"
    write_json(run.storage, {"url": url})
    storage = open_storage(url)
    for step in ("4", "12", "3.damaged"):
        for name, data in (("a", b"1"), ("d/b", b"234"), ("commit_success.txt", b"")):
            storage.write(f"checkpoints/{step}/{name}", data)
    storage.write("checkpoints/20.unfinished/a" if "://" not in url else "checkpoints/20/a", b"1")
    storage.write("checkpoints/notes.txt", b"1")
    for name in ("007/commit_success.txt", "²/commit_success.txt", f"{'9' * 99}x/commit_success.txt", "step-3.pt"):
        storage.write(f"checkpoints/{name}", b"1")
    return run


def test_what_is_listed_is_what_a_trainer_resumes_from(kept):
    rows = checkpoints.listed(kept)
    assert [row.step for row in rows] == [4, 12] == RunStorage.of(kept).steps()
    assert [row.size_bytes for row in rows] == [4, 4] and sorted(rows[0].files) == ["a", "commit_success.txt", "d/b"]


def test_one_is_copied_whole_and_a_step_that_is_not_there_is_one_line(kept, tmp_path):
    checkpoints.fetch(kept, 12, tmp_path / "new" / "copy")
    assert (tmp_path / "new/copy/d/b").read_bytes() == b"234" and os.listdir(tmp_path / "new") == ["copy"]
    with pytest.raises(UserError, match="exists already"):
        checkpoints.fetch(kept, 12, tmp_path / "new" / "copy")
    with pytest.raises(UserError, match=r"no checkpoint of step 20 in .*type one of 4, 12"):
        checkpoints.fetch(kept, 20, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_the_verb_lists_and_copies_those_of_a_run_in_its_directory(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = RunDir(tmp_path / "runs" / "r")
    run.checkpoints.mkdir(parents=True)
    run.journal.write_text(
        json.dumps({"event": "created", "time": 1.0, "recipe": "x", "target": "t", "cwd": "/"}) + "\n"
    )
    assert main(["checkpoints", "r"]) == 0 and "run r has no checkpoint yet" in capsys.readouterr().out
    (run.checkpoints / "step-00000012.pt").write_bytes(bytes(2 << 20))
    (run.checkpoints / "step-00000016.pt.unfinished").write_bytes(b"1")
    assert main(["checkpoints", "r"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[0] == "12" and lines[1].endswith("2.0 MiB") and len(lines) == 3
    assert main(["checkpoints", "r", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["checkpoints"]
    assert (row["step"], row["size_bytes"], row["num_files"]) == (12, 2 << 20, 1)
    assert main(["checkpoints", "r", "--fetch", "12"]) == 0
    assert (tmp_path / "r-step-12/step-00000012.pt").stat().st_size == 2 << 20
    assert main(["checkpoints", "r", "--out", "x"]) == 2
