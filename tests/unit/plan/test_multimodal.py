"""What a plan says of multimodal training, without torch."""

import json
import os
import re
from pathlib import Path

import pytest

from podwright import slices
from podwright.data import lines as data_lines
from podwright.data.lines import lengths
from podwright.errors import UserError
from podwright.plan import kinds
from podwright.plan.checks import contrastive, multimodal
from podwright.plan.checks.multimodal import check
from podwright.plan.findings import Finding
from podwright.plan.make import make
from podwright.plan.options import Destination
from podwright.recipe.load import load
from podwright.recipe.multimodal import MOST_DRAWN
from podwright.rundir import RunDir, append_jsonl
from podwright.watch.metrics import Progress
from tests.unit.data.test_annotated import answer, line
from tests.unit.plan import static
from tests.unit.plan.static import slice_entry

WIDTHS = {"text": 384, "image": 512, "audio": 512}  # of the tiny encoders
CLUSTER = (
    "phase2-qwen2.5-0.5b-cluster",
    "model.source=random",
    "aligner.source=random",
    "encoders.audio_weights=random",
    "encoders.image=tiny",
)


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    static.ask_in_process(monkeypatch)


def findings(folder: Path, *overrides: str, on: str = "") -> list[Finding]:
    name, *settings = CLUSTER
    recipe = load(name, [*settings, *overrides])
    return (
        check(recipe, slices.parse(on), folder) if on else kinds.of(recipe).here(recipe) + check(recipe, None, folder)
    )


def said(found: list[Finding], level: str) -> list[str]:
    return [f"{f.message}; {f.fix}" for f in found if f.level == level]


def lines(folder: Path, *values: object) -> Path:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(v) + "\n" for v in values))
    (folder / "val").mkdir(exist_ok=True)
    (folder / "val" / "00000.png").touch()
    return path


def test_what_is_trained_and_how_long(tmp_path: Path) -> None:
    path = lines(tmp_path, *[line(instruction=f"What {n}?") for n in range(100)])
    found = findings(tmp_path, f"data.source={path}", on="4xA100-40GB")
    assert said(found, "error") == []
    told = " ".join(said(found, "info"))
    assert "494 M parameters; trainable: 8.40 M in the projector and 2.16 M in adapters" in told
    assert "20 steps of 64 lines; the learning rate is 0.0008, 4 times what the recipe says, for 4 devices" in told
    drawn = ("data.source=drawn", "data.num_train=90", "data.num_test=9")
    alone = findings(tmp_path, "optimizer.scale_with_devices=false", *drawn, on="4xA100-40GB")
    assert "the learning rate is 0.0002;" in " ".join(said(alone, "info"))
    assert slice_entry(load("phase2-tiny"), slices.parse("4xA100-40GB"), tmp_path).meshes == ()


@pytest.mark.parametrize(
    ("overrides", "on", "message"),
    [
        ((), "v6e-8", "v6e is a TPU, and multimodal training is PyTorch's; type --on with GPUs"),
        (("model.mixed_precision=bf16",), "4xV100-16GB", "V100-16GB has no bfloat16; type model.mixed_precision=fp16"),
        (
            ("model.name=qwen2.5-0.5",),
            "",
            "model.name='qwen2.5-0.5' is not a known model; type model.name=qwen2.5-0.5b",
        ),
        (("aligner.source=none.pt",), "", "aligner.source=none.pt is not there"),
        (("encoders.audio_weights=none.pth",), "", "encoders.audio_weights=none.pth is not there"),
        (("data.source=none",), "", "data.source=none is not there"),
    ],
)
def test_what_will_not_run(tmp_path: Path, overrides: tuple[str, ...], on: str, message: str) -> None:
    source = () if any(o.startswith("data") for o in overrides) else (f"data.source={lines(tmp_path, line())}",)
    assert any(message in text for text in said(findings(tmp_path, *source, *overrides, on=on), "error"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.lora_rank=99999"], "more than the hidden size of qwen2.5-tiny, 128; type model.lora_rank=16"),
        (
            ["projector.num_soft_tokens=1000"],
            "are 2,192 tokens, qwen2.5-tiny has 2,048 positions; type projector.num_soft_tokens=4",
        ),
        (["data.max_text_length=5000"], "qwen2.5-tiny has 2,048 positions; type projector.num_soft_tokens=4"),
        (
            ["data.max_text_length=5000", "projector.num_soft_tokens=1000"],
            "; type projector.num_soft_tokens=4 data.max_text_length=2040",
        ),
    ],
)
def test_sizes_beyond_those_of_the_language_model_are_refused(overrides: list[str], message: str) -> None:
    (text,) = said(check(load("phase2-tiny", overrides), None, Path()), "error")
    assert message in text
    typed = re.findall(r"[\w.]+=\d+", text.partition("; type ")[2])
    assert not said(check(load("phase2-tiny", [*overrides, *typed]), None, Path()), "error")


