"""The reader of compiled programs, on texts small enough to check by eye."""

import pytest

from podwright.plan.compiled import hlo, loops

LOOP = """HloModule jit_step, is_scheduled=true, num_partitions=8

%body (p: (s32[], f32[8], s32[])) -> (s32[], f32[8], s32[]) {
  %p = (s32[]{:T(128)}, f32[8]{0:T(128)}, /*index=2*/s32[]{:T(128)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%p), index=0
  %by = s32[]{:T(128)} constant(STEP)
  %copied = s32[]{:T(128)S(6)} copy(%i)
  %next = s32[]{:T(128)} add(%copied, %by)
  %x = f32[8]{0:T(128)} get-tuple-element(%p), index=1
  %n = s32[]{:T(128)} get-tuple-element(%p), index=2
  ROOT %t = (s32[]{:T(128)}, f32[8]{0:T(128)}, s32[]{:T(128)}) tuple(%next, %x, %n)
}

%condition (p.1: (s32[], f32[8], s32[])) -> pred[] {
  %p.1 = (s32[]{:T(128)}, f32[8]{0:T(128)}, s32[]{:T(128)}) parameter(0)
  %i.1 = s32[]{:T(128)} get-tuple-element(%p.1), index=0
  %limit = s32[]{:T(128)} constant(28)
  %carried = s32[]{:T(128)} get-tuple-element(%p.1), index=2
  %data = f32[8]{0:T(128)} get-tuple-element(%p.1), index=1
  CONDITION
}

ENTRY %main (x.1: f32[8]) -> f32[8] {
  %x.1 = f32[8]{0:T(128)} parameter(0)
  %start = s32[]{:T(128)} constant(0)
  %many = s32[]{:T(128)} constant(10)
  %given = (s32[]{:T(128)}, f32[8]{0:T(128)}, s32[]{:T(128)}) tuple(%start, %x.1, %many)
  %loop = (s32[]{:T(128)}, f32[8]{0:T(128)}, s32[]{:T(128)}) while(%given), condition=%condition, body=%body, backend_config={}
  ROOT %out = f32[8]{0:T(128)} get-tuple-element(%loop), index=1
}
"""


def loop(condition: str, step: str = "1") -> loops.Trips:
    module = hlo.parse(LOOP.replace("CONDITION", condition).replace("STEP", step))
    return loops.trips(module, module.entry.by_name["loop"], module.entry)


@pytest.mark.parametrize(
    ("condition", "step", "count"),
    [
        ("ROOT %lt = pred[] compare(%i.1, %limit), direction=LT", "1", 28),
        ("ROOT %lt = pred[] compare(%i.1, %limit), direction=LT", "3", 10),
        ("ROOT %le = pred[] compare(%i.1, %limit), direction=LE", "1", 29),
        ("ROOT %ne = pred[] compare(%i.1, %limit), direction=NE", "2", 14),
        ("ROOT %gt = pred[] compare(%limit, %i.1), direction=GT", "1", 28),
        ("%more = s32[] add(%i.1, %limit)\n  ROOT %lt = pred[] compare(%more, %limit), direction=LT", "1", 0),
        ("ROOT %lt = pred[] compare(%i.1, %carried), direction=LT", "1", 10),
    ],
    ids=["less", "by threes", "at most", "not equal", "sides changed", "already there", "limit carried"],
)
def test_a_loop_turns_as_often_as_its_counter_says(condition: str, step: str, count: int) -> None:
    assert loop(condition, step) == loops.Trips(count, exact=True)


def test_a_loop_that_data_may_end_has_a_bound() -> None:
    early = """%done = pred[] fusion(%data), kind=kLoop, calls=%some
  %go = pred[] not(%done)
  %lt = pred[] compare(%i.1, %limit), direction=LT
  ROOT %and = pred[] and(%lt, %go)"""
    assert loop(early) == loops.Trips(28, exact=False)


def test_a_loop_without_a_counter_has_none() -> None:
    assert loop("ROOT %done = pred[] fusion(%data), kind=kLoop, calls=%some") == loops.Trips(None, exact=False)
    assert loop("ROOT %gt = pred[] compare(%i.1, %limit), direction=GT") == loops.Trips(
        None, exact=False
    )  # counts away from the limit
    assert loop("ROOT %eq = pred[] compare(%i.1, %limit), direction=EQ") == loops.Trips(None, exact=False)


