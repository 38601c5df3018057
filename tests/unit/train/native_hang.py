"""A run of one process, `native_hang.py RUN CASE`: five steps, then native code that lets no Python run ("hangs", "stops"), or another five."""

import os
import re
import signal
import sys
import time
from pathlib import Path

from podwright.rundir import RunDir
from podwright.train.emit import Emitter
from podwright.train.watchdog import Patience, Watchdog

SHORT = Patience(first_s=1.0, least_s=1.0, most_s=1.0, grace_s=0.5)


def hang() -> None:
    re.match(r"(a+)+$", "a" * 40 + "b")


def main() -> None:
    run, case = RunDir(Path(sys.argv[1])), sys.argv[2]
    # While a handler runs, which native code may let run in between, the watchdog tells the sentry that Python runs.
    signal.signal(signal.SIGTERM, lambda *_: time.sleep(1.5 if case == "stops" else 0))
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    patience = Patience() if case == "stops" else SHORT
    watchdog = Watchdog(Emitter(run, 1, True), (0, 1), (lambda key, word: None, lambda key: None), patience)
    with watchdog.watching(), watchdog.pacing(0):
        for number in range(1, 11):
            if number == 6:
                print("step 5 has ended", flush=True)
                if case != "goes on":
                    hang()
                time.sleep(0.5)
                os.kill(os.getpid(), signal.SIGTERM)
                assert os.read(reader, 1)[0] == signal.SIGTERM, "whoever waited for signals before still gets them"
            time.sleep(0.05)
            watchdog.stepped(number)


if __name__ == "__main__":
    main()
