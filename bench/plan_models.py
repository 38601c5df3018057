"""Dense decoders in plain JAX, shaped like published MaxText runs, for compiling only.

python bench/plan_models.py ROW       lowers and compiles the row's training step for its TPU topology (see plan_roofline.py)

Each row says what its README in github.com/AI-Hypercomputer/tpu-recipes (commit c8cfe2f) says: model, batch, sequence, what is
rematerialized, kept or offloaded to the host, blocks of the attention kernel, compiler flags. These are replicas, not MaxText.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from typing import Any


@dataclasses.dataclass(frozen=True)
class Model:
    layers: int
    dim: int
    mlp_dim: int
    num_heads: int
    num_kv_heads: int
    vocab_size: int
    head_dim: int = 128

    @property
    def num_weights(self) -> int:
        attention = self.dim * self.head_dim * 2 * (self.num_heads + self.num_kv_heads)
        return self.layers * (attention + 3 * self.dim * self.mlp_dim) + 2 * self.vocab_size * self.dim


LLAMA31_8B = Model(32, 4096, 14336, 32, 8, 128256)
LLAMA31_70B = Model(80, 8192, 28672, 64, 8, 128256)
LLAMA31_405B = Model(126, 16384, 53248, 128, 8, 128256)
LLAMA2_70B = Model(80, 8192, 28672, 64, 8, 32000)
MISTRAL_7B = Model(32, 4096, 14336, 32, 8, 32768)

# The recipes' compiler flags. Without the threshold (DISABLE_COLLECTIVE_MATMUL there) products may be split into windows that
# overlap with a ring of permutes.
VMEM = "--xla_tpu_scoped_vmem_limit_kib=98304"
LAYOUT = (
    "--xla_tpu_use_minor_sharding_for_major_trivial_input=true --xla_tpu_relayout_group_size_threshold_for_reduce_scatter=1 "
    "--xla_tpu_assign_all_reduce_scatter_layout=true"
)
OVERLAP = "--xla_tpu_enable_data_parallel_all_reduce_opt=true --xla_tpu_data_parallel_opt_different_sized_ops=true"
GATHER = (
    "--xla_tpu_enable_async_collective_fusion=true --xla_tpu_enable_async_collective_fusion_fuse_all_gather=true "
    "--xla_tpu_enable_async_collective_fusion_multiple_steps=true --xla_tpu_overlap_compute_collective_tc=true "
    "--xla_enable_async_all_gather=true"
)
SPARSE_CORE = (
    "--xla_tpu_enable_async_collective_fusion_fuse_all_reduce=false --xla_tpu_enable_sparse_core_collective_offload_all_reduce=true "
    "--xla_tpu_enable_all_reduce_offload_tracing=true --xla_tpu_use_tc_device_shape_on_sc=true "
    "--xla_sc_enable_instruction_fusion=false --xla_sc_disjoint_spmem=false --xla_sc_disable_megacore_partitioning=true"
)
HOST = (
    "--xla_tpu_enable_all_experimental_scheduler_features=true --xla_tpu_enable_scheduler_memory_pressure_tracking=true "
    "--xla_tpu_host_transfer_overlap_limit=24 --xla_tpu_aggressive_opt_barrier_removal=ENABLED "
    "--xla_lhs_prioritize_async_depth_over_stall=ENABLED --xla_tpu_enable_ag_backward_pipelining=true "
    "--xla_should_allow_loop_variant_parameter_in_chain=ENABLED --xla_should_add_loop_invariant_op_in_chain=ENABLED "
    "--xla_max_concurrent_host_send_recv=100 --xla_tpu_scheduler_percent_shared_memory_limit=100 --xla_latency_hiding_scheduler_rerun=2"
)
NO_WINDOWS = "--xla_jf_spmd_threshold_for_windowed_einsum_mib=1000000"
V6E_70B = " ".join((VMEM, LAYOUT, OVERLAP, GATHER, HOST))
V6E_8B = f"{V6E_70B} {SPARSE_CORE}"
TPU7X = (
    "--xla_tpu_scoped_vmem_limit_kib=61440 --xla_tpu_bf16_emission_mode=NATIVE_EMISSION "
    "--xla_tpu_enable_sparse_core_collective_offload_all_reduce=true --xla_tpu_use_single_sparse_core_for_all_gather_offload=true"
)
OFFLOADED = ("x", "q", "k", "v", "o")


@dataclasses.dataclass(frozen=True)
class Row:
    accelerator: str
    topology: tuple[int, ...]
    model: Model
    per_device_batch_size: int
    published_s: float
    use: str
    """calibration; checked: seen before the table of efficiencies was settled; unseen: never used for anything but this check"""
    flags: str
    devices_per_chip: int = 1
    sequence: int = 8192
    offload: tuple[str, ...] = OFFLOADED
    keep: tuple[str, ...] = ()
    weights: str = "float32"
    block: int = 2048
    moments: str = "float32"

    @property
    def num_devices(self) -> int:
        return math.prod(self.topology) * self.devices_per_chip


def _8b(topology: tuple[int, ...], batch: int, published_s: float, use: str, flags: str = V6E_8B) -> Row:
    return Row("v6e", topology, LLAMA31_8B, batch, published_s, use, flags)


def _70b(
    topology: tuple[int, ...], batch: int, published_s: float, use: str, flags: str = V6E_70B, weights: str = "float32"
) -> Row:
    return Row("v6e", topology, LLAMA31_70B, batch, published_s, use, flags, offload=OFFLOADED[:4], weights=weights)


def _tpu7x(topology: tuple[int, ...], published_s: float, use: str) -> Row:
    kept = ("x", "q", "k", "v", "context")
    return Row("tpu7x", topology, LLAMA31_70B, 2, published_s, use, TPU7X, 2, offload=(), keep=kept, moments="bfloat16")


ROWS = {
    "llama3.1-8b v6e-8": _8b((2, 4), 3, 3.443, "calibration", f"{V6E_8B} {NO_WINDOWS}"),
    "llama3.1-8b v6e-16": _8b((4, 4), 3, 3.393, "calibration", f"{V6E_8B} {NO_WINDOWS}"),
    "llama3.1-8b v6e-256": _8b((16, 16), 4, 4.546, "calibration"),
    "llama3.1-70b v6e-32": _70b((4, 8), 2, 17.790, "checked", f"{V6E_70B} {NO_WINDOWS}", "bfloat16"),
    "mistral-7b v6e-8": Row("v6e", (2, 4), MISTRAL_7B, 6, 6.320, "checked", f"{V6E_8B} {NO_WINDOWS}"),
    "llama3.1-8b v6e-32": _8b((4, 8), 3, 3.495, "unseen", f"{V6E_8B} {NO_WINDOWS}"),
    "llama3.1-8b v6e-64": _8b((8, 8), 5, 5.652, "unseen"),
    "llama3.1-8b v6e-128": _8b((8, 16), 4, 4.602, "unseen"),
    "llama3.1-70b v6e-64": _70b((8, 8), 2, 18.688, "unseen"),
    "llama3.1-70b v6e-128": _70b((8, 16), 4, 34.786, "unseen"),
    "llama3.1-70b v6e-256": _70b((16, 16), 5, 42.656, "unseen"),
    "llama3.1-70b tpu7x-4x4x4": _tpu7x((4, 4, 4), 12.20, "checked"),
    "llama3.1-70b tpu7x-4x8x8": _tpu7x((4, 8, 8), 12.27, "unseen"),
}


def training_step(row: Row, mesh: Any) -> tuple[Any, tuple, dict]:
    """The step, its abstract arguments and the keywords for jax.jit: cross-entropy, AdamW with clipping, all weights over one axis."""
    import jax
    import jax.numpy as jnp
    import optax
    from jax.sharding import NamedSharding, PartitionSpec

    def spread(*names: str | None) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*names))

    weights = {
        name: jax.ShapeDtypeStruct(
            shape, row.weights, sharding=spread(*("fsdp" if i == at else None for i in range(len(shape))))
        )
        for name, (shape, at) in _weights(row.model).items()
    }
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(3e-5, b2=0.95, weight_decay=0.1, mu_dtype=row.moments)
    )
    by_shape = {leaf.shape: leaf.sharding for leaf in weights.values()}
    state = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=by_shape.get(leaf.shape, spread())),
        jax.eval_shape(optimizer.init, weights),
    )
    tokens = jax.ShapeDtypeStruct(
        (row.per_device_batch_size * row.num_devices, row.sequence), jnp.int32, sharding=spread("fsdp")
    )

    def step(weights: Any, state: Any, batch: Any) -> tuple:
        loss, gradients = jax.value_and_grad(_loss(row, mesh))(weights, batch)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, loss

    def shardings(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.sharding, tree)

    out = (shardings(weights), shardings(state), spread())
    batch = {"tokens": tokens, "targets": tokens, "positions": tokens, "segments": tokens}
    return step, (weights, state, batch), {"donate_argnums": (0, 1), "out_shardings": out}


def _weights(m: Model) -> dict[str, tuple[tuple[int, ...], int | None]]:
    """Name -> shape and the dimension that is split."""
    return {
        "embed": ((m.vocab_size, m.dim), 1),
        "unembed": ((m.dim, m.vocab_size), 0),
        "norm": ((m.dim,), None),
        "norm_attention": ((m.layers, m.dim), None),
        "norm_mlp": ((m.layers, m.dim), None),
        "query": ((m.layers, m.dim, m.num_heads, m.head_dim), 1),
        "key": ((m.layers, m.dim, m.num_kv_heads, m.head_dim), 1),
        "value": ((m.layers, m.dim, m.num_kv_heads, m.head_dim), 1),
        "out": ((m.layers, m.num_heads, m.head_dim, m.dim), 3),
        "gate": ((m.layers, m.dim, m.mlp_dim), 1),
        "up": ((m.layers, m.dim, m.mlp_dim), 1),
        "down": ((m.layers, m.mlp_dim, m.dim), 2),
    }


def _loss(row: Row, mesh: Any) -> Any:
    import jax
    import jax.numpy as jnp
    from jax.ad_checkpoint import checkpoint_name
    from jax.sharding import NamedSharding, PartitionSpec

    m = row.model
    by_rows = NamedSharding(mesh, PartitionSpec("fsdp"))
    outside = ("embed", "unembed", "norm")

    def layer(x: Any, w: Any, positions: Any, segments: Any) -> Any:
        w = {name: leaf.astype(jnp.bfloat16) for name, leaf in w.items()}
        x = checkpoint_name(x, "x")
        h = _norm(x, w["norm_attention"])
        q = _rotate(jnp.einsum("bsd,dhk->bshk", h, w["query"]), positions)
        k = _rotate(jnp.einsum("bsd,dhk->bshk", h, w["key"]), positions)
        v = jnp.einsum("bsd,dhk->bshk", h, w["value"])
        q, k, v = checkpoint_name(q, "q"), checkpoint_name(k, "k"), checkpoint_name(v, "v")
        attended = _attention(row, mesh, q, k, v, segments)
        x = x + checkpoint_name(jnp.einsum("bshk,hkd->bsd", attended, w["out"]), "o")
        h = _norm(x, w["norm_mlp"])
        x = x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]
        return jax.lax.with_sharding_constraint(x, by_rows)

    if row.offload:
        policy = jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=list(row.keep),
            names_which_can_be_offloaded=list(row.offload),
            offload_src="device",
            offload_dst="pinned_host",
        )
    else:
        policy = jax.checkpoint_policies.save_only_these_names(*row.keep)

    def loss(weights: Any, batch: Any) -> Any:
        layers = {name: leaf for name, leaf in weights.items() if name not in outside}
        # MaxText's use_iota_embed: a product with a one-hot matrix that is never written
        one_hot = jax.nn.one_hot(batch["tokens"], m.vocab_size, dtype=jnp.bfloat16)
        x = jax.lax.with_sharding_constraint(one_hot @ weights["embed"].astype(jnp.bfloat16), by_rows)

        def body(x: Any, w: Any) -> tuple:
            return layer(x, w, batch["positions"], batch["segments"]), None

        x, _ = jax.lax.scan(jax.checkpoint(body, policy=policy), x, layers)
        return _cross_entropy(mesh)(
            _norm(x, weights["norm"]), weights["unembed"].astype(jnp.bfloat16), batch["targets"]
        )

    return loss


def _cross_entropy(mesh: Any) -> Any:
    """Mean over tokens from hidden states and split unembedding: gathers and reduces once and computes nothing twice, as a run with
    whole logits does, but in chunks, because this replica would not fit with them."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec

    num_chunks = 8

    def of_chunk(x: Any, w: Any, targets: Any) -> Any:
        logits = jnp.einsum("bsd,dv->bsv", x, w, preferred_element_type=jnp.float32)
        of_target = jnp.where(
            jax.lax.broadcasted_iota(jnp.int32, logits.shape, 2) == targets[..., None], logits, 0
        ).sum(-1)
        return (jax.nn.logsumexp(logits, -1) - of_target).sum()

    def local(x: Any, w: Any, targets: Any) -> tuple:
        weights = jax.lax.all_gather(w, "fsdp", axis=0, tiled=True)
        num_tokens = targets.size * mesh.size

        def add_chunk(sums: tuple, part: tuple) -> tuple:
            loss, (dx, dw) = jax.value_and_grad(of_chunk, (0, 1))(part[0], weights, part[1])
            return (sums[0] + loss, sums[1] + dw), dx

        def chunks(a: Any) -> Any:
            return jnp.moveaxis(a.reshape(a.shape[0], num_chunks, -1, *a.shape[2:]), 1, 0)

        start = (jnp.zeros(()), jnp.zeros(weights.shape, weights.dtype))
        dx: Any
        (loss, dw), dx = jax.lax.scan(add_chunk, start, (chunks(x), chunks(targets)))
        dw = jax.lax.psum_scatter(dw, "fsdp", scatter_dimension=0, tiled=True)
        return (
            jax.lax.psum(loss, "fsdp") / num_tokens,
            jnp.moveaxis(dx, 0, 1).reshape(x.shape) / num_tokens,
            dw / num_tokens,
        )

    split = PartitionSpec("fsdp")
    spread = jax.shard_map(
        local, mesh=mesh, in_specs=(split,) * 3, out_specs=(PartitionSpec(), split, split), check_vma=False
    )

    def forward(x: Any, w: Any, targets: Any) -> tuple:
        loss, dx, dw = spread(x, w, targets)
        return loss, (dx, dw)

    def backward(kept: tuple, cotangent: Any) -> tuple:
        return *((a * cotangent).astype(a.dtype) for a in kept), None

    mean = jax.custom_vjp(lambda x, w, targets: spread(x, w, targets)[0])
    mean.defvjp(forward, backward)
    return mean


