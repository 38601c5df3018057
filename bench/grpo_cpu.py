"""GRPO steps of Podwright, google-tunix and TRL on one model, one machine, one run; and the matmul limit.

    python bench/grpo_cpu.py --peers ../shared/bench --tunix VENV/bin/python --trl VENV/bin/python [--rounds 2]

Each system runs in a process of its own, in turn, `--rounds` times, from the peers' config.json: 4 prompts x 8
generations, 64 prompt and 64 new tokens, a frozen reference, float32. A step is rollout, reward from the text,
reference log-probabilities and one AdamW update on all rows. Ours is podwright.train.grpo.loop.step, the one that
runs use. Medians are over the steps after the first (compilation). A missing peer is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from stamp import stamp

HERE = Path(__file__).resolve().parent


def reward(prompts, completions, **columns):
    return [sum(map(ord, text)) % 10 / 10 for text in completions]


class NumberTokenizer:
    """Ids as decimal words, as the peers' scripts have it."""

    pad_id = 0

    def decode(self, ids):
        return " ".join(map(str, ids))


def prepared(c: dict, steps: int):
    """The collector of rollouts, the reference and the state of a policy, on prompts of random tokens."""
    import numpy as np

    from podwright.data.layouts import Example
    from podwright.models import param, qwen3
    from podwright.recipe import load
    from podwright.recipe.models import Qwen3Dims
    from podwright.recipe.schema import GrpoRecipe
    from podwright.train.grpo import program
    from podwright.train.grpo.collect import Collector
    from podwright.train.grpo.prompts import Prompts
    from podwright.train.grpo.reward import load as load_rewards
    from podwright.train.mesh import make_mesh

    resolved = load.load(
        "qwen3-tiny-arithmetic-grpo",
        [
            f"batch_size={c['prompts']}",
            f"grpo.num_generations={c['generations']}",
            f"rollout.max_prompt_length={c['prompt_len']}",
            f"rollout.total_generation_steps={c['new_tokens']}",
            f"rollout.temperature={c['temperature']}",
            f"grpo.beta={c['beta']}",
            f"optimizer.learning_rate={c['learning_rate']}",
            "optimizer.warmup_ratio=0",
            f"model.compute_dtype={c['dtype']}",
            f"training.max_steps={steps}",
            "warm_start=null",
            *c.get("overrides", []),
            f"rewards=[{{function: '{HERE / 'grpo_cpu.py'}:reward'}}]",
        ],
    )
    recipe = load.require(resolved, GrpoRecipe)
    dims = Qwen3Dims(
        c["embed_dim"],
        c["hidden_dim"],
        c["layers"],
        c["heads"],
        c["kv_heads"],
        c["head_dim"],
        c["vocab"],
        c["tie_embeddings"],
        c["rope_theta"],
        c["norm_eps"],
    )
    setup = program.GrpoSetup(recipe, dims, make_mesh(recipe.mesh), (-1,), 0)
    n = steps * c["prompts"]
    tokens = np.random.default_rng(c["seed"]).integers(3, c["vocab"], (n, c["prompt_len"])).astype(np.int32)
    example = Example("q", "1", "#### 1")
    prompts = Prompts((example,) * n, ("q",) * n, tokens, np.full(n, c["prompt_len"], np.int32), 0)
    tokenizer: Any = NumberTokenizer()
    collector = Collector(setup, program.programs(setup), prompts, tokenizer, load_rewards(recipe.rewards))
    reference = param.initialize(qwen3.declare(dims), setup.mesh, c["seed"])
    return collector, reference, program.new_state(setup, reference)


def ours(config: dict, steps: int, quiet) -> dict:
    import jax

    from podwright.train.grpo import loop

    collector, reference, state = prepared(config, steps)
    cursor, spans, figures = {"step": 0, "used": 0, "rollouts": 0}, [], []
    for _ in range(steps):
        begin = quiet.sample()
        done = loop.step(collector, state, reference, cursor)
        assert done, "nothing hurries it"
        state, cursor, measured = done
        jax.block_until_ready(state)
        spans.append((begin, quiet.sample()))
        figures.append(measured)
    picked = quiet.pick(spans)
    use = picked.pop("_use")
    return {
        "system": f"podwright (jax {jax.__version__})",
        **picked,
        "rollout_s": round(statistics.median(figures[i]["rollout_s"] for i in use), 4),
        "ref_logps_s": round(statistics.median(figures[i]["score_s"] for i in use), 4),
        "learner_s": round(statistics.median(figures[i]["update_s"] for i in use), 4),
        "gflop_useful": round(measured["tflops_per_device"] * measured["step_s"] * 1000, 1),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "params": collector.setup.dims.num_params(),
    }


def child(argv: list[str], **env: str) -> dict | None:
    done = subprocess.run(argv, capture_output=True, text=True, env=os.environ | env, timeout=1200)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=HERE.parent.parent / "shared" / "bench")
    parser.add_argument("--tunix", help="python of an environment with google-tunix")
    parser.add_argument("--trl", help="python of an environment with trl")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--ours", action="store_true", help="only our own steps, in this process")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    sys.path.insert(0, str(args.peers))
    import quiet

    config = args.peers / "config.json"
    if args.ours:
        print(json.dumps(ours(json.loads(config.read_text()), args.steps, quiet)))
        return
    systems = {
        "podwright": [sys.executable, __file__, "--ours", "--peers", str(args.peers), "--steps", str(args.steps)]
    }
    for name in ("tunix", "trl"):
        if getattr(args, name):
            systems[name] = [
                getattr(args, name),
                str(args.peers / f"{name}_grpo.py"),
                str(config),
                "--steps",
                str(args.steps),
            ]
    floor = child([sys.executable, str(args.peers / "floor.py"), str(config), "--with", "jax"])
    runs: dict[str, list[dict]] = {name: [] for name in systems}
    for _ in range(args.rounds):
        for name, argv in systems.items():
            result = child(argv, JAX_PLATFORMS="cpu", PYTHONPATH=str(HERE.parent))
            if result:
                runs[name].append(result)
                print(
                    f"{name:10s} step {result['step_s_median']:.3f} s  others' CPU {result['others_cpu_share']:.0%}",
                    file=sys.stderr,
                )
    print(json.dumps(summary(runs, floor, args.out), indent=1))


def summary(runs: dict[str, list[dict]], floor: dict | None, out: Path | None) -> dict:
    medians = {
        name: statistics.median(r["step_s_median"] for r in results) for name, results in runs.items() if results
    }
    mine = medians["podwright"]
    peers = {name: s for name, s in medians.items() if name != "podwright"}
    result = {
        **stamp(__file__),
        "step_s": medians,
        "times_faster_than": {name: round(s / mine, 2) for name, s in peers.items()},
        "times_faster_than_the_faster_peer": round(min(peers.values()) / mine, 2) if peers else None,
        "peak_rss_mb": {name: results[0]["peak_rss_mb"] for name, results in runs.items() if results},
    }
    if floor:
        useful = runs["podwright"][0]["gflop_useful"]
        limit = useful / floor["gflops_peak_measured"]
        result |= {"gflop_useful": useful, "gflops_measured": floor["gflops_peak_measured"], "limit_s": round(limit, 3)}
        result["times_the_limit"] = round(mine / limit, 2)
    result["runs"] = runs
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1) + "\n")
    return {k: v for k, v in result.items() if k != "runs"}


if __name__ == "__main__":
    main()
