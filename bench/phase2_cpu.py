"""One multimodal training step on this CPU: ours, the plain one, and transformers' Trainer with peft, in turn.

    python bench/phase2_cpu.py [--out bench/results/FILE.json] [--rounds 2] [--steps 3]

The same lines (drawn cats, after the system prompt of phase2-qwen2.5-0.5b-cluster: 171 tokens of prompt, 87 of response), the same
model (Qwen2.5-0.5B's width and vocabulary, two layers, random), adapters of rank 16, float32, 4 lines a step. The plain step does what
the original does: it decodes and encodes its files, pads to max_text_length and makes logits of every position. Trainer gets the
features made beforehand and pads to the longest line of its batch. Each runs in a process of its own, `--rounds` times; samples/s are
of the median step after the first. Encoders are the tiny ones: the original's cost more.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from stamp import keep, stamp

HERE = Path(__file__).resolve().parent
BATCH, LINES, MAX_LENGTH = 4, 64, 512


class Size(NamedTuple):
    """What is trained, and on which device."""

    batch: int = BATCH
    lines: int = LINES
    layers: int = 2
    device: str = "cpu"
    precision: str = "no"
    vocabulary: int = 151936
    compile: bool = False


def prepared(folder: Path, size: Size):
    """Recipe, lines and model, the same in every process."""
    import torch

    from podwright.recipe import llm, load
    from podwright.recipe.multimodal import MultimodalRecipe
    from podwright.rundir import RunDir
    from podwright.train.multimodal.data import inputs
    from podwright.train.multimodal.networks import model
    from podwright.train.multimodal.processes import world

    torch.set_num_threads(os.cpu_count() or 1)
    cluster = load.require(load.load("phase2-qwen2.5-0.5b-cluster"), MultimodalRecipe)
    settings = (
        f"data.num_train={size.lines}",
        "data.num_test=2",
        f"data.max_text_length={MAX_LENGTH}",
        f"data.system_prompt={cluster.data.system_prompt!r}",
        f"per_device_batch_size={size.batch}",
        "model.lora_rank=16",
        f"model.mixed_precision={size.precision}",
        f"training.compile={str(size.compile).lower()}",
        "projector.hidden_size=2048",
        "aligner.dim=512",
    )
    recipe = load.require(load.load("phase2-tiny", settings), MultimodalRecipe)
    around = world.World(device=torch.device(size.device))
    data = inputs.load(RunDir(folder), recipe, around)
    llm.MODELS["bench"] = llm.LlmDims(896, 4864, size.layers, 14, 2, size.vocabulary)
    built = model.build(recipe.model_copy(update={"model": recipe.model.model_copy(update={"name": "bench"})}), None)
    return recipe, data, built.to(around.device), around


def timed(step: Callable[[], object], size: Size) -> float:
    """Seconds of a step, to the end of what it started on a GPU."""
    import torch

    begin = time.perf_counter()
    step()
    if size.device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def ours(folder: Path, steps: int, size: Size, ready: Any = None) -> list[float]:
    """`ready`: of `prepared`, where batches of several sizes are made of the same lines."""
    from podwright.train.multimodal import updates
    from podwright.train.multimodal.data import batches

    recipe, data, built, around = ready or prepared(folder, size)
    recipe = recipe.model_copy(update={"per_device_batch_size": size.batch})
    learner = updates.learner(built, recipe, around, 100)
    order = batches.Order(data.training.lengths, size.batch, 1, 0, 1, 0)

    def step(number: int) -> None:
        rows, own = order.step(number)
        micro = [batches.collated(data.training, part, data.tokenizer.pad_id).to(around.device) for part in own]
        updates.update(learner, micro, data.training.num_targets(rows), number)

    return [timed(functools.partial(step, number), size) for number in range(steps + 1)][1:]


def plain(folder: Path, steps: int, size: Size) -> list[float]:
    """On a CPU alone."""
    import torch

    from podwright.train.multimodal.data import features

    recipe, data, built, _ = prepared(folder, size)
    sight = features.sight(recipe)
    lines = data.training
    optimizer = torch.optim.AdamW(built.trained().values(), 1e-4)
    built.train()
    seconds = []
    for number in range(steps + 1):
        begin = time.perf_counter()
        rows = range(number * size.batch, (number + 1) * size.batch)
        seen = [features.one_line(lines.examples[i], sight, torch.device("cpu")) for i in rows]
        values, present = (torch.cat(part) for part in zip(*seen, strict=True))
        tokens = torch.full((size.batch, MAX_LENGTH), data.tokenizer.pad_id)
        labels = torch.full((size.batch, 8 + MAX_LENGTH), -100)
        mask = torch.zeros((size.batch, 8 + MAX_LENGTH), dtype=torch.long)
        for n, i in enumerate(rows):
            prompt, response = lines.prompts[i], lines.responses[i]
            tokens[n, : len(prompt) + len(response)] = torch.tensor(prompt + response)
            labels[n, 8 + len(prompt) : 8 + len(prompt) + len(response)] = torch.tensor(response)
            mask[n, : 8 + len(prompt) + len(response)] = 1
        embedded = torch.cat([built.projector(values, present), built.embed(tokens)], 1)
        built.llm(inputs_embeds=embedded, attention_mask=mask, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(built.trained().values(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - begin)
    return seconds[1:]


def trainer(folder: Path, steps: int, size: Size, ready: Any = None) -> list[float]:
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    _, data, built, _ = ready or prepared(folder, size)
    lines = data.training

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = built

        def forward(self, features, present, input_ids, attention_mask, labels):
            soft = built.projector(features, present)
            embedded = torch.cat([soft, built.embed(input_ids)], 1)
            return {"loss": built.llm(inputs_embeds=embedded, attention_mask=attention_mask, labels=labels).loss}

    def collate(rows):
        width = max(len(lines.prompts[i]) + len(lines.responses[i]) for i in rows)
        tokens = torch.full((len(rows), width), data.tokenizer.pad_id)
        labels = torch.full((len(rows), 8 + width), -100)
        mask = torch.zeros((len(rows), 8 + width), dtype=torch.long)
        for n, i in enumerate(rows):
            prompt, response = lines.prompts[i], lines.responses[i]
            tokens[n, : len(prompt) + len(response)] = torch.tensor(prompt + response)
            labels[n, 8 + len(prompt) : 8 + len(prompt) + len(response)] = torch.tensor(response)
            mask[n, : 8 + len(prompt) + len(response)] = 1
        at = torch.tensor(rows)
        return {
            "features": lines.features[at].cpu(),
            "present": lines.present[at].cpu(),
            "input_ids": tokens,
            "attention_mask": mask,
            "labels": labels,
        }

    times: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_, **__):
            if size.device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter())

    arguments = TrainingArguments(
        output_dir=str(folder / "hf"),
        per_device_train_batch_size=size.batch,
        max_steps=steps + 1,
        bf16=size.precision == "bf16",
        report_to=[],
        save_strategy="no",
        remove_unused_columns=False,
        use_cpu=size.device == "cpu",
        disable_tqdm=True,
    )
    Trainer(Wrapped(), arguments, collate, train_dataset=list(range(len(lines))), callbacks=[Clock()]).train()
    return [b - a for a, b in itertools.pairwise(times)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    sides = {"ours": ours, "plain": plain, "trainer": trainer}
    if args.one:
        print(json.dumps(sides[args.one[0]](Path(args.one[1]), args.steps, Size())))
        return 0
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            for name in sides:
                argv = [sys.executable, __file__, "--steps", str(args.steps), "--one", name, f"{folder}/run"]
                Path(f"{folder}/run").mkdir(exist_ok=True)
                done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, cwd=HERE.parent)
                seconds[name] += json.loads(done.stdout.strip().splitlines()[-1])
                print(name, [round(s, 2) for s in seconds[name]], file=sys.stderr)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    result = {
        **stamp(__file__),
        "batch": BATCH,
        "samples_per_s": {name: BATCH / value for name, value in medians.items()},
        "times_faster": {name: medians[name] / medians["ours"] for name in ("plain", "trainer")},
        "seconds": seconds,
    }
    return keep(result, args.out)


if __name__ == "__main__":
    sys.exit(main())
