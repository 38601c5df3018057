"""When steps wait for their data: said once, with its share, and with keys that the kind has."""

import re

import pytest

from podwright.recipe import load
from podwright.recipe.kinds import KINDS
from podwright.train.data_wait import DataWait
from podwright.train.multimodal import course
from podwright.train.multimodal.data import features
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
    ("num_workers", "advice"), [(4, "type data.num_workers=16"), (16, "give each process more cores")]
)
def test_files_that_are_decoded_too_slowly_are_said_once_with_what_helps(
    monkeypatch: pytest.MonkeyPatch, num_workers: int, advice: str
) -> None:
    now, notices = [0.0], []
    monkeypatch.setattr(features.time, "perf_counter", lambda: now[0])
    decoding = features.DecodeTime(notices.append)
    for _ in range(40):
        now[0] += 1.2
        decoding.waited(1.0, num_workers, 16)
    (notice,) = notices
    assert notice.startswith(
        f"decoding files takes 30 of 36 s of loading, with data.num_workers={num_workers} on 16 cores: {advice}"
    )


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
