"""Each rule against a log that says so, and what a user gets to read of it."""

import collections
import io
import json
import re
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import pytest
import typer.main

from podwright.cli import app
from podwright.errors import UserError
from podwright.failures.match import FILES, FailureRow, match, rows
from podwright.recipe import advice, load
from podwright.recipe.kinds import KINDS
from podwright.run import states
from podwright.rundir import Ending, RunDir, write_json
from podwright.targets import kinds
from podwright.targets.base import Polled, Process
from podwright.watch import explain
from podwright.watch.diagnose import outcome
from tests.diagnosed import diagnosed

LOGS = Path(__file__).parents[2] / "logs"
ROWS = rows("log")


def rule_of(log: Path) -> str:
    """A log is named after the rule that explains it; `@` and a word follow where a rule has several."""
    return log.stem.partition("@")[0]


@pytest.mark.parametrize("log", sorted(LOGS.glob("*.log")), ids=lambda path: path.stem)
def test_the_log_of_a_failure_is_explained_by_its_rule_first(log: Path) -> None:
    found = explain.file(log)
    assert found and found[0]["rule"] == rule_of(log), [match["rule"] for match in found]
    assert found[0]["evidence"] in log.read_text()


@pytest.mark.parametrize("log", sorted((LOGS / "healthy").glob("*.log")), ids=lambda path: path.stem)
def test_the_log_of_a_healthy_run_is_explained_by_nothing(log: Path) -> None:
    assert explain.file(log) == []


@pytest.mark.parametrize("folder", sorted((LOGS / "workers").iterdir()), ids=lambda path: path.name)
def test_the_logs_of_all_workers_are_explained_by_the_first_cause(folder: Path) -> None:
    found = explain.folder(folder)
    assert found[0]["rule"] == folder.name, [(match["rule"], match["file"]) for match in found]


def test_there_are_logs_enough() -> None:
    assert len(list(LOGS.glob("*.log"))) >= 60 and len(list((LOGS / "healthy").glob("*.log"))) >= 12


@pytest.mark.parametrize(
    ("line", "rule", "words"),
    [
        (
            "ERROR: (gcloud.compute.tpus.tpu-vm.create) RESOURCE_EXHAUSTED: Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' "
            "has been exceeded. Limit: 0 in region us-east5.",
            "quota-region",
            "quota TPUV6EPreemptiblePerProjectPerRegionForTPUAPI of us-east5 is 0",
        ),
        (
            "RESOURCE_EXHAUSTED: Quota 'TPUV2sPreemptiblePodPerProjectPerZoneForTPUAPI' exhausted. Limit 32 in zone europe-west4-a",
            "quota-zone",
            "quota TPUV2sPreemptiblePodPerProjectPerZoneForTPUAPI of europe-west4-a is 32",
        ),
        (
            "RESOURCE_EXHAUSTED: Quota exceeded for quota metric 'Maximum number of CreateNode requests per minute'",
            "request-rate",
            "",
        ),
        (
            "ERROR: (gcloud.compute.tpus.queued-resources.create) RESOURCE_EXHAUSTED: There is no more capacity in the zone "
            '"europe-west4-a"; you can try in another zone',
            "no-capacity",
            "",
        ),
        (
            "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Attempting to reserve 30.31G. Only 29.35G free.",
            "hbm-out-of-memory",
            "",
        ),
        (
            "google.api_core.exceptions.TooManyRequests: 429 RESOURCE_EXHAUSTED: The rate of change requests to the object exceeds the "
            "rate limit",
            "bucket-rate",
            "",
        ),
        ("RESOURCE_EXHAUSTED: No space left on device", "disk-full", ""),
        ("RESOURCE_EXHAUSTED: Received message larger than max (5242880 vs. 4194304)", None, ""),
        (
            "ABORTED: The TPU is already in use by process with pid 2239507. Not",
            "tpu-in-use",
            "process 2239507 of this",
        ),
        (
            "DEADLINE_EXCEEDED: TPU initialization failed: Failed to connect to 10.0.0.3:8471",
            "tpu-peer",
            "at 10.0.0.3 ",
        ),
        ("} has not finished in 1800 seconds. The operations may still be underway", "creation-unfinished", "1800 s"),
        ("Error writing: HTTP response code: 429", "bucket-rate", ""),
        ("Error writing: HTTP response code: 503", "bucket-server", ""),
        ("Error writing: HTTP response code: 403", "bucket-forbidden", ""),
        ("Error reading: HTTP response code: 404", "bucket-missing", ""),
        ("Error writing: HTTP response code: 412", "bucket-conflict", ""),
        ("Error reading: HTTP response code: 200", None, ""),
    ],
)
def test_what_a_line_stands_for(line: str, rule: str | None, words: str) -> None:
    found = diagnosed([line])
    assert [match["rule"] for match in found] == ([rule] if rule else [])
    assert words in "".join(match["cause"] for match in found)


