"""Every path of a run and the shape of every record in it: the contract of the two halves.

NAME/recipe.json      the resolved recipe                          launcher, once
     plan.json        what the plan found and chose                launcher, once
     storage.json     where checkpoints and records are kept, if not here; inputs.json: what of the recipe is there
     journal.jsonl    decisions: one event a line                  launcher
     attempts/N/      log.txt, log-K.txt, pid.json, alive.lock,
                      exit.json (how it ended)                     never overwritten
                      exit-K.json, devices-K.csv, stacks-K.txt     trainer's process K; fault.json: which of several failed first
     latest           link to the newest attempt on a cluster      its job
     profile.json     the steps to trace, if any; profile/step-N/: jax's traces of them
     metrics.jsonl    {stage, step, time, attempt, figures ...}    trainer, or made of its log
     events.jsonl     {event, time, attempt, ...}: evaluations, checkpoints, notices
     samples.jsonl    {when, question, answer, completion, extracted, correct}
     evaluations/     right or wrong by question, before and after trainer
     tokenizer/       the tokenizer as a Hugging Face directory    trainer
     start/           weights at step 0, the KL's reference        trainer
     checkpoints/     whole training states                        trainer
     model.pt         what a multimodal run trained (a contrastive run: aligner.pt); results/: predictions
     report/          report.md, report.html, result.json          launcher
"""

from __future__ import annotations

import contextlib
import enum
import json
import math
import os
import re
import shlex
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from podwright import growing_file
from podwright.errors import UserError, from_os

Record = dict[str, Any]
DEVICE_COLUMNS = (
    *("time_s", "device", "utilization_percent"),
    *("memory_mib", "memory_total_mib", "power_w", "temperature_c"),
)
"""of devices-K.csv"""
TRAIN_COMMAND = ("{python}", "-m", "podwright.train", "{run_dir}", "--attempt", "{attempt}")
"""starts our trainer on an attempt; whoever starts it fills the words in"""
STORAGE_OPTION = ("--storage", "{storage}")
"""of our trainer, for a run that is not kept in its directory"""
LEAST_FREE_BYTES = 1 << 20
"""on a disk with less the records of a run cannot be relied on to be written"""
RUNS = Path("runs")
"""where runs are kept unless --runs says otherwise"""


class Ending(enum.StrEnum):
    """Why a run ended; what follows from it (status, retries, advice) is in failures/endings.yaml."""

    FINISHED = "FINISHED"
    STOPPED = "STOPPED"
    PREEMPTED = "PREEMPTED"
    NODE_LOST = "NODE_LOST"
    NO_CAPACITY = "NO_CAPACITY"
    TIMED_OUT = "TIMED_OUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    OUT_OF_DATA = "OUT_OF_DATA"
    NOT_FINITE = "NOT_FINITE"
    REWARD_TIMEOUT = "REWARD_TIMEOUT"
    STALLED = "STALLED"
    BAD_INPUT = "BAD_INPUT"
    STORAGE_UNREACHABLE = "STORAGE_UNREACHABLE"
    CRASHED = "CRASHED"
    UNKNOWN = "UNKNOWN"


