"""What a resource looked like at any time of the last two minutes, for readers that lag behind."""

import time
from typing import Any

Json = dict[str, Any]
HISTORY_S = 120.0


def keep(record: Json, message: Json | None) -> None:
    """From now on the record looks like this; None: it is gone."""
    now, past = time.time(), record["history"]
    while len(past) > 1 and past[1][0] < now - HISTORY_S:
        past.pop(0)
    past.append([now, message])


def view(record: Json, at: float) -> Json | None:
    """The message of a record as of the time `at`; None: there was none."""
    shown: Json | None = None
    for since, message in record["history"]:
        if since > at:
            break
        shown = message
    return shown
