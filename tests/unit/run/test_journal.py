"""The fold: what the lines of a journal add up to."""

import json
from pathlib import Path
from typing import Any

import pytest

from podwright.errors import UserError
from podwright.run import journal
from podwright.run.decide import Act
from podwright.run.states import ENDINGS, Phase, advice
from podwright.rundir import Ending, RunDir
from podwright.targets.base import Process
from podwright.targets.machines import Request
from tests.unit.run.test_decide import act_of

CREATED = {"event": "created", "time": 1.0, "recipe": "r", "target": "local", "cwd": "/"}


def test_every_ending_has_its_facts_and_advice() -> None:
    assert set(ENDINGS) == set(Ending)
    for ending in Ending:
        said = advice(ending, "", "my-run")
        assert said and "{" not in said
    assert advice(Ending.CRASHED, "type this", "my-run") == "type this"


def test_what_another_launcher_says_of_a_past_attempt_changes_nothing() -> None:
    events = [
        CREATED,
        {"event": "submitting", "time": 2.0, "attempt": 1, "handle": {"n": 1}},
        {"event": "submitted", "time": 3.0, "attempt": 1, "handle": {"n": 1}},
        {"event": "ended", "time": 4.0, "attempt": 1, "ending": "PREEMPTED"},
        {"event": "released", "time": 4.0, "attempt": 1},
        {"event": "retrying", "time": 4.0, "attempt": 1},
        {"event": "submitting", "time": 5.0, "attempt": 2, "handle": {"n": 2}},
        {"event": "submitted", "time": 6.0, "attempt": 2, "handle": {"n": 2}},
    ]
    late = {"event": "ended", "time": 7.0, "attempt": 1, "ending": "CRASHED"}
    state = journal.fold([*events, late])
    assert state == journal.fold(events)
    assert (state.phase, state.attempt, state.handle, state.since) == (Phase.RUNNING, 2, {"n": 2}, 6.0)


