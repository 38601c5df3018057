"""Where MLflow keeps runs if the user's environment says so, as MLflow itself reads it. Imports no MLflow."""

from __future__ import annotations

import hashlib
import os
import re

URI = "MLFLOW_TRACKING_URI"
# Seconds and tries that a server has which does not answer, unless the user says otherwise: MLflow's own are 120 and 7.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "5", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}


def uri() -> str:
    """ "" where the environment names none."""
    return os.environ.get(URI, "")


def experiment() -> str:
    return os.environ.get("MLFLOW_EXPERIMENT_NAME", "")


def have_little_patience() -> None:
    for name, value in _PATIENCE.items():
        os.environ.setdefault(name, value)


def mark() -> str:
    """Of the server. Its address may hold a password, and is not written down."""
    return hashlib.sha256(uri().encode()).hexdigest()[:8] if uri() else ""


def public(text: str) -> str:
    """Without names and passwords in addresses."""
    return re.sub(r"//[^/@\s]+@", "//", text)
