"""Where a run's time goes, MFU, traces of steps."""

import collections
import json
import warnings
from argparse import ArgumentTypeError

import jax
import pytest

from flaxformer_mt.cli.arguments import steps
from flaxformer_mt.model.flops import training_flops
from flaxformer_mt.training import instruments
from flaxformer_mt.training.instruments import (
    KINDS,
    Goodput,
    Peak,
    ProfileError,
    Profiler,
    Utilization,
    check_steps,
    find_peak,
)
from tests.test_progress import Clock
from tests.training.examples import VOCAB, tiny
from tests.training.runs import Killed, Run


@pytest.fixture
def clock() -> Clock:
    return Clock()


def spend(goodput: Goodput, clock: Clock, kind: str, seconds: float) -> None:
    with goodput(kind):
        clock.now += seconds


def trained(clock: Clock, *, save_at: int, steps: int) -> Goodput:
    """A start with steps of two seconds each and one checkpoint."""
    goodput = Goodput(clock=clock)
    spend(goodput, clock, "start", 10)
    for step in range(1, steps + 1):
        spend(goodput, clock, "steps", 2)
        if step == save_at:
            spend(goodput, clock, "checkpoints", 1)
        goodput.step = step
    return goodput


def test_every_second_belongs_to_one_kind(clock):
    goodput = trained(clock, save_at=3, steps=5)
    assert goodput.seconds == dict.fromkeys(KINDS, 0) | {"start": 10, "steps": 10, "checkpoints": 1}
    assert goodput.share == 10 / 21
    assert goodput.table().splitlines() == [
        "goodput 47.6% of 0:00:21 in 1 start",
        "  training steps                         0:00:10    47.6%",
        "  checkpoints                            0:00:01     4.8%",
        "  start: data, model, restoring          0:00:10    47.6%",
    ]


def test_a_block_within_another_is_its_own_and_may_change_its_mind(clock):
    goodput = Goodput(clock=clock)
    clock.now += 1
    with goodput("other"):
        clock.now += 2
        with pytest.raises(LookupError), goodput("data"):
            clock.now += 4
            raise LookupError
        with goodput("steps"):
            clock.now += 8
            goodput.kind = "compile"
        clock.now += 16
    clock.now += 32
    spent = {"start": 33, "other": 18, "data": 4, "compile": 8}
    assert goodput.seconds == dict.fromkeys(KINDS, 0) | spent


def test_steps_after_the_last_checkpoint_are_lost_by_a_kill(clock, tmp_path):
    file = tmp_path / "goodput.json"
    killed = trained(clock, save_at=3, steps=5)
    killed.keep_in(file, pytest.fail)
    killed.keep(5)
    clock.now += 1000  # nobody had the machine
    again = Goodput(clock=clock)
    again.keep_in(file, pytest.fail)
    again.goes_on_after(3)
    spend(again, clock, "start", 4)
    for _ in range(2):
        spend(again, clock, "steps", 2)
    again.keep(5)
    spent = again.seconds["lost"], again.seconds["steps"], again.share
    assert spent == pytest.approx((4, 10, 10 / 29))
    account = json.loads(file.read_text())
    assert (account["starts"], account["step"], account["wall_seconds"]) == (2, 5, 21 + 8)

    # Going on once more from where it is loses nothing.
    again.goes_on_after(5)
    assert again.seconds["lost"] == pytest.approx(4)


@pytest.mark.parametrize("content", ["", "[]", '{"seconds": 3, "starts": 1}'])
def test_a_damaged_file_is_said_and_replaced(tmp_path, clock, content):
    said: list[str] = []
    (tmp_path / "goodput.json").write_text(content)
    goodput = Goodput(clock=clock)
    goodput.keep_in(tmp_path / "goodput.json", said.append)
    assert len(said) == 1 and said[0].endswith("goodput restarts from zero")
    goodput.keep(1)
    assert json.loads((tmp_path / "goodput.json").read_text())["step"] == 1


def test_a_killed_run_has_lost_its_steps_and_a_finished_one_adds_up(tmp_path):
    """The loop's own blocks: kill after a report, go on from the checkpoint before it."""
    run = Run(tmp_path, {"training.steps": 8, "training.save_every": 2, "training.log_every": 1})
    with pytest.raises(Killed):
        run.start(kill_after=5)
    assert (run.goodput.step, run.goodput.seconds["lost"]) == (5, 0)
    run.start()
    assert (run.goodput.starts, run.goodput.step) == (2, 8)
    assert {kind for kind, spent in run.goodput.seconds.items() if spent} >= {*KINDS} - {"compile"}


Device = collections.namedtuple("Device", "device_kind platform process_index", defaults=[0])


@pytest.mark.parametrize(
    ("kind", "setting", "peak", "said"),
    [
        ("TPU v5 lite", 0.0, Peak(8 * 197e12, "TPU v5e"), "197 TFLOP/s per device"),
        ("TPU v5 lite", 3.5, Peak(8 * 3.5e12, "training.chip_tflops"), ""),
        ("Nonesuch 9", 0.0, None, "unknown peak of 'Nonesuch 9'; set training.chip_tflops"),
    ],
)
def test_a_known_chip_has_its_peak_by_name_and_the_setting_wins(kind, setting, peak, said):
    chosen, line = find_peak([Device(kind, "tpu")] * 8, setting, "float32")
    assert chosen == peak and said in line


def test_a_cpu_is_measured_in_the_type_that_the_model_multiplies_in(monkeypatch):
    peak, line = find_peak(jax.devices(), 0.0, "float32")
    assert peak is not None and 1e8 < peak.flops < 1e14
    assert "GFLOP/s (float32 matmul, measured in" in line
    # Every process brings a CPU.
    measured = {"bfloat16": 5e9}
    monkeypatch.setattr(instruments, "product_flops", lambda *_, dtype, **__: measured[dtype])
    cpus = [Device("cpu", "cpu", process) for process in (0, 0, 1, 1)]
    peak, line = find_peak(cpus, 0.0, "bfloat16")
    assert peak == Peak(1e10, "measured bfloat16 product") and "x 2 processes" in line


def test_share_by_hand():
    model = tiny().model
    flops = training_flops(model, VOCAB, src_tokens=40, tgt_tokens=48, src_keys=5, tgt_keys=6)
    utilization = Utilization(model, VOCAB, Peak(flops, "a test"))
    share = utilization.share(src_tokens=40, tgt_tokens=48, sentences=8, seconds=4)
    assert share == pytest.approx(0.25)


def test_steps_are_written_as_first_and_last_and_lie_ahead():
    assert steps("7:12") == (7, 12)
    for text in ("7", "7:", "a:b", "1:2:3", "-1:4", "0:3"):
        with pytest.raises(ArgumentTypeError):
            steps(text)
    check_steps(11, 20, start=10, total=20)
    with pytest.raises(ProfileError, match="resumes after step 10"):
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
