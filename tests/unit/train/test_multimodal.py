"""The multimodal trainer: counts at the real sizes, and that what is done quickly comes to the same as what is done plainly."""

import concurrent.futures
import copy
import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from podwright.data import annotated, line_check, line_files, media, synthetic_images
from podwright.data.annotated import AnnotatedExample
from podwright.data.line_check import CheckOptions
from podwright.data.lines import tokenized
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.recipe import ethogram, llm
from podwright.recipe.load import load
from podwright.recipe.multimodal import Encoders, MultimodalRecipe
from podwright.rundir import RunDir, read_jsonl
from podwright.train.emit import Emitter
from podwright.train.multimodal import checkpoints, course, loop, updates
from podwright.train.multimodal.data import batches, features, inputs
from podwright.train.multimodal.inference.decode import Grammar, answered
from podwright.train.multimodal.networks import aligner, encoders, model
from podwright.train.multimodal.processes.world import World
from podwright.train.run_storage import RunStorage

torch.set_num_threads(1)
SMALL = (
    "data.num_train=44",
    "data.num_test=6",
    "per_device_batch_size=8",
    "training.max_steps=0",
    "evaluation.every_n_steps=0",
)
LORA = ("model.lora_rank=4", "model.lora_dropout=0.1")
ONE = World()


def recipe(*overrides: str) -> MultimodalRecipe:
    found = load("phase2-tiny", [*SMALL, *overrides])
    assert isinstance(found, MultimodalRecipe)
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, inputs.MultimodalInputs]:
    run = RunDir(tmp_path_factory.mktemp("runs") / "made")
    run.path.mkdir()
    return run, inputs.load(run, recipe(), ONE)


def built(*overrides: str) -> model.Phase2:
    return model.build(recipe(*overrides), None)


def batch(found: inputs.MultimodalInputs, rows: list[int]) -> model.MultimodalBatch:
    return batches.collated(found.training, rows, found.tokenizer.pad_id)


def gradients(built: model.Phase2) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in built.trained().items() if p.grad is not None}


def test_trained_parameters_at_the_real_sizes() -> None:
    asked = load("phase2-qwen2.5-0.5b-cluster", ["model.source=random"])
    assert isinstance(asked, MultimodalRecipe)
    with torch.device("meta"):
        whole = model.build(asked, None)
        heads = aligner.Aligner({"text": llm.TEXT_DIM, "image": 960, "audio": encoders.Cnn14.DIM}, 512)
        cnn14, classes = encoders.Cnn14(), nn.Linear(encoders.Cnn14.DIM, 527)
    assert sum(p.numel() for part in (cnn14, classes) for p in part.parameters()) == 80_753_615, "as PANNs published it"
    trained = whole.trained()
    assert sum(p.numel() for name, p in trained.items() if name.startswith("projector.")) == 8_397_824
    assert sum(p.numel() for name, p in trained.items() if "lora_" in name) == 2_162_688
    assert sum(p.numel() for p in trained.values()) == 8_397_824 + 2_162_688
    assert sum(p.numel() for name, p in heads.named_parameters() if name.startswith(aligner.PREFIX)) == 1_743_488
    assert sum(p.numel() for name, p in whole.llm.named_parameters() if "lora_" not in name) == 494_032_768
    dims = llm.find("qwen2.5-0.5b")
    assert dims.num_params() == 494_032_768
    assert dims.num_lora_params(16, asked.model.lora_target_modules) == 2_162_688
    assert dims.num_projector_params(512, 2048, 4) == 8_397_824


@pytest.mark.parametrize("extra", [(), LORA], ids=["all weights", "adapters"])
def test_the_flops_of_a_step_are_those_that_torch_counts(extra: tuple[str, ...]) -> None:
    asked, one = recipe(*extra), built(*extra)
    lines, length, targets = 2, 16, 11
    present, tokens = torch.ones(lines, 2, dtype=torch.bool), torch.ones(lines, length, dtype=torch.long)
    b = model.MultimodalBatch(torch.ones(lines, 2, asked.aligner.dim), present, tokens, torch.arange(targets))
    with FlopCounterMode(display=False) as counted:
        one(b).backward()
    none: Any = None
    run = loop.MultimodalRun(none, asked, ONE, none, none, none, updates.assembled(one, one, asked, ONE, 1), 1)
    ours = run._flops(lines * (length + 2 * asked.projector.num_soft_tokens), targets)
    assert ours == pytest.approx(counted.get_total_flops(), rel=0.06), "without projector and attention's scores"


