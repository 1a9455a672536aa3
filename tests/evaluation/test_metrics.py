"""Counts, scores and signatures against sacreBLEU called directly."""

from __future__ import annotations

from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from flaxformer_mt.evaluation import ScoringError
from flaxformer_mt.evaluation.metrics import Bleu, Chrf, Metric, Ter, measure
from tests.evaluation.noise import grammar_text, noisy

_, REFERENCES = grammar_text(60)
ODD = ["", "Zoë's „Fluß“ costs 1,000.50 €—or 3% (net)!", "中文 und 日本語。", "A", "x " * 60, " . "]
REFERENCES += ["Nothing.", "Zoës „Fluss“ costs 1,000.50€ — or 3% net.", "中文和日本語。"]
REFERENCES += ["", "x y", "."]
HYPOTHESES = noisy(REFERENCES[:60], 0.3, 1) + ODD


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        *(
            (Bleu(tokenizer=tok, lowercase=lc), BLEU(tokenize=tok, lowercase=lc, force=True))
            for tok in ("13a", "intl", "char", "zh", "none")
            for lc in (False, True)
        ),
        (Chrf(), CHRF()),
        (Chrf(lowercase=True), CHRF(lowercase=True)),
        (Ter(), TER()),
    ],
    ids=lambda metric: getattr(metric, "name", ""),
)
def test_corpus_scores_and_signatures_are_sacrebleu_s(ours: Metric, theirs: Any) -> None:
    (measured,) = measure([ours], HYPOTHESES, REFERENCES)
    assert measured.counts.shape[0] == len(REFERENCES)
    wanted = theirs.corpus_score(HYPOTHESES, [REFERENCES])
    assert measured.score == pytest.approx(wanted.score, abs=1e-9)
    assert ours.signature == str(theirs.get_signature())


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(Bleu(), BLEU(effective_order=True)), (Chrf(), CHRF()), (Ter(), TER())],
)
def test_sentence_scores_are_sacrebleu_s(ours: Metric, theirs: Any) -> None:
    (measured,) = measure([ours], HYPOTHESES, REFERENCES)
    for hypothesis, reference, score in zip(
        HYPOTHESES, REFERENCES, measured.sentence_scores, strict=True
    ):
        wanted = theirs.sentence_score(hypothesis, [reference]).score
        assert score == pytest.approx(wanted, abs=1e-9)


def test_some_of_the_sentences_are_a_corpus_of_their_own() -> None:
    (measured,) = measure([Chrf()], HYPOTHESES, REFERENCES)
    (part,) = measure([Chrf()], HYPOTHESES[10:20], REFERENCES[10:20])
    assert measured.of(range(10, 20)).score == part.score


def test_what_does_not_belong_together_is_refused() -> None:
    with pytest.raises(ScoringError, match="1 hypotheses for 2 references"):
        measure([Chrf()], ["a"], ["a", "b"])
    with pytest.raises(ScoringError, match="no sentences"):
        measure([Chrf()], [], [])
    with pytest.raises(ScoringError, match="no tokenizer 'moses'"):
        Bleu(tokenizer="moses")
