"""The batches of `training_speed`: without padding, or a corpus's own, and the same for all."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from benchmarks.training_contestants.contest import (
    Job,
    read_batches,
    read_rows,
    write_batches,
)
from benchmarks.training_workloads import WORKLOADS, job_of, real, synthetic, work_of
from flaxformer_mt.config import load_config
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD
from flaxformer_mt.model.flops import shape_flops

SHAPE = Shape(4, 6, 5)


def test_synthetic_batches_have_no_padding_and_end_marks():
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


def test_real_batches_are_the_first_that_train_sees(tmp_path):
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


def test_what_is_written_is_what_contestants_read(tmp_path):
    batches = [dataclasses.asdict(batch) for batch in synthetic(SHAPE, 50, 12)]
    write_batches(tmp_path / "batches.npz", batches)
    found = read_batches(str(tmp_path / "batches.npz"))
    assert len(found) == 12 and found[0].keys() == batches[0].keys()
    for one, other in zip(batches, found, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)
    rows = read_rows(str(tmp_path / "batches.npz"))
    assert np.array_equal(rows[11].tgt_in, batches[11]["tgt_in"])
    job = job_of(WORKLOADS["tiny"], 8000, tmp_path / "batches.npz", bfloat16=True, compiled=False)
    job.write(tmp_path / "job.json")
    assert Job.read(tmp_path / "job.json") == job
    assert (job.precision, job.dropout, job.num_heads) == ("bfloat16", 0.3, 4)
    assert (job.learning_rate, job.warmup_steps) == (pytest.approx(0.004), 2000)
