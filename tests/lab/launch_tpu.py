"""`podwright` that asks a simulated cloud more often than it may ask the real one, and waits less."""

import os
import sys

from podwright.cli.app import main
from podwright.run import drive
from podwright.targets.settings import tpu_vm
from podwright.targets.tpu_vm import provisioner, target

tpu_vm.POLL_S, tpu_vm.LAG_S, tpu_vm.SPOT_NOTICE_S = 0.3, 1.0, 3.0
provisioner.LAG_S = 1.0
target.CHECK_LIMIT_S = 10.0
drive.TICK_S = 0.05
if "LIFE_S" in os.environ:  # shorter than the settings allow
    tpu_vm.TpuVmSettings.life_s = property(lambda _: float(os.environ["LIFE_S"]))  # type: ignore[method-assign]

if __name__ == "__main__":
    sys.exit(main())
