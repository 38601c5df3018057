"""What programs cost, counted by hand and compared: small texts, and one program that the compiler made."""

import dataclasses
import gzip
from pathlib import Path

import pytest

from podwright.accelerators import TPUS
from podwright.errors import UserError
from podwright.plan.compiled import hlo, roofline

V6E = next(a for a in TPUS if a.name == "v6e")
ROUND = dataclasses.replace(V6E, bf16_flops=1e9, hbm_bandwidth=1e6, ici_bandwidth=8e6, dcn_bandwidth=1e6)
"""a link: 1e6 bytes/s in one direction"""
FULL = roofline.Efficiency(matmul=1, kernel=0.5, hbm=1, ici=1, dcn=1, host_bandwidth=1e6)


def program(lines: str, before: str = "", partitions: int = 4) -> hlo.Module:
    body = "\n".join("  " + line.strip() for line in lines.strip().splitlines())
    head = f"HloModule jit_f, is_scheduled=true, num_partitions={partitions}"
    return hlo.parse(f"{head}\n\n{before}\nENTRY %main () -> f32[] {{\n{body}\n}}\n")


def cost(lines: str, before: str = "") -> roofline.Cost:
    """On a 2x2 with round numbers."""
    return roofline.cost(program(lines, before), ROUND, topology=(2, 2), efficiency=FULL)


def test_a_dot() -> None:
    c = cost("""
        %a = bf16[2,64,128]{2,1,0} parameter(0)
        %b = bf16[2,128,32]{2,1,0} parameter(1)
        ROOT %d = f32[2,64,32]{2,1,0} dot(%a, %b), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
    """)
    assert c.flops == 2 * 2 * 64 * 32 * 128
    assert c.hbm_bytes == 2 * (2 * 64 * 128) + 2 * (2 * 128 * 32) + 4 * (2 * 64 * 32)
    assert c.seconds["compute"] == pytest.approx(c.flops / 1e9)
    assert c.predicted_s == pytest.approx(c.hbm_bytes / 1e6) and c.bound == "hbm"


@pytest.mark.parametrize(
    ("left", "right", "out", "attributes", "flops"),
    [
        # a plain product
        ("bf16[64,128]", "bf16[128,32]", "f32[64,32]", "dim_labels=bf_io->bf", 2 * 64 * 128 * 32),
        # heads of the result: a window over the 16 heads of the weight, the rest is padding
        (
            "bf16[4,2048,100,1]",
            "bf16[16,2048,1,128]",
            "bf16[4,16,100,128]",
            "window={size=1x16 pad=0_0x15_15 rhs_reversal=0x1}, dim_labels=0fb1_1i0o->01bf",
            2 * 400 * 2048 * 16 * 128,
        ),
        # a batch of 4: positions that the dilation puts between batches do not count
        (
            "bf16[4,256,128]",
            "bf16[4,128,512]",
            "f32[4,256,512]",
            "window={size=4 stride=3 lhs_dilate=4}, dim_labels=0bf_0io->0bf",
            2 * 4 * 256 * 128 * 512,
        ),
        # a contraction over two dimensions
        (
            "bf16[8,16,128]",
            "bf16[16,128,32]",
            "f32[8,1,32]",
            "window={size=16}, dim_labels=b0f_0io->b0f",
            2 * 8 * 16 * 128 * 32,
        ),
    ],
    ids=["plain", "heads", "batch", "two contracted"],
)
def test_a_convolution_is_the_product_that_it_stands_for(
    left: str, right: str, out: str, attributes: str, flops: float
) -> None:
    c = cost(f"""
        %a = {left} parameter(0)
        %b = {right} parameter(1)
        ROOT %c = {out} convolution(%a, %b), {attributes}
    """)
    assert c.flops == flops


