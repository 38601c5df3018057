"""The names of latent attention's and experts' weights are those in the files that transformers writes."""

import pytest
import transformers
from safetensors.numpy import load_file

from podwright.models import mla, moe
from podwright.recipe.hybrid import HybridDims, Mla, Moe
from tests.unit.models import hybrid_names

LATENT = {"kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}
SIZES = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "vocab_size": 32,
    "intermediate_size": 16,
    **LATENT,
}
SIZES |= {"num_key_value_heads": 2, "moe_intermediate_size": 8, "num_experts_per_tok": 2, "pad_token_id": 0}
KDA = {"linear_head_dim": 8, "linear_num_heads": 2}


def models(model_type):
    if model_type == "deepseek_v3":
        return transformers.DeepseekV3ForCausalLM(
            transformers.DeepseekV3Config(**SIZES, q_lora_rank=8, n_routed_experts=8, first_k_dense_replace=0)
        )
    kinds = {"layer_types": ["full_attention"], "mlp_layer_types": ["sparse"], "num_local_experts": 8}
    if model_type == "kimi_linear":
        return transformers.KimiLinearForCausalLM(transformers.KimiLinearConfig(**SIZES, **kinds, **KDA))
    return transformers.BailingHybridForCausalLM(transformers.BailingHybridConfig(**SIZES, **kinds, head_dim=4))


@pytest.mark.parametrize("model_type", ["deepseek_v3", "kimi_linear", "bailing_hybrid"])
def test_names_are_those_of_published_files(tmp_path, model_type):
    models(model_type).save_pretrained(tmp_path)
    names = load_file(tmp_path / "model.safetensors")
    inside = [name.removeprefix("model.layers.0.") for name in names if name.startswith("model.layers.0.")]
    stored = {name for name in inside if not name.startswith(("input_layernorm", "post_attention_layernorm"))}
    m = Mla(2, 8 if model_type == "deepseek_v3" else 0, **LATENT, head_gate=model_type == "bailing_hybrid")
    dims = HybridDims(16, 1, 32, 16, 0, m, Moe(8, 2, 8, 1, 1.0))
    ours = {hybrid_names.MLA[model_type][name] for name in mla.declare(dims)}
    names = hybrid_names.MOE[model_type]
    ours |= {names[name].format(i) for name in ("bias", *moe.declare(dims)) for i in range(8)}
    assert ours == stored
