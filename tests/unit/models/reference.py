"""Small random Qwen3 checkpoints made by transformers: the reference that the JAX model is compared with."""

import torch
import transformers


def checkpoint(path, *, tied=True, kv_heads=2, vocab=97, seed=0, max_shard_size="5GB", head_dim=16, rope_theta=1e4):
    """Writes a model whose head_dim is not hidden/heads, and returns it. Weights are large enough for logits of order 10."""
    config = transformers.Qwen3Config(
        vocab_size=vocab,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        tie_word_embeddings=tied,
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": rope_theta},
    )
    torch.manual_seed(seed)
    model = transformers.Qwen3ForCausalLM(config).eval()
    for name, p in model.named_parameters():
        p.data = torch.randn_like(p) * (0.2 if "norm" in name else 0.3) + (1.0 if "norm" in name else 0.0)
    model.generation_config.pad_token_id = 0
    model.save_pretrained(path, max_shard_size=max_shard_size)
    (path / "tokenizer.json").write_text("{}")  # that there is one is all that a plan asks
    return model
