"""What a plan says of a MaxText recipe without a compiler."""

from pathlib import Path
from typing import Any

import pytest

from podwright import slices
from podwright.errors import UserError
from podwright.plan import kinds
from podwright.plan.checks import maxtext
from podwright.plan.findings import Finding
from podwright.plan.make import make
from podwright.plan.options import Destination
from podwright.recipe.maxtext.arguments import RunBatch
from podwright.recipe.maxtext.schema import MaxTextRecipe
from tests.unit.recipe.maxtext.example import RAW, example

LLAMA = {
    "model_name": "llama3.1-8b",
    "dataset_type": "synthetic",
    "steps": "10",
    "per_device_batch_size": "1",
    "max_target_length": "4096",
}


def recipe(topology: str = "tpu7x-4x4x4", **arguments: str) -> MaxTextRecipe:
    return example(topology=topology, arguments=LLAMA | arguments)


def findings(planned: MaxTextRecipe, on: str = "", cwd: Path = Path()) -> list[Finding]:
    where = slices.parse(on) if on else maxtext.written_for(planned)
    return kinds.of(planned).checks(planned, where, cwd)


def only(wanted: str, *arguments: Any, **keywords: Any) -> Finding:
    """The worst finding of a check."""
    order = ("error", "inconclusive", "warning", "info")
    return min((f for f in findings(*arguments, **keywords) if f.check == wanted), key=lambda f: order.index(f.level))


def test_a_recipe_is_planned_for_the_slice_that_it_names() -> None:
    planned = recipe("tpu7x-4x8x8")
    assert kinds.of(planned).written_for(planned) == slices.parse("tpu7x-4x8x8")
    assert kinds.of(planned).written_for(example(num_slices=2)) == slices.parse("2x tpu7x-4x4x4")
    assert only("slice", planned).message.endswith("its 64 hosts start together (gang size 64)")
    assert "start together" not in only("slice", example(topology="tpu7x-2x2x1")).message


def test_another_slice_is_a_warning_and_other_devices_an_error() -> None:
    other = only("slice", recipe(quantization="fp8_full"), "tpu7x-4x8x8")
    assert (
        other.level == "warning" and "XLA flags and fp8 tiles are for that slice, not for tpu7x-4x8x8" in other.message
    )
    assert other.fix == "type --on tpu7x-4x4x4, or import the recipe of tpu7x-4x8x8"
    assert only("slice", recipe(), "8xH100-80GB").level == "error"
    here = maxtext.check(recipe(), None, Path())
    assert [f.fix for f in here] == ["type --on tpu7x-4x4x4"]


def test_a_mesh_that_does_not_map_onto_the_links_has_jaxs_message_and_the_mesh_that_works() -> None:
    """The mesh of a run of ALModel on 2x4x4, refused by JAX with these words; fsdp=16 and tensor=4 ran."""
    wanted = {"ici_fsdp_parallelism": "8", "ici_tensor_parallelism": "4", "ici_context_parallelism": "2"}
    refused = only("mesh", recipe("tpu7x-2x4x4", **wanted))
    words = "Failed to find assignment for logical_axis_index 5 of size 2"
    assert refused.level == "error" and f"{words} (axis 5 is context)" in refused.message
    assert refused.fix == "type arguments.ici_fsdp_parallelism=16 arguments.ici_context_parallelism=1"
    rest = only("mesh", recipe("tpu7x-2x4x4", **wanted | {"ici_fsdp_parallelism": "-1"}))
    assert rest.fix == "type arguments.ici_fsdp_parallelism=16 arguments.ici_context_parallelism=1"
    works = wanted | {"ici_fsdp_parallelism": "16", "ici_context_parallelism": "1"}
    assert only("mesh", recipe("tpu7x-2x4x4", **works)).message == "mesh of a slice: fsdp=16 x tensor=4"
    assert only("mesh", recipe("tpu7x-2x4x4", allow_split_physical_axes="True", **wanted)).level == "info"


