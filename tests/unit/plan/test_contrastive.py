"""What a plan says of Phase 1, without torch."""

import functools
import importlib.util
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podwright import slices
from podwright.accelerators import GIB
from podwright.data import line_check
from podwright.data.line_check import CheckOptions
from podwright.plan.checks import this_machine
from podwright.plan.findings import Finding, Verdict
from podwright.plan.make import make
from podwright.plan.options import Destination, PlanOptions
from podwright.recipe.load import load, smoke
from tests.unit.plan import static
from tests.unit.plan.static import check, slice_entry
from tests.unit.plan.test_multimodal import said

REAL = (
    "phase1-aligner",
    "encoders.audio_weights=random",
    "text_encoder.source=random",
    "encoders.image_weights=random",
)


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    static.ask_in_process(monkeypatch)


def told(folder: Path, level: str, *overrides: str, on: str = "4xA100-40GB", name: tuple[str, ...] = REAL) -> str:
    return " | ".join(
        said(check(load(name[0], [*name[1:], *overrides]), slices.parse(on) if on else None, folder), level)
    )


def lines(folder: Path, *values: object, name: str = "a.jsonl") -> str:
    (folder / name).write_text("".join((v if isinstance(v, str) else json.dumps(v)) + "\n" for v in values))
    for file in ("a.png", "a.wav", "a.mp4"):
        (folder / file).touch()
    return f"data.source={name}"


BOTH = {"text": "a cat", "image": "a.png"}
_find_spec = importlib.util.find_spec


def without_timm(name: str, package: str | None = None) -> Any:
    """Of all other packages the truth, by which transformers, if it is imported meanwhile, decides what it can do."""
    return None if name == "timm" else _find_spec(name, package)


def test_what_is_trained_and_how_long(tmp_path: Path) -> None:
    source = lines(
        tmp_path,
        *[BOTH | {"text": f"cat {n}"} for n in range(200)],
        *[{"video": f"{n}.mp4"} for n in range(100)],
        {"audio": "a.wav", "text": "purr", "image": None},
    )
    for n in range(100):
        (tmp_path / f"{n}.mp4").touch()
    assert told(tmp_path, "error", source) == "" and told(tmp_path, "warning", source) == ""
    info = told(tmp_path, "info", source)
    assert "1.74 M trainable parameters in heads for text, picture and sound;" in info
    assert "a.jsonl has 301 pairs" in info
    assert "60 steps; contrastive batch of 128 lines over all devices" in info
    assert "and 3 scales" in told(tmp_path, "info", source, "aligner.learnable_scales=true")
    assert slice_entry(load("phase1-tiny"), slices.parse("4xA100-40GB"), tmp_path).meshes == ()
    assert told(tmp_path, "error", name=("phase1-tiny",), on="") == ""
    assert (small := smoke(load("phase1-tiny"), 3)).training.max_steps == 3 and small.data.num_test == 16


