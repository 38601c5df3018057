"""An override file of tunix becomes a recipe of GRPO; every key of it is named."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from podwright.cli import app
from podwright.errors import UserError
from podwright.importers import config_files
from podwright.recipe.load import load
from podwright.train.grpo import reward

MESH = {"shape": "(4,4)", "axis_names": "('fsdp','tp')"}
MODEL = {"model_name": "qwen3-1.7b", "model_id": "Qwen/Qwen3-1.7B", "model_source": "huggingface", "mesh": MESH}
OPTIMIZER = {
    "opt_type": "adamw", "peak_value": 3e-6, "init_value": 0.0, "end_value": 0.0, "warmup_ratio": 0.1,
    "schedule_type": "warmup_cosine_decay_schedule", "warmup_steps": 10, "decay_steps": 100, "b1": 0.9, "b2": 0.99,
    "weight_decay": 0.1, "max_grad_norm": 0.1,
}  # fmt: skip
GIVEN: dict[str, Any] = {
    "reference_model_config": MODEL, "actor_model_config": MODEL, "rollout_model_config": MODEL,
    "tokenizer_config": {"tokenizer_path": "Qwen/Qwen3-1.7B", "tokenizer_type": "huggingface"},
    "dataset_name": "gsm8k", "data_source": "tfds", "batch_size": 16,
    "grpo_config": {"num_generations": 8, "num_iterations": 1, "beta": 0.08, "epsilon": 0.2},
    "rollout_config": {
        "total_generation_steps": 2048, "max_prompt_length": 256, "temperature": 0.9, "top_p": 1.0, "top_k": 50,
    },
    "rl_training_config": {
        "actor_optimizer_config": OPTIMIZER, "eval_every_n_steps": 10,
        "metrics_logging_options": {"project_name": "p", "run_name": "my run", "log_dir": "/tmp/tensorboard"},
    },
    "reward_functions": ["plugin/reward_fn/mine.py"],
}  # fmt: skip
REWARDS = """
import re
from typing import List

__all__ = ["right", "formed"]

def right(prompts: List[str], completions: List[str], answer: List[str], **kwargs) -> List[float]:
    def last(text):
        numbers = re.findall(r"-?[0-9]+", text)
        return numbers[-1] if numbers else None
    return [3.0 if last(text) == gold else 0.0 for text, gold in zip(completions, answer)]

def formed(prompts: List[str], completions: List[str], **kwargs) -> List[float]:
    return [1.0 if "####" in text else 0 for text in completions]