def test_a_mesh_has_to_come_out() -> None:
    product = only("mesh", recipe(ici_fsdp_parallelism="64"))
    assert product.message == "ici_fsdp_parallelism=64 = 64 is not the 128 devices of tpu7x-4x4x4"
    assert product.fix == "type arguments.ici_fsdp_parallelism=128"
    rest = only("mesh", recipe(ici_tensor_parallelism="3"))
    assert "ici_tensor_parallelism=3 = 3 does not divide the 128 devices" in rest.message
    twice = only("mesh", recipe(ici_tensor_parallelism="-1"))
    assert "ici_fsdp_parallelism and ici_tensor_parallelism are both -1" in twice.message
    assert "ici_fsdp_parallelism=x is not a whole number" in only("mesh", recipe(ici_fsdp_parallelism="x")).message


def test_slices_have_a_mesh_of_their_own() -> None:
    two = recipe(dcn_data_parallelism="-1")
    assert only("mesh", two, "2x tpu7x-4x4x4").message == "mesh of a slice: fsdp=128; over 2 slices: data=2"
    wrong = only("mesh", recipe(dcn_data_parallelism="1", dcn_fsdp_parallelism="4"), "2x tpu7x-4x4x4")
    assert wrong.message == "dcn_fsdp_parallelism=4 = 4 is not the 2 slices of 2x tpu7x-4x4x4"
    assert wrong.fix == "type arguments.dcn_data_parallelism=-1"
    few = only("mesh", recipe(ici_fsdp_parallelism="64", dcn_data_parallelism="2"), "2x tpu7x-4x4x4")
    assert few.message == "ici_fsdp_parallelism=64 = 64 is not the 128 devices of each slice of 2x tpu7x-4x4x4"
    assert few.fix == "type arguments.ici_fsdp_parallelism=128"
    # MaxText does not look at the network's axes where there is one slice
    assert only("mesh", recipe(dcn_data_parallelism="1", dcn_fsdp_parallelism="4")).level == "info"


def test_deepseek_cannot_be_split_over_more_than_512_devices() -> None:
    """As the field met it: 'global size of its dimension 0 should be divisible by 1024, but it is equal to 512'."""
    deepseek = {"model_name": "deepseek3-671b", "use_2d_fsdp_sharding": "True", "allow_split_physical_axes": "True"}
    deepseek["ici_fsdp_transpose_parallelism"] = "2"
    fits = recipe("tpu7x-4x8x8", **deepseek)
    assert only("mesh", fits).message == "mesh of a slice: fsdp=256 x fsdp_transpose=2"
    refused = only("mesh", recipe("tpu7x-8x8x8", **deepseek))
    assert refused.message.startswith(
        "fsdp=512 does not divide the number of experts, 256; fsdp=512 x fsdp_transpose=2 = 1024 does"
    )
    assert len(refused.message) <= 160
    assert refused.fix == "type arguments.ici_data_parallelism=2 arguments.ici_fsdp_parallelism=256"
    data = deepseek | {"ici_data_parallelism": "2"}
    twice = only("mesh", recipe("tpu7x-8x8x16", **data)).fix
    assert twice.startswith("type arguments.ici_data_parallelism=4 ")
    priced = only("mesh", recipe("tpu7x-8x8x8", **data)).message
    assert priced.startswith("mesh of a slice: data=2 x fsdp=256 x fsdp_transpose=2; with arguments.ici_data_para")
    assert "lose about 45 % per chip" in priced
    few = only("mesh", recipe("tpu7x-4x8x8", **data | {"ici_fsdp_parallelism": "128"}))
    assert few.message == "mesh of a slice: data=2 x fsdp=128 x fsdp_transpose=2"
    assert only("mesh", recipe("tpu7x-4x8x8", **deepseek, dcn_data_parallelism="2"), "2x tpu7x-4x8x8").level == "info"


