"""Phase 1: the loss against one written plainly, two processes against one, a resume against none; what is left out or refused."""

import datetime
import itertools
import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist
from torch.nn import functional as F

from podwright.data import synthetic_pairs
from podwright.errors import UserError
from podwright.recipe import llm
from podwright.recipe.contrastive import ContrastiveRecipe, TextEncoder
from podwright.recipe.load import load
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.rundir import Ending, RunDir, read_jsonl, write_json
from podwright.train.emit import Emitter, TrainingOutcome
from podwright.train.multimodal import contrastive, course
from podwright.train.multimodal.data import features, paired
from podwright.train.multimodal.data.paired import PairedLines
from podwright.train.multimodal.inference import retrieval
from podwright.train.multimodal.networks.aligner import Aligner, info_nce
from podwright.train.multimodal.networks.text_encoder import text_encoder
from podwright.train.multimodal.processes.world import World
from podwright.train.verbs import VERBS
from tests.unit.train.test_multimodal import filmed

torch.set_num_threads(1)
SMALL = (
    "data.num_train=60",
    "data.num_test=10",
    "per_device_batch_size=16",
    "training.num_epochs=2",
    "evaluation.every_n_steps=0",
)
REAL = {"text": 384, "image": 960, "audio": 2048}


def recipe(*overrides: str) -> ContrastiveRecipe:
    found = load("phase1-tiny", [*SMALL, "checkpoint.every_n_steps=0", *overrides])
    assert isinstance(found, ContrastiveRecipe)
    return found


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "lines"
    synthetic_pairs.write(folder, 60, 10, 0)
    return folder


def trained(
    source: Path, name: str, *overrides: str, stop_after: int | None = None, world: World | None = None
) -> tuple[RunDir, TrainingOutcome]:
    """Runs beside the lines, so that what the encoders gave is found again; stops after so many steps."""
    run = RunDir(source.parent / name)
    run.path.mkdir(exist_ok=True)
    world = world or World()
    phases = sum(e.get("phase") == "contrastive" for e in read_jsonl(run.events))
    begun = len(list(read_jsonl(run.metrics)))

    def stopping() -> bool:
        trains = sum(e.get("phase") == "contrastive" for e in read_jsonl(run.events)) > phases
        return stop_after is not None and trains and len(list(read_jsonl(run.metrics))) - begun >= stop_after

    asked = recipe(f"data.source={source}", "data.num_train=0", "data.num_test=0", *overrides)
    return run, course.train(contrastive.prepare, asked, Emitter(run, 1, world.rank == 0), stopping, world)


@pytest.fixture(scope="module")
def whole(lines: Path) -> RunDir:
    run, end = trained(lines, "whole")
    assert (end.ending, end.step) == (Ending.FINISHED, 8)
    return run


def share(model: Aligner, lines: PairedLines) -> torch.Tensor:
    return contrastive.share_of_loss(model, contrastive.vectors(model, lines), lines, World())


def weights(run: RunDir) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(run.aligner, weights_only=True)
    return found


def notices(run: RunDir) -> str:
    return " ".join(e["message"] for e in read_jsonl(run.events) if e["event"] == "notice")


def test_trained_parameters_at_the_real_sizes() -> None:
    with torch.device("meta"):
        heads = Aligner(REAL, 512)
    for learnable, scales in (("true", 3), ("false", 0)):
        groups = contrastive._groups(heads, recipe(f"aligner.learnable_scales={learnable}"), list(REAL))
        assert sum(p.numel() for group in groups for p in group["params"]) == 1_743_488 + scales
    assert {group["weight_decay"] for group in groups} == {0.01, 0.0}
    shipped = load("phase1-aligner")
    assert isinstance(shipped, ContrastiveRecipe) and shipped.aligner.dim == 512
    assert {
        "text": llm.TEXT_DIM,
        "image": llm.IMAGE_DIMS[shipped.encoders.image],
        "audio": llm.AUDIO_DIMS[shipped.encoders.audio],
    } == REAL