def _norm(x: Any, scale: Any) -> Any:
    import jax
    import jax.numpy as jnp

    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.square(y).mean(-1, keepdims=True) + 1e-5) * scale.astype(jnp.float32)).astype(x.dtype)


def _rotate(x: Any, positions: Any) -> Any:
    import jax.numpy as jnp

    half = x.shape[-1] // 2
    angles = positions[..., None, None].astype(jnp.float32) * 5e5 ** (-jnp.arange(half) / half)
    a, b = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    sin, cos = jnp.sin(angles), jnp.cos(angles)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


def _attention(row: Row, mesh: Any, q: Any, k: Any, v: Any, segments: Any) -> Any:
    """Splash attention with its fused backward kernel; q, k, v: (batch, sequence, heads, head_dim)."""
    import jax
    import jax.numpy as jnp
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
    from jax.sharding import PartitionSpec

    n, b, group = row.sequence, row.block, row.model.num_heads // row.model.num_kv_heads
    sizes = kernels.BlockSizes(
        block_q=b,
        block_kv=b,
        block_kv_compute=b,
        block_q_dkv=b,
        block_kv_dkv=b,
        block_kv_dkv_compute=b,
        use_fused_bwd_kernel=True,
    )
    mask = masks.MultiHeadMask([masks.CausalMask((n, n))] * row.model.num_heads)
    kernel = kernels.make_splash_mha(
        mask=mask, head_shards=1, q_seq_shards=1, block_sizes=sizes, residual_checkpoint_name="context"
    )

    def local(q: Any, k: Any, v: Any, segments: Any) -> Any:
        q = jnp.swapaxes(q, 1, 2) * row.model.head_dim**-0.5
        k, v = (jnp.repeat(jnp.swapaxes(a, 1, 2), group, 1) for a in (k, v))
        return jnp.swapaxes(
            jax.vmap(kernel)(q.astype(jnp.bfloat16), k, v, kernels.SegmentIds(segments, segments)), 1, 2
        )

    rows = PartitionSpec("fsdp")
    return jax.shard_map(local, mesh=mesh, in_specs=(rows,) * 4, out_specs=rows, check_vma=False)(q, k, v, segments)


def main(name: str) -> None:
    row = ROWS[name]
    os.environ["LIBTPU_INIT_ARGS"] = row.flags
    import jax
    from jax.experimental import mesh_utils, topologies

    sizes = "x".join(map(str, row.topology))
    devices = topologies.get_topology_desc(platform="tpu", topology_name=f"{row.accelerator}:{sizes}").devices
    mesh = jax.sharding.Mesh(mesh_utils.create_device_mesh((row.num_devices,), devices=devices), ("fsdp",))
    step, args, keywords = training_step(row, mesh)
    jax.jit(step, **keywords).trace(*args).lower(lowering_platforms=("tpu",)).compile()


if __name__ == "__main__":
    main(sys.argv[1])
