"""A checkpoint that is not implemented is refused by plan and reader, in the same words; any other has transformers' logits."""

import json
import os
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from podwright.errors import UserError
from podwright.models import convert, param, qwen3
from podwright.plan.checks import inputs
from podwright.recipe import hf_config, hf_weights
from podwright.recipe.models import MODELS, Qwen3Dims
from podwright.recipe.schema import GrpoModel
from podwright.train import answers
from tests.unit.models import reference

TOKENS = np.random.default_rng(0).integers(0, 97, (2, 12))
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
GATE = "model.layers.1.mlp.gate_proj.weight"


def change(path, drop=(), **values):
    """Keys of config.json that are given another value, or none."""
    file = path / "config.json"
    config = {k: v for k, v in json.loads(file.read_text()).items() if k not in drop}
    file.write_text(json.dumps(config | values))


def change_tensors(path, changes):
    """Tensors by name that are put in the file, or taken out (None)."""
    tensors = load_file(path / "model.safetensors") | changes
    tensors = {name: value.contiguous() for name, value in tensors.items() if value is not None}
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


def planned(path, name="mine"):
    """Errors and what is inconclusive, by the control half and by the weights' check of the other half."""
    found, dims = inputs.model(GrpoModel(name=name, source=str(path)), path)
    listed = [(f.level, f"{f.message}; {f.fix}") for f in found if f.level in ("error", "inconclusive")]
    if dims is not None and not listed:
        try:
            records = answers.without_weights(str(path), hf_weights.qwen3(dims))
            listed = [(record["level"], f"{record['message']}; {record['fix']}") for record in records]
        except UserError as e:
            listed = [("error", str(e))]
    return listed


def refusal(path):
    """What the reader says, one line with what to type; the plan says the same."""
    with pytest.raises(UserError) as e:
        convert.read_config(path)
    ((level, message),) = planned(path)
    assert level == "error" and message.removeprefix(f"model.source={path}: ") == str(e.value)
    assert "\n" not in message and e.value.fix
    return message


def same_logits(path, mesh):
    dims = convert.read_config(path)
    params = convert.read(path, dims, mesh)
    ours = qwen3.hidden(dims, params, TOKENS, jnp.float32, mesh)[0] @ qwen3.head(params).T
    theirs = transformers.Qwen3ForCausalLM.from_pretrained(path)
    with torch.no_grad():
        np.testing.assert_allclose(ours, theirs(torch.tensor(TOKENS)).logits.numpy(), atol=1e-4)
    assert planned(path) == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rope_scaling": YARN}, "rope_type='yarn'"),
        ({"rope_parameters": YARN | {"rope_theta": 1e4}}, "rope_type='yarn'"),
        ({"rope_scaling": {"rope_type": "default", "rope_theta": 1e6}}, "rope_scaling={.* beside rope_parameters={"),
        ({"rope_scaling": {"factor": 4.0}}, r"rope_scaling\.factor=4\.0"),
        ({"rope_scaling": 3}, "rope_scaling=3"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ({"attention_bias": True}, "attention_bias=True"),
        ({"attention_dropout": 0.1}, r"attention_dropout=0\.1"),
        ({"use_sliding_window": True, "sliding_window": 8}, "use_sliding_window=True"),
        (
            {"layer_types": ["sliding_attention"] * 3},
            r"layer_types\[0\]='sliding_attention', which is not supported",
        ),
        ({"layer_types": ["full_attention"] * 2}, "has 2 layer_types, and num_hidden_layers=3 needs 3"),
        ({"layer_types": ["full_attention"] * 4}, "has 4 layer_types, and num_hidden_layers=3 needs 3"),
        ({"layer_types": "full_attention"}, "layer_types='full_attention': "),
        (
            {"quantization_config": {"quant_method": "fp8"}},
            r"quantization_config \(fp8\).*; give the bfloat16 checkpoint",
        ),
        ({"final_logit_softcapping": 30.0}, r"final_logit_softcapping=30\.0.*; delete final_logit_softcapping"),
        ({"tie_word_embeddings": None}, "tie_word_embeddings=None"),
        ({"rms_norm_eps": "1e-6"}, "rms_norm_eps='1e-6'"),
        ({"rope_theta": None, "rope_parameters": None}, "rope_theta=None"),
        ({"rope_theta": 10**400, "rope_parameters": None}, r"rope_theta=1000+\.\.\.0+: "),
        ({"rms_norm_eps": 10**400}, r"rms_norm_eps=1000+\.\.\.0+: "),
        ({"head_dim": None}, "head_dim=None"),
        ({"hidden_size": 48.0}, r"hidden_size=48\.0"),
        ({"num_key_value_heads": 3}, "num_key_value_heads=3"),
        ({"model_type": "qwen3_moe"}, "model_type='qwen3_moe'"),
    ],
)
def test_a_value_of_config_json_that_is_not_implemented_is_refused(tmp_path, values, words):
    reference.checkpoint(tmp_path)
    change(tmp_path, **values)
    message = refusal(tmp_path)
    assert re.search(words, message), message


