"""Scores of several validation sets: each set's own, and their means."""

import math

import pytest

from flaxformer_mt.data.order import StoredCorpus
from flaxformer_mt.data.pipeline import one_pass
from flaxformer_mt.data.store import TokenPairs
from flaxformer_mt.rundir.checkpoint_choice import ranked
from flaxformer_mt.training.progress import Progress
from flaxformer_mt.training.telemetry import _by_set
from flaxformer_mt.training.validation import loss_evaluator, mean_of_sets, validation_loss
from tests.data.pairs import in_memory, listed
from tests.training.examples import program, random_pairs, tiny

ALL = random_pairs(14, seed=3)
PARTS = (StoredCorpus("a", 0, 9), StoredCorpus("b", 9, 5))


def of_two_sets() -> TokenPairs:
    sides = [ALL.sides[side].shards for side in ("src", "tgt")]
    return TokenPairs(sides[0], sides[1], PARTS)


def alone(first: int, stop: int) -> TokenPairs:
    src, tgt = ([ids[:-1] for ids in listed(ALL, side)[first:stop]] for side in ("src", "tgt"))
    return in_memory(src, tgt)


def test_a_set_s_scores_are_those_of_its_pairs_alone():
    params = program().init().params
    scores = loss_evaluator(program(), of_two_sets(), print)(params, 1)
    expected = [
        validation_loss(program(), alone(*bounds), params)["loss"] for bounds in ((0, 9), (9, 14))
    ]
    assert scores["loss/a"] == pytest.approx(expected[0], rel=1e-6)
    assert scores["loss/b"] == pytest.approx(expected[1], rel=1e-6)
    assert scores["loss"] == pytest.approx(sum(expected) / 2)
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    assert expected[0] != pytest.approx(expected[1], rel=1e-3)


def test_all_sets_have_the_shapes_that_are_compiled_for_all():
    pairs, config = of_two_sets(), tiny().data.batch
    shapes = {batch.shape for batch in one_pass(pairs, config)}
    of_sets = {batch.shape for part in PARTS for batch in one_pass(pairs, config, corpus=part)}
    assert of_sets <= shapes
    assert sum(int(b.sentences) for b in one_pass(pairs, config, corpus=PARTS[1])) == 5


def test_data_valid_has_plain_names_and_a_single_set_its_own():
    scores = loss_evaluator(program(), ALL, print)(program().init().params, 1)
    assert not any("/" in name for name in scores)
    assert mean_of_sets({"valid": {"bleu": 3.0}}) == {"bleu": 3.0}
    # `training.best_set` may name it.
    assert mean_of_sets({"a": {"bleu": 3.0}}) == {"bleu": 3.0, "bleu/a": 3.0}


def test_what_not_all_sets_have_has_no_mean():
    assert mean_of_sets({"a": {"loss": 1.0, "source_gain": 0.5}, "b": {"loss": 3.0}}) == {
        "loss": 2.0,
        "loss/a": 1.0,
        "source_gain/a": 0.5,
        "loss/b": 3.0,
    }


def test_doubts_name_the_set():
    said: list[str] = []
    after = tiny().training.schedule.warmup_steps + 1
    ignoring = program().init().params
    loss_evaluator(program(), of_two_sets(), said.append)(ignoring, after)
    assert said and all(one[1:].startswith(": step 5: the model ignores its s") for one in said)


def test_one_set_may_decide():
    names = {"training.validate_bleu": True, "training.best_metric": "bleu"}
    sets = {"data.valid_sets": {name: {"src": "v.en", "tgt": "v.de"} for name in "ab"}}
    mean = tiny(names).training
    assert mean.best_score == "bleu"
    from flaxformer_mt.config import default_config, freeze

    tree = default_config()
    tree.data.valid_sets = sets["data.valid_sets"]
    tree.training.best_set = "b"
    of_b = freeze(tree, "a test").training
    assert of_b.best_score == "bleu/b"
    scores = {"loss": 1.0, "bleu": 10.0, "bleu/a": 20.0, "bleu/b": 5.0}
    later = {"loss": 1.0, "bleu": 12.0, "bleu/a": 25.0, "bleu/b": 4.0}
    progress = Progress().validated(1, scores, of_b)
    assert progress.validated(2, later, of_b).best_step == 1
    # Of equal ones the set's own loss decides.
    first = {"loss": 1.0, "loss/b": 3.0, "bleu/b": 0.3}
    second = {"loss": 1.2, "loss/b": 2.0, "bleu/b": 0.1}
    assert Progress().validated(1, first, of_b).validated(2, second, of_b).best_step == 2
    assert ranked({1: first, 2: second}, "bleu/b", "max") == [2, 1]
    progress = Progress().validated(1, scores, mean)
    assert progress.validated(2, later, mean).best_step == 2


def test_sets_are_shown_line_by_line():
    scores = {"loss": 2.0, "loss/a": 1.0, "bleu/a": 30.0, "loss/b": 3.0, "training_seconds": 9.0}
    assert list(_by_set(scores)) == ["a · loss 1.00 · bleu 30.00", "b · loss 3.00"]
