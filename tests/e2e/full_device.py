"""The trainer, `full_device.py RUN --attempt N`, in whose second process the device has no memory left for a step."""

import os
import sys


def full(*_: object) -> None:
    raise RuntimeError("RESOURCE_EXHAUSTED: out of memory while trying to allocate")


if __name__ == "__main__":
    from podwright.train import __main__ as trainer
    from podwright.train.grpo import loss

    if os.environ["JAX_PROCESS_ID"] == "1":
        loss.advantages = full
    sys.exit(trainer.main())