class RunDir:
    """The paths of one run. Creating a RunDir touches nothing."""

    def __init__(self, path: Path):
        self.path = Path(path)
        self.name = self.path.name
        self.recipe = self.path / "recipe.json"
        self.plan = self.path / "plan.json"
        self.profiled = self.path / "profile.json"
        self.profile = self.path / "profile"
        self.journal = self.path / "journal.jsonl"
        self.lock = self.path / "trainer.lock"
        self.launcher_lock = self.path / "launcher.lock"
        self.attended_lock = self.path / "attended.lock"
        self.metrics = self.path / "metrics.jsonl"
        self.events = self.path / "events.jsonl"
        self.samples = self.path / "samples.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.start = self.path / "start"  # the weights that GRPO starts from and keeps as its reference
        self.tokenizer = self.path / "tokenizer"
        self.weights = self.path / "model.pt"
        self.aligner = self.path / "aligner.pt"
        self.report = self.path / "report"
        self.trackers = self.path / "trackers"
        self.storage = self.path / "storage.json"

    @property
    def kept(self) -> Record:
        """storage.json; {} where checkpoints and records are kept in this directory. UserError where the file is damaged."""
        record = read_json(self.storage)
        if isinstance(record.get("url"), str) and record["url"]:
            return record
        if not self.storage.exists():
            return {}
        fix = 'restore it from a copy of the run, or write {"url": "URL"} to it, with the folder or bucket of the run as URL'
        raise UserError(f"{self.storage} is damaged: it does not name the storage of the run", fix, "damaged-file")

    @property
    def storage_url(self) -> str:
        """Where its checkpoints and records are kept; "" where that is this directory. UserError as `kept`."""
        return str(self.kept.get("url", ""))

    @property
    def typed(self) -> str:
        """What to type for this run from here: its name where runs are by default, else its path, which every verb takes too."""
        here = self.path.parent.resolve() == RUNS.resolve()
        return shlex.quote(self.name if here else str(self.path))

    @property
    def is_finished(self) -> bool:
        """Whether an attempt trained it to its last step: `podwright resume` trains no more."""
        return any(read_json(self.exit(n)).get("ending") == Ending.FINISHED for n in self.attempts)

    @property
    def train_again(self) -> str:
        """What to type to train the same recipe from step 0, as a new run."""
        return f"podwright run {shlex.quote(str(self.recipe))}"

    @property
    def without_checkpoints(self) -> str:
        """What to type where no checkpoint of it is left."""
        return f"podwright resume {self.typed}" if not self.is_finished else self.train_again

    @property
    def attempts(self) -> list[int]:
        """The numbers of those that have a folder."""
        return numbers({path.name for path in self.path.glob("attempts/*")})

    def attempt(self, number: int) -> Path:
        return self.path / "attempts" / str(number)

    def flags(self, when: str) -> Path:
        """Which questions an evaluation answered rightly, one boolean each, for the paired test."""
        return self.path / "evaluations" / f"{when}.json"

    def read_flags(self, when: str) -> list[bool] | None:
        """What `flags` holds; None where it is absent or damaged."""
        try:
            flags = json.loads(self.flags(when).read_text())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(flags, list) or not all(isinstance(flag, bool) for flag in flags):
            return None
        return flags

    def log(self, number: int, process: int = 0) -> Path:
        return self.attempt(number) / (f"log-{process}.txt" if process else "log.txt")

    def log_since(self, number: int, since: int, process: int = 0) -> tuple[str, int]:
        """The log from byte `since` on, and where to go on from."""
        path = self.log(number, process)
        if not path.exists():
            return "", since
        with path.open("rb") as f:
            f.seek(since)
            new = f.read()
        return new.decode(errors="replace"), since + len(new)

    def pid(self, number: int) -> Path:
        return self.attempt(number) / "pid.json"

    def alive(self, number: int) -> Path:
        return self.attempt(number) / "alive.lock"

    def exit(self, number: int, process: int = 0) -> Path:
        """How the attempt ended; of another process than the first, which fault it had."""
        return self.attempt(number) / (f"exit-{process}.json" if process else "exit.json")

    def fault(self, number: int) -> Path:
        """Of several processes on this machine the one whose end was that of the others: `process`, `host`, `code`."""
        return self.attempt(number) / "fault.json"

    def devices(self, number: int, process: int) -> Path:
        return self.attempt(number) / f"devices-{process}.csv"

    def stacks(self, number: int, process: int) -> Path:
        """What its threads were at when it hung."""
        return self.attempt(number) / f"stacks-{process}.txt"

    def fault_elsewhere(self, number: int) -> Record | None:
        """The fault that another process than the first wrote down, for when the first has seen nothing but its end."""
        for path in sorted(self.attempt(number).glob("exit-*.json")):
            record = read_json(path)
            if "detail" in record:
                return record | {"detail": f"{record['detail']} (in process {path.stem.removeprefix('exit-')})"}
        return None


def numbers(names: Collection[str], name: Callable[[int], str] = str) -> list[int]:
    """Returns in ascending order the numbers for which `name` gives one of `names`; others, such as 007 or a copy, somebody else has put there."""
    digits = re.findall("[0-9]+", " ".join(names))
    return sorted(number for number in set(map(int, digits)) if name(number) in names)


def recipe_of(run: RunDir) -> Record:
    """recipe.json, the parts that every verb reads among it; UserError where it is damaged."""
    try:
        recipe = parse_record(run.recipe.read_bytes()) or {}
    except FileNotFoundError:
        recipe = {}
    except OSError as e:  # which does not say that it is damaged
        raise from_os(e, run.recipe) or e from e
    try:
        planned_steps(recipe)
        main_stage(recipe)
    except (ValueError, LookupError, TypeError) as e:
        what = f"{run.recipe} is not there, or no recipe of a run"
        raise UserError(
            what, "bring it back from a copy, or start the run again under another name", "damaged-file"
        ) from e
    return recipe


def planned_steps(recipe: Record) -> int:
    """The steps that a recipe names; 0 where it counts in epochs, or leaves them to MaxText. LookupError, TypeError or ValueError where it is
    damaged."""
    if "arguments" in recipe:  # of MaxText, as text
        return int(dict(recipe["arguments"]).get("steps") or 0)
    steps = recipe["training"]["max_steps"]
    if not isinstance(steps, int):
        raise TypeError
    return steps


