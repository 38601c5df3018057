"""The Python environment that is brought to TPU VMs, whose image has Python 3.10: one folder for each lock file, kept between attempts."""

from __future__ import annotations

import hashlib
from importlib import resources

_FILES = resources.files("podwright.targets.tpu_vm")
_HERE = "../code/podwright/targets/tpu_vm"  # from the folder in which a host runs the lines of setup
_PYTHON = "3.12"


def _folder() -> str:
    """Below the home of the account; another one for other contents."""
    contents = (_FILES / "requirements.txt").read_bytes() + (_FILES / "environment.sh").read_bytes()
    return f".podwright-environments/{hashlib.sha256(contents).hexdigest()[:12]}"


def python() -> str:
    return f"~/{_folder()}/bin/python"


def setup_line() -> str:
    """Installs the environment unless it is whole already."""
    return f'bash {_HERE}/environment.sh "$HOME/{_folder()}" {_HERE}/requirements.txt {_PYTHON}'
