"""Metrics with signatures, and the evaluation of a translator."""

from flaxformer_mt.evaluation.bleu import Scores, ScoringError, corpus_scores
from flaxformer_mt.evaluation.evaluate import Evaluation, evaluate

__all__ = ["Evaluation", "Scores", "ScoringError", "corpus_scores", "evaluate"]
