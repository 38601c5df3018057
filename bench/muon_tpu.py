"""What the sharded Muon needs on 64 TPU v7 devices, compiled for them: ALModel's leaves, one after the other and all together.

    python bench/muon_tpu.py [--out bench/results/FILE.json] [--rows N]

Each row is one update with clipping and weight decay, compiled with libtpu in a process of its own, on a machine without a TPU. Memory
is the compiler's; FLOPs, traffic and the seconds predicted are those of its schedule (podwright/plan/compiled/roofline.py). The compiler is ended
once it has assigned its buffers. All rows take about five minutes of a free core.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from stamp import stamp

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from podwright import slices  # noqa: E402
from podwright.models.param import RULES, Param  # noqa: E402
from podwright.plan.compiled import costs, dump  # noqa: E402
from podwright.plan.compiled.compile import TPU_ENV, is_complete  # noqa: E402

ON = "tpu7x-64"
MESHES = ((1, 64, 1), (1, 16, 4))  # the second is that of the published run
PLACED = RULES | {"experts": ("fsdp",), "latent": ("fsdp",)}


def stack(num: int, *dims: tuple[int, str | None], matrix: tuple[int, int] | None = None) -> Param:
    return Param((num, *(n for n, _ in dims)), ("layers", *(axis for _, axis in dims)), matrix=matrix)


def almodel() -> dict[str, dict[str, Param]]:
    """Groups of leaves: 28 layers, 21 of KDA and 7 of MLA, one dense MLP and 27 with 64 experts and a shared one."""
    embed, heads, dim = (2560, "embed"), (20, "heads"), (128, None)
    wide = stack(21, embed, heads, dim, matrix=(1, 2))
    return {
        "kda": {
            **dict.fromkeys(("q", "k", "v", "decay", "gate"), wide),
            "o": stack(21, heads, dim, embed, matrix=(2, 1)),
            "beta": stack(21, embed, heads, matrix=(1, 1)),
            **dict.fromkeys(("conv_q", "conv_k", "conv_v"), stack(21, heads, dim, (4, None))),
            "norm": stack(21, dim),
        },
        "mla": {
            "q_down": stack(7, embed, (512, None), matrix=(1, 1)),
            "q_up": stack(7, (512, "latent"), heads, (192, None), matrix=(1, 2)),
            "kv_down": stack(7, embed, (320, None), matrix=(1, 1)),
            "kv_up": stack(7, (256, "latent"), heads, (256, None), matrix=(1, 2)),
            "o": stack(7, heads, dim, embed, matrix=(2, 1)),
        },
        "dense": {
            **dict.fromkeys(("gate", "up"), stack(1, embed, (6656, "ffn"), matrix=(1, 1))),
            "down": stack(1, (6656, "ffn"), embed, matrix=(1, 1)),
        },
        "moe": {
            "router": stack(27, embed, (64, None), matrix=(1, 1)),
            **dict.fromkeys(("gate", "up"), stack(27, (64, "experts"), (2560, None), (1280, "ffn"), matrix=(1, 1))),
            "down": stack(27, (64, "experts"), (1280, "ffn"), (2560, None), matrix=(1, 1)),
            **dict.fromkeys(("shared_gate", "shared_up"), stack(27, embed, (1280, "ffn"), matrix=(1, 1))),
            "shared_down": stack(27, (1280, "ffn"), embed, matrix=(1, 1)),
        },
        "ends": dict.fromkeys(("embed", "lm_head"), Param((163840, 2560), ("vocab", "embed"))),
    }


def selections() -> dict[str, dict[str, Any]]:
    groups = almodel()
    by_row: dict[str, Param] = dict.fromkeys(["moe/gate"], groups["moe"]["gate"])
    in_rows = dataclasses.replace(groups["moe"]["gate"], axes=("layers", None, "embed", None))
    singles = ("kda/q", "kda/o", "kda/beta", "mla/q_down", "mla/q_up", "dense/gate", "moe/router", "moe/shared_gate")
    by_row |= {name: groups[name.split("/")[0]][name.split("/")[1]] for name in singles}
    return {
        "all": groups,
        **{name: {"leaf": leaf} for name, leaf in by_row.items()},
        "moe/gate, experts in rows": {"leaf": in_rows},
        "ends": groups["ends"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rows", type=int, help="only the first so many")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return compile_one(**json.loads(args.child))
    wanted = [(name, mesh, "ours") for mesh in MESHES for name in selections()] + [
        (name, MESHES[0], "optax") for name in ("kda/q", "moe/gate")
    ]
    rows = []
    for case in wanted[: args.rows]:
        rows.append(row(*case))
        print(line(rows[-1]), flush=True)
    result = {
        **stamp(__file__),
        "on": ON,
        "rows": rows,
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


def row(name: str, mesh: tuple[int, int, int], by: str) -> dict[str, Any]:
    axes = dict(zip(("data", "fsdp", "tensor"), mesh, strict=True))
    record: dict[str, Any] = {"leaves": name, "mesh": axes, "by": by}
    with tempfile.TemporaryDirectory() as folder:
        flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=jit_step"
        env = os.environ | TPU_ENV | {"XLA_FLAGS": flags}
        argv = [sys.executable, __file__, "--child", json.dumps({"name": name, "mesh": mesh, "by": by})]
        begin = time.monotonic()
        with (
            (Path(folder) / "log.txt").open("w") as log,
            subprocess.Popen(argv, stdout=log, stderr=log, env=env) as child,
        ):
            while child.poll() is None and not is_complete(Path(folder)):
                time.sleep(0.5)
            child.kill()
        record["compile_s"] = round(time.monotonic() - begin, 1)
        if child.returncode > 0:
            lines = (Path(folder) / "log.txt").read_text().splitlines()
            return record | {"error": next((at for at in lines if "Error" in at), lines[-1])[:300]}
        memory = dump.memory(Path(folder))
        cost, notes = costs.read(Path(folder), slices.parse(ON), axes)
    record |= {"arguments_gib": gib(memory.arguments), "temporaries_gib": gib(memory.temporaries), "notes": notes}
    if cost:
        traffic = [dataclasses.asdict(t) for t in cost.collectives if t.sent_bytes > 1024]
        record |= {
            "tflop": round(cost.flops / 1e12, 3),
            "hbm_gb": round(cost.hbm_bytes / 1e9, 2),
            "predicted_ms": round(cost.predicted_s * 1e3, 2),
        }
        record |= {"bound": cost.bound, "collectives": traffic}
    return record


def gib(size: int) -> float:
    return round(size / 2**30, 3)


def line(r: dict[str, Any]) -> str:
    head = f"{r['leaves']} {r['mesh']} {r['by']}:"
    if "error" in r:
        return f"{head} {r['error']}"
    sent = ", ".join(
        f"{t['count']} {t['kind']} over {t['axis']} {t['sent_bytes'] / 1e6:.1f} MB" for t in r.get("collectives", ())
    )
    figures = (
        f"{r['tflop']} TFLOP, {r['predicted_ms']} ms ({r['bound']}), {sent or 'no traffic'}"
        if "tflop" in r
        else str(r["notes"])
    )
    return f"{head} {r['temporaries_gib']} GiB beside {r['arguments_gib']}, {figures}"


def compile_one(name: str, mesh: list[int], by: str) -> None:
    import jax
    import jax.numpy as jnp
    import optax
    from jax.experimental import topologies
    from optax.contrib import MuonDimensionNumbers

    from podwright.models import param
    from podwright.recipe import schema
    from podwright.train import muon, optimizer
    from podwright.train.mesh import make_mesh

    declared = selections()[name]
    libtpu = slices.parse(ON).libtpu
    assert libtpu
    devices = topologies.get_topology_desc(platform="tpu", topology_name=libtpu[0], **libtpu[1]).devices
    placed = make_mesh(schema.GrpoMesh(data=mesh[0], fsdp=mesh[1], tensor=mesh[2]), list(devices))
    rate = optimizer.schedule(5e-4, 0.1, 1000)
    tx = muon.muon(
        declared,
        placed,
        rate,
        momentum=0.95,
        weight_decay=0.1,
        adam_b1=0.9,
        adam_b2=0.95,
        adam_weight_decay=0.1,
        max_grad_norm=1.0,
        rules=PLACED,
    )
    if by == "optax":
        numbers = param.tree_map(lambda p: MuonDimensionNumbers(*numbered(p)) if p.matrix else None, declared)
        tx = optax.chain(
            optax.clip_by_global_norm(1.0),
            optax.contrib.muon(rate, weight_decay=0.1, muon_weight_dimension_numbers=numbers),
        )

    def shape(p: Param) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(p.shape, jnp.float32, sharding=jax.NamedSharding(placed, p.spec(placed, PLACED)))

    def like(state: Any, leaf: Any) -> Any:
        return jax.tree.map(lambda s: leaf if s.shape == leaf.shape else s, state)

    def step(grads: Any, state: Any, params: Any) -> Any:
        return optimizer.apply(tx, grads, state, params)[:2]

    params = param.tree_map(shape, declared)
    state = (
        optimizer.abstract_state(tx, params, placed)
        if by == "ours"
        else like(jax.eval_shape(tx.init, params), params["leaf"])
    )
    out = jax.tree.map(lambda s: s.sharding, (params, state))
    jax.jit(step, donate_argnums=(1, 2), out_shardings=out).lower(params, state, params).compile()


def numbered(p: Param) -> tuple[tuple[int, ...], tuple[int, ...]]:
    assert p.matrix
    first = len(p.shape) - sum(p.matrix)
    return tuple(range(first, first + p.matrix[0])), tuple(range(first + p.matrix[0], len(p.shape)))


if __name__ == "__main__":
    main()
