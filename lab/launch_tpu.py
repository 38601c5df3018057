"""`podwright` that asks a simulated cloud more often than it may ask the real one, and waits less.

POLL_S, LAG_S, REPAIR_S, CHECK_LIMIT_S and the like in the environment are for trainers that need the processors themselves; GATHER_S is the
time between two looks at complete files on the hosts. lab/launcher.py says what else it does.
"""

import os
import sys

from lab import launcher
from podwright.cli.app import main
from podwright.run import allocations, decide, drive, mirror, waiting
from podwright.targets.hosts import runner
from podwright.targets.settings import tpu_vm
from podwright.targets.tpu_vm import provisioner, target

tpu_vm.POLL_S, tpu_vm.SPOT_NOTICE_S = float(os.environ.get("POLL_S", "0.3")), 3.0
tpu_vm.REPAIR_S = float(os.environ.get("REPAIR_S", "60"))
tpu_vm.SILENCE_S = float(os.environ.get("SILENCE_S", tpu_vm.SILENCE_S))
mirror.CHECK_EVERY_S = float(os.environ.get("CHECK_EVERY_S", mirror.CHECK_EVERY_S))
allocations.REST_S = float(os.environ.get("REST_S", allocations.REST_S))
decide.SILENT_STOP_S = float(os.environ.get("SILENT_STOP_S", decide.SILENT_STOP_S))
waiting.SHOWN_AFTER_S = float(os.environ.get("SHOWN_AFTER_S", waiting.SHOWN_AFTER_S))
tpu_vm.LAG_S = provisioner.LAG_S = float(os.environ.get("LAG_S", "1"))
target.CHECK_LIMIT_S = float(os.environ.get("CHECK_LIMIT_S", "10"))
runner.GATHER_EVERY_S = float(os.environ.get("GATHER_S", runner.GATHER_EVERY_S))
drive.TICK_S = 0.05
if "LIFE_S" in os.environ:  # shorter than the settings allow
    tpu_vm.TpuVmSettings.life_s = property(lambda _: float(os.environ["LIFE_S"]))  # type: ignore[method-assign]
launcher.prepare()

if __name__ == "__main__":
    sys.exit(main())
