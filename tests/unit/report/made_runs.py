"""Makes run directories like those that a trainer leaves behind, from a seed; every figure in them is invented."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from podwright.plan.document import Plan
from podwright.recipe.load import load
from podwright.rundir import RunDir, append_jsonl, write_json

START = 1_760_000_000.0
ENVIRONMENT = {
    "devices": 2,
    "device_kind": "cpu",
    "processes": 1,
    "num_params": 853_248,
    "versions": {"python": "3.11.9", "jax": "0.10.2", "podwright": "0.1.0"},
}
DATA = {"source": "arithmetic", "tokens": 2_000_000, "documents": 19_936, "rows": 7_812, "held_out_documents": 64}
HOSTILE = '<script>alert(1)</script> <img src="https://example.com/x.png"> ```\n</pre></td>\n| a | **b** |\n<!-- podwright:made end -->\n#### 7'


class Made:
    """One run directory in the making; `clock` is the time of the next record."""

    def __init__(
        self, path: Path, recipe: str = "qwen3-tiny-arithmetic-grpo", overrides: tuple[str, ...] = (), seed: int = 0
    ):
        self.run = RunDir(path)
        self.random = random.Random(seed)
        self.clock = START
        self.attempt = 1
        self.cold = 2  # steps that still compile
        self.model = load(recipe, list(overrides))
        pretrains = self.model.kind == "pretrain"
        self.environment = ENVIRONMENT | ({"num_active_params": 402_816, "data": DATA} if pretrains else {})
        write_json(self.run.recipe, self.model.model_dump(mode="json"))

    def event(self, event: str, takes: float = 0.0, **values: Any) -> Made:
        append_jsonl(self.run.events, {"event": event, "time": self.clock, "attempt": self.attempt, **values})
        self.clock += takes
        return self

    def start(self) -> Made:
        self.run.attempt(self.attempt).mkdir(parents=True, exist_ok=True)
        return self.event("phase", 3.0, phase="loading").event("environment", **self.environment)

    def warm_start(self, steps: int) -> Made:
        self.event("phase", phase="warm_start")
        for step in range(1, steps + 1):
            self.metric(
                "warm_start",
                step,
                0.21,
                loss=0.35 + 5.6 * math.exp(-step / 25) + self.noise(0.03),
                grad_norm=1.0,
                learning_rate=2e-3,
                tokens_per_s=31_000 + self.noise(900),
            )
        return self

    def grpo(self, first: int, last: int, of: int) -> Made:
        self.event("phase", phase="grpo")
        for step in range(first, last + 1):
            self.metric("grpo", step, **self.grpo_figures(step / of, 9.0 if self.cold > 0 else 0.0))
            self.cold -= 1
        return self

    def grpo_figures(self, done: float, cold: float) -> dict[str, Any]:
        learned = 1 - math.exp(-3.2 * done)
        rollout, score, update = (
            0.55 + self.noise(0.03) + cold,
            0.09 + self.noise(0.01),
            0.34 + self.noise(0.02) + cold / 2,
        )
        step_s = rollout + score + update + 0.02
        reward = 0.34 + 0.46 * learned + self.noise(0.05)
        return {
            "step_s": step_s, "rollout_s": rollout, "score_s": score, "update_s": update,
            "loss": self.noise(0.02), "reward": reward, "reward/check_answer": reward, "advantage_std": 0.8,
            "frac_reward_zero_std": 0.2 + 0.3 * learned, "kl": 0.004 + 0.21 * learned**2 + abs(self.noise(0.012)),
            "entropy": 0.62 - 0.4 * learned + self.noise(0.015), "clip_ratio": 0.0, "importance_mismatch": 1e-6,
            "completion_length": 34 - 7 * learned + self.noise(0.9),
            "completion_length_max": min(64, round(60 - 9 * learned + self.noise(4))),
            "completion_clipped": max(0.0, 0.11 * (1 - learned) + self.noise(0.012)), "grad_norm": 0.4, "learning_rate": 3e-4 * (1 - done),
            "sequences_per_s": 128 / step_s, "tokens_per_s": 128 * 30 / step_s, "mfu": None,
            "peak_memory_gib": 0.71, "epoch": done / 2,
        }  # fmt: skip

    def metric(self, stage: str, step: int, step_s: float, **figures: Any) -> Made:
        self.clock += step_s
        append_jsonl(
            self.run.metrics,
            {"stage": stage, "step": step, "time": self.clock, "attempt": self.attempt, "step_s": step_s, **figures},
        )
        return self

    def pretrain(self, first: int, last: int, of: int, floor: float = 1.1, begin: float = 5.56) -> Made:
        """Steps whose loss falls from `begin` (the guess of 259 bytes) to `floor`."""
        self.event("phase", phase="pretrain")
        for step in range(first, last + 1):
            loss = floor + (begin - floor) * math.exp(-6 * step / of) + self.noise(0.02)
            self.pretrain_step(step, loss, 0.5 + self.noise(0.02) + (8.0 if self.cold > 0 else 0.0))
            self.cold -= 1
        return self

    def pretrain_step(self, step: int, loss: float, step_s: float, tokens: int = 16 * 256, **figures: Any) -> Made:
        return self.metric("pretrain", step, step_s, **{
            "loss": loss, "grad_norm": 0.4 + 2 / step + abs(self.noise(0.03)), "learning_rate": 3e-3 * min(1.0, step / 20),
            "expert_load_max": 1.3 + 2 / step + abs(self.noise(0.05)), "dead_experts": 3 if step < 5 else 0, "target_tokens": tokens - 40,
            "tokens": step * tokens, "data_wait_s": 0.01, "tokens_per_s_per_device": tokens / 2 / step_s, "mfu": None,
            "tflops_per_device": 6 * 402_816 * tokens / 2 / step_s / 1e12, "peak_memory_gib": 0.9,
        } | figures)  # fmt: skip

    def held_out(self, when: str, step: int, loss: float) -> Made:
        self.event("phase", 4.0, phase=f"evaluation {when}")
        return self.event("evaluation", when=when, step=step, num=16_000, loss=loss, unigram_entropy=2.71, seconds=4.0)

    def evaluation(self, when: str, step: int, correct: int, num: int = 500) -> Made:
        self.event("phase", 6.0, phase="evaluation")
        return self.event(
            "evaluation", when=when, step=step, num=num, strict=graded(correct, num), flexible=graded(min(num, correct + 12), num),
            truncated=0.03, mean_tokens=28.4, seconds=6.0,
        )  # fmt: skip

    def sample(self, when: str, question: str, answer: str, completion: str, correct: bool) -> Made:
        extracted = completion.rsplit("####", 1)[-1].strip() if "####" in completion else None
        record = {
            "when": when,
            "question": question,
            "answer": answer,
            "completion": completion,
            "extracted": extracted,
            "correct": correct,
        }
        append_jsonl(self.run.samples, record)
        return self

    def end(self, ending: str = "FINISHED", detail: str = "all steps done", fix: str = "", step: int = 0) -> Made:
        value = {"ending": ending, "detail": detail, "fix": fix, "step": step}
        write_json(self.run.exit(self.attempt), value)
        return self

    def resume(self, step: int) -> Made:
        self.attempt += 1
        self.cold = 2
        self.clock += 120.0
        return self.start().event("resumed", step=step)

    def noise(self, scale: float) -> float:
        return self.random.gauss(0.0, scale)


def graded(correct: int, num: int) -> dict[str, float]:
    """Correct answers with the 95 % Wilson interval."""
    z, p = 1.959964, correct / num
    middle = (p + z * z / (2 * num)) / (1 + z * z / num)
    half = z / (1 + z * z / num) * math.sqrt(p * (1 - p) / num + z * z / (4 * num * num))
    return {"correct": correct, "accuracy": p, "low": middle - half, "high": middle + half}


QUESTIONS = (
    ("Mia has 7 apples. She buys 5 more and then gives 4 to Ben. How many apples does Mia have?", "8", "7 + 5 = 11\n11 - 4 = 7\n#### 7",
     "7 + 5 = 12\n12 - 4 = 8\n#### 8"),
    ("A box holds 6 pens. How many pens are in 9 boxes?", "54", "6 * 9 = 48\n#### 48", "6 * 9 = 54\n#### 54"),
    ("Noor had 20 coins and lost 13. How many coins are left?", "7", "20 - 13 = 7\n#### 7", "20 - 13 = 7\n#### 7"),
    ("Ivo reads 12 pages a day for 3 days and 8 pages on the fourth. How many pages does he read?", "44",
     "12 * 3 = 36\n36 + 8 = 36 + 8 = 36",
     "12 * 3 = 36\n36 + 8 = 44\n#### 44"),
)  # fmt: skip


def samples(made: Made, when: str) -> Made:
    for question, answer, before, after in QUESTIONS:
        completion = before if when == "before" else after
        made.sample(when, question, answer, completion, completion.endswith(f"#### {answer}"))
    return made


def compiled_plan() -> Plan:
    """Of a GRPO run of 40 steps, as `podwright plan --compile --price 2` makes it."""
    fits = {"verdict": "fits", "limit_gib": 31.25, "compile_s": 9.0, "cached": False, "resident_gib": {}, "error": ""}
    seconds = {"rollout": (0.52, 0.5), "update": (0.66, 0.4)}
    return Plan.model_validate(
        EMPTY_PLAN
        | {
            "programs": [
                {"name": n, "hbm_gib": gib, "predicted_s": s, "notes": [], **fits} for n, (gib, s) in seconds.items()
            ],
            "step": {
                "estimated": False,
                "programs": [{"name": n, "runs": 1, "seconds": s, "bound": None} for n, (_, s) in seconds.items()],
                "step_s": 0.9,
                "completions_per_s": 142.0,
                "tokens_per_s_per_device": 4_550.0,
                "mfu": None,
                "run": RUN_TOTALS,
                "notes": [],
            },
        }
    )


EMPTY_PLAN = {"recipe": "made", "target": "local", "slice": None, "verdict": "ok", "findings": []}
RUN_TOTALS = {
    "steps": 40,
    "evaluations": 4,
    "steps_s": 36.0,
    "evaluations_s": 54.0,
    "hours": 0.025,
    "chip_hours": 0.05,
    "price": 2.0,
    "cost": 0.1,
}


def finished(path: Path, steps: int = 200, seed: int = 0, **kwargs: Any) -> RunDir:
    """A whole run, resumed once after a loss of its machine."""
    made = Made(path, seed=seed, **kwargs).start().warm_start(steps).evaluation("before", 0, 167)
    samples(made, "before")
    made.event("notice", message="3 prompts are longer than rollout.max_prompt_length=96 tokens and were left out")
    quarter, stop = steps // 4, steps * 6 // 10
    made.grpo(1, quarter, steps).evaluation("during", quarter, 268).grpo(quarter + 1, stop, steps)
    resumed = steps // 2
    made.resume(resumed).grpo(resumed + 1, steps, steps)
    made.evaluation("during", resumed, 327)
    made.evaluation("after", steps, 391).event("comparison", gained=236, lost=12, p_value=3.1e-54)
    samples(made, "after")
    made.event("phase", 1.5, phase="saving").event("checkpoint", step=steps, seconds=1.4)
    return made.end(step=steps).run


def stopped(path: Path) -> RunDir:
    made = Made(path).start().warm_start(200).evaluation("before", 0, 167).grpo(1, 73, 200)
    return made.end("STOPPED", "Ctrl-C", "type `podwright resume made`", 73).run


def warm_only(path: Path) -> RunDir:
    return Made(path).start().warm_start(40).run


def empty(path: Path) -> RunDir:
    return Made(path).run


def not_finite(path: Path) -> RunDir:
    made = Made(path).start().evaluation("before", 0, 167).grpo(1, 20, 200)
    figures = made.grpo_figures(0.1, 0.0) | {
        "loss": math.nan,
        "grad_norm": math.inf,
        "reward": math.nan,
        "kl": -math.inf,
    }
    made.metric("grpo", 21, **figures)
    with made.run.metrics.open("a") as f:
        f.write(json.dumps({"stage": "grpo", "step": 22})[:-4])  # a kill in the middle of a write
    return made.end("NOT_FINITE", "the loss is NaN at step 21", "lower optimizer.learning_rate", 20).run


def hostile(path: Path) -> RunDir:
    """Everything that a model, a user or a machine could put into a page to break it."""
    made = Made(path).start().evaluation("before", 0, 167).grpo(1, 12, 200)
    made.sample("before", f"How many? {HOSTILE}", "7", HOSTILE, False)
    made.sample(
        "after", f"How many? {HOSTILE}", "7", "数学 ünï 🧮 \u202e\u2028 \x00\x1b[31m" + HOSTILE + "x" * 9000, True
    )
    made.event("notice", message=HOSTILE)
    return made.end("CRASHED", HOSTILE, HOSTILE, 12).run


def pretrained(path: Path, steps: int = 200, seed: int = 0, **kwargs: Any) -> RunDir:
    """A whole pretraining run, resumed once after a loss of its machine."""
    made = Made(path, seed=seed, **{"recipe": "almodel-tiny"} | kwargs).start().held_out("before", 0, 5.58)
    half, lost = steps // 2, steps * 6 // 10
    made.pretrain(1, half, steps).event("checkpoint", step=half).held_out("during", half, 1.41).pretrain(
        half + 1, lost, steps
    )
    made.attempt, made.cold, made.clock = 2, 2, made.clock + 120
    made.start().event("resumed", step=half, stage="pretrain").pretrain(half + 1, steps, steps)
    made.event("checkpoint", step=steps).held_out("after", steps, 1.18)
    return made.end(detail="", step=steps).run


def pretrain_stopped(path: Path) -> RunDir:
    made = Made(path, "almodel-tiny").start().held_out("before", 0, 5.58).pretrain(1, 50, 200)
    made.held_out("during", 50, 2.4).pretrain(51, 73, 200)
    return made.end("STOPPED", "stopped after step 73", "", 73).run


def pretrain_empty(path: Path) -> RunDir:
    return Made(path, "almodel-tiny").run


def out_of_data(path: Path) -> RunDir:
    """The run of the source: seven of ten steps on 448 rows, then none were left."""
    made = Made(path, "almodel-8b-source")
    made.environment |= {
        "devices": 64,
        "device_kind": "TPU7x",
        "data": DATA | {"tokens": 7 * 64 * 4096, "source": "gs://bucket/tokens"},
    }
    made.start().event("phase", phase="pretrain")
    losses = (12.153, 12.154, 8.509, 5.272, 2.599, 0.695, 0.213)
    for step, (loss, seconds) in enumerate(zip(losses, (485.0, 67.3, 7.5, 7.954, 7.45, 7.462, 7.534), strict=True), 1):
        rate = 64 * 4096 / seconds / 64
        made.pretrain_step(
            step,
            loss,
            seconds,
            64 * 4096,
            tokens_per_s_per_device=rate,
            tflops_per_device=0.0583 * rate,
            peak_memory_gib=63.9,
        )
    wrong = "data.source=gs://bucket/tokens is used up after 7 of 10 steps; the last one is kept"
    return made.end("OUT_OF_DATA", wrong, "give more data", 7).run
