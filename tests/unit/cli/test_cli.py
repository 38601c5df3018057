"""The verbs in this process: exit codes, one JSON document, one-line errors."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from podwright.cli.app import main
from podwright.data import gsm8k
from podwright.recipe.load import load, smoke
from podwright.run import create, journal, mirror
from podwright.rundir import append_jsonl, write_json
from podwright.shell import Shell
from podwright.targets import alive
from podwright.targets.base import identity
from podwright.targets.settings.local import LocalSettings
from podwright.targets.settings.slurm import SlurmSettings

RECIPE = "qwen3-tiny-arithmetic-grpo"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PODWRIGHT_RUNS", raising=False)
    monkeypatch.setenv("XLA_FLAGS", "")  # one device, for which the recipe is
    (tmp_path / "reward.py").write_text("def score(prompts, completions, **columns): pass\n")
    return tmp_path


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*argv: str) -> tuple[int, str, str]:
        code = main(list(argv))
        out, err = capsys.readouterr()
        return code, out, err

    return call


EVALUATED = {
    "checkpoint": "runs/r",
    "step": 3,
    "data": "test.jsonl",
    "left_out": 1,
    "num": 8,
    "strict": {"correct": 4, "accuracy": 0.5, "low": 0.2152, "high": 0.7848},
    "flexible": {"correct": 6, "accuracy": 0.75, "low": 0.4093, "high": 0.9285},
    "truncated": 0.125,
    "mean_tokens": 1024.25,
    "seconds": 5.8331086069993034,
    "samples": [1, 2],
}
EVALUATED_MULTIMODAL = {
    "checkpoint": "runs/r",
    "data": "lines.jsonl",
    "num": 1,
    "left_out": 0,
    "loss": 0.51234,
    "json_valid": {"correct": 1, "accuracy": 1.0, "low": 0.2065, "high": 1.0},
    "accuracy": {"accuracy": 0.5, "low": 0.05, "high": 0.95},
    "fields": {"pose": {"correct": 1, "accuracy": 1.0, "low": 0.2065, "high": 1.0}},
    "majority": 0.25,
    "majority_fields": {"pose": 0.25},
    "without_image": {"accuracy": 0.125, "fields": {"pose": 0.125}},
    "samples": [],
}
PREDICTED = {
    "analysis": {"pose": "sitting", "raw_model_output": "{...}", "parsing_note": "sound is absent"},
    "written_to": "runs/r/results/x.json",
}
GOOD = [RECIPE, "rewards=[{function: 'reward.py:score'}]"]


def test_recipes_are_listed_and_shown_with_meanings(call: Any) -> None:
    code, out, _ = call("recipes", "list", "--json")
    assert code == 0 and RECIPE in [r["name"] for r in json.loads(out)]
    assert call("recipes", "--json")[1] == call("recipes", "list", "--json")[1]
    assert call("recipes")[1] == call("recipes", "list")[1]
    code, out, _ = call("recipes", "show", RECIPE, "grpo.beta=0.5")
    assert "grpo.beta = 0.5" in out and "weight of the KL to the frozen reference" in out
    assert json.loads(call("recipes", "show", RECIPE, "--json")[1])["training"]["max_steps"] == 80


def test_the_exit_code_of_a_plan_is_its_verdict(call: Any) -> None:
    code, out, _ = call("plan", *GOOD, "--json", "--on", "cpu-1")
    document = json.loads(out)
    assert code == 0 and document["ok"] and document["programs"] == [] and document["step"] == {}
    code, out, _ = call("plan", *GOOD, "data.source=none.jsonl")
    assert code == 3 and "error: data.source=none.jsonl is not there; check the path" in out
    assert out.endswith("on local: refused: it will not run\n")
    code, out, _ = call("plan", *GOOD, "data.source=openai/gsm8k", "--json")
    document = json.loads(out)
    assert (code, document["verdict"], document["ok"]) == (4, "inconclusive", None)
    assert [f["check"] for f in document["findings"] if f["level"] == "inconclusive"] == ["data", "context"]


def test_a_dry_run_shows_all_and_creates_nothing(call: Any, folder: Path) -> None:
    code, out, _ = call("run", *GOOD, "--on", "cpu-1", "--name", "x", "--dry-run", "--json")
    document = json.loads(out)
    assert code == 0 and document["name"] == "x"
    assert document["argv"][1:] == ["-m", "podwright.train", str(folder / "runs/x"), "--attempt", "1"]
    assert document["env"]["JAX_PLATFORMS"] == "cpu"
    assert "podwright.train" in call("run", *GOOD, "--dry-run")[1]
    assert [call("run", *GOOD, "data.source=none.jsonl", "--dry-run", *force)[0] for force in ((), ("--force",))] == [
        3,
        0,
    ]
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("force", "shown"), [((), "\nwith --force it would create "), (("--force",), "\nwould create ")]
)
def test_a_dry_run_of_a_refused_plan_says_that_only_force_would_create_it(
    call: Any, folder: Path, force: tuple[str, ...], shown: str
) -> None:
    code, out, _ = call("run", *GOOD, "data.source=none.jsonl", "--dry-run", *force)
    assert code == (0 if force else 3) and "refused: it will not run" in out and shown in out
    assert out.count("would create") == 1


def test_a_run_that_the_plan_refuses_is_not_started(call: Any, folder: Path) -> None:
    code, out, err = call("run", *GOOD, "data.source=none.jsonl", "--json")
    assert code == 3 and err == "error: data.source=none.jsonl is not there; check the path\n"
    assert json.loads(out) == {
        "error": "data.source=none.jsonl is not there",
        "fix": "check the path",
        "code": "no-such-file",
    }
    assert not list(folder.glob("runs/*/journal.jsonl"))


def test_what_a_run_cannot_compile_or_search_is_refused(
    call: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ["--cache", str(folder / "cache")]
    monkeypatch.setattr("podwright.plan.checks.this_machine.has_accelerator", lambda: True)
    code, _, err = call("run", *GOOD, "--on", "local", "--compile", "--dry-run", *cache)
    assert (code, err) == (
        2,
        "error: what `local` has is known only when a run starts; type --on cpu-1, or a slice such as --on v6e-16\n",
    )
    code, _, err = call("run", *GOOD, "--on", "cpu-1", "--fit", "--dry-run", *cache)
    assert code == 2 and "--on cpu-1 has no limit of memory that --fit could keep" in err


def test_a_limit_is_no_number_below_zero(call: Any) -> None:
    code, _, err = call("eval", "x", "--limit", "-1")
    assert code == 2 and "'--limit': must be at least 0" in err
    for value, words in (("-1", "must be at least 0"), ("two", "must be a whole number")):
        code, _, err = call("run", RECIPE, "--retries", value)
        assert code == 2 and f"'--retries': {words}" in err and "Input" not in err


def test_seeds_are_a_run_each(call: Any, folder: Path) -> None:
    code, out, _ = call("run", *GOOD, "--on", "cpu-1", "--name", "x", "--seeds", "3,7-8", "--dry-run", "--json")
    assert code == 0 and [one["name"] for one in json.loads(out)] == ["x-seed-3", "x-seed-7", "x-seed-8"]
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("argv", "what", "fix"),
    [
        (
            ["run", *GOOD, "--seeds", "1,1"],
            "--seeds '1,1' names no seeds, or one twice",
            "type --seeds 0,1,2, or --seeds 0-4",
        ),
        (["run", *GOOD, "--seeds", ""], "--seeds '' names no seeds", "type --seeds 0,1,2"),
        (["run", *GOOD, "--seeds", "3-1"], "--seeds '3-1' names no seeds", "type --seeds 0,1,2"),
        (["run", *GOOD, "--seeds", "0,3-1"], "--seeds '0,3-1' names no seeds", "type --seeds 0,1,2"),
        (["run", *GOOD, "--seeds", "0-999999999"], "--seeds 0-999999999 are 1000000000 runs", "at most 64"),
        (
            ["run", *GOOD, "seed=7", "--seeds", "1,2"],
            "seed=7 and --seeds 1,2 both set the seed",
            "leave one of them out",
        ),
        (["run", *GOOD, "--seeds", "a"], "--seeds 'a' names no seeds", "type --seeds 0,1,2"),
        (["run", *GOOD, "--seeds", "0-999"], "--seeds 0-999 are 1000 runs", "at most 64"),
        (
            ["run", *GOOD, "--seeds", "0-1", "--detach"],
            "--detach would start the runs of 2 seeds at once",
            "leave --detach out",
        ),
        (
            ["plan", "qwen3-tiny-aritmetic-grpo"],
            "there is no recipe 'qwen3-tiny-aritmetic-grpo'",
            f"did you mean {RECIPE}?",
        ),
        (
            ["plan", "phase2-tiny", "--on", "cpu-1", "--compile", "--price", "2"],
            "--price has no meaning for phase2-tiny",
            "leave --price out",
        ),
        (
            ["plan", "phase2-tiny", "--on", "cpu-1", "--compile", "--jax", "0.9"],
            "--jax has no meaning for phase2-tiny",
            "leave --jax out",
        ),
        (["plan", "none.yaml"], "there is no recipe file none.yaml", "check the path"),
        (["plan", RECIPE, "traning.max_steps=3"], "unknown key traning.max_steps", "did you mean training.max_steps?"),
        (["plan", RECIPE, "batch_size"], "'batch_size' is not an override", "write key.path=value"),
        (
            ["plan", RECIPE, "model.lora_rank=-1"],
            "model.lora_rank=-1: must be at least 0",
            "model.lora_rank: train",
        ),
        (
            ["plan", RECIPE, "batch_size=four"],
            "batch_size=four: must be a whole number",
            "batch_size: prompts per step",
        ),
        (["plan", RECIPE, "--on", "gpu"], "there is no target and no slice 'gpu'", "type --on local"),
        (["run", RECIPE, "--on", "v6e-8", "mesh.fsdp=3"], "v6e-8 is a slice, not a target", "type --on local"),
        (["run", *GOOD, "--name", "a/b"], "--name 'a/b' cannot be the name of a directory", "use letters"),
        (["run", *GOOD, "--name", "taken"], "run name 'taken' is in use", "type `podwright resume taken`"),
        (["run", *GOOD, "--profile", "3-2"], "--profile '3-2' names no steps", "type --profile 10, or --profile 10-12"),
        (["run", *GOOD, "--profile", "1-2000"], "there is no step 2000, training.max_steps=", "type --profile "),
        (["watch", "takn"], "there is no run 'takn' in runs", "did you mean taken?"),
        (["eval", "takn"], "there is no run 'takn' in runs", "did you mean taken?"),
        (["eval", "zzz", "--data", "d.jsonl"], "there is no run 'zzz' in runs", "`podwright list` shows all"),
        (["diagnose", "takn"], "there is no file 'takn', and no run of that name in runs", "did you mean taken?"),
        (
            ["diagnose", "runs"],
            "there is no file 'runs', and no run of that name in runs",
            "`podwright list` shows all",
        ),
        (["stop", "zzz"], "there is no run 'zzz' in runs", "`podwright list` shows all"),
        (["logs", "taken"], "run taken has no log: nothing was started yet", "`podwright resume taken` starts it"),
        (["report", "zzz"], "there is no run 'zzz' in runs", "`podwright list` shows all"),
        (
            ["report", "taken", "--compare"],
            "there is nothing to compare one run with",
            "podwright report --compare RUN RUN",
        ),
        (["report", "taken", "zzz", "--compare"], "there is no run 'zzz' in runs", "`podwright list` shows all"),
        (["report", "taken", "other"], "report takes one run, not 2", "type podwright report --compare taken other"),
        (["report", "taken", "--out", "x"], "--out x works only with --compare", "leave --out out"),
        (
            ["report", "taken", "b", "--compare", "--readme", "R.md"],
            "--readme works only without --compare",
            "leave one of them out",
        ),
        (["export", "zzz", "out"], "there is no run 'zzz' in runs", "`podwright list` shows all"),
        (["report", "taken", "taken"], "report takes one run, not 2", "type podwright report taken"),
        (["plan", ""], "there is no recipe ''", "`podwright recipes list` shows all"),
        (["predict", "taken"], "predict needs an input", "give --image, --audio, --video or --text"),
    ],
)
def test_an_error_is_one_line_and_says_what_to_type(
    call: Any, folder: Path, argv: list[str], what: str, fix: str
) -> None:
    create.create(folder / "runs" / "taken", load(RECIPE), "local", {})
    code, out, err = call(*argv)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("error: ") and what in line and fix in line
    code, out, _ = call(*argv, "--json")
    document = json.loads(out)
    assert code == 2 and what in document["error"] and fix in document["fix"]


def test_runs_side_by_side(call: Any, folder: Path) -> None:
    for name, recipe, overrides in (("a", "almodel-tiny", []), ("b", "almodel-tiny", ["seed=1"]), ("c", RECIPE, [])):
        create.create(folder / "runs" / name, load(recipe, overrides), "local", {})
    code, out, err = call("report", "--compare", "a", "b")
    assert (code, err) == (0, "")
    assert "Settings that differ  a  b" in out and "seed                  0  1" in out
    assert call("report", "a", "runs/c", "--compare", "--out", "side")[0] == 0
    assert (folder / "side" / "compare.html").is_file()
    document = json.loads(call("report", "--compare", "a", "c", "--json")[1])
    assert [one["what"] for one in document["not_comparable"]] == ["kind of run"]
    assert not (folder / "runs" / "a" / "report").exists(), "a comparison changes no run"


def test_of_two_values_of_a_key_the_later_one_counts_and_stderr_says_so(call: Any) -> None:
    code, out, err = call("recipes", "show", RECIPE, "seed=1", "seed=2", "--json")
    assert code == 0 and json.loads(out)["seed"] == 2
    assert err == "warning: seed=1 has no effect: seed=2 comes after it\n"


def test_problems_of_a_plan_stand_beside_its_verdict(call: Any) -> None:
    code, out, _ = call("plan", RECIPE, "batch_size=10", "mesh.fsdp=4", "--on", "cpu-4")
    assert code == 3
    levels = [line.partition(":")[0] for line in out.splitlines()]
    assert levels == ["info", "info", "info", "error", f"{RECIPE} on cpu-4"]


def test_the_list_shows_how_a_run_ended_as_its_status(call: Any, folder: Path) -> None:
    run = create.create(folder / "runs" / "a", load(RECIPE), "local", {})
    assert call("list")[1].splitlines()[0].split() == ["NAME", "TARGET", "STATUS", "STEP"]
    assert "ready" in call("list")[1]
    journal.append(run, "submitting", attempt=1, handle={})
    journal.append(run, "ended", attempt=1, ending="CRASHED", detail="", fix="", step=2)
    for event in ("released", "reported"):
        journal.append(run, event, attempt=1)
    assert "CRASHED" in call("list")[1] and "ended" not in call("list")[1]


def test_the_list_knows_the_steps_of_every_kind(call: Any, folder: Path) -> None:
    run = create.create(folder / "runs" / "a", load("almodel-tiny"), "local", {})
    append_jsonl(run.metrics, {"stage": "pretrain", "step": 7, "time": 1.0, "attempt": 1, "loss": 3.0})
    (row,) = json.loads(call("list", "--json")[1])
    assert (row["stage"], row["step"], row["max_steps"]) == ("pretrain", 7, 200)
    assert "7/200" in call("list")[1]


@pytest.mark.brief(2)
@pytest.mark.parametrize(
    ("code", "says"),
    [
        (errno.ENOSPC, "runs/x/recipe.json: No space left on device; free some space there"),
        (errno.EROFS, "runs/x/recipe.json: Read-only file system; check that path"),
        (errno.EIO, "runs/x/recipe.json: Input/output error; check that path"),
    ],
)
def test_a_fault_of_the_disk_is_one_line(call: Any, monkeypatch: pytest.MonkeyPatch, code: int, says: str) -> None:
    def broken(*args: object) -> None:
        raise OSError(code, os.strerror(code), "runs/x/recipe.json")

    monkeypatch.setattr(create, "create", broken)
    exit_code, _, err = call("run", *GOOD)
    assert exit_code == 2 and says in err and len(err.splitlines()) == 1


def test_a_runs_directory_that_is_a_file_is_one_line(call: Any, folder: Path) -> None:
    (folder / "runs").touch()
    code, _, err = call("run", *GOOD)
    assert code == 2 and "runs" in err and len(err.splitlines()) == 1


def test_a_fault_of_ours_keeps_its_traceback(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise OSError(errno.EBADF, "ours")

    monkeypatch.setattr(create, "create", broken)
    with pytest.raises(OSError, match="ours"):
        call("run", *GOOD)


def test_runs_are_listed_oldest_first_from_where_the_user_says(
    call: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b", "a"):
        create.create(folder / "else" / name, load(RECIPE), "local", {})
    assert json.loads(call("list", "--json")[1]) == []
    assert "no runs yet" in call("list")[1]
    rows = json.loads(call("list", "--json", "--runs", "else")[1])
    assert [(r["name"], r["state"], r["ending"], r["max_steps"]) for r in rows] == [
        ("b", "ready", None, 80),
        ("a", "ready", None, 80),
    ]
    monkeypatch.setenv("PODWRIGHT_RUNS", "else")
    assert [line.split()[0] for line in call("list")[1].splitlines()] == ["NAME", "b", "a"]


def test_what_is_printed_can_be_pasted_wherever_the_runs_are(call: Any, folder: Path) -> None:
    run = create.create(folder / "else" / "r", load(RECIPE), "local", {})
    journal.append(run, "submitting", attempt=1, handle={})
    journal.append(run, "ended", attempt=1, ending="STOPPED", detail="stopped after step 2", fix="", step=2)
    row = json.loads(call("list", "--json", "--runs", "else")[1])[0]
    assert row["fix"] == "`podwright resume else/r` starts it: nothing was trained yet"
    assert "type `podwright resume else/r` to resume it" in call("run", *GOOD, "--runs", "else", "--name", "r")[2]
    assert "`podwright resume else/r` starts it" in call("logs", "r", "--runs", "else")[2]


def test_a_damaged_run_does_not_hide_the_others(call: Any, folder: Path) -> None:
    for name in ("a", "b"):
        create.create(folder / "runs" / name, load(RECIPE), "local", {})
    (folder / "runs/a/recipe.json").unlink()
    (folder / "runs/c").mkdir()
    (folder / "runs/c/journal.jsonl").touch()
    rows = json.loads(call("list", "--json")[1])
    assert [(r["name"], r["state"]) for r in rows] == [("a", "unreadable"), ("c", "unreadable"), ("b", "ready")]
    err = call("list")[2]
    unattended = "no launcher follows run b; type podwright resume b"
    assert [line.partition(": ")[0] for line in err.splitlines()] == ["a is unreadable", "c is unreadable", unattended]
    assert all(row["detail"] in err for row in rows[:2])
    assert rows[0].keys() == rows[2].keys()
    assert len(call("list")[1].splitlines()) == 4


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"training": 1}', "[" * 100_000, "\ufeff{}"], ids=range(7))
def test_a_damaged_recipe_of_a_run_is_one_line(call: Any, folder: Path, content: str) -> None:
    run = create.create(folder / "runs" / "a", load(RECIPE), "local", {})
    run.recipe.write_text(content)
    for verb in ("watch", "resume", "report"):
        code, out, err = call(verb, "a")
        assert (code, out, err.count("\n")) == (2, "", 1) and err.startswith(
            "error: runs/a/recipe.json is not there, or no recipe of a run"
        ), err
    (row,) = json.loads(call("list", "--json")[1])
    assert row["state"] == "unreadable" and row["detail"].startswith("runs/a/recipe.json is not there, or no recipe")
    run.attempt(1).mkdir(parents=True)
    code, _, err = call("diagnose", "a")
    assert (code, err.count("\n")) == (2, 1) and err.startswith("error: runs/a/recipe.json is not there, or no recipe")


def test_a_run_whose_recipe_is_damaged_is_stopped(call: Any, folder: Path) -> None:
    run = create.create(folder / "runs" / "a", load(RECIPE), "local", {})
    run.recipe.write_text("{")
    code, out, err = call("stop", "a")
    assert journal.read(run).ending == "STOPPED" and "runs/a/recipe.json" in out + err
    assert code == 0, err


def test_a_file_in_the_place_of_the_report_is_named(call: Any, folder: Path) -> None:
    run = create.create(folder / "runs" / "a", load(RECIPE), "local", {})
    run.report.write_text("mine")
    code, _, err = call("report", "a")
    assert code == 2 and "runs/a/report: File exists; check that path" in err
    assert run.report.read_text() == "mine"


def test_a_run_whose_recipe_was_changed_is_not_resumed(call: Any, folder: Path) -> None:
    run = create.create(folder / "runs" / "a", load(RECIPE), "local", {})
    run.recipe.write_text(json.dumps(json.loads(run.recipe.read_text())))
    assert json.loads(call("list", "--json")[1])[0]["damaged"] == [], "it is written in another way"
    run.recipe.write_text(json.dumps(json.loads(run.recipe.read_text()) | {"seed": 99}))
    journal_before = run.journal.read_bytes()
    code, _, err = call("resume", "a")
    assert code == 2 and "recipe.json was changed since the run began (fingerprint " in err, err
    assert run.journal.read_bytes() == journal_before
    assert "recipe.json was changed since the run began" in call("report", "a")[1]


@pytest.mark.parametrize("name", ["journal.jsonl", "recipe.json", "events.jsonl", "metrics.jsonl"])
def test_a_directory_in_place_of_a_file_of_a_run_is_named(call: Any, folder: Path, name: str) -> None:
    path = create.create(folder / "runs" / "a", load(RECIPE), "local", {}).path / name
    path.unlink(missing_ok=True)
    path.mkdir()
    code, out, err = call("report", "a")
    assert (code, out, err.count("\n")) == (2, "", 1) and f"runs/a/{name}" in err, err
    unreadable = call("list")[2]
    assert unreadable.startswith("a is unreadable: ") and name in unreadable


def test_a_log_that_is_gone_is_one_line(call: Any, folder: Path) -> None:
    run = create.create(folder / "runs" / "a", load(RECIPE), "local", {})
    code, _, err = call("diagnose", "a")
    assert code == 2 and "run a has no log" in err
    handle = {"run_dir": str(run.path), "attempt": 1, **identity("local", LocalSettings())}
    for event in ("submitting", "submitted"):
        journal.append(run, event, attempt=1, handle=handle)
    journal.append(run, "ended", attempt=1, ending="FINISHED", detail="", fix="", step=2)
    nothing = "error: attempt 1 of run a has logged nothing: it ended FINISHED; type podwright diagnose a\n"
    assert call("logs", "a") == (2, "", nothing)
    assert call("logs", "a", "--follow") == (2, "", nothing)
    assert call("diagnose", "a") == (2, "", "error: run a has no log; type podwright watch a\n")
    write_json(run.exit(1), {"ending": "FINISHED", "step": 2, "detail": "", "fix": ""})
    assert call("logs", "a") == (2, "", nothing)
    run.log(1).touch()
    assert call("logs", "a") == (2, "", nothing)


def test_logs_say_why_an_attempt_that_never_started_has_none(call: Any, folder: Path) -> None:
    run = create.create(folder / "runs" / "a", load(RECIPE), "local", {})
    cluster = identity("c", SlurmSettings(kind="slurm"))
    handle = {"run_dir": str(run.path), "attempt": 1, "job_name": "a.1", "processes": 2, **cluster}
    for event in ("submitting", "submitted"):
        journal.append(run, event, attempt=1, handle=handle)
    run.attempt(1).mkdir(parents=True)
    (run.attempt(1) / "sbatch.txt").write_text("sbatch: error: invalid partition specified: gpus\n")
    why = "attempt 1 of run a has logged nothing: it ended BAD_INPUT (sbatch refused the job: invalid partition specified: gpus); "
    for follow in ((), ("--follow",), ("--process", "1")):
        code, out, err = call("logs", "a", *follow)
        assert (code, out, err.count("\n")) == (2, "", 1) and err.startswith(f"error: {why}"), err
    (run.attempt(1) / "sbatch.txt").unlink()
    with alive.held(run.alive(1)):
        code, _, err = call("logs", "a")
    why = "attempt 1 of run a has logged nothing: it is waiting (Submitting: sbatch has not answered yet)"
    assert (code, err) == (2, f"error: {why}; type podwright watch a\n")
    run.log(1).write_text("begun\n")
    assert call("logs", "a")[:2] == (0, "begun\n")


def test_damaged_records_are_named_by_the_list(call: Any, folder: Path) -> None:
    run = create.create(folder / "runs" / "a", load(RECIPE), "local", {})
    run.metrics.write_bytes(b"\xff\n")
    sentence = "runs/a/metrics.jsonl is damaged (lines that cannot be read: 1 of 1), so figures of this run may be"
    unattended, warning = call("list")[2].splitlines()
    assert unattended.startswith("no launcher follows run a; ") and warning.startswith(f"warning: {sentence}")
    assert json.loads(call("list", "--json")[1])[0]["damaged"][0].startswith(sentence)


@pytest.mark.parametrize(
    "content", ["", "{", "[1]", "7", "{}", '{"url": 3}', '{"url": ""}', "[" * 100_000], ids=range(8)
)
def test_a_damaged_storage_json_is_named_and_hides_nothing_else(call: Any, folder: Path, content: str) -> None:
    run = create.create(folder / "runs" / "a", load(RECIPE), "local", {})
    handle = {"run_dir": str(run.path), "attempt": 1, **identity("local", LocalSettings())}
    for event in ("submitting", "submitted"):
        journal.append(run, event, attempt=1, handle=handle)
    run.attempt(1).mkdir(parents=True)
    run.log(1).write_text("begun\n")
    append_jsonl(run.metrics, {"stage": "grpo", "step": 3, "time": 1.0})
    run.storage.write_text(content)
    text = "runs/a/storage.json is damaged: it does not name the storage of the run; restore it from a copy of the run"
    (row,) = json.loads(call("list", "--json")[1])
    assert (row["state"], row["step"]) == ("running", 3) and row["damaged"][0].startswith(text)
    assert call("logs", "a")[1] == "begun\n"
    code, out, _ = call("report", "a", "--json")
    assert code == 0 and json.loads(out)["damaged"][0].startswith(text)
    for verb in ("watch", "stop", "resume"):
        code, _, err = call(verb, "a")
        assert (code, err.count("\n")) == (2, 1) and err.startswith(f"error: {text}"), verb
    assert run.storage.read_text() == content


def test_a_run_without_its_recipe_is_reported_with_the_words_of_the_list(call: Any, folder: Path) -> None:
    create.create(folder / "runs" / "a", load(RECIPE), "local", {}).recipe.unlink()
    (row,) = json.loads(call("list", "--json")[1])
    assert call("report", "a") == (2, "", f"error: {row['detail']}\n")


def test_a_file_is_no_directory_of_runs(call: Any) -> None:
    code, out, err = call("list", "--runs", "reward.py")
    assert (code, out) == (2, "") and err.startswith("error: --runs reward.py is not a directory; type --runs with")
    assert call("list", "--runs", "none")[0] == 0


def test_what_is_misspelt_on_the_command_line_exits_2(call: Any) -> None:
    assert call("watc", "x")[0] == 2
    assert call("run")[0] == 2
    assert call("list", "--jsn")[0] == 2


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Answers in place of the compute half, and keeps what it was asked."""
    asked: list[list[str]] = []

    def answers(code: int, out: str) -> list[list[str]]:
        def answer(shell: Shell, program: list[str], words: list[str]) -> tuple[int, str]:
            asked.append([*program, *words])
            return code, out

        monkeypatch.setattr(Shell, "answer", answer)
        return asked

    return answers


