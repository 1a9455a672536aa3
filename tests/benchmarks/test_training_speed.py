"""The command of `training_speed`: what it takes, what it refuses, what it records."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from benchmarks import training_speed
from benchmarks.training_contestants import ceiling
from benchmarks.training_speed import CONTESTANTS
from flaxformer_mt.reproduction.result_file import read_result


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