def plain(
    units: dict[str, torch.Tensor], scales: dict[str, torch.Tensor], present: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Line by line, in float64."""
    found = []
    for one, other in itertools.combinations(units, 2):
        rows = [i for i in range(len(present[one])) if present[one][i] and present[other][i]]
        if len(rows) < 2:
            continue
        scale = (scales[one] + scales[other]).double() / 2
        both = []
        for query, target in ((one, other), (other, one)):
            for place, i in enumerate(rows):
                logits = torch.stack(
                    [scale * torch.dot(units[query][i].double(), units[target][j].double()) for j in rows]
                )
                both.append(F.cross_entropy(logits[None], torch.tensor([place])))
        found.append(torch.stack(both).mean())
    return torch.stack(found).mean()


@pytest.fixture
def batch() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Seven lines: five have text and image, three text and audio, one image and audio."""
    torch.manual_seed(0)
    units = {m: F.normalize(torch.randn(7, 8), dim=-1).requires_grad_() for m in REAL}
    scales = {m: torch.tensor(s).exp().requires_grad_() for m, s in (("text", 1.0), ("image", 2.66), ("audio", 2.0))}
    masks = {"text": [1, 1, 1, 1, 1, 1, 1], "image": [1, 1, 1, 1, 1, 0, 0], "audio": [0, 0, 0, 0, 1, 1, 1]}
    return units, scales, {m: torch.tensor(x, dtype=torch.bool) for m, x in masks.items()}


def test_the_loss_is_the_plain_one_whatever_is_missing(batch: Any) -> None:
    units, scales, present = batch
    wanted = plain(units, scales, present)
    gradients = torch.autograd.grad(wanted, (*units.values(), *scales.values()))
    loss = info_nce(units, scales, present)
    assert torch.allclose(loss.double(), wanted, rtol=1e-6)
    found = torch.autograd.grad(loss, (*units.values(), *scales.values()))
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, gradients, strict=True))
    everything = {m: torch.ones(7, dtype=torch.bool) for m in REAL}
    assert torch.allclose(info_nce(units, scales, everything).double(), plain(units, scales, everything), rtol=1e-6)
    shares = [info_nce(units, scales, present, torch.arange(7) % 3 == n) for n in range(3)]
    assert torch.allclose(sum(shares), loss, rtol=1e-6)  # type: ignore[arg-type]


def test_the_loss_is_the_same_in_both_directions(batch: Any) -> None:
    """The original takes the same matrix, not its transpose, for the way back wherever a modality is missing."""
    units, scales, present = batch
    one = info_nce({m: units[m] for m in ("text", "image")}, scales, present)
    other = info_nce({m: units[m] for m in ("image", "text")}, scales, present)
    assert torch.allclose(one, other, rtol=1e-6)
    rows = present["text"] & present["image"]
    logits = (scales["text"] + scales["image"]) / 2 * units["text"][rows] @ units["image"][rows].T
    right = torch.arange(int(rows.sum()))
    there, back = F.cross_entropy(logits, right), F.cross_entropy(logits.T, right)
    assert torch.allclose(one, (there + back) / 2, rtol=1e-6)
    assert (there - back).abs() > 0.01, "so that the original's mean of `there` and `there` would be seen"


@pytest.mark.parametrize("audio", [[0] * 4, [1, 0, 0, 0]])
def test_what_cannot_be_told_apart_adds_nothing(audio: list[int]) -> None:
    """A pair of modalities in fewer than two lines; and a batch in which no pair has more."""
    model = Aligner({"text": 6, "image": 5, "audio": 4}, 8)
    present = {"text": [1, 1, 1, 1], "image": [1, 1, 0, 0], "audio": audio}
    there = {m: torch.tensor(x, dtype=torch.bool) for m, x in present.items()}
    values = {m: torch.randn(4, d) * there[m][:, None] for m, d in (("text", 6), ("image", 5), ("audio", 4))}
    two = PairedLines({m: values[m] for m in ("text", "image")}, {m: there[m] for m in ("text", "image")})
    loss = share(model, PairedLines(values, there))
    assert torch.equal(loss, share(model, two)) and loss > 0
    loss.backward()
    none = PairedLines(
        values,
        there | {"text": torch.tensor([True, False, False, True]), "image": torch.tensor([True, False, False, False])},
    )
    nothing = share(model, none)
    assert float(nothing.detach()) == 0.0
    nothing.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    assert model.projection_heads["audio_head"].fc.weight.grad.abs().sum() == 0  # type: ignore[union-attr]


@pytest.mark.parametrize(("count", "ends"), [(8, [4, 8]), (9, [4, 9]), (10, [4, 8, 10]), (3, [3]), (1, [1])])
def test_no_line_is_tested_alone(count: int, ends: list[int]) -> None:
    found = contrastive.parts(count, 4)
    assert [p.stop for p in found] == ends and [p.start for p in found] == [0, *ends[:-1]]


