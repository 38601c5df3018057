"""Real launchers over a stand-in trainer: followed, stopped, left, killed, resumed."""

import datetime
import json
import os
import re
import signal
import time

import psutil
import pytest

from tests.e2e.conftest import Bench, wait_for


def test_a_run_goes_from_recipe_to_report(bench: Bench) -> None:
    code, out, err = bench.run(5, "--json")
    document = json.loads(out)
    assert code == 0, err
    assert (document["ending"], document["step"], document["max_steps"]) == ("FINISHED", 5, 5)
    assert bench.steps() == [1, 2, 3, 4, 5]
    assert bench.path("report/report.html").exists()
    assert [r["event"] for r in bench.records("journal.jsonl")] == [
        "created",
        "submitting",
        "submitted",
        "ended",
        "released",
        "reported",
    ]


DEATHS = [
    "after:created",
    "before:submitting",
    "after:submitting",
    "before:submitted",
    "after:submitted",
    "before:ended",
    "after:ended",
]


@pytest.mark.brief(3)
@pytest.mark.parametrize("moment", [*DEATHS, "after:released", "before:reported"])
def test_a_launcher_killed_at_any_decision_loses_nothing(bench: Bench, moment: str) -> None:
    code, _, _ = bench.run(5, LAUNCH_DIES=moment)
    assert code == -signal.SIGKILL
    if moment == "after:created":  # written beside the run and renamed: there is no half run
        assert not bench.path().exists()
        code, _, err = bench.run(5)
    else:
        code, _, err = bench.call("resume", "r")
    assert code == 0, err
    assert bench.steps() == [1, 2, 3, 4, 5]
    assert not bench.path("second-trainer").exists()
    assert bench.standing()["ending"] == "FINISHED"
    assert bench.path("report/report.html").exists()


@pytest.mark.long
@pytest.mark.parametrize("delay", [1, 4, 8])
def test_a_launcher_killed_while_steps_go_by_loses_nothing(bench: Bench, delay: int) -> None:
    launcher = bench.start_run(12, STANDIN_STEP_S="0.05")
    wait_for(lambda: len(bench.steps()) >= delay)
    launcher.kill()
    launcher.communicate()
    code, out, err = bench.call("resume", "r", "--json")
    assert code == 0, err
    assert json.loads(out)["attempt"] == 1
    assert bench.steps() == list(range(1, 13))


def test_seeds_run_one_after_another(bench: Bench) -> None:
    code, out, err = bench.run(2, "--seeds", "1,2")
    assert code == 0 and out.rstrip().endswith("type: podwright report --compare r-seed-1 r-seed-2"), (out, err)
    journals = [[json.loads(line) for line in (bench.folder / f"runs/r-seed-{n}/journal.jsonl").open()] for n in (1, 2)]
    ended = {n: r["time"] for n, journal in enumerate(journals) for r in journal if r["event"] == "ended"}
    assert ended[0] <= journals[1][0]["time"] < ended[1]


def test_two_resumes_at_once_start_one_trainer(bench: Bench) -> None:
    bench.run(30, LAUNCH_DIES="before:submitting")
    both = [bench.start("resume", "r", STANDIN_STEP_S="0.05") for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=900)
        assert process.returncode == 0, err
    assert not bench.path("second-trainer").exists()
    assert bench.steps() == list(range(1, 31))
    assert [r["event"] for r in bench.records("journal.jsonl")].count("submitting") == 1


def test_the_first_ctrl_c_saves_and_stops_and_resume_goes_on(bench: Bench) -> None:
    launcher = bench.start_run(40, STANDIN_STEP_S="0.05")
    wait_for(lambda: len(bench.steps()) >= 3)
    launcher.send_signal(signal.SIGINT)
    out, _ = launcher.communicate(timeout=900)
    assert launcher.returncode == 130
    assert "stopping, after a checkpoint if it trains" in out
    assert "r STOPPED" in out and "podwright resume r" in out
    code, _, err = bench.call("resume", "r")
    assert code == 0, err
    assert bench.steps() == list(range(1, 41))


def test_the_second_ctrl_c_leaves_the_trainer_alive(bench: Bench) -> None:
    launcher = bench.start_run(60, STANDIN_STEP_S="0.1", STANDIN_DO="deaf")
    wait_for(lambda: len(bench.steps()) >= 2)
    launcher.send_signal(signal.SIGINT)
    wait_for(lambda: "signalled" in bench.path("journal.jsonl").read_text())
    launcher.send_signal(signal.SIGINT)
    out, _ = launcher.communicate(timeout=900)
    assert launcher.returncode == 130 and "r is stopping" in out
    trainer = psutil.Process(json.loads(bench.path("attempts/1/pid.json").read_text())["pid"])
    assert trainer.is_running()
    trainer.kill()


@pytest.mark.long
def test_a_stop_says_what_it_waits_for_and_until_when(bench: Bench) -> None:
    assert bench.run(500, "--detach", STANDIN_STEP_S="0.05", STANDIN_DO="deaf")[0] == 0
    wait_for(lambda: len(bench.steps()) > 1)
    begin = time.time()
    stopping = bench.start("stop", "r")
    assert stopping.stdout
    line = next(line for line in stopping.stdout if "waiting (" in line)
    said = re.search(
        r"Stopping: the attempt was told to stop, and saves a checkpoint first if it trains; if it has not ended at (\S+), this command kills it; if it was left",
        line,
    )
    assert said, line
    until = datetime.datetime.combine(datetime.date.today(), datetime.time.fromisoformat(said[1])).timestamp()
    assert 179 <= (until - begin) % 86_400 <= 300
    os.kill(json.loads(bench.path("attempts/1/pid.json").read_text())["pid"], signal.SIGKILL)
    out, _ = stopping.communicate(timeout=900)
    assert bench.standing()["ending"] == "STOPPED" and "waiting (Stopping" not in out, "said once"


