"""How outputs' lengths are normalised: as set, or as scored best on validation text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.config.freeze import check_value, field_types
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import document, exists, write_json

FEWEST = 200  # validation pairs to choose by
# Of these, evenly over the text: four times as many translations take seconds. By 500 pairs of
# Multi30k a candidate seemed 0.3 BLEU better that lost 0.5 on the test set.
MOST = 1000
# Of the resampled texts, on which a candidate must have a higher BLEU than the paper's settings.
CERTAIN = 0.95


class CandidateScores(NamedTuple):
    """Of one candidate on the validation text."""

    bleu: float
    chrf: float
    better: float  # share of resampled texts on which its BLEU is higher than the paper's


@dataclasses.dataclass(frozen=True)
class LengthNorm:
    """Two settings of `DecodingConfig`."""

    length_norm: Literal["gnmt", "average"] = DecodingConfig.length_norm
    length_penalty: float = DecodingConfig.length_penalty

    def __str__(self) -> str:
        return f"length_norm {self.length_norm}, length_penalty {self.length_penalty:g}"

    @classmethod
    def of(cls, config: DecodingConfig) -> LengthNorm:
        """The settings of a config."""
        return cls(config.length_norm, config.length_penalty)

    def put(self, config: DecodingConfig) -> DecodingConfig:
        """The config with these settings."""
        return dataclasses.replace(config, **dataclasses.asdict(self))


PAPER = LengthNorm()
# From the paper's, which favours short outputs if the model is unsure, to the mean of the tokens'
# log-probabilities.
CANDIDATES = (
    PAPER,
    LengthNorm("gnmt", 1.0),
    LengthNorm("average", 0.8),
    LengthNorm("average", 1.0),
)


@dataclasses.dataclass(frozen=True)
class LengthChoice:
    """The scores of each candidate on so many validation pairs, with these weights."""

    weights: str
    pairs: int
    scores: Mapping[LengthNorm, CandidateScores]

    @property
    def best(self) -> LengthNorm:
        """Of the candidates that are better than the paper's settings, and not by chance, the one
        with the highest BLEU; the paper's if there are none."""
        certain = [norm for norm in self.scores if self.scores[norm].better >= CERTAIN]
        return max(certain, key=lambda norm: self.scores[norm].bleu, default=PAPER)

    def describe(self) -> str:
        """A line for people."""
        listed = "; ".join(
            f"{norm}: {scores.bleu:.2f} BLEU, {scores.chrf:.2f} chrF"
            for norm, scores in self.scores.items()
        )
        verdict = f"{self.best} is the best, significantly better than {PAPER}"
        if self.best == PAPER:
            verdict = f"{PAPER} is kept: nothing else is significantly better"
        return f"on {self.pairs:,} validation pairs, {verdict} ({listed})"

    def save(self, run: RunDirectory) -> None:
        """Makes it the run's default. Raises RunDirectoryError."""
        tried = [
            {**dataclasses.asdict(norm), **scores._asdict()} for norm, scores in self.scores.items()
        ]
        content = {"weights": self.weights, "pairs": self.pairs, "tried": tried}
        write_json(run.length_choice, {**dataclasses.asdict(self.best), **content})


def is_to_be_chosen(config: DecodingConfig) -> bool:
    """Whether the settings leave the choice to validation text."""
    return config.length_choice == "validation" and LengthNorm.of(config) == PAPER


def with_choice(run: RunDirectory, config: DecodingConfig) -> DecodingConfig:
    """The run's settings with what validation chose, whatever the weights: a choice stays until
    the next. Raises RunDirectoryError."""
    if not is_to_be_chosen(config):
        return dataclasses.replace(config, length_choice="given")
    if not exists(run.length_choice):
        return config
    with document(run.length_choice, "delete it, and `average` makes it again") as content:
        hints = field_types(DecodingConfig)
        names = [field.name for field in dataclasses.fields(LengthNorm)]
        chosen = LengthNorm(
            **{name: check_value(content[name], hints[name], name, "length.json") for name in names}
        )
        if chosen not in CANDIDATES:
            raise ValueError(f"{chosen} isn't among the candidates")
        return chosen.put(config)


def with_settings(config: DecodingConfig, settings: Mapping[str, Any]) -> DecodingConfig:
    """The config with other settings: if they are of one of the two, the other goes back from what
    validation chose to its default."""
    own = settings.keys() & dataclasses.asdict(PAPER).keys()
    if config.length_choice == "validation" and own:
        settings = {**dataclasses.asdict(PAPER), "length_choice": "given", **settings}
    return dataclasses.replace(config, **settings)


def choose(
    translate: Callable[[LengthNorm, Sequence[str]], Sequence[str]],
    assess: Callable[[Sequence[Sequence[str]], Sequence[str]], Sequence[CandidateScores]],
    sources: Sequence[str],
    references: Sequence[str],
    *,
    weights: str,
) -> LengthChoice:
    """Compares all candidates on up to `MOST` of the pairs.

    `assess` gets each candidate's outputs, the paper's first, and the references.
    """
    count = min(MOST, len(sources))
    chosen = [number * len(sources) // count for number in range(count)]
    some_sources = [sources[number] for number in chosen]
    some_references = [references[number] for number in chosen]
    outputs = [translate(norm, some_sources) for norm in CANDIDATES]
    scores = assess(outputs, some_references)
    return LengthChoice(weights, count, dict(zip(CANDIDATES, scores, strict=True)))
