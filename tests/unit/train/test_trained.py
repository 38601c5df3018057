"""What is done with a finished multimodal run: exported, read by others' libraries, graded again, asked; and what is refused."""

import contextlib
import io
import json
import math
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from podwright.data import annotated, line_files, synthetic_images
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.recipe import ethogram, load
from podwright.recipe.answers import MEDIA
from podwright.report import records, reproduce
from podwright.report.result import result
from podwright.rundir import RunDir, append_jsonl, read_jsonl, write_json
from podwright.train import __main__ as entry
from podwright.train import confidence
from podwright.train.emit import Emitter
from podwright.train.multimodal import checkpoints, course, loop
from podwright.train.multimodal.inference import export, held_out, onnx_graphs, predict, trained
from podwright.train.multimodal.networks import aligner, model
from podwright.train.multimodal.processes.world import World
from tests.unit.train.test_multimodal import LORA, recipe

torch.set_num_threads(1)
SMALL = (
    "training.max_steps=3",
    "optimizer.warmup_steps=0",
    "evaluation.max_new_tokens=4",
    "optimizer.learning_rate=0.02",
    "data.num_test=5",
    "aligner.features=unit",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs/r: adapters on a language model from `base`, trained on lines in `cats`; out: its export."""
    place = tmp_path_factory.mktemp("finished")
    synthetic_images.write(place / "cats", 16, 5, 0)
    torch.manual_seed(1)
    built = model.build(recipe(), None)
    built.llm.save_pretrained(place / "base")
    examples = line_files.read(place / "cats" / "train.jsonl", annotated.reader(ethogram.SCHEMA)).good
    texts = ["".join(text for _, text in ethogram.SCHEMA.pieces(e.answer)) for e in examples]
    Tokenizer.train(texts, 512).save(place / "base")
    run = RunDir(place / "runs" / "r")
    asked = recipe(*LORA, *SMALL, f"model.source={place / 'base'}", f"data.source={place / 'cats'}")
    write_json(run.recipe, asked.model_dump(mode="json"))
    course.train(loop.prepare, asked, Emitter(run, 1, True), lambda: False, World())
    return place


@pytest.fixture(scope="module")
def out(folder: Path) -> Path:
    """The export, by what the command line starts: one document on stdout."""
    said, argv = io.StringIO(), sys.argv
    options = {"path": str(folder / "runs" / "r"), "out": str(folder / "out"), "onnx": True}
    sys.argv = ["podwright.train", "export", json.dumps(options)]
    try:
        with contextlib.redirect_stdout(said):
            assert entry.main() == 0
    finally:
        sys.argv = argv
    document = json.loads(said.getvalue())
    assert document["directory"] == str(folder / "out") and document["num_params"] == 854_144
    assert set(document["onnx_differences"]) == {"aligner-text", "aligner-image", "aligner-audio", "projector"}
    assert document["files"] == sorted(
        str(p.relative_to(folder / "out")) for p in (folder / "out").rglob("*") if p.is_file()
    )
    return folder / "out"


@pytest.fixture
def run(folder: Path) -> trained.Trained:
    return trained.open_(folder / "runs" / "r")


TOKENS = torch.tensor([[5, 300, 7, 19, 42], [1, 2, 3, 4, 200]])


def test_transformers_reads_the_merged_model(folder: Path, out: Path, run: trained.Trained) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    theirs = AutoModelForCausalLM.from_pretrained(out).eval()
    with torch.no_grad():
        got, wanted = theirs(TOKENS).logits, run.model.llm(TOKENS).logits
        plain = AutoModelForCausalLM.from_pretrained(folder / "base").eval()(TOKENS).logits
    assert torch.allclose(got, wanted, atol=1e-4)
    assert not torch.allclose(plain, wanted, atol=1e-2), "training has changed it"
    assert theirs.config.use_cache and theirs.generation_config.eos_token_id == list(run.tokenizer.stop_ids)
    text = "What is this cat up to?"
    assert AutoTokenizer.from_pretrained(out)(text)["input_ids"] == run.tokenizer.encode(text)


def test_the_files_have_the_modes_of_new_ones(out: Path, tmp_path: Path) -> None:
    (tmp_path / "new").touch()
    modes = {path.stat().st_mode for path in out.rglob("*") if path.is_file()}
    assert modes == {(tmp_path / "new").stat().st_mode}


def test_peft_reads_the_adapters(folder: Path, out: Path, run: trained.Trained) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(folder / "base")
    theirs = PeftModel.from_pretrained(base, out / export.ADAPTERS).eval()
    with torch.no_grad():
        assert torch.allclose(theirs(TOKENS).logits, run.model.llm(TOKENS).logits, atol=1e-5)
    said = json.loads((out / export.ADAPTERS / "adapter_config.json").read_text())
    assert (said["base_model_name_or_path"], said["r"], said["task_type"]) == (str(folder / "base"), 4, "CAUSAL_LM")


def test_the_other_parts_come_back(out: Path, run: trained.Trained) -> None:
    again = trained.open_(out)
    assert again.exported and again.name == "out" and again.recipe.model.lora_rank == 0
    for name, value in run.model.projector.state_dict().items():
        assert torch.equal(again.model.projector.state_dict()[name], value)
    sizes = aligner.sizes(str(out / trained.ALIGNER))
    heads = aligner.load(str(out / trained.ALIGNER), sizes, 512)
    assert sizes == {"text": 384, "image": 512, "audio": 512}
    x = torch.randn(3, 512)
    assert torch.equal(heads("audio", x), aligner.load("random", sizes, 512)("audio", x))


@pytest.mark.parametrize(("kind", "length"), [("unit", 1.0), ("scaled", math.exp(2.66))])
def test_an_aligner_of_a_file_is_exported_with_its_heads_and_the_features_of_training(
    tmp_path: Path, kind: str, length: float
) -> None:
    path = tmp_path / "aligner.pt"
    torch.save(aligner.load("random", {"image": 96}, 32).state_dict(), path)
    heads = export._heads(recipe(f"aligner.source={path}", "aligner.dim=32", f"aligner.features={kind}"))
    assert heads.dims == {"image": 96}
    assert heads("image", torch.randn(3, 96)).norm(dim=-1).tolist() == pytest.approx([length] * 3)


def test_onnxruntime_computes_what_torch_computes(out: Path, run: trained.Trained) -> None:
    import onnxruntime

    def ran(name: str, **given: np.ndarray) -> torch.Tensor:
        session = onnxruntime.InferenceSession(out / export.ONNX / f"{name}.onnx", providers=["CPUExecutionProvider"])
        return torch.from_numpy(session.run(None, given)[0])

    heads = aligner.load(str(out / trained.ALIGNER), aligner.sizes(str(out / trained.ALIGNER)), 512)
    with torch.no_grad():
        for name, size in heads.dims.items():
            x = torch.randn(5, size)
            assert torch.allclose(ran(f"aligner-{name}", features=x.numpy()), heads(name, x), atol=1e-4)
        x, present = torch.randn(7, 2, 512), torch.rand(7, 2) > 0.5
        got = ran("projector", features=x.numpy(), present=present.numpy())
        assert torch.allclose(got, run.model.projector(x, present), atol=1e-4) and got.shape == (7, 8, 128)


@pytest.fixture(scope="module")
def pumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on lines of another schema of answers, whose file is gone since."""
    place = tmp_path_factory.mktemp("pumps")
    synthetic_images.write(place / "p", 12, 4, 0)
    for part in ("train", "val"):
        path = place / "p" / f"{part}.jsonl"
        rows = []
        for n, row in enumerate(read_jsonl(path)):
            state, urgency = (("normal", n % 11), ("leaking", 7 + n % 4), ('cavitating "hard"', 10))[n % 3]
            plan = {"urgency": urgency, "order": ("none", "seal", "seal kit")[n % 3]}
            sound = {"pitch": ("low", "high")[n % 2], "heard": "A hum."}
            answer = {"state": state, "plan": plan, "sound": sound, "advice": f"Wait {n}."}
            rows.append(row | {"instruction": "How is it?", "response": json.dumps(answer)})
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    schema = place / "pumps.yaml"
    shutil.copy(Path(__file__).parents[1] / "data" / "pumps.yaml", schema)
    run = RunDir(place / "runs" / "pump")
    asked = recipe(
        *SMALL[:4], "data.num_train=0", "data.num_test=0", f"data.source={place / 'p'}", f"data.answers={schema}"
    )
    schema.unlink()
    write_json(run.recipe, asked.model_dump(mode="json"))
    course.train(loop.prepare, asked, Emitter(run, 1, True), lambda: False, World())
    return place


def test_answers_of_another_schema_are_trained_graded_and_reported(pumps: Path) -> None:
    path = pumps / "runs" / "pump"
    tests = [e for e in read_jsonl(path / "events.jsonl") if e["event"] == "evaluation"]
    names = ["state", "urgency", "order", "pitch"]
    for test in tests:
        assert test["json_valid"] == 1.0 and list(test["fields"]) == list(test["majority_fields"]) == names
        assert list(test["without_image"]["fields"]) == names and test["num"] == 4
    graded = held_out.examine(path, "", 0, [])
    assert {name: row["accuracy"] for name, row in graded["fields"].items()} == tests[-1]["fields"]
    schema = trained.open_(path).recipe.data.schema_of_answers
    for sample in graded["samples"]:
        assert list(schema.answer_faults(json.loads(sample["completion"]))) == []
        assert list(schema.answer_faults(json.loads(sample["answer"]))) == []
    reported = result(RunDir(path))
    assert [row["field"] for row in reported["fields"]] == names and reported["json_valid"] == 1.0


def test_a_model_of_another_schema_answers_in_it_wherever_it_is_taken(pumps: Path, tmp_path: Path) -> None:
    export.export(pumps / "runs" / "pump", tmp_path / "out", onnx=False)
    files = {"image": pumps / "p" / "val" / "00000.png"}
    for place in (pumps / "runs" / "pump", tmp_path / "out"):
        document = predict.predict(place, files, "", tmp_path / "answer.json")
        analysis, schema = document["analysis"], trained.open_(place).recipe.data.schema_of_answers
        assert document["metadata"]["schema_version"] == "pump-2" and analysis.pop("parsing_note") == ""
        assert json.loads(analysis.pop("raw_model_output")) == analysis and list(schema.answer_faults(analysis)) == []
        assert predict._instruction(RunDir(place), schema) == "How is this pump?"


@pytest.mark.long
def test_a_run_from_before_the_key_keeps_the_features_that_it_was_trained_on(
    folder: Path, out: Path, tmp_path: Path
) -> None:
    """aligner.features=scaled where a stored recipe lacks the key: in model.pt, in recipe.json, and in an export."""
    import onnxruntime

    old = RunDir(tmp_path / "old")
    shutil.copytree(folder / "runs" / "r", old.path)
    stored = torch.load(old.weights, weights_only=True)
    assert stored["config"]["aligner"].pop("features") == "unit"
    torch.save(stored, old.weights)
    write_json(old.recipe, stored["config"])
    assert trained.open_(old.path).recipe.aligner.features == "scaled"
    assert load.stored(json.loads(old.recipe.read_text())).aligner.features == "scaled"  # type: ignore[union-attr]
    assert load.load(str(old.recipe)).aligner.features == "scaled"  # type: ignore[union-attr]
    assert records.read(old).recipe.aligner.features == "scaled"  # type: ignore[union-attr]
    new = RunDir(folder / "runs" / "r")
    assert "aligner.features=unit" in reproduce.command(new, records.read(new)), "the shipped recipe has scaled"
    export.export(old.path, tmp_path / "exported", onnx=True)
    x, norms = np.random.default_rng(0).normal(size=(3, 512)).astype(np.float32), []
    for place in (out, tmp_path / "exported"):
        session = onnxruntime.InferenceSession(
            place / export.ONNX / "aligner-image.onnx", providers=["CPUExecutionProvider"]
        )
        norms.append(np.linalg.norm(session.run(None, {"features": x})[0], axis=1))
    assert np.allclose(norms[0], 1) and np.allclose(norms[1], np.exp(2.66))
    without = json.loads((tmp_path / "exported" / "recipe.json").read_text())
    assert without["aligner"].pop("features") == "scaled"
    write_json(tmp_path / "exported" / "recipe.json", without)
    assert trained.open_(tmp_path / "exported").recipe.aligner.features == "scaled"
    results = [held_out.examine(path, "", 0, []) for path in (old.path, tmp_path / "exported", folder / "runs" / "r")]
    assert results[0]["loss"] == pytest.approx(results[1]["loss"], rel=1e-4)
    assert abs(results[0]["loss"] - results[2]["loss"]) > 1e-3


def test_a_graph_that_computes_something_else_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_graphs, "_TOLERANCE", 0.0)
    with pytest.raises(AssertionError, match=r"one\.onnx computes something else"):
        onnx_graphs._graph(
            tmp_path / "one.onnx",
            nn.Sequential(nn.Linear(96, 96), nn.GELU(), nn.Linear(96, 96)),
            {"input": torch.randn(2, 96)},
            "y",
        )


