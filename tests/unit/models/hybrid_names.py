"""Names of weights of the hybrid model in the files that transformers writes, by which its layers are held against published ones."""

from typing import Any

# our name -> theirs within a layer's attention
_KDA = {
    "q": "q_proj.weight",
    "k": "k_proj.weight",
    "v": "v_proj.weight",
    "q_conv": "q_conv1d.weight",
    "k_conv": "k_conv1d.weight",
    "v_conv": "v_conv1d.weight",
    "decay": "f_proj.weight",
    "decay_down": "f_a_proj.weight",
    "decay_up": "f_b_proj.weight",
    "a_log": "A_log",
    "dt_bias": "dt_bias",
    "beta": "b_proj.weight",
    "gate": "g_proj.weight",
    "gate_down": "g_a_proj.weight",
    "gate_up": "g_b_proj.weight",
    "norm": "o_norm.weight",
    "o": "o_proj.weight",
}
# model_type -> our name -> theirs within a layer, as transformers writes it; Ling's own files call the last one o_proj too
KDA = {
    "kimi_linear": {ours: f"self_attn.{theirs}" for ours, theirs in _KDA.items()},
    "bailing_hybrid": {ours: f"attention.{theirs}" for ours, theirs in (_KDA | {"o": "dense.weight"}).items()},
}

# our name -> theirs within a layer's attention, whose matrices are [out, in]
_MLA = {
    "q": "q_proj.weight",
    "q_a": "q_a_proj.weight",
    "q_a_norm": "q_a_layernorm.weight",
    "q_b": "q_b_proj.weight",
    "kv_a": "kv_a_proj_with_mqa.weight",
    "kv_a_norm": "kv_a_layernorm.weight",
    "kv_b": "kv_b_proj.weight",
    "head_gate": "g_proj.weight",
    "o": "o_proj.weight",
}
_SELF_ATTENTION = {ours: f"self_attn.{theirs}" for ours, theirs in _MLA.items()}
# model_type -> our name -> theirs within a layer
MLA = {
    "kimi_linear": _SELF_ATTENTION,
    "deepseek_v3": _SELF_ATTENTION,
    "bailing_hybrid": {ours: f"attention.{theirs}" for ours, theirs in (_MLA | {"o": "dense.weight"}).items()},
}

# our name -> theirs within a layer's MLP, whose matrices are [out, in]; {} is the expert, our first dim, and `bias` the router's
_MOE = {
    "router": "gate.weight",
    "bias": "gate.e_score_correction_bias",
    "gate": "experts.{}.gate_proj.weight",
    "up": "experts.{}.up_proj.weight",
    "down": "experts.{}.down_proj.weight",
    "shared_gate": "shared_experts.gate_proj.weight",
    "shared_up": "shared_experts.up_proj.weight",
    "shared_down": "shared_experts.down_proj.weight",
}
_KIMI = {"gate": "experts.{}.w1.weight", "up": "experts.{}.w3.weight", "down": "experts.{}.w2.weight"}
# model_type -> our name -> theirs within a layer
MOE = {
    "deepseek_v3": {ours: f"mlp.{theirs}" for ours, theirs in _MOE.items()},
    "bailing_hybrid": {ours: f"mlp.{theirs}" for ours, theirs in (_MOE | {"bias": "gate.expert_bias"}).items()},
    "kimi_linear": {ours: f"block_sparse_moe.{theirs}" for ours, theirs in (_MOE | _KIMI).items()},
}


def from_hf(theirs: Any, shape: tuple[int, ...]) -> Any:
    """One of their arrays, [out, in] or [channels, 1, taps] or a vector, in our `shape`."""
    flat = theirs.squeeze()
    return (flat.T if flat.ndim == 2 else flat).reshape(shape)
