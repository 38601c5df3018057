"""Kimi Delta Attention forward and backward on this CPU: in chunks, token by token, and transformers' chunks.

    python bench/kda_cpu.py [--out bench/results/FILE.json] [--rounds 5] [--lengths 1024 2048]

One sequence of 4 heads of 128, float32, decays of a bounded gate. The forms take turns, `--rounds` times after one that is not
counted (compilation); figures are medians, of seconds and of CPU seconds, which other programs disturb less. transformers takes most
of the time.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

from stamp import stamp

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from jax.sharding import AxisType, PartitionSpec  # noqa: E402
from kda_definition import recurrent  # noqa: E402
from transformers.models.kimi_linear.modeling_kimi_linear import chunk_kimi_delta_attention  # noqa: E402

from podwright.kernels import kda  # noqa: E402

HEADS, DIM = 4, 128


def inputs(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    q, k, v, x = (rng.standard_normal((1, n, HEADS, DIM)).astype(np.float32) for _ in range(4))
    beta = 1 / (1 + np.exp(-rng.standard_normal((1, n, HEADS)).astype(np.float32)))
    q, k = (y / np.linalg.norm(y, axis=-1, keepdims=True) for y in (q, k))
    return [q * np.float32(DIM**-0.5), k, v, -5 / (1 + np.exp(-x)), beta]


def of_jax(form, values):
    def total(*x):
        return (form(*x) ** 2).sum()

    compiled = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2, 3, 4))).lower(*values).compile()
    given = [jnp.asarray(x) for x in values]
    return lambda: jax.block_until_ready(compiled(*given))[1]


def of_transformers(values):
    q, k, v, g, beta = (torch.tensor(x, requires_grad=True) for x in values)

    def run():
        for x in (q, k, v, g, beta):
            x.grad = None
        (
            chunk_kimi_delta_attention(q * DIM**0.5, k, v, g, beta)[0] ** 2
        ).sum().backward()  # it divides q by that itself
        return [x.grad.numpy() for x in (q, k, v, g, beta) if x.grad is not None]

    return run


def part(*values):
    """What a device does that has a part of a row: the part is the whole here, and no state comes before it."""
    mesh = jax.make_mesh((1,), ("parts",), axis_types=(AxisType.Auto,), devices=jax.devices()[:1])
    across, spec = functools.partial(kda.across, bounded=True, axis="parts"), PartitionSpec(None, "parts")
    return jax.shard_map(across, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(*values)


def forms(values) -> dict:
    return {
        "chunked, bounded": of_jax(functools.partial(kda.chunked, bounded=True), values),
        "chunked, as a part of a row": of_jax(part, values),
        "chunked, any decay": of_jax(functools.partial(kda.chunked, bounded=False), values),
        "token by token": of_jax(recurrent, values),
        "transformers": of_transformers(values),
    }


def measured(n: int, rounds: int) -> dict:
    runs = forms(inputs(n))
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    grads = {name: run() for name, run in runs.items()}
    right = np.concatenate([np.ravel(g) for g in grads["token by token"]])
    for _ in range(rounds):
        for name, run in runs.items():
            start, start_cpu = time.perf_counter(), time.process_time()
            run()
            seconds[name].append((time.perf_counter() - start, time.process_time() - start_cpu))
    by_form = {}
    for name, times in seconds.items():
        error = np.linalg.norm(np.concatenate([np.ravel(g) for g in grads[name]]) - right) / np.linalg.norm(right)
        by_form[name] = {
            "median_s": round(statistics.median(t for t, _ in times), 4),
            "median_cpu_s": round(statistics.median(t for _, t in times), 4),
            "all_s": [round(t, 4) for t, _ in times],
            "error": float(f"{error:.2g}"),
        }
    return {"tokens": n, "forms": by_form}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048])
    args = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    rows = []
    for n in args.lengths:
        rows.append(measured(n, args.rounds))
        for name, figures in rows[-1]["forms"].items():
            print(
                f"{n} tokens, {name}: {figures['median_s']:.3f} s, {figures['median_cpu_s']:.3f} s of CPU, gradients off by {figures['error']}",
                flush=True,
            )
    result = {
        **stamp(__file__),
        "device": f"{platform.machine()} CPU, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f} at the end",
        "versions": {"jax": jax.__version__, "torch": torch.__version__},
        "heads": HEADS,
        "head_dim": DIM,
        "rows": rows,
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
