"""`podwright` that knows targets of kind `lab`."""

import sys

from podwright.cli.app import main
from podwright.run import drive
from podwright.targets import kinds

kinds.KINDS["lab"] = kinds.TargetKind("lab.target:LabSettings", "lab.target:LabTarget")
drive.TICK_S = 0.05

if __name__ == "__main__":
    sys.exit(main())