def test_without_onnx_one_line_says_what_to_type(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_graphs, "_NEEDED", ("onnx", "onnx_that_nobody_has"))
    with pytest.raises(UserError, match="--onnx needs onnx_that_nobody_has, not installed here") as e:
        export.export(folder / "runs" / "r", folder / "other", onnx=True)
    assert e.value.fix == "type pip install -e '.[onnx]' in podwright's clone" and not (folder / "other").exists()


def test_a_run_that_trained_all_its_weights_has_no_adapters(folder: Path, run: trained.Trained) -> None:
    whole = RunDir(folder / "runs" / "whole")
    asked = recipe(f"model.source={folder / 'base'}", f"data.source={folder / 'cats'}")
    built = model.build(asked, folder / "base")
    nn.init.normal_(built.llm.model.norm.weight)
    state = {name: p.detach() for name, p in built.trained().items()}
    run.tokenizer.save(whole.tokenizer)
    checkpoints.write(
        whole.weights, {"model_state_dict": state, "config": asked.model_dump(mode="json"), "run_id": "whole"}
    )
    files = export.export(whole.path, folder / "whole-out", onnx=False)["files"]
    assert "model.safetensors" in files and not any(f.startswith((export.ADAPTERS, export.ONNX)) for f in files)
    with torch.no_grad():
        assert torch.equal(
            trained.open_(folder / "whole-out").model.llm(TOKENS).logits, built.eval().llm(TOKENS).logits
        )


