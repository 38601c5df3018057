"""Runs on a real SLURM of two nodes: begun, watched, stopped, warned, preempted, their nodes and launchers lost, and taken up again.

The stand-in trains, for only the life of a run matters here; test_slurm_training.py trains for real.
"""

import fcntl
import json
import os
import shutil
import signal
import time

import pytest

from lab import slurm
from tests.e2e.conftest import RECIPE, Farm, wait_for

pytestmark = pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing() or "there is one")


def test_a_run_goes_through_and_says_where_it_was(farm: Farm) -> None:
    code, out, err = farm.run(
        3, "--on", "lab", SLURM_MEM_PER_NODE="1", SLURM_MEM_PER_CPU="1", SLURM_NTASKS="9"
    )  # as in a session of salloc
    assert code == 0, (out, err)
    assert farm.ended() == ["FINISHED"] and farm.steps() == [1, 2, 3]
    assert farm.path("latest").resolve() == farm.path("attempts/1").resolve()
    _, log, _ = farm.call("logs", "r")
    _, other, _ = farm.call("logs", "r", "--process", "1")
    assert "start 1, on n[1-2]" in log and "process 0 of 2 on n1" in log and "step 3 done" in log
    job, shown = int(farm.job()), dict(line.split("=", 1) for line in other.splitlines() if "=" in line)
    assert "process 1 of 2 on n2" in other and "step" not in other
    address = {"MASTER_ADDR": "n1", "MASTER_PORT": str(12000 + job), "JAX_COORDINATOR_ADDRESS": f"n1:{12000 + job}"}
    ranks = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2"}
    assert (address | ranks | {"JAX_PLATFORMS": "cpu"}).items() <= shown.items(), shown


def test_seeds_are_jobs_that_queue_up(farm: Farm) -> None:
    code, out, err = farm.run(2, "--on", "lab", "--seeds", "0,4", "--json")
    assert code == 0, (out, err)
    rows = json.loads(out)
    assert [(r["name"], r["ending"]) for r in rows] == [
        ("r-seed-0", "FINISHED"),
        ("r-seed-4", "FINISHED"),
    ] and farm.submitted() == 2
    assert json.loads((farm.folder / "runs/r-seed-4/recipe.json").read_text())["seed"] == 4


@pytest.mark.long
def test_who_leaves_the_runs_of_several_seeds_leaves_them_at_work(farm: Farm) -> None:
    launcher = farm.start_run(100, "--on", "lab", "--seeds", "0,1", STANDIN_STEP_S="0.4")
    wait_for(lambda: (farm.folder / "runs/r-seed-1/attempts/1/sbatch.txt").exists())
    wait_for(lambda: (farm.folder / "runs/r-seed-0/metrics.jsonl").exists())
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=900)
    assert launcher.returncode == 130 and farm.submitted() == 2
    for seed in (0, 1):
        assert farm.call("stop", f"r-seed-{seed}")[0] == 0


def test_gpus_are_asked_for_and_every_process_sees_those_of_its_node(farm: Farm) -> None:
    farm.target("gpus", python=farm.folder / "python", nodes=2, gpus_per_node=2)
    code, out, err = farm.run(2, "--on", "gpus", JAX_PLATFORMS="cuda")
    assert code == 0, (out, err)
    shown = dict(
        line.split("=", 1) for line in farm.path("attempts/1/log-1.txt").read_text().splitlines() if "=" in line
    )
    assert (shown["CUDA_VISIBLE_DEVICES"], shown["JAX_LOCAL_DEVICE_IDS"], shown["JAX_PLATFORMS"]) == (
        "0,1",
        "0,1",
        "cuda",
    )


@pytest.mark.brief(1)
@pytest.mark.parametrize("dies", ["after:submitting", "before:submitted"])
def test_a_launcher_that_dies_leaves_a_run_that_is_taken_up_and_submits_nothing_twice(farm: Farm, dies: str) -> None:
    code, *_ = farm.run(2, "--on", "lab", LAUNCH_DIES=dies)
    assert code == -signal.SIGKILL
    code, out, err = farm.call("resume", "r")
    assert code == 0, (out, err)
    assert farm.ended()[-1] == "FINISHED" and farm.steps() == [1, 2] and farm.submitted() == 1


