"""`training_speed`: batches, contestants as processes, and the arithmetic of what they report."""

import dataclasses
import json
import stat
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from benchmarks import training_speed
from benchmarks.learning_curves import table
from benchmarks.peer_environments import Environments
from benchmarks.training_contest import Contest, Contestant
from benchmarks.training_contestants.contest import Job, Rows, write_batches
from benchmarks.training_contestants.flax_linen import FlaxTrainer, Translation, _tokens
from benchmarks.training_report import (
    TOLERANCE,
    Disqualified,
    Measured,
    check_parameters,
    ratio,
    workload_metrics,
)
from benchmarks.training_speed import CONTESTANTS
from benchmarks.training_workloads import (
    WORKLOADS,
    Work,
    Workload,
    job_of,
    real,
    synthetic,
    work_of,
)
from flaxformer_mt.config import load_config
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD
from flaxformer_mt.model.flops import shape_flops
from flaxformer_mt.model.parameters import count_by_formula


def test_every_contestant_has_its_file_and_environment():
    folder = training_speed.RESULTS.parent
    for contestant in CONTESTANTS.values():
        assert (folder / "training_contestants" / f"{contestant.module}.py").exists()
        if contestant.environment != training_speed.HERE:
            assert (folder / "peers" / f"{contestant.environment}.txt").exists()


SHAPE = Shape(4, 6, 5)


def test_synthetic_batches_have_no_padding_and_real_ones_are_the_first_that_train_sees(tmp_path):
    first, second = synthetic(SHAPE, 50, 2)
    assert first.shape == SHAPE
    assert (first.src[:, -1] == EOS).all() and (first.tgt_out[:, -1] == EOS).all()
    assert (first.tgt_in[:, 0] == BOS).all() and (
        first.tgt_in[:, 1:] == first.tgt_out[:, :-1]
    ).all()
    assert first.src[:, :-1].min() > 3 and first.src.max() < 50
    assert not np.array_equal(first.src, second.src)
    work = work_of(load_config("quickstart"), 50, [first, second])
    assert (work.tgt_tokens, work.padding) == (2 * 4 * 5, 0.0)
    expected = shape_flops(load_config("quickstart").model, 50, rows=4, src_length=6, tgt_length=5)
    assert work.flops == pytest.approx(2 * expected)
    config = load_config("quickstart", ["data.train.grammar.size=300", "data.batch.tokens=512"])
    batches, vocabulary = real(config, tmp_path, steps=3)
    assert len(batches) == 3 and vocabulary == config.data.vocabulary.size
    for batch in batches:
        assert (batch.src_segment_ids[:, 0] > 0).all()
    work = work_of(config, vocabulary, batches)
    assert 0 < work.padding < 0.5
    assert work.tgt_tokens == sum(int((batch.tgt_out != PAD).sum()) for batch in batches)
    by_tokens, _ = real(config, tmp_path, tokens=work.tgt_tokens)
    for one, other in zip(batches, by_tokens, strict=True):
        assert np.array_equal(one.src, other.src)


WORK = Work(vocabulary=100, steps=4, tgt_tokens=1000, padding=0.25, flops=8e9)


def measured(*seconds: float, bfloat16: bool = False) -> Measured:
    return Measured(
        **{"bfloat16": bfloat16, "setup": "a package, a device", "parameters": 123},
        **{"cold_seconds": 9.0, "warm_seconds": [3.0, 2.0, 4.0], "run_seconds": list(seconds)},
        peak_bytes=5 * 2**20,
    )


def test_rates_shares_and_times_of_a_contestant():
    found = {"ours": measured(2.0, 1.0, 4.0), "peer": measured(4.0, 4.0, 5.0, bfloat16=True)}
    metrics, signatures = workload_metrics("toy", WORK, found, {"float32": 16e9, "bfloat16": 40e9})
    expected = {
        "ours_tokens_per_second": 500,
        "ours_tokens_per_second_lowest": 250,
        "ours_tokens_per_second_highest": 1000,
        # 8 GFLOP in two seconds, in four.
        "ours_share_of_ceiling": 4 / 16,
        "peer_share_of_ceiling": 2 / 40,
        "ours_warm_first_step_seconds": 3.0,
        "ours_cold_first_step_seconds": 9.0,
        "ours_peak_memory_mib": 5,
        "gflops_a_token": 0.008,
        "padding": 0.25,
        "ours_times_peer": 2.0,
    }
    for name, value in expected.items():
        assert metrics[f"toy_{name}"] == pytest.approx(value), name
    assert signatures["toy_peer_tokens_per_second"] == "a package, a device"
    # A machine that is slow in one round slows both, and changes no ratio.
    assert ratio([100, 10, 100], [50, 5, 50]) == 2
    assert ratio([100, 10, 30], [50, 5, 30]) == 2


