"""Pipeline, loop, model and search together learn what can be learnt: to copy and to reverse."""

import dataclasses

import numpy as np
import pytest

from flaxformer_mt.data.store import TokenPairs
from tests.data.pairs import in_memory, listed
from tests.decoding.examples import translate_ids
from tests.training.examples import build_tiny, random_pairs, tiny
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
    "training.steps": 500,
    "training.log_every": 100,
    "training.validate_every": 0,
    "training.save_every": 500,
    "training.loss_chunk": 0,
    # The average smooths what a rate that is high for so short a training leaves rough.
    "training.optimizer.ema_decay": 0.98,
}


def pairs(task: str, count: int, seed: int) -> TokenPairs:
    """Of 1 to 8 tokens out of 8: few of those to be translated were seen in training."""
    reverse = random_pairs(count, seed, LONGEST)
    src = [ids[:-1] for ids in listed(reverse, "src")]
    return in_memory(src, src) if task == "copy" else reverse


@pytest.mark.parametrize("task", [pytest.param("copy", marks=pytest.mark.extended), "reverse"])
def test_learns_the_task(task, tmp_path):
    run = Run(
        tmp_path,
        SETTINGS,
        on=build_tiny(SETTINGS),
        train_pairs=pairs(task, 10_000, seed=0),
        valid_pairs=pairs(task, 100, seed=1),
    )
    assert run.start().state == "finished"
    # A model that has learnt the smoothed target perfectly gives the right token 0.9.
    assert run.log()[-1]["perplexity"] == pytest.approx(1 / 0.9, rel=0.02)
    # Another's source has the wrong tokens, which it is nearly sure of.
    assert run.log()[-1]["source_gain"] > 2
    assert "ignores its source" not in run.shown

    held_out = pairs(task, 300, seed=2)
    sources = listed(held_out, "src")
    for beam_size in (1, 4):
        decoding = dataclasses.replace(tiny().decoding, beam_size=beam_size)
        outputs = translate_ids(run.snapshot().ema, run.on.model, sources, decoding)
        right = [
            output == target[:-1]
            for output, target in zip(outputs, listed(held_out, "tgt"), strict=True)
        ]
        assert np.mean(right) >= 0.99