def test_every_remedy_of_a_mesh_is_one_that_passes() -> None:
    from podwright.recipe import load

    for planned in (
        recipe("tpu7x-2x4x4", ici_fsdp_parallelism="8", ici_tensor_parallelism="4", ici_context_parallelism="2"),
        recipe("tpu7x-8x8x8", model_name="deepseek3-671b"),
        recipe(ici_fsdp_parallelism="64"),
        recipe("tpu7x-4x8x8", model_name="gpt-oss-120b"),
        recipe(model_name="mixtral-8x7b", ici_expert_parallelism="4", ici_tensor_parallelism="3"),
    ):
        words = only("mesh", planned).fix.removeprefix("type ")
        assert only("mesh", load.override(planned, words.split())).level == "info", words


def test_a_mesh_rule_of_ones_own_is_not_known() -> None:
    assert only("mesh", recipe(custom_mesh="hybrid_ring_64x4")).level == "inconclusive"


def test_the_batch_of_a_step_is_counted() -> None:
    """Public: gpt-oss-120b on 64 chips has a global batch of 1280 of 8192 tokens."""
    message = only("batch", recipe(per_device_batch_size="10.0", max_target_length="8192")).message
    assert message == "a step trains 1,280 sequences (per_device_batch_size=10 x 128 devices) of 8,192, 10.5 M tokens"
    micro = only("batch", recipe(gradient_accumulation_steps="2")).message
    assert micro.startswith("a step trains 256 sequences (per_device_batch_size=1 x 128 devices x 2 micro-batches)")


def test_a_fraction_of_a_sequence_a_device_needs_axes_that_split_sequences() -> None:
    long = {"per_device_batch_size": "0.125", "max_target_length": "131072"}
    assert only("batch", recipe("tpu7x-4x8x8", **long, ici_context_parallelism="8")).level == "info"
    alone = only("batch", recipe("tpu7x-4x8x8", **long))
    assert "64 sequences cannot be split over 512 batch shards (fsdp=512)" in alone.message
    assert alone.fix == "type arguments.per_device_batch_size=1"
    part = only("batch", recipe(per_device_batch_size="0.3"))
    assert part.message.endswith("= 38.4 is no whole number of sequences")
    assert part.fix == "type arguments.per_device_batch_size=1", "0.296875 x 128 are 38, which 128 shards do not divide"
    two = only("batch", recipe("tpu7x-4x8x8", **long, ici_data_parallelism="2"))
    assert "64 sequences cannot be split over 512 batch shards (data=2 x fsdp=256)" in two.message
    few = only("batch", recipe("tpu7x-4x8x8", **long, ici_context_parallelism="2"))
    assert "64 sequences cannot be split over 256 batch shards (fsdp=256)" in few.message
    odd = only(
        "batch", recipe("tpu7x-4x8x8", per_device_batch_size="1", max_target_length="4104", ici_context_parallelism="8")
    )
    assert odd.fix == "type arguments.max_target_length=4112"


@pytest.mark.parametrize("size", ["0.3", "0.001", "0.7", "1.7", "2.3", "12.34"])
@pytest.mark.parametrize(
    ("topology", "mesh"),
    [
        ("tpu7x-4x4x4", {}),
        ("tpu7x-8x8x16", {"ici_context_parallelism": "16"}),
        ("v5p-4x4x12", {"ici_context_parallelism": "12", "base_emb_dim": "6144"}),
    ],
)
def test_the_batch_that_a_remedy_names_is_accepted(topology: str, mesh: dict[str, str], size: str) -> None:
    def batch_of(size: str) -> Finding:
        given = {"per_device_batch_size": size, "max_target_length": "6144", **mesh}
        return only("batch", recipe(topology, **given))

    wrong = batch_of(size)
    assert wrong.level == "error"
    fix = wrong.fix.removeprefix("type arguments.per_device_batch_size=")
    assert batch_of(fix).level == "info", fix