def test_another_model_is_disqualified():
    at = round(1_000_000 * (1 + TOLERANCE))
    for count in (1_000_000, at, 2_000_000 - at):
        check_parameters("peer", count, 1_000_000)
    for count in (at + 1, 2_000_000 - at - 1, 0):
        with pytest.raises(Disqualified, match=r"peer has [\d,]+ parameters, .* of the 1,000,000"):
            check_parameters("peer", count, 1_000_000)


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


def stand_in(parameters: int = PARAMETERS, device: int | None = None) -> str:
    return STAND_IN.replace("{parameters}", str(parameters)).replace("{device}", str(device))


def test_peers_take_turns_and_their_failures_are_told(tmp_path, capsys):
    peers = {
        "broken": "raise ImportError('no module of mine in /opt/some/where/lib.so')",
        "larger": stand_in(parameters=PARAMETERS * 2),
        "mute": "import sys; sys.exit(3)",
        "chatty": "print('hello')",
    }
    texts = {"torch": stand_in(device=3 * 2**20), **peers}
    present = {name: interpreter(tmp_path, name, text) for name, text in texts.items()}
    environments = Environments(tmp_path / "environments", install=False, present=present)
    contestants = {
        "good": Contestant("any", "torch"),
        "half": Contestant("any", "torch", bfloat16=True, compiled=True),
        "gone": Contestant("any", "joeynmt"),
        **{name: Contestant("any", name) for name in peers},
    }
    # JAX's own matrix products, which take seconds to start, are left out.
    it = Contest(tmp_path, environments, contestants, packages={"torch": "torch"})
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


TOKENS = np.cumsum([10] * 90)
FALLING = [9 - step / 30 for step in range(90)]


def test_losses_are_compared_at_the_same_numbers_of_tokens():
    later = [loss + 0.5 for loss in FALLING]
    metrics, signatures = table(
        TOKENS, {"ours": FALLING, "peer": later}, {"ours": "A", "peer": "B"}
    )
    assert (metrics["steps"], metrics["target_tokens"]) == (90, 900)
    assert metrics["ours_loss_after_3_thirds"] == pytest.approx(np.mean(FALLING[70:]))
    assert metrics["ours_loss_after_1_thirds"] == pytest.approx(np.mean(FALLING[10:30]))
    assert metrics["loss_below_peer"] == pytest.approx(0.5)
    assert signatures["peer_loss_after_2_thirds"] == "B"


VOCABULARY = 50


@pytest.fixture
def job(tmp_path) -> Job:
    path = tmp_path / "batches.npz"
    batches = synthetic(Shape(4, 6, 5), VOCABULARY, 2)
    write_batches(path, [dataclasses.asdict(batch) for batch in batches])
    workload = dataclasses.replace(
        WORKLOADS["tiny"], overrides=("model.d_model=32", "model.d_k=8", "model.d_v=8")
    )
    return job_of(workload, VOCABULARY, path, bfloat16=False, compiled=False)


@pytest.mark.extended
def test_it_has_the_parameters_of_the_model_and_learns(job):
    trainer = FlaxTrainer(dataclasses.replace(job, dropout=0.0, warmup_steps=20))
    config = dataclasses.replace(WORKLOADS["tiny"].load().model, d_model=32, d_k=8, d_v=8)
    assert trainer.parameters == sum(count_by_formula(config, VOCABULARY, VOCABULARY).values())
    trainer.step(0)
    first = trainer.loss()
    for number in range(60):
        trainer.step(number % 2)
    assert trainer.loss() < first - 1.5
    # Padding changes nothing.
    model = Translation(dataclasses.replace(job, dropout=0.0))
    rows = Rows(np.array([[5, 6, 2]]), np.array([[1, 7]]), np.array([[7, 2]]))
    wider = Rows(*(np.pad(array, [(0, 0), (0, 2)]) for array in dataclasses.astuple(rows)))
    params = model.init(jax.random.key(0), _tokens(rows))
    narrow, wide = model.apply(params, _tokens(rows)), model.apply(params, _tokens(wider))
    np.testing.assert_allclose(narrow, wide[:, :2], atol=1e-5)