def test_eval_and_export_are_done_by_the_compute_half(call: Any, folder: Path, child: Any) -> None:
    create.create(folder / "runs" / "r", load(RECIPE), "local", {})
    asked = child(0, json.dumps(EVALUATED))
    for name in ("test.jsonl", "d"):
        Path(name).touch()
    code, out, _ = call("eval", "r", "--data", "test.jsonl", "--limit", "8")
    assert (code, out.splitlines()) == (0, [
        "runs/r at step 3 on test.jsonl: 50.0 % (95 % confidence interval 21.5 to 78.5 %) correct of 8 questions",
        "flexible (last number of an answer): 75.0 % (95 % confidence interval 40.9 to 92.8 %)",
        "1,024 tokens an answer (mean); 12.5 % cut off at the limit",
        "left out: 1 question that cannot be used",
    ])  # fmt: skip
    assert asked[-1][1:4] == ["-m", "podwright.train", "eval"]
    assert json.loads(asked[-1][4]) == {"path": "runs/r", "data": "test.jsonl", "limit": 8}
    call("eval", "r", "rollout.total_generation_steps=9", "--data", "d", "data.enable_thinking=true")
    assert json.loads(asked[-1][4]) == {"path": "runs/r", "data": "d", "limit": 0}
    assert asked[-1][5:] == ["rollout.total_generation_steps=9", "data.enable_thinking=true"]
    assert json.loads(call("export", "r", "out", "--json")[1])["samples"] == [1, 2]
    assert asked[-1][3:] == ["export", '{"path": "runs/r", "out": "out", "onnx": false}']
    document = {"directory": "out", "step": 3, "dtype": "float32", "num_params": 1_720_000, "files": ["a"]}
    asked = child(0, json.dumps(document | {"onnx_differences": {"projector": 1.25e-6}}))
    assert call("export", "r", "out", "--onnx")[1].splitlines() == [
        "model of step 3 written to out",
        "1.72 M parameters in float32",
        "projector: largest difference from PyTorch 1.3e-06",
    ]
    assert asked[-1][3:] == ["export", '{"path": "runs/r", "out": "out", "onnx": true}']


