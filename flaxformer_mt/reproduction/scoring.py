"""How a row's translations are scored."""

from flaxformer_mt.evaluation.scoring import Scoring, scoring_of
from flaxformer_mt.reproduction.experiment import Experiment


def row_scoring(experiment: Experiment) -> Scoring:
    """As its run's text asks, without TER, which the paper doesn't report."""
    return scoring_of(experiment.config.data, ter=False)
