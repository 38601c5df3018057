"""`podwright` that asks a simulated cloud more often than it may ask the real one."""

import sys

from podwright.cli.app import main
from podwright.run import drive
from podwright.targets.settings import tpu_vm
from podwright.targets.tpu_vm import provisioner, worker_check

tpu_vm.POLL_S, tpu_vm.LAG_S = 0.3, 1.0
provisioner.LAG_S = 1.0
worker_check.LEAST_FREE = 0
drive.TICK_S = 0.05

if __name__ == "__main__":
    sys.exit(main())
