"""The trainer, `short_patience.py RUN --attempt N`, whose watchdog ends a run that hangs after seconds instead of minutes."""

import sys

from podwright.train import __main__ as trainer
from podwright.train import observe
from podwright.train.watchdog import Patience

observe.PATIENCE = Patience(first_s=120.0, least_s=6.0, most_s=6.0, grace_s=6.0)
LONGEST_S = 30.0
"""from a hang to the end of the first process"""

if __name__ == "__main__":
    sys.exit(trainer.main())