def test_retrieval_counts_equal_contents_once_and_chance_as_it_is() -> None:
    """Texts 0 and 1 are equal, so both pictures are right answers to either, and pictures have three texts to choose from."""
    text = torch.tensor([[1.0, 0], [1, 0], [0, 1], [-1, 0]])
    image = F.normalize(torch.tensor([[1.0, 0.1], [0.9, 0.5], [-1, 0.1], [0.1, 1]]), dim=-1)
    lines = PairedLines({"text": text, "image": image}, {m: torch.ones(4, dtype=torch.bool) for m in ("text", "image")})
    found = retrieval.retrieval({"text": text, "image": image}, lines)
    there, back = found["directions"]
    assert (there["query"], there["num"], there["answers"]) == ("text", 4, 4) and (back["query"], back["answers"]) == (
        "image",
        3,
    )
    assert there["recall_at_1"] == 0.5 and back["recall_at_1"] == 0.5, "pictures 2 and 3 are mixed up"
    assert there["recall_at_5"] == back["recall_at_5"] == 1.0
    assert there["chance_at_1"] == pytest.approx((2 / 4 + 2 / 4 + 1 / 4 + 1 / 4) / 4) and back[
        "chance_at_1"
    ] == pytest.approx(1 / 3)
    assert found["recall_at_1"] == 0.5
    drawn = [any(i in (2, 7) for i in rows) for rows in itertools.combinations(range(9), 5)]
    assert retrieval._chance(9, 2, 5) == pytest.approx(sum(drawn) / len(drawn))
    one = PairedLines(
        {"text": text[:1], "image": image[:1]}, {m: torch.ones(1, dtype=torch.bool) for m in ("text", "image")}
    )
    assert retrieval.retrieval({"text": text[:1], "image": image[:1]}, one)["recall_at_1"] is None


def test_an_aligner_learns_and_phase_2_takes_it(whole: RunDir) -> None:
    tests = [e for e in read_jsonl(whole.events) if e["event"] == "evaluation"]
    assert [t["when"] for t in tests] == ["before", "after"] and tests[1]["recall_at_1"] > 2 * tests[1]["chance_at_1"]
    assert tests[1]["loss"] < tests[0]["loss"] and len(tests[1]["directions"]) == 6
    parts = ("ln.weight", "ln.bias", "fc.weight")
    names = {f"projection_heads.{m}_head.{p}" for m in REAL for p in parts} | {
        f"postprocessors.{m}_scaling.logit_scale" for m in REAL
    }
    assert set(weights(whole)) == names
    asked = load("phase2-tiny", [f"aligner.source={whole.aligner}"])
    assert isinstance(asked, MultimodalRecipe)
    seen = features.sight(asked)
    assert seen.aligner is not None and all(
        torch.equal(x, weights(whole)[n]) for n, x in seen.aligner.state_dict().items()
    )
    random = load("phase2-tiny")
    assert isinstance(random, MultimodalRecipe) and features.sight(random).fingerprint != seen.fingerprint


def test_a_resume_within_an_epoch_comes_to_the_same_weights(lines: Path, whole: RunDir) -> None:
    _, first = trained(lines, "parts", stop_after=6)
    assert (first.ending, first.step) == (Ending.STOPPED, 6)
    run, last = trained(lines, "parts")
    assert (last.ending, last.step) == (Ending.FINISHED, 8)
    one, other = weights(whole), weights(run)
    assert all(torch.equal(one[name], other[name]) for name in one)
    losses = [[json.loads(line)["loss"] for line in r.metrics.open()] for r in (whole, run)]
    assert losses[0] == losses[1] and len(losses[0]) == 8


def one_of_two(rank: int, source: Path, meeting: Path) -> None:
    patience = datetime.timedelta(seconds=100)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=patience)
    trained(source, "two", "per_device_batch_size=8", world=World(rank, 2))
    dist.destroy_process_group()


def test_two_processes_are_one(lines: Path, whole: RunDir, tmp_path: Path) -> None:
    """Each line is told from those of both, by gradients that cross."""
    second = multiprocessing.get_context("spawn").Process(target=one_of_two, args=(1, lines, tmp_path / "meeting"))
    second.start()
    one_of_two(0, lines, tmp_path / "meeting")
    second.join(60)
    assert second.exitcode == 0
    two = RunDir(lines.parent / "two")
    for figure in ("loss", "grad_norm", "samples"):
        one, other = ([json.loads(line)[figure] for line in r.metrics.open()] for r in (whole, two))
        assert one == pytest.approx(other, rel=1e-4), figure
    one, other = weights(whole), weights(two)
    assert all(torch.allclose(one[name], other[name], atol=1e-4) for name in one)


