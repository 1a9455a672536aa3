"""Metrics with signatures, evaluations of translators and of files, comparisons of systems."""

from flaxformer_mt.evaluation.bleu import Scores, ScoringError, corpus_scores
from flaxformer_mt.evaluation.evaluate import Evaluation, evaluate
from flaxformer_mt.evaluation.scoring import Assessment, Scoring, assess
from flaxformer_mt.evaluation.segments import read_segments

__all__ = [
    "Assessment",
    "Evaluation",
    "Scores",
    "Scoring",
    "ScoringError",
    "assess",
    "corpus_scores",
    "evaluate",
    "read_segments",
]