def test_a_run_graded_again_says_what_it_said(folder: Path, out: Path) -> None:
    path = folder / "runs" / "r"
    found = held_out.examine(path, "", 0, [])
    (after,) = [e for e in read_jsonl(path / "events.jsonl") if e["event"] == "evaluation" and e["when"] == "after"]
    assert (found["num"], found["left_out"], found["json_valid"]["accuracy"]) == (5, 0, 1.0)
    assert found["accuracy"]["accuracy"] == after["accuracy"] and found["loss"] == pytest.approx(
        after["loss"], rel=1e-5
    )
    assert {name: one["accuracy"] for name, one in found["fields"].items()} == after["fields"]
    assert all(found[name] == after[name] for name in ("majority", "majority_fields", "without_image", "without_audio"))
    ears = found["fields"]["ears"]
    assert (ears["low"], ears["high"]) == confidence.wilson(ears["correct"], 5)
    assert found["accuracy"]["low"] < found["accuracy"]["accuracy"] < found["accuracy"]["high"]
    before = sorted(folder.rglob("*"))
    exported = held_out.examine(out, "", 0, [])
    assert exported["fields"] == found["fields"] and exported["loss"] == pytest.approx(found["loss"], rel=1e-4)
    assert sorted(folder.rglob("*")) == before, "an export stays as it is"


