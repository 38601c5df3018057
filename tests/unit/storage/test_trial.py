"""A storage is tried before a run is kept there: what works leaves nothing behind, and what does not is one line."""

from pathlib import Path
from typing import Any

import pytest

from lab.bucket import EmulatedBucket, Request
from podwright.errors import UserError
from podwright.storage import open_storage, trial
from podwright.storage.base import StorageFailure, first_line


def refusal(url: str) -> UserError:
    with pytest.raises(UserError) as e:
        trial.require_usable(url)
    assert "\n" not in str(e.value)
    return e.value


def test_a_storage_that_works_passes_and_holds_nothing_of_the_trial(url: str) -> None:
    open_storage(url).write("other", b"kept")
    trial.require_usable(url)
    trial.require_usable(url)
    assert open_storage(url).names() == ["other"]


def test_the_object_of_a_trial_is_created_if_absent_read_listed_and_deleted(bucket: EmulatedBucket) -> None:
    trial.require_usable(f"{bucket.url}/runs")
    (name,) = {r.object_name for r in bucket.log if r.method == "POST"}
    assert name.startswith("runs/podwright-trial-")
    assert [r.status for r in bucket.log if r.method == "POST"] == [200, 412]
    assert all(r.query["ifGenerationMatch"] == "0" for r in bucket.log if r.method == "POST")
    assert [r.object_name for r in bucket.log if r.method == "DELETE"] == [name]


@pytest.mark.parametrize("require", [trial.require_usable, trial.require_listable])
@pytest.mark.parametrize(("status", "known"), [(403, True), (401, False)])
def test_a_plan_and_a_check_agree_on_a_login(bucket: EmulatedBucket, require: Any, status: int, known: bool) -> None:
    bucket.faults.status = status
    with pytest.raises(UserError, match=r"failed \(login: ") as e:
        require(bucket.url)
    assert isinstance(e.value, StorageFailure) is not known


@pytest.mark.parametrize("act", ["trial", "write", "names", "upload"])
def test_a_bucket_that_does_not_exist_is_named(bucket: EmulatedBucket, tmp_path: Path, act: str) -> None:
    (tmp_path / "file").touch()
    storage = open_storage("gs://no-such-bucket/runs")
    acts = {
        "trial": lambda: trial.require_usable("gs://no-such-bucket/runs"),
        "write": lambda: storage.write("x", b"", 0),
        "names": storage.names,
        "upload": lambda: storage.upload(tmp_path / "file", "x"),
    }
    with pytest.raises(UserError) as e:
        acts[act]()
    assert e.value.what == "storage gs://no-such-bucket/runs: there is no bucket no-such-bucket"
    assert e.value.fix.startswith("type gcloud storage buckets create gs://no-such-bucket, or ")


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_a_right_that_is_missing_names_the_role_that_has_it(bucket: EmulatedBucket, method: str) -> None:
    def concerns(request: Request) -> bool:
        return request.method == method and "/o" in request.path

    bucket.faults.status, bucket.faults.only = 403, concerns
    fault = refusal(bucket.url)
    assert fault.what.startswith(f"storage {bucket.url} failed (login: ") and "role storage.objectAdmin" in fault.fix


def test_without_a_login_the_line_says_how_to_log_in(
    bucket: EmulatedBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    fault = refusal(bucket.url)
    assert fault.what.startswith(f"storage {bucket.url} failed (login: no credentials of Google Cloud on this machine)")
    assert fault.fix.startswith("type gcloud auth application-default login")


def test_a_bucket_that_does_not_answer_is_given_up_after_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_PATIENCE_S", 1.0)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    fault = refusal("gs://pod-test/runs")
    assert fault.what.startswith("storage gs://pod-test/runs failed (network: ")
    assert fault.fix == "check the network between the hosts and the storage"


def test_a_folder_that_is_missing_is_not_made(tmp_path: Path) -> None:
    fault = refusal(f"{tmp_path}/my runs")
    assert fault.what == f"there is no folder {tmp_path}/my runs" and not (tmp_path / "my runs").exists()
    assert fault.fix == f"type mkdir -p '{tmp_path}/my runs', or correct storage of the target"


@pytest.mark.parametrize("below", ["", "/runs/mine"])
def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    fault = refusal(f"{tmp_path}/file{below}")
    assert fault.what == f"storage={tmp_path}/file{below}: {tmp_path}/file is a file, not a folder"
    assert fault.fix == "correct storage of the target"


def test_a_folder_that_cannot_be_written_is_one_line() -> None:
    fault = refusal("/sys/kernel")  # not even by root
    assert fault.what.startswith("folder /sys/kernel cannot be written (") and "right to write there" in fault.fix


class WithoutConditions(EmulatedBucket):
    """Takes every write, whatever it depends on, as a cache or a gateway before a store may do."""

    def _refused(self, request: Request) -> int:
        return 0


class LateList(EmulatedBucket):
    """Does not list what was just written."""

    def take(self, handler: Any, method: str) -> None:
        handler.path = handler.path.replace("prefix=", "prefix=earlier-")
        super().take(handler, method)


class LateObjects(EmulatedBucket):
    """Does not give what was just written."""

    def _refused(self, request: Request) -> int:
        return 404 if request.method == "GET" and request.object_name else super()._refused(request)


@pytest.mark.parametrize("kind", [WithoutConditions, LateList, LateObjects])
def test_a_storage_on_whose_answers_a_run_cannot_rely_is_refused(
    monkeypatch: pytest.MonkeyPatch, kind: type[EmulatedBucket]
) -> None:
    with kind() as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        assert refusal(made.url).what.startswith(f"storage {made.url} does not show, or does not keep")
        assert made.names() == []


def test_a_look_at_a_bucket_is_one_bounded_listing_and_writes_nothing(bucket: EmulatedBucket) -> None:
    trial.require_listable(f"{bucket.url}/runs")
    assert {r.method for r in bucket.log} == {"GET"}
    (listing,) = [r for r in bucket.log if r.path.endswith("/o")]
    assert listing.query["prefix"].startswith("runs/podwright-trial-")
    with pytest.raises(UserError, match="there is no bucket no-such-bucket"):
        trial.require_listable("gs://no-such-bucket/runs")


def test_a_look_at_a_folder_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tmp_path.stat().st_mtime_ns
    trial.require_listable(str(tmp_path))
    assert tmp_path.stat().st_mtime_ns == before and not list(tmp_path.iterdir())
    monkeypatch.setattr(trial.os, "access", lambda *_: False)  # of root, who has every right
    with pytest.raises(UserError, match=f"folder {tmp_path} cannot be written"):
        trial.require_listable(str(tmp_path))


def test_the_text_of_a_failure_is_not_cut_within_a_word() -> None:
    text = first_line(ConnectionError("words " * 40))
    assert text == "ConnectionError: " + "words " * 20 + "..."
    assert first_line(ConnectionError("word")) == "ConnectionError: word"