def test_merged_adapters_compute_the_same(made: Any) -> None:
    one = built(*LORA).eval()
    for name, p in one.trained().items():
        if "lora_B" in name:
            nn.init.normal_(p, std=0.5)
    before = one(batch(made[1], [0, 1, 2]))
    plain = built(*LORA).eval()
    plain.load_state_dict({k: torch.zeros_like(v) if "lora_B" in k else v for k, v in one.state_dict().items()})
    model.merge(one)
    assert torch.allclose(one(batch(made[1], [0, 1, 2])), before, rtol=1e-5)
    assert not torch.allclose(plain(batch(made[1], [0, 1, 2])), before, rtol=1e-4)


def test_logits_where_tokens_are_labelled_are_enough(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against transformers' own loss over all positions, padding and soft tokens masked out."""
    one, b = built(), batch(made[1], [0, 5, 9, 20])
    soft = one.projector(b.features, b.present)
    labels = torch.full((len(b.tokens), soft.shape[1] + b.tokens.shape[1]), -100)
    labelled = b.labelled[b.labelled != model.NOWHERE]
    row, place = labelled // b.tokens.shape[1], labelled % b.tokens.shape[1]
    labels[row, soft.shape[1] + place] = b.tokens[row, place]
    full = one.llm(inputs_embeds=torch.cat([soft, one.embed(b.tokens)], 1), labels=labels).loss
    assert torch.allclose(one(b) / len(labelled), full, rtol=1e-5)
    (one(b)).backward()
    whole = gradients(one)
    one.zero_grad()
    monkeypatch.setattr(model, "_LOGITS_AT_ONCE", 512 * 50)
    one(b).backward()
    assert all(torch.allclose(g, whole[name], rtol=1e-4, atol=1e-4) for name, g in gradients(one).items())


@pytest.mark.parametrize("extra", [(), (LORA[0], "model.lora_dropout=0")])
def test_padding_changes_neither_loss_nor_gradients(made: Any, extra: tuple[str, ...]) -> None:
    """Float32: sums of the same numbers and zeros, in another order."""
    one, b = built(*extra), batch(made[1], [0, 5, 9, 20])
    longest, width = max(made[1].training.lengths_at([0, 5, 9, 20])), b.tokens.shape[1]
    labelled = b.labelled[b.labelled != model.NOWHERE]
    rows, places = labelled // width, labelled % width
    found = []
    for more_columns, more_labels in ((longest - width, 0), (40, 33)):
        tokens = torch.nn.functional.pad(b.tokens, (0, more_columns), value=made[1].tokenizer.pad_id)
        padding = torch.full((more_labels,), model.NOWHERE)
        padded = torch.cat([rows * tokens.shape[1] + places, padding])
        loss = one(dataclasses.replace(b, tokens=tokens, labelled=padded))
        loss.backward()
        found.append((loss.detach(), gradients(one)))
        one.zero_grad()
    (bare, bare_gradients), (wide, wide_gradients) = found
    assert torch.allclose(bare, wide, rtol=1e-6)
    for name, gradient in bare_gradients.items():
        assert torch.allclose(gradient, wide_gradients[name], rtol=1e-5, atol=1e-6 * float(gradient.abs().max())), name


def test_batches_have_few_shapes() -> None:
    assert len({batches.rounded(n) for n in range(257, 513)}) == 16
    assert all(n <= batches.rounded(n) <= max(n * 17 / 16, n + 7) for n in range(1, 5000))
    lengths = [246 + i * 7 % 30 for i in range(512)]
    prompts, responses = (
        [[1] * (length - 60 - length % 40) for length in lengths],
        [[2] * (60 + length % 40) for length in lengths],
    )
    lines = batches.LineBatches([], prompts, responses, torch.zeros(512, 2, 4), torch.ones(512, 2, dtype=torch.bool))
    seen = [batches.collated(lines, rows, 0) for rows in batches.epoch(lengths, 16, 0, 0)]
    assert {b.tokens.shape[1] for b in seen} <= {248, 256, 272, 280}, "not 288, which no line needs"
    assert len({len(b.labelled) for b in seen}) < len({int((b.labelled >= 0).sum()) for b in seen}) / 2
    assert all(len(b.labelled) % 8 == 0 for b in seen)


def test_adapters_on_gpus_compute_the_same_from_inputs_in_half_precision(made: Any) -> None:
    asked = recipe(LORA[0], "model.lora_dropout=0", "model.mixed_precision=bf16")
    one, b = model.build(asked, None), batch(made[1], [0, 1, 2])
    for name, p in one.trained().items():
        if "lora_B" in name:
            nn.init.normal_(p, std=0.5)
    adapters = [module for name, module in one.named_modules() if name.endswith("lora_A.default")]
    dtypes: set[torch.dtype] = set()
    for adapter in adapters:
        adapter.register_forward_pre_hook(lambda _, inputs: dtypes.add(inputs[0].dtype))
    found = []
    for _ in range(2):
        with updates.autocast(asked, ONE.device):
            loss = one(b)
        loss.backward()
        found.append((loss, gradients(one), dtypes.copy()))
        dtypes.clear()
        one.zero_grad()
        model.skip_input_casts(one)
    (loss, before, cast), (same_loss, after, skipped) = found
    assert adapters and cast == {torch.float32} and skipped == {torch.bfloat16}
    assert torch.equal(loss, same_loss) and all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("extra", [(), LORA[:1]])
def test_accumulation_is_a_larger_batch(made: Any, extra: tuple[str, ...]) -> None:
    found = made[1]
    norms = []
    for per_device, parts in ((16, 1), (4, 4)):
        asked = recipe(
            f"per_device_batch_size={per_device}",
            f"training.gradient_accumulation_steps={parts}",
            "model.lora_dropout=0",
            *extra,
        )
        order = batches.Order(found.training.lengths, per_device, parts, 0, 1, 0)
        learner = updates.learner(model.build(asked, None), asked, ONE, 10)
        rows, own = order.step(0)
        assert len(own) == parts
        micro = [batch(found, part) for part in own]
        figures = updates.update(learner, micro, found.training.num_targets(rows), 5)
        norms.append(
            (
                figures["loss"],
                figures["grad_norm"],
                torch.cat([p.detach().flatten() for p in learner.model.trained().values()]),
            )
        )
    assert norms[0][0] == pytest.approx(norms[1][0], rel=1e-5) and norms[0][1] == pytest.approx(norms[1][1], rel=1e-4)
    assert torch.allclose(norms[0][2], norms[1][2], atol=2e-4)


def test_every_line_is_seen_once_an_epoch_however_the_batch_is_split(made: Any) -> None:
    lengths = made[1].training.lengths
    seen = [i for rows in batches.epoch(lengths, 8, 3, 0) for i in rows]
    assert len(seen) == 48 and set(seen) == set(range(44))
    assert seen != [i for rows in batches.epoch(lengths, 8, 3, 1) for i in rows]
    whole = batches.Order(lengths, 8, 1, 0, 1, 3)
    parts = [batches.Order(lengths, 2, 2, rank, 2, 3) for rank in (0, 1)]
    for step in (0, 5, 7):
        rows, _ = whole.step(step)
        own = [part.step(step) for part in parts]
        assert own[0][0] == own[1][0] == rows
        assert sorted(i for _, micro in own for m in micro for i in m) == sorted(rows)
    few = batches.Order(lengths[:3], 16, 1, 0, 1, 0)  # more room than lines: no empty epoch
    assert few.steps_per_epoch == 1 and set(few.step(0)[0]) == {0, 1, 2}


def test_lines_of_like_length_share_a_batch() -> None:
    lengths = [100 + 10 * (i % 7) for i in range(256)]
    spread = [
        max(lengths[i] for i in rows) - min(lengths[i] for i in rows) for rows in batches.epoch(lengths, 16, 0, 0)
    ]
    assert sum(spread) / len(spread) <= 10


def test_a_budget_that_cannot_hold_prompt_and_response_is_refused(made: Any) -> None:
    examples = made[1].training.examples
    asked = recipe("data.max_text_length=80")
    with pytest.raises(
        UserError, match=r"max_text_length=80 cannot hold \d+ of 44 lines; line \d+ needs 1\d tokens for"
    ) as e:
        tokenized(examples, made[1].tokenizer, asked.data)
    room = int(e.value.fix.removeprefix("type data.max_text_length="))
    assert tokenized(examples, made[1].tokenizer, recipe(f"data.max_text_length={room}").data)
    with pytest.raises(UserError):
        tokenized(examples, made[1].tokenizer, recipe(f"data.max_text_length={room - 1}").data)


def test_features_from_the_cache_are_those_of_the_files(made: Any, tmp_path: Path) -> None:
    run, found = made
    asked, seen = recipe(), features.sight(recipe())
    store = run.path.parent / ".features" / seen.fingerprint
    parts = {p.name: p.stat().st_mtime_ns for p in store.iterdir()}
    again = features.of_files(found.training.examples, seen, asked, ONE, run.path.parent / ".features")
    assert torch.equal(again[0], found.training.features) and torch.equal(again[1], found.training.present)
    assert parts == {p.name: p.stat().st_mtime_ns for p in store.iterdir()}
    for row in (0, 7):
        values, present = features.one_line(found.training.examples[row], seen, torch.device("cpu"))
        assert torch.equal(present[0], found.training.present[row])
        assert torch.allclose(values[0], found.training.features[row], atol=1e-5)
    other = features.sight(recipe("encoders.image_size=32"))
    assert other.fingerprint != seen.fingerprint
    with_other_aligner = features.sight(recipe("aligner.dim=128"))
    assert with_other_aligner.fingerprint != seen.fingerprint


def test_a_part_that_a_power_failure_damaged_is_computed_again(made: Any, tmp_path: Path) -> None:
    examples = made[1].training.examples[:3]
    seen = features.sight(recipe())
    first = features.of_files(examples, seen, recipe(), ONE, tmp_path)
    part = next((tmp_path / seen.fingerprint).glob("*.npz"))
    for damaged in (b"", part.read_bytes()[:-30]):
        part.write_bytes(damaged)
        again = features.of_files(examples, seen, recipe(), ONE, tmp_path)
        assert torch.equal(first[0], again[0]) and not again[2]


def test_the_demo_keeps_scaled_features_and_others_have_unit_vectors(made: Any) -> None:
    assert recipe().aligner.features == "scaled"
    cluster = load("phase2-qwen2.5-0.5b-cluster")
    assert isinstance(cluster, MultimodalRecipe) and cluster.aligner.features == "unit"
    example = made[1].training.examples[1]
    marks = set()
    for kind, length in {"scaled": float(torch.tensor(2.66).exp()), "unit": 1.0}.items():
        sight = features.sight(recipe(f"aligner.features={kind}"))
        values, present = features.one_line(example, sight, torch.device("cpu"))
        assert torch.allclose(values[present].norm(dim=-1), torch.tensor(length))
        marks.add(sight.fingerprint)
    assert len(marks) == 2, "kept features of one length are not read as those of the other"


def test_a_bad_file_is_left_out_and_named(made: Any, tmp_path: Path) -> None:
    examples = list(made[1].training.examples[:3])
    (tmp_path / "broken.png").write_bytes(b"no picture")
    examples[1] = dataclasses.replace(examples[1], paths={"image": tmp_path / "broken.png"})
    examples[2] = dataclasses.replace(examples[2], paths={"audio": tmp_path / "absent.wav"})
    _, present, faults = features.of_files(examples, features.sight(recipe()), recipe(), ONE, tmp_path / "features")
    assert set(faults) == {1, 2}
    assert faults[1].startswith("broken.png: it cannot be read") and faults[2] == "absent.wav: there is no such file"
    assert present[0].any() and not present[1:].any()


@pytest.mark.parametrize(("num_workers", "num_cores", "threads"), [(0, 3, 3), (0, 64, 16), (5, 3, 5)])
def test_files_are_decoded_by_as_many_threads_as_there_are_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, num_workers: int, num_cores: int, threads: int
) -> None:
    assert recipe().data.num_workers == 0
    started: list[int] = []
    pool = concurrent.futures.ThreadPoolExecutor
    monkeypatch.setattr(features.concurrent.futures, "ThreadPoolExecutor", lambda n: started.append(n) or pool(n))
    monkeypatch.setattr(features.cores, "of_process", lambda world: num_cores)
    monkeypatch.setattr(features, "_compute", lambda *parts: {})
    line = {"text": "a cat"}
    features.of_lines([line], features.sight(recipe()), num_workers, ONE, tmp_path)
    assert started == [threads]