def test_of_a_foreign_file_every_line_is_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    file, path = folder / "cats" / "val.jsonl", folder / "runs" / "r"
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "podwright.train",
            "eval",
            json.dumps({"path": str(path), "data": str(file), "limit": 3}),
            "evaluation.batch_size=2",
        ],
    )
    assert entry.main() == 0
    found = json.loads(capsys.readouterr().out)
    assert found["num"] == 3 and found["data"] == str(file) and "majority" not in found
    data = recipe(f"data.source={file}").data
    assert len(held_out._selected(file, str(folder / "cats"), data, RunDir(path))[1]) == 5
    with pytest.raises(UserError, match=r"data.source=nowhere is not there"):
        held_out.examine(path, "nowhere", 0, [])
    with pytest.raises(UserError, match=r"unknown key data\.sauce"):
        held_out.examine(path, "", 0, ["data.sauce=1"])


def test_an_export_answers_as_its_run(folder: Path, out: Path, tmp_path: Path) -> None:
    files = {"image": folder / "cats" / "val" / "00000.png", "audio": folder / "cats" / "val" / "00000.wav"}
    told = [predict.predict(path, files, "", tmp_path / "answer.json") for path in (folder / "runs" / "r", out)]
    assert told[0]["analysis"] == told[1]["analysis"]
    assert [t["metadata"]["model_version"] for t in told] == ["r", "out"]


