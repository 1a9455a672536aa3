"""All programs of a batch's shape, compiled before its sentences are known."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from flaxformer_mt.data.vocabulary import EOS, UNK
from flaxformer_mt.decoding import batch_search
from flaxformer_mt.decoding.decode import compile_batches, decode_ids
from tests.decoding.examples import CONFIG, VOCAB, tiny

LENGTH, COUNT = 14, 16


def compiled() -> list[int]:
    parts = (batch_search.begin, batch_search.advance, batch_search.reshaped)
    return [part._cache_size() for part in parts]  # type: ignore[attr-defined]


@pytest.mark.parametrize("beam", [1, 4])
def test_no_sentences_need_more_than_was_compiled(beam, monkeypatch):
    monkeypatch.setattr(batch_search, "SHORTEST_ROOM", 4)
    jax.clear_caches()
    model, params = tiny()
    config = dataclasses.replace(CONFIG, beam_size=beam, max_extra_tokens=6)
    compile_batches((params,), (model,), [LENGTH] * COUNT, config)
    before = compiled()
    # Four sizes of cache, and 16, 4 and 1 rows.
    assert before[0] == 1 and before[1] > 6 and before[2] > before[1]
    rng = np.random.default_rng(1)
    for _ in range(20):
        # The first is the longest that the batch takes; the limits spread the ends of the others.
        lengths = [LENGTH, *rng.integers(1, LENGTH + 1, COUNT - 1)]
        sources = [[*rng.integers(UNK + 1, VOCAB, n - 1).tolist(), EOS] for n in lengths]
        decode_ids((params,), (model,), sources, config)
        assert compiled() == before
