"""What came of a life of a run under disturbances."""

from dataclasses import asdict, dataclass, field
from typing import Any

from tests.e2e.chaos_script import Script


@dataclass
class Life:
    """What came of one: `faults` is empty when it was as it must be."""

    script: Script
    trainer: str
    cloud: str = "tpu-vm"
    seconds: float = 0.0
    launchers: int = 0
    kills: list[str] = field(default_factory=list)
    """the phase of each"""
    verbs: list[str] = field(default_factory=list)
    """typed besides run and resume"""
    disturbances: list[str] = field(default_factory=list)
    """those that took place, as they came"""
    drawn: list[str] = field(default_factory=list)
    """kinds of disturbances that the script has"""
    came: list[str] = field(default_factory=list)
    """those of them that took place"""
    refused_calls: dict[str, int] = field(default_factory=dict)
    """by kind of disturbance, calls of gcloud that failed while it lasted"""
    machines: int = 1
    """from which the run was driven"""
    attempts: int = 0
    slices: int = 0
    recomputed: int = 0
    explained: int = 0
    """steps that may be computed again: those after the newest checkpoint of each attempt that was interrupted"""
    endings: list[str] = field(default_factory=list)
    """the last line of launchers that did not finish the run"""
    missed: list[str] = field(default_factory=list)
    """moments and faults of the script that did not come"""
    left: int = 0
    """resources of the run in the cloud, at its end or after `stop` or `clean`"""
    foreign: int = 0
    """things of others that were changed"""
    lost: int = 0
    """steps that the final record lacks, or that had to be taken again without need"""
    doubled: int = 0
    """steps that the final record has more than once"""
    faults: list[str] = field(default_factory=list)

    def require_no_fault(self) -> None:
        assert not self.faults, f"seed {self.script.seed}: {self.faults} of {self.script}; repeat it: {self.again}"

    @property
    def again(self) -> str:
        """What repeats a life of the stand-in trainer."""
        return f"python bench/chaos.py live {self.script.seed} --on {self.cloud} --rows rows.jsonl"

    def document(self) -> dict[str, Any]:
        own = asdict(self)
        script = own.pop("script")
        return {
            "seed": script["seed"],
            "cloud": self.cloud,
            "trainer": "stand-in",
            "bucket": script["bucket"],
            "capacity": script["capacity"],
            "shape": script["shape"],
            "again": self.again,
            **own,
            "seconds": round(self.seconds, 1),
        }
