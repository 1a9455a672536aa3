"""Shared n-grams against counters of each pair."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st

from flaxformer_mt.evaluation import ngrams
from flaxformer_mt.evaluation.metrics import Bleu, Chrf
from flaxformer_mt.evaluation.ngrams import all_ngrams, shared_ngrams
from flaxformer_mt.evaluation.paper_protocol import PaperBleu
from tests.evaluation.noise import grammar_text, noisy

PAIRS = st.lists(st.tuples(st.text("abc", max_size=9), st.text("abc", max_size=9)), max_size=5)


def counted(text: str, order: int) -> Counter[str]:
    return Counter(text[begin : begin + order] for begin in range(len(text) - order + 1))


@given(PAIRS, st.sampled_from([1, 8, 1 << 20]), st.sampled_from([1, 1 << 61]))
def test_shared_ngrams_are_those_of_counters(pairs, at_once, largest):
    """Also of a few pairs at a time, and where the numbers of n-grams would be too large."""
    hypotheses, references = ([pair[side] for pair in pairs] for side in (0, 1))
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(ngrams, "_AT_ONCE", at_once)
        changed.setattr(ngrams, "_LARGEST", largest)
        shared = shared_ngrams(hypotheses, references, 4)
    orders = range(1, 5)
    assert shared.tolist() == [
        [(counted(one, order) & counted(other, order)).total() for order in orders]
        for one, other in pairs
    ]
    assert all_ngrams(references, 4).tolist() == [
        [counted(text, order).total() for order in orders] for text in references
    ]


@pytest.mark.parametrize(
    "metric",
    [
        *(Bleu(), Bleu(tokenizer="char", lowercase=True), PaperBleu(language="de")),
        *(Chrf(), Chrf(lowercase=True, word_order=2)),
    ],
)
def test_counts_of_a_corpus_are_the_rows_of_its_sentences(metric):
    _, references = grammar_text(40)
    hypotheses = [*noisy(references, 0.3, 4), "", "Nichts.", "x y", "中文 Ünï."]
    references += ["Etwas", "", "x  y z", "Ünï 中文."]
    rows = [metric.row(*pair) for pair in zip(hypotheses, references, strict=True)]
    assert np.array_equal(metric.counts(hypotheses, references), np.array(rows))
