"""The controllers of the simulated cluster: `start(store, folder)` gives them in the order in which the server lets each `step(store, now)`."""

from pathlib import Path
from typing import Any

from lab.kube.controllers import admission, knobs
from lab.kube.controllers.job import JobController
from lab.kube.controllers.jobset import JobSetController
from lab.kube.controllers.kubelet import Kubelet
from lab.kube.controllers.kueue import KueueController
from lab.kube.controllers.nodes import NodeController
from lab.kube.controllers.scheduler import Scheduler
from lab.kube.store import Store
from lab.slurm import lacking


class Stoppable:
    """A controller that the knob `controllers_down` can stop."""

    def __init__(self, name: str, controller: Any) -> None:
        self.name, self.controller = name, controller

    def step(self, store: Store, now: float) -> None:
        if self.name not in knobs.of(store)["controllers_down"]:
            self.controller.step(store, now)


def missing() -> str:
    """Why there can be no pods here, or nobody to see them; "" where there can."""
    return lacking(("unshare", "nsenter", "kubectl"), "util-linux kubernetes-client")


def start(store: Store, folder: Path) -> list[Any]:
    """`folder` is where logs and scratch files of pods are kept, ROOT/kube."""
    admission.install(store)
    kinds = {
        "node": NodeController(),
        "kueue": KueueController(),
        "jobset": JobSetController(),
        "job": JobController(),
        "scheduler": Scheduler(),
    }
    return [*(Stoppable(name, each) for name, each in kinds.items()), Kubelet(folder)]
