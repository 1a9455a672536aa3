"""The vectorised formulas against sacreBLEU's, one corpus at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from flaxformer_mt.evaluation import formulas


@st.composite
def bleu_counts(draw: st.DrawFn) -> list[int]:
    """Lengths and n-gram counts that a corpus can have, empty and matchless ones among them."""
    sentences = draw(st.integers(1, 3))
    hypothesis, reference = draw(st.integers(0, 30)), draw(st.integers(0, 30))
    possible = [max(0, hypothesis - order * sentences) for order in range(4)]
    matches = [0, 0, 0, 0]
    most = min(hypothesis, reference)
    for order in range(4):
        most = matches[order] = draw(st.integers(0, min(most, possible[order])))
    return [hypothesis, reference, *matches, *possible]


@settings(deadline=None)
@given(st.lists(bleu_counts(), min_size=1, max_size=5), st.booleans(), st.booleans())
def test_bleu_is_sacrebleu_s(rows: list[list[int]], smooth: bool, effective: bool) -> None:
    found = formulas.bleu(np.array(rows, float), smooth=smooth, effective_order=effective)
    for row, score in zip(rows, found, strict=True):
        wanted = BLEU.compute_bleu(
            row[2:6],
            row[6:],
            sys_len=row[0],
            ref_len=row[1],
            smooth_method="exp" if smooth else "none",
            effective_order=effective,
        )
        assert score == pytest.approx(wanted.score, abs=1e-9)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), min_size=18, max_size=18), min_size=1, max_size=5))
def test_chrf_is_sacrebleu_s(rows: list[list[int]]) -> None:
    for row in rows:
        for order in range(6):
            row[3 * order + 2] = min(row[3 * order : 3 * order + 3])
    found = formulas.chrf(np.array(rows, float))
    metric = CHRF()
    for row, score in zip(rows, found, strict=True):
        assert score == pytest.approx(metric._compute_f_score(row), abs=1e-9)


def test_ter_is_sacrebleu_s() -> None:
    rows = [[0, 0], [3, 0], [0, 5], [7, 4], [2, 9]]
    found = formulas.ter(np.array(rows, float))
    metric = TER()
    assert found.tolist() == [metric._compute_score_from_stats(row).score for row in rows]


def test_axes_before_the_statistics_are_kept() -> None:
    rng = np.random.default_rng(0)
    counts = np.sort(rng.integers(1, 9, (2, 3, 10)), axis=-1).astype(float)
    together = formulas.bleu(counts, smooth=True)
    assert together.shape == (2, 3)
    assert together[1, 2] == formulas.bleu(counts[1, 2], smooth=True)
