"""Sizes of the model, its vocabulary, its batches and its training for a text of any size.

Every size is a smooth function of the text's tokens: 10% more text changes none by more than a
quarter. Between two amounts of text, `LITTLE` and `MUCH`, a size is a power of the tokens, given by
its values at these ends. All constants are below, and where each comes from:

measured      Two CPU cores, 12,000 pairs of Multi30k (`LITTLE`), 2 + 2 layers of width 128, 2,000
              types, batches of 2,048: dropout 0 for 1,000 steps gives 26.0 BLEU, and less if
              trained on; dropout 0.3 for 6,000 steps 29.3, still rising a little. It also serves
              all of Multi30k (`configs/multi30k.py`), a peak rate of 0.0035 also the quickstart.
the paper     Everything at `MUCH`, but validation and patience, of which the paper says nothing.
interpolated  All between them, and not measured. Near to it: Tatoeba's 2,000,000 tokens with
              3 + 3 layers of width 256 and 6,000 types (`configs/tatoeba.py`).
chosen        How often to validate and save, and the patience.

Where `training.minutes` leaves a model less than `ENOUGH` of the steps that its text would have,
the sizes, but not the dropout, are those for less text: on two cores in five minutes, 29,000 pairs
of Multi30k gave 6 BLEU with their own sizes (429 steps), and 23 with those for half as many. A
quarter of the steps was too few: 18,291 pairs of PHP's manuals gave 2 BLEU with width 160, and 9
with width 128 and twice as many.
"""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from flaxformer_mt.config.batch_shapes import TrainingWork, decided_shapes
from flaxformer_mt.config.languages import written_script
from flaxformer_mt.config.schema import ModelConfig

LITTLE, MUCH = 270_000, 40_000_000  # tokens; MUCH is about a million pairs of 20 words a side
FEW_PAIRS_TOKENS = 70_000  # about 3,000 pairs: too few to learn a language from


class _Ends(NamedTuple):
    """A setting's values at LITTLE and at MUCH tokens."""

    little: float
    much: float


_WIDTH = _Ends(128, 512)
_LAYERS = _Ends(4, 12)  # of both stacks
_TYPES = _Ends(2000, 37_000)
_BATCH = _Ends(2048, 25_000)
_STEPS = _Ends(6000, 100_000)
_PEAK = _Ends(0.0035, (512 * 4000) ** -0.5)  # the paper's formula with its warm-up
_WARMUP_SHARE = _Ends(0.1, 0.04)  # of the steps
_PIECES = _Ends(1.7, 1.3)  # per word, with a vocabulary of these sizes
_DROPOUT = 0.3, 0.1  # the first up to _DROPOUT_FALLS tokens, the second from MUCH on
_DROPOUT_FALLS = 700_000  # all of Multi30k

_SHAPES = _Ends(6, 16)

_MOST_STEPS = "1.5 times the estimate; training.minutes ends the training"
ENOUGH = 0.5  # of the steps that a text would have, in a training of `training.minutes`

_HEAD, _HEADS = 32, 8  # the least width of a head, and the paper's number of them
_FEED_FORWARD = 4  # times the model's width
_FEWEST_TYPES, _FEWEST_STEPS, _SHORTEST_WARMUP = 500, 1000, 300
# Of the steps, in trainings of up to the first and from the second of _SAVE_STEPS on: the paper's
# base has a checkpoint every 1,500 of 100,000 steps. Short trainings would spend their time on it.
_SAVE_SHARE, _SAVE_STEPS = (0.025, 0.015), (1000, 6000)
# Steps. After fewer, BLEU differs by chance: one of 100 steps ended at 96, its patience exhausted.
_LEAST_SAVE = 10
_SAVES_PER_VALIDATION = 6  # so there are 6 to 11 validations
_PATIENCE = 3  # validations: 27% to 45% of the steps, unless they are very few
_LOGITS = 32_000_000  # 128 MB
_CHARACTERS_PER_TOKEN = 2.0  # where words have no blanks between them

# What docs/data.md advises for Chinese and Japanese.
_OF_MANY_CHARACTERS = {"Hani", "Hans", "Hant", "Jpan"}
_MANY_TYPES = 4000
_MANY_CHARACTERS: dict[str, tuple[Any, str]] = {
    "data.vocabulary.character_coverage": (0.9995, "rare characters are left to bytes"),
    "data.vocabulary.byte_fallback": (True, "spells characters that have no type"),
    "data.vocabulary.shared": (False, "the two sides share few characters"),
    "model.tie": ("target", "each side has a vocabulary"),
}


