"""One training step of a tiny Kimi-Linear on this CPU: ours and transformers' in PyTorch, in turn; and the matmul limit.

    python bench/pretrain_cpu.py [--out bench/results/FILE.json] [--rounds 3] [--steps 8]

The dimensions of almodel-tiny with the gates and the unrotated MLA of Kimi-Linear, which transformers has; its recipe's batch, one
document a row, float32. A step is forward, backward and optimizer: ours is program.update with Muon, as the recipe runs it, theirs
torch's fused AdamW, which does less (torch's Muon takes no experts). Each runs in a process of its own, `--rounds` times; seconds are
medians over the steps after the first, and so is the share of the machine that other programs took meanwhile.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from stamp import stamp

HERE = Path(__file__).resolve().parent
RECIPE = "almodel-tiny"


def wanted():
    """The recipe, and its dimensions as Kimi-Linear has them."""
    from podwright.recipe import hybrid, load

    recipe, dims = load.load(RECIPE), hybrid.find(RECIPE, "softplus")
    return recipe, dataclasses.replace(dims, mla=dataclasses.replace(dims.mla, rope_theta=None, yarn=None))


def tokens(recipe, dims):
    import numpy as np

    shape = (recipe.batch_size, recipe.sequence_length + 1)
    return np.random.default_rng(0).integers(0, dims.vocab_size, shape).astype(np.int32)


def busy_s() -> float:
    """Seconds of all cores that were not idle, since boot."""
    ticks = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def timed(step: Callable[[], float], steps: int) -> dict:
    seconds, cpu, others, losses = [], [], [], []
    for _ in range(steps):
        begin = time.perf_counter(), time.process_time(), busy_s()
        losses.append(round(step(), 4))
        wall, own, busy = (
            now - then for now, then in zip((time.perf_counter(), time.process_time(), busy_s()), begin, strict=True)
        )
        seconds.append(wall)
        cpu.append(own)
        others.append(max(0.0, (busy - own) / (wall * len(os.sched_getaffinity(0)))))
    return {
        "step_s": round(statistics.median(seconds[1:]), 4),
        "cpu_s": round(statistics.median(cpu[1:]), 4),
        "first_step_s": round(seconds[0], 2),
        "others_cpu_share": round(statistics.median(others[1:]), 3),
        "steps_s": [round(x, 4) for x in seconds],
        "losses": losses,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def ours(steps: int, own_dims: bool) -> dict:
    import jax
    import numpy as np

    from podwright.recipe import hybrid
    from podwright.train.mesh import make_mesh, to_device
    from podwright.train.pretrain.program import PretrainBatch, PretrainSetup, new_state, programs

    recipe, dims = wanted()
    dims = hybrid.find(RECIPE) if own_dims else dims
    setup = PretrainSetup(recipe, dims, make_mesh(recipe.mesh))
    rows = tokens(recipe, dims)
    n = recipe.sequence_length
    positions = np.broadcast_to(np.arange(n, dtype=np.int32), rows[:, 1:].shape)
    arrays = rows[:, :-1], rows[:, 1:], positions, np.ones_like(positions)
    batch = PretrainBatch(*(to_device(np.ascontiguousarray(x), setup.mesh) for x in arrays))
    state, update = new_state(setup), programs(setup)["update"]

    def step() -> float:
        nonlocal state
        state, figures = update(state, batch, np.float32(recipe.optimizer.learning_rate))
        return float(jax.block_until_ready((state, figures))[1]["loss"])

    times = timed(step, steps)
    useful = 3 * dims.forward_flops(rows[:, 1:].size, (n + 1) / 2)
    return {
        "system": f"podwright (jax {jax.__version__})",
        **times,
        "params": dims.num_params(),
        "gflop_useful": round(useful / 1e9, 2),
    }


def theirs(steps: int) -> dict:
    import torch
    import transformers

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    recipe, dims = wanted()
    m, k, x = dims.mla, dims.kda, dims.moe
    config = transformers.KimiLinearConfig(
        vocab_size=dims.vocab_size,
        hidden_size=dims.hidden_size,
        intermediate_size=dims.intermediate_size,
        num_hidden_layers=dims.num_layers,
        layer_types=[
            "linear_attention" if dims.attention(i) is k else "full_attention" for i in range(dims.num_layers)
        ],
        mlp_layer_types=["dense" if i < dims.num_dense_layers else "sparse" for i in range(dims.num_layers)],
        num_attention_heads=m.num_heads,
        num_key_value_heads=m.num_heads,
        q_lora_rank=m.q_lora_rank,
        kv_lora_rank=m.kv_lora_rank,
        qk_nope_head_dim=m.qk_nope_head_dim,
        qk_rope_head_dim=m.qk_rope_head_dim,
        v_head_dim=m.v_head_dim,
        linear_num_heads=k.num_heads,
        linear_head_dim=k.head_dim,
        linear_conv_kernel_dim=k.conv_size,
        num_local_experts=x.num_experts,
        num_experts_per_tok=x.num_experts_per_tok,
        moe_intermediate_size=x.moe_intermediate_size,
        routed_scaling_factor=x.routed_scaling_factor,
        rms_norm_eps=dims.norm_eps,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    model = transformers.KimiLinearForCausalLM(config).train()
    o = recipe.optimizer
    adamw = torch.optim.AdamW(
        model.parameters(), lr=o.learning_rate, betas=(o.b1, o.b2), weight_decay=o.weight_decay, fused=True
    )
    rows = torch.tensor(tokens(recipe, dims)).long()

    def step() -> float:
        z = model(rows[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(z.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), o.max_grad_norm)
        adamw.step()
        adamw.zero_grad()
        return loss.item()

    times = timed(step, steps)
    params = sum(p.numel() for p in model.parameters())
    return {"system": f"transformers {transformers.__version__} (torch {torch.__version__})", **times, "params": params}


def matmul_gflops() -> dict:
    """The best of 2 s of products of 2048 x 2048 matrices."""
    import jax
    import jax.numpy as jnp

    a, product = jnp.ones((2048, 2048), jnp.float32), jax.jit(lambda a: a @ a)
    product(a).block_until_ready()
    best, end = float("inf"), time.perf_counter() + 2
    while time.perf_counter() < end:
        begin = time.perf_counter()
        product(a).block_until_ready()
        best = min(best, time.perf_counter() - begin)
    return {"gflops": round(2 * 2048**3 / best / 1e9, 1)}


PARTS = {
    "podwright": lambda steps: ours(steps, own_dims=False),
    "transformers": theirs,
    "podwright, almodel-tiny": lambda steps: ours(steps, own_dims=True),
    "matmul": lambda steps: matmul_gflops(),
}


def child(part: str, steps: int) -> dict:
    argv = [sys.executable, __file__, "--part", part, "--steps", str(steps)]
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, env=env, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--part", choices=PARTS, help="only this one, in this process")
    args = parser.parse_args()
    if args.part:
        print(json.dumps(PARTS[args.part](args.steps)))
        return
    runs: dict[str, list[dict]] = {name: [] for name in PARTS if name != "matmul"}
    rate = child("matmul", 0)["gflops"]
    for _ in range(args.rounds):
        for name, rows in runs.items():
            rows.append(child(name, args.steps))
            last = rows[-1]
            print(
                f"{name}: {last['step_s']:.3f} s a step, others took {last['others_cpu_share']:.0%}",
                file=sys.stderr,
                flush=True,
            )
    assert runs["podwright"][0]["params"] == runs["transformers"][0]["params"]
    median = {name: statistics.median(run["step_s"] for run in rows) for name, rows in runs.items()}
    limit = {name: rows[0]["gflop_useful"] / rate for name, rows in runs.items() if name != "transformers"}
    result = {
        **stamp(__file__),
        "optimizer": {"podwright": "Muon and AdamW", "transformers": "AdamW, fused"},
        "step_s": median,
        "cpu_s": {name: statistics.median(run["cpu_s"] for run in rows) for name, rows in runs.items()},
        "peak_rss_mb": {name: max(run["peak_rss_mb"] for run in rows) for name, rows in runs.items()},
        "times_faster_than_transformers": round(median["transformers"] / median["podwright"], 2),
        "gflops_measured": rate,
        "limit_s": {name: round(s, 4) for name, s in limit.items()},
        "times_the_limit": {name: round(median[name] / s, 1) for name, s in limit.items()},
        "runs": runs,
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: value for name, value in result.items() if name != "runs"}, indent=1))


if __name__ == "__main__":
    main()
