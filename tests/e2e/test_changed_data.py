"""A data file that changes between a run and its resume, by the verbs: appended rows are named and trained on, any other change is refused."""

import json
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from podwright.data import synthetic_images, synthetic_pairs
from podwright.rundir import RunDir, read_events
from tests.e2e import fork_server
from tests.e2e.trainer import ROOT, environment

NUM = 24
Rows = list[dict[str, Any]]


class Kind(NamedTuple):
    recipe: str
    field: str
    """the text of a row"""
    overrides: tuple[str, ...]


# At this rate no step moves a weight: the loss of held-out rows stays the same as long as the rows do. Nothing runs to its last step.
SHARED = ("optimizer.learning_rate=1e-30", "evaluation.every_n_steps=2", "training.max_steps=10000")
LINES = ("data.num_train=0", "data.num_test=4", "per_device_batch_size=4")
GROUPS = ("model.name=qwen3-micro", "data.num_train=0", "data.num_test=4", "batch_size=4", "grpo.num_generations=2")
WARM_START = ("warm_start.max_steps=1", "warm_start.batch_size=4", "evaluation.batch_size=4")
TOKENS = ("model.name=qwen3-micro", "data.num_documents=0", "data.num_epochs=0", "batch_size=2", "sequence_length=32")
KINDS = {
    "contrastive": Kind("phase1-tiny", "text", LINES),
    "multimodal": Kind("phase2-tiny", "instruction", (*LINES, "evaluation.max_new_tokens=2")),
    "grpo": Kind("qwen3-tiny-arithmetic-grpo", "question", (*GROUPS, *WARM_START)),
    "pretrain": Kind("almodel-tiny", "text", (*TOKENS, "evaluation.num_batches=2")),
}


def rows_of(kind: str, folder: Path) -> Rows:
    """Rows of which no two are equal, and the files that they name in `folder`."""
    if kind == "pretrain":
        return [{"text": f"the text of document {n} is about {n * 7} birds"} for n in range(NUM)]
    if kind == "grpo":
        return [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(NUM)]
    (synthetic_images if kind == "multimodal" else synthetic_pairs).write(folder, NUM, 2, 0)
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    return [row | {KINDS[kind].field: f"row {n}"} for n, row in enumerate(rows)]


class Stopped(NamedTuple):
    """A run that was stopped behind a checkpoint, and the file of its rows."""

    kind: str
    folder: Path
    rows: Rows

    @property
    def run(self) -> RunDir:
        return RunDir(self.folder / "runs" / "r")

    @property
    def file(self) -> Path:
        return self.folder / "data" / "rows.jsonl"

    def write(self, rows: Rows) -> None:
        self.file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def other(self, row: dict[str, Any]) -> dict[str, Any]:
        field = KINDS[self.kind].field
        return row | {field: f"another {row[field]}"}

    def evaluations(self, attempt: int) -> list[dict[str, Any]]:
        """Of the held-out rows."""
        return [e for e in read_events(self.run.events, "evaluation") if e["attempt"] == attempt]

    def typed(self, attempt: int, *argv: str) -> tuple[int, str]:
        """The exit code of a verb and what it shows. Ctrl-C leaves it behind an evaluation between two steps of this attempt."""
        env = environment() | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        process = fork_server.shared().start_piped(ROOT / "podwright" / "__main__.py", argv, self.folder, env)
        deadline = time.monotonic() + 900
        while process.poll() is None and time.monotonic() < deadline:
            if any(e["when"] == "during" for e in self.evaluations(attempt)):
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        shown = "".join(process.communicate(900))
        assert process.returncode is not None
        return process.returncode, shown


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Stopped]:
    """By kind, a run that was started and stopped once. Every case finds it as it was then, at the same path."""
    kept: dict[str, tuple[Path, Stopped]] = {}

    def of(kind: str) -> Stopped:
        if kind not in kept:
            base = tmp_path_factory.mktemp(kind)
            run = Stopped(kind, base / "work", rows_of(kind, base / "work" / "data"))
            run.file.parent.mkdir(parents=True, exist_ok=True)
            run.write(run.rows)
            recipe, _, overrides = KINDS[kind]
            settings = (*SHARED, *overrides, f"data.source={run.file}")
            code, shown = run.typed(1, "run", recipe, *settings, "--on", "local", "--name", "r")
            assert code == 130 and "r STOPPED at step" in shown, shown
            shutil.copytree(run.folder, base / "kept", symlinks=True)
            kept[kind] = base / "kept", run
        copy, run = kept[kind]
        shutil.rmtree(run.folder)
        shutil.copytree(copy, run.folder, symlinks=True)
        return run

    return of


REFUSED: dict[str, Callable[[Stopped], Rows]] = {
    "in front": lambda run: [run.other(run.rows[0]), *run.rows],
    "reordered": lambda run: run.rows[::-1],
}


@pytest.mark.brief(1)
@pytest.mark.parametrize("change", REFUSED)
@pytest.mark.parametrize("kind", KINDS)
def test_a_resume_on_changed_rows_is_refused_in_one_line_and_trains_nothing(
    stopped: Any, kind: str, change: str
) -> None:
    run = stopped(kind)
    steps = run.run.metrics.read_bytes()
    run.write(REFUSED[change](run))
    code, shown = run.typed(2, "resume", "r")
    what = rf"r BAD_INPUT at step \d+/10000: data\.source={re.escape(str(run.file))} is not what run r began with: .* rows have changed"
    assert code == 1 and len(re.findall(f"^{what}$", shown, re.MULTILINE)) == 1, shown
    assert "rows may be appended at its end" in shown and run.run.train_again in shown
    assert run.run.metrics.read_bytes() == steps and not run.evaluations(2)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_resume_on_appended_rows_names_them_and_holds_out_the_same_rows(stopped: Any, kind: str) -> None:
    run = stopped(kind)
    run.write([*run.rows, *map(run.other, run.rows[:3])])
    code, shown = run.typed(2, "resume", "r")
    assert code == 130 and f"data.source={run.file} has 3 more rows than before" in shown, shown
    assert "what is held out stays" in shown
    (step,) = (e["step"] for e in read_events(run.run.events, "resumed"))
    assert step >= 2, "from the checkpoint of the stop"
    first, last = (e["rows"]["held_out"] for e in read_events(run.run.events, "environment"))
    assert first == last and first["rows"] >= 4
    assert run.evaluations(1) and run.evaluations(2)
    (loss,) = {e.get("loss") for attempt in (1, 2) for e in run.evaluations(attempt)}
    assert (loss is None) == (kind == "grpo"), "which has no loss of what is held out"