def test_it_goes_on_from_an_aligner_and_carries_along_what_the_data_lacks(lines: Path, whole: RunDir) -> None:
    pictures = lines / "pictures.jsonl"
    told_of = [json.loads(line) for line in (lines / "train.jsonl").open()]
    pictures.write_text("".join(json.dumps({k: v for k, v in line.items() if k != "audio"}) + "\n" for line in told_of))
    few = ("training.max_steps=1", "optimizer.learning_rate=1e-9", "training.num_epochs=1", f"data.source={pictures}")
    run, end = trained(lines, "on", f"aligner.source={whole.aligner}", *few)
    assert end.ending == Ending.FINISHED
    one, other = weights(whole), weights(run)
    assert one.keys() == other.keys() and all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)
    assert all(torch.equal(one[n], other[n]) == ("audio" in n) for n in one if n.endswith("fc.weight"))
    assert "lines were left out, which have a single modality" in notices(run)
    alone, _ = trained(lines, "alone", *few)
    assert {n.split(".")[1].split("_")[0] for n in weights(alone)} == {"text", "image"}, (
        "a head that saw nothing is not written"
    )
    again, _ = trained(lines, "again", f"aligner.source={alone.aligner}", "training.max_steps=1")
    assert f"aligner.source={alone.aligner} has no head for audio" in notices(again) and len(weights(again)) == 12
    with pytest.raises(UserError, match=r"has no projection_heads\.audio_head"):
        features.sight(load("phase2-tiny", [f"aligner.source={alone.aligner}"]))  # type: ignore[arg-type]
    silent = weights(whole)
    torch.save({n: x for n, x in silent.items() if "text" not in n}, lines / "no-text.pt")
    assert features.sight(load("phase2-tiny", [f"aligner.source={lines / 'no-text.pt'}"]))  # type: ignore[arg-type]


def test_lines_that_make_no_pair_are_counted_and_files_that_do_not_decode_stop_it(lines: Path) -> None:
    (lines / "broken.png").write_bytes(b"no picture")
    path = lines / "mixed.jsonl"
    good = [
        {"text": f"cat {n}", "image": f"train/{n:05}.png"} for n in range(40) if (lines / f"train/{n:05}.png").exists()
    ]
    bad = [
        {"text": "alone"},
        {"image": "val/00000.png", "audio": None, "text": ""},
        {"text": "broken", "image": "broken.png"},
    ]
    path.write_text("".join(json.dumps(x) + "\n" for x in [*bad, *good]))
    with pytest.raises(
        UserError, match=r"mixed.jsonl has 1 line with files .* such as line 3: broken.png: it cannot be"
    ) as e:
        paired.load(RunDir(lines.parent), recipe(f"data.source={path}", "data.num_train=0", "data.num_test=4"), World())
    assert e.value.fix == f"type podwright data check {path} --fix"
    path.write_text("".join(json.dumps(x) + "\n" for x in [*bad[:2], *good]))
    found = paired.load(
        RunDir(lines.parent), recipe(f"data.source={path}", "data.num_train=0", "data.num_test=4"), World()
    )
    assert len(found.training) == len(good) - 4 and len(found.held_out) == 4 and found.num_alone == 2
    assert list(found.dims) == ["text", "image"]
    (folder := lines / "held-out").mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps(x | {"image": f"../{x['image']}"}) + "\n" for x in good))
    (folder / "val.jsonl").write_text('{"text": "alone"}\n')
    with pytest.raises(UserError, match="has too few lines with the same two modalities"):
        paired.load(
            RunDir(lines.parent), recipe(f"data.source={folder}", "data.num_train=0", "data.num_test=0"), World()
        )
    path.write_text("".join(json.dumps(x) + "\n" for x in (bad[:2] * 20)))
    with pytest.raises(UserError, match="has too few lines with the same two modalities"):
        paired.load(RunDir(lines.parent), recipe(f"data.source={path}", "data.num_train=0", "data.num_test=4"), World())


def test_a_video_pairs_with_itself_if_it_has_sound(lines: Path) -> None:
    filmed(lines / "cat.mp4")
    filmed(lines / "silent.mp4", sound=False)
    path = lines / "videos.jsonl"
    named = [
        {"video": "cat.mp4"},
        {"video": "silent.mp4"},
        {"video": "silent.mp4", "text": "a cat"},
        {"video": "cat.mp4", "text": "a cat"},
    ]
    path.write_text("".join(json.dumps(x) + "\n" for x in [*named, *named]))
    found = paired.load(
        RunDir(lines.parent), recipe(f"data.source={path}", "data.num_train=0", "data.num_test=4"), World()
    )
    assert {m: x.tolist() for m, x in found.training.present.items()} == {
        "text": [False, True, True],
        "image": [True, True, True],
        "audio": [True, False, True],
    }
    assert found.num_alone == 2


