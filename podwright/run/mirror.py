"""A run that is kept in a storage, seen from a launcher: what it puts there, what it brings from there, and runs of other machines."""

from __future__ import annotations

from pathlib import Path

from podwright.errors import UserError
from podwright.rundir import RunDir, recipe_of, write_json
from podwright.storage import inputs, name_of_run, open_storage, process_files, records, url_of_run
from podwright.storage.base import Conflict, Storage, StorageFailure

_GIVEN = ("recipe.json", "plan.json", "profile.json", inputs.LIST)  # the last may change, the others never do
PATIENCE_S = 5.0  # of a launcher with a storage that fails, while an attempt runs
_FOLDER = "run/"  # of the files that a launcher writes: a storage in a folder is not to look like a run directory
_JOURNAL = f"{_FOLDER}journal.jsonl"


def keep_in(run: RunDir, base: str, created: float, cwd: Path) -> str:
    """The URL below `base` at which the run, created at Unix time `created`, is kept; what the trainer needs is there afterwards.

    Harmless when it is repeated. StorageFailure when the storage cannot be written.
    """
    if not run.storage_url:
        write_json(run.storage, {"url": url_of_run(base, run.name, created)})
    storage = open_storage(run.storage_url)
    inputs.upload(run, recipe_of(run), cwd, storage)
    for name in _GIVEN:
        if (run.path / name).exists():
            own, there = (run.path / name).read_bytes(), storage.read(_FOLDER + name)
            if there is None or there.data != own:
                storage.write(_FOLDER + name, own)
    return run.storage_url


def bring(run: RunDir, ended_attempt: int = 0) -> str:
    """Bring what is new in the run's storage, and put its journal there; what went wrong, or "". Nothing for a run without one.

    `ended_attempt`: whose processes have left their files there. The ending depends on them and is waited for; what a launcher brings
    while an attempt runs comes with the next time.
    """
    if not run.storage_url:
        return ""
    storage = open_storage(run.storage_url, None if ended_attempt else PATIENCE_S)
    try:
        records.bring(run, storage)
        if ended_attempt:
            process_files.bring(run, storage, ended_attempt)
        _publish_journal(run, storage)
    except StorageFailure as e:
        return f"{e.what}; {e.fix}"
    return ""


def fetch(url: str, runs: Path) -> RunDir:
    """The run that is kept at `url`, in `runs` under its name; brought up to date if it is there already."""
    url = url.rstrip("/")
    run, storage = RunDir(runs / name_of_run(url)), open_storage(url)
    if run.path.exists():
        if run.storage_url != url:
            kept = f" is kept in {run.storage_url}" if run.storage_url else " is another run"
            raise UserError(f"{run.path}{kept}, not in {url}", "type --runs DIR for another place")
        _bring_given(run, storage)
        _bring_journal(run, storage)
        records.bring(run, storage)
        process_files.bring(run, storage)
        return run
    if (journal := storage.read(_JOURNAL)) is None:
        raise UserError(f"there is no run in {url}", "check the URL: NAME-TAG below the storage of a target")
    run.path.mkdir(parents=True)
    write_json(run.storage, {"url": url})
    _bring_given(run, storage)
    records.bring(run, storage)
    process_files.bring(run, storage)
    run.journal.write_bytes(journal.data)  # last: a directory without one is no run
    return run


def is_storage(path: Path) -> bool:
    """Whether a run is kept in the folder `path`."""
    return (path / _JOURNAL).is_file()


def _bring_given(run: RunDir, storage: Storage) -> None:
    for name in _GIVEN:
        if (given := storage.read(_FOLDER + name)) is not None:
            (run.path / name).write_bytes(given.data)


def _publish_journal(run: RunDir, storage: Storage) -> None:
    """UserError when another machine has gone on with the run."""
    own, there = run.journal.read_bytes(), storage.read(_JOURNAL)
    if there is not None and there.data.startswith(own):
        if there.data != own:
            raise _driven_elsewhere(run)
        return
    if there is not None and not own.startswith(there.data):
        raise _driven_elsewhere(run)
    try:
        storage.write(_JOURNAL, own, there.generation if there else 0)
    except Conflict as e:
        raise _driven_elsewhere(run) from e


def _bring_journal(run: RunDir, storage: Storage) -> None:
    there = storage.read(_JOURNAL)
    if there is not None and there.data.startswith(run.journal.read_bytes()):
        run.journal.write_bytes(there.data)


def _driven_elsewhere(run: RunDir) -> UserError:
    return UserError(
        f"run {run.name} went on from another machine: its journal in {run.storage_url} is another than here",
        f"leave it to that machine, or type its URL to take its state over: podwright watch {run.storage_url}",
    )
