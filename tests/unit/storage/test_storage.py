"""What holds for every storage, and what a bucket's client does when the bucket fails."""

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

from podwright.errors import UserError
from podwright.storage import base, name_of_run, open_storage, url_of_run
from podwright.storage.base import Cause, Conflict, StorageFailure
from podwright.storage.folder import Folder


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESTALE])
def test_a_folder_that_is_removed_while_it_is_listed_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """One that cannot be read is a fault of the storage: nothing may seem to be absent."""
    storage, scandir = Folder(str(tmp_path / "s"), 0.0), os.scandir
    storage.write("a/b", b"")
    storage.write("c", b"")

    def scanned(path: Any) -> Any:
        if str(path).endswith("/a"):
            raise OSError(code, os.strerror(code), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scanned)
    if code == errno.ENOENT:
        assert storage.names() == ["c"]
        return
    with pytest.raises(StorageFailure):
        storage.names()


def test_an_object_is_read_as_it_was_written_and_its_generation_changes_with_each_write(url):
    storage = open_storage(url)
    assert storage.read("a/b") is None
    first = storage.write("a/b", b"one")
    assert storage.read("a/b") == (b"one", first)
    second = storage.write("a/b", b"two")
    assert second != first and storage.read("a/b") == (b"two", second)


def test_a_conditional_write_is_refused_when_the_object_has_changed(url):
    storage = open_storage(url)
    first = storage.write("x", b"one", 0)
    with pytest.raises(Conflict):
        storage.write("x", b"other", 0)
    second = storage.write("x", b"two", first)
    with pytest.raises(Conflict):
        storage.write("x", b"stale", first)
    assert storage.read("x") == (b"two", second)


def test_names_are_listed_by_prefix_and_deleted(url):
    storage = open_storage(url)
    for name in ("b/2", "b/1", "bc", "a/1"):
        storage.write(name, b"")
    assert storage.names("b/") == ["b/1", "b/2"] and storage.names("b") == ["b/1", "b/2", "bc"]
    assert [each.name for each in storage.objects("b/")] == ["b/1", "b/2"]
    storage.delete("b/1")
    storage.delete("b/1")
    assert storage.names() == ["a/1", "b/2", "bc"]


def test_a_list_has_sizes_and_times(url):
    storage = open_storage(url)
    storage.write("a", b"four")
    (listed,) = storage.objects()
    assert (listed.name, listed.size_bytes) == ("a", 4) and abs(listed.time - time.time()) < 60


def test_files_go_up_and_come_down_whole(url, tmp_path):
    storage = open_storage(url)
    (tmp_path / "source").write_bytes(bytes(range(256)) * 1000)
    storage.upload(tmp_path / "source", "inputs/x")
    storage.download("inputs/x", tmp_path / "deep" / "copy")
    assert (tmp_path / "deep" / "copy").read_bytes() == (tmp_path / "source").read_bytes()
    with pytest.raises(FileNotFoundError):
        storage.download("inputs/none", tmp_path / "none")
    assert sorted(p.name for p in (tmp_path / "deep").iterdir()) == ["copy"] and not (tmp_path / "none").exists()


def test_objects_are_moved_by_prefix(url):
    storage = open_storage(url)
    for name in ("checkpoints/4/a", "checkpoints/4/d/b", "checkpoints/40/a"):
        storage.write(name, name.encode())
    storage.move("checkpoints/4/", "checkpoints/4.damaged/")
    assert storage.names() == ["checkpoints/4.damaged/a", "checkpoints/4.damaged/d/b", "checkpoints/40/a"]
    assert storage.read("checkpoints/4.damaged/d/b").data == b"checkpoints/4/d/b"


@pytest.mark.parametrize("status", [503, 429, 500, 408])
def test_passing_failures_of_a_bucket_are_waited_for(bucket, status):
    storage = open_storage(bucket.url)
    bucket.faults.status, bucket.faults.count = status, 3
    generation = storage.write("x", b"one", 0)
    assert storage.read("x") == (b"one", generation)
    assert [r.status for r in bucket.log].count(status) == 3


def test_a_write_whose_answer_is_lost_is_not_refused_when_it_is_repeated(bucket):
    storage = open_storage(bucket.url)
    storage.write("y", b"")  # whatever a client asks at first
    bucket.faults.cuts, bucket.faults.count, bucket.faults.only = True, 1, lambda r: r.object_name == "x"
    generation = storage.write("x", b"one", 0)
    assert [r.status for r in bucket.log if r.method == "POST" and r.object_name == "x"] == [200, 412]
    assert storage.read("x") == (b"one", generation)
    with pytest.raises(Conflict):
        storage.write("x", b"another", 0)