@dataclasses.dataclass(frozen=True)
class Threads(World):
    """Processes that see one disk, as threads."""

    meeting: threading.Barrier = dataclasses.field(default_factory=lambda: threading.Barrier(2))
    values: dict[int, Any] = dataclasses.field(default_factory=dict)

    def gathered(self, value: Any) -> list[Any]:
        self.values[self.rank] = value
        self.meeting.wait(60)
        values = [self.values[rank] for rank in range(self.size)]
        self.meeting.wait(60)
        return values

    def from_first(self, make: Callable[[], Any]) -> Any:
        return self.gathered(make() if self.rank == 0 else None)[0]


@pytest.mark.parametrize("shared", [True, False])
def test_a_state_is_sent_only_to_processes_that_do_not_see_its_file(tmp_path: Path, shared: bool) -> None:
    """What is sent goes through the memory of the devices, where a whole state may not fit."""
    runs = [RunDir(tmp_path / "r0"), RunDir(tmp_path / ("r0" if shared else "r1"))]
    for run in runs:
        run.path.mkdir(exist_ok=True)
    state = {"weights": torch.arange(5.0), "lines": 8}
    checkpoints.save(RunStorage(runs[0]), 4, state)
    first, sent = Threads(size=2), []

    def begin(rank: int) -> Any:
        world = dataclasses.replace(first, rank=rank)
        newest = course._newest(RunStorage(runs[rank]), world)
        sent.append(any("weights" in str(value) for value in first.values.values()))
        return newest

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        both = list(pool.map(begin, range(2)))
    assert [newest.step for newest in both] == [4, 4] and sent == [not shared] * 2
    assert all(torch.equal(newest.state["weights"], state["weights"]) for newest in both)


