"""How lengths are normalised: what scores best on validation text, unless it is set."""

import dataclasses

import pytest

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.decoding.length_choice import (
    CANDIDATES,
    MOST,
    PAPER,
    CandidateScores,
    LengthNorm,
    choose,
    is_to_be_chosen,
    with_choice,
    with_settings,
)
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.rundir import RunDirectoryError
from tests.decoding.runs import make_run

ASKING = dataclasses.replace(DecodingConfig(), length_choice="validation")
BEST = LengthNorm("average", 0.8)


def chosen(scores, count=10):
    """The choice with these scores, of all other candidates no better than the paper's, and the
    lines that were translated."""
    asked = []

    def translate(norm, lines):
        asked.append(list(lines))
        return [str(norm)] * len(lines)

    def assess(outputs, references):
        assert all(len(hypotheses) == len(references) for hypotheses in outputs)
        given = {str(norm): of_norm for norm, of_norm in scores.items()}
        return [
            given.get(hypotheses[0], CandidateScores(20.0, 40.0, 0.0)) for hypotheses in outputs
        ]

    lines = [f"line {number}" for number in range(count)]
    return choose(translate, assess, lines, lines, weights="best"), asked


CHOSEN = {BEST: CandidateScores(21.0, 40.0, 0.99)}


def test_the_best_candidate_is_chosen():
    also_better = {LengthNorm("gnmt", 1.0): CandidateScores(20.9, 41.0, 1.0)}
    choice, asked = chosen(CHOSEN | also_better)
    assert choice.best == BEST and len(asked) == len(CANDIDATES)
    assert f"{BEST} is the best, significantly better than {PAPER}" in choice.describe()


def test_a_candidate_that_may_be_better_by_chance_does_not_replace_the_papers():
    by_chance = {norm: CandidateScores(20.3, 41.0, 0.94) for norm in CANDIDATES if norm != PAPER}
    choice, _ = chosen(by_chance)
    assert choice.best == PAPER == LengthNorm("gnmt", 0.6)
    assert f"{PAPER} is kept: nothing else is significantly better" in choice.describe()


@pytest.mark.parametrize("count", [1, MOST, MOST + 1, 10 * MOST])
def test_at_most_so_many_pairs_are_translated_evenly(count):
    choice, asked = chosen(CHOSEN, count)
    assert choice.pairs == len(asked[0]) == min(count, MOST)
    assert len({*asked[0]}) == choice.pairs
    assert asked[0][0] == "line 0"
    assert int(asked[0][-1].split()[1]) >= count * (1 - 1 / MOST) - 1


@pytest.mark.parametrize(
    "changes", [{}, {"length_penalty": 1.0}, {"length_norm": "average"}], ids=str
)
def test_settings_of_the_users_own_go_first(changes):
    assert is_to_be_chosen(dataclasses.replace(ASKING, **changes)) == (not changes)
    assert not is_to_be_chosen(dataclasses.replace(DecodingConfig(), **changes))


def test_a_setting_of_ones_own_does_not_mix_with_what_was_chosen():
    config = BEST.put(ASKING)
    assert LengthNorm.of(with_settings(config, {"beam_size": 2})) == BEST
    own = with_settings(config, {"length_penalty": 1.0})
    assert LengthNorm.of(own) == LengthNorm("gnmt", 1.0)
    assert LengthNorm.of(with_settings(own, {"length_norm": "average"})) == LengthNorm(
        "average", 1.0
    )


def test_a_run_translates_as_was_chosen(tmp_path):
    run = make_run(tmp_path / "run", {1: None})
    assert with_choice(run, ASKING) == ASKING
    chosen(CHOSEN)[0].save(run)
    assert with_choice(run, ASKING) == BEST.put(ASKING)
    assert with_choice(run, DecodingConfig()) == DecodingConfig()
    # Nothing is reset that a user has set.
    own = with_choice(run, dataclasses.replace(ASKING, length_norm="average"))
    assert LengthNorm.of(with_settings(own, {"length_penalty": 0.8})) == LengthNorm("average", 0.8)
    assert LengthNorm.of(Translator.load(run.path).config) == PAPER  # its settings don't ask

    for damaged in (
        '{"length_norm": "average"}',
        '{"length_norm": "foo", "length_penalty": 1.0}',
        '{"length_norm": "gnmt", "length_penalty": -3.0}',
        '{"length_norm": "gnmt", "length_penalty": null}',
        "{",
    ):
        run.length_choice.write_text(damaged)
        with pytest.raises(RunDirectoryError, match="delete it, and `average` makes it again"):
            with_choice(run, ASKING)
