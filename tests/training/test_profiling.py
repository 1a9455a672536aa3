"""Traces of training steps."""

from __future__ import annotations

import warnings

import jax
import pytest

from flaxformer_mt.training.instruments import ProfileError, Profiler, check_steps, parse_steps
from tests.training.runs import Run


def test_steps_are_written_as_first_and_last():
    assert parse_steps("7:12") == (7, 12)
    assert parse_steps("3:3") == (3, 3)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["7", "7:", ":7", "7-9", "a:b", "1:2:3", "-1:4"], "write A:B"),
        (["0:3", "9:8"], "steps count from 1"),
    ],
)
def test_anything_else_is_refused(texts, message):
    for text in texts:
        with pytest.raises(ProfileError, match=message):
            parse_steps(text)


def test_steps_must_lie_ahead():
    check_steps(11, 20, start=10, total=20)
    with pytest.raises(ProfileError, match="goes on after step 10"):
        check_steps(10, 12, start=10, total=20)
    with pytest.raises(ProfileError, match="training ends at step 20"):
        check_steps(11, 21, start=10, total=20)


def traced_steps(folder) -> list[int]:
    """The steps that a trace names, as XProf's step view reads them."""
    (file,) = folder.glob("plugins/profile/*/*.xplane.pb")
    with warnings.catch_warnings():
        # Its bindings hold a module that Python's own deprecation concerns.
        warnings.simplefilter("ignore", DeprecationWarning)
        planes = list(jax.profiler.ProfileData.from_file(str(file)).planes)
        return sorted(
            int(value)
            for plane in planes
            for line in plane.lines
            for event in line.events
            if event.name == "train"
            for name, value in event.stats
            if name == "step_num"
        )


@pytest.mark.parametrize(("last", "stop_after"), [(4, None), (8, 4)])
def test_trace_has_exactly_the_steps_asked_for_up_to_a_stop(tmp_path, last, stop_after):
    run = Run(tmp_path, {"training.steps": 9})
    run.start(stop_after=stop_after, profiler=Profiler(3, last, tmp_path / "profile"))
    assert traced_steps(tmp_path / "profile") == [3, 4]
    assert f"trace of steps 3 to 4 written: tensorboard --logdir {tmp_path}/profile" in run.shown