class Late(list):
    """Lines that are read when another process has written its features, or never will."""

    store = Path()

    def __iter__(self) -> Iterator[Any]:
        limit = time.monotonic() + 3
        while time.monotonic() < limit and not list(self.store.glob("*/*.npz")):
            time.sleep(0.01)
        return super().__iter__()


def test_a_process_that_reads_its_lines_late_computes_its_share_of_the_features(made: Any, tmp_path: Path) -> None:
    lines, sight = [example.paths for example in made[1].training.examples[:16]], features.sight(recipe())
    late, first = Late(lines), Threads(size=2)
    late.store = tmp_path
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        parts = [
            pool.submit(features.of_lines, x, sight, 2, dataclasses.replace(first, rank=n), tmp_path)
            for n, x in enumerate((lines, late))
        ]
        values, present, faults = parts[0].result()
        assert not faults and not parts[1].result()[2]
    assert torch.equal(torch.stack([present[m] for m in model.MODALITIES], 1), made[1].training.present[:16])
    assert torch.equal(torch.stack([values[m] for m in model.MODALITIES], 1), made[1].training.features[:16])


def test_runs_that_compute_at_the_same_time_keep_the_features_of_each_other(made: Any, tmp_path: Path) -> None:
    """Both began before either had written: their parts share the first key and have as many."""
    sight = features.sight(recipe())
    picture = next(e.paths["image"] for e in made[1].training.examples if "image" in e.paths)
    keys = [{name: ("image", ("image", picture)) for name in names} for names in (("a", "b"), ("a", "c"))]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for own in keys:
            assert features._compute(own, sight, tmp_path, ONE, pool) == {}
    assert set(features._read(tmp_path, {"a", "b", "c"})) == {"a", "b", "c"}


