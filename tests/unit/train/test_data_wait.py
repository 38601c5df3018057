"""When steps wait for their data: said once, with its share, and with keys that the kind has."""

import math
import re
from pathlib import Path

import pytest

from podwright.recipe import load
from podwright.recipe.kinds import KINDS
from podwright.train.data_wait import DataWait
from podwright.train.multimodal import course
from podwright.train.multimodal.data import features
from podwright.train.multimodal.processes import cores
from podwright.train.pretrain import loop


def test_a_share_of_the_time_is_said_once_after_a_window_of_steps() -> None:
    waits = DataWait("copy it")
    notices = [waits.stepped(0.3, 1.0) for _ in range(60)]
    assert [n for n, said in enumerate(notices) if said] == [22]
    assert notices[22] == ["waiting for data takes 30 % of the time of the last 20 steps (0.3 s a step): copy it"]


def test_short_waits_and_a_slow_first_step_are_no_news() -> None:
    waits = DataWait("copy it")
    assert not any(waits.stepped(5.0 if n == 0 else 0.05, 10.0 if n == 0 else 1.0) for n in range(60))


def test_a_data_set_that_gets_slow_later_is_said() -> None:
    waits = DataWait("copy it")
    notices = [waits.stepped(0.0 if n < 100 else 0.5, 1.0) for n in range(200)]
    assert [n for n, said in enumerate(notices) if said] == [108]


@pytest.mark.parametrize(
    ("num_workers", "num_cores", "advice"),
    [
        (4, 16, "type data.num_workers=16"),
        (16, 16, "give each process more cores"),
        (16, 300, "type data.num_workers=256"),
    ],
)
def test_files_that_are_decoded_too_slowly_are_said_once_with_what_helps(
    monkeypatch: pytest.MonkeyPatch, num_workers: int, num_cores: int, advice: str
) -> None:
    now, notices = [0.0], []
    monkeypatch.setattr(features.time, "perf_counter", lambda: now[0])
    decoding = features.DecodeTime(notices.append)
    for _ in range(40):
        now[0] += 1.2
        decoding.waited(1.0, num_workers, num_cores)
    (notice,) = notices
    assert notice.startswith(
        f"decoding files takes 30 of 36 s of loading, with data.num_workers={num_workers} on {num_cores} cores: {advice}"
    )


@pytest.mark.parametrize(
    ("num_cores", "on_host", "quota", "expected"),
    [
        (16, [range(16)], math.inf, 16),
        (16, [range(16)] * 4, math.inf, 4),
        (6, [range(6)] * 3, math.inf, 2),
        (4, [range(4), range(4, 16)], math.inf, 4),  # each process is bound to cores of its own
        (16, [range(16)] * 2, 5.0, 2),
        (1, [range(1)] * 4, math.inf, 1),
    ],
)
def test_processes_of_a_host_share_its_cores(num_cores: int, on_host: list[range], quota: float, expected: int) -> None:
    assert cores.shared(range(num_cores), on_host, quota) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "250000 100000\n"}, 2.5),
        ({"cpu.max": "max 100000\n"}, math.inf),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        ({}, math.inf),
    ],
)
def test_a_container_limits_the_time_of_cores(tmp_path: Path, files: dict[str, str], expected: float) -> None:
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert cores.quota(tmp_path) == expected


def test_an_encoder_that_takes_the_time_is_not_blamed_on_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    now, notices = [0.0], []
    monkeypatch.setattr(features.time, "perf_counter", lambda: now[0])
    decoding = features.DecodeTime(notices.append)
    for _ in range(400):
        now[0] += 1.0
        decoding.waited(0.3, 4, 16)
    assert not notices


def test_the_keys_that_are_named_are_of_the_kinds_that_see_them() -> None:
    notices: list[str] = []
    features.DecodeTime(notices.append).waited(1e9, 4, 16)
    texts = {"pretrain": loop.DATA_WAIT, "multimodal": course.DATA_WAIT + notices[0]}
    for kind, text in (texts | {"contrastive": texts["multimodal"]}).items():
        keys = set(re.findall(r"\bdata\.[a-z_]+", text))
        assert keys <= load.fields(KINDS[kind].schema).keys() and (kind != "pretrain" or keys), (kind, keys)
