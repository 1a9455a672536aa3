"""Metrics with signatures, evaluations of translators and of files, comparisons of systems."""

from flaxformer_mt.evaluation.evaluate import Evaluation, evaluate
from flaxformer_mt.evaluation.evaluation_files import read_segments
from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.evaluation.scoring import Assessment, Scores, Scoring, assess, corpus_scores

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