def helper(text): return text
def _private(prompts, completions, **kwargs): return []
"""


def write(folder: Path, given: Any, rewards: str | None = REWARDS) -> Path:
    """The file where the original has it: configs/ beside plugin/reward_fn/."""
    for name in ("configs", "plugin/reward_fn"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    if rewards is not None:
        (folder / "plugin/reward_fn/mine.py").write_text(rewards)
    path = folder / "configs/qwen3_1.7b_gsm8k.yaml"
    path.write_text(given if isinstance(given, str) else yaml.safe_dump(given, sort_keys=False))
    return path


def leaves(given: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in given.items():
        flat |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {prefix + key: value}
    return flat


def changed(**changes: Any) -> dict[str, Any]:
    """GIVEN as dotted keys, with `a__b` for a.b changed; None takes a key out."""
    flat = leaves(GIVEN) | {key.replace("__", "."): value for key, value in changes.items()}
    return {key: value for key, value in flat.items() if value != "OUT"}


def call(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = app.main(["recipe", "import", *argv])
    return (code, *capsys.readouterr())


def test_the_original_file_becomes_a_recipe_with_a_note_for_every_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, GIVEN)
    code, out, err = call(capsys, str(path), "rl_training_config.max_steps=100", "--json")
    assert code == 0, err
    document = json.loads(out)
    recipe = load(document["out"])
    got = document["recipe"]
    assert recipe.model_dump(mode="json") == got and recipe.kind == "grpo" and got["name"] == "qwen3-1.7b-gsm8k"
    assert (got["batch_size"], got["grpo"]["num_generations"], got["training"]["max_steps"]) == (16, 8, 100)
    assert got["mesh"] == {"data": 1, "fsdp": 4, "tensor": 4}
    assert (got["model"]["name"], got["model"]["source"]) == ("qwen3-1.7b", "Qwen/Qwen3-1.7B")
    assert got["data"]["source"] == "openai/gsm8k" and got["evaluation"]["every_n_steps"] == 10
    optimizer = {"learning_rate": 3e-6, "warmup_ratio": 0.1, "b1": 0.9, "b2": 0.99, "weight_decay": 0.1}
    assert got["optimizer"] == optimizer | {"max_grad_norm": 0.1}
    kept = {"total_generation_steps": 2048, "max_prompt_length": 256, "temperature": 0.9, "top_p": 1.0, "top_k": 50}
    assert got["rollout"] == kept | {"min_p": 0.0}
    notes = document["notes"]
    keys = {*leaves(GIVEN), "rl_training_config.max_steps"}
    assert keys <= set(notes)
    assert set(notes) - keys == {"prompts", "grpo_config.kl_loss_mode"}
    for key, note in notes.items():
        assert note.startswith(("nothing to do: ", "rewards are ")) or "type " in note or " is " in note, (key, note)
    assert notes["batch_size"].endswith("16 prompts x 8 completions = 128 sequences a step, over all devices")
    assert notes["rl_training_config.metrics_logging_options.run_name"] == "type --name 'my run'"
    assert notes["rl_training_config.actor_optimizer_config.warmup_steps"].startswith(
        "optimizer.warmup_ratio is 0.1: 10"
    )
    assert [r["function"].rpartition(":")[2] for r in got["rewards"]] == ["right", "formed"]
    assert "not helper, without arguments prompts and completions" in notes["reward_functions"]
    loaded = reward.load(recipe.rewards)
    columns = {"question": ["?"] * 2, "answer": ["4", "5"], "solution": ["#### 4", "#### 5"]}
    assert reward.score(loaded, ["p"] * 2, ["#### 4", "it is 4"], columns) == {
        "right": [3.0, 0.0],
        "formed": [1.0, 0.0],
    }


def test_dotted_and_nested_keys_are_one_and_the_command_line_counts_last(tmp_path: Path) -> None:
    nested = config_files.imported(write(tmp_path, GIVEN))
    assert config_files.imported(write(tmp_path, leaves(GIVEN))) == nested
    # as the README and the guide of the original type them
    words = ["batch_size=1", "grpo_config.num_generations=4", "rl_training_config.max_steps=10"]
    given = config_files.imported(write(tmp_path, GIVEN), overrides=words).recipe
    assert (given["batch_size"], given["grpo"]["num_generations"], given["training"]["max_steps"]) == (1, 4, 10)


def test_what_the_file_leaves_to_the_base_config_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, {"grpo_config": {"beta": 0.04}, "base_config": "base_config.yaml"})
    got = config_files.imported(path)
    assert (got.recipe["grpo"]["num_generations"], got.recipe["rollout"]["total_generation_steps"]) == (2, 768)
    assert got.recipe["optimizer"]["learning_rate"] == 3e-5 and got.recipe["optimizer"]["warmup_ratio"] == 0.5
    assert (got.recipe["training"]["max_steps"], got.recipe["training"]["num_epochs"]) == (10, 0)
    base = "; the file does not say it, and tunix's base_config.yaml does"
    assert got.notes["rollout_config.total_generation_steps"].endswith(base)
    assert got.notes["rl_training_config.max_steps"] == "training.max_steps is 10" + base


def test_any_key_of_the_training_section_takes_the_place_of_all_of_it(tmp_path: Path) -> None:
    path = write(tmp_path, {"grpo_config": {"beta": 0.04}, "rl_training_config": {"eval_every_n_steps": 5}})
    got = config_files.imported(path)
    optimizer = {"b1": 0.9, "b2": 0.999, "weight_decay": 1e-4, "max_grad_norm": 1e9}
    assert got.recipe["optimizer"] == {"learning_rate": 3e-6, "warmup_ratio": 0.1} | optimizer
    assert got.recipe["training"]["num_epochs"] == 1
    section = "rl_training_config.actor_optimizer_config"
    assert "is 1000000000.0; the file does not say it, and optax.adamw does" in got.notes[f"{section}.max_grad_norm"]
    assert "type optimizer.learning_rate=VALUE" in got.notes[f"{section}.peak_value"]
    assert "type training.max_steps=N training.num_epochs=0" in got.notes["rl_training_config.max_steps"]


@pytest.mark.parametrize(
    ("changes", "key", "value", "note"),
    [
        ({"num_train_epochs": 2}, "training.num_epochs", 2, "num_train_epochs"),
        ({"num_batches": 50, "num_train_epochs": 3}, "training.max_steps", 150, "num_batches"),
        (
            {"rl_training_config__max_steps": 101, "grpo_config__num_iterations": 2},
            "training.max_steps",
            51,
            "rl_training_config.max_steps",
        ),
        ({"rl_training_config__train_micro_batch_size": 4}, "training.gradient_accumulation_steps", 4, None),
        ({"rl_training_config__gradient_accumulation_steps": 2}, "training.gradient_accumulation_steps", 2, None),
        ({"rl_training_config__actor_optimizer_config__warmup_steps": 25}, "optimizer.warmup_ratio", 0.25, None),
        (
            {"rl_training_config__actor_optimizer_config__warmup_steps": "OUT", "rl_training_config__actor_optimizer_config__warmup_ratio": 0.3},
            "optimizer.warmup_ratio",
            0.3,
            None,
        ),
        ({"grpo_config__kl_loss_mode": "kl"}, "grpo.kl", "k1", None),
        ({"grpo_config__loss_agg_mode": "token-mean"}, "grpo.loss", "dapo", None),
        ({"grpo_config__loss_algo": "gspo-token"}, "grpo.loss", "gspo", None),
        ({"grpo_config__sampler_is": "token", "grpo_config__sampler_is_threshold": 3.0}, "grpo.importance_cap", 3.0, None),
        ({"grpo_config__sampler_is": None}, "grpo.importance_cap", None, None),
        ({"rollout_config__top_k": None, "rollout_config__top_p": None}, "rollout.top_k", 0, None),
        ({"actor_model_config__dtype": "float32"}, "model.compute_dtype", "float32", None),
        ({"actor_model_config__lora_config": {"rank": 16, "alpha": 2.0}}, "model.lora_rank", 16, None),
        ({"reference_model_config__rng_seed": 42}, "seed", 42, None),
        ({"actor_model_config__mesh__shape": [8, 2]}, "mesh.fsdp", 8, "rollout_model_config.mesh.shape"),
        ({"rl_training_config__checkpointing_options__save_interval_steps": 7}, "checkpoint.every_n_steps", 7, None),
    ],
)  # fmt: skip
def test_values_with_another_meaning_are_converted(
    tmp_path: Path, changes: dict[str, Any], key: str, value: Any, note: str | None
) -> None:
    given = config_files.imported(write(tmp_path, changed(**changes)))
    section, _, last = key.rpartition(".")
    assert (given.recipe[section] if section else given.recipe)[last] == value
    assert note is None or " is " in given.notes[note] or "type " in given.notes[note]


@pytest.mark.parametrize(
    ("changes", "key", "note"),
    [
        ({"rl_training_config__mini_batch_size": 8}, "rl_training_config.mini_batch_size", "type batch_size=8"),
        (
            {"rl_training_config__profiler_options": {"skip_first_n_steps": 1, "profiler_steps": 9}},
            "rl_training_config.profiler_options.profiler_steps",
            "type --profile FIRST-LAST, for 9 steps",
        ),
        ({"rl_training_config__checkpoint_root_directory": "/c"}, "rl_training_config.checkpoint_root_directory", "--runs /c"),
        ({"num_test_batches": 4}, "num_test_batches", "type data.num_test=N, where N is 4 x batch_size"),
        ({"actor_model_config__model_source": "gcs", "reference_model_config__model_source": "gcs",
          "rollout_model_config__model_source": "gcs"}, "actor_model_config.model_source", "type model.source=DIRECTORY"),
        ({"tokenizer_config__tokenizer_path": "other"}, "tokenizer_config.tokenizer_path", "type model.source=DIRECTORY"),
        ({"rollout_model_config__mesh__shape": "(2,8)"}, "rollout_model_config.mesh.shape", "type mesh.data=1 mesh.fsdp=2"),
        ({"vllm_config": {"hbm_utilization": 0.4}}, "vllm_config.hbm_utilization", "nothing to do: "),
        ({"rollout_engine": "sglang"}, "rollout_engine", "nothing to do: "),
        ({"actor_model_config__lora_config__weight_qtype": "nf4"}, "actor_model_config.lora_config.weight_qtype", "type podwright plan"),
        ({"rl_training_config__perf_metrics_options": {}}, "rl_training_config.perf_metrics_options", "nothing to do: "),
    ],
)  # fmt: skip
def test_what_has_no_counterpart_says_what_to_type(
    tmp_path: Path, changes: dict[str, Any], key: str, note: str
) -> None:
    assert note in config_files.imported(write(tmp_path, changed(**changes))).notes[key]


HUGE = 10**400


@pytest.mark.parametrize(
    ("given", "what", "fix"),
    [
        ("", "holds no mapping of keys", "or a file of tunix, with"),
        ("- grpo_config\n", "holds no mapping of keys", "or a file of tunix, with"),
        ("grpo_config: 5\n", "grpo_config is no key of tunix", "take it out"),
        ("grpo_config: [1]\n", "grpo_config is no key of tunix", "take it out"),
        ("grpo_config: {beta: 1, beta: 2}\n", "the key beta is there twice", "fix that line"),
        ("grpo_config.beta: 1\ngrpo_config: {beta: 2}\n", "has the key grpo_config.beta twice", "leave one"),
        ("grpo_config: {}\ngrpo_config.beta: 2\n", "key grpo_config and grpo_config.beta twice", "leave one"),
        (changed(grpo_config__gama=1), "grpo_config.gama is no key of tunix", "take it out"),
        (changed(batch_sice=1), "batch_sice is no key of tunix", "did you mean batch_size?"),
        (changed(actor_model_config__flash=1), "actor_model_config.flash is no key of tunix", "take it out"),
        (changed(batch_size="many"), "batch_size='many' must be a whole number", "change"),
        (changed(batch_size={"a": 1}), "batch_size.a is no key", "batch_size"),
        (changed(batch_size=HUGE), "must be a whole number from 1 to", "change"),
        (changed(batch_size=True), "batch_size=True must be a whole number", "change"),
        (changed(grpo_config__beta=HUGE), "grpo.beta=", "KL"),
        (changed(grpo_config__beta=[1]), "grpo.beta=[1]", "KL"),
        (changed(rl_training_config__max_steps=-3), "max_steps=-3 must be a whole number", "change"),
        (changed(num_train_epochs=1.5), "num_train_epochs=1.5 must be a whole number", "change"),
        (changed(rl_training_config__actor_optimizer_config__warmup_steps="x"), "warmup_steps='x' must be a number", ""),
        (changed(rl_training_config__actor_optimizer_config__decay_steps=1.5), "decay_steps=1.5 must be a whole", ""),
        (changed(rl_training_config__actor_optimizer_config__opt_type="sgd"), "opt_type='sgd' is not implemented", "adamw"),
        (
            changed(rl_training_config__actor_optimizer_config__schedule_type="constant_schedule"),
            "schedule_type='constant_schedule' is not implemented",
            "set it to warmup_cosine_decay_schedule",
        ),
        (changed(rl_training_config__actor_optimizer_config__end_value=1e-7), "end_value=1e-07 is not implemented", "0"),
        (changed(verl_compatible=True), "verl_compatible=True is not implemented", "set it to false"),
        (changed(grpo_config__loss_agg_mode="mean"), "loss_agg_mode='mean' has no counterpart", "token-mean"),
        (changed(grpo_config__loss_agg_mode={}), "loss_agg_mode={} has no counterpart", "token-mean"),
        (changed(actor_model_config__mesh__shape="(4,"), "mesh.shape='(4,' is no tuple", "write"),
        (changed(actor_model_config__mesh__shape="(4,4,4)"), "3 sizes and 2 names", "axis_names"),
        (changed(actor_model_config__mesh__axis_names="('ep','tp')"), "axis 'ep' of size 4", "fsdp"),
        (changed(actor_model_config__mesh__shape="__import__('os').getcwd()"), "is no tuple", "write"),
        (changed(actor_model_config__model_id="other/model"), "differ: policy, reference and rollout", "the same"),
        (changed(actor_model_config__model_id=7, reference_model_config__model_id=7, rollout_model_config__model_id=7),
         "model.source=7: must be text", "weights"),
        (changed(dataset_name="opus"), "dataset_name='opus' is not read here", "data.source=FILE.jsonl"),
        (changed(dataset_name=["gsm8k"]), "dataset_name=['gsm8k'] is not read here", "data.source=FILE.jsonl"),
        (changed(dataset_name={}), "dataset_name={} is not read here", "data.source=FILE.jsonl"),
        (changed(reward_functions=[1]), "reward_functions=[1] is no list of files", "my_rewards.py"),
        (changed(rl_training_config__train_micro_batch_size=5), "must divide batch_size=16", "divisor"),
    ],
)  # fmt: skip
def test_hostile_files_are_refused_in_one_line(tmp_path: Path, given: Any, what: str, fix: str) -> None:
    with pytest.raises(UserError) as refused:
        config_files.imported(write(tmp_path, given))
    assert what in refused.value.what and fix in refused.value.fix and "\n" not in refused.value.what


def test_words_after_a_file_are_checked(tmp_path: Path) -> None:
    path = write(tmp_path, GIVEN)
    for words, what in (
        (["batch_size"], "is not an override"),
        (["batch_size=1", "batch_size=2"], "the command line has the key batch_size twice"),
        (["batch_size={"], "cannot be read as a value"),
        (["batch=1"], "batch is no key of tunix"),
    ):
        with pytest.raises(UserError, match=what):
            config_files.imported(path, overrides=words)
    with pytest.raises(UserError, match="which has no phases"):
        config_files.imported(path, phase=1)
    path.write_text("llm_model_name: x\n")
    with pytest.raises(UserError, match="after a file of tunix only"):
        config_files.imported(path, overrides=["batch_size=1"])


def test_a_reward_file_that_is_not_here_is_named(tmp_path: Path) -> None:
    given = config_files.imported(
        write(tmp_path, changed(reward_functions=["tunix/cli/reward_fn/gsm8k.py"]), rewards=None)
    )
    assert "tunix/cli/reward_fn/gsm8k.py is not in this directory" in given.notes["reward_functions"]
    assert [r["function"].rpartition(":")[2] for r in given.recipe["rewards"]] == ["check_answer", "format_reward"]
    with pytest.raises(UserError, match=r"mine.py line 1 is not Python"):
        config_files.imported(write(tmp_path, GIVEN, rewards="def f(:\n"))


def test_the_words_of_a_person_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, GIVEN)
    code, out, _ = call(capsys, str(path))
    assert code == 0 and "grpo_config.beta: grpo.beta is 0.08\n" in out and "type: podwright run " in out
    assert call(capsys, str(path))[0] == 0, "the same recipe may be written again"
    assert "exists already" in call(capsys, str(path), "batch_size=1")[2]


GUIDE = Path(__file__).parents[4] / "shared" / "seeds" / "000_35e1bc9509e1c562.txt"


@pytest.mark.skipif(not GUIDE.is_file(), reason="the original's guide is not beside the repository")
def test_the_settings_and_the_command_of_the_guide_are_imported(tmp_path: Path) -> None:
    """Its YAML block, with the words that it types after override_config_file=."""
    text = GUIDE.read_text()
    blocks = [block.split("```")[0] for block in text.split("```yaml\n")[1:]]
    (block,) = [block for block in blocks if "grpo_config:" in block]
    command = text.split("override_config_file=")[1].split("```")[0].split("\n", 1)[1]
    words = [word for word in command.replace("\\", " ").split() if "=" in word]
    assert len(words) == 3
    given = config_files.imported(write(tmp_path, block), overrides=words)
    assert (given.recipe["batch_size"], given.recipe["grpo"]["num_generations"]) == (1, 4)
    assert given.recipe["training"]["max_steps"] == 10
    assert given.recipe["mesh"] == {"data": 1, "fsdp": 4, "tensor": 2}
    assert {*leaves(yaml.safe_load(block)), *(word.partition("=")[0] for word in words)} <= set(given.notes)


def test_the_command_of_the_training_script_is_imported(tmp_path: Path) -> None:
    """Every word that the original's first training script types after base_config.yaml."""
    section = "rl_training_config"
    words = [
        *("reference_model_config.model_name=qwen3-1.7b", "reference_model_config.model_id=Qwen/Qwen3-1.7B"),
        *("reference_model_config.model_source=huggingface", "reference_model_config.model_download_path=/tmp/m"),
        *("reference_model_config.intermediate_ckpt_dir=/tmp/c", "reference_model_config.rng_seed=42"),
        *(
            f"{role}_model_config.mesh.{key}"
            for role in ("reference", "actor", "rollout")
            for key in ("shape=(2,4)", "axis_names=('fsdp','tp')")
        ),
        *("tokenizer_config.tokenizer_path=Qwen/Qwen3-1.7B", "tokenizer_config.tokenizer_type=huggingface"),
        *("tokenizer_config.add_bos=false", "tokenizer_config.add_eos=true", "dataset_name=gsm8k", "batch_size=1"),
        *("num_batches=3738", "num_test_batches=100", "num_train_epochs=1"),
        *(f"{section}.actor_optimizer_config.{key}={value}" for key, value in OPTIMIZER.items()),
        *(f"{section}.eval_every_n_steps=1", f"{section}.max_steps=1"),
        *(
            f"{section}.metrics_logging_options.log_dir=/tmp/t",
            f"{section}.metrics_logging_options.flush_every_n_steps=1",
        ),
        *(f"{section}.checkpointing_options.save_interval_steps=1", f"{section}.checkpointing_options.max_to_keep=2"),
        *(f"{section}.profiler_options={{}}", "rollout_config.total_generation_steps=768", "rollout_config.top_k=50"),
        *("rollout_engine=sglang", "offload_to_cpu=false", "grpo_config.num_generations=2", "grpo_config.epsilon=0.2"),
        "reward_functions=['tunix/cli/reward_fn/gsm8k.py']",
    ]
    path = write(tmp_path, "grpo_config: {}\n")
    given = config_files.imported(path, overrides=words)
    assert {word.partition("=")[0] for word in words} <= set(given.notes)
    recipe = given.recipe
    assert (recipe["training"]["max_steps"], recipe["seed"], recipe["mesh"]["tensor"]) == (1, 42, 4)