def test_two_layers_of_three_are_refused(tmp_path):
    reference.checkpoint(tmp_path)
    change(tmp_path, num_hidden_layers=2, layer_types=["full_attention"] * 2)
    assert "weight model.layers.2." in (message := refusal(tmp_path)) and "has no place in the model" in message


def test_a_fourth_layer_that_the_file_lacks_is_refused(tmp_path):
    reference.checkpoint(tmp_path)
    change(tmp_path, num_hidden_layers=4, layer_types=["full_attention"] * 4)
    assert "weight model.layers.3." in (message := refusal(tmp_path)) and "is not in" in message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model.layers.0.self_attn.q_proj.bias": torch.ones(64)}, "q_proj.bias in .* has no place in the model"),
        ({GATE: torch.ones(48, 80)}, r"gate_proj.weight in .* has shape \[48, 80\]; .* \[80, 48\]"),
        ({GATE: torch.ones(40, 96)}, r"has shape \[40, 96\]; its config.json asks for \[80, 48\]"),
        ({GATE: None}, "gate_proj.weight is not in"),
        ({GATE: torch.ones(80, 48).to(torch.float8_e4m3fn)}, "is F8_E4M3, which is not supported"),
    ],
)
def test_weights_of_other_names_shapes_or_dtypes_are_refused(tmp_path, changes, words):
    reference.checkpoint(tmp_path)
    change_tensors(tmp_path, changes)
    message = refusal(tmp_path)
    assert re.search(words, message), message


def test_a_tied_model_whose_file_has_another_head_is_refused_and_the_remedy_gives_the_logits(tmp_path, one_device):
    reference.checkpoint(tmp_path)
    change_tensors(tmp_path, {"lm_head.weight": torch.randn(97, 48)})
    assert refusal(tmp_path).endswith(
        "write tie_word_embeddings: false into config.json if the model was trained with a head of its own"
    )
    change(tmp_path, tie_word_embeddings=False)
    same_logits(tmp_path, one_device)


def test_a_tied_model_may_have_a_copy_of_its_embedding_as_its_head(tmp_path, one_device):
    """As the published files of Qwen3-0.6B and 1.7B do."""
    reference.checkpoint(tmp_path)
    change_tensors(
        tmp_path, {"lm_head.weight": load_file(tmp_path / "model.safetensors")["model.embed_tokens.weight"].clone()}
    )
    same_logits(tmp_path, one_device)


def test_a_head_that_differs_between_the_samples_is_refused_by_the_reader(tmp_path, one_device, monkeypatch):
    """The plan looks at pieces of a large one."""
    reference.checkpoint(tmp_path)
    head = load_file(tmp_path / "model.safetensors")["model.embed_tokens.weight"].clone()
    head[50, 7] += 1
    change_tensors(tmp_path, {"lm_head.weight": head})
    assert "differs from model.embed_tokens.weight" in refusal(tmp_path)
    monkeypatch.setattr(hf_weights, "_SAMPLES", (32, 4))
    dims = convert.read_config(tmp_path)
    with pytest.raises(UserError, match=r"differs from model\.embed_tokens\.weight"):
        convert.read(tmp_path, dims, one_device)


def test_what_config_json_leaves_out_has_the_default_of_transformers(tmp_path, one_device):
    """Of rope_theta 10,000, of head_dim 128, of positions 32,768."""
    reference.checkpoint(tmp_path, head_dim=128, rope_theta=1e4)
    change(tmp_path, drop=("rope_theta", "rope_parameters", "head_dim", "max_position_embeddings"))
    dims = convert.read_config(tmp_path)
    assert (dims.rope_theta, dims.head_dim, dims.max_positions) == (1e4, 128, 32768)
    same_logits(tmp_path, one_device)


@pytest.mark.parametrize(
    "values",
    [
        {"rope_parameters": {"rope_type": "default"}, "rope_theta": 5e5},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 3e5}, "rope_theta": 5e5},
        {"rope_parameters": None, "rope_scaling": {"type": "default", "rope_theta": 3e5}, "rope_theta": 5e5},
    ],
)
def test_the_base_of_the_rotation_is_the_one_that_transformers_takes(tmp_path, one_device, values):
    reference.checkpoint(tmp_path)
    change(tmp_path, **values)
    same_logits(tmp_path, one_device)


