"""What other runtimes are held to: the model alone, and never much memory."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.export import reference
from flaxformer_mt.export.reference import Reference
from tests.export.translators import LINES, translator


def test_rules_of_the_search_are_not_the_models() -> None:
    made = translator()
    plain = Reference(made)
    sources = [[*ids, EOS] for ids in made.vocabularies.src.encode(LINES)]
    outputs = plain.greedy(sources)
    assert any(len(set(output)) < len(output) for output in outputs), "some token stands twice"
    made.config = dataclasses.replace(
        made.config, no_repeat_ngram=1, beam_size=4, length_penalty=1.0
    )
    assert Reference(made).greedy(sources) == outputs


def test_few_rows_have_logits_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Reference(translator())
    sources = [[*ids, EOS] for ids in made.vocabularies.src.encode(LINES)]
    assert len(LINES) > reference.ROWS and len(LINES) % reference.ROWS
    targets = [[4 + n] * (n + 1) for n in range(len(LINES))]
    seen: list[int] = []
    whole = made._score

    def counted(params, src, *others):
        seen.append(src.shape[0])
        return whole(params, src, *others)

    monkeypatch.setattr(made, "_score", counted)
    found = made.log_probs(sources, targets)
    assert seen and max(seen) <= reference.ROWS
    assert [len(row) for row in found] == [len(target) + 1 for target in targets]
    monkeypatch.setattr(reference, "ROWS", 100)
    for row, other in zip(found, made.log_probs(sources, targets), strict=True):
        np.testing.assert_allclose(row, other, atol=1e-5)