@pytest.mark.parametrize("num_kept", [1, 7, 33])
def test_features_do_not_depend_on_which_files_are_computed_together(made: Any, tmp_path: Path, num_kept: int) -> None:
    """As after an attempt that ended while it computed them."""
    lines, sight = [example.paths for example in made[1].training.examples], features.sight(recipe())
    features.of_lines(lines[:num_kept], sight, 2, ONE, tmp_path)
    values, _, _ = features.of_lines(lines, sight, 2, ONE, tmp_path)
    assert torch.equal(torch.stack([values[m] for m in model.MODALITIES], 1), made[1].training.features)


def test_a_run_stops_on_what_a_check_calls_a_fault(made: Any, tmp_path: Path) -> None:
    """Contradictory answers, repeated lines, files that are not there or do not decode; with the verb that lists all of them."""
    synthetic_images.write(tmp_path / "cats", 12, 2, 0)
    good = (tmp_path / "cats" / "train.jsonl").read_text().splitlines()
    first, second = map(json.loads, good[:2])
    (tmp_path / "cats" / "broken.png").write_bytes(b"no picture")
    bad = {
        "line 13: line repeats line 1": first,
        "line 13: line asks what line 1 asks, and has another response": first | {"response": second["response"]},
        "line 13: broken.png: it cannot be read": first | {"image": "broken.png"},
        "line 13: absent.wav: there is no such file": first | {"audio": "absent.wav"},
    }
    path = tmp_path / "cats" / "more.jsonl"
    asked = recipe(f"data.source={path}", "data.num_train=0", "data.num_test=2")
    run = RunDir(tmp_path / "runs" / "r")
    run.path.mkdir(parents=True)
    for message, line in bad.items():
        path.write_text("\n".join([*good, json.dumps(line)]) + "\n")
        found = line_check.of_annotated(path, CheckOptions())[0]
        assert found["num_faults"] == 1 and found["faults"][0]["line"] == 13
        with pytest.raises(UserError) as e:
            inputs.load(run, asked, ONE)
        assert message in e.value.what and e.value.fix == f"type podwright data check {path} --fix", e.value
    path.write_text("\n".join(good) + "\n")
    assert len(inputs.load(run, asked, ONE).training) == 10


def test_paths_may_be_relative_to_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic_images.write(tmp_path / "cats", 6, 2, 0)
    (tmp_path / "lists").mkdir()
    for part in ("train", "val"):
        (tmp_path / "cats" / f"{part}.jsonl").rename(tmp_path / "lists" / f"{part}.jsonl")
    monkeypatch.chdir(tmp_path / "cats")
    elsewhere = line_check.of_annotated(tmp_path / "lists" / "train.jsonl", CheckOptions())[0]
    assert elsewhere["valid"] == 0
    assert line_check.of_annotated(tmp_path / "lists" / "train.jsonl", CheckOptions(root="."))[0]["num_faults"] == 0
    run = RunDir(tmp_path / "runs" / "r")
    run.path.mkdir(parents=True)
    asked = ("data.num_train=0", "data.num_test=0", f"data.source={tmp_path / 'lists'}")
    with pytest.raises(UserError, match=r"with files that cannot be used"):
        inputs.load(run, recipe(*asked), ONE)
    assert len(inputs.load(run, recipe(*asked, "data.root=."), ONE).training) == 6


