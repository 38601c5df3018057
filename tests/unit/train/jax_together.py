"""One of several processes of JAX, `jax_together.py RUN CASE`: they sleep and meet, step after step, as a trainer's do."""

import sys
import time
from pathlib import Path

import jax

from podwright.rundir import RunDir
from podwright.train import mesh, observe
from podwright.train.checkpoint import attach
from podwright.train.emit import Emitter
from podwright.train.run_storage import AttemptStart
from podwright.train.watchdog import Patience

SHORT = Patience(first_s=60.0, least_s=4.0, most_s=4.0, grace_s=4.0)
STEPS = 90
# its frame is in the file in which jax waits for its compiler
COMPILER = "def compile(seconds): sleep(seconds)"


def main() -> None:
    mesh.start_processes()
    run, case, rank = RunDir(Path(sys.argv[1])), sys.argv[2], jax.process_index()
    storage = attach(run, AttemptStart(1, run.storage_url, takeover=True)) if run.storage_url else None
    emit = Emitter(run, 1, rank == 0, storage)
    names = {"sleep": time.sleep}
    exec(compile(COMPILER, "site-packages/jax/_src/compiler.py", "exec"), names)
    if case != "lags":
        observe.PATIENCE = SHORT
    with observe.observed(emit) as watchdog:
        times = observe.step_times()
        with watchdog.pacing(0):
            for number in range(1, STEPS + 1):
                begin = time.perf_counter()
                time.sleep((0.03 if rank == 1 else 0.01) if case == "lags" else 0.1)
                if case == "compiles" and number == 30:
                    names["compile"](3 * SHORT.least_s)
                own_s = time.perf_counter() - begin
                mesh.anywhere(False)
                for message in times.stepped(own_s, time.perf_counter() - begin):
                    emit.event("notice", message=message)
                emit.metrics("pretrain", number, {})
                watchdog.stepped(number)


if __name__ == "__main__":
    main()