@pytest.mark.long
def test_a_launcher_that_dies_while_sbatch_is_at_work_finds_its_job(farm: Farm) -> None:
    slow = farm.folder / "bin" / "sbatch"
    slow.parent.mkdir()
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *test-only*) ;; *) touch {farm.folder}/asked; sleep 3 ;; esac\nexec {shutil.which("sbatch")} "$@"\n'
    )
    slow.chmod(0o755)
    launcher = farm.start_run(2, "--on", "lab", PATH=f"{slow.parent}:{os.environ['PATH']}")
    wait_for((farm.folder / "asked").exists)
    launcher.kill()
    launcher.wait()
    assert farm.submitted() == 0 and farm.standing()["state"] == "submitting"
    code, out, err = farm.call("resume", "r")
    assert code == 0, (out, err)
    assert farm.ended() == ["FINISHED"] and farm.submitted() == 1


@pytest.mark.long
def test_a_warned_run_saves_and_comes_back_by_itself_with_nobody_at_it(farm: Farm) -> None:
    assert farm.run(12, "--on", "lab", "--detach", STANDIN_STEP_S="0.4")[0] == 0
    farm.wait_for_step(2)
    farm.lab.call("scancel", "--signal=USR1", farm.job())
    farm.lab.wait(
        lambda: farm.standing()["detail"].startswith("BeginTime")
    )  # SLURM looks at what is queued when it gets to it
    row = farm.standing()
    assert (row["state"], row["detail"]) == (
        "waiting",
        "BeginTime: a job that was queued again is held for two minutes",
    )
    _, table, _ = farm.call("list")
    assert "waiting (BeginTime)" in table
    watching = farm.start("watch", "r")
    assert watching.stdout
    seen = ""
    while "waiting (BeginTime: " not in seen:  # before the job goes on, or a busy machine shows no waiting
        line = watching.stdout.readline()
        assert line, seen
        seen += line
    farm.lab.hurry(farm.job())
    out, _ = watching.communicate(timeout=900)
    assert watching.returncode == 0 and "resumes from step" in out
    assert farm.steps() == list(range(1, 13)) and farm.ended() == ["FINISHED"] and farm.submitted() == 1
    assert json.loads(farm.path("attempts/1/starts/1/exit.json").read_text())["ending"] == "STOPPED"
    assert [farm.last_words(n)["why"] for n in (1, 2)] == ["requeued", "done"]
    assert farm.path("attempts/1/log.txt").read_text().count("podwright: process 0 of 2") == 2


@pytest.mark.long
def test_a_run_that_never_gets_to_a_new_checkpoint_is_not_queued_for_ever(farm: Farm) -> None:
    assert farm.run(500, "--on", "lab", "--detach", STANDIN_STEP_S="0.3")[0] == 0
    for start in (1, 2, 3):  # the stand-in keeps its checkpoint elsewhere
        wait_for(lambda start=start: farm.path(f"attempts/1/starts/{start}/begun.json").exists())
        before = len(farm.steps())
        wait_for(lambda before=before: len(farm.steps()) > before + 1)  # its trainer is there to get the signal
        farm.lab.call("scancel", "--signal=USR1", farm.job())
        if start < 3:
            farm.lab.hurry(farm.job())
    farm.lab.wait(lambda: farm.lab.state(farm.job()) == "COMPLETED")
    row = farm.standing()
    assert (row["ending"], row["state"]) == ("TIMED_OUT", "ended") and row["detail"].startswith(
        "three starts came to no checkpoint"
    ), row


def test_stop_saves_and_the_job_stays_away_until_resume(farm: Farm) -> None:
    assert farm.run(30, "--on", "lab", "--detach", STANDIN_STEP_S="0.2")[0] == 0
    farm.wait_for_step(2)
    assert farm.call("stop", "r")[0] == 0
    assert farm.ended() == ["STOPPED"] and farm.last_words(1)["why"] == "done"
    assert farm.lab.state(farm.job()) == "COMPLETED"
    last = max(farm.steps())
    assert farm.call("resume", "r", STANDIN_STEP_S="0.01")[0] == 0
    assert farm.ended() == ["STOPPED", "FINISHED"] and farm.steps()[last] == last + 1 and farm.submitted() == 2
    assert farm.path("latest").resolve().name == "2"