def test_eval_and_predict_bring_a_run_that_is_kept_in_a_folder_storage(call: Any, folder: Path, child: Any) -> None:
    run = create.create(folder / "launched" / "r", load("phase2-tiny"), "local", {})
    (folder / "storage").mkdir()
    kept = mirror.keep_in(run, str(folder / "storage"), 1.5, folder)
    assert mirror.KeptRun(run).bring() == ""
    asked = child(0, json.dumps(EVALUATED_MULTIMODAL | PREDICTED))
    assert call("eval", kept)[0] == 0 and '"path": "runs/r"' in asked[-1][4]
    assert call("eval", kept, "--runs", "more")[0] == 0 and '"path": "more/r"' in asked[-1][4]
    assert call("predict", kept, "--text", "?")[0] == 0 and asked[-1][3] == "predict"
    assert json.loads(asked[-1][4]) == {"path": "runs/r", "files": {}, "text": "?", "out": ""}


def test_a_multimodal_run_knows_what_to_ask_and_its_export_is_asked_too(call: Any, folder: Path, child: Any) -> None:
    create.create(folder / "runs" / "r", load("phase2-tiny"), "local", {})
    asked = child(0, json.dumps(EVALUATED_MULTIMODAL | PREDICTED))
    assert call("eval", "r")[1].splitlines() == [
        "runs/r on lines.jsonl: 50.0 % (95 % confidence interval 5.0 to 95.0 %) correct of 1 line",
        "valid JSON: 100.0 % (95 % confidence interval 20.6 to 100.0 %); loss 0.512",
        "  pose: 100.0 % (95 % confidence interval 20.6 to 100.0 %); majority class 25.0 %",
        "without image: 12.5 %",
    ]
    assert asked[-1][3] == "eval" and '"path": "runs/r"' in asked[-1][4]
    (folder / "out").mkdir()
    assert call("predict", "out", "--text", "?")[0] == 2
    (folder / "out" / "projector.safetensors").touch()
    code, out, _ = call("predict", "out", "--text", "?")
    assert code == 0 and asked[-1][3] == "predict" and '"path": "out"' in asked[-1][4]
    assert out == (
        '{\n "pose": "sitting"\n}\nnot valid in the schema: sound is absent\nwritten to runs/r/results/x.json\n'
    )
    for there in ("out", "reward.py"):
        assert call("predict", "out", "--text", "?", "--out", there)[::2] == (
            2, f"error: --out {there} exists already; name a new file\n"
        )  # fmt: skip
    assert len(asked) == 2