def test_a_line_cut_short_does_not_take_the_next_one_with_it(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    journal.append(run, "created", recipe="r", target="local", cwd="/")
    with run.journal.open("a") as f:
        f.write('{"event": "submitt')
    journal.append(run, "submitting", attempt=1, handle={})
    assert journal.read(run).phase is Phase.SUBMITTING


@pytest.mark.parametrize(
    "line",
    [
        '{GARBAGE', "\0\0\0", "[]", '{"event": "ended", "time": 2.0, "attempt": 1, "ending": "EVICTED"}',
        '{"event": "created", "time": 2.0}', '{"event": "stopping", "time": "yesterday"}', '{"event": "stopping"}',
        '{"event": "submitting", "time": 2.0, "attempt": "one", "handle": {}}',
    ],
)  # fmt: skip
def test_a_journal_that_is_damaged_or_of_another_version_is_refused_in_one_line(tmp_path: Path, line: str) -> None:
    run = RunDir(tmp_path)
    submitting = {"event": "submitting", "time": 1.5, "attempt": 1, "handle": {}}
    events = [json.dumps(event) for event in (CREATED, submitting, submitting | {"event": "submitted"})]
    run.journal.write_text("\n".join([*events, line, '{"event": "stopping", "time": 3.0}', ""]))
    before = run.journal.read_bytes()
    with pytest.raises(UserError) as refused:
        journal.read(run)
    assert f"{run.journal} line 4 is damaged or of another version" in refused.value.what
    assert "restore the file" in refused.value.fix and run.journal.read_bytes() == before


def test_an_empty_journal_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no event: .*; restore the file from a copy, or start the run again"):
        journal.read(RunDir(tmp_path))


def test_a_journal_that_is_cut_in_its_first_line_is_refused(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    journal.append(run, "created", recipe="r", target="local", cwd="")
    run.journal.write_bytes(run.journal.read_bytes()[:40])
    with pytest.raises(UserError, match=r"journal.jsonl has no event: .*; restore the file from a copy"):
        journal.read(run)


def attempt(number: int, *more: dict[str, Any]) -> list[dict[str, Any]]:
    handle = {"n": number}
    return [
        {"event": "submitting", "time": 2.0, "attempt": number, "handle": handle},
        {"event": "submitted", "time": 3.0, "attempt": number, "handle": handle},
        *({"time": 4.0, "attempt": number, **event} for event in more),
    ]


STOPPED = (
    {"event": "stopping"},
    {"event": "signalled"},
    {"event": "ended", "ending": "STOPPED"},
    {"event": "released"},
)


def test_a_resumed_run_can_be_stopped_again() -> None:
    events = [CREATED, *attempt(1, *STOPPED, {"event": "resumed"}), *attempt(2, {"event": "stopping"})]
    assert act_of(journal.fold(events), Process.RUNNING, 4.0) is Act.SIGNAL


def test_a_stop_before_anything_was_started_starts_nothing() -> None:
    state = journal.fold([CREATED, {"event": "stopping", "time": 2.0, "attempt": 0}])
    assert act_of(state, Process.ABSENT, 2.0) is Act.END
    again = [CREATED, *attempt(1, *STOPPED, {"event": "resumed"}, {"event": "stopping"})]
    state = journal.fold(again)
    assert (state.phase, state.ended_attempt) == (Phase.STOPPING, 1)
    assert act_of(state, Process.ABSENT, 4.0) is Act.END, "the attempt before it is not waited for"


def test_a_stop_after_the_end_only_forbids_a_retry() -> None:
    events = [CREATED, *attempt(1, {"event": "ended", "ending": "PREEMPTED"}, {"event": "released"})]
    assert act_of(journal.fold(events), Process.ENDED, 4.0) is Act.RETRY
    stopped = journal.fold([*events, {"event": "stopping", "time": 5.0}])
    assert (stopped.phase, stopped.ending) == (Phase.ENDED, Ending.PREEMPTED)
    assert act_of(stopped, Process.ENDED, 5.0) is Act.REPORT


def test_an_attempt_that_was_decided_on_before_a_stop_is_seen_and_signalled() -> None:
    stop = {"event": "stopping", "time": 1.5}
    state = journal.fold([CREATED, stop, *attempt(1)])
    assert (state.phase, state.attempt, state.handle) == (Phase.STOPPING, 1, {"n": 1})
    assert act_of(state, Process.RUNNING, 4.0) is Act.SIGNAL


def test_a_stop_is_not_undone_by_a_retry_that_was_decided_on_before() -> None:
    over = attempt(1, {"event": "ended", "ending": "PREEMPTED"}, {"event": "released"})
    state = journal.fold([CREATED, *over, {"event": "stopping", "time": 5.0}, {"event": "retrying", "time": 5.0}])
    assert state.phase is Phase.ENDED and act_of(state, Process.ENDED, 5.0) is Act.REPORT


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_clock_that_is_set_changes_no_time_since_a_line_of_this_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    clock = {"up": 50.0, "wall": 1e9, "boot": "this"}
    monkeypatch.setattr(journal, "now", lambda: clock["wall"])
    monkeypatch.setattr(journal, "uptime", lambda: (clock["boot"], clock["up"]))
    run = RunDir(tmp_path)
    journal.append(run, "created", recipe="r", target="local", cwd="/")
    journal.append(run, "submitting", attempt=1, handle={})
    journal.append(run, "allocation requested", allocation=1, request=vars(Request("pw-1", "z")), target={})
    clock["up"] += 2.0
    clock["wall"] += 2.0 + jump_s
    state = journal.read(run)
    assert clock["wall"] - state.submitted == pytest.approx(2.0, abs=1e-5)
    assert state.capacity.since is not None
    assert clock["wall"] - state.capacity.since == pytest.approx(2.0, abs=1e-5), "patience for machines"
    assert state.created == 1e9, "machines are named after it"
    assert act_of(state, Process.ABSENT, clock["wall"]) is Act.WAIT, "the attempt may still appear"
    clock["boot"] = "another"
    assert journal.read(run).submitted == 1e9


def test_times_are_the_same_at_each_look_as_long_as_nobody_sets_the_clock() -> None:
    event = {"event": "submitting", "time": 1e9, "boot": journal.uptime()[0], "uptime": 0.0, "attempt": 1}
    event["uptime"] = journal.uptime()[1] - (journal.now() - 1e9) + 1e-3
    assert journal.dated(event) == event


def test_a_line_without_an_uptime_has_the_time_that_it_says(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    submitting = {"event": "submitting", "time": 7.0, "attempt": 1, "handle": {}}
    run.journal.write_text("".join(json.dumps(event) + "\n" for event in (CREATED, submitting)))
    assert journal.read(run).submitted == 7.0


def test_what_the_cloud_told_of_machines_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Else a launcher would write it down again at each look."""
    run, request = RunDir(tmp_path), Request("pw-1", "z")
    journal.append(run, "created", recipe="r", target="local", cwd="/")
    journal.append(run, "allocation requested", allocation=1, request=vars(request), target={})
    journal.append(run, "allocation charged", allocation=1, chips=8, since=12.3)
    journal.append(run, "allocation ready", allocation=1, hosts=[], since=12.5)
    record = journal.read(run).allocation
    assert record and record.charged and (record.charged.since, record.ready_since) == (12.3, 12.5)
