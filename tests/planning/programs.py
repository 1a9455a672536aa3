"""Programs written by hand in the form of XLA's, and a topology to read them for."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from flaxformer_mt.parallel.chips import chip_of
from flaxformer_mt.planning.compiler import Topology

# A loop of 5 passes, one fusion with an estimate in it; an all-reduce; a copy without an estimate.
LOOP = """\
HloModule jit_step, is_scheduled=true

%fused (p: f32[8,128]) -> f32[8,128] {
  %p = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %inner = f32[8,128]{1,0:T(8,128)} multiply(%p, %p)
}

%body (arg: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {
  %arg = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  %i = s32[] get-tuple-element(%arg), index=0
  %x = f32[8,128]{1,0:T(8,128)} get-tuple-element(%arg), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %y = f32[8,128]{1,0:T(8,128)} fusion(%x), kind=kLoop, calls=%fused, \
metadata={op_name="jit(train_step)/jvp(Transformer)/decoder/layers_3/feed_forward/bld,df->blf/\
dot_general"}, \
backend_config={"window_config":{"estimated_cycles":"1000"}}
  ROOT %out = (s32[], f32[8,128]) tuple(%next, %y)
}

%condition (arg.1: (s32[], f32[8,128])) -> pred[] {
  %arg.1 = (s32[], f32[8,128]) parameter(0)
  %i.1 = s32[] get-tuple-element(%arg.1), index=0
  %limit = s32[] constant(7)
  ROOT %less = pred[] compare(%i.1, %limit), direction=LT
}

ENTRY %main (x0: f32[8,128]) -> f32[8,128] {
  %x0 = f32[8,128]{1,0:T(8,128)} parameter(0)
  %zero = s32[] constant(2)
  %begin = s32[] copy(%zero)
  %start = (s32[], f32[8,128]) tuple(%begin, %x0)
  %loop = (s32[], f32[8,128]) while(%start), condition=%condition, body=%body
  %last = f32[8,128]{1,0:T(8,128)} get-tuple-element(%loop), index=1
  %sum = f32[8,128]{1,0:T(8,128)} all-reduce(%last), channel_id=1, replica_groups=[1,8]<=[8], \
use_global_device_ids=true, to_apply=%add
  %moved = (f32[8,128]{1,0:T(8,128)S(1)}, f32[8,128]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%sum)
  ROOT %done = f32[8,128]{1,0:T(8,128)S(1)} copy-done(%moved)
}
"""


def topology(*sides: int, kind: str = "TPU v5 lite", slices: int = 1) -> tuple[Topology, Any]:
    """Devices that have places and slices and nothing else, and a mesh of all of them."""
    chip = chip_of(kind)
    assert chip is not None
    devices = tuple(
        SimpleNamespace(coords=(*place, 0, 0)[:3], slice_index=number)
        for number in range(slices)
        for place in np.ndindex(*sides)
    )
    grid = np.array(devices, dtype=object).reshape(len(devices), 1, 1)
    mesh = SimpleNamespace(devices=grid, shape={"data": len(devices), "fsdp": 1, "tensor": 1})
    return Topology("a test", slices, sides, chip, devices), mesh


def collective(line: str) -> str:
    """A program of one collective on an array `%x` of f32[1024]."""
    return (
        "HloModule m\n\nENTRY %main (x: f32[1024]) -> f32[1024] {\n"
        f"  %x = f32[1024]{{0}} parameter(0)\n  ROOT %c = {line}\n}}\n"
    )