def test_every_rule_has_a_log_and_says_what_to_do() -> None:
    assert {row.name for row in ROWS} == {rule_of(path) for path in LOGS.glob("*.log")}
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        remedy = typed(row, advice.GENERAL)
        assert row.cause and remedy and remedy[0].islower() and "\n" not in row.cause + remedy


def test_a_remedy_that_deletes_or_ends_something_has_two_lines_of_evidence_or_says_what_to_look_at_first() -> None:
    for row in chain.from_iterable(map(rows, FILES)):
        before, deletes, _ = re.split(r"(\b(?:delete[ds]?|(?<!-)kill|end it|end that)\b|\Z)", row.remedy, maxsplit=1)
        looks = re.search(r"\b(shows?|look|see|describe|copy|lsof|nvidia-smi|have)\b", before)
        assert not deletes or row.also or looks, row
    assert sum(bool(row.also) for row in ROWS) == 4


HELD, FULL = (
    "RuntimeError: Unable to initialize backend 'cuda': INTERNAL: no supported devices",
    "CUDA_ERROR_OUT_OF_MEMORY",
)
BROKEN, SICK = "RuntimeError: TPU initialization failed: No accelerator found", "health: UNHEALTHY_TENSORFLOW"

LIMIT = "podwright: ulimit -v allows 1.43 GiB of addresses"


@pytest.mark.parametrize(
    ("lines", "rules"),
    [
        ([FULL, HELD], ["gpu-held"]),
        ([HELD, "step 1", FULL], ["gpu-held"]),
        ([HELD], ["gpu-initialization"]),
        ([FULL], ["gpu-full"]),
        ([FULL, "step 12 loss 3.1", HELD], ["gpu-initialization"]),
        ([SICK, BROKEN], ["tpu-broken"]),
        ([BROKEN, SICK, "symptomType: MESH_BUILD_FAIL"], ["tpu-broken", "tpu-mesh-build"]),
        ([BROKEN], ["tpu-initialization"]),
        (["MESH_BUILD_FAIL"], ["tpu-mesh"]),
        ([SICK], ["tpu-unhealthy"]),
        ([LIMIT, "step 1", "terminate called: std::bad_alloc"], ["address-limit"]),
        ([LIMIT, "step 1"], []),
    ],
)
def test_a_row_that_needs_a_second_line_counts_with_it_in_place_of_both_and_without_it_not_at_all(
    lines: list[str], rules: list[str]
) -> None:
    found = diagnosed(lines)
    assert [match["rule"] for match in found] == rules
    assert ("delete the slice" in "".join(m["remedy"] for m in found)) == (SICK in lines and len(lines) > 1)


@pytest.mark.parametrize(
    ("line", "cause", "remedy"),
    [
        ('topology "a" allows to fit only 12 out of 16 pod(s)', "no part of topology a has enough free", "nothing: it"),
        ("references missing ResourceFlavor(s): F.", "Kueue has no flavor", "compare kubectl get resourceflavor"),
        ("untolerated taint {maintenance true} in flavor v6e", "of flavor v6e have the taint {main", "another queue"),
        ("LocalQueue q is stopped", "queue q was stopped by an administrator", "look with kubectl get localqueue"),
        ("LocalQueue q doesn't exist", "namespace NAMESPACE has no queue q", "target check TARGET, which names"),
        (
            "FailedScheduling 4 node(s) didn't match pod anti-affinity rules",
            "of another JobSet, which may",
            "look with",
        ),
        ('"p" is forbidden: violates PodSecurity "baseline:latest"', "PodSecurity baseline:latest", "set namespace of"),
    ],
)
def test_a_line_of_a_cluster_is_explained_by_the_row_that_runs_use(line: str, cause: str, remedy: str) -> None:
    (found,) = diagnosed([f"    Message:  {line}"])
    assert cause in found["cause"] and remedy in found["remedy"], found
    assert "create" not in found["remedy"]


