"""One rule for the data of every kind of run: a resume takes appended rows, refuses all other changes, and holds out what was held out."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import torch

from podwright.data import documents as documents_
from podwright.data import gsm8k, shards, synthetic_images, synthetic_pairs
from podwright.errors import UserError
from podwright.recipe import load, pretrain
from podwright.rundir import Record, RunDir
from podwright.train import data_record
from podwright.train.emit import Emitter
from podwright.train.grpo import standalone, start
from podwright.train.mesh import make_mesh
from podwright.train.multimodal.data import inputs, paired
from podwright.train.multimodal.inference import held_out
from podwright.train.multimodal.processes.world import World
from podwright.train.pretrain import feed

torch.set_num_threads(1)
NUM = 24


class Opened(NamedTuple):
    """What an attempt has read."""

    training: list[str]
    held: list[str]
    rows: Record
    said: list[str]


def grpo(run: RunDir, source: Path) -> Opened:
    recipe: Any = load.load(
        "qwen3-tiny-gsm8k-grpo", [f"data.source={source}", *([] if source.is_dir() else ["data.num_test=4"])]
    )
    before = data_record.written(run)
    parts = gsm8k.parts(recipe.data, recipe.seed, before.read)
    digests = start.rows_of(parts.train), start.rows_of(parts.test)
    rows, said = data_record.check(run, recipe.data.source, before, parts.read, *digests)
    return Opened([e.question for e in parts.train], [e.question for e in parts.test], rows, said)


def documents(run: RunDir, source: Path) -> Opened:
    small = ["data.tokenizer=bytes", "batch_size=2", "sequence_length=32", "evaluation.num_batches=2"]
    mesh = make_mesh(pretrain.PretrainMesh(), jax.devices()[:1])
    recipe: Any = load.load("almodel-tiny", [f"data.source={source}", *small])
    fed = feed.open_(run, recipe, 259, mesh, data_record.written(run))

    def texts(part: Any) -> list[str]:
        pieces = [(n, 0, int(size)) for n, size in enumerate(part.documents.length)]
        return [bytes(int(i) for i in ids if i < 256).decode() for ids in part.documents.read(pieces)]

    return Opened(texts(fed.training), texts(fed.held), fed.rows, fed.notices)


def phase2(run: RunDir, source: Path) -> Opened:
    recipe: Any = load.load("phase2-tiny", [f"data.source={source}", "data.num_train=0", "data.num_test=4"])
    data = inputs.load(run, recipe, World())
    return Opened(
        [e.instruction for e in data.training.examples],
        [e.instruction for e in data.held_out.examples],
        data.rows,
        data.notices,
    )


def phase1(run: RunDir, source: Path) -> Opened:
    recipe: Any = load.load("phase1-tiny", [f"data.source={source}", "data.num_train=0", "data.num_test=4"])
    data = paired.load(run, recipe, World())

    def seen(part: Any) -> list[str]:
        return [str(row.tolist()) for row in part.features["text"]]

    return Opened(seen(data.training), seen(data.held_out), data.rows, data.notices)


KINDS: dict[str, Callable[[RunDir, Path], Opened]] = {
    "grpo": grpo,
    "pretrain": documents,
    "multimodal": phase2,
    "contrastive": phase1,
}


def lines(kind: str, folder: Path) -> Path:
    """A file of rows without a test set of its own."""
    folder.mkdir(parents=True)
    if kind == "grpo":
        rows = [{"question": f"{n} + 1?", "answer": f"#### {n + 1}"} for n in range(NUM)]
    elif kind == "pretrain":
        rows = [{"text": f"the text of document {n} is about {n * 7} birds"} for n in range(NUM)]
    else:
        (synthetic_images if kind == "multimodal" else synthetic_pairs).write(folder, NUM, 2, 0)
        rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
        for n, row in enumerate(rows):
            row["instruction" if kind == "multimodal" else "text"] = f"row {n}"
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def other(line: str, word: str = "another") -> str:
    row = json.loads(line)
    field = next(name for name in ("question", "instruction", "text") if name in row)
    return json.dumps(row | {field: f"{word} {row[field]}"})


CHANGES: dict[str, Callable[[list[str]], list[str]]] = {
    "in front": lambda rows: [other(rows[0]), *rows],
    "in the middle": lambda rows: [*rows[:9], other(rows[0]), *rows[9:]],
    "reordered": lambda rows: rows[::-1],
    "two swapped": lambda rows: [rows[1], rows[0], *rows[2:]],
    "removed": lambda rows: rows[:-1],
    "first removed": lambda rows: rows[1:],
    "changed": lambda rows: [*rows[:5], other(rows[5]), *rows[6:]],
    "last changed": lambda rows: [*rows[:-1], other(rows[-1])],
    "emptied at its end and filled": lambda rows: [*rows[: NUM // 2], *map(other, rows)],
}


def wrote(run: RunDir, opened: Opened, attempt: int) -> None:
    run.path.mkdir(exist_ok=True)
    Emitter(run, attempt, True).event("environment", rows=opened.rows)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Opened]]:
    """A run's first attempt by kind, made once: its folder, and what it has read."""
    known: dict[str, tuple[Path, Opened]] = {}

    def first(kind: str) -> tuple[Path, Opened]:
        if kind not in known:
            folder = tmp_path_factory.mktemp(kind)
            file, run = lines(kind, folder / "data"), RunDir(folder / "run")
            opened = KINDS[kind](run, file)
            assert opened.held and not opened.said and not set(opened.held) & set(opened.training)
            wrote(run, opened, 1)
            known[kind] = folder, opened
        return known[kind]

    return first


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_changed_refuse_a_resume(made: Any, kind: str, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = made(kind)
    file, run = folder / "data/rows.jsonl", RunDir(folder / "run")
    before = file.read_text()
    try:
        file.write_text("\n".join(CHANGES[change](before.splitlines())) + "\n")
        with pytest.raises(UserError, match=r"is not what run run began with: some of its rows have changed") as e:
            KINDS[kind](run, file)
        assert f"data.source={file}" in e.value.what and "bring it back as it was" in e.value.fix
        assert e.value.fix.endswith(run.train_again)
    finally:
        file.write_text(before)


@pytest.mark.parametrize("kind", KINDS)
def test_appended_rows_are_trained_on_and_named_and_what_is_held_out_stays(
    made: Any, kind: str, tmp_path: Path
) -> None:
    folder, first = made(kind)
    for name in ("data", "run"):
        shutil.copytree(folder / name, tmp_path / name)
    file, run = tmp_path / "data/rows.jsonl", RunDir(tmp_path / "run")
    again = KINDS[kind](run, file)
    assert (again.training, again.held, again.said) == (first.training, first.held, [])
    rows = file.read_text().splitlines()
    for attempt in (2, 3):
        more = [other(row, word) for word in ("new", "newer")[: attempt - 1] for row in rows[:7]]
        file.write_text("\n".join([*rows, *more]) + "\n")
        opened = KINDS[kind](run, file)
        assert opened.held == first.held and opened.training[: len(first.training)] == first.training
        assert len(opened.training) == len(first.training) + 7 * (attempt - 1)
        (said,) = opened.said
        assert "has 7 more rows than before" in said and "what is held out stays" in said
        wrote(run, opened, attempt)
    file.write_text("\n".join([*rows, *map(other, rows[:6])]) + "\n")
    with pytest.raises(UserError, match="some of its rows have changed"):
        KINDS[kind](run, file)


@pytest.mark.parametrize("kind", ["pretrain", "contrastive"])
def test_what_is_held_out_cannot_be_appended(made: Any, kind: str, tmp_path: Path) -> None:
    """GRPO leaves out the questions that are held out, and Phase 2 refuses lines that stand twice."""
    folder, first = made(kind)
    for name in ("data", "run"):
        shutil.copytree(folder / name, tmp_path / name)
    file, run = tmp_path / "data/rows.jsonl", RunDir(tmp_path / "run")
    rows = file.read_text()
    file.write_text(rows + rows)
    with pytest.raises(UserError, match=rf"of the rows appended to data.source={file}, {len(first.held)} are held out"):
        KINDS[kind](run, file)


@pytest.mark.parametrize("kind", ["grpo", "multimodal"])
def test_an_evaluation_afterwards_asks_what_was_held_out(made: Any, kind: str, tmp_path: Path) -> None:
    folder, first = made(kind)
    shutil.copytree(folder / "data", tmp_path / "data")
    file = tmp_path / "data/rows.jsonl"
    rows = file.read_text().splitlines()
    file.write_text("\n".join([*rows, *map(other, rows[:9])]) + "\n")

    def asked(*changes: str) -> list[str]:
        run, source = RunDir(folder / "run"), [f"data.source={file}", "data.num_test=4", *changes]
        if kind == "grpo":
            of_grpo: Any = load.load("qwen3-tiny-gsm8k-grpo", source)
            return [e.question for e in standalone._questions(of_grpo, str(file), "", run)]
        recipe: Any = load.load("phase2-tiny", [*source, "data.num_train=0"])
        return [e.instruction for e in held_out._selected(file, str(file), recipe.data, run)[1]]

    assert asked() == first.held
    with pytest.raises(
        UserError, match=r"may have been trained on these rows; bring it back as it was, with data\.num_test"
    ):
        asked("data.num_test=6")
    file.write_text("\n".join([other(rows[0]), *rows]) + "\n")
    with pytest.raises(UserError, match=r"does not hold out what it did for run run, which may have been trained on"):
        asked()


def test_a_val_jsonl_that_was_added_later_moves_nothing(made: Any, tmp_path: Path) -> None:
    folder, first = made("multimodal")
    for name in ("data", "run"):
        shutil.copytree(folder / name, tmp_path / name)
    (tmp_path / "data/rows.jsonl").rename(tmp_path / "data/train.jsonl")
    assert (tmp_path / "data/val.jsonl").is_file()
    opened = phase2(RunDir(tmp_path / "run"), tmp_path / "data")
    assert (opened.training, opened.held, opened.said) == (first.training, first.held, [])


def test_a_picture_that_changed_under_its_name_refuses_a_resume(made: Any, tmp_path: Path) -> None:
    folder, _ = made("multimodal")
    for name in ("data", "run"):
        shutil.copytree(folder / name, tmp_path / name)
    file, run = tmp_path / "data/rows.jsonl", RunDir(tmp_path / "run")
    images = [json.loads(line)["image"] for line in file.read_text().splitlines() if "image" in json.loads(line)]
    shutil.copy(file.parent / images[1], file.parent / images[0])
    with pytest.raises(UserError, match="some of its rows have changed"):
        phase2(run, file)


def test_a_test_set_of_its_own_stays_as_the_run_began_with_it(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    rows = [json.dumps({"question": f"{n} + 1?", "answer": f"#### {n + 1}"}) for n in range(12)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows[:8]))
    (tmp_path / "test.jsonl").write_text("\n".join(rows[8:10]))
    first = grpo(run, tmp_path)
    wrote(run, first, 1)
    (tmp_path / "test.jsonl").write_text("\n".join(rows[8:]))
    assert grpo(run, tmp_path).held == first.held
    (tmp_path / "test.jsonl").write_text("\n".join(rows[9:]))
    with pytest.raises(UserError, match="some of its rows have changed"):
        grpo(run, tmp_path)


def tokens(folder: Path, ids: Any) -> documents_.Documents:
    folder.mkdir(exist_ok=True)
    np.save(folder / "a.npy", ids)
    documents_._mark.cache_clear()
    return documents_.load(str(folder), eos_id=9)


def test_every_token_of_small_files_counts_and_of_large_ones_some_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = np.random.default_rng(0).integers(10, 255, 200_000).astype(np.uint16)
    ids[99::100] = 9

    def digest(changed: int | None = None) -> str:
        here = ids.copy()
        if changed is not None:
            here[changed] += 1
        return tokens(tmp_path / "npy", here).digest(2000)

    same = digest()
    assert digest() == same and all(digest(place) != same for place in (0, 1, 54_321, len(ids) - 2))
    monkeypatch.setattr(documents_, "_READ", 1000)
    monkeypatch.setattr(documents_, "_MARKED", 1000)
    large = digest()
    assert large != same and digest() == large and all(digest(place) != large for place in (0, len(ids) - 2))


def test_documents_behind_those_of_a_run_change_no_digest_of_these(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same file while it is small, and in a file of its own always; a file's name is nothing."""
    ids = np.random.default_rng(0).integers(10, 255, 4000).astype(np.uint16)
    ids[99::100] = 9
    before = tokens(tmp_path / "a", ids)
    assert tokens(tmp_path / "b", np.concatenate([ids, ids])).digest(40) == before.digest(40)
    for most in (1 << 28, 1000):
        monkeypatch.setattr(documents_, "_READ", most)
        before = tokens(tmp_path / "a", ids)
        (tmp_path / "c").mkdir(exist_ok=True)
        np.save(tmp_path / "c/z.npy", ids[::-1])
        joined = tokens(tmp_path / "c", ids)
        assert len(joined) > 40 and joined.digest(40) == before.digest(40) != joined.digest(41)


def test_checksums_stand_for_the_tokens_of_large_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_, "_READ", 10)
    text, digests = tmp_path / "text.jsonl", []
    for word in ("some", "some", "none"):
        out = tmp_path / f"tokens-{len(digests)}"
        text.write_text("".join(json.dumps({"text": f"{word} {n}"}) + "\n" for n in range(9)))
        shards.tokenize([str(text)], "bytes", out, 1000)
        digests.append(documents_.load(str(out)).digest(9))
    assert digests[0] == digests[1] != digests[2]