def filmed(path: Path, sound: bool = True) -> Path:
    """25 pictures from dark to light, and a tone of two seconds."""
    import av

    with av.open(str(path), "w") as out:
        pictures, track = out.add_stream("mpeg4", rate=10), out.add_stream("aac", rate=16_000) if sound else None
        pictures.width = pictures.height = 64
        for n in range(25):
            frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 10 * n, np.uint8), format="rgb24")
            out.mux(pictures.encode(frame))
        wave = (0.3 * np.sin(np.arange(32_000) / 5)).astype(np.float32)[None]
        for start in range(0, 32_000 if track else 0, 1024):
            frame = av.AudioFrame.from_ndarray(wave[:, start : start + 1024], format="fltp", layout="mono")
            frame.sample_rate = 16_000
            frame.pts = start
            out.mux(track.encode(frame))
        for stream in filter(None, (pictures, track)):
            out.mux(stream.encode(None))
    return path


def test_a_video_is_its_pictures_and_its_sound(tmp_path: Path) -> None:
    path = filmed(tmp_path / "cat.mp4")
    frames, track = media.video(path)
    assert frames.shape == (16, 64, 64, 3) and track is not None and 1.5 < len(track) / 16_000 < 2.5
    assert frames[0].mean() < 15 and frames[-1].mean() > 225
    values, present = features.one_line(
        AnnotatedExample(1, "?", {}, {"video": path}), features.sight(recipe()), torch.device("cpu")
    )
    assert present.all() and values.abs().sum() > 0


@pytest.mark.parametrize("seed", range(3))
def test_answers_parse_whatever_the_weights(made: Any, seed: int) -> None:
    found = made[1]
    asked = recipe(f"seed={seed}", "evaluation.max_new_tokens=9")
    one = model.build(asked, None)
    nn.init.normal_(one.llm.lm_head.weight, std=2.0)
    grammar = Grammar(found.tokenizer, ethogram.SCHEMA, 9)
    rows = list(range(8))
    prompts = [found.training.prompts[i] + found.training.prompts[0][: i % 3] for i in rows]
    texts = answered(
        one, grammar, asked, prompts, found.training.features[rows], found.training.present[rows], texts=True
    )
    for text in texts:
        assert list(ethogram.SCHEMA.answer_faults(json.loads(text))) == [], text
    assert one.training
    alone = answered(
        one, grammar, asked, prompts[2:3], found.training.features[2:3], found.training.present[2:3], texts=True
    )
    assert alone == texts[2:3], "a row's answer does not depend on who else is asked"


def test_a_value_that_begins_another_can_be_chosen(made: Any) -> None:
    """Values of equal beginnings, and one that is the beginning of another: each can come out, by what the logits say."""
    grammar = copy.copy(Grammar(made[1].tokenizer, ethogram.SCHEMA, 4))
    field = f"{ethogram.MARKERS}.ears"
    grammar.values = {**grammar.values, field: {"a": [1, 2], "ab": [1, 2, 3], "c": [1, 4], "d": [5]}}

    def written(prefers: list[int]) -> list[int]:
        writing, found = grammar._value(field, {}, 9), []
        try:
            item = next(writing)
            while True:
                if isinstance(item, int):
                    found.append(item)
                    item = next(writing)
                else:
                    item = writing.send(next(t for t in prefers if t in item))
        except StopIteration as e:
            return [e.value, *found]  # type: ignore[list-item]

    assert written([5]) == ["d", 5]
    assert written([1, 4]) == ["c", 1, 4]
    assert written([1, 2, 9]) == ["a", 1, 2]
    assert written([1, 2, 3]) == ["ab", 1, 2, 3]


def test_an_alarming_answer_gets_a_high_risk(made: Any) -> None:
    grammar = Grammar(made[1].tokenizer, ethogram.SCHEMA, 4)
    calm, alarming = {}, {f"{ethogram.CLASSIFICATION}.ethogram_group": "agonistic"}
    options = [next(grammar._value(ethogram.RISK, chosen, 0)) for chosen in (calm, alarming)]
    assert [len(o) for o in options if isinstance(o, list)] == [5, 2]