def test_detached_then_watched_then_stopped(bench: Bench) -> None:
    code, out, err = bench.run(2000, "--detach", "--json", STANDIN_STEP_S="0.05")
    assert code == 0, err
    assert json.loads(out)["state"] == "running"
    watcher = bench.start("watch", "r")
    assert watcher.stdout  # a step may be shown before; once the phase is, its handlers are there
    assert any("attempt 1" in line for line in watcher.stdout)
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=900)
    assert watcher.returncode == 130
    assert bench.standing()["state"] == "running"
    code, out, err = bench.call("stop", "r", "--json")
    assert code == 0, err
    assert json.loads(out)["ending"] == "STOPPED"
    assert bench.call("stop", "r")[0] == 0


def test_resumed_detached_then_watched_to_its_end(bench: Bench) -> None:
    assert bench.run(40, "--detach", STANDIN_STEP_S="0.05")[0] == 0
    assert bench.call("stop", "r")[0] == 0
    code, out, err = bench.call("resume", "r", "--detach", "--json", STANDIN_STEP_S="0.05")
    assert code == 0 and json.loads(out)["state"] == "running" and json.loads(out)["attempt"] == 2, (out, err)
    code, out, err = bench.call("resume", "r", "--detach", "--json")
    assert code == 0 and json.loads(out)["attempt"] == 2, "it is alive"
    assert bench.call("watch", "r")[0] == 0
    assert bench.steps() == list(range(1, 41))
    assert bench.call("resume", "r", "--detach")[0] == 0, "it has finished"


@pytest.mark.long
def test_a_recipe_of_an_unknown_kind_refuses_a_resume_and_leaves_the_journal_alone(bench: Bench) -> None:
    assert bench.run(5, STANDIN_DO="crash")[0] == 1
    recipe, journal = json.loads(bench.path("recipe.json").read_text()), bench.path("journal.jsonl").read_bytes()
    bench.path("recipe.json").write_text(json.dumps(recipe | {"kind": "grop"}))
    code, _, err = bench.call("resume", "r")
    assert code == 2 and "kind='grop' is not a kind of recipe; did you mean grpo?" in err, err
    assert bench.path("journal.jsonl").read_bytes() == journal


def test_watch_starts_nothing(bench: Bench) -> None:
    bench.run(3, LAUNCH_DIES="before:submitting")
    code, out, err = bench.call("watch", "r", "--json")
    assert code == 1, err  # the run has not finished
    assert json.loads(out)["attempt"] == 0


@pytest.mark.long
def test_logs_are_shown_and_followed(bench: Bench) -> None:
    bench.run(6, "--detach", STANDIN_STEP_S="0.1")
    code, out, err = bench.call("logs", "r", "-f")
    assert code == 0, err
    assert out.splitlines()[-1] == "step 6 done"
    lines = json.loads(bench.call("logs", "r", "--json")[1])["lines"]
    assert lines == [f"step {n} done" for n in range(1, 7)]


@pytest.mark.brief(1)
@pytest.mark.parametrize(
    ("do", "ending", "says"), [("crash", "CRASHED", "told to crash"), ("killed", "UNKNOWN", "SIGKILL")]
)
def test_a_trainer_that_dies_is_not_started_again_by_itself(bench: Bench, do: str, ending: str, says: str) -> None:
    code, out, _ = bench.run(4, "--json", STANDIN_DO=do)
    document = json.loads(out)
    assert code == 1
    assert (document["ending"], document["attempt"]) == (ending, 1)
    assert says in document["detail"] and document["fix"]
    code, _, err = bench.call("resume", "r")
    assert code == 0, err
    assert bench.steps() == [1, 2, 3, 4]


def test_a_preempted_trainer_is_started_again(bench: Bench) -> None:
    code, out, err = bench.run(4, "--json", STANDIN_DO="preempted")
    document = json.loads(out)
    assert code == 0, err
    assert (document["ending"], document["attempt"]) == ("FINISHED", 2)


def test_what_a_trainer_leaves_behind_is_ended(bench: Bench) -> None:
    bench.run(3, STANDIN_DO="orphan")
    orphan = int(bench.path("orphan").read_text())
    wait_for(lambda: not psutil.pid_exists(orphan) or psutil.Process(orphan).status() == psutil.STATUS_ZOMBIE)


def test_no_secret_of_the_environment_reaches_a_file(bench: Bench) -> None:
    bench.run(2, HF_TOKEN="hf_sesame", WANDB_API_KEY="sesame")
    for folder, _, names in os.walk(bench.folder):
        for name in names:
            with open(os.path.join(folder, name), "rb") as f:
                assert b"sesame" not in f.read(), name


@pytest.mark.long
def test_a_finished_run_is_not_started_again(bench: Bench) -> None:
    bench.run(2)
    code, out, _ = bench.call("resume", "r")
    assert code == 0
    assert "r FINISHED" in out
    assert not bench.path("attempts/2").exists()