def test_what_cannot_be_opened_is_one_line(folder: Path, out: Path, tmp_path: Path) -> None:
    run = RunDir(tmp_path / "r")
    shutil.copytree(folder / "runs" / "r", run.path)
    whole = run.weights.read_bytes()
    found: dict[str, Any] = torch.load(run.weights, weights_only=True)
    assert set(found) == {"model_state_dict", "config", "run_id"}
    config, state = found["config"], found["model_state_dict"]
    name = next(iter(state))
    wrong = {
        "cannot be read": [
            {"model_state_dict": state},
            [1],
            {"model_state_dict": 3, "config": config, "run_id": "r"},
            {"model_state_dict": state, "config": "r", "run_id": "r"},
        ],
        "kind='other' is not a kind": [
            {"model_state_dict": state, "config": config | {"kind": "other"}, "run_id": "r"}
        ],
        "does not fit": [
            {"model_state_dict": {k: v for k, v in state.items() if k != name}, "config": config, "run_id": "r"}
        ],
    }
    for said, values in wrong.items():
        for value in values:
            torch.save(value, run.weights)
            with pytest.raises(UserError, match=said):
                export.export(run.path, tmp_path / "o", onnx=False)
    for content in (b"", whole[: len(whole) // 2], b"no archive"):
        run.weights.write_bytes(content)
        with pytest.raises(UserError, match=r"model.pt cannot be read") as e:
            held_out.examine(run.path, "", 0, [])
        assert e.value.code == "unreadable-weights"
        assert e.value.fix == f"bring it back from a copy, or type podwright run {run.recipe}"
    run.weights.unlink()
    with pytest.raises(UserError, match=r"has no model.pt, which is written at the end"):
        export.export(run.path, tmp_path / "o", onnx=False)
    with pytest.raises(UserError, match="is there already and not empty"):
        export.export(run.path, out, onnx=False)
    with pytest.raises(
        UserError,
        match=r"the prompt has \d{4,} tokens, and prompt and answer share data.max_text_length=\d+; give a shorter --text",
    ):
        predict.predict(out, {}, "What is this cat up to? " * 900, tmp_path / "o")
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    (copy / trained.PROJECTOR).write_bytes(b"?")
    with pytest.raises(UserError, match=r"projector.safetensors cannot be read"):
        trained.open_(copy)
    shutil.copy(out / trained.PROJECTOR, copy)
    weights = (out / "model.safetensors").read_bytes()
    for content in (b"", weights[: len(weights) // 2], b"no weights at all"):
        (copy / "model.safetensors").write_bytes(content)
        with pytest.raises(UserError, match=r"copy/model\.safetensors cannot be read") as e:
            trained.open_(copy)
        assert e.value.fix.endswith("or copy it again") and "\n" not in str(e.value)
    (copy / "recipe.json").write_text("{")
    with pytest.raises(UserError, match=r"copy/recipe\.json is not there, or no recipe of a run; bring it back") as e:
        trained.open_(copy)
    assert e.value.code == "damaged-file"
    assert not (tmp_path / "o").exists()


def test_an_export_takes_no_place_but_its_own(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = tmp_path / "o.part" / "mine"
    beside.parent.mkdir()
    beside.touch()
    (tmp_path / "file").touch()

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(export.onnx_graphs, "write", interrupted)
        export.export(folder / "runs" / "r", tmp_path / "o", onnx=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "o.part"] and beside.exists()
    monkeypatch.chdir(beside.parent)
    beside.unlink()
    with pytest.raises(UserError, match="file is a file, and a directory is written"):
        export.export(folder / "runs" / "r", tmp_path / "file", onnx=False)


def test_options_that_are_for_another_kind_of_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    for verb, options, said in (
        ("export", {"out": "out", "onnx": True}, "--onnx is for multimodal"),
        ("eval", {"data": "", "limit": 0}, "is neither a run nor a Hugging Face model directory"),
    ):
        monkeypatch.setattr(sys, "argv", ["podwright.train", verb, json.dumps({"path": str(tmp_path)} | options)])
        assert entry.main() == 2
        assert said in json.loads(capsys.readouterr().out)["error"]
    (tmp_path / "adapter_config.json").write_text("{}")
    monkeypatch.setattr(
        sys, "argv", ["podwright.train", "eval", json.dumps({"path": str(tmp_path), "data": ""} | options)]
    )
    assert entry.main() == 2
    assert "holds an adapter (adapter_config.json) that is not merged" in json.loads(capsys.readouterr().out)["error"]


def test_lines_without_files_are_left_out(folder: Path, tmp_path: Path) -> None:
    """As in training: counted, and nothing else."""
    line = json.loads((folder / "cats" / "val.jsonl").read_text().splitlines()[0])
    whole = {m: str(folder / "cats" / line[m]) for m in MEDIA if m in line}
    (tmp_path / "broken.png").write_bytes(b"?")
    for media in (whole, {"image": "broken.png"}):
        append_jsonl(tmp_path / "a.jsonl", {"instruction": "?", "response": line["response"], **media})
    found = held_out.examine(folder / "runs" / "r", str(tmp_path / "a.jsonl"), 0, [])
    assert (found["num"], found["left_out"]) == (1, 1)