FUSED = """
%fused (p0: f32[28,256,128], p1: s32[], p2: f32[256,128]) -> (f32[28,256,128], f32[256,128]) {
  %p0 = f32[28,256,128]{2,1,0:T(8,128)} parameter(0)
  %p1 = s32[] parameter(1)
  %p2 = f32[256,128]{1,0:T(8,128)S(1)} parameter(2)
  %at = f32[1,256,128]{2,1,0:T(8,128)} dynamic-slice(%p0, %p1, %p1, %p1), dynamic_slice_sizes={1,256,128}
  %row = f32[256,128]{1,0:T(8,128)} bitcast(%at)
  %sum = f32[256,128]{1,0:T(8,128)} add(%row, %p2)
  %back = f32[1,256,128]{2,1,0:T(8,128)} bitcast(%sum)
  %put = f32[28,256,128]{2,1,0:T(8,128)} dynamic-update-slice(%p0, %back, %p1, %p1, %p1)
  ROOT %t = (f32[28,256,128]{2,1,0:T(8,128)}, f32[256,128]{1,0:T(8,128)S(1)}) tuple(%put, %sum)
}
"""


def test_a_fusion_reads_a_slice_and_writes_in_place() -> None:
    """One row of 28 is read and written; what lies on the chip, S(1), is neither."""
    c = cost(
        """
        %all = f32[28,256,128]{2,1,0:T(8,128)} parameter(0)
        %i = s32[] parameter(1)
        %x = f32[256,128]{1,0:T(8,128)S(1)} parameter(2)
        ROOT %f = (f32[28,256,128]{2,1,0:T(8,128)}, f32[256,128]{1,0:T(8,128)S(1)}) fusion(%all, %i, %x), kind=kLoop, calls=%fused
        """,
        FUSED,
    )
    assert c.hbm_bytes == 2 * 256 * 128 * 4 + 4  # and the index


PRODUCT = "%d = f32[64,64]{1,0:S(1)} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"

NESTED_SLICE = """
%row (r0: f32[28,256,128], r1: s32[]) -> f32[1,256,128] {
  %r0 = f32[28,256,128]{2,1,0:T(8,128)} parameter(0)
  %r1 = s32[] parameter(1)
  ROOT %rs = f32[1,256,128]{2,1,0:T(8,128)} dynamic-slice(%r0, %r1, %r1, %r1), dynamic_slice_sizes={1,256,128}
}

%lay_anew (l0: f32[28,256,128]) -> f32[28,256,128] {
  %l0 = f32[28,256,128]{2,1,0:T(8,128)} parameter(0)
  ROOT %lc = f32[28,256,128]{2,1,0:T(8,128)} copy(%l0)
}

%outer (o0: f32[28,256,128], o1: s32[]) -> f32[1,256,128] {
  %o0 = f32[28,256,128]{2,1,0:T(8,128)} parameter(0)
  %o1 = s32[] parameter(1)
  %same = f32[28,256,128]{2,1,0:T(8,128)} fusion(%o0), kind=kLoop, output_to_operand_aliasing={{}: (0, {})}, calls=%lay_anew
  %sliced = f32[1,256,128]{2,1,0:T(8,128)} fusion(%same, %o1), kind=kLoop, calls=%row
  ROOT %oc = f32[1,256,128]{1,2,0:T(8,128)} copy(%sliced)
}
"""


def test_a_slice_may_be_taken_in_a_fusion_inside_a_fusion() -> None:
    c = cost(
        """
        %all = f32[28,256,128]{2,1,0:T(8,128)} parameter(0)
        %i = s32[] parameter(1)
        ROOT %f = f32[1,256,128]{1,2,0:T(8,128)} fusion(%all, %i), kind=kLoop, calls=%outer
        """,
        NESTED_SLICE,
    )
    assert c.hbm_bytes == 2 * 256 * 128 * 4 + 4


ON_ANOTHER_CORE = """
%reduced (c0: f32[4000]) -> f32[4000] {
  %c0 = f32[4000]{0} parameter(0)
  ROOT %cr = f32[4000]{0} all-reduce(%c0), replica_groups={{0,1,2,3}}, to_apply=%add
}, execution_thread="sparsecore"

%handed_over (h0: f32[4000]) -> f32[4000] {
  %h0 = f32[4000]{0} parameter(0)
  ROOT %hc = f32[4000]{0} call(%h0), to_apply=%reduced
}, execution_thread="sparsecore"
"""


