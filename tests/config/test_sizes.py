"""Sizes by the amount of text: smooth, sensible at both ends, and within what was measured."""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.config import ExperimentConfig, read_config
from flaxformer_mt.config.freeze import default_of
from flaxformer_mt.config.sizes import (
    LITTLE,
    MUCH,
    TextSize,
    as_line,
    pieces_per_word,
    remarks,
    sized,
    sizes,
    validate_every,
)

STEPS_OF_TEXT = 1.0137  # between neighbouring amounts
PAIRS_OF_LANGUAGES = [("en", "de"), ("en", "zh")]


def text_of(tokens: float) -> TextSize:
    """Text whose words grow as Heaps's law says."""
    return TextSize(round(tokens), types=round(30 * tokens**0.55))


def amounts() -> Iterator[float]:
    """From 100 to a thousand million tokens."""
    count = math.ceil(math.log(1e7) / math.log(STEPS_OF_TEXT))
    return (100 * STEPS_OF_TEXT**number for number in range(count + 1))


def numbers(settings: Mapping[str, Any]) -> dict[str, float]:
    """The sizes and the dropout, with the layers of both stacks together.

    `loss_chunk` is no size: 0 and -1 are modes, which change only the memory used.
    """
    sizes = {
        key: number
        for key, number in settings.items()
        if type(number) in (int, float) and key != "training.loss_chunk"
    }
    stacks = [f"model.{side}_layers" for side in ("encoder", "decoder")]
    return sizes | {"model.layers": sum(sizes.pop(stack) for stack in stacks)}


@pytest.mark.parametrize("languages", PAIRS_OF_LANGUAGES)
def test_a_tenth_more_text_changes_no_size_by_more_than_a_quarter(languages):
    for tokens in amounts():
        before = numbers(sized(text_of(tokens), languages))
        after = numbers(sized(text_of(1.1 * tokens), languages))
        assert before.keys() == after.keys()
        for key, number in before.items():
            assert 0.75 * number <= after[key] <= 1.25 * number, (tokens, key)


@pytest.mark.parametrize("steps", [None, 400, 1000, 40_000])
def test_every_text_gives_a_config_whose_patience_can_act(steps):
    for tokens in (100, 3e4, LITTLE, 1e6, 7e6, MUCH, 1e9):
        config = config_for(text_of(tokens), steps=steps)
        training, model = config.training, config.model
        assert training.patience * training.validate_every < training.steps / 2
        assert training.schedule.warmup_steps < training.steps / 2
        assert training.validate_every % training.save_every == 0
        assert model.num_heads * model.d_k == model.d_model and model.d_k == model.d_v


def config_for(text: TextSize, *, steps: int | None = None) -> ExperimentConfig:
    return read_config(
        "files",
        ["data.train=a.en,a.de", *(["training.minutes=1"] if steps else [])],
        text=text,
        steps=steps,
    )


def test_text_that_time_does_not_reach_gets_smaller_sizes_but_its_own_dropout():
    """More text in the same time never gives a larger model, nor a dropout for less text."""
    text = text_of(10_000_000)
    short = sized(dataclasses.replace(text, affordable=LITTLE), steps=1000)
    assert short["model.d_model"] == 128 and short["data.vocabulary.size"] == 2000
    assert short["data.batch.tokens"] == 2048 and short["training.schedule.peak"] == 0.0035
    assert short["model.dropout"] == sized(text)["model.dropout"] < 0.3


def test_much_text_gets_the_paper_s_base_model_and_recipe():
    much = numbers(sized(TextSize(MUCH)))
    beside_the_paper = {"training.validate_every", "training.patience", "model.layers"}
    beside_the_paper.add("training.schedule.peak")  # 0 where the paper's formula gives it
    for key in much.keys() - beside_the_paper:
        assert much[key] == default_of(key), key
    assert much["model.layers"] == 12
    assert much["training.schedule.peak"] == pytest.approx((512 * 4000) ** -0.5, rel=1e-3)
    assert sized(TextSize(25 * MUCH)) == sized(TextSize(MUCH))