@pytest.mark.parametrize(
    ("override", "message", "fix"),
    [
        (
            "per_device_batch_size=64",
            "a step takes 64 lines, there are 60 to train on",
            "type per_device_batch_size=60",
        ),
        (
            "per_device_batch_size=1",
            "contrastive loss needs at least 2 samples per step",
            "type per_device_batch_size=32",
        ),
        (
            "text_encoder={name: minilm, source: nowhere}",
            "text_encoder.source=nowhere is not there",
            "type text_encoder.source=random",
        ),
        ("aligner.source=nowhere.pt", "aligner.source=nowhere.pt is not there", "give an aligner.pt"),
    ],
)
def test_what_cannot_run_is_refused(lines: Path, override: str, message: str, fix: str) -> None:
    with pytest.raises(UserError, match=message) as e:
        trained(lines, "refused", override)
    assert fix in e.value.fix


def test_an_aligner_is_not_asked_for_answers(whole: RunDir) -> None:
    write_json(whole.recipe, recipe().model_dump(mode="json"))
    run = str(whole.path)
    for ask in (
        lambda: VERBS["eval"]([json.dumps({"path": run, "data": "", "limit": 0})]),
        lambda: VERBS["export"]([json.dumps({"path": run, "out": "out", "onnx": False})]),
        lambda: VERBS["predict"]([json.dumps({"path": run, "files": {}, "text": "?", "out": ""})]),
    ):
        with pytest.raises(UserError, match="trained an aligner, which cannot answer without a language model") as e:
            ask()
        assert e.value.fix == f"train on it: podwright run phase2-tiny aligner.source={whole.aligner}"


def test_a_loss_that_is_no_number_ends_the_run(lines: Path, whole: RunDir) -> None:
    found = weights(whole)
    found["projection_heads.text_head.fc.weight"][0] = 3e38
    torch.save(found, lines / "nan.pt")
    run, end = trained(lines, "nan", f"aligner.source={lines / 'nan.pt'}")
    assert (end.ending, end.step) == (Ending.NOT_FINITE, 0) and "start from other weights" in end.fix
    assert not run.checkpoints.exists() and not run.aligner.exists()


def test_texts_are_read_by_a_bert_of_six_layers(tmp_path: Path) -> None:
    ear = text_encoder(TextEncoder(name="minilm", source="random"))
    assert (len(ear.body.body.encoder.layer), ear.dim, ear.body.body.config.num_attention_heads) == (6, 384, 12)
    long, short = ear.prepare("a cat purrs and purrs and purrs"), ear.prepare("a cat")
    assert long.shape == (2, 64) and int(short[1].sum()) == 5
    together, alone = ear(torch.stack([long, short])), ear(short[None])
    assert torch.allclose(together[1], alone[0], atol=1e-5), "padding has no part in the mean"
    hidden = ear.body.body(torch.tensor([list(b"a cat")])).last_hidden_state
    assert torch.allclose(alone[0], hidden[0].mean(0), atol=1e-5)
    first = text_encoder(TextEncoder(name="minilm", source="random", pooling="cls"))
    assert torch.allclose(first(short[None])[0], hidden[0, 0], atol=1e-5)
    tiny = text_encoder(TextEncoder(name="tiny"))
    assert (
        torch.equal(tiny(tiny.prepare("A cat!")[None]), tiny(tiny.prepare("cat a")[None]))
        and tiny(tiny.prepare("...")[None]).abs().sum() == 0
    )


def test_texts_are_read_by_the_model_of_a_directory(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "purr", "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokenizer = BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"))
    tokenizer.save_pretrained(tmp_path)
    model = BertModel(
        BertConfig(vocab_size=9, hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    ).eval()
    model.save_pretrained(tmp_path)
    ear = text_encoder(TextEncoder(source=str(tmp_path), max_tokens=5))
    ids = ear.prepare("A cat purrs")
    assert ids[0].tolist() == [2, 5, 6, 7, 3] and ear.dim == 24, "cut to five, the end kept"
    with torch.no_grad():
        wanted = model(ids[:1]).last_hidden_state.mean(1)
    assert torch.allclose(ear(ids[None]), wanted, atol=1e-5) and not any(p.requires_grad for p in ear.parameters())
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"is no text encoder with its tokenizer"):
        text_encoder(TextEncoder(source=str(tmp_path)))
