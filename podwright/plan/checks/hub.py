"""Whether an id is on the Hugging Face hub: looked for in its cache, asked of the hub where there is a network, else left unchecked."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from podwright.errors import message_of
from podwright.plan.checks import patience
from podwright.plan.findings import Finding
from podwright.rundir import Record

_TIMEOUT_S = 5.0  # of one question
_PATIENCE_S = 12.0  # of all about an id, names of hosts included


def dataset(source: str) -> Finding:
    return _of("data", source, "dataset")[0]


def model(source: str) -> tuple[Finding, Record | None]:
    """Also its config.json, where that is in the cache or the hub gives it."""
    return _of("model", source, "model")


def _of(check: str, source: str, kind: str) -> tuple[Finding, Record | None]:
    if patience.left_out(check):
        return _unchecked(check, f"{check}.source={source}", patience.LEFT_OUT)
    return _look_up(check, source, kind)


@functools.lru_cache(maxsize=16)  # a plan needs the answer several times
def _look_up(check: str, source: str, kind: str) -> tuple[Finding, Record | None]:
    key = f"{check}.source={source}"
    try:
        from huggingface_hub import constants, try_to_load_from_cache
    except ImportError:
        return _unchecked(check, key, "the package huggingface_hub is not installed here")
    try:
        cached = try_to_load_from_cache(source, "config.json") if kind == "model" else None
        config = _config(cached) if isinstance(cached, str) else None
        if config is not None:
            return Finding(check, "info", f"{key} is in the cache of the Hugging Face hub"), config
        if constants.HF_HUB_OFFLINE:
            return _unchecked(check, key, "HF_HUB_OFFLINE is set")
        answer = patience.soon(_PATIENCE_S, lambda: _ask(source, kind))
    except Exception as e:  # the hub's client raises dozens of types, also for what can be no id
        if type(e).__name__ in ("RepositoryNotFoundError", "HFValidationError"):
            what = f"{key} is no path here, and the Hugging Face hub has no {kind} of that name that you may read"
            return Finding(check, "error", what, "check the name, or log in with `hf auth login`", "not-on-hub"), None
        return _unchecked(check, key, f"the hub was asked and failed ({type(e).__name__}: {message_of(e, 120)})")
    if answer is None:
        return _unchecked(check, key, f"the hub has not answered within {_PATIENCE_S:.0f} s")
    return Finding(check, "info", f"{key} is on the Hugging Face hub"), answer.get("config")


def _ask(source: str, kind: str) -> Record:
    import huggingface_hub

    api = huggingface_hub.HfApi()
    if kind == "dataset":
        api.dataset_info(source, timeout=_TIMEOUT_S)
        return {}
    api.model_info(source, timeout=_TIMEOUT_S)
    try:
        path = api.hf_hub_download(source, "config.json", etag_timeout=_TIMEOUT_S)
    except Exception:  # a gated model is there, and its files are not for everybody
        return {}
    return {"config": _config(path)}


def _config(path: str) -> Record | None:
    try:
        config = json.loads(Path(path).read_text())
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) else None


def _unchecked(check: str, key: str, why: str) -> tuple[Finding, None]:
    what = f"{key} is taken as a Hugging Face hub id and was not checked: {why}"
    fix = f"give {check}.source as a directory, or plan where the hub can be reached"
    return Finding(check, "inconclusive", what, fix, "not-checked"), None
