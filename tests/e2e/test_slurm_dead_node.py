"""A node of a job dies on a cluster that gives up silent nodes after minutes, as most do: what the verbs say meanwhile."""

from pathlib import Path

import pytest

from lab import slurm
from tests.e2e.conftest import Farm, wait_for

pytestmark = pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing() or "there is one")

# In place of Python on the nodes: each process waits for the loss of the other one, and the first writes down how it ended.
WAITS = """#!/bin/sh
echo "process $SLURM_PROCID waits" >> $3/waits
while [ ! -e $3/lost ]; do sleep 0.1; done
[ "$SLURM_PROCID" = 0 ] || kill -ABRT $$
echo '{"ending": "CRASHED", "detail": "another process of the run is gone", "fix": "", "step": 3}' > $3/attempts/$5/exit.json
touch -d "20 seconds ago" $3/attempts/$5/exit.json
exit 1
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("dies", "known"),
    [
        ("n2", "the trainer has ended (CRASHED: another process of the run is gone)"),
        ("n1", "the trainer has ended (process 1 on n2: killed by SIGABRT)"),
    ],
)
def test_what_is_known_of_a_dead_node_is_said_long_before_slurm_says_it(tmp_path: Path, dies: str, known: str) -> None:
    with slurm.Cluster(silence_s=90) as lab:
        farm = Farm(tmp_path, lab)
        waits = tmp_path / "waits"
        waits.write_text(WAITS)
        waits.chmod(0o755)
        farm.target("waits", python=waits, nodes=2)
        assert farm.run(5, "--on", "waits", "--detach")[0] == 0
        wait_for(lambda: farm.path("waits").exists() and farm.path("waits").read_text().count("\n") == 2)
        lab.kill(dies)
        farm.path("lost").touch()
        wait_for(lambda: farm.standing()["state"] == "waiting")
        job, row = farm.job(), farm.standing()
        assert row["ending"] is None and row["detail"].startswith(
            f"Ending: {known}; SLURM has not ended job {job} ("
        ), row
        watching = farm.start("watch", "r")
        assert watching.stdout
        line = watching.stdout.readline()
        assert known in line, line
        watching.kill()
        wait_for(lambda: f"it waits for {dies}, which does not answer it" in farm.standing()["detail"])
        _, table, err = farm.call("list")
        assert "waiting (Ending)" in table and known in err, (table, err)
        lab.wait(lambda: lab.state(job) == "PENDING", 180)
        assert farm.standing()["detail"].startswith("BeginTime: a job that was queued again"), farm.standing()
