"""Where a trace's time goes, by the parts of a plan. Expected numbers are written by hand."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from flaxformer_mt.planning import PlanningError, measured
from flaxformer_mt.planning.hlo import parse
from flaxformer_mt.planning.measured import (
    COLLECTIVES,
    ELSEWHERE,
    UNESTIMATED,
    measured_parts,
    planned_parts,
    side_by_side,
)

NAME = 'metadata={op_name="jit(train_step)/transpose(jvp(Transformer))/encoder/layers_0'
UPDATE = 'metadata={op_name="jit(train_step)/mul"}'
CYCLES = 'backend_config={"estimated_cycles":"1000"}'
PROGRAM = f"""
HloModule jit_train_step

%body (x: f32[8]) -> f32[8] {{
  %x = f32[8] parameter(0)
  ROOT %fused.1 = f32[8] fusion(%x), kind=kLoop, {NAME}/feed_forward/add"}}, {CYCLES}
}}

ENTRY %main (a: f32[8]) -> f32[8] {{
  %a = f32[8] parameter(0)
  %loop.1 = f32[8] while(%a), condition=%body, body=%body
  %sum.1 = f32[8] all-reduce(%loop.1), channel_id=1, replica_groups={{}}
  %copy.1 = f32[8] copy(%sum.1)
  ROOT %last.1 = f32[8] fusion(%copy.1), kind=kLoop, {UPDATE}, {CYCLES}
}}
"""


def event(name: str, milliseconds: float, **stats: object) -> SimpleNamespace:
    return SimpleNamespace(name=name, duration_ns=1e6 * milliseconds, stats=[*stats.items()])


def parts_of(monkeypatch, tmp_path: Path, planes: dict[str, dict[str, list[SimpleNamespace]]]):
    """Milliseconds by part of a trace with these planes, each of lines by name."""
    (tmp_path / "host.xplane.pb").write_bytes(b"")
    profile = SimpleNamespace(
        planes=[
            SimpleNamespace(
                name=plane,
                lines=[SimpleNamespace(name=line, events=events) for line, events in lines.items()],
            )
            for plane, lines in planes.items()
        ]
    )
    monkeypatch.setattr(measured, "ProfileData", SimpleNamespace(from_file=lambda path: profile))
    found = measured_parts(tmp_path, parse(PROGRAM))
    return {name: pytest.approx(1e3 * seconds) for name, seconds in found.items()}


def test_a_tpus_operations_count_once_and_loops_by_what_they_run(monkeypatch, tmp_path):
    operations = [
        event("%loop.1 = f32[8] while(%a)", 50),
        event("%fused.1 = f32[8] fusion(%x), kind=kLoop", 3),
        event("%fused.1 = f32[8] fusion(%x), kind=kLoop", 4),
        event("%sum.1 = f32[8] all-reduce(%loop.1)", 5),
        event("%copy.1 = f32[8] copy(%sum.1)", 6),
        event("%last.1 = f32[8] fusion(%copy.1)", 7),
        event("%of_another_program = f32[] add()", 8),
    ]
    lines = {"XLA Modules": [event("jit_train_step", 80)], "XLA Ops": operations}
    planes = {
        "/device:TPU:0": lines,
        "/device:TPU:1": lines,
        "/host:CPU": {"python": [event("train", 99)]},
    }
    assert parts_of(monkeypatch, tmp_path, planes) == {
        "feed_forward": 14,
        COLLECTIVES: 10,
        UNESTIMATED: 12,
        "optimizer and metrics": 14,
        ELSEWHERE: 16,
    }


def test_a_gpus_and_a_cpus_operations_are_found_by_their_statistics(monkeypatch, tmp_path):
    planes = {
        "/device:GPU:0": {"Stream #13(Compute)": [event("a_kernel", 2, hlo_op="last.1")]},
        "/host:CPU": {"a thread": [event("fused.1", 3, hlo_op="fused.1"), event("Listen", 9)]},
    }
    assert parts_of(monkeypatch, tmp_path, planes) == {
        "optimizer and metrics": 2,
        "feed_forward": 3,
    }


def test_a_trace_without_operations_is_an_error(monkeypatch, tmp_path):
    with pytest.raises(PlanningError, match="no operation of a device"):
        parts_of(monkeypatch, tmp_path, {"/host:CPU": {"python": [event("train", 9)]}})


def test_parts_stand_beside_the_plans_and_copies_that_overlap_do_not():
    plan = {
        "compute": {
            "parts": [{"name": "logits", "seconds": 0.004}],
            "unestimated": [
                {"seconds": 0.001, "asynchronous": False},
                {"seconds": 0.1, "asynchronous": True},
            ],
        },
        "exposed": {"most": 0.0},
    }
    planned = planned_parts(plan)
    assert planned == {"logits": 0.004, UNESTIMATED: 0.001}
    first, second, third = side_by_side(planned, {"logits": 0.006, "loss": 0.001})
    assert (first.name, first.ratio) == ("logits", pytest.approx(1.5))
    assert (second.name, second.ratio) == ("loss", float("inf"))
    assert (third.name, third.measured) == (UNESTIMATED, 0.0)
