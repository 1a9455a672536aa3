"""Pipeline, loop, model and search together learn what can be learnt: to copy and to reverse."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from flaxformer_mt.data.store import TokenPairs
from flaxformer_mt.decoding.batches import translate_ids
from flaxformer_mt.training.program import Program
from tests.data.pairs import in_memory, listed
from tests.training.examples import SPECIAL, VOCAB, build_tiny, tiny
from tests.training.runs import Run

LONGEST = 8
SETTINGS = {
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.num_heads": 4,
    "model.d_k": 8,
    "model.d_v": 8,
    "model.dropout": 0.0,
    "model.max_length": 2 * LONGEST,
    "data.filter.max_length": LONGEST + 1,
    "data.batch.tokens": 64 * (LONGEST + 1),
    "data.batch.max_shapes": 1,
    "training.schedule.peak": 0.01,
    "training.schedule.warmup_steps": 100,
    "training.steps": 700,
    "training.log_every": 100,
    "training.validate_every": 0,
    "training.save_every": 700,
    "training.loss_chunk": 0,
    # The average smooths what a rate that is high for so short a training leaves rough.
    "training.optimizer.ema_decay": 0.98,
}


@functools.cache
def learner() -> Program:
    return build_tiny(SETTINGS)


def sentences(count: int, seed: int) -> list[list[int]]:
    """Of 1 to 8 tokens out of 8: few of those to be translated were seen in training."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, LONGEST + 1, count)
    return [random.integers(SPECIAL, VOCAB, length).tolist() for length in lengths]


def pairs(task: str, count: int, seed: int) -> TokenPairs:
    src = sentences(count, seed)
    return in_memory(src, src if task == "copy" else [ids[::-1] for ids in src])


@pytest.mark.parametrize("task", [pytest.param("copy", marks=pytest.mark.extended), "reverse"])
def test_learns_the_task(task, tmp_path):
    run = Run(
        tmp_path,
        SETTINGS,
        on=learner(),
        train_pairs=pairs(task, 10_000, seed=0),
        valid_pairs=pairs(task, 100, seed=1),
    )
    assert run.start().state == "finished"
    # A model that has learnt the smoothed target perfectly gives the right token 0.9.
    assert run.log()[-1]["perplexity"] == pytest.approx(1 / 0.9, rel=0.02)
    # Another's source has the wrong tokens, which it is nearly sure of.
    assert run.log()[-1]["source_gain"] > 2
    assert "does not read its source" not in run.shown

    held_out = pairs(task, 300, seed=2)
    sources = listed(held_out, "src")
    for beam_size in (1, 4):
        decoding = dataclasses.replace(tiny().decoding, beam_size=beam_size)
        outputs = translate_ids(run.snapshot().ema, learner().model, sources, decoding)
        right = [
            output == target[:-1]
            for output, target in zip(outputs, listed(held_out, "tgt"), strict=True)
        ]
        assert np.mean(right) >= 0.99


def test_a_model_that_does_not_read_its_source_is_pointed_out(tmp_path):
    """Sources and targets that do not belong together, as when a line is missing in one file.

    The loss falls all the same: targets that count upwards can be learnt without a source.
    """

    def strangers(count: int, seed: int) -> TokenPairs:
        first = [ids[0] for ids in sentences(count, seed + 1)]
        counting = [[*range(number, VOCAB)] for number in first]
        return in_memory(sentences(count, seed), counting)

    run = Run(
        tmp_path,
        {**SETTINGS, "training.steps": 200, "training.validate_every": 100},
        on=learner(),
        train_pairs=strangers(2000, seed=0),
        valid_pairs=strangers(300, seed=4),
    )
    run.start()
    at_100, at_200 = (line for line in run.log() if line["kind"] == "valid")
    assert at_200["loss"] < 0.7 and abs(at_200["source_gain"]) < 0.02
    # While the rate rises it says nothing: every model begins like that.
    assert run.shown.count("so far the model does not read its source") == 1
    assert "step 200: with sources of other sentences" in run.shown
    assert "source_gain" in at_100
