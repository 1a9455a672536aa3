"""A metric of your own, with its interval and significance: python metric.py RUN HYPOTHESES.

HYPOTHESES is another system's output for the run's validation text.
"""

import sys

import flaxformer_mt as fm


class Exact(fm.Metric):
    """The share of sentences that are exactly their reference."""

    signature = "exact match"

    def row(self, hypothesis: str, reference: str) -> list[int]:
        """What is counted in a sentence; counts are added up over a corpus, or a resampled one."""
        return [hypothesis == reference, 1]

    def score(self, totals):
        """From sums of counts, in the last axis, to a score."""
        return 100 * totals[..., 0] / totals[..., 1]


run, hypotheses = sys.argv[1:]
scoring = fm.Scoring(ter=False, others=(Exact(name="exact"),))
found = fm.evaluate(run, "valid", scoring=scoring)["valid"]
print(found.assessment.table())
print(fm.compare([run, hypotheses], evaluation="valid", scoring=scoring))
