"""Whether there is anything at `eval --data SRC`, before the packages of the trainer are loaded."""

from __future__ import annotations

from pathlib import Path

from podwright.errors import UserError, expanded
from podwright.recipe.paths import looks_like_path, missing
from podwright.rundir import RunDir, recipe_of


def require(source: str, place: Path) -> None:
    """UserError for a path with nothing there, and for an id that is neither in the cache of the Hugging Face hub nor, as far as
    can be asked, on the hub. `place`: of the checkpoint; only a model of kind grpo is tested on data of the hub."""
    run = RunDir(place)
    if source in ("", "arithmetic") or (run.recipe.exists() and recipe_of(run)["kind"] != "grpo"):
        return
    if expanded(source).exists():
        return
    if looks_like_path(source, Path()):
        raise missing("--data", source, Path())
    from podwright.plan.checks import hub

    answer = None if _is_cached(source) else hub.dataset(source)
    if answer is not None and answer.level != "info":
        what = answer.message.replace("data.source=", "--data=")
        fix = answer.fix if answer.level == "error" else "type --data with a .jsonl file or a directory"
        raise UserError(what, fix)


def _is_cached(source: str) -> bool:
    """Whether files of the data set were downloaded before."""
    try:
        from huggingface_hub import constants, file_download
    except ImportError:
        return False
    folder = file_download.repo_folder_name(repo_id=source, repo_type="dataset")
    prepared = Path(constants.HF_HOME, "datasets", source.replace("/", "___"))
    return prepared.is_dir() or any(Path(constants.HF_HUB_CACHE, folder).glob("snapshots/*/*"))