@dataclasses.dataclass(frozen=True)
class TextSize:
    """How much text there is to train on.

    Tokens are words between blanks, source and target together; of text written without blanks, two
    characters count as one token.
    """

    tokens: int
    pairs: int = 0  # 0: unknown
    types: int = 0  # different words of both sides, up to a million; 0: unknown
    affordable: int = 0  # the tokens for whose sizes a training has time; 0: all

    @property
    def decisive(self) -> int:
        """The tokens that decide the sizes."""
        return min(self.tokens, self.affordable or self.tokens)

    def describe(self) -> str:
        """For people, such as "267,764 tokens (12,000 pairs, 21,000 different words)"."""
        known = [f"{self.pairs:,} pairs"] if self.pairs else []
        known += [f"{self.types:,} different words"] if self.types else []
        text = f"{self.tokens:,} tokens" + (f" ({', '.join(known)})" if known else "")
        if self.affordable:
            return f"{text} as for {self.affordable:,}, since training.minutes allows no more"
        return text


# Sizes are shown for it as long as no text is named: a few hundred thousand short pairs.
TYPICAL = TextSize(6_000_000)


class ChosenSize(NamedTuple):
    """The value chosen for a setting, and why."""

    key: str
    value: Any
    reason: str


def sized(
    text: TextSize,
    languages: tuple[str, str] = ("", ""),
    *,
    steps: int | None = None,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Settings for a text in two languages, by dotted key, as `sizes` chooses them."""
    return {size.key: size.value for size in sizes(text, languages, steps=steps, given=given)}


def sizes(
    text: TextSize,
    languages: tuple[str, str] = ("", ""),
    *,
    steps: int | None = None,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[ChosenSize]:
    """Every setting that the text decides, with its reason.

    `steps`, if given, replaces the number that the text would have; warm-up, validation, saving and
    the number of batch shapes follow it, and nothing else does. Of the settings that the user has
    `given`, by key, those of saving and validation decide what goes with them. The vocabulary's
    size gives way to text that yields fewer or needs more types.
    """
    has_many_characters = any(written_script(code) in _OF_MANY_CHARACTERS for code in languages)
    types = many_types(text) if has_many_characters else vocabulary_size(text)
    yield from _of_model(text)
    yield from _of_vocabulary(types, has_many_characters=has_many_characters)
    yield ChosenSize("data.batch.tokens", batch_tokens(text), _law(_BATCH))
    chosen_steps = training_steps(text) if steps is None else steps
    reason = f"{_law(_SHAPES)}; fewer in a short training, since each is compiled"
    shapes = max_shapes(text, chosen_steps)
    yield ChosenSize("data.batch.max_shapes", shapes, reason)
    why_steps = _law(_STEPS) if steps is None else _MOST_STEPS
    yield ChosenSize("training.steps", chosen_steps, why_steps)
    yield from _of_steps(text, chosen_steps)
    yield from _of_validation(chosen_steps, given)
    reason = f"all logits at once (0) up to {_LOGITS:,} numbers, then as the device prefers (-1)"
    yield ChosenSize("training.loss_chunk", loss_chunk(batch_tokens(text), types), reason)


def remarks(text: TextSize) -> Iterator[str]:
    """Sentences on text for which sizes alone aren't enough."""
    if text.tokens < FEW_PAIRS_TOKENS:
        yield (
            "little text: a model of its own learns its sentences, hardly the language; continue "
            "from another run (--init-from) if you can"
        )
    if text.tokens >= MUCH:
        yield (
            "much text: the paper's base model and training, which need an accelerator; on CPUs "
            "set training.minutes"
        )


def _of_model(text: TextSize) -> Iterator[ChosenSize]:
    wide, (encoder, decoder) = width(text), layers(text)
    count, each = heads(wide)
    yield ChosenSize("model.encoder_layers", encoder, f"half of {_law(_LAYERS)}, the larger half")
    yield ChosenSize("model.decoder_layers", decoder, f"half of {_law(_LAYERS)}")
    yield ChosenSize("model.d_model", wide, f"{_law(_WIDTH)}; whole heads of {_HEAD} or more")
    yield ChosenSize("model.d_ff", _FEED_FORWARD * wide, "4 x d_model, as in the paper")
    yield ChosenSize("model.num_heads", count, f"{_HEAD} wide up to {_HEADS} heads, then wider")
    yield ChosenSize("model.d_k", each, "d_model / num_heads, as in the paper")
    yield ChosenSize("model.d_v", each, "d_model / num_heads, as in the paper")
    most, least = _DROPOUT
    reason = (
        f"{most} up to {_DROPOUT_FALLS:,} tokens, which are read many times, falling by the "
        f"logarithm to {least} at {MUCH:,}"
    )
    yield ChosenSize("model.dropout", dropout(text), reason)


def _of_vocabulary(types: int, *, has_many_characters: bool) -> Iterator[ChosenSize]:
    yield ChosenSize("data.vocabulary.soft_size", True, "the text's characters may need more types")
    if not has_many_characters:
        reason = f"{_law(_TYPES)}; at most as many as there are different words"
        yield ChosenSize("data.vocabulary.size", types, reason)
        return
    reason = f"twice {_law(_TYPES)}, at least {_MANY_TYPES:,}: thousands of characters"
    yield ChosenSize("data.vocabulary.size", types, reason)
    for key, (value, why) in _MANY_CHARACTERS.items():
        yield ChosenSize(key, value, why)


def _of_steps(text: TextSize, steps: int) -> Iterator[ChosenSize]:
    yield ChosenSize("training.schedule.kind", "peak", "the paper's curve, set by its peak")
    yield ChosenSize("training.schedule.peak", peak(text), f"{_law(_PEAK)}: wider models need less")
    share = (
        f"from {_WARMUP_SHARE.little:.0%} to {_WARMUP_SHARE.much:.0%} of the steps, but "
        f"{_SHORTEST_WARMUP} in short trainings"
    )
    yield ChosenSize("training.schedule.warmup_steps", warmup_steps(text, steps), share)


def _of_validation(steps: int, given: Mapping[str, Any]) -> Iterator[ChosenSize]:
    """Saving, validation and patience: what the user has given decides what goes with it."""
    save, validate = save_every(steps), validate_every(steps)
    patience_steps = _PATIENCE * validate
    if "training.save_every" in given:
        save = given["training.save_every"]
        validate = save * max(1, round(validate / save))
    if given.get("training.validate_every"):  # 0: only at the end
        validate = given["training.validate_every"]
        if "training.save_every" not in given:
            divisors = [part for part in range(1, validate + 1) if validate % part == 0]
            save = min(divisors, key=lambda part: abs(part - save))
    patience = max(_PATIENCE, math.ceil(patience_steps / validate))

    yield ChosenSize("training.validate_every", validate, f"{validate / steps:.0%} of the steps")
    share = f"{save / steps:.1%} of the steps (paper: 1.5%)"
    yield ChosenSize("training.save_every", save, share)
    reason = f"validations, together {patience * validate / steps:.0%} of the steps"
    yield ChosenSize("training.patience", patience, reason)


def width(text: TextSize) -> int:
    """`d_model`: whole heads, so that all of a model's matrices split evenly."""
    return _HEAD * round(_between(text, _WIDTH) / _HEAD)


def heads(wide: int) -> tuple[int, int]:
    """The number of heads, and the width of each: more heads first, then wider ones."""
    count = min(_HEADS, wide // _HEAD)
    return count, wide // count


def layers(text: TextSize) -> tuple[int, int]:
    """Of the encoder and the decoder. An odd one goes to the encoder, where it costs decoding
    nothing; adding one to both would be a jump."""
    both = round(_between(text, _LAYERS))
    return both - both // 2, both // 2


def dropout(text: TextSize) -> float:
    """Falls by the logarithm of the tokens: the less text, the more often each pair is seen."""
    most, least = _DROPOUT
    place = math.log(max(1, text.tokens) / _DROPOUT_FALLS) / math.log(MUCH / _DROPOUT_FALLS)
    return round(most + (least - most) * min(1.0, max(0.0, place)), 3)


def vocabulary_size(text: TextSize) -> int:
    """Grows with the text, since each piece must be seen often; also below LITTLE tokens.

    A language of few words, such as a grammar's, needs no more pieces than words.
    """
    by_tokens = _two_digits(_between(text, _TYPES, below=True))
    return max(_FEWEST_TYPES, min(by_tokens, text.types or by_tokens))


def many_types(text: TextSize) -> int:
    """Types of a side with thousands of characters: twice as many as for others, which share."""
    twice = 2 * _between(text, _TYPES, below=True)
    return min(int(_TYPES.much), max(_MANY_TYPES, _two_digits(twice)))


def batch_tokens(text: TextSize) -> int:
    """Large batches waste little text; small ones give it more updates."""
    return min(int(_BATCH.much), 256 * round(_between(text, _BATCH) / 256))


def max_shapes(text: TextSize, steps: int) -> int:
    """More for more text, which is trained on for longer; fewer where the steps repay fewer."""
    return decided_shapes(work(text, steps), most=round(_between(text, _SHAPES)))


def work(text: TextSize, steps: int) -> TrainingWork:
    """What a training with the text's sizes computes in so many steps."""
    wide, (encoder, decoder) = width(text), layers(text)
    count, each = heads(wide)
    model = ModelConfig(
        encoder_layers=encoder,
        decoder_layers=decoder,
        d_model=wide,
        d_ff=_FEED_FORWARD * wide,
        num_heads=count,
        d_k=each,
        d_v=each,
    )
    return TrainingWork(
        model=model, types=vocabulary_size(text), batch_tokens=batch_tokens(text), steps=steps
    )


def training_steps(text: TextSize) -> int:
    """By the text alone: more text allows more steps before it is learned by heart."""
    return max(_FEWEST_STEPS, _two_digits(_between(text, _STEPS, below=True)))


def peak(text: TextSize) -> float:
    """The highest learning rate, with which the width goes up."""
    return float(f"{_between(text, _PEAK):.3g}")


def warmup_steps(text: TextSize, steps: int) -> int:
    """A share of the steps, but 300 in short trainings, or 30% of still shorter ones."""
    share = _between(text, _WARMUP_SHARE) * steps
    shortest = min(_SHORTEST_WARMUP, 0.3 * steps)
    return max(1, _two_digits(max(share, shortest)))


def save_every(steps: int) -> int:
    """The last five checkpoints, which are averaged, span 6% to 10% of the steps.

    A whole number of validations reaches the last step: one more, soon after another, would cost
    time and tell nothing. But the paper's training saves when the paper did.
    """
    (most, least), (few, many) = _SAVE_SHARE, _SAVE_STEPS
    place = math.log(steps / few) / math.log(many / few)
    share = most + (least - most) * min(1.0, max(0.0, place))
    if steps >= _STEPS.much:
        return round(share * steps)
    save = _LEAST_SAVE
    for validations in range(round(1 / (_SAVES_PER_VALIDATION * share)), 0, -1):
        save = max(_LEAST_SAVE, math.ceil(steps / (_SAVES_PER_VALIDATION * validations)))
        if not _is_soon_after_another(steps, _SAVES_PER_VALIDATION * save):
            break
    return save


def _is_soon_after_another(steps: int, every: int) -> bool:
    """Whether the validation at the end, after `steps`, follows one of `every` so many steps."""
    return steps > every and 0 < steps % every <= every / 2


def validate_every(steps: int) -> int:
    """A multiple of `save_every`, so that averaged checkpoints lie evenly."""
    return _SAVES_PER_VALIDATION * save_every(steps)


def loss_chunk(positions: int, types: int) -> int:
    """0, all logits of a batch at once, while they take 128 MB; then by the device (-1)."""
    return 0 if positions * types <= _LOGITS else -1


def pieces_per_word(types: int) -> float:
    """About how many tokens of a vocabulary of `types` a word becomes."""
    place = math.log(types / _TYPES.little) / math.log(_TYPES.much / _TYPES.little)
    return _PIECES.little + (_PIECES.much - _PIECES.little) * min(1.0, max(0.0, place))


def tokens_of_characters(characters: int) -> int:
    """Tokens of text whose words have no blanks between them."""
    return round(characters / _CHARACTERS_PER_TOKEN)


def _between(text: TextSize, ends: _Ends, *, below: bool = False) -> float:
    """The power of the tokens that has these values at LITTLE and MUCH, and no higher one.

    Below LITTLE it stays at its value there, unless it goes on `below`.
    """
    place = math.log(max(1, text.decisive) / LITTLE) / math.log(MUCH / LITTLE)
    if not below:
        place = max(0.0, place)
    return float(ends.little * (ends.much / ends.little) ** min(1.0, place))


def _two_digits(number: float) -> int:
    """Rounded to two digits: more would claim a precision that nobody has measured."""
    return int(float(f"{number:.1e}"))


def _law(ends: _Ends) -> str:
    """The reason of a size that lies between two ends."""
    little, much = (f"{end:,.3g}" if end < 1 else f"{end:,.0f}" for end in ends)
    direction = "rising" if ends.much > ends.little else "falling"
    exponent = abs(math.log(ends.much / ends.little)) / math.log(MUCH / LITTLE)
    return (
        f"{little} at {LITTLE:,} tokens, {direction} by the power {exponent:.2f} to {much} at "
        f"{MUCH:,}"
    )


def as_line(size: ChosenSize) -> str:
    """`key = value: reason`, as `config --explain` prints it."""
    return f"{size.key} = {json.dumps(size.value)}: {size.reason}"
