"""Counts, formulas, scores and signatures against sacreBLEU called directly; scores by length."""

import pytest
from hypothesis import given, settings, strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from flaxformer_mt.evaluation.metrics import Bleu, Chrf, ScoringError, Ter, bleu_scores, measure
from flaxformer_mt.evaluation.scoring import by_length
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
            for tok, lc in (
                *(("13a", False), ("13a", True), ("intl", False), ("char", False)),
                *(("zh", True), ("none", False)),
            )
        ),
        (Chrf(), CHRF()),
        (Chrf(lowercase=True), CHRF(lowercase=True)),
        (Chrf(word_order=1), CHRF(word_order=1)),
        (Chrf(word_order=2, lowercase=True), CHRF(word_order=2, lowercase=True)),
        (Ter(), TER()),
        (Ter(normalized=True), TER(normalized=True)),
        (Ter(no_punct=True, asian_support=True), TER(no_punct=True, asian_support=True)),
        (Ter(case_sensitive=True), TER(case_sensitive=True)),
    ],
    ids=lambda metric: getattr(metric, "name", ""),
)
def test_scores_and_signatures_are_sacrebleu_s(ours, theirs):
    (measured,) = measure([ours], HYPOTHESES, REFERENCES)
    assert measured.counts.shape[0] == len(REFERENCES)
    expected = theirs.corpus_score(HYPOTHESES, [REFERENCES])
    assert measured.score == pytest.approx(expected.score, abs=1e-9)
    assert ours.signature == str(theirs.get_signature())
    if isinstance(theirs, BLEU):
        theirs.effective_order = True
    pairs = zip(HYPOTHESES, REFERENCES, strict=True)
    scores = [
        theirs.sentence_score(hypothesis, [reference]).score for hypothesis, reference in pairs
    ]
    assert measured.sentence_scores.tolist() == pytest.approx(scores, abs=1e-9)


def test_an_unknown_tokenizer_is_refused():
    with pytest.raises(ScoringError, match="no tokenizer 'moses'"):
        Bleu(tokenizer="moses")


TEXTS = st.lists(st.sampled_from("abc"), max_size=9).map(" ".join)


@settings(deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3), st.booleans(), st.booleans())
def test_bleu_is_sacrebleu_s(pairs, smooth, effective):
    """Of corpora that are empty or have no match among others."""
    totals = Bleu(tokenizer="none").counts(*zip(*pairs, strict=True)).sum(axis=0)
    hypothesis, reference, *grams = map(int, totals)
    smoothing = {"smooth_method": "exp" if smooth else "none", "effective_order": effective}
    expected = BLEU.compute_bleu(grams[:4], grams[4:], hypothesis, reference, **smoothing)
    score = bleu_scores(totals, smooth=smooth, effective_order=effective)
    assert float(score) == pytest.approx(expected.score, abs=1e-9)


def test_buckets_are_corpora_of_their_own():
    _, references = grammar_text(40)
    hypotheses = noisy(references, 0.2, 1)
    # 0, 1, 10, 11, 20, 21, 60, 61 and 500 words.
    sources = [" ".join(["w"] * size) for size in [0, 1, 10, 11, 20, 21, 60, 61, 500] + [5] * 31]
    metrics = [Bleu(), Chrf()]
    buckets = by_length(measure(metrics, hypotheses, references), sources)
    assert [(bucket.low, bucket.high, bucket.sentences) for bucket in buckets] == [
        (0, 10, 34),
        (11, 20, 2),
        (21, 30, 1),
        (51, 60, 1),
        (61, None, 2),
    ]
    bleu, chrf = measure(metrics, hypotheses[3:5], references[3:5])
    assert buckets[1].metrics == {"sacrebleu_13a": bleu.score, "chrf": chrf.score}
    assert buckets[1].length_ratio == pytest.approx(bleu.totals[0] / bleu.totals[1])
    assert [bucket.label for bucket in buckets][-2:] == ["51 to 60", "61 or more"]

    # No words of the reference are no division by zero.
    (bucket,) = by_length(measure([Bleu()], ["a"], [""]), ["one two"])
    assert (bucket.length_ratio, bucket.metrics) == (0.0, {"sacrebleu_13a": 0.0})