def test_a_dataset_that_ends_too_early_is_refused(tmp_path: Path) -> None:
    """500 rows lasted 7 of 10 steps of 64 sequences, and the run ended with StopIteration."""
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n' * 500)
    data = {"dataset_type": "hf", "hf_train_files": "rows.jsonl"}
    short = only("data", recipe("tpu7x-2x4x4", **data), cwd=tmp_path)
    assert short.level == "error" and "500 rows last 7 of 10 steps of 64 sequences" in short.message
    assert short.fix == "give 640 rows, or type arguments.steps=7"
    assert only("data", recipe("tpu7x-2x4x4", **data | {"steps": "7"}), cwd=tmp_path).level == "info"
    assert only("data", recipe("tpu7x-2x4x4", **data, num_epoch="2"), cwd=tmp_path).level == "info"
    assert maxtext.steps_of(500, RunBatch(1, 4096, 1), 64) == 7


def test_data_that_cannot_be_seen_from_here_is_named() -> None:
    unseen = only("data", recipe(dataset_type="grain", grain_train_files="${DATASET}/*.arrayrecord"))
    assert (unseen.level, unseen.message.split(" is ")[0]) == ("inconclusive", "data at ${DATASET}/*.arrayrecord")
    assert only("data", recipe(dataset_type="grain")).message == "dataset_type=grain names no data"
    assert only("data", recipe()).message.startswith("dataset_type=synthetic")


@pytest.mark.parametrize(
    ("topology", "quantization", "level"),
    [("tpu7x-4x4x4", "fp8_full", "info"), ("v6e-64", "fp8_full", "warning"), ("v5e-64", "fp8_full", "error"),
     ("v5e-64", "int8", "info"), ("tpu7x-4x4x4", "int8", "error"), ("tpu7x-4x4x4", "nf4", "inconclusive")],
)  # fmt: skip
def test_a_precision_needs_a_chip_that_has_it(topology: str, quantization: str, level: str) -> None:
    assert only("slice", recipe(topology, quantization=quantization)).level == level


def test_the_profiler_needs_steps_to_trace() -> None:
    traced = {"profiler": "xplane", "skip_first_n_steps_for_profiler": "8", "profiler_steps": "3"}
    late = only("profiler", recipe(**traced))
    assert late.message == "the profiler is to trace steps 8 to 10, and steps=10 ends before"
    assert late.fix == "type arguments.steps=11"
    assert not [f for f in findings(recipe(**traced | {"steps": "11"})) if f.check == "profiler"]


def test_a_model_or_key_that_is_not_known_is_inconclusive() -> None:
    assert only("model", recipe(model_name="my-model")).level == "inconclusive"
    key = only("model", recipe(per_device_batchsize="8"))
    assert key.level == "inconclusive" and key.fix.startswith("did you mean per_device_batch_size?")
    older = only("model", recipe(fsdp_shard_on_exp="True"))
    assert older.level == "info" and "called shard_exp_on_fsdp" in older.message


def test_a_model_of_a_fork_is_not_checked_and_has_no_figures() -> None:
    """ALModel, of which MaxText has no configuration: no closed form of another model stands for it."""
    planned = recipe("tpu7x-2x4x4", model_name="al_model")
    model = only("model", planned)
    assert model.message == (
        "the dimensions of model_name='al_model' are not known, so mesh, memory and step time are not checked"
    )
    assert "type --compile and maxtext=PATH of the checkout that has them" in model.fix
    plan = make(planned, Destination("tpu7x-2x4x4", slices.parse("tpu7x-2x4x4")))
    assert (plan.verdict, plan.step) == ("inconclusive", None)
    assert not any("weights and optimizer state take" in f.message for f in plan.findings)
    misspelled = only("model", recipe(model_name="llama3.1-8"))
    assert misspelled.fix.startswith("did you mean llama3.1-8b?; type --compile")


def test_a_key_of_a_fork_leaves_no_figure_of_the_plain_model() -> None:
    """A layer of another kind, such as KDA, has other weights."""
    plan = make(recipe(kda_num_heads="8"), Destination("tpu7x-4x4x4", slices.parse("tpu7x-4x4x4")))
    assert (plan.verdict, plan.step) == ("inconclusive", None)
    assert not any("weights and optimizer state take" in f.message for f in plan.findings)
    key = next(f for f in plan.findings if "kda_num_heads" in f.message)
    assert key.message.endswith("which refuses others: it, memory and step time were not checked")


