"""Predicted against measured seconds of GRPO programs on the CPU of this machine: how far a plan for `cpu-N` is off.

    python bench/plan_cpu.py [--with "nice -n -5"] [--rows NAME...] [--rounds 2] [--out bench/results/plan_cpu-DATE.json]

The prices are calibrated first, as a plan does it (plan/compiled/calibrate.py), on models that are not among the rows. Then every row's
programs are compiled, predicted from the compiled text and timed: no completion ends early, all tokens are drawn. A program's time is
the median of a round of runs, in the least disturbed of all rounds. `--with` goes before the commands of the processes that time.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import tempfile
from pathlib import Path

from stamp import stamp

from podwright import slices
from podwright.plan.compiled import calibrate, environment, hlo
from podwright.recipe import load
from podwright.recipe.models import MODELS, Qwen3Dims
from podwright.shell import Shell

HERE = Path(__file__).resolve().parent
DEMO, GSM8K = "qwen3-tiny-arithmetic-grpo", "qwen3-tiny-gsm8k-grpo"
ALL = ("update", "score", "rollout")
DIMS = MODELS | {
    "23m": Qwen3Dims(512, 1536, 6, 8, 4, 64, 8192, True),
    "110m": Qwen3Dims(768, 2304, 12, 12, 4, 64, 32000, True),
}
SHORT = ("rollout.max_prompt_length=64", "rollout.total_generation_steps=32", "grpo.num_generations=4")


@dataclasses.dataclass(frozen=True)
class Row:
    use: str
    """'chose' where its times were looked at while the counts were chosen; 'unseen' where they were not"""
    recipe: str
    dims: str
    overrides: tuple[str, ...] = ()
    devices: int = 1
    programs: tuple[str, ...] = ALL


ROWS = {
    "demo as shipped": Row("chose", DEMO, "qwen3-tiny"),
    "demo, 4 x 4": Row("chose", DEMO, "qwen3-tiny", ("batch_size=4", "grpo.num_generations=4")),
    "demo, 32 x 8, 64 + 64": Row(
        "chose",
        DEMO,
        "qwen3-tiny",
        ("batch_size=32", "rollout.max_prompt_length=64", "rollout.total_generation_steps=64"),
    ),
    "gsm8k as shipped": Row("chose", GSM8K, "qwen3-tiny"),
    "gsm8k, 2 x 4": Row("chose", GSM8K, "qwen3-tiny", ("batch_size=2", "grpo.num_generations=4")),
    "23 M, 4 x 4, 64 + 32": Row("chose", DEMO, "23m", ("batch_size=4", *SHORT)),
    "110 M, 2 x 4, 64 + 32": Row("chose", DEMO, "110m", ("batch_size=2", *SHORT)),
    "0.6 B, 1 x 2, 32 + 16": Row(
        "chose",
        DEMO,
        "qwen3-0.6b",
        ("batch_size=1", "grpo.num_generations=2", "rollout.max_prompt_length=32", "rollout.total_generation_steps=16"),
        programs=("score", "rollout"),
    ),
    "micro, 32 x 4, 32 + 48": Row(
        "unseen",
        DEMO,
        "qwen3-micro",
        (
            "batch_size=32",
            "grpo.num_generations=4",
            "rollout.max_prompt_length=32",
            "rollout.total_generation_steps=48",
        ),
    ),
    "gsm8k, 4 x 8, 128 + 128": Row(
        "unseen",
        GSM8K,
        "qwen3-tiny",
        ("batch_size=4", "rollout.max_prompt_length=128", "rollout.total_generation_steps=128"),
    ),
    "demo, 8 x 16, remat, 2 parts": Row(
        "unseen",
        DEMO,
        "qwen3-tiny",
        ("batch_size=8", "grpo.num_generations=16", "model.remat=layer", "training.gradient_accumulation_steps=2"),
    ),
    "23 M, 8 x 2, 32 + 64": Row(
        "unseen",
        DEMO,
        "23m",
        ("batch_size=8", "grpo.num_generations=2", "rollout.max_prompt_length=32", "rollout.total_generation_steps=64"),
    ),
    "demo, 2 devices": Row("unseen", DEMO, "qwen3-tiny", ("mesh.data=2",), devices=2),
    "gsm8k, 4 x 8, 4 devices": Row(
        "unseen", GSM8K, "qwen3-tiny", ("batch_size=4", "mesh.data=2", "mesh.fsdp=2"), devices=4
    ),
}


class Prefixed(Shell):
    """Starts what it is asked to start through another command."""

    def __init__(self, words: list[str]) -> None:
        super().__init__()
        self.words = words

    def start(self, argv, **rest):
        return super().start([*self.words, *argv], **rest)


def silent(program: str, phase: str, seconds: float) -> None:
    pass


def job(row: Row) -> dict:
    dims = DIMS[row.dims]
    recipe = load.load(row.recipe, [f"model.name={row.dims}", *row.overrides])
    return {"recipe": recipe.model_dump(mode="json"), "dims": dataclasses.asdict(dims), "programs": row.programs}


def compare(name: str, row: Row, prices: calibrate.Prices, folder: Path, runner: Shell, rounds: int) -> list[dict]:
    records: dict[str, dict] = {}
    for _ in range(rounds):
        for record in calibrate.timed([job(row)], folder, row.devices, environment.here(), runner, silent):
            program = record["name"].partition("-")[2]
            known = records.setdefault(program, record)
            if (record["others"] > 0.1, record["seconds"]) < (known["others"] > 0.1, known["seconds"]):
                known |= {"seconds": record["seconds"], "others": record["others"]}
    results: list[dict] = []
    for program in row.programs:
        if program not in records:
            results.append(
                {"row": name, "use": row.use, "program": program, "why": (folder / "log.txt").read_text()[-500:]}
            )
            continue
        best = records[program]
        cost = prices.cost(
            hlo.read(folder / f"0-{program}.txt"), slices.parse(f"cpu-{row.devices}").chips, best["temporaries"]
        )
        results.append(
            {
                "row": name,
                "use": row.use,
                "program": program,
                "devices": row.devices,
                "measured_s": round(best["seconds"], 5),
                "others_cpu_share": round(best["others"], 3),
                "predicted_s": round(cost.predicted_s, 5),
                "ratio": round(cost.predicted_s / best["seconds"], 3),
                "parts_s": {k: round(v, 5) for k, v in cost.limits.items()},
                "gigaflop": round(cost.flops / 1e9, 3),
                "gigabytes": round(cost.hbm_bytes / 1e9, 3),
                "temporaries_gb": round(best["temporaries"] / 1e9, 3),
                "instructions": round(cost.starts),
            }
        )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--with", dest="prefix", default="", help="a command and its words, in quotes")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    runner = Prefixed(args.prefix.split())
    prices: dict[int, calibrate.Prices] = {}
    results = []
    with tempfile.TemporaryDirectory() as place:
        for name in args.rows:
            row = ROWS[name]
            if row.devices not in prices:
                calibrated = calibrate.prices(
                    row.devices, "float32", [], environment.here(), Path(place), runner, silent
                )
                assert calibrated, "the calibration failed"
                prices[row.devices] = calibrated
                print(calibrated.summary, flush=True)
            for r in compare(name, row, prices[row.devices], Path(place) / "row", runner, args.rounds):
                results.append(r)
                text = (
                    f"{r['predicted_s']:8.4f} / {r['measured_s']:8.4f} = {r['ratio']:.3f}" if "ratio" in r else "failed"
                )
                print(f"{name:30s} {r['use']:7s} {r['program']:8s} {text}", flush=True)
    ratios = [r["ratio"] for r in results if "ratio" in r]
    within = sum(0.75 <= ratio <= 1.25 for ratio in ratios)
    print(f"{within} of {len(results)} within 25 %")
    result = {
        **stamp(__file__),
        "machine": f"{calibrate.processor()}, {os.cpu_count()} cores",
        "prices": {f"cpu-{n}": dataclasses.asdict(p) for n, p in prices.items()},
        "within_25_percent": f"{within} of {len(results)}",
        "rows": results,
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