@pytest.mark.long
def test_nothing_is_said_of_a_trainer_before_the_job_has_one_and_after_its_end(farm: Farm) -> None:
    farm.target(
        "slow", python=farm.folder / "python", nodes=2, setup=[f"until [ -e {farm.folder}/go ]; do sleep 0.1; done"]
    )
    assert farm.run(30, "--on", "slow", "--detach")[0] == 0
    wait_for(farm.path("attempts/1/starts/1/begun.json").exists)
    stopping = farm.start("stop", "r")
    assert stopping.stdout
    shown = next(line for line in stopping.stdout if "waiting (" in line)
    assert "saves a checkpoint first if it trains" in shown and "trainer" not in shown, shown
    with farm.path("launcher.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        print(json.dumps({"host": "login2", "pid": 1}), file=held, flush=True)
        (farm.folder / "go").touch()
        farm.lab.wait(lambda: farm.lab.state(farm.job()) == "COMPLETED")
        time.sleep(2)  # the end is seen, and cannot be written down
    shown += stopping.communicate(timeout=900)[0]
    assert farm.ended() == ["STOPPED"] and "stopped before the trainer was started" in shown, shown
    assert "no process of the attempt" not in shown, shown


@pytest.mark.long
def test_a_job_that_somebody_cancels_stays_away(farm: Farm) -> None:
    assert farm.run(300, "--on", "lab", "--detach", STANDIN_STEP_S="0.2")[0] == 0
    farm.wait_for_step(2)
    farm.lab.call("scancel", farm.job())
    farm.lab.wait(lambda: farm.lab.state(farm.job()) == "CANCELLED")
    row = farm.standing()
    assert row["ending"] == "STOPPED" and "the job was cancelled" in row["detail"], row


def test_a_trainer_that_dies_is_the_end_of_its_job(farm: Farm) -> None:
    code, out, _ = farm.run(5, "--on", "lab", STANDIN_DO="killed")
    assert code == 1 and farm.ended() == ["UNKNOWN"] and "killed by SIGKILL" in out and farm.submitted() == 1, out
    assert farm.lab.state(farm.job()) == "FAILED" and farm.last_words(1)["why"] == "done"


@pytest.mark.brief(1)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_is_named_with_its_node_and_its_signal(farm: Farm, rank: int) -> None:
    waiting = farm.folder / "waiting"
    waiting.write_text((farm.folder / "python").read_text().replace("exit 0; }", "exec sleep 600; }"))
    waiting.chmod(0o755)
    farm.target("waits", python=waiting, nodes=2)
    assert farm.run(500, "--on", "waits", "--detach", STANDIN_STEP_S="0.2")[0] == 0
    farm.wait_for_step(2)
    wait_for(lambda: "RANK=1" in farm.path("attempts/1/log-1.txt").read_text())
    os.kill(farm.process(rank), signal.SIGKILL)
    farm.lab.wait(lambda: farm.lab.state(farm.job()) == "FAILED")
    _, out, _ = farm.call("watch", "r")
    last = [r for r in farm.records("journal.jsonl") if r["event"] == "ended"][-1]
    assert last["ending"] == "UNKNOWN" and last["failed_hosts"] == [f"n{rank + 1}"], (last, out)
    assert last["detail"].startswith(f"process {rank} on n{rank + 1}: killed by SIGKILL"), last
    rules = [match["rule"] for match in json.loads(farm.call("diagnose", "r", "--json")[1])["matches"]]
    assert "slurm-task-killed" in rules


def test_a_lost_node_is_not_the_end(farm: Farm) -> None:
    assert farm.run(12, "--on", "lab", "--detach", STANDIN_STEP_S="0.4")[0] == 0
    farm.wait_for_step(3)
    farm.lab.call("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test")
    try:
        farm.lab.wait(lambda: farm.lab.state(farm.job()) == "PENDING")
    finally:
        farm.lab.call("scontrol", "update", "NodeName=n2", "State=RESUME", check=False)  # it may be back by itself
    farm.lab.hurry(farm.job())
    assert farm.call("watch", "r")[0] == 0
    assert farm.ended() == ["FINISHED"] and sorted(set(farm.steps())) == list(range(1, 13)) and farm.submitted() == 1


@pytest.mark.long
def test_what_the_cluster_cannot_give_is_said_before(farm: Farm) -> None:
    wanted = {
        "nope": (
            {"partition": "nope"},
            "the cluster has no partition nope",
            "set partition to one of gpu, high, one, shut",
        ),
        "long": ({"time": "4:00:00"}, "time=4:00:00: partition gpu allows 2:00:00", "set time=2:00:00"),
        "many": ({"nodes": 5}, "nodes=5: there are 2 node(s) of partition gpu with 1 CPUs", "lower nodes"),
        "gpus": (
            {"gpus_per_node": 8},
            "nodes=1: there are 0 node(s) of partition gpu with 1 CPUs and 8 GPUs",
            "lower nodes, gpus_per_node",
        ),
        "mem": ({"mem": "9999G"}, "sbatch refuses such a job: ", "mem of the target"),
        "python": (
            {"python": "/no/python"},
            "python=/no/python: there is no such file here",
            "an environment that the nodes share",
        ),
        "runs": ({"runs": "/no/runs"}, "there is no folder /no/runs", "mkdir -p /no/runs"),
        "storage": ({"storage": "/no/storage"}, "there is no folder /no/storage", "mkdir -p /no/storage"),
    }
    for name, (settings, what, fix) in wanted.items():
        farm.target(name, **settings)
        code, out, _ = farm.call("target", "check", name, "--json")
        first = next(f for f in json.loads(out)["findings"] if f["level"] == "error")
        assert code == 3 and first["message"].startswith(what) and fix in first["fix"], (name, first)
    code, out, _ = farm.call("plan", "qwen3-tiny-arithmetic-grpo", "--on", "nope")
    assert code == 3 and "error: the cluster has no partition nope; set partition" in out
    code, _, err = farm.call("run", "qwen3-tiny-arithmetic-grpo", "--on", "nope")
    assert code == 3 and "no partition nope" in err and not (farm.folder / "runs").exists()
    code, out, _ = farm.run(2, "--on", "lab", "--dry-run")
    assert code == 0 and "#SBATCH --nodes=2" in out and "srun --nodes=2 --ntasks=2" in out and "podwright.train" in out
    assert not (farm.folder / "runs").exists()
    code, out, _ = farm.call("target", "check", "lab")
    assert code == 0 and "lab: OK: no problems found" in out and "Job" in out
    farm.target("kept", storage=farm.folder)
    code, out, _ = farm.call("target", "check", "kept")
    assert code == 4 and f"info: this machine can write, read, list and delete in storage={farm.folder}\n" in out
    assert "inconclusive: the hosts of kept were not checked" in out and "; type podwright doctor --on kept" in out


@pytest.mark.long
@pytest.mark.parametrize(
    ("out_of_service", "settings", "says"),
    [
        (
            ("NodeName=n2", "State=DRAIN", "Reason=test"),
            {"nodes": 2},
            "nodes=2: only 1 of the 2 node(s) of partition gpu with 1 CPUs",
        ),
        (("NodeName=n[1-2]", "State=DOWN", "Reason=test"), {"nodes": 1}, "nodes=1: only 0 of the 2 node(s)"),
        ((), {"partition": "shut"}, "partition shut starts no jobs now (it is down)"),
    ],
)
def test_a_run_is_queued_for_what_is_out_of_service_and_says_so(
    farm: Farm, out_of_service: tuple[str, ...], settings: dict[str, object], says: str
) -> None:
    farm.target("waits", python=farm.folder / "python", **settings)
    if out_of_service:
        farm.lab.call("scontrol", "update", *out_of_service)
    try:
        code, out, _ = farm.call("target", "check", "waits", "--json")
        (remark,) = [f for f in json.loads(out)["findings"] if f["level"] != "info"]
        assert code == 0 and remark["level"] == "warning" and remark["message"].startswith(says), out
        code, out, _ = farm.call("doctor", "--on", "waits", "--json")
        (asked,) = [f for f in json.loads(out)["findings"] if f["check"] == "machines"]
        assert code == 4 and asked["level"] == "inconclusive" and says in asked["message"], out
        mesh = f"mesh.fsdp={settings.get('nodes', 1)}"
        begun = (*RECIPE, mesh, "training.max_steps=2", "--name", "r", "--on", "waits", "--detach")
        code, out, err = farm.call("run", *begun)
        assert code == 0 and says in out + err, (out, err)
        reasons = ("ReqNodeNotAvail: nodes that it needs are down", "PartitionDown: ")
        farm.lab.wait(lambda: farm.standing()["state"] == "waiting" and farm.standing()["detail"].startswith(reasons))
    finally:
        if out_of_service:
            farm.lab.call("scontrol", "update", out_of_service[0], "State=RESUME", check=False)
    if out_of_service:
        assert farm.call("watch", "r")[0] == 0 and farm.ended() == ["FINISHED"]
    farm.target("picky", nodes=2, mem="9999G")
    assert farm.call("target", "check", "picky")[0] == 3


def test_a_doctor_of_a_busy_cluster_says_that_a_run_would_wait(farm: Farm) -> None:
    other = farm.lab.call("sbatch", "--parsable", "-N", "2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600")
    try:
        farm.lab.wait(lambda: farm.lab.state(other) == "RUNNING")
        code, out, _ = farm.call("doctor", "--on", "lab", LAUNCH_PATIENCE_S="2")
    finally:
        farm.lab.call("scancel", other)
    assert code == 4 and "2 of them were not free within 2 s; a run is queued until they are free" in out, out


def test_a_doctor_looks_at_every_node(farm: Farm) -> None:
    farm.target("real", nodes=2, runs=farm.folder, storage=farm.folder)
    code, out, err = farm.call("doctor", "almodel-tiny", "mesh.fsdp=2", "--on", "real", "--json")
    told = json.loads(out)
    assert code == 0 and told["ok"], (out, err)
    assert sorted(machine["host"] for machine in told["machines"]) == ["n1", "n2"]
    assert all(set(machine["peers"]) == {"n1", "n2"} and all(machine["peers"].values()) for machine in told["machines"])
    (network,) = [f["message"] for f in told["findings"] if f["check"] == "network"]
    assert network.startswith("2 machines met within ") and network.endswith(" GB/s each, by gloo")
    assert [f["message"].partition(" can ")[0] for f in told["findings"] if f["check"] == "storage"] == [
        "2 machine(s)",
        "this machine",
    ]
    farm.target("broken", nodes=2, setup=["module load 'no such'"])
    code, out, _ = farm.call("doctor", "--on", "broken")
    assert (
        code == 3
        and "error: 0 of 2 machines of broken have answered" in out
        and "module" in out
        and "podwright target check broken" in out
    )
    farm.target("many", nodes=5)
    code, out, _ = farm.call("doctor", "--on", "many")
    assert code == 3 and "error: nodes=5: there are 2 node(s)" in out and "many: refused: it will not run" in out


@pytest.mark.long
def test_what_the_cluster_refuses_or_never_starts_is_said_after(farm: Farm) -> None:
    farm.target("nope", partition="nope")
    code, out, _ = farm.run(2, "--on", "nope")
    assert code == 1 and farm.ended() == ["BAD_INPUT"]
    assert (
        "sbatch refused the job: invalid partition specified: nope" in out and "`sinfo -s` lists the partitions" in out
    ), out
    shutil.rmtree(farm.path())
    farm.target("long", time="4:00:00")
    assert farm.run(2, "--on", "long", "--detach")[0] == 0
    farm.lab.wait(lambda: "PartitionTimeLimit" in farm.standing()["detail"])
    assert "lower time" in farm.standing()["detail"]
    assert farm.call("stop", "r")[0] == 0
    assert farm.ended() == ["STOPPED"] and farm.lab.state(farm.job()) == "CANCELLED"


def test_a_run_starts_in_any_of_several_partitions(farm: Farm) -> None:
    farm.target("several", nodes=2, partition="one,gpu", python=farm.folder / "python")
    code, out, _ = farm.call("target", "check", "several")
    assert code == 0 and "warning: nodes=2: there are 1 node(s) of partition one" in out, out
    code, out, _ = farm.run(2, "mesh.fsdp=2", "--on", "several")
    assert code == 0 and farm.ended() == ["FINISHED"], out


def test_a_syntax_error_in_setup_is_said_with_its_line(farm: Farm) -> None:
    farm.target("typo", setup=["if true; then"], python=farm.folder / "python")
    code, out, _ = farm.call("target", "check", "typo")
    assert code == 3 and "setup has a syntax error: if true; then (syntax error: unexpected end of file)" in out, out
    code, out, _ = farm.run(2, "--on", "typo")
    assert code == 1 and farm.ended() == ["BAD_INPUT"]
    assert "a line of the target's setup failed on the cluster: if true; then" in out, out


def test_setup_that_fails_is_said(farm: Farm) -> None:
    farm.target("bad", setup=["module load 'no such'"], python=farm.folder / "python")
    code, out, _ = farm.run(2, "--on", "bad")
    assert code == 1 and farm.ended() == ["BAD_INPUT"]
    assert "a line of the target's setup failed on the cluster: module load 'no such'" in out and "fix setup" in out, (
        out
    )


@pytest.mark.long
def test_runs_go_where_the_nodes_see_them_and_are_found_from_here(farm: Farm) -> None:
    shared = farm.folder / "shared"
    shared.mkdir()
    farm.target("far", runs=shared, python=farm.folder / "python")
    assert farm.run(2, "--on", "far")[0] == 0
    assert farm.path().is_symlink() and (shared / "r" / "exit.json").parent.is_dir()
    assert (
        farm.standing()["ending"] == "FINISHED"
        and farm.path("attempts/1/job.sh").resolve() == shared / "r/attempts/1/job.sh"
    )
    code, _, err = farm.run(2, "--on", "far")
    assert code == 2 and "in use" in err


@pytest.mark.long
def test_a_job_that_others_take_the_nodes_from_comes_back(farm: Farm) -> None:
    assert farm.run(300, "--on", "lab", "--detach", STANDIN_STEP_S="0.4")[0] == 0
    farm.wait_for_step(3)
    other = farm.lab.call("sbatch", "--parsable", "-p", "high", "-n", "8", "-o", "/dev/null", "--wrap", "sleep 3")
    farm.lab.wait(lambda: farm.lab.state(farm.job()) == "PENDING")
    saved = json.loads(farm.path("attempts/1/exit.json").read_text())
    farm.lab.wait(lambda: farm.lab.state(other) == "COMPLETED", 120)
    farm.lab.hurry(farm.job())
    farm.lab.wait(lambda: farm.path("attempts/1/starts/2/begun.json").exists())
    wait_for(lambda: max(farm.steps()) > saved["step"] + 1)
    assert (
        saved["ending"] == "STOPPED"
        and {"event": "resumed", "step": saved["step"]}.items() <= farm.records("events.jsonl")[-2].items()
    )
    assert farm.call("stop", "r")[0] == 0 and farm.submitted() == 1


@pytest.mark.long
def test_the_time_limit_is_warned_of_and_survived(farm: Farm) -> None:
    farm.target("short", time="1", warn_s=20, python=farm.folder / "python")
    assert farm.run(300, "--on", "short", "--detach", STANDIN_STEP_S="0.5")[0] == 0
    farm.lab.wait(lambda: farm.path("attempts/1/starts/1/ended.json").exists(), 120)
    assert farm.last_words(1)["why"] == "requeued"
    farm.lab.hurry(farm.job())
    wait_for(lambda: farm.path("attempts/1/starts/2/begun.json").exists())
    wait_for(lambda: any(e["event"] == "resumed" for e in farm.records("events.jsonl")))
    assert farm.call("stop", "r")[0] == 0 and farm.submitted() == 1


@pytest.mark.long
def test_a_trainer_that_does_not_heed_the_warning_runs_into_the_limit(farm: Farm) -> None:
    farm.target("short", time="1", warn_s=20, python=farm.folder / "python")
    assert farm.run(3000, "--on", "short", "--detach", STANDIN_DO="deaf", STANDIN_STEP_S="0.5")[0] == 0
    farm.lab.wait(lambda: farm.lab.state(farm.job()) == "TIMEOUT", 180)
    _, out, _ = farm.call("watch", "r")
    assert farm.ended() == ["TIMED_OUT"] and "TIMEOUT: the time limit of the job came" in out, out
