"""What ours is compared with: a plain PyTorch loop over transformers' Qwen3 for pretraining, and TRL's trainer for GRPO."""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import grpo_cpu

from gpu_check.part import TINY, put


def transformers_loop() -> None:
    """Qwen3-0.6B on the rows of `pretrain one document`: sdpa, autocast to bfloat16, fused AdamW, cross-entropy in parts.

    Once as it is, and once with gradient checkpointing.
    """
    import torch
    from torch.nn.functional import cross_entropy
    from torch.utils.checkpoint import checkpoint
    from transformers import Qwen3Config, Qwen3ForCausalLM

    rows, length, steps, device = (2, 128, 2, "cpu") if TINY else (8, 4096, 5, "cuda")
    size: dict[str, Any] = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "vocab_size": 384,
        "head_dim": 16,
    }
    if not TINY:
        size = {
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "vocab_size": 151936,
            "head_dim": 128,
        }
    heads = (4, 2) if TINY else (16, 8)
    shape = {**size, "num_attention_heads": heads[0], "num_key_value_heads": heads[1], "tie_word_embeddings": True}
    torch.manual_seed(0)
    model: Any = Qwen3ForCausalLM(Qwen3Config(**shape, max_position_embeddings=8192))
    model.set_attn_implementation("sdpa")
    model.to(device).train()
    adamw = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    tokens = torch.randint(0, size["vocab_size"], (rows, length + 1), device=device)

    def summed(hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return cross_entropy(model.lm_head(hidden).float(), targets, reduction="sum")

    def step() -> None:
        with torch.autocast(device, torch.bfloat16):
            hidden = model.model(input_ids=tokens[:, :-1], use_cache=False).last_hidden_state
            parts = zip(hidden.flatten(0, 1).split(4096), tokens[:, 1:].flatten().split(4096), strict=True)
            loss = torch.stack([checkpoint(summed, h, t, use_reentrant=False) for h, t in parts]).sum()
        (loss / tokens[:, 1:].numel()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad()
        loss.item()  # waits for the step

    for variant in ("", "checkpointing"):
        if variant:
            model.gradient_checkpointing_enable()
        if not TINY:
            torch.cuda.reset_peak_memory_stats()
        _put_loop(variant, step, steps, rows * length)


def _put_loop(variant: str, step: Callable[[], None], steps: int, tokens: int) -> None:
    import torch

    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    step_s = statistics.median(seconds[1:])
    put(
        variant=variant,
        step_s=round(step_s, 4),
        first_step_s=round(seconds[0], 2),
        tokens_s=round(tokens / step_s),
        peak_gib=None if TINY else round(torch.cuda.max_memory_allocated() / 2**30, 2),
        steps_s=[round(s, 4) for s in seconds],
    )


def trl_trainer() -> None:
    """TRL's GRPOTrainer with the rollouts of transformers' generate, on the sizes of the row `grpo`; no completion ends early."""
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from gpu_check.ours import config

    c, steps = config("0.6b"), 2
    times = _Times(torch.cuda.synchronize if torch.cuda.is_available() and not TINY else lambda: None)
    words = random.Random(0)
    prompts = [
        " ".join(str(words.randrange(3, c["vocab"])) for _ in range(c["prompt_len"]))
        for _ in range(c["prompts"] * steps)
    ]
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = _saved_model(c, folder)
        arguments = GRPOConfig(
            output_dir=f"{folder}/out",
            use_cpu=TINY,
            bf16=not TINY,
            model_init_kwargs={"dtype": torch.float32},
            per_device_train_batch_size=c["prompts"] * c["generations"],
            num_generations=c["generations"],
            max_completion_length=c["new_tokens"],
            generation_kwargs={"min_new_tokens": c["new_tokens"]},
            beta=c["beta"],
            temperature=c["temperature"],
            top_p=1.0,
            top_k=0,
            learning_rate=c["learning_rate"],
            lr_scheduler_type="constant",
            max_steps=steps,
            gradient_checkpointing=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=0,
        )
        trainer = GRPOTrainer(
            model=folder,
            reward_funcs=grpo_cpu.reward,
            args=arguments,
            processing_class=tokenizer,
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            callbacks=[times.callback()],
        )
        trainer.train()
    put(
        step_s=round(statistics.median(times.steps[1:]), 4),
        first_step_s=round(times.steps[0], 2),
        peak_gib=None if TINY else round(torch.cuda.max_memory_allocated() / 2**30, 2),
        steps_s=[round(s, 4) for s in times.steps],
    )


def _saved_model(c: dict[str, Any], folder: str) -> Any:
    """A Qwen3 of these sizes from random weights in `folder`, whence TRL makes its reference too; its tokenizer has a word for each number."""
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    special = ["<pad>", "<eos>", "<unk>"]
    vocabulary = {word: n for n, word in enumerate([*special, *map(str, range(3, c["vocab"]))])}
    numbers = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    numbers.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    pad, eos, unk = special
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=numbers, pad_token=pad, eos_token=eos, unk_token=unk, padding_side="left"
    )
    shape = Qwen3Config(
        vocab_size=c["vocab"],
        hidden_size=c["embed_dim"],
        intermediate_size=c["hidden_dim"],
        num_hidden_layers=c["layers"],
        num_attention_heads=c["heads"],
        num_key_value_heads=c["kv_heads"],
        head_dim=c["head_dim"],
        rms_norm_eps=c["norm_eps"],
        tie_word_embeddings=c["tie_embeddings"],
        rope_parameters={"rope_type": "default", "rope_theta": float(c["rope_theta"])},
        max_position_embeddings=4096,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    os.makedirs(folder, exist_ok=True)
    model: Any = Qwen3ForCausalLM(shape)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


class _Times:
    """Seconds of each step, to the end of what it started on a GPU."""

    def __init__(self, synchronize: Any):
        self.synchronize, self.steps, self._begin = synchronize, list[float](), 0.0

    def callback(self) -> Any:
        from transformers import TrainerCallback

        times = self

        class Clock(TrainerCallback):
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                times.synchronize()
                times._begin = time.perf_counter()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                times.synchronize()
                times.steps.append(time.perf_counter() - times._begin)

        return Clock()