@pytest.mark.parametrize(
    ("status", "cause"), [(503, Cause.SERVER), (429, Cause.QUOTA), (401, Cause.LOGIN), (403, Cause.LOGIN)]
)
def test_a_lasting_failure_is_one_line_of_its_own_class_in_bounded_time(bucket, monkeypatch, status, cause):
    monkeypatch.setattr(base, "PATIENCE_S", 600.0 if cause is Cause.LOGIN else 2.0)
    bucket.faults.status = status
    begin = time.monotonic()
    with pytest.raises(StorageFailure) as e:
        open_storage(f"{bucket.url}/p").read("x")
    assert time.monotonic() - begin < 30  # a login that is refused now will be refused then
    assert e.value.cause is cause and e.value.what.startswith(f"storage {bucket.url}/p failed ({cause}: ")
    assert "\n" not in e.value.what + e.value.fix


def test_a_bucket_that_cannot_be_reached_is_a_failure_of_the_network(bucket, monkeypatch):
    monkeypatch.setattr(base, "PATIENCE_S", 1.0)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    with pytest.raises(StorageFailure) as e:
        open_storage(bucket.url).read("x")
    assert e.value.cause is Cause.NETWORK


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ValueError('UNAVAILABLE: Error reading "gs://b/x": HTTP response code: 503'), Cause.SERVER),
        (ValueError('PERMISSION_DENIED: Error writing "gs://b/x": HTTP response code: 403'), Cause.LOGIN),
        (ValueError('RESOURCE_EXHAUSTED: Error writing "gs://b/x": HTTP response code: 429'), Cause.QUOTA),
        (ValueError('DATA_LOSS: Error reading "gs://b/x": CRC32C mismatch'), None),
        (ValueError('NOT_FOUND: Error opening "zarr" driver: gs://b/x'), None),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 bytes"), None),
        (RuntimeError("UNAVAILABLE: connection to the coordination service was lost"), None),
        (OSError(116, "Stale file handle"), Cause.NETWORK),
        (OSError("Forbidden: https://storage.googleapis.com/b\nno"), Cause.LOGIN),
        (OSError(28, "No space left on device"), None),
        (FileNotFoundError("gs://b/x"), None),
    ],
)
def test_errors_of_all_clients_are_classed(error, cause):
    assert base.cause_of(error) == cause
    wrapped = RuntimeError("a library's own words")
    wrapped.__cause__ = error
    assert base.cause_of(wrapped) == cause


def test_the_url_of_a_run_tells_runs_of_one_name_apart_and_names_it():
    one, other = (url_of_run("gs://bucket/prefix/", "demo-1", created) for created in (1.5, 2.5))
    assert one != other and one.startswith("gs://bucket/prefix/demo-1-") and name_of_run(one) == "demo-1"
    with pytest.raises(UserError, match="is not the storage of a run; give a URL that ends with NAME-TAG"):
        name_of_run("gs://bucket/prefix")


@pytest.mark.parametrize("url", ["s3://bucket/x", "gs://", "http://x/y"])
def test_an_unknown_kind_of_storage_is_one_line(url):
    with pytest.raises(UserError, match="type gs://BUCKET/PREFIX, or the path of a folder"):
        open_storage(url)


def test_writing_makes_the_folder_of_a_run_but_not_the_one_that_it_is_in(tmp_path):
    (tmp_path / "file").touch()
    lost = open_storage(str(tmp_path / "lost" / "r-00000001"), 60.0)
    for act in (lambda: lost.write("x", b""), lambda: lost.upload(tmp_path / "file", "x")):
        with pytest.raises(base.StorageFailure, match=f"there is no folder {tmp_path}/lost; type mkdir -p"):
            act()
    assert lost.read("x") is None and not (tmp_path / "lost").exists()
    (tmp_path / "lost").mkdir()
    lost.write("x", b"1")
    assert lost.names() == ["x"]


@pytest.mark.parametrize("calls", [2, 10_000])
def test_a_folder_that_is_lost_for_a_moment_is_listed_and_moved_and_one_that_stays_lost_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """As NFS answers after its server was started again."""
    storage = Folder(str(tmp_path), patience_s=2.0)
    storage.write("a/1", b"x")
    failing = {"scandir": calls, "replace": calls}

    def stale(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def method(path: Path, *arguments: Any) -> Any:
            failing[name] -= 1
            if failing[name] >= 0:
                raise OSError(errno.ESTALE, "Stale file handle", str(path))
            return original(path, *arguments)

        monkeypatch.setattr(owner, name, method)

    stale(os, "scandir")
    stale(Path, "replace")
    if calls > 2:
        with pytest.raises(StorageFailure, match="Stale file handle"):
            storage.names()
        return
    assert storage.names("a/") == ["a/1"]
    storage.move("a/", "b/")
    assert [row.name for row in storage.objects()] == ["b/1"] and min(failing.values()) < 0
