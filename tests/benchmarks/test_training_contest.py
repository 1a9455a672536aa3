"""Contestants as processes: ours on a toy, and stand-ins for peers that fail in every way."""

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peer_environments import Environments
from benchmarks.training_contest import HERE, Contest, Contestant
from benchmarks.training_contestants.contest import WARM, warmed
from benchmarks.training_workloads import Workload
from flaxformer_mt.data.plan import Shape

TOY = Workload(
    experiment="quickstart",
    overrides=(
        *("model.encoder_layers=1", "model.decoder_layers=1", "model.d_model=8", "model.d_ff=16"),
        *("model.num_heads=2", "model.d_k=4", "model.d_v=4", "data.vocabulary.size=40"),
    ),
    shape=Shape(8, 6, 5),
    steps=2,
)
PARAMETERS = 40 * 8 + 3 * 4 * 64 + 2 * (2 * 8 * 16 + 16 + 8) + 5 * 16

# Answers as a contestant does, whatever module it is asked to run.
STAND_IN = """\
import json, sys
def say(**answer): print(json.dumps(answer), flush=True)
if sys.argv[2].endswith("ceiling"):
    for line in sys.stdin: say(flops=2e9)
    sys.exit()
job = json.load(open(sys.argv[3]))
say(parameters={parameters}, setup="a stand-in, " + job["precision"], loss=1.0)
for line in sys.stdin:
    if line == "run\\n": say(seconds=0.5, loss=1.0, peak_bytes=2**20, device_bytes={device})
    else: say(shapes=1, seconds=0.1)
"""


def interpreter(folder: Path, name: str, text: str) -> Path:
    """A stand-in for the Python of a peer's environment."""
    script = folder / f"{name}.py"
    script.write_text(text, encoding="utf-8")
    path = folder / name
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n', encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def contest(
    folder: Path, texts: dict[str, str], *, limits: dict[str, Any] | None = None, **contestants: Any
) -> Contest:
    """JAX's own matrix products, which take seconds to start, are left out."""
    present = {name: interpreter(folder, name, text) for name, text in texts.items()}
    environments = Environments(folder / "environments", install=False, present=present)
    packages = {"torch": "torch"}
    return Contest(folder, environments, contestants, packages=packages, **(limits or {}))


def stand_in(parameters: int = PARAMETERS, device: int | None = None) -> str:
    return STAND_IN.replace("{parameters}", str(parameters)).replace("{device}", str(device))


@pytest.mark.extended
def test_ours_from_its_start_to_its_figures(tmp_path):
    it = contest(tmp_path, {}, ours=Contestant("ours", HERE))
    metrics, signatures = it.workload("toy", TOY, ["ours"], rounds=1, data=None)
    assert "toy_ours_failed" not in metrics, signatures
    assert metrics["toy_ours_parameters"] == PARAMETERS
    for name in ("tokens_per_second", "cold_first_step_seconds", "warm_first_step_seconds"):
        assert metrics[f"toy_ours_{name}"] > 0
    assert metrics["toy_ours_peak_memory_mib"] > 50
    # The second start finds compiled what the first has left.
    assert list((tmp_path / "toy" / "ours-cache").iterdir())
    assert "JAX" in signatures["toy_ours_tokens_per_second"]
    # PyTorch's environment is not there, and nobody else's products were asked for.
    assert it.ceilings() == {} and "toy_ours_share_of_ceiling" not in metrics


def test_peers_take_turns_and_their_failures_are_told(tmp_path, capsys):
    peers = {
        "broken": "raise ImportError('no module of mine in /opt/some/where/lib.so')",
        "larger": stand_in(parameters=PARAMETERS * 2),
        "mute": "import sys; sys.exit(3)",
        "chatty": "print('hello')",
    }
    it = contest(
        tmp_path,
        {"torch": stand_in(device=3 * 2**20), **peers},
        good=Contestant("any", "torch"),
        half=Contestant("any", "torch", bfloat16=True, compiled=True),
        gone=Contestant("any", "joeynmt"),
        **{name: Contestant("any", name) for name in peers},
    )
    entered = ["good", "half", *peers, "gone"]
    metrics, signatures = it.workload("toy", TOY, entered, rounds=2, data=None)
    assert metrics["toy_good_tokens_per_second"] == 2 * 8 * 5 / 0.5
    assert signatures["toy_good_tokens_per_second"] == "a stand-in, float32"
    assert metrics["toy_good_peak_memory_mib"] == 1
    assert it.ceilings() == {"float32": 2e9, "bfloat16": 2e9}
    for name, reason in {
        "broken": "ImportError: no module of mine in .../lib.so",
        "larger": "+100.0%",
        "mute": "ended with status 3 and said nothing",
        "chatty": "'hello', which is no JSON",
        "gone": "--install makes it",
    }.items():
        assert metrics[f"toy_{name}_failed"] == 1
        assert reason in signatures[f"toy_{name}_failed"]
        assert f"toy_{name}_tokens_per_second" not in metrics
    said = capsys.readouterr().out
    assert "broken" in said and "could not run: ImportError" in said
    # What a contestant is, its job says.
    job = json.loads((tmp_path / "toy" / "half.json").read_text())
    assert job["precision"] == "bfloat16" and job["compiled"] and job["d_ff"] == 16
    assert job["overrides"][-1] == "model.dtype=bfloat16"
    assert signatures["toy_half_tokens_per_second"] == "a stand-in, bfloat16"
    assert metrics["toy_half_device_memory_mib"] == 3
    flops = 1e9 * metrics["toy_gflops_a_token"] * metrics["toy_half_tokens_per_second"]
    assert metrics["toy_half_share_of_ceiling"] == pytest.approx(flops / 2e9)


def test_one_start_is_cold_and_timed_while_there_is_time(tmp_path):
    for seconds in (0.0, 60.0):
        limits = {"cold_starts": False, "seconds": seconds}
        good = Contestant("any", "torch")
        it = contest(tmp_path, {"torch": stand_in()}, limits=limits, good=good)
        metrics, signatures = it.workload("toy", TOY, ["good"], rounds=1, data=None)
        assert seconds or signatures == {"toy_good_failed": "no time was left for it"}
    assert metrics["toy_good_tokens_per_second"] > 0 and it.ceilings() == {"float32": 2e9}
    assert metrics["toy_good_cold_first_step_seconds"] > 0
    assert "toy_good_warm_first_step_seconds" not in metrics


@pytest.mark.parametrize(("shapes", "firsts"), [("aaa", [0]), ("abca", [2, 1, 0])])
def test_before_it_is_timed_it_does_each_shape_and_ten_steps_more(shapes, firsts) -> None:
    done: list[int] = []

    class Counting:
        def __init__(self) -> None:
            self.shapes = [(ord(shape),) for shape in shapes]

        def step(self, number: int) -> None:
            done.append(number)

        def loss(self) -> float:
            return 1.0

    assert warmed(Counting())["shapes"] == len(firsts)
    once, rest = done[: len(firsts)], done[len(firsts) :]
    assert sorted(once) == sorted(firsts)
    assert len(rest) == WARM >= 10 and set(rest) == set(range(len(shapes)))
