"""Names of slices: what they stand for, what other tools call it, and what is said about names of nothing."""

import itertools
import math
import re

import pytest

from podwright.accelerators import ACCELERATORS, CPU, GPUS, TPUS, Accelerator, by_device_kind, gpu
from podwright.errors import UserError
from podwright.slices import EXAMPLES, of_hosts, one_of_tpus, outer_shape, parse, topologies


@pytest.mark.parametrize(
    ("text", "name", "devices", "chips", "hosts", "physical"),
    [
        ("v5e-8", "v5e-8", 8, 8, 1, (2, 4, 1)),
        ("v5litepod-16", "v5e-16", 16, 16, 4, (4, 4, 1)),
        ("v6e-1", "v6e-1", 1, 1, 1, (1, 1, 1)),
        ("v6e-8", "v6e-8", 8, 8, 1, (2, 4, 1)),
        ("v6e-4x4", "v6e-16", 16, 16, 4, (4, 4, 1)),
        ("v5p-16", "v5p-2x2x2", 8, 8, 2, (2, 2, 2)),
        ("v5p-4x4x16", "v5p-4x4x16", 256, 256, 64, (4, 4, 16)),
        ("tpu7x-2", "tpu7x-1x1x1", 2, 1, 1, (1, 1, 1, 2)),
        ("tpu7x-64", "tpu7x-2x4x4", 64, 32, 8, (2, 4, 4, 2)),
        ("tpu7x-4x4x8", "tpu7x-4x4x8", 256, 128, 32, (4, 4, 8, 2)),
        ("tpu7x-512", "tpu7x-4x8x8", 512, 256, 64, (4, 8, 8, 2)),
        ("2x tpu7x-4x8x8", "2x tpu7x-4x8x8", 1024, 512, 128, (4, 8, 8, 2)),
        ("2xv6e-16", "2x v6e-16", 32, 32, 8, (4, 4, 1)),
        ("8xH100-80GB", "8xH100-80GB", 8, 8, 1, (8, 1, 1)),
        ("4xA100-40GB", "4xA100-40GB", 4, 4, 1, (4, 1, 1)),
        ("8xV100-16GB", "8xV100-16GB", 8, 8, 1, (8, 1, 1)),
        ("16xh200", "16xH200", 16, 16, 2, (16, 1, 1)),
        ("1xRTX-4090", "1xRTX-4090", 1, 1, 1, (1, 1, 1)),
        ("1xH200-141GB", "1xH200", 1, 1, 1, (1, 1, 1)),
        ("1xB200", "1xB200", 1, 1, 1, (1, 1, 1)),
        ("8xL4", "8xL4", 8, 8, 1, (8, 1, 1)),
        ("L4-24GB", "1xL4", 1, 1, 1, (1, 1, 1)),
        ("2xrtx-pro-6000-96gb", "2xRTX-PRO-6000", 2, 2, 1, (2, 1, 1)),
        ("4xA100-80GB-PCIe", "4xA100-80GB-PCIe", 4, 4, 1, (4, 1, 1)),
        ("8xGB200", "8xGB200", 8, 8, 2, (8, 1, 1)),
        ("tpu8t-16", "tpu8t-2x2x4", 16, 16, 4, (2, 2, 4)),
        ("tpu8t-4x8x8", "tpu8t-4x8x8", 256, 256, 64, (4, 8, 8)),
        ("tpu8i-4", "tpu8i-4", 8, 4, 1, (1, 4, 1, 2)),
        ("cpu-8", "cpu-8", 8, 8, 1, (8, 1, 1)),
    ],
)
def test_a_name_says_how_many_of_everything(
    text: str, name: str, devices: int, chips: int, hosts: int, physical: tuple[int, ...]
) -> None:
    where = parse(text)
    assert (where.name, where.num_devices, where.num_chips, where.num_hosts, where.physical_mesh) == (
        name,
        devices,
        chips,
        hosts,
        physical,
    )
    assert parse(name) == where


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "v5e-16",
            (
                "v5e:4x4",
                "v5litepod-16",
                "v5litepod-16",
                "v2-alpha-tpuv5-lite",
                "tpu-v5-lite-podslice",
                "4x4",
                "ct5lp-hightpu-4t",
            ),
        ),
        ("v6e-8", ("v6e:2x4", "v6e-8", "v6e-8", "v2-alpha-tpuv6e", "tpu-v6e-slice", "2x4", "ct6e-standard-8t")),
        ("2x v6e-16", ("v6e:4x4", "v6e-16", "v6e-16", "v2-alpha-tpuv6e", "tpu-v6e-slice", "4x4", "ct6e-standard-4t")),
        ("v5p-16", ("v5p:2x2x2", "v5p-2x2x2", "v5p-16", "v2-alpha-tpuv5", "tpu-v5p-slice", "2x2x2", "ct5p-hightpu-4t")),
        (
            "v5p-4x4x16",
            ("v5p:4x4x16", "v5p-4x4x16", None, "v2-alpha-tpuv5", "tpu-v5p-slice", "4x4x16", "ct5p-hightpu-4t"),
        ),
        ("tpu7x-64", ("tpu7x:2x4x4", "tpu7x-2x4x4", None, None, "tpu7x", "2x4x4", "tpu7x-standard-4t")),
        ("tpu8t-16", (None, None, None, None, None, "2x2x4", None)),
        ("tpu8i-4", (None, None, None, None, None, "1x4", None)),
    ],
)
def test_other_tools_names_of_a_tpu_slice(text: str, names: tuple[str | None, ...]) -> None:
    assert tuple(parse(text).names().values()) == names