@pytest.mark.parametrize(
    ("made", "kind", "sent"),
    [("dynamic-update-slice(%room, %part, %i)", "all-gather", 12000), ("copy(%room)", "all-reduce", 24000)],
)
@pytest.mark.parametrize("newer", [False, True])  # libtpu 0.0.48 hands what is reduced over by an update
def test_collectives_of_the_sparse_core_run_beside_the_program(made: str, kind: str, sent: int, newer: bool) -> None:
    given = """
        %s = ((f32[4000]{0}), f32[4000]{0}) async-start(%whole), async_execution_thread="sparsecore", calls=%handed_over
    """
    if newer:
        given = """
        %moving = (f32[4000]{0:S(1)}, f32[4000]{0:S(1)}, u32[]) copy-start(%whole)
        %moved = f32[4000]{0:S(1)} copy-done(%moving)
        %s = ((), (), s32[]) async-start(), async_execution_thread="sparsecore", calls=%handed_over
        %u = ((f32[4000]{0}), f32[4000]{0}, s32[]) async-update(%s, %moved)
        """
    c = cost(
        f"""
        %room = f32[4000]{{0:S(1)}} custom-call(), custom_call_target="AllocateBuffer"
        %part = f32[1000]{{0:S(1)}} parameter(0)
        %i = s32[]{{:S(6)}} parameter(1)
        %x = f32[64,64]{{1,0:S(1)}} parameter(2)
        %whole = f32[4000]{{0:S(1)}} {made}
        {given}
        {PRODUCT}
        ROOT %e = f32[4000]{{0}} async-done({"%u" if newer else "%s"})
        """,
        ON_ANOTHER_CORE,
    )
    assert c.collectives == [(kind, (0, 1, 2, 3), sent, 1)]
    assert c.predicted_s == pytest.approx(sent / 2e6) and c.limits["compute"] == pytest.approx(2 * 64**3 / 1e9)


def test_padding_of_tiles_is_moved() -> None:
    c = cost("""
        %a = f32[4,100]{1,0:T(8,128)} parameter(0)
        ROOT %b = f32[4,100]{1,0:T(4,128)} copy(%a)
    """)
    assert c.hbm_bytes == 8 * 128 * 4 + 4 * 128 * 4


def nested(inner_end: str = "%n, %three") -> str:
    def one(name: str, limit: int, work: str) -> str:
        return f"""
%{name}_body (p: (s32[], bf16[64,64])) -> (s32[], bf16[64,64]) {{
  %p.{name} = (s32[], bf16[64,64]{{1,0}}) parameter(0)
  %i.{name} = s32[] get-tuple-element(%p.{name}), index=0
  %one.{name} = s32[] constant(1)
  %next.{name} = s32[] add(%i.{name}, %one.{name})
  %x.{name} = bf16[64,64]{{1,0}} get-tuple-element(%p.{name}), index=1
  {work}
  ROOT %t.{name} = (s32[], bf16[64,64]{{1,0}}) tuple(%next.{name}, %y.{name})
}}

%{name}_condition (q: (s32[], bf16[64,64])) -> pred[] {{
  %q.{name} = (s32[], bf16[64,64]{{1,0}}) parameter(0)
  %j.{name} = s32[] get-tuple-element(%q.{name}), index=0
  %limit.{name} = s32[] constant({limit})
  ROOT %lt.{name} = pred[] compare(%j.{name}, %limit.{name}), direction=LT
}}
"""

    product = "%y.inner = bf16[64,64]{1,0} dot(%x.inner, %x.inner), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    loop = """%zero.outer = s32[] constant(0)
  %in.outer = (s32[], bf16[64,64]{1,0}) tuple(%zero.outer, %x.outer)
  %w.outer = (s32[], bf16[64,64]{1,0}) while(%in.outer), condition=%inner_condition, body=%inner_body
  %y.outer = bf16[64,64]{1,0} get-tuple-element(%w.outer), index=1"""
    return one("inner", 3, product) + one("outer", 5, loop)


NESTED_ENTRY = """
    %x = bf16[64,64]{1,0} parameter(0)
    %zero = s32[] constant(0)
    %in = (s32[], bf16[64,64]{1,0}) tuple(%zero, %x)
    ROOT %w = (s32[], bf16[64,64]{1,0}) while(%in), condition=%outer_condition, body=%outer_body, metadata={op_name="jit(step)/while"}