@pytest.mark.parametrize("theta", [1e-3, 1.0, 2.5, 1_000_000, 1e38, 1e308])
def test_the_ends_of_the_range_of_rope_theta_give_the_logits_of_transformers(tmp_path, one_device, theta):
    reference.checkpoint(tmp_path, rope_theta=theta)
    same_logits(tmp_path, one_device)


@pytest.mark.parametrize(
    "values",
    [
        {"architectures": None},
        {"architectures": ["LlamaForCausalLM"]},
        {"architectures": ["Qwen3ForCausalLM", "Qwen3Model"]},
        {"eos_token_id": 9999},
        {"eos_token_id": [5, 9999]},
        {"hidden_act": "swish"},
        {"attention_dropout": 0.0},
        {"attention_dropout": -0.0},
        {"pretraining_tp": 1.0},
        {"pruned_heads": {}},
        {"use_mrope": False},
        {"sliding_window": 4},
        {"rms_norm_eps": 1e-30},
        {"rms_norm_eps": 1e30},
    ],
    ids=str,
)
def test_a_value_without_effect_or_at_the_edge_of_what_is_implemented_keeps_the_logits(tmp_path, one_device, values):
    """`architectures` names a class of transformers, and the model is the one of `model_type`."""
    reference.checkpoint(tmp_path)
    change(tmp_path, **values)
    same_logits(tmp_path, one_device)


def test_buffers_that_old_files_hold_are_passed_over(tmp_path, one_device):
    reference.checkpoint(tmp_path)
    change_tensors(tmp_path, {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)})
    same_logits(tmp_path, one_device)


def test_a_folder_with_config_json_alone_is_inconclusive_in_a_plan_and_cannot_be_run(tmp_path):
    reference.checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    ((level, message),) = planned(tmp_path)
    assert (
        level == "inconclusive" and "a config.json and no weights, which a run needs; put model.safetensors" in message
    )
    with pytest.raises(UserError, match=r"has no model\.safetensors; check that the download is complete"):
        convert.read_config(tmp_path)