def test_the_aligner_reads_what_it_writes_and_says_what_does_not_fit(tmp_path: Path) -> None:
    dims = {"text": 384, "image": 96, "audio": 64}
    one = aligner.Aligner(dims, 32)
    path = tmp_path / "aligner.pt"
    torch.save(one.state_dict(), path)
    names = {f"projection_heads.{m}_head.{p}" for m in dims for p in ("ln.weight", "ln.bias", "fc.weight")}
    assert {n for n in one.state_dict() if n.startswith(aligner.PREFIX)} == names
    again = aligner.load(str(path), dims, 32)
    x = torch.randn(3, 96)
    assert torch.equal(again("image", x), one("image", x))
    assert torch.allclose(one("image", x).norm(dim=-1), torch.ones(3))
    scaled = aligner.load(str(path), dims, 32, scaled=True)
    assert torch.allclose(scaled("image", x), one("image", x) * torch.tensor(2.66).exp())
    torch.save({"state_dict": one.state_dict()}, path)
    assert torch.equal(aligner.load(str(path), dims, 32)("audio", torch.ones(1, 64)), one("audio", torch.ones(1, 64)))
    with pytest.raises(UserError, match=r"image_head.*\[96\] and not \[97\]"):
        aligner.load(str(path), dims | {"image": 97}, 32)
    torch.save({"other": torch.zeros(1)}, path)
    with pytest.raises(UserError, match="no weights under projection_heads"):
        aligner.load(str(path), dims, 32)
    path.write_bytes(b"?")
    with pytest.raises(UserError, match="cannot be read"):
        aligner.load(str(path), dims, 32)


def test_cnn14_and_its_spectrogram() -> None:
    from transformers.audio_utils import mel_filter_bank, spectrogram, window_function

    asked = Encoders(image="tiny", audio="cnn14", audio_seconds=1.0)
    ear = encoders.audio_encoder(asked)
    samples = np.random.default_rng(0).normal(0, 0.1, 12_000).astype(np.float32)
    mel = ear.prepare(samples)
    assert mel.shape == (1, 101, 64) and ear(mel[None]).shape == (1, 2048)
    bank = mel_filter_bank(257, 64, 50, 8000, 16_000, norm="slaney", mel_scale="slaney")
    padded = np.pad(samples, (0, 4000))
    other = spectrogram(padded, window_function(512, "hann"), 512, 160, power=2.0, mel_filters=bank, log_mel="dB")
    assert np.allclose(mel[0].numpy().T, other, atol=0.05)
    names = set(ear.body.state_dict())
    assert {"bn0.weight", "conv_block6.conv2.weight", "conv_block1.bn1.running_mean", "fc1.bias"} <= names


def test_mobilenet_by_name() -> None:
    pytest.importorskip("timm")
    eye = encoders.image_encoder(Encoders(image="mobilenetv4_conv_small", image_size=64))
    assert eye(eye.prepare(np.zeros((30, 40, 3), np.uint8))[None]).shape == (1, 960)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_learns(made: Any, precision: str) -> None:
    found = made[1]
    asked = recipe(
        f"model.mixed_precision={precision}", *LORA, "model.gradient_checkpointing=true", "optimizer.warmup_steps=0"
    )
    learner = updates.learner(model.build(asked, None), asked, ONE, 12)
    assert learner.scaler.is_enabled() == (precision == "fp16")
    frozen = {str(p.dtype) for p in learner.model.parameters() if not p.requires_grad}
    assert frozen == {"torch.bfloat16" if precision == "bf16" else "torch.float16"}
    rows = list(range(8))
    losses = [
        updates.update(learner, [batch(found, rows)], found.training.num_targets(rows), n)["loss"] for n in range(5)
    ]
    assert losses[-1] < losses[0] - 0.1, losses


def test_the_learning_rates_of_the_parts() -> None:
    asked = recipe("optimizer.learning_rate=1e-4", "optimizer.projector_factor=5", "optimizer.lora_factor=0.5", *LORA)
    for devices, scaled, factor in ((1, True, 1), (4, True, 4), (4, False, 1)):
        o = asked.optimizer.model_copy(update={"scale_with_devices": scaled})
        peaks = {
            (g["part"], g["weight_decay"] > 0): g["peak"] for g in updates.groups(model.build(asked, None), o, devices)
        }
        assert peaks == {
            ("projector", True): pytest.approx(5e-4 * factor),
            ("projector", False): pytest.approx(5e-4 * factor),
            ("lora", True): pytest.approx(0.5e-4 * factor),
        }
    shares = [updates.share(n, 100, 500) for n in range(100)]
    assert shares[0] < shares[9] < 1 == shares[10] and shares[99] < 0.001
    assert updates.share(0, 100, 0) == 1