def test_little_text_gets_what_was_measured():
    """Multi30k's first 12,000 pairs."""
    little = sized(TextSize(267_764, pairs=12_000, types=23_000))
    assert little["model.dropout"] == 0.3 and little["model.d_model"] == 128
    assert little["data.vocabulary.size"] == 2000 and little["data.batch.tokens"] == 2048
    assert 4000 <= little["training.steps"] <= 10_000  # 8 to 20 minutes on two cores


def test_the_shortest_trainings_have_no_validations_that_differ_by_chance():
    for steps in (1, 50, 100, 300):
        training = config_for(TextSize(LITTLE), steps=steps).training
        assert training.validate_every == 60 and training.save_every == 10
        assert training.schedule.warmup_steps <= max(1, 0.3 * steps)


def test_the_last_validation_is_not_soon_after_another():
    for steps in [*range(100, 3000), 6000, 19_000, 51_000, 99_000]:
        every = validate_every(steps)
        assert (steps % every or every) > every / 2, steps


def test_settings_of_ones_own_decide_what_goes_with_them():
    def chosen(**given):
        own = {f"training.{name}": value for name, value in given.items()}
        settings = sized(TextSize(LITTLE), steps=1000, given=own) | own
        names = ("save_every", "validate_every", "patience")
        return [settings[f"training.{name}"] for name in names]

    assert chosen() == [24, 144, 3]
    assert chosen(save_every=7) == [7, 147, 3]
    assert chosen(validate_every=20) == [20, 20, 22]  # as many steps of patience
    assert chosen(validate_every=100) == [25, 100, 5]
    assert chosen(validate_every=0) == [24, 0, 3]  # only at the end
    assert chosen(save_every=10, validate_every=50, patience=2) == [10, 50, 2]


def test_a_language_of_few_words_has_no_more_types_than_words():
    assert sized(TextSize(LITTLE, types=700))["data.vocabulary.size"] == 700
    assert sized(TextSize(LITTLE))["data.vocabulary.size"] == 2000


def test_given_steps_change_only_what_hangs_on_them():
    text = TextSize(LITTLE)
    usual, given = sized(text), sized(text, steps=500)
    changed = {key for key in usual if usual[key] != given[key]}
    assert changed == {
        "training.steps",
        "data.batch.max_shapes",
        "training.schedule.warmup_steps",
        "training.validate_every",
        "training.save_every",
    }


def test_every_size_has_a_reason():
    for text in (TextSize(100), TextSize(LITTLE), TextSize(MUCH)):
        lines = [as_line(size) for size in sizes(text)]
        assert all(len(line.partition(": ")[2]) > 10 for line in lines)
    assert (
        "model.d_model = 512: 128 at 270,000 tokens, rising by the power 0.28 to 512"
        in "\n".join(lines)
    )


def test_the_table_of_the_page_is_what_is_chosen():
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
    rows = re.findall(r"^\| ([\d,]+)[^|]*\| [^|]* \| (\d) \+ (\d) \|(.*)\|$", page, re.MULTILINE)
    assert len(rows) == 5
    for tokens, encoder, decoder, others in rows:
        chosen = sized(TextSize(int(tokens.replace(",", ""))))
        stated = [float(number.replace(",", "")) for number in others.split("|")]
        keys = ("model.d_model", "model.dropout", "data.vocabulary.size", "data.batch.tokens")
        assert stated == [chosen[key] for key in (*keys, "training.steps")]
        layers = chosen["model.encoder_layers"], chosen["model.decoder_layers"]
        assert layers == (int(encoder), int(decoder))


def test_very_little_and_very_much_text_have_a_remark():
    assert "--init-from" in " ".join(remarks(TextSize(60_000)))
    assert "accelerator" in " ".join(remarks(TextSize(MUCH)))
    assert not list(remarks(TextSize(LITTLE)))


def test_words_have_fewer_pieces_with_more_types():
    pieces = [pieces_per_word(types) for types in (500, 2000, 8000, 37_000, 90_000)]
    assert pieces[0] == pieces[1] == 1.7 and pieces[-1] == pieces[-2] == pytest.approx(1.3)
    assert pieces == sorted(pieces, reverse=True)