def test_other_tools_names_of_gpus() -> None:
    assert parse("4xA100-40GB").names() == {"gke_accelerator": "nvidia-tesla-a100", "machine_type": "a2-highgpu-4g"}
    assert parse("8xRTX-3090").names() == {"gke_accelerator": None, "machine_type": None}
    assert parse("cpu-8").names() == {}


@pytest.mark.parametrize(
    ("text", "bounds", "wrap"),
    [
        ("v6e-1", (1, 1, 1), None),
        ("v6e-8", (2, 4, 1), None),
        ("v6e-128", (2, 2, 1), (False, True, False)),
        ("v6e-256", (2, 2, 1), (True, True, False)),
        ("tpu7x-2x4x4", (2, 2, 1), None),
        ("tpu7x-4x4x8", (2, 2, 1), (True, True, True)),
    ],
)
def test_libtpu_gets_hosts_and_wrap_around_links(
    text: str, bounds: tuple[int, ...], wrap: tuple[bool, ...] | None
) -> None:
    found = parse(text).libtpu
    assert found and (found[1]["chips_per_host_bounds"], found[1].get("wrap")) == (bounds, wrap)
    assert parse("8xH200").libtpu is None and parse("tpu8t-16").libtpu is None  # libtpu has no name for it yet


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v6e-12", "no v6e slice is sold as v6e-12 (the number counts chips); type --on v6e-8 or v6e-16"),
        ("v6e-512", "no v6e slice is sold as v6e-512 (the number counts chips); type --on v6e-256"),
        ("v5p-15", "no v5p slice is sold as v5p-15 (the number counts cores); type --on v5p-8 or v5p-16"),
        ("tpu7x-30000", "(the number counts devices); type --on tpu7x-18432"),
        ("tpu7x-3x4x4", "no tpu7x slice is sold with topology 3x4x4; type --on tpu7x-2x4x4 or tpu7x-4x4x4"),
        ("tpu7x-8x4x4", "no tpu7x slice is sold with topology 8x4x4; type --on tpu7x-4x4x8"),
        ("tpu7x-4x4x6", "no tpu7x slice is sold with topology 4x4x6; type --on"),
        ("v6e-4x2", "no v6e slice is sold with topology 4x2; type --on v6e-2x4"),
        ("v6e-4x4x4", "no v6e slice is sold with topology 4x4x4; type --on v6e-8x8"),
        ("tpu7x-4x4", "no tpu7x slice is sold with topology 4x4; type --on tpu7x-2x2x4"),
        ("v6e", "v6e alone names no size; type --on v6e-8 or v6e-16x16"),
        ("v5p-", "v5p alone names no size; type --on v5p-16 or v5p-2x4x4"),
        ("0xv6e-8", "'0xv6e-8': the count is from 1 to 131,072; type --on 2xv6e-8"),
        ("9xH100", "9 H100-80GB are no whole machines of 8; type --on 8xH100-80GB or 16xH100-80GB"),
        ("9xH100-80GB", "9 H100-80GB are no whole machines of 8; type --on 8xH100-80GB or 16xH100-80GB"),
        ("4xA100", "there is no target and no slice '4xA100'; type --on 4xA100-40GB or 4xA100-80GB"),
        ("1xB300", "there is no target and no slice '1xB300'; type --on 1xB200"),
        ("1xH101", "there is no target and no slice '1xH101'; type --on 1xH100-80GB"),
        ("8xA101-80GB", "type --on 8xA100-80GB"),
        ("2xA100-PCIE", "type --on 2xA100-40GB-PCIe or 2xA100-80GB-PCIe"),
        ("1xH100-94GB", "type --on 1xH100-80GB or 1xH100-NVL"),
        ("2xA100-80", "type --on 2xA100-40GB or 2xA100-80GB"),
        ("1xRTX", "type --on 1xA6000 or 1xRTX-PRO-6000 or 1xRTX-3090 or 1xRTX-4090 or 1xRTX-5090"),
        ("8xMI300", "there is no target and no slice '8xMI300'; type --on local, cpu-8, or a slice such as v6e-16,"),
        ("v6e-16 v6e-8", "there is no target and no slice 'v6e-16 v6e-8'; type --on local"),
        ("8xL4-48GB", "there is no target and no slice '8xL4-48GB'; type --on 8xL4"),
        ("A100-24GB", "there is no target and no slice 'A100-24GB'; type --on 1xA100-40GB or 1xA100-80GB"),
        ("1xH100-94GB", "type --on 1xH100-80GB"),
        ("2xB200-141GB", "type --on 2xB200"),
        ("1xRTX-4090-16GB", "type --on 1xRTX-4090"),
        ("1xRTX4090", "there is no target and no slice '1xRTX4090'; type --on 1xRTX-4090"),
        ("tpu8i-8", "no tpu8i slice is sold as tpu8i-8 (the number counts chips); type --on tpu8i-4"),
        ("v6-16", "there is no target and no slice 'v6-16'; type --on v6e-16"),
        ("2x tpu7-64", "type --on 2xtpu7x-64"),
        ("locl", "there is no target and no slice 'locl'; type --on local"),
        ("v7-8", "there is no target and no slice 'v7-8'; type --on local, cpu-8, or a slice such as v6e-16,"),
        ("9xH101", "9 H100-80GB are no whole machines of 8; type --on 8xH100-80GB or 16xH100-80GB"),
        ("v4-8", "there is no target and no slice 'v4-8'; type --on local"),
        ("2x 8xv6e-8", "there is no target and no slice '2x 8xv6e-8'; type --on local"),
        ("cpu-0", "there is no target and no slice 'cpu-0'; type --on local"),
        ("", "there is no target and no slice ''; type --on local"),
    ],
)
def test_a_name_of_nothing_says_what_to_type(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        parse(text)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_what_is_sold_is_in_order_and_a_number_means_the_most_cubic() -> None:
    for row in TPUS:
        assert row.pod
        sold = topologies(row.pod)
        assert len(set(sold)) == len(sold) and all(x <= y and (y <= z or z == 1) for x, y, z in sold)
        sizes = [math.prod(t) for t in sold]
        assert sizes == sorted(sizes)
    # the names and shapes of the documentation's table
    for cores, shape in {
        128: "4x4x4",
        256: "4x4x8",
        512: "4x8x8",
        1024: "8x8x8",
        4096: "8x16x16",
        12288: "16x16x24",
    }.items():
        assert parse(f"v5p-{cores}").topology == shape
    assert parse("tpu7x-18432").topology == "16x24x24"


def test_axes_cross_slices_from_the_first_on_and_never_the_last() -> None:
    assert outer_shape((2, 16, 1), 2) == (2, 1, 1)
    assert outer_shape((1, 16, 2), 2) == (1, 2, 1)
    assert outer_shape((2, 8, 2), 4) == (2, 2, 1)
    assert outer_shape((6, 4, 1), 4) == (2, 2, 1)
    assert outer_shape((1, 1, 32), 2) is None
    for shape in itertools.product((1, 2, 3, 4, 6), repeat=3):
        outer = outer_shape(shape, 4)
        assert outer is None or (math.prod(outer) == 4 and not any(n % o for n, o in zip(shape, outer, strict=True)))


@pytest.mark.parametrize("row", GPUS, ids=lambda row: row.name)
def test_every_gpu_has_a_name_with_the_memory_it_is_sold_with(row: Accelerator) -> None:
    sizes = [n for n in range(1, 400) if gpu(f"{row.name}-{n}GB") == row]
    own = [int(n) for n in re.findall(r"(\d+)GB", row.name)]
    assert (own or sizes) and not (own and sizes)
    # in GiB or in GB, as vendors count, and at most a tenth more than a program can have
    assert all(row.hbm_bytes / 2**30 * 0.98 < n < row.hbm_bytes / 2**30 * 1.11 for n in own or sizes)


def test_machines_with_gpus_are_what_slices_are() -> None:
    two_nodes = of_hosts(2, 4, "A100-40GB")
    assert (two_nodes.num_hosts, two_nodes.chips_per_host, two_nodes.num_granules) == (2, 4, 2)
    assert of_hosts(2, 8, "H100-80GB") == parse("16xH100-80GB") and of_hosts(1, 4, "L4") == parse("4xL4")
    assert of_hosts(3, 2, "L4-24GB").num_devices == 6
    assert of_hosts(2, 4, "NVIDIA A100-PCIE-40GB") == of_hosts(2, 4, "A100-40GB-PCIe")
    assert (parse("16xH200").num_granules, parse("16xH200").devices_per_granule) == (2, 8)
    assert (parse("2x tpu7x-64").num_granules, parse("2x tpu7x-64").devices_per_granule) == (2, 64)


def test_every_row_has_a_source_and_a_kind_of_its_own() -> None:
    kinds = [kind for row in ACCELERATORS for kind in row.kinds]
    assert len(set(kinds)) == len(kinds) and all(row.source and row.kinds for row in ACCELERATORS)
    assert by_device_kind("TPU v6 lite") == parse("v6e-8").accelerator and by_device_kind("cpu") is CPU
    assert by_device_kind("something else") is None
    for row in (*TPUS, *GPUS):
        assert row.hbm_bytes > 2**33 and row.ici_bandwidth > row.dcn_bandwidth > 0
        assert row.hbm_bandwidth > (3e11 if row.name == "T4" else 2.9e11 if row.name == "L4" else 5e11)
        assert max(row.bf16_flops, row.fp16_flops) > 5e13


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Tesla V100-SXM2-16GB", "V100-16GB"),
        ("Tesla V100-SXM2-32GB", "V100-32GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-40GB-PCIe"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB-PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100-80GB"),
        ("NVIDIA H100 PCIe", "H100-80GB-PCIe"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GB200", "GB200"),
        ("Tesla T4", "T4"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX-PRO-6000"),
        ("NVIDIA GeForce RTX 3090", "RTX-3090"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA GeForce RTX 5090", "RTX-5090"),
        ("TPU8t", "tpu8t"),
        ("TPU8i", "tpu8i"),
    ],
)
def test_the_name_that_jax_and_nvidia_smi_print_finds_its_row(kind: str, name: str) -> None:
    row = by_device_kind(kind)
    assert row and row.name == name
    without_maker = re.sub(r"^(NVIDIA|Tesla) (GeForce )?", "", kind)
    for typed in (kind, kind.replace(" ", "-"), without_maker.lower()) if row.node else ():
        assert parse(f"2x{typed}") == parse(f"2x{name}"), typed


@pytest.mark.parametrize(
    ("typed", "guesses"),
    [
        ("1xH100-SXM5-80GB", "1xH100-80GB or 1xH100-80GB-PCIe"),
        ("1xH100 SXM", "1xH100-80GB or 1xH100-80GB-PCIe or 1xH100-NVL"),
        ("NVIDIA H200 NVL", "1xH200"),
        ("Tesla V100-PCIE-16GB", "1xV100-16GB"),
        ("NVIDIA GH200 480GB", "1xH200"),
        ("1xRTX-4080", "1xRTX-4090"),
    ],
)
def test_an_unknown_card_is_answered_with_those_of_its_family(typed: str, guesses: str) -> None:
    with pytest.raises(UserError) as refused:
        parse(typed)
    assert refused.value.fix == f"type --on {guesses}"


def test_more_cards_than_there_are_is_one_line() -> None:
    with pytest.raises(UserError, match="the count is from 1 to 131,072"):
        parse("100000000xH100-80GB")


def test_figures_of_gpus_are_those_of_their_data_sheets() -> None:
    b200, t4, l4 = (parse(name).accelerator for name in ("1xB200", "1xT4", "1xL4"))
    assert (b200.bf16_flops, b200.fp8_flops, b200.ici_bandwidth) == (2250e12, 4500e12, 1800e9)
    assert (t4.bf16_flops, t4.fp16_flops) == (0, 65e12)  # no bf16 units
    assert (l4.hbm_bandwidth, l4.hbm_bytes / 2**30, l4.dcn_bandwidth) == (0.3e12, 21.9, 12.5e9 / 8)
    capabilities = {row.name: row.compute_capability for row in GPUS}
    assert [capabilities[name] for name in ("T4", "A100-40GB-PCIe", "A10", "L40S")] == [(7, 5), (8, 0), (8, 6), (8, 9)]
    assert [capabilities[name] for name in ("H200", "GB200", "RTX-5090")] == [(9, 0), (10, 0), (12, 0)]
    tpu8t, tpu8i = parse("tpu8t-16").accelerator, parse("tpu8i-4").accelerator
    assert tpu8t.int8_flops == tpu8t.bf16_flops == 996e12 and not tpu8t.compute_capability
    assert (tpu8i.bf16_flops * 2, tpu8i.hbm_bandwidth * 2) == (1101e12, 8.6e12)  # of a chip


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("banana", "tpu7x-4x4x8"),
        ("local", "tpu7x-4x4x8"),
        ("cpu-8", "tpu7x-4x4x8"),
        ("8xH100-80GB", "tpu7x-4x4x8"),
        ("", "tpu7x-4x4x8"),
        ("v6-16", "v6e-16"),
        ("cup-8", "tpu7x-4x4x8"),
        ("v6e", "v6e-8 or v6e-16x16"),
        ("tpu7x-4x4x5", "tpu7x-4x4x4 or tpu7x-4x4x8"),
        ("2x v6e-16", "v6e-16"),
        ("tpu8t-16", "tpu7x-4x4x8"),
    ],
)
def test_a_value_that_is_to_be_one_tpu_slice_is_answered_with_one(text: str, fix: str) -> None:
    with pytest.raises(UserError) as refused:
        one_of_tpus(text, "topology")
    assert f"topology={text}" in refused.value.what
    typed = refused.value.fix.removeprefix("type topology=").split(" or ")
    assert typed == fix.split(" or ")
    for each in typed:
        assert one_of_tpus(each, "topology")


def test_a_name_is_typed_without_blanks() -> None:
    assert parse("2x v6e-16").typed == "2xv6e-16" and parse(parse("2x v6e-16").typed) == parse("2x v6e-16")
    assert all(parse(name) and " " not in name for name in EXAMPLES.replace(" or ", ", ").split(", "))


@pytest.mark.parametrize(
    ("text", "devices", "hosts"),
    [("2x4xA100-40GB", 8, 2), ("2 x 4 x A100-40GB", 8, 2), ("3x8xH100-80GB", 24, 3), ("2x1xl4", 2, 2)],
)
def test_hosts_of_some_gpus_each_need_no_target(text: str, devices: int, hosts: int) -> None:
    parsed = parse(text)
    assert (parsed.num_devices, parsed.num_hosts, parsed.num_granules) == (devices, hosts, hosts)


@pytest.mark.parametrize("text", ["2x4xv6e-8", "0x4xA100-40GB", "2x0xA100-40GB", "2x4x", "2x4xcpu-8", "2x2x2xL4"])
def test_hosts_of_something_else_are_no_slice(text: str) -> None:
    with pytest.raises(UserError):
        parse(text)


@pytest.mark.parametrize("name", ["2x4xA100-40GB", "8xA100-40GB", "4xA100-40GB", "16xH100-80GB", "3x2xL4"])
def test_machines_that_are_not_whole_keep_their_number_in_the_name(name: str) -> None:
    assert parse(name).name == parse(parse(name).typed).typed
    assert parse(name).name.startswith(name)
