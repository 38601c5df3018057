"""result.json of finished, resumed and broken-off runs: each step once, times and speeds as they were."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import made_runs
import pytest

from podwright.errors import UserError
from podwright.recipe import load
from podwright.recipe.kinds import Recipe
from podwright.report import page, wording
from podwright.report.result import expected, result
from podwright.run import journal
from podwright.rundir import append_jsonl, write_json

DEMO = "qwen3-tiny-arithmetic-grpo"


def test_a_finished_run(tmp_path: Path) -> None:
    got = result(made_runs.finished(tmp_path / "made"))
    assert (got["accuracy_before"], got["accuracy_after"]) == (0.334, 0.782)
    assert got["accuracy_gain"] == pytest.approx(0.448)
    assert got["accuracy_after_interval"] == pytest.approx([0.7437, 0.8160], abs=1e-4)
    assert got["accuracy_after_flexible"] == pytest.approx(403 / 500)
    assert got["paired_test"] == {"gained": 236, "lost": 12, "p_value": 3.1e-54, "test": "exact McNemar"}
    assert (got["steps"], got["steps_planned"], got["warm_start_steps"]) == (200, 80, 200)
    assert (got["ending"], got["ending_detail"]) == ("FINISHED", "all steps done")
    assert got["command"] == "podwright run qwen3-tiny-arithmetic-grpo --on local"
    assert len(got["fingerprint"]) == 12
    assert [a["ending"] for a in got["attempts"]] == [None, "FINISHED"]
    assert [(e["when"], e["step"]) for e in got["evaluations"]] == [
        ("before", 0),
        ("during", 50),
        ("during", 100),
        ("after", 200),
    ]


def test_each_attempt_says_whether_its_first_step_was_compiled(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made").start()
    for attempt, words in ((1, "compiled"), (2, "cached")):
        for stage, seconds in (("warm_start", 90.0), ("grpo", 20.0 / attempt)):
            about = {"stage": stage, "step": 1, "seconds": seconds, "programs": words}
            append_jsonl(made.run.events, {"event": "first_step", "time": 1.0, "attempt": attempt} | about)
            append_jsonl(made.run.metrics, {"stage": stage, "step": attempt, "time": 1.0, "attempt": attempt})
    first, second = result(made.run)["attempts"]
    assert (first["first_step_s"], first["programs"]) == (20.0, "compiled")
    assert (second["first_step_s"], second["programs"]) == (10.0, "cached")


def test_steady_state_leaves_out_the_steps_that_compile_after_start_and_resume(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made").start()
    for step, seconds in ((1, 90.0), (2, 80.0), (3, 1.0), (4, 2.0), (5, 70.0)):
        made.metric("grpo", step, seconds, tokens_per_s=100.0 * step)
    made.resume(4)
    for step, seconds in ((5, 60.0), (6, 50.0), (7, 3.0), (8, 9.0)):
        made.metric("grpo", step, seconds, tokens_per_s=100.0 * step)
    steady = result(made.run)["steady_state"]
    assert (steady["step_s"], steady["num_steps"], steady["num_left_out"]) == (2.5, 4, 4)
    assert steady["tokens_per_s"] == 550.0
    assert steady["tokens_per_s_per_device"] == 275.0
    assert steady["mfu"] is None
    assert steady["units"]["step_s"] == "s"


def test_a_step_run_again_counts_once_the_last_time(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made").start()
    for step in range(1, 11):
        made.metric("grpo", step, 1.0, reward=0.0)
    made.resume(5)
    for step in range(6, 11):
        made.metric("grpo", step, 1.0, reward=1.0)
    got = result(made.run)
    assert got["reward"]["first"] == 0.0
    assert got["reward"]["last"] == 1.0
    assert got["resumed_at"] == [5]


def test_reward_is_the_mean_of_the_first_and_last_tenth(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made").start()
    for step in range(1, 41):
        made.metric("grpo", step, 1.0, reward=float(step), kl=step / 100)
    got = result(made.run)
    assert (got["reward"]["first"], got["reward"]["last"], got["reward"]["n"]) == (2.5, 38.5, 4)
    assert got["kl_last"] == 0.4


def test_wall_time_adds_up_phases_over_attempts_without_the_pauses(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made")
    made.event("phase", 3.0, phase="loading").event("phase", 10.0, phase="grpo").event("notice", message="x")
    made.attempt, made.clock = 2, made.clock + 100
    made.event("phase", 4.0, phase="loading").event("phase", 20.0, phase="grpo").event("notice", message="y")
    time = result(made.run)["wall_time"]
    assert time["phases_s"] == {"loading": 7.0, "grpo": 30.0}
    assert (time["total_s"], time["pauses_s"]) == (37.0, 100.0)


@pytest.mark.parametrize(
    "make", [made_runs.empty, made_runs.warm_only, made_runs.stopped, made_runs.not_finite, made_runs.hostile]
)
def test_a_run_that_stopped_anywhere_has_a_result_that_is_valid_json(tmp_path: Path, make) -> None:
    got = result(make(tmp_path / "made"))
    json.dumps(got, allow_nan=False)
    assert got["accuracy_after"] is None
    assert got["accuracy_gain"] is None


def test_figures_that_are_not_finite_are_null(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made").start()
    made.metric("grpo", 1, 1.0, reward=float("nan"), kl=float("inf"))
    got = result(made.run)
    assert got["reward"] == {"first": None, "last": None, "n": 0, "unit": got["reward"]["unit"]}
    assert got["kl_last"] is None


def test_odd_records_are_passed_over(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made")
    for odd in (
        [],
        7,
        {},
        {"stage": "grpo"},
        {"stage": "grpo", "step": "one"},
        {"stage": "grpo", "step": 1, "time": 1.0, "reward": "high"},
    ):
        append_jsonl(made.run.metrics, odd)
    for name in ("evaluation", "phase", "comparison", "environment", "resumed", "notice", "nobody knows"):
        append_jsonl(made.run.events, {"event": name})
    append_jsonl(made.run.events, {"event": "evaluation", "when": "before", "strict": 3})
    append_jsonl(made.run.samples, {"when": "never", "question": None})
    assert result(made.run)["steps"] == 1


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [(391, "outside tolerance"), (412, "within tolerance"), (385, "within tolerance"), (None, "not measured")],
)
def test_expected_against_measured(tmp_path: Path, measured: int | None, verdict: str) -> None:
    promise = ("expect.metric=accuracy_after", "expect.value=0.80", "expect.tolerance=0.03")
    made = made_runs.Made(tmp_path / "made", overrides=promise).start()
    if measured is not None:
        made.evaluation("after", 200, measured if measured != 391 else 371)
    assert result(made.run)["expected"]["verdict"] == verdict


def test_a_recipe_that_states_nothing(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made", overrides=("expect.value=null",)).start()
    assert result(made.run)["expected"]["verdict"] == "not stated"


@pytest.mark.parametrize(
    "shorter", [lambda: load.smoke(load.load(DEMO), 3), lambda: load.load(DEMO, ["training.max_steps=3"])]
)
def test_a_run_shorter_than_the_recipe_is_not_compared_with_what_the_recipe_expects(
    tmp_path: Path, shorter: Callable[[], Recipe]
) -> None:
    recipe = shorter()
    assert load.load(DEMO).expect.value is not None and recipe.expect.value is None
    made = made_runs.Made(tmp_path / "made").start()
    write_json(made.run.recipe, recipe.model_dump(mode="json"))
    made.evaluation("after", 200, 10)
    document = result(made.run)
    assert document["expected"]["verdict"] == "not stated"
    assert wording.verdict(document).startswith("The recipe states no expected figure")
    longer = load.load(DEMO, ["training.max_steps=100000"])
    assert longer.expect.value is not None
    assert load.load(DEMO, ["training.max_steps=3", "expect.value=0.5"]).expect.value == 0.5


@pytest.mark.parametrize("recipe", [DEMO, "almodel-tiny", "phase1-tiny", "phase2-tiny"])
def test_a_run_on_other_data_is_not_compared_with_what_the_recipe_expects(recipe: str) -> None:
    measured = load.load(recipe)
    assert measured.expect.value is not None
    other = load.load(recipe, ["data.source=mine.jsonl"])
    assert other.expect.value is None and other.expect.metric == measured.expect.metric
    same = load.load(recipe, [f"data.source={measured.data.source}", f"seed={measured.seed + 1}"])
    assert same.expect.value is not None
    assert load.load(recipe, ["data.source=mine.jsonl", "expect.value=0.5"]).expect.value == 0.5


@pytest.mark.parametrize(
    "override",
    [
        *("data.max_operations=8", "data.num_train=100", "data.num_test=20", "data.instruction=x"),
        "data={source: arithmetic, num_train: 200, num_test: 50, max_operations: 7}",
    ],
)
def test_any_other_data_setting_drops_what_the_recipe_expects(override: str) -> None:
    assert load.load(DEMO, [override]).expect.value is None
    assert load.override(load.load(DEMO), [override]).expect.value is None


def test_medians_leave_out_steps_that_compile(tmp_path: Path) -> None:
    """Completions of another width are met at any step, and its programs compiled then."""
    made = made_runs.Made(tmp_path / "made").start()
    for step in range(1, 11):
        compiled = {"compiled": True} if step % 2 else {}
        made.metric("grpo", step, 90.0 if compiled else 1.0, **compiled)
    steady = result(made.run)["steady_state"]
    assert (steady["step_s"], steady["num_steps"], steady["num_left_out"]) == (1.0, 4, 6)


def test_a_report_names_damaged_records_and_denies_no_evaluation(tmp_path: Path) -> None:
    run = made_runs.finished(tmp_path / "made", steps=8)
    assert result(run)["damaged"] == []
    run.events.write_bytes(run.events.read_bytes()[:30])
    got = result(run)
    assert len(got["damaged"]) == 1 and got["damaged"][0].startswith(f"{run.events} is damaged (")
    text = page.summary(got)
    assert text[0].endswith("Its accuracy is not in its records.") and f"warning: {got['damaged'][0]}." in text
    assert "measured" not in " ".join(text).replace("its damaged records lack it", "")


def test_a_report_names_a_damaged_journal(tmp_path: Path) -> None:
    run = made_runs.finished(tmp_path / "made", steps=8)
    run.journal.write_bytes(b"\xff\n")
    (sentence,) = result(run)["damaged"]
    assert sentence.startswith(f"{run.journal} line 1 is damaged or of another version")


def test_no_run(tmp_path: Path) -> None:
    from podwright.rundir import RunDir

    with pytest.raises(UserError, match=r"recipe\.json is not there"):
        result(RunDir(tmp_path / "nothing"))


def test_a_recipe_of_another_version_still_gets_its_figures(tmp_path: Path) -> None:
    run = made_runs.finished(tmp_path / "made", steps=8)
    run.recipe.write_text(json.dumps(json.loads(run.recipe.read_text()) | {"a_new_key": 1}))
    got = result(run)
    assert got["accuracy_after"] == 0.782
    assert got["fingerprint"] is None
    assert got["command"] == f"podwright run {run.recipe} --on local"


def test_steps_that_a_resume_went_back_behind_do_not_count(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made").start().grpo(1, 12, 40).evaluation("during", 12, 300)
    made.resume(8)
    assert result(made.run)["steps"] == 8
    assert result(made.run)["evaluations"] == []
    made.grpo(9, 10, 40)
    assert result(made.run)["steps"] == 10


def test_a_start_from_scratch_in_a_second_attempt_forgets_the_first(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made").start().grpo(1, 5, 40)
    made.attempt = 2
    made.grpo(1, 2, 40)
    assert result(made.run)["steps"] == 2


def test_the_journal_says_how_it_ended_when_the_trainer_could_not(tmp_path: Path) -> None:
    run = made_runs.warm_only(tmp_path / "made")
    journal.append(run, "created", recipe="r", target="my-tpu", cwd=str(tmp_path))
    journal.append(run, "submitting", attempt=1, handle={})
    journal.append(run, "submitted", attempt=1, handle={})
    assert result(run)["ending"] is None
    journal.append(run, "ended", attempt=1, ending="PREEMPTED", detail="the machine was taken", fix="", step=None)
    got = result(run)
    assert (got["ending"], got["ending_detail"]) == ("PREEMPTED", "the machine was taken")
    assert "podwright resume made" in got["ending_fix"]
    assert got["command"].endswith("--on my-tpu")


def test_an_attempt_without_a_record_of_its_own_ended_as_the_launcher_saw_it(tmp_path: Path) -> None:
    run = made_runs.finished(tmp_path / "made")
    assert [a["ending"] for a in result(run)["attempts"]] == [None, "FINISHED"]
    journal.append(run, "ended", attempt=1, ending="PREEMPTED", detail="the machine was taken", fix="", step=None)
    first, last = result(run)["attempts"]
    assert (first["ending"], first["detail"], last["ending"]) == ("PREEMPTED", "the machine was taken", "FINISHED")


def test_a_run_that_was_resumed_and_runs_has_no_ending(tmp_path: Path) -> None:
    run = made_runs.stopped(tmp_path / "made")
    assert result(run)["ending"] == "STOPPED"
    for event, fields in (
        ("created", {"recipe": "r", "target": "local", "cwd": "."}),
        ("submitting", {"attempt": 1, "handle": {}}),
        ("submitted", {"attempt": 1, "handle": {}}),
        ("ended", {"attempt": 1, "ending": "STOPPED"}),
        ("resumed", {}),
        ("submitting", {"attempt": 2, "handle": {}}),
    ):
        journal.append(run, event, **fields)
    assert result(run)["ending"] is None


def test_tests_come_in_the_order_before_during_after_and_by_step(tmp_path: Path) -> None:
    """Whatever the order in which they were written; one that was repeated counts once, the last time."""
    made = made_runs.Made(tmp_path / "made").start()
    for when, step, correct in (
        ("after", 4, 9),
        ("during", 12, 3),
        ("before", 0, 1),
        ("during", 2, 5),
        ("during", 2, 6),
    ):
        made.evaluation(when, step, correct)
    got = result(made.run)["evaluations"]
    assert [(e["when"], e["step"]) for e in got] == [
        ("before", 0),
        ("during", 2),
        ("during", 12),
        ("after", 4),
    ]
    assert got[1]["strict"]["correct"] == 6 and set(got[1]) >= {"when", "step", "num", "seconds"}


@pytest.mark.parametrize(("difference", "verdict"), [(0.03, "within tolerance"), (0.0301, "outside tolerance")])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_tolerance_itself_is_within(difference: float, verdict: str, sign: int) -> None:
    figures = {"a": {"b": 0.8 + sign * difference}}
    got = expected({"metric": "a.b", "value": 0.8, "tolerance": 0.03, "evidence": "here"}, figures)
    assert got["verdict"] == verdict and got["difference"] == pytest.approx(sign * difference)
    assert (got["measured"], got["evidence"]) == (figures["a"]["b"], "here")
    assert expected({"metric": "a.b", "value": 0.8}, {"a": {"b": 0.8}})["verdict"] == "within tolerance"
    assert expected({"metric": "a.b", "value": 0.8}, {"a": {"b": 0.8001}})["verdict"] == "outside tolerance"
    assert expected(None, {}) == expected({}, {}) and expected({}, {})["verdict"] == "not stated"


def test_which_steps_were_traced_and_what_opens_them(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made").start()
    for step in (1, 2, 3, 4):
        made.metric("grpo", step, 1.0, **({"profiled": True} if step in (2, 4) else {}))
    got = result(made.run)
    assert got["profile"] == {"steps": [2, 4], "command": f"xprof --logdir {made.run.profile}"}
    assert result(made_runs.finished(tmp_path / "other"))["profile"] is None


def test_an_exit_of_an_attempt_before_the_newest_says_nothing_of_how_it_ends(tmp_path: Path) -> None:
    """The journal knows a second attempt, of which there is no record yet."""
    run = made_runs.stopped(tmp_path / "made")
    for event, fields in (
        ("created", {"recipe": "r", "target": "local", "cwd": "."}),
        ("submitting", {"attempt": 1, "handle": {}}),
        ("submitted", {"attempt": 1, "handle": {}}),
    ):
        journal.append(run, event, **fields)
    assert result(run)["ending"] == "STOPPED", "its exit is known before the journal has it"
    journal.append(run, "ended", attempt=1, ending="STOPPED", detail="enough", fix="type this", step=3)
    got = result(run)
    assert (got["ending"], got["ending_detail"], got["ending_fix"]) == ("STOPPED", "enough", "type this")
    assert "To do: type this" in page.summary(got)
    assert not [line for line in page.summary(got | {"ending_fix": ""}) if line.startswith("To do:")]
