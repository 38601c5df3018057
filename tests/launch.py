"""`podwright` with the stand-in for a trainer, as a process of its own. It counts the tokens of a plan itself.

LAUNCH_DIES=before:EVENT or after:EVENT kills it with SIGKILL around writing that event to the journal.
LAUNCH_PATIENCE_S: for how long a doctor waits for free nodes.
LAUNCH_ENVIRONMENT={NAME: VALUE} is what the kind of recipe gives to its processes.
"""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from podwright.cli.app import main
from podwright.plan.checks import token_lengths
from podwright.recipe import kinds
from podwright.run import drive, journal
from podwright.rundir import RunDir
from podwright.targets import slurm
from podwright.targets.base import Job, Rendered
from podwright.targets.local import Local
from podwright.targets.machines import Hosts
from podwright.targets.settings.local import LocalSettings
from podwright.targets.settings.slurm import SlurmSettings
from podwright.targets.settings.ssh import SshSettings
from tests import token_counts

STANDIN = str(Path(__file__).with_name("standin.py"))
render = Local.render


def with_standin(self: Local, job: Job, hosts: Hosts | None = None) -> Rendered:
    """On this machine; other machines have a stand-in for Python itself."""
    if job.command[:3] == ("{python}", "-m", "podwright.train"):
        job = replace(job, command=("{python}", STANDIN, *job.command[3:]))
    return render(self, job, hosts)


Local.render = with_standin
token_lengths._ask = token_counts.ask

given = json.loads(os.environ.get("LAUNCH_ENVIRONMENT", "{}"))
kinds.KINDS |= {name: replace(kind, environment=given) for name, kind in kinds.KINDS.items()}

slurm._PATIENCE_S = int(os.environ.get("LAUNCH_PATIENCE_S", slurm._PATIENCE_S))
drive.TICK_S = 0.05
for settings, poll_s in ((LocalSettings, 0.05), (SlurmSettings, 0.2), (SshSettings, 0.5)):
    usual = settings.traits
    settings.traits = lambda self, usual=usual, poll_s=poll_s: replace(usual(self), poll_s=poll_s, start_grace_s=1.0)

append = journal.append
when, _, fatal = os.environ.get("LAUNCH_DIES", "").partition(":")


def append_or_die(run: RunDir, event: str, **fields: Any) -> None:
    if (when, fatal) == ("before", event):
        os.kill(os.getpid(), signal.SIGKILL)
    append(run, event, **fields)
    if (when, fatal) == ("after", event):
        os.kill(os.getpid(), signal.SIGKILL)


journal.append = append_or_die

sys.exit(main())