@pytest.mark.parametrize(
    ("overrides", "on", "message"),
    [
        ((), "v6e-8", "v6e is a TPU"),
        ((), "", "timm not installed here; type pip install -e '.[torch]' in podwright's clone"),
        (
            ("per_device_batch_size=1",),
            "1xA100-40GB",
            "contrastive loss needs at least 2 samples per step; type per_device_batch_size=32",
        ),
        (
            ("per_device_batch_size=64",),
            "",
            "a step takes 64 lines and there are 36 to train on; a sample cannot be its own negative",
        ),
        (("per_device_batch_size=16",), "4xA100-40GB", "type per_device_batch_size=9"),
        (("encoders.audio_weights=none.pth",), "", "encoders.audio_weights=none.pth is not there"),
        (("text_encoder.source=models/none",), "", "text_encoder.source=models/none is not there; put MiniLM"),
        (("text_encoder.source=RANDOM",), "", "or type text_encoder.source=random"),
        (("aligner.source=none.pt",), "", "aligner.source=none.pt is not there"),
        (("data.source=none",), "", "data.source=none is not there"),
    ],
)
def test_what_will_not_run(
    tmp_path: Path, overrides: tuple[str, ...], on: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", without_timm)
    assert message in told(tmp_path, "error", lines(tmp_path, *[BOTH] * 40), *overrides, on=on)


def test_lines_are_judged_before_a_run(tmp_path: Path) -> None:
    bad = ({"text": 3, "image": "a.png"}, "{", {"text": "a", "image": "none.png"}, [], {"nothing": 1})
    errors = told(tmp_path, "error", lines(tmp_path, BOTH, *bad))
    assert "a.jsonl has 4 bad lines, such as line 2: text 3 is not a text; type podwright data check" in errors
    assert "--fix" in errors
    absent = told(tmp_path, "error", lines(tmp_path, BOTH, {"text": "a", "image": "none.png"}, BOTH, BOTH))
    assert "a.jsonl has 1 bad line, such as line 2: image 'none.png': there is no such file" in absent
    alone = lines(tmp_path, *[BOTH] * 128, {"text": "alone"}, {"image": "a.png"})
    assert "a.jsonl has 2 lines with a single modality, and training leaves those out" in told(
        tmp_path, "warning", alone
    )
    nothing = told(tmp_path, "error", lines(tmp_path, *[{"text": "alone"}] * 200))
    assert "no line of" in nothing and "has two of text, image, audio, video" in nothing
    (tmp_path / "folder").mkdir()
    assert "has no train.jsonl" in told(tmp_path, "error", "data.source=folder")


def test_a_batch_is_of_lines_that_training_has(tmp_path: Path) -> None:
    """Fewer are left of one file, of which the last are held out, and of val.jsonl none is trained on."""
    source, on = lines(tmp_path, *[BOTH] * 40), "1xA100-40GB"
    said = told(tmp_path, "error", source, "per_device_batch_size=40", on=on)
    assert "a step takes 40 lines and there are 36 to train on" in said and "type per_device_batch_size=36" in said
    assert "there are 30 to train on" in told(
        tmp_path, "error", source, "per_device_batch_size=40", "data.num_test=10", on=on
    )
    assert "there are 36" in told(tmp_path, "error", source, "per_device_batch_size=40", "data.num_train=100", on=on)
    assert "leaves none to train on" in told(tmp_path, "error", source, "data.num_test=40", on=on)
    (tmp_path / "both").mkdir()
    lines(tmp_path / "both", *[BOTH] * 20, name="train.jsonl")
    lines(tmp_path / "both", *[BOTH] * 80, name="val.jsonl")
    assert "there are 20" in told(tmp_path, "error", "data.source=both", "per_device_batch_size=40", on=on)


def test_heads_that_an_aligner_has_not_are_told(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from podwright.train.multimodal.networks import aligner

    name = ("phase1-tiny", "aligner.source=aligner.pt")
    torch.save(aligner.Aligner({"image": 512}, 512).state_dict(), tmp_path / "aligner.pt")
    warning = told(tmp_path, "warning", name=name, on="")
    assert "has no head for text, audio, which begin from random weights" in warning
    torch.save({"projection_heads.image_head.fc.weight": "text"}, tmp_path / "aligner.pt")
    assert "has no weights under projection_heads.; give" in told(tmp_path, "error", name=name, on="")
    (tmp_path / "aligner.pt").write_bytes(b"?")
    assert "cannot be read as weights" in told(tmp_path, "error", name=name, on="")


@pytest.mark.parametrize("preprocessing", ["start", "purrsight"])
@pytest.mark.parametrize("audio", ["tiny", "cnn14"])
def test_sounds_are_as_long_as_the_encoder_needs(tmp_path: Path, preprocessing: str, audio: str) -> None:
    """The least that is named passes, what is below it is refused, and the encoder itself agrees."""
    torch = pytest.importorskip("torch")
    networks = pytest.importorskip("podwright.train.multimodal.networks.encoders")
    name = ("phase1-tiny", f"encoders.audio={audio}", f"encoders.audio_preprocessing={preprocessing}")
    errors = told(tmp_path, "error", "encoders.audio_seconds=0.001", on="", name=name)
    least = float(errors.rpartition("encoders.audio_seconds=")[2].split()[0])
    for seconds in (least, least - 0.01):
        if seconds <= 0:
            continue
        refused = told(tmp_path, "error", f"encoders.audio_seconds={seconds:g}", on="", name=name)
        recipe = load(name[0], [*name[1:], f"encoders.audio_seconds={seconds:g}"])
        encoder = networks.audio_encoder(recipe.encoders)
        assert bool(refused) == (seconds < least)
        if refused:
            with pytest.raises(RuntimeError):
                encoder(encoder.prepare(np.ones(16_000, np.float32))[None])
        else:
            assert torch.isfinite(encoder(encoder.prepare(np.ones(16_000, np.float32))[None])).all()


@pytest.mark.parametrize(
    ("overrides", "level", "message"),
    [
        (("encoders.audio_seconds=601",), "error", "more than the 600 s that are read of a sound"),
        (("encoders.image_size=7",), "error", "type encoders.image_size=8 or more"),
        (("encoders.image=resnet50",), "inconclusive", "encoders.image=resnet50 was not looked at"),
        (
            ("data.num_test=1",),
            "error",
            "1 line held out: retrieval needs at least 2, because one is always right; type data.num_test=200",
        ),
        (("data.num_train=1",), "error", "contrastive loss needs at least 2 on 1 device; type data.num_train=2000"),
        (("data.num_train=3",), "error", "type per_device_batch_size=3"),
        (("data.num_train=20", "per_device_batch_size=1"), "error", "type per_device_batch_size=20"),
    ],
)
def test_the_demo_says_what_it_cannot_have(
    tmp_path: Path, overrides: tuple[str, ...], level: str, message: str
) -> None:
    assert message in told(tmp_path, level, *overrides, on="", name=("phase1-tiny",))
    if level == "error":
        *_, typed = told(tmp_path, level, *overrides, on="", name=("phase1-tiny",)).partition("; type ")
        if "or less" in typed or "or more" in typed:
            typed = typed.rpartition(" or ")[0]
        assert told(tmp_path, "error", *overrides, typed, on="", name=("phase1-tiny",)) == ""


def test_held_out_lines_are_at_least_two(tmp_path: Path) -> None:
    source, size = lines(tmp_path, *[BOTH] * 15), "per_device_batch_size=2"
    wrong = told(tmp_path, "error", source, size, "data.num_test=1")
    assert "1 line held out" in wrong and "type data.num_test=2" in wrong
    assert told(tmp_path, "error", source, size) == ""


def test_more_devices_than_lines_are_told_how_many_lines_they_need(tmp_path: Path) -> None:
    name = ("phase1-tiny", "data.num_train=100")
    assert "type data.num_train=256000" in told(tmp_path, "error", on="128xA100-40GB", name=name)
    assert told(tmp_path, "error", "data.num_train=256000", on="128xA100-40GB", name=name) == ""


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Finding]:
    """What the plan of a recipe says of the memory of a machine with so many GiB."""

    def finding(name: str, gib: float, on: str, *overrides: str) -> Finding:
        monkeypatch.setattr(this_machine.cgroup, "memory_bytes", lambda: gib * GIB)
        where = slices.parse(on)
        plan = make(load(name, list(overrides)), Destination(on, where, here=True), PlanOptions(cwd=Path()))
        (finding,) = [f for f in plan.findings if f.check == "memory"]
        assert (finding.level == "error") == (plan.verdict is Verdict.REFUSED)
        return finding

    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    return finding


@pytest.mark.parametrize("name", ["phase1-tiny", "phase2-tiny"])
def test_processes_that_this_machine_has_no_memory_for_are_refused(name: str, memory: Callable[..., Finding]) -> None:
    few = ("data.num_train=64", "per_device_batch_size=2")
    assert memory(name, 1, "cpu-1", *few).level == "info"
    finding = memory(name, 1, "cpu-8", *few)
    assert finding.level == "inconclusive" and finding.fix.startswith("type --on cpu-")
    assert memory(name, 1, finding.fix.removeprefix("type --on "), *few).level == "info"
    finding = memory(name, 0.05, "cpu-8", *few)
    assert finding.level == "error" and "8 processes need 0.1 GiB" in finding.message and "batches" in finding.fix


@pytest.mark.long
@pytest.mark.parametrize("name", ["phase1-tiny", "phase2-tiny"])
def test_what_the_cpu_trains_is_held_to_the_memory_of_this_machine(name: str, memory: Callable[..., Finding]) -> None:
    memory = functools.partial(memory, name)
    more = ("data.num_train=5000",)
    assert memory(8, "cpu-1").level == "info"
    finding = memory(8, "cpu-64", *more)
    assert finding.level == "inconclusive" and finding.fix.startswith("type --on cpu-")
    assert memory(8, finding.fix.removeprefix("type --on "), *more).level == "info"
    assert memory(3, "cpu-1", "encoders.image_size=4096").level == "error"
    finding = memory(8, "cpu-1", "per_device_batch_size=65536", "data.num_train=70000")
    assert finding.level != "info" and finding.fix.startswith("take smaller batches")


@pytest.mark.parametrize("name", ["phase1-tiny", "phase2-tiny"])
def test_lines_of_another_kind_are_refused_without_a_fix_that_refuses(tmp_path: Path, name: str) -> None:
    source = lines(tmp_path, *[{"question": "1+1?", "answer": "#### 2"}] * 20)
    errors = told(tmp_path, "error", source, "data.num_train=0", "data.num_test=0", on="", name=(name,))
    assert "20 bad lines" in errors and "--fix" not in errors and "name its columns by data.columns" in errors


def test_pairs_that_repeat_others_are_named(tmp_path: Path) -> None:
    distinct = [BOTH | {"text": f"cat {n}"} for n in range(200)]
    source = lines(tmp_path, *distinct, *[BOTH] * 20)
    warning = told(tmp_path, "warning", source)
    assert warning.startswith("19 lines of a.jsonl repeat an earlier line: in a batch with both, a negative is equal")
    assert line_check.check(tmp_path / "a.jsonl", CheckOptions())["warnings"] == [warning]


def test_held_out_lines_that_training_has_too_are_named(tmp_path: Path) -> None:
    distinct = [BOTH | {"text": f"cat {n}"} for n in range(300)]
    lines(tmp_path, *distinct[:250], name="train.jsonl")
    lines(tmp_path, *distinct[200:], name="val.jsonl")
    source = f"data.source={tmp_path}"
    warning = told(tmp_path, "warning", source)
    assert warning.startswith("train.jsonl has 50 lines of the 100 of val.jsonl too: an evaluation on lines")
    record = line_check.check(tmp_path, CheckOptions())
    assert record is not None and record["warnings"] == [warning]
    assert told(tmp_path, "warning", f"{source}/train.jsonl") == ""
    assert told(tmp_path, "warning", source, "data.num_train=200") == ""
    (tmp_path / "val.jsonl").rename(tmp_path / "test.jsonl")
    warning = told(tmp_path, "warning", source)
    assert warning.startswith(
        f"{tmp_path}/test.jsonl is not read: the last lines of train.jsonl are held out; type mv "
    )
    record = line_check.check(tmp_path, CheckOptions())
    assert record is not None and record["warnings"] == [warning]
    subprocess.run(["sh", "-c", warning.partition("; type ")[2]], check=True)
    assert (tmp_path / "val.jsonl").is_file() and " is not read" not in told(tmp_path, "warning", source)


@pytest.mark.parametrize(
    ("number", "num_test", "fix"),
    [
        (10, 10, "type data.num_test=2"),
        (300, 300, "type data.num_test=30"),
        (3, 3, "give a file with at least 4 lines"),
    ],
)
def test_a_remedy_for_too_many_held_out_lines_names_a_number(
    tmp_path: Path, number: int, num_test: int, fix: str
) -> None:
    source = lines(tmp_path, *[BOTH | {"text": f"cat {n}"} for n in range(number)])
    settings = (source, "data.num_train=0", "per_device_batch_size=2")
    error = told(tmp_path, "error", *settings, f"data.num_test={num_test}", on="1xA100-40GB")
    assert error.endswith(f"that can be used, which leaves none to train on; {fix}")
    if fix.startswith("type "):
        assert told(tmp_path, "error", *settings, fix.removeprefix("type "), on="1xA100-40GB") == ""
