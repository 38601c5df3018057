"""The newest profile of a run comes from its bucket to the write-up of its log."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from lab.bucket import EmulatedBucket
from podwright.cli import app
from podwright.report.maxtext import profile_files
from podwright.storage import open_storage
from podwright.storage.base import StoredObject

LOG = "".join(f"completed step: {n}, seconds: 2.000, loss: 3.000\n" for n in range(8))
RUN = "out/toy/tensorboard/plugins/profile"


def test_the_newest_profile_is_downloaded_with_a_file_for_each_host(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = open_storage(url)
    storage.write(f"{RUN}/2026_11_23_04_00_00/host-0.xplane.pb", b"old")
    time.sleep(0.02)
    for host in (0, 1):
        storage.write(f"{RUN}/2026_11_23_05_00_00/host-{host}.xplane.pb", b"new %d" % host)
    storage.write(f"{RUN}/2026_11_23_05_00_00/host-0.trace.json.gz", b"no")
    storage.write("out/toy/tensorboard/events", b"no")
    monkeypatch.chdir(tmp_path)
    Path("train.log").write_text(LOG)
    assert app.main(["report", "--log", "train.log", "-o", "out", "--profile", url]) == 0
    files = sorted(path for path in Path("out/profile").rglob("*") if path.is_file())
    assert [path.read_bytes() for path in files] == [b"new 0", b"new 1"]
    assert str(files[0]) == "out/profile/plugins/profile/2026_11_23_05_00_00/host-0.xplane.pb"
    r = json.loads(Path("out/report/result.json").read_text())
    assert r["profile"]["command"] == "xprof --logdir out/profile" and len(r["profile"]["files"]) == 2
    assert "downloaded 2 profile files; type xprof --logdir out/profile" in capsys.readouterr().out


def test_the_profile_that_was_written_last_counts_and_not_the_last_name() -> None:
    names = [
        ("b/plugins/profile/9/h.xplane.pb", 1.0),
        ("a/plugins/profile/1/h.xplane.pb", 2.0),
        ("plugins/profile/x", 9.0),
    ]
    objects = [StoredObject(name, 1, written) for name, written in names]
    assert [each.name for each in profile_files.newest(objects)[1]] == ["a/plugins/profile/1/h.xplane.pb"]


def test_a_place_without_a_profile_is_a_warning_and_the_write_up_is_there(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_storage(url).write("events", b"no")
    monkeypatch.chdir(tmp_path)
    Path("train.log").write_text(LOG)
    assert app.main(["report", "--log", "train.log", "--profile", url]) == 0
    err = capsys.readouterr().err
    assert f"no profile was downloaded: {url} has no profile" in err and err.count("\n") == 1
    assert Path("train-report/report/report.html").is_file()


def test_a_bucket_that_may_not_be_listed_is_a_warning(
    bucket: EmulatedBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.faults.status = 403
    monkeypatch.chdir(tmp_path)
    Path("train.log").write_text(LOG)
    assert app.main(["report", "--log", "train.log", "--profile", bucket.url]) == 0
    assert "failed (login" in capsys.readouterr().err and Path("train-report/report/result.json").is_file()


def test_a_name_that_leads_out_of_the_directory_is_no_profile(tmp_path: Path) -> None:
    objects = [
        StoredObject("plugins/profile/../h.xplane.pb", 1, 1.0),
        StoredObject("plugins/profile/.a/h.xplane.pb", 1, 1.0),
    ]
    assert profile_files.newest(objects) == ("", [])
    assert os.listdir(tmp_path) == []
