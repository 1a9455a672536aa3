"""Programs written by hand in the form of XLA's, and a topology to read them for."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from flaxformer_mt.parallel.chips import chip_of
from flaxformer_mt.planning.topology import Topology

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


# What libtpu 0.0.50 makes of a reduce-scatter and of an embedding's scatter for TPU7x, shortened:
# called on the SparseCore, the scatter by way of another call, and with no estimates worth a look.
OFFLOADED = """\
HloModule jit_train_step, is_scheduled=true

%add.clone (x: f32[], y: f32[]) -> f32[] {
  %x = f32[]{:T(128)} parameter(0)
  %y = f32[]{:T(128)} parameter(1)
  ROOT %add.1 = f32[]{:T(128)} add(%x, %y), backend_config={"window_config":\
{"estimated_cycles":"1485"}}
}, execution_thread="sparsecore"

%called_computation.35 (param_0: f32[4,32,128]) -> f32[4,32,16] {
  %param_0 = f32[4,32,128]{1,2,0:T(8,128)} parameter(0)
  ROOT %reduce-scatter.101 = f32[4,32,16]{1,2,0:T(8,128)} reduce-scatter(%param_0), channel_id=7, \
replica_groups=mesh['axis_0'=8] {'axis_0'}, use_global_device_ids=true, dimensions={2}, \
to_apply=%add.clone, backend_config={"window_config":{"estimated_cycles":"77777"}}
}, execution_thread="sparsecore"

%fused_scatter (p.0: f32[2000,128], p.1: s32[384], p.2: f32[384,128]) -> f32[2000,128] {
  %p.0 = f32[2000,128]{1,0:T(8,128)} parameter(0)
  %p.1 = s32[384]{0:T(512)} parameter(1)
  %p.2 = f32[384,128]{1,0:T(8,128)} parameter(2)
  ROOT %scattered = f32[2000,128]{1,0:T(8,128)} custom-call(%p.0, %p.1, %p.2), \
custom_call_target="scatter"
}, execution_thread="sparsecore"

%called_computation.66 (q.0: f32[2000,128], q.1: s32[384], q.2: f32[384,128]) -> f32[2000,128] {
  %q.0 = f32[2000,128]{1,0:T(8,128)} parameter(0)
  %q.1 = s32[384]{0:T(512)} parameter(1)
  %q.2 = f32[384,128]{1,0:T(8,128)} parameter(2)
  ROOT %scatter_fusion = f32[2000,128]{1,0:T(8,128)} fusion(%q.0, %q.1, %q.2), kind=kCustom, \
calls=%fused_scatter, backend_config={"window_config":{"estimated_cycles":"9223372036854775807"}}
}, execution_thread="sparsecore"

%called_computation (r.0: f32[2000,128], r.1: s32[384], r.2: f32[384,128]) -> f32[2000,128] {
  %r.0 = f32[2000,128]{1,0:T(8,128)} parameter(0)
  %r.1 = s32[384]{0:T(512)} parameter(1)
  %r.2 = f32[384,128]{1,0:T(8,128)} parameter(2)
  %inner-start = ((f32[2000,128], s32[384], f32[384,128]), f32[2000,128], u32[]{:S(8)}) \
call-start(%r.0, %r.1, %r.2), async_execution_thread="sparsecore", to_apply=%called_computation.66
  ROOT %inner-done = f32[2000,128]{1,0:T(8,128)} call-done(%inner-start)
}

ENTRY %main.161_spmd (a: f32[4,32,128], t: f32[2000,128], i: s32[384], u: f32[384,128]) -> f32[] {
  %a = f32[4,32,128]{1,2,0:T(8,128)} parameter(0)
  %t = f32[2000,128]{1,0:T(8,128)} parameter(1)
  %i = s32[384]{0:T(512)} parameter(2)
  %u = f32[384,128]{1,0:T(8,128)} parameter(3)
  %gradient = f32[4,32,128]{1,2,0:T(8,128)} multiply(%a, %a), \
backend_config={"window_config":{"estimated_cycles":"1000"}}
  %scatter_offload_async_start = ((), (), (s32[1]{0:T(128)S(2)})) call-start(), \
async_execution_thread="sparsecore", to_apply=%called_computation
  %reduce-scatter.102.call-start = ((), (), (s32[1]{0:T(128)S(2)})) call-start(), \
async_execution_thread="sparsecore", to_apply=%called_computation.35
  %reduce-scatter.102.call-done = () call-done(%reduce-scatter.102.call-start)
  %scatter_offload_async_done = () call-done(%scatter_offload_async_start)
  ROOT %loss = f32[] constant(0)
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
    return Topology("a test", slices, sides, chip, devices, "tpu", "a compiler", 2**34), mesh


def collective(line: str) -> str:
    """A program of one collective on an array `%x` of f32[1024]."""
    return (
        "HloModule m\n\nENTRY %main (x: f32[1024]) -> f32[1024] {\n"
        f"  %x = f32[1024]{{0}} parameter(0)\n  ROOT %c = {line}\n}}\n"
    )