def test_what_the_compute_half_refuses_is_an_error_of_ours(call: Any, folder: Path, child: Any) -> None:
    (folder / "x").mkdir()
    (folder / "d").touch()
    child(2, '{"error": "x is no checkpoint", "fix": "give one"}')
    assert call("eval", "x", "--data", "d")[::2] == (2, "error: x is no checkpoint; give one\n")
    child(1, "")
    assert call("eval", "x", "--data", "d")[0] == 1


@pytest.mark.parametrize(
    ("lines", "typed", "num_test"),
    [(1000, 0, 32), (20, 8, 8), (1000, 64, 32)],
)
def test_smoke_works_with_the_data_that_is_there(tmp_path: Path, lines: int, typed: int, num_test: int) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text(
        "".join(json.dumps({"question": f"{n}+1?", "answer": f"#### {n + 1}"}) + "\n" for n in range(lines))
    )
    cut = smoke(load(RECIPE, [f"data.source={file}", "data.num_train=0", f"data.num_test={typed}"]), 3)
    train, test = gsm8k.parts(cut.data, 0)[:2]
    assert (len(train), len(test)) == (lines - num_test, num_test)


def test_smoke_cuts_everything_down() -> None:
    cut = smoke(load(RECIPE), 3)
    assert cut.training.max_steps == 3
    assert cut.data.num_test == 32
    assert cut.warm_start is not None and cut.warm_start.max_steps == 20
    assert (cut.checkpoint.every_n_steps, cut.evaluation.every_n_steps) == (1, 0)
    small = smoke(load(RECIPE, ["data.num_test=8", "warm_start.max_steps=5", "checkpoint.every_n_steps=2"]), 10)
    assert small.warm_start is not None
    assert (small.data.num_test, small.warm_start.max_steps, small.checkpoint.every_n_steps) == (8, 5, 2)
    assert smoke(load("qwen3-1.7b-gsm8k-grpo"), 10).warm_start is None
    epochs = smoke(load(RECIPE, ["training.max_steps=0", "training.num_epochs=2"]), 3)
    assert (epochs.training.max_steps, epochs.training.num_epochs) == (3, 0)


