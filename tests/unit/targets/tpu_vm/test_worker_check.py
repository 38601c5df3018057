"""Who is to blame when the workers of a slice are looked at together, and whether the slice or the settings are at fault."""

import json
from collections.abc import Callable

import pytest

from podwright.rundir import Ending
from podwright.targets.tpu_vm.worker_check import Answer, judge, parse

VERSIONS = {"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.42"}
Change = Callable[[int], dict[str, object]]


def text(worker: int, stages: int = 4, exit: int = 0, printed: str = "", **changed: object) -> str:
    seen = {
        "process": worker,
        "expected_process": worker,
        "platform": "tpu",
        "kind": "TPU v6 lite",
        "local": 4,
        "all": 16,
    }
    seen |= {"versions": VERSIONS, "free_bytes": 80 << 30}
    records = [
        {"stage": "started", "host": f"w{worker}"},
        {"stage": "joined", "time": 1000.0 + worker},
        {"stage": "devices", **seen, **{key: value for key, value in changed.items() if key in seen}},
        {"stage": "storage", "storage": "gs://b", **{key: v for key, v in changed.items() if key in ("fault", "fix")}},
    ]
    if "time" in changed:
        records[1]["time"] = changed["time"]
    lines = [json.dumps(record) for record in records[:stages]]
    return "\n".join(["podwright: process 0 of 4", *lines, printed, f"podwright: the check ended with {exit}", ""])


def answers(odd: int = 2, all_others: dict[str, object] | None = None, **of_the_odd: object) -> list[Answer]:
    texts = [text(k, **(of_the_odd if k == odd else all_others or {})) for k in range(4)]
    return [parse(f"s-w-{k}", each) for k, each in enumerate(texts)]


def test_four_good_workers_pass() -> None:
    assert judge(answers(), 4) is None


BUSY = "jaxlib.XlaRuntimeError: ABORTED: The TPU is already in use by process with pid 2239507. Not attempting to load libtpu.so"
VFIO = "UNKNOWN: TPU initialization failed: open(/dev/vfio/0): Device or resource busy: Device or resource busy"
TOPOLOGY = "RuntimeError: Unable to initialize backend 'tpu': INTERNAL: Failed to get global TPU topology."
PEER = "DEADLINE_EXCEEDED: TPU initialization failed: Failed to connect to 10.0.0.3:8471"


@pytest.mark.parametrize(
    ("odd", "others", "named", "ending"),
    [
        (
            {"stages": 2, "exit": 1, "printed": BUSY},
            {"stages": 2, "exit": 1, "printed": PEER},
            "s-w-2 is in use by process 2239507",
            None,
        ),
        (
            {"stages": 2, "exit": 1, "printed": VFIO},
            {"stages": 2, "exit": 124},
            "s-w-2 is in use by another process",
            None,
        ),
        (
            {"stages": 2, "exit": 1, "printed": TOPOLOGY},
            {"stages": 2, "exit": 1, "printed": PEER},
            "no working TPU driver on s-w-2",
            None,
        ),
        ({"stages": 1, "exit": 124}, {"stages": 2, "exit": 124}, "s-w-2 hangs in the check: joining the others", None),
        ({"stages": 0, "exit": 137}, {"stages": 1, "exit": 124}, "s-w-2 hangs in the check: starting Python", None),
        (
            {"stages": 2, "exit": 124},
            {"stages": 2, "exit": 124},
            "every worker hangs in the check: initializing its TPU",
            None,
        ),
        ({"stages": 3, "exit": 124}, {}, "s-w-2 hangs in the check: trying the storage", None),
        (
            {"stages": 1, "exit": 1, "printed": "Segmentation fault"},
            {"stages": 1, "exit": 124},
            "s-w-2 failed: Segmentation fault",
            None,
        ),
        (
            {"stages": 1, "exit": 139},
            {"stages": 1, "exit": 124},
            "the check of s-w-2 failed: podwright: process 0 of 4",
            None,
        ),
        ({"local": 3}, {}, "s-w-2 sees 3 of its 4 chips", None),
        ({"all": 12}, {}, "s-w-2 sees 12 of 16 chips", None),
        ({"process": 1}, {}, "s-w-2 is process 1 for jax and 2 for the cloud", None),
        ({"free_bytes": 1 << 30}, {}, "s-w-2 has 1.0 GiB of free disk space", None),
        ({"time": 5000.0}, {}, "the clocks of s-w-0 and s-w-2 differ by 4000 s", None),
        (
            {"versions": VERSIONS | {"libtpu": "0.0.41"}},
            {},
            "s-w-2 has libtpu 0.0.41, and s-w-0 0.0.42",
            Ending.BAD_INPUT,
        ),
        ({"fault": "gs://b: no right", "fix": "ask"}, {}, "s-w-2: gs://b: no right", Ending.BAD_INPUT),
        (
            {"stages": 0, "exit": 1, "printed": "a line of the target's setup failed: source x"},
            {"stages": 1, "exit": 124},
            "setup failed on s-w-2: source x",
            Ending.BAD_INPUT,
        ),
        (
            {"stages": 0, "exit": 1, "printed": "podwright: no environment: uv could not be downloaded"},
            {"stages": 1, "exit": 124},
            "installed on s-w-2: uv could not be downloaded",
            Ending.BAD_INPUT,
        ),
        (
            {"stages": 1, "exit": 1, "printed": "ModuleNotFoundError: No module named 'jax'"},
            {"stages": 1, "exit": 124},
            "the Python of s-w-2 lacks jax",
            Ending.BAD_INPUT,
        ),
    ],
)
def test_the_worker_at_fault_is_named(odd: dict, others: dict, named: str, ending: Ending | None) -> None:
    trouble = judge(answers(all_others=others, **odd), 4)
    assert trouble and named in trouble.what
    assert trouble.ending is (ending or Ending.NO_CAPACITY), "a fault of the machines costs the slice, not the run"
    assert trouble.fix


def test_consequences_alone_are_named_as_such() -> None:
    trouble = judge(answers(all_others={"stages": 2, "exit": 1, "printed": PEER}, stages=2, exit=1, printed=PEER), 4)
    assert trouble and "s-w-0 does not reach the TPU of another worker (10.0.0.3:8471)" in trouble.what


def test_lines_that_are_no_stages_are_passed_over() -> None:
    answer = parse("w", '{"a": 1}\n{broken\n[1]\n{"stage": "started"}\npodwright: the check ended with 0\n')
    assert answer.exit == 0 and answer.stages == [{"stage": "started"}]
    cut_off = judge([parse("w", '{"stage": "started"}\n')], 4)
    assert cut_off and cut_off.what == "the check of w failed: its answer was cut off"