FUSED = """
%ends (p.2: s32[], p.3: f32[8]) -> pred[] {
  %p.3 = f32[8]{0} parameter(1)
  %p.2 = s32[] parameter(0)
  %one.1 = s32[] constant(1)
  %after = s32[] add(%p.2, %one.1)
  %last = s32[] constant(24)
  %lt.1 = pred[] compare(%after, %last), direction=LT
  %done = pred[] reduce(%p.3), to_apply=%some
  %not = pred[] not(%done)
  ROOT %both = pred[] and(%lt.1, %not)
}

%adds (p.4: s32[], p.5: s32[]) -> s32[] {
  %p.4 = s32[] parameter(0)
  %p.5 = s32[] parameter(1)
  ROOT %sum = s32[] add(%p.4, %p.5)
}
"""


def test_the_counter_of_a_loop_is_seen_through_fusions() -> None:
    """On a CPU what ends the loop is one fusion, what a turn adds another."""
    text = LOOP.replace("CONDITION", "ROOT %go = pred[] fusion(%i.1, %data), kind=kLoop, calls=%ends").replace(
        "STEP", "1"
    )
    text = text.replace("add(%copied, %by)", "fusion(%copied, %by), kind=kLoop, calls=%adds")
    module = hlo.parse(text.replace("\n%body", FUSED + "\n%body"))
    assert loops.trips(module, module.entry.by_name["loop"], module.entry) == loops.Trips(23, exact=False)


def test_an_element_of_a_tuple_may_be_written_short() -> None:
    """As libtpu 0.0.48 does."""
    short = """HloModule m
%body (p: (s32[], (f32[2], f32[3]), f32[4,8])) -> (s32[], (f32[2], f32[3]), f32[4,8]) {
  %one = s32[]{:T(128)} constant(1)
  %p = (s32[]{:T(128)}, (f32[2]{0}, f32[3]{0}), /*index=2*/f32[4,8]{1,0:T(8,128)}) parameter(0)
  %add = s32[]{:T(128)} add(%p#0, %one)
  %twice = f32[4,8]{1,0:T(8,128)} add(%p#2, %p#2)
  ROOT %out = (s32[]{:T(128)}, (f32[2]{0}, f32[3]{0}), f32[4,8]{1,0:T(8,128)}) tuple(%add, %p#1, %twice)
}

%condition (q: (s32[], (f32[2], f32[3]), f32[4,8])) -> pred[] {
  %last = s32[]{:T(128)} constant(4)
  %q = (s32[]{:T(128)}, (f32[2]{0}, f32[3]{0}), f32[4,8]{1,0:T(8,128)}) parameter(0)
  ROOT %lt = pred[]{:T(512)} compare(%q#0, %last), direction=LT
}

ENTRY %main (a: (f32[2], f32[3]), b: f32[4,8]) -> f32[4,8] {
  %zero = s32[]{:T(128)} constant(0)
  %a = (f32[2]{0}, f32[3]{0}) parameter(0)
  %b = f32[4,8]{1,0:T(8,128)} parameter(1)
  %start = (s32[]{:T(128)}, (f32[2]{0}, f32[3]{0}), f32[4,8]{1,0:T(8,128)}) tuple(%zero, %a, %b)
  %loop = (s32[]{:T(128)}, (f32[2]{0}, f32[3]{0}), f32[4,8]{1,0:T(8,128)}) while(%start), condition=%condition, body=%body
  ROOT %result = f32[4,8]{1,0:T(8,128)} copy(%loop#2)
}
"""
    module = hlo.parse(short)
    assert loops.trips(module, module.entry.by_name["loop"], module.entry) == loops.Trips(4, exact=True)
    body = module.computations["body"]
    assert [s.dims for s in body.by_name["p#2"].shapes] == [(4, 8)] and [
        s.dims for s in body.by_name["p#1"].shapes
    ] == [(2,), (3,)]
    assert [i.name for i in body.users("p")] == ["p#0", "p#2", "p#1"], "each once"


def test_what_the_compiler_wrote_about_a_loop_is_believed() -> None:
    text = LOOP.replace("backend_config={}", 'backend_config={"known_trip_count":{"n":"7"}}').replace(
        "CONDITION", "ROOT %r = pred[] copy(%p.1)"
    )
    module = hlo.parse(text)
    assert loops.trips(module, module.entry.by_name["loop"], module.entry) == loops.Trips(7, exact=True)