def torn(file, how):
    data = file.read_bytes()
    damaged = {
        "empty": b"",
        "no safetensors": b"no weights at all, but more than eight bytes",
        "half": data[: len(data) // 2],
        "longer": data + b"?",
        "header": data[:8] + b"?" + data[9:],
        "a list": b"\x02" + bytes(7) + b"[]",
        "deep": (8000).to_bytes(8, "little") + b"[" * 8000,
        "of strings": (9).to_bytes(8, "little") + b'{"a":"b"}',
    }
    file.write_bytes(damaged[how])


@pytest.mark.parametrize("how", ["empty", "no safetensors", "half", "longer", "header", "a list", "deep", "of strings"])
def test_a_damaged_file_is_refused_by_its_header(tmp_path, how):
    reference.checkpoint(tmp_path)
    torn(tmp_path / "model.safetensors", how)
    assert "model.safetensors cannot be read" in refusal(tmp_path)


def test_shards_are_checked_against_their_index(tmp_path, one_device):
    reference.checkpoint(tmp_path, max_shard_size="60KB")
    same_logits(tmp_path, one_device)
    index = tmp_path / "model.safetensors.index.json"
    whole = json.loads(index.read_text())
    shards = sorted(set(whole["weight_map"].values()))
    for weight_map, words in (
        (whole["weight_map"] | {"model.norm.bias": shards[0]}, "model.norm.bias is a weight that the index lists, but"),
        (
            {k: v for k, v in whole["weight_map"].items() if k != GATE},
            f"{GATE} is a weight that the index does not list",
        ),
        (
            whole["weight_map"] | {"x": "gone.safetensors"},
            "has no gone.safetensors; check that the download is complete",
        ),
        (1, "model.safetensors.index.json has no weight_map"),
    ):
        index.write_text(json.dumps({"weight_map": weight_map}))
        assert words in refusal(tmp_path)
    index.write_text(json.dumps(whole))
    (tmp_path / shards[1]).unlink()
    assert f"has no {shards[1]}" in refusal(tmp_path)


def test_the_shapes_are_those_of_what_is_written(tmp_path, one_device):
    for tied in (True, False):
        dims = Qwen3Dims(48, 80, 2, 4, 2, 16, 97, tied)
        out = tmp_path / str(tied)
        convert.write(out, dims, param.initialize(qwen3.declare(dims), one_device, 0), one_device, "bfloat16", (5,), 0)
        assert convert.read_config(out) == dims


def test_the_config_json_that_is_published_with_qwen3_is_read():
    """Every key of huggingface.co/Qwen/Qwen3-1.7B; an allow-list must not refuse what a shipped recipe names."""
    published = {
        **{"architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0},
        **{"bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu"},
        **{"hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144, "max_position_embeddings": 40960},
        **{"max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28},
        **{"num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000},
        **{"sliding_window": None, "tie_word_embeddings": True, "torch_dtype": "bfloat16"},
        **{"transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False, "vocab_size": 151936},
    }
    assert hf_config.qwen3(published) == MODELS["qwen3-1.7b"]


def test_weights_in_another_layout_are_refused_with_what_to_type(tmp_path):
    """In a plan and by the reader; a file of training's arguments is no weights."""
    reference.checkpoint(tmp_path)
    single = tmp_path / "model.safetensors"
    content = single.read_bytes()
    layouts = ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "consolidated.00.pth", "model-q4.gguf"]
    layouts += ["weights.safetensors", "model-00001-of-00002.safetensors"]
    single.unlink()
    (tmp_path / "training_args.bin").touch()
    for name in layouts:
        (tmp_path / name).write_bytes(content)
        assert f"has {name}, and neither model.safetensors nor model.safetensors.index.json" in refusal(tmp_path)
        (tmp_path / name).unlink()
    single.symlink_to("elsewhere")
    assert "model.safetensors is a link to elsewhere, which is not there; fix the link" in refusal(tmp_path)
    single.unlink()
    for make, kind in ((Path.mkdir, "a directory"), (os.mkfifo, "a pipe")):
        make(single)
        assert f"{single} is {kind}, not a file; " in refusal(tmp_path)
        single.rmdir() if single.is_dir() else single.unlink()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("at", [0, -1])
def test_a_weight_that_is_not_finite_is_refused_by_plan_and_reader(tmp_path, value, dtype, at):
    reference.checkpoint(tmp_path)
    change_tensors(tmp_path, {GATE: not_finite(tmp_path, value, dtype, at)})
    assert f"weight {GATE} in {tmp_path} holds values that are not finite" in refusal(tmp_path)
    change_tensors(tmp_path, {GATE: not_finite(tmp_path, 3e4, dtype, at)})
    assert not planned(tmp_path)


@pytest.mark.parametrize("at", [0, 100, -1])
def test_a_weight_beyond_float32_is_refused(tmp_path, one_device, monkeypatch, at):
    reference.checkpoint(tmp_path)
    monkeypatch.setattr(hf_weights, "_LOOKED_AT", 8)
    change_tensors(tmp_path, {GATE: not_finite(tmp_path, 3.4e38, torch.float64, at)})
    assert not planned(tmp_path)
    change_tensors(tmp_path, {GATE: not_finite(tmp_path, -1e300, torch.float64, at)})
    words = f"weight {GATE} in {tmp_path} holds values that are not finite in float32"
    if at != 100:
        assert words in refusal(tmp_path)
    with pytest.raises(UserError, match=re.escape(words)):
        convert.read(tmp_path, convert.read_config(tmp_path), one_device)


def test_a_value_that_is_not_finite_between_the_ends_of_a_weight_is_refused_by_the_reader(
    tmp_path, one_device, monkeypatch
):
    reference.checkpoint(tmp_path)
    monkeypatch.setattr(hf_weights, "_LOOKED_AT", 8)
    change_tensors(tmp_path, {GATE: not_finite(tmp_path, float("nan"), torch.float32, 100)})
    assert not planned(tmp_path)
    with pytest.raises(UserError, match=f"weight {GATE} .* not finite"):
        convert.read(tmp_path, convert.read_config(tmp_path), one_device)


def not_finite(path, value, dtype, at):
    """The gate of the second layer with a value among its own."""
    tensor = load_file(path / "model.safetensors")[GATE].to(dtype)
    tensor.view(-1)[at] = value
    return tensor


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rope_parameters": [1]}, r"rope_parameters=\[1\]: .*; give the checkpoint's own"),
        ({"rope_scaling": {"rope_type": 3}}, "rope_type=3, which is not supported"),
        ({"hidden_act": 3}, "hidden_act=3, which is not supported"),
        ({"use_sliding_window": "yes"}, "use_sliding_window='yes', which is not supported"),
        ({"eos_token_id": "5"}, "eos_token_id='5': "),
        ({"eos_token_id": [5, "6"]}, r"eos_token_id=\[5, '6'\]: "),
        ({"bos_token_id": True}, "bos_token_id=True: "),
        ({"pad_token_id": [5]}, r"pad_token_id=\[5\]: "),
        ({"pretraining_tp": "1"}, "pretraining_tp='1', which is not supported"),
        ({"quantization_config": "x"}, "quantization_config \\('x'\\): the weights are quantized"),
    ],
)
def test_a_value_of_another_type_is_named(tmp_path, values, words):
    reference.checkpoint(tmp_path)
    change(tmp_path, drop=("rope_parameters",) if "rope_scaling" in values else (), **values)
    assert re.search(words, refusal(tmp_path)), refusal(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"weight_map": {', r"index\.json has no weight_map"),
        ('{"metadata": {}}', r"index\.json has no weight_map"),
        ('{"weight_map": []}', r"index\.json has no weight_map"),
        ('{"weight_map": {}}', r"index\.json has no weight_map"),
        ("[]", r"index\.json has no weight_map"),
        ('{"weight_map": {"a": null}}', r"index\.json has no weight_map"),
        ("version https://git-lfs.github.com/spec/v1\n", r"index\.json is a pointer of git-lfs"),
    ],
)
def test_a_damaged_index_of_shards_is_named(tmp_path, content, words):
    reference.checkpoint(tmp_path, max_shard_size="20KB")
    (tmp_path / hf_weights.INDEX).write_text(content)
    assert re.search(words, refusal_of_weights(tmp_path)), refusal_of_weights(tmp_path)


def refusal_of_weights(path):
    with pytest.raises(UserError) as e:
        hf_weights.check(path, hf_weights.qwen3(hf_config.qwen3(hf_config.read(path))))
    ((level, message),) = planned(path)
    assert level == "error" and message == str(e.value)
    return message


def test_a_pointer_of_git_lfs_is_called_that_and_the_command_is_named(tmp_path):
    reference.checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 1\n")
    assert refusal_of_weights(tmp_path).endswith(
        f"is a pointer of git-lfs, and not the file itself; type git -C {tmp_path} lfs pull"
    )


@pytest.mark.parametrize("prefix", ["student.", "encoder.module."])
def test_a_prefix_of_no_wrapper_is_refused(tmp_path, prefix):
    reference.checkpoint(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({prefix + name: value for name, value in tensors.items()}, tmp_path / "model.safetensors")
    assert re.search(f"weight model.* is not in .*, which has {prefix}model", refusal_of_weights(tmp_path))


@pytest.mark.parametrize("prefix", ["_forward_module.", "pretrained_model.", "actor_module.", "actor_module.module."])
def test_names_of_deepspeed_trl_and_verl_are_read(tmp_path, prefix):
    reference.checkpoint(tmp_path)
    shapes = hf_weights.qwen3(hf_config.qwen3(hf_config.read(tmp_path)))
    tensors = load_file(tmp_path / "model.safetensors")
    wrapped = {prefix + name: value for name, value in tensors.items()}
    head = {"v_head.summary.weight": torch.ones(1, 48), "v_head.summary.bias": torch.ones(1)}
    save_file(wrapped | head, tmp_path / "model.safetensors")
    assert shapes.keys() <= hf_weights.check(tmp_path, shapes).keys()


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (
            "checkpoint-100/config.json",
            "has no config.json, but checkpoint-100 in it has; type model.source=/.*/checkpoint-100$",
        ),
        ("snapshots/abc/config.json", "type model.source=/.*/snapshots/abc$"),
        ("models--Qwen--Q3/snapshots/abc/config.json", "type model.source=/.*/models--Qwen--Q3/snapshots/abc$"),
        ("model-q4.gguf", "has no readable config.json"),
        ("_METADATA", "has no readable config.json"),
        ("adapter_config.json", r"holds an adapter \(adapter_config.json\) that is not merged"),
    ],
)
def test_a_directory_of_something_else_is_called_what_it_is(tmp_path, file, words):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text('{"model_type": "qwen3"}')
    ((level, message),) = planned(tmp_path)
    assert level == "error" and re.search(words, message), message


def test_of_several_models_in_a_directory_the_newest_is_named(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        os.utime(tmp_path / name / "config.json", (ord(name), ord(name)))
    assert f"but b in it has; type model.source={tmp_path}/b" in refusal(tmp_path)


def test_a_run_is_no_model_and_says_how_to_export_it(tmp_path):
    for name in ("recipe.json", "journal.jsonl", "start/config.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    export = f"type podwright export {tmp_path} {tmp_path}-model, and give model.source {tmp_path}-model"
    assert f"{tmp_path} is a run, not a model; {export}" in refusal(tmp_path)


def test_an_adapter_beside_weights_is_refused(tmp_path):
    reference.checkpoint(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "holds an adapter (adapter_config.json) that is not merged; type in Python" in refusal_of_weights(tmp_path)