@pytest.mark.parametrize(
    ("key", "value", "level", "fix"),
    [
        ("enable_checkpointing", "maybe", "error", "type arguments.enable_checkpointing=true or false"),
        ("scan_layers", "2", "error", "type arguments.scan_layers=true or false"),
        ("checkpoint_period", "often", "error", "type arguments.checkpoint_period=NUMBER"),
        ("learning_rate", "fast", "error", "type arguments.learning_rate=NUMBER"),
        ("dtype", "bf16", "inconclusive", "type arguments.dtype=bfloat16; there are bfloat16, float32, float16; --compile asks"),
        ("dataset_type", "hff", "inconclusive", "type arguments.dataset_type=hf; there are synthetic, hf, grain"),
        ("mesh_axes", "data", "inconclusive", "type arguments.mesh_axes=[data]; --compile asks"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_named(key: str, value: str, level: str, fix: str) -> None:
    named = [f for f in findings(recipe(**{key: value})) if f.message.startswith(f"{key}={value} is")]
    assert [f.level for f in named] == [level] and named[0].fix.startswith(fix)


def test_a_value_that_another_check_names_is_named_once() -> None:
    for key in ("per_device_batch_size", "ici_fsdp_parallelism", "base_emb_dim", "steps"):
        assert len([f for f in findings(recipe(**{key: "x"})) if f.message.startswith(f"{key}=x is")]) == 1, key


def test_what_hinders_a_submission_is_a_warning_of_the_plan() -> None:
    left = only("launch", recipe(base_output_directory="<your-bucket>"))
    assert left.level == "warning" and left.fix.startswith("type arguments.base_output_directory='${BASE_OUTPUT_DIR}'")
    upload = "| tee train.log && gsutil cp train.log ${ARTIFACT_DIR}/logs/train.log"
    unfinished = example(arguments=LLAMA, launch=RAW["launch"] | {"after": upload})
    levels = {f.message.partition(" ")[0]: f.level for f in findings(unfinished) if f.check == "launch"}
    assert levels == {"ARTIFACT_DIR": "warning"}
    assert "podwright render fills it in" in next(f.fix for f in findings(unfinished) if f.check == "launch")
    assert make(unfinished, Destination("tpu7x-4x4x4", slices.parse("tpu7x-4x4x4"))).step is not None


def test_a_value_of_the_training_that_is_left_open_is_inconclusive() -> None:
    for key in ("per_device_batch_size", "steps", "remat_policy", "model_name"):
        plan = make(recipe(**{key: "<value>"}), Destination("tpu7x-4x4x4", slices.parse("tpu7x-4x4x4")))
        assert plan.verdict == "inconclusive", key
        assert any(f.check == "launch" and f.message.startswith(f"arguments.{key} is") for f in plan.findings)


def test_a_diffusion_model_has_no_figures() -> None:
    wan = example(
        launch=RAW["launch"] | {"module": "src.maxdiffusion.train_wan"}, arguments={"model_name": "wan2.1", "fps": "16"}
    )
    plan = make(wan, Destination("tpu7x-4x4x4", slices.parse("tpu7x-4x4x4")))
    assert plan.step is None and plan.verdict == "inconclusive"
    assert (
        only("model", wan).message
        == "no formula is known for model_name=wan2.1, a video diffusion model of MaxDiffusion"
    )


def test_a_script_that_brings_its_own_arguments_is_inconclusive() -> None:
    fork = example(launch=RAW["launch"] | {"module": "/tmp/train.sh", "base_config": ""}, arguments={})
    assert {f.level for f in findings(fork) if f.check == "model"} == {"inconclusive"}
    assert not [f for f in findings(fork) if f.check in ("mesh", "batch", "data")]


def test_the_state_of_a_run_is_that_of_maxtexts_own_compile() -> None:
    """train_compile of llama3.1-70b 8k-bf16 for tpu7x-128 states arguments of 5.53 GB a device (MaxText 0.2.5, libtpu 0.0.51)."""
    from podwright.plan.estimates import maxtext_state

    planned = recipe(
        model_name="llama3.1-70b", mu_dtype="bfloat16", max_target_length="8192", per_device_batch_size="2"
    )
    where = slices.parse("tpu7x-4x4x4")
    state = maxtext_state.state_bytes(planned, where)
    assert state and state / 1e9 == pytest.approx(5.53, rel=0.005)
    assert maxtext_state.state_bytes(recipe(model_name="llama3.1-70b", opt_type="muon"), where) == pytest.approx(
        state / 10 * 8, rel=1e-6
    )
    assert maxtext_state.state_bytes(recipe(model_name="llama3.1-70b", opt_type="lion"), where) is None


def test_a_state_larger_than_the_memory_is_refused() -> None:
    planned = recipe("v6e-8", model_name="llama3.1-70b")
    too_large = only("memory", planned)
    assert too_large.level == "error" and "weights and optimizer state take 98.56 of 31.24 GiB" in too_large.message
    assert only("memory", recipe()).level == "info"


WRONG = ["0", "-3", "x", "1.5", "1e9", "9" * 400, "9" * 5000, "true", ""]
POSITIVE = ["base_emb_dim", "base_num_decoder_layers", "vocab_size", "head_dim", "base_num_query_heads", "base_num_kv_heads", "base_mlp_dim", "num_experts", "num_experts_per_tok", "interleave_moe_layer_step"]  # fmt: skip
OR_NONE = ["base_moe_mlp_dim", "first_num_dense_layers", "q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "shared_experts", "mtp_num_layers", "num_kv_shared_layers"]  # fmt: skip


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("key", POSITIVE + OR_NONE)
def test_a_dimension_out_of_its_range_is_one_error_with_what_to_type(key: str, value: str) -> None:
    if value == "0" and key in OR_NONE:
        return
    for model in ("llama3.1-8b", "deepseek3-671b", "mine"):
        planned = recipe(**{"model_name": model, key: value})
        (wrong,) = [f for f in findings(planned) if f.check == "model" and f.level == "error"]
        assert wrong.message.startswith(f"{key}={value[:60]} is not a whole number from ")
        assert wrong.fix.startswith(f"type arguments.{key}=")
        plan = make(planned, Destination("t", maxtext.written_for(planned)))
        assert plan.verdict == "refused" and plan.step is None


@pytest.mark.parametrize(
    ("arguments", "message", "fix"),
    [
        ({"base_num_kv_heads": "5"}, "base_num_query_heads=32 is no multiple of base_num_kv_heads=5", "type arguments.base_num_kv_heads=1"),
        ({"base_num_query_heads": "12"}, "base_num_query_heads=12 is no multiple of base_num_kv_heads=8", "type arguments.base_num_kv_heads=4"),
        ({"model_name": "mixtral-8x7b", "num_experts_per_tok": "9"}, "num_experts_per_tok=9 is more than num_experts=8", "type arguments.num_experts_per_tok=8 or less"),
        ({"model_name": "deepseek3-671b", "first_num_dense_layers": "62"}, "first_num_dense_layers=62 is more than base_num_decoder_layers=61", "type arguments.first_num_dense_layers=61 or less"),
        ({"logits_via_embedding": "3"}, "logits_via_embedding=3 is neither true nor false", "type arguments.logits_via_embedding=false"),
    ],
)  # fmt: skip
def test_dimensions_that_contradict_each_other(arguments: dict[str, str], message: str, fix: str) -> None:
    wrong = only("model", recipe(**arguments))
    assert (wrong.level, wrong.message) == ("error", message) and wrong.fix.startswith(fix)


def test_experts_without_a_width_are_not_predicted() -> None:
    unknown = only("model", recipe(num_experts="8", num_experts_per_tok="2"))
    assert unknown.level == "inconclusive" and "arguments.base_moe_mlp_dim=NUMBER" in unknown.fix


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("per_device_batch_size", ["1e308", "-1", "0", "nan", "1e7"]),
        ("max_target_length", ["9" * 400, "0", "-5", "1.5e0"]),
        ("gradient_accumulation_steps", ["9" * 400, "0"]),
        ("steps", ["0", "-1", "9" * 400, "ten"]),
    ],
)
def test_a_batch_and_steps_have_bounds(key: str, values: list[str]) -> None:
    for value in values:
        wrong = only("batch", recipe(**{key: value}))
        assert wrong.level == "error" and wrong.message.startswith(f"{key}={value[:60]}"), value
        assert f"type arguments.{key}=" in wrong.fix
        assert key != "steps" or wrong.fix == "type arguments.steps=30"


@pytest.mark.parametrize("key", ["sa_block_kv", "capacity_factor"])
@pytest.mark.parametrize("value", ["x", "", "0", "inf", "9" * 400])
def test_a_setting_that_is_no_number_leaves_the_step_time_unknown(key: str, value: str) -> None:
    planned = recipe(**{"model_name": "mixtral-8x7b", "sparse_matmul": "False", key: value})
    named = [f for f in findings(planned) if key in f.message]
    assert any("step time not known" in f.message or f.level == "error" for f in named)
    assert make(planned, Destination("tpu7x-4x4x4", slices.parse("tpu7x-4x4x4"))).step is None


def test_steps_may_be_those_of_the_schedule() -> None:
    assert only("batch", recipe(steps="-1", learning_rate_schedule_steps="20")).level == "info"


def test_slices_have_a_bound() -> None:
    with pytest.raises(UserError, match="num_slices"):
        example(num_slices=10**400)


@pytest.mark.parametrize(
    ("key", "value", "near"),
    [
        ("dtype", "bfloat61", "bfloat16"),
        ("weight_dtype", "x", "bfloat16"),
        ("attention", "flsh", "flash"),
        ("remat_policy", "ful", "full"),
        ("opt_type", "adamww", "adamw"),
        ("mu_dtype", "fp7", "bfloat16"),
    ],
)
def test_a_value_that_maxtext_does_not_know_is_inconclusive(key: str, value: str, near: str) -> None:
    unknown = only("model", recipe(**{key: value}))
    assert unknown.level == "inconclusive" and unknown.message.startswith(f"{key}={value} is no value")
    assert unknown.fix.startswith(f"type arguments.{key}={near}; there are ")
    assert not [f for f in findings(recipe(**{key: near})) if "is no value" in f.message]


def test_capital_letters_of_published_recipes_are_known() -> None:
    assert not [f for f in findings(recipe(remat_policy="FULL", scan_layers="False")) if "is no value" in f.message]


def test_a_number_of_slices_that_does_not_come_out_is_answered_with_what_is_left() -> None:
    finding = only("mesh", recipe(dcn_data_parallelism="3"), "2x tpu7x-4x4x4")
    assert finding.fix == "type arguments.dcn_data_parallelism=-1"


@pytest.mark.parametrize(
    "planned",
    [
        recipe(),
        recipe(model_name="nobody-9b"),
        recipe(weight_dtype="float8"),
        recipe(optimizer_memory_host_offload="True"),
        example(launch=RAW["launch"] | {"module": "src.maxdiffusion.train_wan"}),
        example(launch=RAW["launch"] | {"module": "/tmp/train.sh"}, arguments={}),
    ],
    ids=["known", "model not known", "dtype not known", "offloaded", "diffusion", "own script"],
)
def test_a_plan_without_a_compiler_says_that_memory_was_not_looked_at(planned: MaxTextRecipe) -> None:
    made = make(planned, Destination("s", maxtext.written_for(planned)))
    (memory,) = [f for f in made.findings if f.check == "memory" and f.level == "inconclusive"]
    assert (
        memory.message
        == "whether a step fits into memory was not looked at: there is no closed form for recipes of kind maxtext"
    )
    assert memory.fix == "type --compile" and made.verdict in ("inconclusive", "refused") and made.memory == ()
