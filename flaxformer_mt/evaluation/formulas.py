"""BLEU, chrF and TER from sums of sentence statistics, for thousands of resamples at once.

A corpus score is a function of statistics summed over sentences, so a resampled corpus is a row of
weights times the sentences' statistics, and its score one more row of the arrays here. The results
are those of sacreBLEU (Post, 2018), whose layout of the statistics this is.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

ORDER = 4  # of BLEU's n-grams
CHAR_ORDER = 6  # of chrF's
BETA = 2  # chrF: recall counts this many times as much as precision


def bleu(
    totals: Float[np.ndarray, "*samples 10"], *, smooth: bool, effective_order: bool = False
) -> Float[np.ndarray, "*samples"]:
    """BLEU, 0 to 100 (Papineni et al., 2002).

    `totals` holds the hypotheses' and the references' tokens, then the n-grams that match and those
    of the hypotheses, n = 1 to 4. `smooth`: an order without a match counts as a half, a quarter
    and so on of one (NIST's; sacreBLEU's `smooth:exp`); without it the score is then 0, as in
    Moses's multi-bleu. `effective_order`: orders that a short hypothesis cannot have are left out,
    as single sentences need it.
    """
    hypothesis, reference = totals[..., 0], totals[..., 1]
    matches, possible = totals[..., 2 : 2 + ORDER], totals[..., 2 + ORDER :]
    with np.errstate(divide="ignore", invalid="ignore"):
        missed = (matches == 0) & (possible > 0)
        halved = np.where(missed, 2.0 ** -np.cumsum(missed, axis=-1), 0.0) if smooth else 0.0
        precisions = np.where(matches > 0, matches, halved) / possible
        logs = np.where(possible > 0, np.log(precisions), 0.0 if effective_order else -np.inf)
        orders = np.maximum((possible > 0).sum(axis=-1), 1) if effective_order else ORDER
        brevity = np.where(hypothesis < reference, np.exp(1 - reference / hypothesis), 1.0)
        scores = 100 * brevity * np.exp(logs.sum(axis=-1) / orders)
    # Nothing matches at all: no smoothing makes a score of it.
    return np.where(matches.any(axis=-1) & (hypothesis > 0), scores, 0.0)


def chrf(totals: Float[np.ndarray, "*samples 18"]) -> Float[np.ndarray, "*samples"]:
    """chrF2, 0 to 100 (Popović, 2015): character n-grams, n = 1 to 6, without blanks.

    `totals` holds for each n the n-grams of the hypotheses, of the references, and common ones.
    Precision and recall are means over the orders that both sides have.
    """
    hypothesis, reference, matches = (totals[..., part::3] for part in range(3))
    both = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(both.sum(axis=-1), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(both, matches / hypothesis, 0.0).sum(axis=-1) / orders
        recall = np.where(both, matches / reference, 0.0).sum(axis=-1) / orders
        scores = (1 + BETA**2) * precision * recall / (BETA**2 * precision + recall)
    return np.where(precision + recall > 0, 100 * scores, 0.0)


def ter(totals: Float[np.ndarray, "*samples 2"]) -> Float[np.ndarray, "*samples"]:
    """Translation edit rate in per cent (Snover et al., 2006): lower is better, no upper bound.

    `totals` holds the edits (insertions, deletions, substitutions, shifts) and the references'
    words.
    """
    edits, words = totals[..., 0], totals[..., 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = 100 * (edits / words)
    # Words where the reference has none: all of them are wrong.
    return np.where(words > 0, rates, np.where(edits > 0, 100.0, 0.0))
