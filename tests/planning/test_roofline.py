"""A GPU's kernels by their bytes and FLOPs, on a program written by hand in the form of XLA's."""

import pytest

from flaxformer_mt.parallel.chips import chip_of
from flaxformer_mt.planning.hlo import parse
from flaxformer_mt.planning.roofline import (
    LAUNCH_SECONDS,
    REACHED_BANDWIDTH,
    REACHED_FLOPS,
    costs_by_roofline,
)

CHIP = chip_of("NVIDIA H100 80GB HBM3")
PROGRAM = """\
HloModule jit_train_step, is_scheduled=true

%gemm_fusion (p0: bf16[4096,2048], p1: bf16[2048,1024]) -> bf16[4096,1024] {
  %p0 = bf16[4096,2048]{1,0} parameter(0)
  %p1 = bf16[2048,1024]{1,0} parameter(1)
  %product = f32[4096,1024]{1,0} dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %rounded = bf16[4096,1024]{1,0} convert(%product)
}

%lookup (table: f32[30000,512], ids: s32[64,1]) -> f32[64,512] {
  %table = f32[30000,512]{1,0} parameter(0)
  %ids = s32[64,1]{1,0} parameter(1)
  ROOT %rows = f32[64,512]{1,0} gather(%table, %ids), offset_dims={1}
}

%turned_lookup (logits: f32[256,4,37000], chunks: s32[256,8]) -> f32[2048,125] {
  %logits = f32[256,4,37000]{2,1,0} parameter(0)
  %chunks = s32[256,8]{1,0} parameter(1)
  %by_chunk = f32[256,4,296,125]{3,2,1,0} bitcast(%logits)
  %turned = f32[4,296,256,125]{3,2,1,0} transpose(%by_chunk), dimensions={1,2,0,3}
  %flat = f32[303104,125]{1,0} bitcast(%turned)
  ROOT %chosen = f32[2048,125]{1,0} gather(%flat, %chunks), offset_dims={1}
}

%turned (x: f32[256,512]) -> f32[512,256] {
  %x = f32[256,512]{1,0} parameter(0)
  ROOT %turned.2 = f32[512,256]{1,0} transpose(%x), dimensions={1,0}
}

%update (cache: f32[1000,512], new: f32[1,512], index: s32[]) -> f32[1000,512] {
  %cache = f32[1000,512]{1,0} parameter(0)
  %new = f32[1,512]{1,0} parameter(1)
  %index = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %updated = f32[1000,512]{1,0} dynamic-update-slice(%cache, %new, %index, %zero)
}

ENTRY %main (x: bf16[4096,2048], w: bf16[2048,1024], t: f32[30000,512], i: s32[64,1], \
c: f32[1000,512], n: f32[1,512], k: s32[], f: f32[64,512], q: bf16[2,256,8,64], \
l: f32[256,4,37000], h: s32[256,8], m: f32[256,512]) -> f32[1000,512] {
  %x = bf16[4096,2048]{1,0} parameter(0)
  %w = bf16[2048,1024]{1,0} parameter(1)
  %t = f32[30000,512]{1,0} parameter(2)
  %i = s32[64,1]{1,0} parameter(3)
  %c = f32[1000,512]{1,0} parameter(4)
  %n = f32[1,512]{1,0} parameter(5)
  %k = s32[] parameter(6)
  %f = f32[64,512]{1,0} parameter(7)
  %q = bf16[2,256,8,64]{3,2,1,0} parameter(8)
  %l = f32[256,4,37000]{2,1,0} parameter(9)
  %h = s32[256,8]{1,0} parameter(10)
  %m = f32[256,512]{1,0} parameter(11)
  %turned.3 = f32[512,256]{1,0} fusion(%m), kind=kLoop, calls=%turned, metadata=\
{op_name="jit(train_step)/turn/transpose"}
  %chosen.1 = f32[2048,125]{1,0} fusion(%l, %h), kind=kLoop, calls=%turned_lookup, metadata=\
{op_name="jit(train_step)/candidates/gather"}
  %y = bf16[4096,1024]{1,0} fusion(%x, %w), kind=kCustom, calls=%gemm_fusion, metadata={op_name=\
"jit(train_step)/jvp(Transformer)/decoder/layers_1/feed_forward/bld,df->blf/dot_general"}
  %rows.1 = f32[64,512]{1,0} fusion(%t, %i), kind=kLoop, calls=%lookup, metadata={op_name=\
"jit(train_step)/jvp(Transformer)/embedding/gather"}
  %cublas = (f32[64,64]{1,0}, s8[4194304]{0}) custom-call(%f, %f), \
custom_call_target="__cublas$gemm", metadata={op_name="jit(train_step)/transpose(jvp(Transformer))\
/decoder/layers_1/self_attention/bld,dhk->blhk/dot_general"}, backend_config=\
{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}
  %attended = (bf16[2,8,256,64]{3,1,2,0}, f32[2,8,256]{2,1,0}, u8[16]{0}) custom-call(%q, %q, %q), \
custom_call_target="__cudnn$fmhaSoftmax", metadata={op_name="jit(train_step)/jvp(Transformer)\
/decoder/layers_1/self_attention/dot_product_attention_fwd"}
  ROOT %u = f32[1000,512]{1,0} fusion(%c, %n, %k), kind=kLoop, calls=%update, metadata={op_name=\
"jit(train_step)/update"}
}
"""