@pytest.mark.parametrize(
    ("text", "padded", "dense", "space"),
    [
        ("f32[4,100]{1,0:T(8,128)}", 8 * 128 * 4, 400 * 4, hlo.HBM),
        ("f32[100,4]{0,1:T(8,128)}", 8 * 128 * 4, 400 * 4, hlo.HBM),  # the first dimension lies innermost
        ("bf16[3,9,130]{2,1,0:T(8,128)(2,1)S(1)}", 3 * 16 * 256 * 2, 3 * 9 * 130 * 2, 1),
        ("s32[1000]{0:T(1024)}", 4096, 4000, hlo.HBM),
        ("bf16[2,5]{1,0:S(5)}", 20, 20, hlo.HOST),
        ("pred[]{:T(512)}", 1, 1, hlo.HBM),
        ("f8e4m3fn[16]", 16, 16, hlo.HBM),
        ("s4[16]{0}", 8, 8, hlo.HBM),
    ],
)
def test_an_array_takes_what_its_tiles_take(text: str, padded: int, dense: int, space: int) -> None:
    (shape,) = hlo.shapes_of(text)
    assert (shape.bytes, shape.dense_bytes, shape.space) == (padded, dense, space)


def test_tuples_are_flattened() -> None:
    shapes = hlo.shapes_of("((f32[2]{0}, s32[]), /*index=1*/bf16[3,4]{1,0:T(8,128)(2,1)S(1)}, u32[]{:S(2)})")
    assert [s.dims for s in shapes] == [(2,), (), (3, 4), ()]


ONE = """HloModule jit_f

ENTRY %main (a: f32[4]) -> f32[4] {
  %a = f32[4]{0} parameter(0)
  INSTRUCTION
}
"""


def one(instruction: str) -> hlo.Instruction:
    return hlo.parse(ONE.replace("INSTRUCTION", "ROOT " + instruction)).entry.root


@pytest.mark.parametrize(
    ("groups", "devices"),
    [
        ("replica_groups={{0,1,2,3},{4,5,6,7}}", (0, 1, 2, 3)),
        ("replica_groups=[2,8]<=[16]", tuple(range(8))),
        ("replica_groups=[4,2]<=[2,4]T(1,0)", (0, 4)),
        ("replica_groups=[4,2]<=[2,2,2]T(2,1,0)", (0, 4)),
        ("replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_1'}", (0, 1)),
        ("replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0'}", (0, 2, 4, 6)),
        ("replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0','axis_1'}", tuple(range(8))),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=1,'axis_2'=4], device_ids=([4,2]T(1,0)) {'axis_0'}", (0, 1)),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=2,'axis_2'=2], device_ids=([2,2,2]T(2,1,0)) {'axis_1'}", (0, 2)),
        ("source_target_pairs={{1,0},{3,2},{5,4},{7,6}}", (0, 1)),
        ("source_target_pairs={{0,0},{4,2},{2,1},{6,3},{1,4},{5,6},{3,5},{7,7}}", (1, 2, 4)),
        ("replica_groups={}", None),
    ],
)
def test_the_group_of_a_collective(groups: str, devices: tuple[int, ...] | None) -> None:
    assert one(f"%ag = f32[32]{{0}} all-gather(%a), channel_id=1, {groups}, dimensions={{0}}").group == devices


def test_attributes() -> None:
    at = one(
        '%f = f32[4]{0} fusion(%a, /*index=1*/%a), kind=kLoop, calls=%fused_computation.3, metadata={op_name="f(g)"}'
    )
    assert (at.opcode, at.operands, at.calls, at.attribute("kind")) == (
        "fusion",
        ("a", "a"),
        "fused_computation.3",
        "kLoop",
    )


def test_metadata_of_a_kernel_may_go_over_lines_and_computations_may_name_a_core() -> None:
    text = """HloModule jit_f, num_partitions=4

%on_another_core (a: f32[4]) -> f32[4] {
  ROOT %a = f32[4]{0} parameter(0)
}, execution_thread="sparsecore"

ENTRY %main (b: f32[4]) -> f32[4] {
  %b = f32[4]{0} parameter(0)
  %k = f32[4]{0} custom-call(%b), custom_call_target="tpu_custom_call", frontend_attributes={kernel_metadata={
"xprof_metadata":"{\\"block_q\\": 2}"
}}, metadata={op_name="k"}
  ROOT %c = f32[4]{0} copy(%k)
}
"""
    module = hlo.parse(text)
    assert [i.name for i in module.entry.instructions] == ["b", "k", "c"]
    assert "block_q" in module.entry.by_name["k"].attributes
    assert 'op_name="k"' in module.entry.by_name["k"].attributes
    assert list(module.computations) == ["on_another_core", "main"]
    assert module.num_partitions == 4


def test_other_text_is_refused() -> None:
    with pytest.raises(ValueError, match="not the text of an HLO module"):
        hlo.parse("HloModule jit_f\n\nnothing else")
