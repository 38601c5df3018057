"""Weights & Biases: one W&B run for each of ours, whose id stays the same over resumes. Without a key it writes offline.

W&B cannot append to an offline run, each batch becomes a folder of its own, so offline batches are large.
"""

from __future__ import annotations

import time
import uuid

from podwright.rundir import RunDir
from podwright.track.batch import MetricBatch, remember

ONLINE_EVERY_S = 60.0
OFFLINE_ROWS = 500
PATIENCE_S = 15  # for a server that does not answer


def due(batch: MetricBatch) -> bool:
    if batch.ending_is_new and batch.ending is not None:
        return True
    if not batch.rows:
        return False
    if _offline():
        return len(batch.rows) >= OFFLINE_ROWS
    return time.time() - batch.state.get("sent_at", 0.0) >= ONLINE_EVERY_S


def send(run: RunDir, batch: MetricBatch) -> str | None:
    import wandb

    if "id" not in batch.state:
        batch.state["id"] = uuid.uuid4().hex[:12]
        remember(run, batch)
    folder = run.trackers
    folder.mkdir(parents=True, exist_ok=True)
    tracked = wandb.init(
        project="podwright",
        id=batch.state["id"],
        name=run.path.resolve().name,
        dir=str(folder),
        config=batch.recipe,
        resume="allow",
        mode="offline" if _offline() else None,
        # Nothing of the machine, the command line or the console goes along: it could hold secrets.
        settings=wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            save_code=False,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            init_timeout=PATIENCE_S,
            finish_timeout=PATIENCE_S,
        ),
    )
    failed = 1 if batch.ending not in (None, "FINISHED") else 0
    try:
        for stage in {row.stage for row in batch.rows}:
            tracked.define_metric(f"{stage}/step", hidden=True)
            tracked.define_metric(f"{stage}/*", step_metric=f"{stage}/step")
        for row in batch.rows:
            tracked.log(
                {f"{row.stage}/{name}": value for name, value in row.figures.items()} | {f"{row.stage}/step": row.step}
            )
        if batch.ending is not None:
            tracked.summary["ending"] = batch.ending
    finally:
        tracked.finish(exit_code=failed)
    batch.state["sent_at"] = time.time()
    return None


def _offline() -> bool:
    """Whether the user chose it (WANDB_MODE) or there is no key; W&B itself would stop and ask for one."""
    import wandb

    return wandb.setup().settings.mode != "online" or not wandb.login(prompt=False, verify=False)