def trained(folder: Path, asked: MultimodalRecipe, stop_after: int | None = None) -> tuple[RunDir, Any]:
    """Runs, and stops after so many steps."""
    run = RunDir(folder / "run")
    run.path.mkdir(parents=True, exist_ok=True)
    phases = sum(e.get("phase") == "multimodal" for e in read_jsonl(run.events))
    begun = len(list(read_jsonl(run.metrics)))

    def stopping() -> bool:
        trains = sum(e.get("phase") == "multimodal" for e in read_jsonl(run.events)) > phases
        return stop_after is not None and trains and len(list(read_jsonl(run.metrics))) - begun >= stop_after

    return run, course.train(loop.prepare, asked, Emitter(run, 1, True), stopping, ONE)


@pytest.mark.long
def test_a_resume_within_an_epoch_comes_to_the_same_weights(tmp_path: Path) -> None:
    asked = recipe(
        "training.num_epochs=2",
        *LORA,
        "optimizer.warmup_steps=2",
        "evaluation.max_new_tokens=4",
        "checkpoint.every_n_steps=4",
    )
    whole, _ = trained(tmp_path / "a", asked)
    _, first = trained(tmp_path / "b", asked, stop_after=9)
    assert str(first.ending) == "STOPPED" and first.step == 9
    parts, last = trained(tmp_path / "b", asked)
    assert str(last.ending) == "FINISHED" and last.step == 12
    one, other = (torch.load(run.path / "model.pt", weights_only=True) for run in (whole, parts))
    assert set(one) == {"model_state_dict", "config", "run_id"} and one["run_id"] == "run"
    assert all(torch.equal(value, other["model_state_dict"][name]) for name, value in one["model_state_dict"].items())
    assert one["model_state_dict"].keys() == model.build(asked, None).trained().keys()
    losses = [[json.loads(line)["loss"] for line in run.metrics.open()] for run in (whole, parts)]
    assert losses[0] == losses[1] and len(losses[0]) == 12
    kept = sorted(p.name for p in parts.checkpoints.iterdir())
    assert kept == ["step-00000009.pt", "step-00000012.pt"]
    (parts.checkpoints / kept[1]).write_bytes(b"torn")
    found = checkpoints.latest(RunStorage(parts))
    assert found and (found.step, found.state["step"], found.damaged) == (9, 9, (12,))
    asked = asked.model_copy(update={"per_device_batch_size": 4})  # as half the devices would have it
    _, there = trained(tmp_path / "b", asked, stop_after=0)
    assert (
        there.step == 9 and "steps were of 8 lines up to step 9 and are of 4 from there on" in parts.events.read_text()
    )
    assert "steps were" not in whole.events.read_text()


def test_weights_of_another_recipe_are_refused() -> None:
    with pytest.raises(UserError, match=r"the weights of another recipe: .* does not fit"):
        built(*LORA).load_trained(built("model.lora_rank=8").trained())
    with pytest.raises(UserError, match="the weights of another recipe"):
        built(*LORA).load_trained(built().trained())


def test_what_is_drawn_is_told_by_its_seed(tmp_path: Path) -> None:
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        synthetic_images.write(tmp_path / folder, 6, 2, seed)
    names = ("train.jsonl", "val/00000.png", "val/00000.wav")
    same, other = ([(tmp_path / x / n).read_bytes() == (tmp_path / "a" / n).read_bytes() for n in names] for x in "bc")
    assert all(same) and not any(other[1:])
    tokenizer = Tokenizer.bytes()
    file = line_files.read(tmp_path / "a" / "train.jsonl", annotated.reader(ethogram.SCHEMA))
    assert len(file.good) == 6 and file.faults == []
    assert json.loads(tokenizer.decode(annotated.response_ids(tokenizer, file.good[0].answer, ethogram.SCHEMA)[:-1]))[
        "diagnostic"
    ]


def test_an_answer_needs_picture_and_sound() -> None:
    """With either alone, the classification of a made-up cat is open."""
    look = {
        f"{ethogram.MARKERS}.ears": "flattened",
        f"{ethogram.MARKERS}.tail": "puffed",
        f"{ethogram.MARKERS}.posture": "arched",
    }
    calm = {
        f"{ethogram.MARKERS}.ears": "forward",
        f"{ethogram.MARKERS}.tail": "neutral",
        f"{ethogram.MARKERS}.posture": "relaxed",
    }
    group = f"{ethogram.CLASSIFICATION}.ethogram_group"
    voice = f"{ethogram.MARKERS}.vocalization"
    of_look = {synthetic_images.answer({**look, voice: v})[group] for v in ethogram.CHOICES[voice]}
    assert len(of_look) == 3
    assert all(
        len({synthetic_images.answer({**m, voice: v})[ethogram.RISK] for m in (look, calm)}) == 2
        for v in ethogram.CHOICES[voice]
    )
