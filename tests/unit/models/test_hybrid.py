"""The wired model, weights and gradients, against transformers' Kimi-Linear and Ling 3.0, each document of a packed row by itself there."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

from podwright.models import hybrid, kda, logits, mla
from podwright.recipe.hybrid import HybridDims, Kda, Mla, Moe
from tests.unit.models import hybrid_names

# Kimi: one group, written out, whose first layer is dense. Ling: one written out and two that are scanned.
LATENT = {"kv_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 12}
MLA = Mla(2, 0, rope_theta=None, **LATENT)
MOE = Moe(8, 2, 12, 1, 2.5)
KIMI = HybridDims(24, 2, 61, 40, 1, MLA, MOE, Kda(2, 8, "softplus", 8), 2, 1e-5)
LING = dataclasses.replace(
    KIMI,
    num_layers=6,
    mla=dataclasses.replace(MLA, rope_theta=1e4, head_gate=True),
    moe=dataclasses.replace(MOE, num_experts_per_tok=3, n_group=4, topk_group=2),
    kda=Kda(2, 8, "bounded", 0),
)
DOCUMENTS = ((70, 20), (33, 57))  # lengths, row by row


def theirs(dims):
    """transformers' model with random weights, router biases among them: what a layer adds is not small beside what it is added to,
    and not so large either that float32 alone makes 1e-4 of a gradient."""
    layers = range(dims.num_layers)
    sizes = {
        "vocab_size": dims.vocab_size,
        **{f"{x}_token_id": None for x in ("pad", "bos", "eos")},
        "hidden_size": dims.hidden_size,
        "intermediate_size": dims.intermediate_size,
        "num_hidden_layers": dims.num_layers,
        "layer_types": ["full_attention" if isinstance(dims.attention(i), Mla) else "linear_attention" for i in layers],
        "mlp_layer_types": ["dense" if i < dims.num_dense_layers else "sparse" for i in layers],
        "num_attention_heads": dims.mla.num_heads,
        "num_key_value_heads": dims.mla.num_heads,
        **LATENT,
        "num_local_experts": dims.moe.num_experts,
        "num_experts_per_tok": dims.moe.num_experts_per_tok,
        "moe_intermediate_size": dims.moe.moe_intermediate_size,
        "routed_scaling_factor": dims.moe.routed_scaling_factor,
        "n_group": dims.moe.n_group,
        "topk_group": dims.moe.topk_group,
        "rms_norm_eps": dims.norm_eps,
        "attn_implementation": "eager",
    }
    torch.manual_seed(0)
    if dims.kda.gate == "softplus":
        linear = {"linear_num_heads": dims.kda.num_heads, "linear_head_dim": dims.kda.head_dim}
        model = transformers.KimiLinearForCausalLM(transformers.KimiLinearConfig(**sizes, **linear))
    else:
        gate = {
            "kda_lower_bound": dims.kda.lower_bound,
            "head_dim": dims.kda.head_dim,
            "rope_theta": dims.mla.rope_theta,
        }
        model = transformers.BailingHybridForCausalLM(
            transformers.BailingHybridConfig(**sizes, **gate, num_mtp_layers=0)
        )
    for name, p in model.named_parameters():
        if "A_log" in name:
            p.data = torch.empty_like(p).uniform_(1, 4).log()
        else:
            p.data = torch.randn_like(p) * (1.0 if "embed" in name else 0.2) + (1.0 if "norm" in name else 0.0)
    for name, buffer in model.named_buffers():
        if "bias" in name:
            buffer.copy_(torch.randn_like(buffer) * 0.2)
    return model


def published(model, path):
    """Its weights by the names of the files that transformers writes."""
    model.save_pretrained(path)
    return load_file(path / "model.safetensors")


def ours_of(dims, stored, kind):
    """(our tree, the routers' biases) out of their files; nothing is left over."""
    stored = dict(stored)

    def layer(i):
        before, made = f"model.layers.{i}.", hybrid._declare_layer(dims, i)
        attention = kda if isinstance(dims.attention(i), Kda) else mla
        names = (hybrid_names.KDA if attention is kda else hybrid_names.MLA)[kind]
        out = {
            "attention": {
                x: hybrid_names.from_hf(stored.pop(before + names[x]), p.shape) for x, p in made["attention"].items()
            }
        }
        if i < dims.num_dense_layers:
            # transformers writes Kimi's dense MLP under the name of experts; Kimi's own files say `mlp`
            module = "block_sparse_moe" if kind == "kimi_linear" else "mlp"
            out["mlp"] = {x: stored.pop(f"{before}{module}.{x}_proj.weight").T for x in made["mlp"]}
        else:
            names = {x: before + hybrid_names.MOE[kind][x] for x in made["mlp"]}
            out["mlp"] = {
                x: np.stack([stored.pop(names[x].format(e)).T for e in range(p.shape[0])])
                if p.axes[0] == "experts"
                else stored.pop(names[x]).T
                for x, p in made["mlp"].items()
            }
        out["attention_norm"] = stored.pop(before + "input_layernorm.weight")
        out["mlp_norm"] = stored.pop(before + "post_attention_layernorm.weight")
        return out

    layers = [layer(i) for i in range(dims.num_layers)]
    bias = [
        stored.pop(f"model.layers.{i}.{hybrid_names.MOE[kind]['bias']}")
        for i in range(dims.num_dense_layers, dims.num_layers)
    ]
    size = dims.group_size
    groups = [
        {str(i): x for i, x in enumerate(layers[first : first + size])} for first in range(size, dims.num_layers, size)
    ]
    params = {
        "embed": stored.pop(next(name for name in stored if "embed" in name)),
        "first": {str(i): x for i, x in enumerate(layers[:size])},
        "norm": stored.pop("model.norm.weight"),
        "lm_head": stored.pop("lm_head.weight"),
    }
    if groups:
        params["groups"] = jax.tree.map(lambda *x: np.stack(x), *groups)
    assert not stored, stored.keys()
    return jax.tree.map(jnp.asarray, params), jnp.stack(bias)


def packed(dims):
    """Tokens, positions, segment ids, and targets: -1 where the next token is of another document."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, dims.vocab_size, (len(DOCUMENTS), sum(DOCUMENTS[0])))
    positions = np.stack([np.concatenate([np.arange(n) for n in row]) for row in DOCUMENTS])
    segments = np.stack([np.repeat(np.arange(1, len(row) + 1), row) for row in DOCUMENTS])
    targets = np.where(np.roll(positions, -1, 1) == 0, -1, np.roll(tokens, -1, 1))
    return tokens, positions, segments, targets


@pytest.fixture(autouse=True)
def one_thread():
    """torch's threads wait for each other in loops; products of this size are not worth it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def right(dims, path):
    """Their weights, logits, loss and gradients in our layout; the loss is the mean over all targets."""
    model = theirs(dims)
    tokens, *_, targets = packed(dims)
    kind = model.config.model_type
    params, bias = ours_of(dims, published(model, path / "weights"), kind)
    out, total = np.zeros((*tokens.shape, dims.vocab_size), np.float32), 0.0
    for row, lengths in enumerate(DOCUMENTS):
        for a, b in itertools.pairwise(np.cumsum([0, *lengths])):
            z = model(torch.tensor(tokens[row : row + 1, a:b]), use_cache=False).logits
            total = total + torch.nn.functional.cross_entropy(
                z[0, :-1], torch.tensor(targets[row, a : b - 1]), reduction="sum"
            )
            out[row, a:b] = z[0].detach()
    loss = total / int((targets >= 0).sum())
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.grad)
    return params, bias, out, loss.item(), ours_of(dims, published(model, path / "gradients"), kind)[0]