@contextlib.contextmanager
def part_of(path: Path, name: str = "") -> Iterator[Path]:
    """A file or directory beside `path` that takes its place when the body has written it, and is gone if that fails. `name`: it begins so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{name or path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def write_json(path: Path, value: Any) -> None:
    """Write whole or not at all."""
    with _naming(path), part_of(path) as part:
        part.write_text(json.dumps(value, indent=1) + "\n")


def replace_file(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write whole or not at all; a link stays a link and the file keeps its mode. `mode`: of a new file; None: by the umask.
    UserError for what is no file, such as a device or a pipe: a rename would put a file in its place."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        raise UserError(f"{path} is no regular file, and cannot be replaced by one", "name a file", "no-regular-file")
    with part_of(target, f".{target.name}") as part:
        part.write_bytes(content)
        if target.exists():
            shutil.copymode(target, part)
        elif mode is not None:
            os.chmod(part, mode)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """An OSError of a write names no file: those of the body get `path`."""
    try:
        yield
    except OSError as e:
        e.filename = e.filename or str(path)
        raise


def full_disk(path: Path) -> str:
    """`path` and the space that is left there, if it lies on a disk that takes no more files; "" if it does not, or cannot be asked."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return ""
    free_bytes, inodes_left = disk.f_bavail * disk.f_frsize, disk.f_favail or not disk.f_files
    if free_bytes >= LEAST_FREE_BYTES and inodes_left:
        return ""
    left = f"{free_bytes / 2**20:.1f} MiB of {disk.f_blocks * disk.f_frsize / 2**30:.1f} GiB free"
    return f"{path} ({left if inodes_left else 'no inode left'})"


def is_below(name: str) -> bool:
    """Whether the relative path `name`, which another machine gave, stays below the folder that it is joined to."""
    return bool(name) and all(part not in ("", ".", "..") for part in name.split("/"))


def append_jsonl(path: Path, record: Record) -> None:
    """One record, one write: a reader or a kill never sees two records mixed, and a full disk leaves no part of one. A line that was cut
    short before goes: the step that it was of is done again."""
    with _naming(path):
        growing_file.append(path, json.dumps(record).encode() + b"\n", lambda text: parse_record(text) is not None)


def read_json(path: Path) -> Record:
    """The JSON object in a file; {} where there is no such file, or it holds none."""
    try:
        return parse_record(path.read_bytes()) or {}
    except OSError:
        return {}


def read_jsonl(path: Path) -> Iterator[Record]:
    """The whole records of `path`; a last line cut short by a kill is passed over, and so is one that is no JSON object."""
    if not path.exists():
        return
    with path.open("rb") as f:
        for line in f:
            if line.endswith(b"\n") and (record := parse_record(line)) is not None:
                yield record


def parse_record(line: bytes) -> Record | None:
    """The JSON object in a line; None for a line that holds none."""
    try:
        record = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


_TIME: dict[str, Any] = {"time": int | float | None}
"""null in a record that was made of a log without times"""
_FIELDS: dict[str, dict[str, Any]] = {
    "phase": {"phase": str},
    "notice": {"message": str},
    "environment": {"max_steps": int | None, "versions": dict | None},
    "resumed": {"step": int, "stage": str | None},
    "checkpoint": {"step": int},
    "reward_timeout": {"reward": str, "question": str, "completion": str},
    "evaluation": {"when": str, "step": int, "strict": dict | None, "flexible": dict | None},
}
"""of an event, by its name: types of what readers rely on; None: may be absent"""


def is_metric(record: Record) -> bool:
    """Whether a record is a step of metrics.jsonl: a damaged line may be JSON of another shape."""
    return "time" in record and _has(record, {"stage": str, "step": int} | _TIME)


def is_event(record: Record) -> bool:
    """Whether a record is one of events.jsonl."""
    return "time" in record and _has(record, {"event": str} | _TIME) and _has(record, _FIELDS.get(record["event"], {}))


def _has(record: Record, types: dict[str, Any]) -> bool:
    return all(isinstance(record.get(key), type_) for key, type_ in types.items())


def read_events(path: Path, name: str = "") -> list[Record]:
    """`name`: those of one name alone."""
    return [record for record in read_jsonl(path) if is_event(record) and name in ("", record["event"])]


def finite(value: Any) -> Any:
    """`value` with every NaN and infinity in it replaced by None, so that it is valid JSON."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def flat(values: Record, keys: Collection[str] = (), prefix: str = "") -> Record:
    """Dotted keys of nested `values`; what `keys` names stays whole, and a section that is absent (null) keeps its own name."""
    flattened: Record = {}
    for name, value in values.items():
        key = prefix + name
        if isinstance(value, dict) and key not in keys:
            flattened |= flat(value, keys, f"{key}.")
        else:
            flattened[key] = value
    return flattened


def main_stage(recipe: Record) -> str:
    """The stage whose steps are the steps of the run; it is named like the kind of its recipe."""
    kind = recipe.get("kind")
    if not isinstance(kind, str) or not kind:
        raise UserError(
            f"a recipe.json without a kind: kind={kind!r}", "start the run again under another name", "damaged-file"
        )
    return kind