def test_a_trainer_that_another_process_leaves_no_memory_is_not_told_to_train_less() -> None:
    text = (LOGS / "gpu-shared.log").read_text().splitlines()[-1]
    seen = match(text, "trainer")
    assert seen and seen.row.name == "gpu-shared" and "70.71 GiB" in seen.cause({}) and "process 4711" in seen.cause({})
    alone = match((LOGS / "cuda-out-of-memory.log").read_text(), "trainer")
    assert alone and alone.row.name == "OutOfDeviceMemory", "in a container the one process that is named is itself"


def typed(row: FailureRow, keys: advice.RecipeAdvice) -> str:
    return row.remedy.format_map(asdict(keys) | row.values)


@pytest.mark.parametrize(
    "line",
    [
        "step 12/1000 loss 0.31 grad_norm 0.2",
        "inf",
        "loaded nanotron weights: loss 3.2",
        "finance: information about gradients",
        "eval loss: 0.91 (best 0.88)",
        "INFO memory 12.1 GiB of 80 GiB",
    ],
)
def test_good_news_is_no_failure(line: str) -> None:
    assert diagnosed([line]) == []


def test_a_cause_comes_before_what_follows_from_it() -> None:
    text = (
        (LOGS / "peer-gone.log").read_text()
        + (LOGS / "gloo-timeout.log").read_text()
        + (LOGS / "cuda-out-of-memory.log").read_text()
    )
    assert [match["rule"] for match in diagnosed(text.splitlines())] == [
        "cuda-out-of-memory",
        "peer-gone",
        "gloo-timeout",
    ]


def attempted(folder: Path, **logs: str) -> RunDir:
    run = RunDir(folder / "cats")
    run.attempt(1).mkdir(parents=True)
    for name, text in logs.items():
        (run.attempt(1) / f"{name}.txt").write_text(text)
    return run


def test_all_logs_of_the_last_attempt_are_read(tmp_path: Path) -> None:
    run = attempted(tmp_path, log="step 1\nConnection closed by peer\n")
    (run.attempt(10)).mkdir(parents=True)
    (run.attempt(10) / "log.txt").write_text("RuntimeError: Connection closed by peer [10.0.0.4]\n")
    (run.attempt(10) / "log-1.txt").write_text("OSError: [Errno 28] No space left on device\n\xff\n")
    found = explain.run(run)
    assert [(match["rule"], Path(match["file"]).name) for match in found] == [
        ("disk-full", "log-1.txt"),
        ("peer-gone", "log.txt"),
    ]
    assert f"podwright resume {run.typed}" in found[0]["remedy"]
    with pytest.raises(UserError, match="has no log"):
        explain.run(RunDir(tmp_path / "dogs"))


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def said(*argv: str) -> tuple[int, str]:
        code = app.main(["diagnose", *argv])
        return code, capsys.readouterr().out

    log = LOGS / "missing-keys.log"
    code, text = said(str(log), "--json")
    (match,) = json.loads(text)["matches"]
    assert (code, match["rule"], match["ending"]) == (0, "missing-keys", Ending.BAD_INPUT)
    assert set(match) == {"rule", "ending", "cause", "remedy", "evidence"}
    code, text = said(str(log))
    assert code == 0 and "missing-keys" in text and match["cause"] in text and match["remedy"] in text
    (tmp_path / "fine.log").write_text("step 1\nstep 2\n")
    code, text = said(str(tmp_path / "fine.log"))
    assert code == 1 and "no known failure" in text
    monkeypatch.setattr(
        "sys.stdin",
        io.TextIOWrapper(
            io.BytesIO(b"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-21 DUE TO TIME LIMIT ***\n")
        ),
    )
    assert json.loads(said("-", "--json")[1])["matches"][0]["rule"] == "slurm-time"
    assert said("no-such-run")[0] == 2
    run = attempted(tmp_path, log="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n")
    run.journal.write_text("")
    code, text = said(str(run.path), "--json")
    assert json.loads(text)["matches"][0]["rule"] == "cuda-out-of-memory"
    write_json(
        run.exit(1),
        {"ending": "BAD_INPUT", "step": None, "detail": "data.source=x has no lines", "fix": "give another"},
    )
    assert json.loads(said(str(run.path), "--json")[1])["matches"][0]["rule"] == "cuda-out-of-memory"
    run.log(1).write_text("step 1\n")
    code, text = said(str(run.path))
    assert code == 0 and "data.source=x has no lines" in text and "fix: give another" in text and "exit.json" in text
    write_json(run.exit(1), {"ending": "FINISHED", "step": 3, "detail": "", "fix": ""})
    assert said(str(run.path))[0] == 1


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_remedy_names_keys_of_the_kind_that_sees_it(kind: str, tmp_path: Path) -> None:
    """All rules and all endings, as a run of each kind gets to read them."""
    keys = set(load.fields(KINDS[kind].schema))
    others = {key for other in KINDS.values() for key in load.fields(other.schema) if not key.isalpha()} - keys
    texts = {row.name: typed(row, advice.of_kind(kind)) for row in ROWS}
    texts |= {e: states.advice(e, "", "RUN", advice.of_kind(kind)) for e in Ending}
    wrong = {
        (name, key) for name, text in texts.items() for key in others if re.search(rf"(?<![\w.]){key}(?![\w.])", text)
    }
    assert not wrong
    assert not any("{" in text.replace("[--exclude", "") or "}" in text for text in texts.values())
    run = attempted(tmp_path, log="CUDA out of memory\nNo working C++ compiler found\n")
    write_json(run.recipe, {"kind": kind})
    assert [match["remedy"] for match in explain.run(run)] == [texts["cuda-out-of-memory"], texts["no-compiler"]]
    explained = outcome(run, 1, Polled(Process.ENDED, 1), False)
    assert (explained.ending, explained.fix) == (Ending.OUT_OF_MEMORY, texts["cuda-out-of-memory"])