"""


def test_bodies_of_nested_loops_count_as_often_as_they_run() -> None:
    c = cost(NESTED_ENTRY, nested())
    assert c.flops == 15 * 2 * 64**3
    assert c.notes == []


def ends_early() -> str:
    return nested().replace(
        "ROOT %lt.outer = pred[] compare(%j.outer, %limit.outer), direction=LT",
        "%lt.outer = pred[] compare(%j.outer, %limit.outer), direction=LT\n  %go = pred[] fusion(%q.outer), kind=kLoop, calls=%any\n"
        "  ROOT %and = pred[] and(%lt.outer, %go)",
    )


def test_a_loop_that_data_may_end_is_counted_at_its_worst() -> None:
    worst = cost(NESTED_ENTRY, ends_early())
    assert worst.flops == 15 * 2 * 64**3
    assert worst.notes == ["the loop jit(step)/while may end early; counted with the most it can turn, 5"]


def test_a_loop_that_nothing_bounds_has_no_time() -> None:
    endless = ends_early().replace("and(%lt.outer, %go)", "and(%go, %go)")
    with pytest.raises(UserError, match=r"how often the loop jit\(step\)/while turns depends on its data"):
        cost(NESTED_ENTRY, endless)


GATHER = "replica_groups=[1,4]<=[4], dimensions={0}"


@pytest.mark.parametrize(
    ("instruction", "sent", "links"),
    [
        (f"all-gather(%a), {GATHER}", 3 * 4000, 2),  # into a corner of the 2x2 lead two links
        ("all-reduce(%a), replica_groups={{0,1,2,3}}, to_apply=%add", 2 * 3000, 2),
        ("reduce-scatter(%a), replica_groups={{0,1},{2,3}}, to_apply=%add", 2000, 1),
        ("collective-permute(%a), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}", 4000, 1),
    ],
)
def test_collectives(instruction: str, sent: int, links: int) -> None:
    c = cost(f"""
        %a = f32[1000]{{0}} parameter(0)
        ROOT %g = f32[1000]{{0}} {instruction}
    """)
    ((kind, _, bytes_, count),) = c.collectives
    assert (kind, bytes_, count) == (instruction.split("(")[0], sent, 1)
    assert c.predicted_s == pytest.approx(sent / (links * 1e6)) and c.bound == "ici"


def test_an_axis_of_sixteen_is_a_ring() -> None:
    text = """
        %a = f32[1000]{0} parameter(0)
        ROOT %g = f32[256000]{0} all-gather(%a), replica_groups=[1,256]<=[256], dimensions={0}
    """
    ring = roofline.cost(program(text, partitions=256), ROUND, topology=(16, 16), efficiency=FULL)
    assert ring.predicted_s == pytest.approx(255 * 4000 / 4e6)


def test_two_devices_of_a_chip_share_its_torus() -> None:
    text = """
        %a = f32[1000]{0} parameter(0)
        ROOT %g = f32[128000]{0} all-gather(%a), replica_groups=[1,128]<=[128], dimensions={0}
    """
    row = dataclasses.replace(next(a for a in TPUS if a.name == "tpu7x"), ici_bandwidth=12e6)
    cube = roofline.cost(program(text, partitions=128), row, topology=(4, 4, 4), efficiency=FULL)
    assert cube.predicted_s == pytest.approx(127 * 4000 / 6e6)


def test_permutes_in_both_directions_use_both_halves_of_the_links() -> None:
    c = cost("""
        %a = f32[1000]{0} parameter(0)
        %up = (f32[1000]{0}, f32[1000]{0}) collective-permute-start(%a), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
        %down = (f32[1000]{0}, f32[1000]{0}) collective-permute-start(%a), source_target_pairs={{0,3},{1,0},{2,1},{3,2}}
        %up.1 = f32[1000]{0} collective-permute-done(%up)
        ROOT %down.1 = f32[1000]{0} collective-permute-done(%down)
    """)
    assert c.predicted_s == pytest.approx(4000 / 1e6)
    assert c.collectives == [("collective-permute", (0, 1, 2, 3), 8000, 2)]


def test_the_dearest_branch_counts() -> None:
    def branch(name: str, size: int) -> str:
        array = f"f32[{size},{size}]{{1,0:S(1)}}"
        product = f"dot(%x.{name}, %x.{name}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        return f"%{name} (x: f32[]) -> f32[] {{\n  %x.{name} = {array} parameter(0)\n  ROOT %y.{name} = {array} {product}\n}}\n\n"

    c = cost(
        """
        %i = s32[] parameter(0)
        ROOT %c = f32[] conditional(%i, %i, %i), branch_computations={%small, %large}
        """,
        branch("small", 32) + branch("large", 64),
    )
    assert c.flops == 2 * 64**3


OFFLOADED = """
%put (all: f32[28,1000], row: f32[1,1000], i: s32[]) -> f32[28,1000] {
  %all = f32[28,1000]{1,0:S(5)} parameter(0)
  %row = f32[1,1000]{1,0} parameter(1)
  %i = s32[] parameter(2)
  ROOT %new = f32[28,1000]{1,0:S(5)} dynamic-update-slice(%all, %row, %i, %i)
}
"""


def test_an_offloaded_row_goes_to_the_host_alone() -> None:
    c = cost(
        """
        %all.1 = f32[28,1000]{1,0:S(5)} parameter(0)
        %row.1 = f32[1,1000]{1,0} parameter(1)
        %i.1 = s32[] parameter(2)
        %s = ((f32[28,1000]{1,0}, f32[1,1000]{1,0}, s32[]), f32[28,1000]{1,0:S(5)}, u32[]) async-start(%all.1, %row.1, %i.1), calls=%put
        ROOT %d = f32[28,1000]{1,0:S(5)} async-done(%s)
        """,
        OFFLOADED,
    )
    assert (c.host_bytes, c.hbm_bytes) == (4000, 4000)
    assert c.bound == "host" and c.predicted_s == pytest.approx(4000 / 1e6)


def test_a_generation_without_calibration_says_so() -> None:
    v5e = next(a for a in TPUS if a.name == "v5e")
    c = roofline.cost(program("ROOT %a = f32[4]{0} parameter(0)"), v5e, (2, 2))
    assert c.notes == ["v5e is taken to reach the shares of its peaks that fit v6e; no published run was compared"]


def overlapped(num_products: int) -> str:
    products = "\n".join(PRODUCT.replace("%d", f"%d{i}") for i in range(num_products))
    return f"""
        %a = f32[1000]{{0}} parameter(0)
        %x = f32[64,64]{{1,0:S(1)}} parameter(1)
        %start = (f32[1000]{{0}}, f32[4000]{{0}}) all-gather-start(%a), {GATHER}
        {products}
        ROOT %done = f32[4000]{{0}} all-gather-done(%start)
    """


@pytest.mark.parametrize("num_products", [0, 5, 100])
def test_a_collective_costs_what_the_work_beside_it_does_not_hide(num_products: int) -> None:
    gather, products = 12000 / 2e6, num_products * 2 * 64**3 / 1e9
    c = cost(overlapped(num_products))
    assert c.predicted_s == pytest.approx(max(gather, products))
    assert c.limits["ici"] == pytest.approx(max(gather - products, 0))
    assert c.seconds["ici"] == pytest.approx(gather)


def test_a_prefetch_and_a_copy_to_the_host() -> None:
    c = cost("""
        %a = f32[1000]{0} parameter(0)
        %b = f32[500]{0} parameter(1)
        %p = (f32[1000]{0:S(1)}, f32[1000]{0}, u32[]{:S(2)}) copy-start(%a)
        %h = (f32[500]{0:S(5)}, f32[500]{0}, u32[]{:S(2)}) copy-start(%b)
        %pd = f32[1000]{0:S(1)} copy-done(%p)
        ROOT %hd = f32[500]{0:S(5)} copy-done(%h)
    """)
    assert (c.hbm_bytes, c.host_bytes) == (4000 + 2000, 2000)
    assert c.predicted_s == pytest.approx(4000 / 1e6)  # the copy to the host ran beside it
    assert c.seconds["host"] == pytest.approx(2000 / 1e6)


CHAIN = """
%chain_start (s0: f32[1000]) -> f32[4000] {
  %s0 = f32[1000]{0} parameter(0)
  %gs = f32[4000]{0} all-gather(%s0), channel_id=7, CONFIG, GATHER
  ROOT %begin = f32[4000]{0} custom-call(%gs), custom_call_target="AsyncCollectiveStart"
}