def test_a_checkpoint_with_too_few_positions_is_refused(tmp_path: Path) -> None:
    sizes = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    config = dict.fromkeys(sizes, 8) | {"model_type": "qwen2", "vocab_size": 300, "max_position_embeddings": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    recipe = load("phase2-tiny", [f"model.source={tmp_path}", "model.lora_rank=0", "data.max_text_length=100"])
    (text,) = said(check(recipe, None, tmp_path), "error")
    assert f"are 108 tokens, {tmp_path} has 8 positions; type projector.num_soft_tokens=2" in text


def test_what_compiling_and_spreading_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = f"data.source={lines(tmp_path, line(), line(instruction='And?'))}"
    assert said(findings(tmp_path, source, "training.compile=true"), "error") == []
    monkeypatch.setenv("PATH", str(tmp_path))
    assert said(findings(tmp_path, source, "training.compile=true"), "error") == [
        "training.compile=true writes C++, and there is no g++ here; install g++, or type training.compile=false"
    ]
    assert said(findings(tmp_path, source), "error") == []
    alone = said(findings(tmp_path, source, "training.fsdp=true", on="1xA100-40GB"), "warning")
    assert "training.fsdp=true has one device to spread the model over, which keeps all of it" in alone[0]
    assert "fsdp" not in " ".join(said(findings(tmp_path, source, "training.fsdp=true", on="4xA100-40GB"), "warning"))


def test_lines_are_judged_before_a_run(tmp_path: Path) -> None:
    path = lines(tmp_path, line(), line(response=answer(risk=9)), line(image="none.png"))
    errors = said(findings(tmp_path, f"data.source={path}"), "error")
    assert (
        "has 1 bad line, such as line 2: diagnostic.classification.risk_rating 9 is not a whole number" in errors[0]
        and "--fix" in errors[0]
    )
    for image, shown in (("none.png", "none.png': there is no such file"), ("a" * 5000, "aa...aa")):
        errors = said(findings(tmp_path, f"data.source={lines(tmp_path, line(image=image), line())}"), "error")
        assert "a.jsonl has 1 bad line, such as line 1: image " in errors[0]
        assert shown in errors[0] and ": there is no such file" in errors[0]
        assert len(errors[0]) < 400
    few = findings(tmp_path, f"data.source={lines(tmp_path, line(), line(instruction='And?'))}", on="8xA100-40GB")
    assert "a step takes 128 lines and there are 1" in " ".join(said(few, "warning"))
    assert "is empty" in said(findings(tmp_path, f"data.source={lines(tmp_path)}"), "error")[0]
    (tmp_path / "folder").mkdir()
    assert "has no train.jsonl" in said(findings(tmp_path, "data.source=folder"), "error")[0]


@pytest.mark.parametrize("kind", ["multimodal", "contrastive"])
def test_paths_that_fit_below_the_project_are_told_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As the lines of PurrSight's Phase 1 have them: relative to the folder in which it is started."""
    folder = tmp_path / "project" / "data" / "online"
    folder.mkdir(parents=True)
    given = line(image="val/00000.png") if kind == "multimodal" else {"text": "a cat", "image": "val/00000.png"}
    other = given | ({"instruction": "Who?"} if kind == "multimodal" else {"text": "a dog"})
    path = lines(folder, given, other)
    (tmp_path / "project" / "val").mkdir()
    (folder / "val" / "00000.png").rename(tmp_path / "project" / "val" / "00000.png")
    name = {"multimodal": "phase2-tiny", "contrastive": "phase1-tiny"}[kind]
    asked = [f"data.source={path}", "data.num_train=0", "data.num_test=1", "per_device_batch_size=2"]

    def errors(cwd: Path, *more: str) -> list[str]:
        recipe = load(name, [*asked, *more])
        check = {"multimodal": multimodal.check, "contrastive": contrastive.check}[kind]
        return said([f for f in check(recipe, None, cwd) if f.check == "data"], "error")  # type: ignore[operator]

    for cwd, root in ((tmp_path, str(tmp_path / "project")), (tmp_path / "project", ".")):
        (only,) = errors(cwd)
        assert "a.jsonl has 2 bad lines" in only and "type podwright data check" in only
        monkeypatch.chdir(cwd)
        assert errors(cwd, f"data.root={root}") == []
    (tmp_path / "project" / "val" / "00000.png").unlink()
    assert "a.jsonl has 2 bad lines, such as line 1: image" in errors(tmp_path)[0]
    (given,) = errors(tmp_path, "data.root=project")
    assert (
        "2 bad lines, such as line 1: image '00000.png': there is no such file" in given and "--root project" in given
    )
    misspelt = "data.root=projekt is not there; did you mean data.root=project?"
    assert errors(tmp_path, "data.root=projekt") == [misspelt]
    (tmp_path / "file").touch()
    assert "data.root=file is a file, not a directory" in errors(tmp_path, "data.root=file")[0]


def test_lines_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    path = lines(tmp_path, line(), line(response=answer(ears="alert")))
    (error,) = said(findings(tmp_path, f"data.source={path}"), "error")
    assert "has 1 bad line, such as line 2: line asks what line 1 asks, and has another response" in error


def test_a_line_in_two_pieces_of_a_large_file_is_no_repeated_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podwright.data.rows.SMALL_BYTES", 2000)
    monkeypatch.setattr("podwright.data.rows._END_BYTES", 8000)
    path = lines(tmp_path, *[line(instruction=f"What {n}?") for n in range(40)])
    assert said(findings(tmp_path, f"data.source={path}"), "error") == []


def test_a_plan_refuses_the_budget_that_training_would_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same words, and with the number to type; a guess is left where nobody here can count."""
    monkeypatch.chdir(tmp_path)
    path = lines(tmp_path, line(), line(instruction="Why? " * 40), line(instruction="Who?"))
    for source in ("data.source=drawn", f"data.source={path}"):
        asked = (source, "data.num_train=2", "data.num_test=1")
        small = load("phase2-tiny", [*asked, "data.max_text_length=64"])
        with pytest.raises(
            UserError, match=r"max_text_length=64 cannot hold . of 2 lines; line \d needs \d+ tokens for its"
        ) as refused:
            lengths(small)
        plan = make(small, Destination("local")).document()
        found = [(f["level"], f["message"], f["fix"]) for f in plan["findings"] if f["check"] == "context"]
        assert not plan["ok"] and found == [("error", refused.value.what, refused.value.fix)]
    room = refused.value.fix.removeprefix("type ")
    plan = make(load("phase2-tiny", [*asked, room]), Destination("local")).document()
    assert plan["ok"] and not [f for f in plan["findings"] if f["check"] == "context"]
    hub = load("phase2-qwen2.5-0.5b-cluster", [*CLUSTER[2:], f"data.source={path}", "data.max_text_length=64"])
    (context,) = [f for f in static.check(hub, None, tmp_path) if f.check == "context"]
    assert context.level == "inconclusive" and "data.max_text_length=64 was not checked" in context.message


def test_of_many_generated_lines_some_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_lines, "_DRAWN", 200)
    some, many = (load("phase2-tiny", [f"data.num_train={n}", f"data.num_test={n}"]) for n in (200, MOST_DRAWN))
    assert lengths(many) == lengths(some)


def test_of_many_lines_the_longest_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lines(
        tmp_path,
        *[line(instruction=f"What {n}?") for n in range(20)],
        line(instruction="Why? " * 40),
        *[line(instruction=f"How {n}?") for n in range(4)],
    )
    asked = load(
        "phase2-tiny", [f"data.source={path}", "data.num_test=1", "data.num_train=0", "data.max_text_length=5000"]
    )
    exact = lengths(asked)
    monkeypatch.setattr("podwright.data.lines._COUNTED", 2)
    assert lengths(asked) == exact
    with pytest.raises(UserError, match="cannot hold 24 of 24 lines; line 21 needs"):
        lengths(
            load(
                "phase2-tiny", [f"data.source={path}", "data.num_test=1", "data.num_train=0", "data.max_text_length=9"]
            )
        )


def test_an_aligner_of_other_features_is_a_warning(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from podwright.train.multimodal.networks import aligner

    torch.save(aligner.Aligner({"image": 512, "audio": 2048}, 512).state_dict(), tmp_path / "aligner.pt")
    source = (f"data.source={lines(tmp_path, line(), line(instruction='And?'))}", "aligner.source=aligner.pt")
    assert said(findings(tmp_path, *source), "error") == []
    encoders = load(CLUSTER[0], CLUSTER[1:]).model_dump(mode="json")["encoders"]
    without = {k: v for k, v in encoders.items() if k != "audio_pooling"}
    other = (
        "aligner.source=aligner.pt was trained on other features: encoders.audio_pooling=panns, and here purrsight; "
        "type encoders.audio_pooling=panns"
    )
    for stored, warnings in ((encoders, []), (without, [other])):
        (tmp_path / "recipe.json").write_text(json.dumps({"encoders": stored}))
        assert [w for w in said(findings(tmp_path, *source), "warning") if "features" in w] == warnings
    (tmp_path / "recipe.json").write_text("[]")
    assert said(findings(tmp_path, *source), "error") == []
    (tmp_path / "aligner.pt").write_bytes(b"PK")
    assert "cannot be read as weights" in said(findings(tmp_path, *source), "error")[0]


def test_an_aligner_of_another_size_is_refused_before_a_run(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from podwright.train.multimodal.networks import aligner

    path, ran = tmp_path / "aligner.pt", tmp_path / "ran"
    torch.save({"state_dict": aligner.Aligner({"image": 64, "audio": 64, "text": 128}, 256).state_dict()}, path)
    for name in ("phase2-tiny", "phase1-tiny"):
        (text,) = said(static.check(load(name, [f"aligner.source={path}", "aligner.dim=512"]), None, tmp_path), "error")
        assert re.search(
            r"_head.* is \[\d+\] and not \[\d+\]; change|_head.fc.weight is \[256, .*; type aligner.dim=256$", text
        )

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (ran,)

    torch.save({"a": Evil()}, path)
    (text,) = said(static.check(load("phase2-tiny", [f"aligner.source={path}"]), None, tmp_path), "error")
    assert "cannot be read as weights" in text and not ran.exists()


@pytest.mark.parametrize("key", ["aligner.source", "encoders.audio_weights"])
def test_a_source_of_weights_that_is_no_file_is_called_what_it_is(tmp_path: Path, key: str) -> None:
    (tmp_path / "dir.pt").mkdir()
    os.mkfifo(tmp_path / "pipe.pt")
    for name, fault in (
        ("dir.pt", f"{key}=dir.pt is a directory, not a file; name a file in it"),
        ("pipe.pt", f"{key}=pipe.pt is a pipe, not a file; give a file"),
        ("RANDOM", f"{key}=RANDOM is not there; did you mean {key}=random?"),
    ):
        for recipe in ("phase2-tiny", "phase1-tiny"):
            (text,) = said(static.check(load(recipe, [f"{key}={name}"]), None, tmp_path), "error")
            assert text.startswith(fault)


def test_what_phase_2_reads_of_an_aligner_is_checked_and_nothing_more(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from podwright.train.multimodal.data import features
    from podwright.train.multimodal.networks import aligner

    path = tmp_path / "aligner.pt"
    recipe = load("phase2-tiny", [f"aligner.source={path}", "aligner.dim=256"])

    def errors() -> list[str]:
        return said(static.check(recipe, None, tmp_path), "error")

    torch.save({"model": aligner.Aligner(WIDTHS | {"text": 64}, 256).state_dict()}, path)
    assert errors() == [], "a head for the texts of another encoder than MiniLM"
    assert set(features.sight(recipe).aligner.dims) == {"image", "audio"}  # type: ignore[arg-type, union-attr]
    norm = "projection_heads.image_head.ln.weight"
    sound = aligner.Aligner(WIDTHS, 256).state_dict()
    for value, fault in (
        ("x", f"aligner.source={path} has no {norm}; give"),
        (torch.ones(3), f"aligner.source={path}: {norm} is [3] and not [512]; change"),
    ):
        torch.save(sound | {norm: value}, path)
        assert [error.startswith(fault) for error in errors()] == [True]
        with pytest.raises(UserError, match=re.escape(fault.partition(";")[0])):
            features.sight(recipe)  # type: ignore[arg-type]
    torch.save(dict.fromkeys(sound, "x"), path)
    assert "has no weights under projection_heads." in errors()[0]


@pytest.mark.parametrize("name", ["phase1-tiny", "phase2-tiny"])
def test_an_aligner_whose_weights_are_not_numbers_is_refused_before_a_run(tmp_path: Path, name: str) -> None:
    torch = pytest.importorskip("torch")
    from podwright.train.multimodal.networks import aligner

    path, weight = tmp_path / "aligner.pt", "projection_heads.image_head.fc.weight"
    recipe = load(name, [f"aligner.source={path}", "aligner.dim=256"])
    sound = aligner.Aligner(WIDTHS, 256).state_dict()
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        torch.save({key: value.to(getattr(torch, dtype)) for key, value in sound.items()}, path)
        assert said(static.check(recipe, None, tmp_path), "error") == []
    fault = f"weight {weight} in {path} holds values that are not finite"
    for value, dtype in ((torch.nan, "float64"), (1e300, "float64"), (torch.inf, "float16"), (-torch.inf, "bfloat16")):
        torch.save(sound | {weight: torch.full_like(sound[weight], value, dtype=getattr(torch, dtype))}, path)
        (error,) = said(static.check(recipe, None, tmp_path), "error")
        assert error.startswith(fault)
        with pytest.raises(UserError, match=re.escape(error)):
            aligner.load(str(path), WIDTHS, 256)


def test_steps_that_a_recipe_leaves_to_the_data_are_told_by_the_trainer(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    recipe = load("phase2-qwen2.5-0.5b-cluster").model_dump(mode="json")
    append_jsonl(run.events, {"event": "environment", "time": 1.0, "attempt": 1, "max_steps": 70})
    progress = Progress(run, recipe)
    assert progress.total("multimodal") == 0
    progress.update()
    assert progress.total("multimodal") == 70


def test_held_out_lines_that_training_has_too_are_named(tmp_path: Path) -> None:
    path = lines(tmp_path, *[line(instruction=f"What {n}?") for n in range(100)])
    path.rename(tmp_path / "train.jsonl")
    path.write_text(json.dumps(line(instruction="What 7?")) + "\n")
    path.rename(tmp_path / "val.jsonl")
    (warning,) = [w for w in said(findings(tmp_path, f"data.source={tmp_path}"), "warning") if "val.jsonl" in w]
    assert warning.startswith("train.jsonl has 1 line of the 1 of val.jsonl too: an evaluation on lines")


def test_more_lines_held_out_than_there_are_is_refused_with_a_number(tmp_path: Path) -> None:
    source = f"data.source={lines(tmp_path, *[line(instruction=f'What {n}?') for n in range(20)])}"
    settings = (source, "data.num_train=0", "per_device_batch_size=1", "training.gradient_accumulation_steps=1")
    (error,) = said(findings(tmp_path, *settings, "data.num_test=20", on="4xA100-40GB"), "error")
    assert error.endswith("has 20 lines that can be used, which leaves none to train on; type data.num_test=2")
    assert said(findings(tmp_path, *settings, "data.num_test=2", on="4xA100-40GB"), "error") == []
    with pytest.raises(UserError, match=r"leaves none to train on; type data\.num_test=2"):
        data = load("phase2-tiny", [source, "data.num_test=20"]).data
        data_lines.split(tmp_path / "a.jsonl", data, data_lines.reader(data))