@pytest.mark.parametrize("recipe", [RECIPE, "almodel-tiny", "phase1-tiny", "phase2-tiny"])
@pytest.mark.parametrize("value", ["99999999999999999999", "2147483648", "-1"])
def test_a_seed_that_no_generator_takes_is_refused_before_a_run(call: Any, recipe: str, value: str) -> None:
    code, _, err = call("run", recipe, f"seed={value}")
    assert code == 2 and err.startswith(f"error: seed={value}")
    load(recipe, ["seed=2147483647"])


def test_a_check_can_be_run_alone(call: Any) -> None:
    wrong = [RECIPE, "data.source=nowhere.jsonl", "--on", "v6e-8"]
    code, out, _ = call("plan", *wrong, "mesh.fsdp=8", "--json")
    assert code == 3 and {f["check"] for f in json.loads(out)["findings"]} == {"slice", "model", "memory", "data"}
    assert json.loads(out)["memory"]
    code, out, _ = call("plan", *wrong, "mesh.fsdp=8", "--only", "mesh, memory", "--json")
    document = json.loads(out)
    assert code == 0 and [f["check"] for f in document["findings"]] == ["mesh", "memory"] and document["memory"]
    code, _, err = call("plan", *wrong, "--only", "mesh,data")
    assert code == 3 and err == ""
    code, _, err = call("plan", *wrong, "--only", "memry")
    assert (code, err) == (2, "error: --only memry is no check; type --only memory\n")


