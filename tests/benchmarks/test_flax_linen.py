"""The contestant of Flax's own layers is the paper's model, learns, and sees no padding."""

import dataclasses

import jax
import numpy as np
import pytest

from benchmarks.training_contestants.contest import Job, Rows, write_batches
from benchmarks.training_contestants.flax_linen import FlaxTrainer, Translation, _tokens
from benchmarks.training_workloads import WORKLOADS, job_of, synthetic
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.model.parameters import count_by_formula

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
