"""What a schedule hides of its collectives, by programs written by hand.

Products take 1,000 cycles, 0.667 microseconds on a v5e. A collective of 4,096 bytes in and out on
two links of 50 GB/s takes 0.0717, or 40 times as long with 40 times as many bytes.
"""

import functools

import pytest

from flaxformer_mt.planning.collectives import collectives, communications
from flaxformer_mt.planning.cycles import costs_by_cycles, seconds_by_cycles
from flaxformer_mt.planning.hlo import parse
from flaxformer_mt.planning.overlap import exposed
from tests.planning.programs import LOOP, OFFLOADED, topology

GROUPS = "replica_groups=[1,8]<=[8], to_apply=%add"
PRODUCT = 1000 / 1.5e9  # seconds
SHORT = 2 * 7 / 8 * 4096 / 100e9  # an all-reduce of f32[1024]
LONG = 40 * SHORT  # of f32[40960], more than four products

# A collective in pieces, as libtpu writes it: begun and ended by fusions of their own.
PIECES = f"""\
%begin_piece (b: f32[40960]) -> f32[40960] {{
  %b = f32[40960]{{0}} parameter(0)
  ROOT %g.0 = f32[40960]{{0}} all-reduce(%b), channel_id=5, {GROUPS}, \
frontend_attributes={{chain_id="0"}}
}}

%async_collective_fusion.1 (c: f32[40960]) -> f32[40960] {{
  %c = f32[40960]{{0}} parameter(0)
  ROOT %g.1 = f32[40960]{{0}} all-reduce(%c), channel_id=5, {GROUPS}, \
frontend_attributes={{chain_id="0"}}
}}

%end_piece (d: f32[40960]) -> f32[40960] {{
  %d = f32[40960]{{0}} parameter(0)
  ROOT %g.2 = f32[40960]{{0}} all-reduce(%d), channel_id=5, {GROUPS}, \
frontend_attributes={{chain_id="0"}}
}}
"""
BEGIN = "  %first = f32[40960]{0} fusion(%large), kind=kCustom, calls=%begin_piece\n"
BESIDE = (
    "  %beside = f32[40960]{0} fusion(%first), kind=kOutput, calls=%async_collective_fusion.1, "
    'backend_config={"window_config":{"estimated_cycles":"1000"}}\n'
)
END = "  %ended = f32[40960]{0} fusion(%beside), kind=kCustom, calls=%end_piece\n"


def product(name):
    return (
        f"  %{name} = f32[8]{{0}} multiply(%x, %x), "
        'backend_config={"window_config":{"estimated_cycles":"1000"}}\n'
    )


def schedule(*lines, computations=""):
    """A program that runs these lines in their order."""
    return f"""\
HloModule jit_step, is_scheduled=true

{computations}
ENTRY %main (x: f32[8], small: f32[1024], large: f32[40960]) -> f32[8] {{
  %x = f32[8]{{0}} parameter(0)
  %small = f32[1024]{{0}} parameter(1)
  %large = f32[40960]{{0}} parameter(2)
{"".join(lines)}  ROOT %out = f32[8]{{0}} copy-done(%x)
}}
"""


def waited(text, chips=None):
    """(at most, at least, in all): seconds of the program's collectives that are not hidden."""
    chips, mesh = chips or topology(2, 4)
    program = parse(text)
    found = communications(program, chips, mesh)
    result = exposed(program, found, functools.partial(seconds_by_cycles, program, chips.chip))
    return result.most, result.least, sum(row.seconds for row in collectives(found))


def start(name, operand):
    size = {"small": 1024, "large": 40960}[operand]
    return f"  %{name} = f32[{size}]{{0}} all-reduce-start(%{operand}), {GROUPS}\n"


def done(name, started):
    return f"  %{name} = f32[1024]{{0}} all-reduce-done(%{started})\n"


def test_what_is_not_asynchronous_is_not_hidden():
    text = schedule(product("a"), f"  %s = f32[1024]{{0}} all-reduce(%small), {GROUPS}\n")
    assert waited(text) == pytest.approx((SHORT, SHORT, SHORT))


def test_what_stands_between_start_and_end_hides():
    text = schedule(start("s", "large"), product("a"), done("e", "s"), product("b"))
    most, least, total = waited(text)
    assert total == pytest.approx(LONG) and least == 0
    assert most == pytest.approx(LONG - PRODUCT)  # the second product comes too late
    assert waited(schedule(start("s", "small"), product("a"), done("e", "s")))[0] == 0


def test_one_collective_is_on_the_way_at_a_time():
    both = start("s", "small"), start("t", "large")
    products = product("a"), product("b")
    most, _, _ = waited(schedule(*both, *products, done("d", "s"), done("e", "t")))
    assert most == pytest.approx(SHORT + LONG - 2 * PRODUCT)
    # Whoever waits for the second has waited for the first.
    turned, _, _ = waited(schedule(*both, product("a"), done("e", "t"), product("b")))
    assert turned == pytest.approx(SHORT + LONG - PRODUCT)


def test_only_fusions_with_a_piece_hide_a_collective_in_pieces():
    between = BEGIN, product("a"), BESIDE, product("b"), END
    most, least, total = waited(schedule(*between, computations=PIECES))
    assert total == pytest.approx(LONG) and least == 0
    assert most == pytest.approx(LONG - PRODUCT)


def test_pieces_and_another_collective_share_the_time():
    lines = start("s", "small"), BEGIN, BESIDE, END, done("e", "s")
    most, _, _ = waited(schedule(*lines, computations=PIECES))
    assert most == pytest.approx(LONG + SHORT - PRODUCT)


def test_fusions_that_are_collectives_alone_compute_nothing():
    scatter = PIECES.replace(', frontend_attributes={chain_id="0"}', "").replace(
        "%begin_piece", "%all-reduce-scatter.7"
    )
    line = BEGIN.replace("%begin_piece", "%all-reduce-scatter.7")
    text = schedule(start("s", "small"), line, done("e", "s"), computations=scatter)
    most, least, total = waited(text)
    assert (most, total) == pytest.approx((LONG / 2 + SHORT, LONG / 2 + SHORT))
    assert least == pytest.approx(LONG / 2)
    # Its memory traffic goes on while its bytes are on the way, and is not counted beside them.
    assert costs_by_cycles(parse(text), topology(2, 4)[0].chip).unestimated == ()


def test_a_loop_hides_its_own_collectives_only():
    inside = LOOP.replace(
        "  %next =",
        f"  %t = f32[8,128]{{1,0}} all-reduce-start(%x), {GROUPS}\n  %next =",
    ).replace("  ROOT %out =", "  %u = f32[8,128]{1,0} all-reduce-done(%t)\n  ROOT %out =")
    after = SHORT
    assert waited(inside)[0] == pytest.approx(after)  # 5 passes of 0.667 microseconds hide 5 short
    late = inside.replace("  %y =", "  %v = f32[8,128]{1,0} all-reduce-done(%t)\n  %y =")
    assert waited(late)[0] > after + 4 * SHORT


def test_what_a_sparsecore_sends_overlaps_with_what_stands_between():
    chips = topology(2, 2, 2, kind="TPU7x")
    most, least, total = waited(OFFLOADED, chips)
    assert least == 0 and most == total > 0  # it is awaited at once
    call = "  %reduce-scatter.102.call-done ="
    late = OFFLOADED.replace(
        call,
        "  %other = f32[4,32,128]{1,2,0} multiply(%a, %a), "
        'backend_config={"window_config":{"estimated_cycles":"220000"}}\n' + call,
    )
    assert waited(late, chips)[0] == 0