def test_every_kind_has_its_advice() -> None:
    assert set(advice.ADVICE) == set(KINDS)


FOREIGN = {"--all-namespaces", "--shm-size", "--output", "--exclude", "--start", "--force", "--quiet"}


def test_what_a_remedy_says_can_be_typed() -> None:
    """Every verb of podwright, every option, every key of a recipe or target that one names is there."""
    root = typer.main.get_command(app.app)
    options = {o for command in root.commands.values() for p in command.params for o in p.opts}
    recipe_keys = {key for kind in KINDS.values() for key in load.fields(kind.schema)}
    recipe_keys |= {f"arguments.{key}" for key in ("per_device_batch_size", "remat_policy", "learning_rate", "steps")}
    target_keys = {key for kind in kinds.configured() for key in kinds.settings_class(kind).model_fields}
    named = collections.Counter()
    kinds_of_advice = [advice.GENERAL, *advice.ADVICE.values()]
    for remedy in dict.fromkeys(typed(row, keys) for row in ROWS for keys in kinds_of_advice):
        wrong = []
        for verb, sub in re.findall(r"podwright ([a-z]+)(?: ([a-z]+)\b)?", remedy):
            command = root.commands.get(verb)
            wrong += [verb] if command is None or (hasattr(command, "commands") and sub not in command.commands) else []
            named["verbs"] += 1
        for option in re.findall(r"(?<!\S)\[?(--[a-z-]+)", remedy):
            wrong += [] if option in options | FOREIGN else [option]
            named["options"] += 1
        without_resources = remedy.replace("workloads.kueue.x-k8s.io", "")
        for key in re.findall(r"\b(?:[a-z]+\.[a-z_]+|[a-z]+(?:_[a-z]+)+)\b(?!\.)", without_resources):
            wrong += [] if key in recipe_keys else [key]
            named["recipe keys"] += 1
        for key in re.findall(r"(\w+)(?:: \[\S*\])? in the target's file", remedy) + re.findall(
            r"target's file \(?(\w+):", remedy
        ):
            wrong += [] if key in target_keys else [key]
            named["target keys"] += 1
        assert not wrong, (remedy, wrong)
    assert len(named) == 4 and min(named.values()) > 3, named
