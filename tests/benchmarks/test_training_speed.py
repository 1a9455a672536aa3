"""`training_speed`: its command, the batches that all contestants get, and its arithmetic."""

import jax
import numpy as np
import pytest

from benchmarks import training_speed
from benchmarks.training_contestants import ceiling
from benchmarks.training_report import (
    TOLERANCE,
    Disqualified,
    Measured,
    check_parameters,
    ratio,
    workload_metrics,
)
from benchmarks.training_speed import CONTESTANTS
from benchmarks.training_workloads import Work, real, synthetic, work_of
from flaxformer_mt.config import load_config
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD
from flaxformer_mt.model.flops import shape_flops
from flaxformer_mt.reproduction.result_file import read_result


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "multi30k"], "--data names its folder"),
        (["--python", "torch"], "write one of eole, joeynmt, torch = PYTHON"),
        (["--rounds", "0"], "--rounds: at least one"),
    ],
)
def test_wrong_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit):
        training_speed.parse(["--workdir", "somewhere", *arguments])
    assert message in capsys.readouterr().err


def test_every_contestant_has_its_file_and_environment():
    folder = training_speed.RESULTS.parent
    for contestant in CONTESTANTS.values():
        assert (folder / "training_contestants" / f"{contestant.module}.py").exists()
        if contestant.environment != training_speed.HERE:
            assert (folder / "peers" / f"{contestant.environment}.txt").exists()


@pytest.mark.extended
def test_each_workload_has_a_result_in_the_one_form(tmp_path, monkeypatch, capsys):
    """Without contestants: what they measure is tested where they are."""

    class Nobody:
        def __init__(self, *_, **__):
            pass

        def workload(self, name, workload, entered, *, rounds, data):
            assert entered == (*training_speed.ALWAYS, "eole") and workload.steps == 3
            return {f"{name}_eole_failed": 1}, {f"{name}_eole_failed": "no such wheel"}

        def ceiling_metrics(self):
            return {"ceiling_jax_float32_gflops": 400.0}

    monkeypatch.setattr(training_speed, "Contest", Nobody)
    arguments = ["--workdir", str(tmp_path), "--peers", "eole", "--python", "eole=/a/python"]
    assert training_speed.main([*arguments, "--steps", "3", "--result", str(tmp_path)]) == 0
    for name in ("tiny", "base"):
        result = read_result(tmp_path / f"training_speed_{name}.json")
        failed = f"{name}_eole_failed"
        assert result.metrics == {failed: 1, "ceiling_jax_float32_gflops": 400.0}
        assert result.signatures == {failed: "no such wheel"}
        assert f"--config {name} --peers eole --steps 3" in result.command
    assert "400" in capsys.readouterr().out


@pytest.mark.extended
def test_a_ceiling_is_a_rate_that_a_processor_can_have_with_any_numbers(monkeypatch):
    put, multiplied = jax.device_put, []
    monkeypatch.setattr(jax, "device_put", lambda x, where: multiplied.append(x) or put(x, where))
    assert 1e8 < ceiling.jax_flops("float32") < 1e15
    assert [len(np.unique(x[0])) > 1000 for x in multiplied] == [True, True]


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
