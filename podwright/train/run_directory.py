"""Ends a trainer whose run directory was deleted: no verb reaches its process any more, and it can write nothing down."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

LOOK_EVERY_S = 5.0
GONE_AFTER = 6  # looks in a row: a shared file system may be away for a moment


def guard(recipe: Path, every_s: float = LOOK_EVERY_S) -> None:
    """End this process once `recipe`, the recipe.json of its run, has not been there for `GONE_AFTER` looks, `every_s` seconds apart.

    That file is written once, by the launcher. The directory itself may come back: libraries create it when they write below it.
    """
    if recipe.exists():
        threading.Thread(target=_watch, args=(recipe, every_s), name="run-directory", daemon=True).start()


def is_deleted(recipe: Path) -> bool:
    """Whether the file is gone; a file system that does not answer has deleted nothing."""
    try:
        recipe.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _watch(recipe: Path, every_s: float) -> None:
    absent = 0
    while absent < GONE_AFTER:
        time.sleep(every_s)
        absent = absent + 1 if is_deleted(recipe) else 0
    with contextlib.suppress(OSError):  # the log may have been deleted with it
        text = f"the run directory {recipe.parent} was deleted: process {os.getpid()} of its trainer ends\n"
        os.write(1, text.encode())
    os._exit(1)