%chain_middle (m0: f32[1000], m1: f32[64,64]) -> f32[64,64] {
  %m0 = f32[1000]{0} parameter(0)
  %m1 = f32[64,64]{1,0:S(1)} parameter(1)
  %gm = f32[4000]{0} all-gather(%m0), channel_id=7, CONFIG, GATHER
  ROOT %md = f32[64,64]{1,0:S(1)} dot(%m1, %m1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%chain_end (e0: f32[1000]) -> f32[4000] {
  %e0 = f32[1000]{0} parameter(0)
  %ge = f32[4000]{0} all-gather(%e0), channel_id=7, CONFIG, GATHER
  ROOT %end = f32[4000]{0} custom-call(%ge), custom_call_target="AsyncCollectiveDone"
}
""".replace("CONFIG", 'backend_config={"async_collective_fusion_config":{"flag_start":"2"}}').replace("GATHER", GATHER)


def test_a_collective_spread_over_fusions_is_sent_once() -> None:
    c = cost(
        """
        %a = f32[1000]{0} parameter(0)
        %x = f32[64,64]{1,0:S(1)} parameter(1)
        %s = f32[4000]{0:S(1)} fusion(%a), kind=kCustom, calls=%chain_start
        %m = f32[64,64]{1,0:S(1)} fusion(%a, %x), kind=kOutput, calls=%chain_middle
        ROOT %e = f32[4000]{0:S(1)} fusion(%a), kind=kCustom, calls=%chain_end
        """,
        CHAIN,
    )
    assert c.collectives == [("all-gather", (0, 1, 2, 3), 12000, 1)]
    assert c.flops == 2 * 64**3
    assert c.seconds["ici"] == pytest.approx(12000 / 2e6)
    assert c.predicted_s == pytest.approx(12000 / 2e6 + 0)


def test_an_all_reduce_of_which_a_slice_is_kept_is_a_reduce_scatter() -> None:
    before = """
%scatter (r0: f32[4000]) -> f32[1000] {
  %r0 = f32[4000]{0} parameter(0)
  %all = f32[4000]{0} all-reduce(%r0), replica_groups={{0,1,2,3}}, to_apply=%add
  %me = s32[] parameter(1)
  ROOT %mine = f32[1000]{0} dynamic-slice(%all, %me), dynamic_slice_sizes={1000}
}
"""
    c = cost(
        """
        %a = f32[4000]{0:S(1)} parameter(0)
        ROOT %f = f32[1000]{0:S(1)} fusion(%a), kind=kCustom, calls=%scatter
        """,
        before,
    )
    assert c.collectives == [("reduce-scatter", (0, 1, 2, 3), 12000, 1)]


def test_transfers_between_slices_go_through_the_hosts_network() -> None:
    c = cost("""
        %a = f32[1000]{0} parameter(0)
        %token = token[] after-all()
        %s = (f32[1000]{0}, u32[], token[]) send(%a, %token), channel_id=3, is_host_transfer=true
        ROOT %d = token[] send-done(%s), channel_id=3, is_host_transfer=true
    """)
    assert c.dcn_bytes == 4000 and c.bound == "dcn"
    assert c.predicted_s == pytest.approx(4000 / 1e6)


def kernel(
    name: str, outputs: str, operands: list[str], block_q: int = 2048, block_kv: int = 2048, o: str = "o"
) -> roofline.Cost:
    lines = [f"%{o}{i} = {shape} parameter({i})" for i, shape in enumerate(operands)]
    names = ", ".join(f"%{o}{i}" for i in range(len(operands)))
    metadata = f'"{{\\"block_q\\": {block_q}, \\"block_kv\\": {block_kv}}}"'
    call = f'ROOT %{name} = {outputs} custom-call({names}), custom_call_target="tpu_custom_call", frontend_attributes={{x={metadata}}}'
    return cost("\n".join([*lines, call]))


HEADS = "bf16[3,32,8192,128]{3,2,1,0:T(8,128)(2,1)}"
SCORES = 3 * 32 * 8192 * 8192 * (5 / 8)
"""of 4 x 4 blocks of 2048 a causal mask leaves 10"""


def test_kernels_are_counted_by_their_shapes() -> None:
    forward = kernel(
        "splash_mha_fwd_segmented.3", f"({HEADS}, f32[3,32,8192]{{2,1,0}})", ["s8[1,4,4]{2,1,0}", HEADS, HEADS, HEADS]
    )
    assert forward.flops == 2 * 2 * SCORES * 128
    assert forward.seconds["compute"] == pytest.approx(forward.flops / 0.5e9)
    backward = kernel("splash_mha_dkv_segmented_no_residuals", f"({HEADS}, {HEADS}, {HEADS})", [HEADS, HEADS, HEADS])
    assert backward.flops == 5 * 2 * SCORES * 128
    queries, keys = HEADS.replace("8192", "2048"), HEADS.replace("8192", "2304").replace("32", "8")
    prefixed = kernel("splash_mha_fwd_segmented", queries, [queries, keys, keys], block_q=512, block_kv=768)
    assert prefixed.flops == 2 * 2 * (3 * 32 * 2048 * 2304 * 9 / 12) * 128  # 1, 2, 3 and 3 of 3 blocks
    made_of = ("bf16[4096,768]{1,0}", ["s32[129]{0}", "bf16[4096,2048]{1,0}", "bf16[128,2048,768]{2,1,0}"])
    experts = kernel("gmm.1", *made_of)
    assert kernel("shard_map.7", *made_of, o="group_metadata_").flops == experts.flops, "as jax 0.11 names it"
    assert experts.flops == 2 * (4096 + 127 * 512) * 2048 * 768  # tiles that two groups share count twice
    assert experts.seconds["compute"] == pytest.approx(experts.flops / 1e9)
    gradient = kernel(
        "tgmm.1", "bf16[128,2048,768]{2,1,0}", ["s32[129]{0}", "bf16[4096,2048]{0,1}", "bf16[4096,768]{1,0}"]
    )
    assert gradient.flops == experts.flops
    (told,) = experts.notes
    assert "products of experts are taken to reach the share of the peak that others do" in told
    other = kernel("page_table.2", "f32[8]{0}", ["f32[8]{0}"])
    assert other.flops == 0 and other.hbm_bytes == 64
    assert other.notes == ["the kernel page_table is counted by its bytes alone"]


def test_time_is_divided_among_parts_and_phases() -> None:
    def pass_over(i: int, name: str, scope: str) -> str:
        return f'%{name} = f32[1000]{{0}} negate(%p{i}), metadata={{op_name="jit(step)/{scope}/neg"}}'

    scopes = (
        "jvp(kda)",
        "transpose(jvp(kda))",
        "transpose(jvp(checkpoint))/rematted_computation/kda/while/body",
        "optimizer/kdas",
    )
    lines = [f"%p{i} = f32[1000]{{0}} parameter({i})" for i in range(len(scopes))]
    c = cost(
        "\n".join(
            [
                *lines,
                *(pass_over(i, f"n{i}", scope) for i, scope in enumerate(scopes)),
                "ROOT %t = f32[1000]{0} negate(%p0)",
            ]
        )
    )
    one = 8000 / 1e6
    expected = {
        ("kda", "forward"): one,
        ("kda", "backward"): one,
        ("kda", "recompute"): one,
        ("optimizer", "forward"): one,
    }
    assert c.parts == pytest.approx(expected | {("other", "forward"): one})
    assert sum(c.parts.values()) == pytest.approx(c.predicted_s)


def test_sorting_is_said_to_be_left_out() -> None:
    c = cost("""
        %a = f32[8,1000]{1,0} parameter(0)
        ROOT %s = f32[8,1000]{1,0} sort(%a), dimensions={1}, to_apply=%compare
    """)
    assert c.notes == ["sorting 8000 numbers is counted by its bytes alone"]


def test_an_accelerator_without_efficiencies_is_refused() -> None:
    gpu = dataclasses.replace(V6E, name="H100-80GB")
    with pytest.raises(
        UserError, match="no efficiencies for H100-80GB; step times are predicted for v5e, v5p, v6e, tpu7x"
    ):
        roofline.cost(program("ROOT %a = f32[4]{0} parameter(0)"), gpu, (2, 2))


UPDATE = Path(__file__).with_name("qwen3-1.7b-update-v6e-2x4.hlo.txt.gz")
"""Qwen3-1.7B's GRPO update for a v6e-8, fsdp 8, as the compiler left it: 4 prompts of 256 tokens with 8 answers of 2048 a device"""


def test_a_real_update_counts_what_the_model_needs() -> None:
    module = hlo.parse(gzip.decompress(UPDATE.read_bytes()).decode())
    layers, dim, mlp, heads, head_dim, vocab = 28, 2048, 6144, 16, 128, 151936
    prompts, prompt, answers, answer = 4, 256, 8, 2048
    attention_weights, mlp_weights = 2 * dim * (16 + 8) * head_dim, 3 * dim * mlp
    tokens = prompts * (prompt + answers * answer)
    # forward, once more for the gradient, and twice backward; of the second forward the last product, mlp down, is not needed
    body = 2 * layers * tokens * (4 * (attention_weights + mlp_weights) - dim * mlp)
    unembedding = 2 * prompts * answers * answer * 4 * vocab * dim
    # a prompt sees itself; answers see their prompt and themselves
    seen = prompt * prompt + answers * answer * prompt + answers * answer * answer
    attention = 2 * layers * prompts * seen * heads * head_dim * (2 + 2 + 4)
    c = roofline.cost(module, V6E, topology=(2, 4))
    assert c.flops == pytest.approx(body + unembedding + attention, rel=0.005)
    assert c.flops == pytest.approx(
        8 / 6 * 6 * (layers * (attention_weights + mlp_weights)) * tokens + unembedding + attention, rel=0.05
    )
    # the sharded weights are gathered, forward and backward, and the gradients go back
    assert {kind for kind, *_ in c.collectives} == {"all-gather", "all-reduce", "all-to-all", "collective-permute"}
    assert all(len(group) == 8 for _, group, _, _ in c.collectives)
    assert sum(c.limits.values()) == pytest.approx(c.predicted_s)


def test_a_schedule_that_was_cut_off_is_refused() -> None:
    text = gzip.decompress(UPDATE.read_bytes()).decode()
    for share in (0.1, 0.5, 0.9, 0.999):
        with pytest.raises(ValueError):
            hlo.parse(text[: int(len(text) * share)])
    last = text.rindex("\n}")
    with pytest.raises(ValueError, match="not all of it"):
        hlo.parse(text[: last + 1])
