"""Lengths of a split's sentences, in tokens with the end mark: figures and a histogram."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from flaxformer_mt.data.store import TokenPairs

BINS = 60
"""Bars of a histogram, at most."""


def lengths_of(pairs: TokenPairs) -> dict[str, Any]:
    """For each side the figures of `summary` and its histogram, as they stand in the manifest."""
    src, tgt, counts = pairs.length_counts()
    # One width for both sides, so that they can be laid over each other.
    width = _bin_width(int(max(src.max(), tgt.max())))
    return {
        side: summary(lengths, counts) | {"histogram": histogram(lengths, counts, width)}
        for side, lengths in (("src", src), ("tgt", tgt))
    }


def summary(
    lengths: Int64[np.ndarray, " kinds"], counts: Int64[np.ndarray, " kinds"]
) -> dict[str, Any]:
    """Total, mean and percentiles of lengths that occur `counts` times each."""
    median, p95, p99 = percentiles(lengths, counts, (50, 95, 99))
    tokens = int((lengths * counts).sum())
    return {
        "tokens": tokens,
        "mean": round(tokens / int(counts.sum()), 2),
        "median": round(float(median), 1),
        "p95": round(float(p95), 1),
        "p99": round(float(p99), 1),
        "max": int(lengths.max()),
    }


def percentiles(
    lengths: Int64[np.ndarray, " kinds"],
    counts: Int64[np.ndarray, " kinds"],
    percent: tuple[float, ...],
) -> Float64[np.ndarray, " percent"]:
    """As `np.percentile` of each length written `counts` times, which might not fit in memory."""
    order = np.argsort(lengths)
    ends = np.cumsum(counts[order])
    places = np.array(percent) / 100 * (ends[-1] - 1)
    below, above = (
        lengths[order][np.searchsorted(ends, place, "right")].astype(np.float64)
        for place in (np.floor(places), np.ceil(places))
    )
    return below + (above - below) * (places - np.floor(places))


def histogram(
    lengths: Int64[np.ndarray, " kinds"], counts: Int64[np.ndarray, " kinds"], width: int
) -> dict[str, Any]:
    """`counts[i]` sentences have a length from `i * width + 1` to `(i + 1) * width`."""
    in_bins = np.bincount((lengths - 1) // width, weights=counts)
    return {"width": width, "counts": in_bins.astype(np.int64).tolist()}


def _bin_width(longest: int) -> int:
    """The smallest of 1, 2, 5, 10, 20, ... with which `BINS` bars suffice."""
    return next(
        width
        for power in range(20)
        for width in (10**power, 2 * 10**power, 5 * 10**power)
        if width * BINS >= longest
    )