@pytest.fixture
def compute():
    return costs_by_roofline(parse(PROGRAM), CHIP)


@pytest.fixture
def costs(compute):
    return {cost.name: cost for cost in compute.operations}


def test_a_product_takes_the_time_of_its_flops(costs):
    cost = costs["forward decoder/feed_forward bld,df->blf"]
    assert cost.flops == 2 * 4096 * 2048 * 1024
    assert cost.bytes == 2 * (4096 * 2048 + 2048 * 1024 + 4096 * 1024)
    seconds = cost.flops / (REACHED_FLOPS * CHIP.bf16_flops) + LAUNCH_SECONDS
    assert cost.seconds == pytest.approx(seconds)


def test_rows_of_a_table_are_read_and_not_the_table(costs):
    cost = costs["forward embedding gather"]
    assert cost.bytes == 2 * 4 * 64 * 512 + 4 * 64
    seconds = cost.bytes / (REACHED_BANDWIDTH * CHIP.hbm_bandwidth) + LAUNCH_SECONDS
    assert cost.seconds == pytest.approx(seconds)


def test_of_an_array_turned_only_to_be_looked_up_no_more_is_read(costs):
    assert costs["update candidates gather"].bytes == 2 * 4 * 2048 * 125 + 4 * 256 * 8


def test_an_array_that_is_only_turned_is_read_whole(costs):
    assert costs["update turn transpose"].bytes == 2 * 4 * 256 * 512


def test_an_update_in_place_moves_its_piece_twice(costs):
    assert costs["update update"].bytes == 2 * 4 * 512 + 4


def test_a_library_s_product_counts_without_its_scratch_memory_and_at_half_the_rate(costs):
    cost = costs["backward decoder/self_attention bld,dhk->blhk"]
    assert cost.flops == 2 * 64 * 64 * 512
    assert cost.bytes == 4 * (2 * 64 * 512 + 64 * 64)
    # TensorFloat-32: the bytes of so small a product take longer still.
    larger = PROGRAM.replace("f32[64,512]", "f32[8192,8192]").replace(
        "f32[64,64]", "f32[8192,8192]"
    )
    operations = costs_by_roofline(parse(larger), CHIP).operations
    (large,) = (cost for cost in operations if cost.name.startswith("backward decoder"))
    seconds = large.flops / (REACHED_FLOPS * CHIP.bf16_flops / 2) + LAUNCH_SECONDS
    assert large.seconds == pytest.approx(seconds)


def test_cudnn_s_attention_reads_keys_and_values_for_every_block_of_queries(costs, compute):
    cost = costs["forward decoder/self_attention cuDNN attention"]
    assert cost.flops == 2 * 2 * 2 * 8 * 256 * 256 * 64
    one = 2 * 2 * 256 * 8 * 64  # bytes of each of q, k, v and the result
    statistics = 4 * 2 * 8 * 256
    assert cost.bytes == 4 * one + statistics + 2 * one  # two blocks of 128 queries
    parts = {part.name: part for part in compute.parts}
    assert parts["attention kernel"].bytes == cost.bytes


def test_the_whole_is_the_sum_of_its_kernels(compute):
    assert compute.kernels == 7 and compute.cycles is None and compute.unestimated == ()
    assert compute.bytes == sum(cost.bytes for cost in compute.operations)
    assert compute.flops == sum(cost.flops for cost in compute.operations)
    assert compute.overlapped_seconds == compute.seconds
    assert compute.seconds == pytest.approx(sum(cost.seconds for cost in compute.operations))
