"""Estimated cycles and what stands for those that are missing."""

import dataclasses

import pytest

from flaxformer_mt.parallel.chips import chip_of
from flaxformer_mt.planning.costs import origin_of, part_of
from flaxformer_mt.planning.cycles import costs_by_cycles
from flaxformer_mt.planning.hlo import parse
from tests.planning.programs import LOOP

CHIP = chip_of("TPU v5e")


@pytest.fixture
def compute():
    return costs_by_cycles(parse(LOOP), CHIP)


def test_cycles_of_a_loop_are_those_of_all_its_rounds(compute):
    assert compute.cycles == 5 * 1000
    assert compute.seconds == pytest.approx(5000 / 1.5e9)
    (operation,) = compute.operations
    assert operation.name == "forward decoder/feed_forward bld,df->blf"
    assert operation.count == 5
    assert not compute.guessed_loops


def test_rounds_that_the_program_does_not_tell_are_guessed():
    unknown = LOOP.replace("%begin = s32[] copy(%zero)", "%begin = s32[] parameter(1)")
    guessed = costs_by_cycles(parse(unknown), CHIP, unknown_trips=3)
    assert guessed.cycles == 3000 and guessed.guessed_loops
    once = costs_by_cycles(parse(unknown), CHIP, unknown_trips=3, one_pass=True)
    assert once.cycles == 3000 and {cost.name for cost in once.unestimated} == {"add", "compare"}


def test_what_has_no_estimate_costs_the_bytes_that_it_moves(compute):
    costs = {cost.name: cost for cost in compute.unestimated}
    # The copy to VMEM once, not at its start and its end; collectives stand elsewhere.
    assert set(costs) == {"copy-start", "copy", "add", "compare"}
    assert costs["copy-start"].bytes == 4096 + 4
    assert costs["copy-start"].seconds == pytest.approx(4100 / CHIP.hbm_bandwidth)
    assert costs["add"].count == 5


def test_copies_count_where_they_take_longer_than_the_compute(compute):
    assert compute.copy_seconds == pytest.approx(4100 / CHIP.hbm_bandwidth)
    assert compute.overlapped_seconds == compute.seconds + compute.unestimated_seconds
    slow = dataclasses.replace(compute, seconds=0.0)
    assert slow.overlapped_seconds == max(slow.copy_seconds, slow.unestimated_seconds)


def test_an_update_in_place_moves_its_piece_alone():
    text = """HloModule m

ENTRY %main (a: f32[1000], b: f32[10], i: s32[]) -> f32[1000] {
  %a = f32[1000]{0} parameter(0)
  %b = f32[10]{0} parameter(1)
  %i = s32[] parameter(2)
  ROOT %u = f32[1000]{0} dynamic-update-slice(%a, %b, %i)
}
"""
    (cost,) = costs_by_cycles(parse(text), CHIP).unestimated
    assert cost.bytes == 2 * (40 + 4)


def test_a_lookup_moves_the_rows_that_it_takes():
    text = """HloModule m

%lookup (table: f32[1000,8], ids: s32[4]) -> f32[4,8] {
  %table = f32[1000,8]{1,0} parameter(0)
  %ids = s32[4]{0} parameter(1)
  ROOT %rows = f32[4,8]{1,0} gather(%table, %ids), slice_sizes={1,8}
}

ENTRY %main (t: f32[1000,8], i: s32[4]) -> f32[4,8] {
  %t = f32[1000,8]{1,0} parameter(0)
  %i = s32[4]{0} parameter(1)
  ROOT %taken = f32[4,8]{1,0} fusion(%t, %i), kind=kCustom, calls=%lookup
}
"""
    (cost,) = costs_by_cycles(parse(text), CHIP).unestimated
    assert cost.bytes == 2 * 4 * 8 * 4 + 4 * 4


@pytest.mark.parametrize(
    ("op_name", "wanted", "part"),
    [
        (
            "jit(train_step)/transpose(jvp(Transformer))/Transformer.encode/encoder/layers_5/"
            "self_attention/self_attention.attend/bqhv,hvd->bqd/dot_general",
            "backward encoder/self_attention bqhv,hvd->bqd",
            "attention projections",
        ),
        (
            "jit(train_step)/jvp(Transformer)/decoder/while/body/closed_call/layers.apply_layer/"
            "layers/layers._above_self_attention/feed_forward_residual.leave/norm/reduce_sum",
            "forward decoder/feed_forward_residual.leave/norm reduce_sum",
            "residual sums, dropout, norms",
        ),
        (
            "jit(train_step)/jvp()/while/body/closed_call/rlv,vd->rld/dot_general",
            "forward loss rlv,vd->rld",
            "loss",
        ),
        ("jit(train_step)/jvp(rlv,rld->vd)/dot_general", "forward loss rlv,rld->vd", "loss"),
        ("jit(train_step)/jit(_where)/select_n", "update select_n", "optimizer and metrics"),
        (
            "jit(search)/jit(advance_search)/while/body/Transformer.decode_step/decoder.decode_step/"
            "self_attention.attend_cached/brhk,bhkl->bhrl/dot_general",
            "search decoder.decode_step/self_attention.attend_cached brhk,bhkl->bhrl",
            "attention scores, weights",
        ),
        ("", "compiler: broadcast", "the compiler's own"),
    ],
)
def test_places_and_parts(op_name, wanted, part):
    program_place = origin_of(op_name, "broadcast")
    assert (str(program_place), part_of(program_place)) == (wanted, part)