@pytest.mark.parametrize(
    ("typed", "check"),
    [
        (["almodel-8b-source", "--on", "v6e-64"], "data"),
        ([RECIPE, "data.source=nobody/sums", "mesh.fsdp=8", "--on", "v6e-8"], "data"),
    ],
)
def test_only_asks_no_other_machine_about_what_it_leaves_out(
    call: Any, monkeypatch: pytest.MonkeyPatch, typed: list[str], check: str
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("podwright.plan.checks.patience.soon", lambda seconds, ask: asked.append(ask))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    code, _, _ = call("plan", *typed, "--only", "mesh,batch", "--json")
    assert code in (0, 3) and not asked
    call("plan", *typed, "--only", check, "--json")
    assert asked


def test_only_asks_no_cluster_about_its_mesh(call: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "targets.yaml").write_text("nodes: {kind: slurm, nodes: 2, accelerator: H100-80GB, gpus_per_node: 4}\n")
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(folder / "targets.yaml"))
    monkeypatch.setattr("podwright.targets.slurm.Slurm.check", lambda _: pytest.fail("the cluster was asked"))
    code, out, _ = call("plan", *GOOD, "mesh.fsdp=8", "--on", "nodes", "--only", "mesh", "--json")
    assert code == 0 and {f["check"] for f in json.loads(out)["findings"]} == {"mesh"}