def relative(a, b):
    return np.linalg.norm(np.asarray(a) - np.asarray(b)) / np.linalg.norm(np.asarray(b))


@pytest.mark.parametrize(
    "dims", [KIMI, pytest.param(LING, marks=pytest.mark.long)], ids=["kimi_linear", "bailing_hybrid"]
)
def test_the_wired_model_is_that_of_transformers(dims, tmp_path, one_device):
    params, bias, expected, expected_loss, expected_grads = right(dims, tmp_path)
    tokens, positions, segments, targets = packed(dims)
    setting = logits.SamplingSetting(one_device, np.float32, 64, 1.0)

    def loss(params):
        x, load = hybrid.hidden(dims, params, bias, tokens, positions, segments, np.float32, "none", one_device)
        logps, _ = logits.token_logprobs(setting, x, params["lm_head"], targets)
        return -jnp.where(targets >= 0, logps, 0.0).sum() / (targets >= 0).sum(), (x @ params["lm_head"].T, load)

    (value, (z, load)), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    assert relative(z, expected) < 1e-4
    assert float(value) == pytest.approx(expected_loss, rel=1e-5)
    assert load.shape == bias.shape and (load.sum(-1) == tokens.size * dims.moe.num_experts_per_tok).all()
    errors = jax.tree.map(relative, grads, expected_grads)
    assert max(jax.tree.leaves(errors)) < 1e-4, errors
