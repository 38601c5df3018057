"""`python -m podwright.train` that also writes down, at every checkpoint, the router's bias as each of its devices has it."""

import sys

import numpy as np

from podwright.train import __main__ as trainer
from podwright.train.pretrain import loop

save = loop._save


def noted(job, checkpoints, state, number):
    for shard in state.bias_LX.addressable_shards:
        np.save(job.run.path.parent / f"bias-{number}-{shard.device.id}.npy", np.asarray(shard.data))
    save(job, checkpoints, state, number)


if __name__ == "__main__":
    loop._save = noted
    sys.exit(trainer.main())
