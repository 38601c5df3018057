"""Batch, mesh, remat and sharding as MaxText takes them from its arguments."""

import pytest

from podwright.errors import UserError
from podwright.recipe import load
from podwright.recipe.maxtext import architectures, arguments, published, remat, sharding
from podwright.recipe.maxtext.arguments import FREE, RunBatch
from tests.unit.recipe.maxtext.example import RAW, example


def test_a_batch_has_the_defaults_of_base_yml() -> None:
    assert arguments.batch({}) == RunBatch(12.0, 2048, 1)
    fraction = arguments.batch({"per_device_batch_size": "0.125", "max_target_length": "131_072"})
    assert (fraction.tokens_per_device, fraction.rows(512)) == (16384, 64)
    assert arguments.batch({"gradient_accumulation_steps": "4"}).rows(8) == 12 * 8 * 4


@pytest.mark.parametrize("text", ["0", "-1", "eight", "nan", "inf"])
def test_a_batch_size_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=f"per_device_batch_size={text} is not a number above 0"):
        arguments.batch({"per_device_batch_size": text})


def test_numbers_and_truth_values_are_read_as_maxtext_reads_them() -> None:
    for text, value in {"yes": True, "ON": True, "0": False, "n": False}.items():
        assert arguments.flag({"allow_split_physical_axes": text}, "allow_split_physical_axes") is value
    mesh = arguments.ici(
        {"ici_fsdp_parallelism": "8.0", "ici_tensor_parallelism": "-1.0", "ici_expert_parallelism": "0x2"}
    )
    assert (mesh["fsdp"], mesh["tensor"], mesh["expert"]) == (8, FREE, 2)
    changes = {"base_mlp_dim": "1e4", "vocab_size": "0x20000", "logits_via_embedding": "yes"}
    model = architectures.find({"model_name": "llama3.1-8b"} | changes)
    assert (model.mlp_dim, model.vocab_size, model.logits_via_embedding) == (10_000, 131_072, True)
    for key, text in {"base_mlp_dim": "1.5", "vocab_size": "inf", "logits_via_embedding": "maybe"}.items():
        with pytest.raises(UserError) as refused:
            architectures.find({"model_name": "llama3.1-8b", key: text})
        assert refused.value.what.startswith(f"{key}={text} is ")


def test_the_free_axis_takes_what_is_left() -> None:
    mesh = arguments.ici({"ici_data_parallelism": "2", "ici_tensor_parallelism": "4"})
    assert {axis: n for axis, n in mesh.items() if n != 1} == {"data": 2, "fsdp": FREE, "tensor": 4}
    filled = arguments.filled(mesh, 64)
    assert filled and (filled["fsdp"], filled["data"], filled["tensor"]) == (8, 2, 4)
    assert arguments.filled(mesh, 60) is None
    assert {axis: n for axis, n in arguments.dcn({}).items() if n != 1} == {"data": FREE}


def test_a_mesh_without_a_free_axis_has_to_come_out_and_two_free_axes_do_not() -> None:
    fixed = arguments.ici({"ici_fsdp_parallelism": "16", "ici_tensor_parallelism": "4"})
    assert arguments.filled(fixed, 64) == fixed and arguments.filled(fixed, 128) is None
    assert arguments.filled(arguments.ici({"ici_tensor_parallelism": "-1"}), 64) is None


def test_a_model_may_have_the_order_of_its_axes() -> None:
    """Of mesh_axes in deepseek3-671b-2dfsdp.yml; the index of an axis is the one in JAX's message."""
    assert arguments.axes({}).index("context") == 5
    assert arguments.axes({"model_name": "deepseek3-671b-2dfsdp"})[-2:] == ("expert", "context")


def test_full_remat_computes_everything_again_that_a_gradient_needs() -> None:
    again = remat.recomputed({})
    assert again == remat.Recomputed(True, True, True, True, True, False)
    assert remat.recomputed({"remat_policy": "FULL"}) == again
    assert remat.recomputed({"remat_policy": "none"}) == remat.Recomputed(False, False, False, False, False, False)
    assert remat.recomputed({"remat_policy": "save_everything"}) is None