def test_a_picture_of_the_memory_is_written(call: Any, folder: Path) -> None:
    code, _, _ = call("plan", *GOOD, "mesh.fsdp=8", "--on", "v6e-8", "--svg", "memory.svg")
    assert code == 0 and "update" in (folder / "memory.svg").read_text()
    code, _, err = call("plan", *GOOD, "mesh.fsdp=8", "--on", "v6e-8", "--svg", "gone/x.svg")
    assert (code, err) == (
        2,
        "error: gone/x.svg: No such file or directory; check that path, or give another one\n",
    )
    code, _, err = call("plan", *GOOD, "--svg", "memory.svg")
    assert code == 2 and "this plan says nothing about memory; leave --svg out" in err


def test_a_run_without_its_journal_is_not_called_absent(call: Any, folder: Path) -> None:
    run = create.create(folder / "runs" / "a", load(RECIPE), "local", {})
    run.journal.unlink()
    for verb in ("watch", "resume", "stop", "report"):
        code, out, err = call(verb, "a")
        assert (code, out) == (2, "") and err.startswith("error: runs/a/journal.jsonl is missing: the state of"), err


def test_a_recipe_that_may_not_be_read_is_not_called_damaged(call: Any, folder: Path, monkeypatch: Any) -> None:
    run = create.create(folder / "runs" / "a", load(RECIPE), "local", {})
    read = Path.read_bytes

    def denied(path: Path) -> bytes:
        if path.name == "recipe.json":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", denied)
    code, _, err = call("report", "a")
    assert code == 2 and f"{run.recipe.relative_to(folder)}: Permission denied; check that path" in err, err
