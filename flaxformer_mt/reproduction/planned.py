"""The cost of training a row, by formula."""

from flaxformer_mt.config import ExperimentConfig, expected_types

SENTENCE = 25  # tokens of an average sentence: about newstest's in word-pieces
# The share of a batch's positions that hold tokens, of source and target: on Europarl's lengths,
# batches of 25,000 + 25,000 positions have 20,640 + 21,320 tokens, packed 23,380 + 24,140.
FILLED = {"bucket": (0.8256, 0.8528), "pack": (0.9352, 0.9656)}


def planned_flops(config: ExperimentConfig) -> float:
    """FLOPs of training by formula, for the tokens of its batches: padding does not count.

    The paper's batches have about 25,000 tokens, ours as many positions.
    """
    from flaxformer_mt.model.flops import training_flops

    src_filled, tgt_filled = FILLED[config.data.batch.form]
    positions = config.data.batch.tokens
    step = training_flops(
        config.model,
        expected_types(config.data.vocabulary)[1],
        src_tokens=positions * src_filled,
        tgt_tokens=positions * tgt_filled,
        src_keys=SENTENCE,
        tgt_keys=SENTENCE,
    )
    return step * config.training.steps


def planned_parameters(config: ExperimentConfig) -> int:
    """Parameters with vocabularies of the config's sizes."""
    from flaxformer_mt.model.parameters import count_by_formula

    return sum(count_by_formula(config.model, *expected_types(config.data.vocabulary)).values())