def test_custom_remat_keeps_what_lies_on_the_device_or_the_host() -> None:
    kept = {"remat_policy": "custom", "context": "device", "query_proj": "offload", "qkv_proj": "remat"}
    again = remat.recomputed(kept)
    assert again == remat.Recomputed(False, True, False, True, True, False)
    fused = remat.recomputed({"remat_policy": "custom", "qkv_proj": "device", "mlpwi": "device", "out_proj": "device"})
    assert fused == remat.Recomputed(False, False, True, False, False, False)
    ignored = remat.recomputed({"remat_policy": "full", "context": "device", "num_vocab_tiling": "4"})
    assert ignored == remat.Recomputed(True, True, True, True, True, True)


def test_a_named_policy_keeps_what_its_name_says() -> None:
    assert remat.recomputed({"remat_policy": "qkv_proj_offloaded"}) == remat.Recomputed(
        False, False, True, True, True, False
    )
    assert remat.recomputed({"remat_policy": "minimal"}) == remat.Recomputed(False, False, True, False, False, False)


# model, largest power of two of devices over fsdp, x fsdp_transpose: what stops the next one
LIMITS = [
    ("deepseek3-671b", 512, "kv_lora_rank"),  # ValueError of JAX at 1024: full shape (512, 3, 128, 256)
    ("gemma4-26b", 256, "hidden size"),  # 2816 = 256 x 11, and the public recipe for 512 devices takes data=2
    ("gpt-oss-120b", 64, "hidden size"),  # 2880 = 64 x 45, and the public recipes take fsdp=64
    ("llama3.1-405b", 16384, "hidden size"),
]


@pytest.mark.parametrize(("name", "limit", "what"), LIMITS, ids=[row[0] for row in LIMITS])
def test_the_smallest_dimension_limits_what_weights_are_split_over(name: str, limit: int, what: str) -> None:
    dims = [d for d in sharding.dims(architectures.find({"model_name": name}), {}) if "fsdp" in d.axes]
    assert all(dim.size % limit == 0 for dim in dims)
    assert any(what in dim.what for dim in dims if dim.size % (2 * limit))


def test_experts_can_lie_on_the_axis_of_the_weights() -> None:
    model = architectures.find({"model_name": "deepseek3-671b"})
    plain = next(d for d in sharding.dims(model, {}) if d.what == "the number of experts")
    moved = next(d for d in sharding.dims(model, {"fsdp_shard_on_exp": "True"}) if d.what == "the number of experts")
    assert (plain.axes, moved.axes[0], moved.size) == (("expert",), "fsdp", 256)


@pytest.mark.parametrize("run", published.runs(), ids=lambda run: run.recipe)
def test_public_recipes_pass_the_rules_of_sharding(run: published.PublishedRun) -> None:
    """They were run with these meshes, so a rule that refuses one is wrong."""
    from podwright import slices
    from podwright.plan.checks import maxtext_mesh

    if run.model not in architectures.WITHOUT_FORMULA:
        where = slices.parse(run.on)
        findings = maxtext_mesh.check(run.arguments, architectures.find(run.arguments), where)
        # hybrid_ring meshes and split axes of two recipes are not among the arguments that decide their time
        refused = [f for f in findings if f.level == "error" and "links" not in f.message]
        assert not refused


def test_an_argument_of_maxtext_is_overridden_by_its_key() -> None:
    changed = load.override(example(), ["arguments.steps=10", "arguments.ici_data_parallelism=2"])
    assert list(changed.arguments) == [*RAW["arguments"], "ici_data_parallelism"]
    assert (changed.arguments["steps"], changed.arguments["ici_data_parallelism"]) == ("10", "2")
    assert load.override(example(), ["environment.JAX_PLATFORMS=cpu"]).environment == {"JAX_PLATFORMS": "cpu"}
    with pytest.raises(UserError, match=r"unknown key argument\.steps"):
        load.override(example(), ["argument.steps=10"])
