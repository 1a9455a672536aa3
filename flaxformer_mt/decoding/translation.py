"""A line's translation: its hypotheses, rejoined if the line was split."""

import dataclasses
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data.vocabulary import EOS, Vocabulary
from flaxformer_mt.decoding.rules import Rules
from flaxformer_mt.decoding.search import Hypotheses, length_penalty
from flaxformer_mt.decoding.segments import DecodingError, Piece

TextOf = Callable[[tuple[int, ...]], Hashable]
"""What makes two outputs the same."""
Item = TypeVar("Item")
NO_NUMBERS = "not finite: its parameters are damaged or training diverged; use another checkpoint"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoded:
    """One output of the search, without its end mark, and its scores."""

    tokens: tuple[int, ...]
    log_prob: float  # natural logarithm, the end mark's included
    score: float  # log_prob / length penalty + coverage penalty
    at_limit: bool  # too long for another token (for another bracket): it may have ended for that


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hypothesis:
    text: str  # without line breaks
    tokens: tuple[int, ...]  # with end marks between the parts of a split line, none at the end
    log_prob: float  # natural logarithm; with a shortlist relative to its types
    score: float  # log_prob / length penalty + coverage penalty


@dataclasses.dataclass(frozen=True, kw_only=True)
class Translation:
    """The translations of one line, at least one, best first."""

    hypotheses: tuple[Hypothesis, ...]
    split: bool = False  # the line was too long for the model: translated in pieces and rejoined
    at_limit: bool = False  # the best one (or a piece of it) had no room to go on
    # In the line, 1 if it was split. Of several, the model may have translated only one.
    sentences: int = 1

    def __repr__(self) -> str:
        more = f", {len(self.hypotheses)} hypotheses" if len(self.hypotheses) > 1 else ""
        return f"<Translation {self.text!r}, score {self.score:.3f}{more}>"

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        return self.hypotheses[0].score

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.hypotheses[0].tokens


EMPTY = Translation(hypotheses=(Hypothesis(text="", tokens=(), log_prob=0.0, score=0.0),))


def decoded_of(
    hypotheses: Hypotheses,
    row: int,
    limit: int,
    rules: Rules,
    types: np.ndarray,
    *,
    text_of: TextOf | None = None,
) -> list[Decoded]:
    """A row's outputs, best first; ids number `types`. With `text_of`, at most `rules.n_best` of
    different texts. Raises DecodingError."""
    scores = hypotheses.scores[row]
    if not np.isfinite(scores).any() or np.isnan(scores).any():
        raise DecodingError(f"the model's scores are {NO_NUMBERS}")

    def decoded(slot: int) -> Decoded:
        length = int(hypotheses.lengths[row, slot])
        return Decoded(
            tokens=tuple(types[hypotheses.tokens[row, slot, : length - 1]].tolist()),
            log_prob=float(hypotheses.log_probs[row, slot]),
            score=float(scores[slot]),
            # A tree's last bracket takes two tokens, for which there may be one place too few.
            at_limit=length >= limit - (rules.trees is not None),
        )

    slots = np.split(np.arange(rules.slots), rules.groups)
    groups = [[decoded(slot) for slot in own[np.isfinite(scores[own])]] for own in slots]
    if len(groups) > 1:
        return _by_turns(groups, rules.n_best, text_of or tuple)
    if text_of is None:
        return groups[0]
    return list(distinct(groups[0], lambda each: text_of(each.tokens)))[: rules.n_best]


def distinct(items: Iterable[Item], key: Callable[[Item], Hashable]) -> Iterator[Item]:
    """The items, of those with the same key only the first."""
    seen = set()
    for item in items:
        if key(item) not in seen:
            seen.add(key(item))
            yield item


def _by_turns(groups: Sequence[Sequence[Decoded]], count: int, text_of: TextOf) -> list[Decoded]:
    """Each group in turn gives its best whose text isn't chosen yet, starting with the best
    group."""
    chosen: dict[Hashable, Decoded] = {}
    ordered = sorted((group for group in groups if group), key=lambda group: -group[0].score)
    waiting = [iter(group) for group in ordered]
    while waiting and len(chosen) < count:
        for group in list(waiting):
            new = next((each for each in group if text_of(each.tokens) not in chosen), None)
            if new is None:
                waiting.remove(group)
            elif len(chosen) < count:
                chosen[text_of(new.tokens)] = new
    return sorted(chosen.values(), key=lambda each: -each.score)


def joined(
    pieces: Sequence[Piece],
    decoded: Sequence[Sequence[Decoded]],
    vocabulary: Vocabulary,
    config: DecodingConfig,
    *,
    n_best: int | None = None,
    mbr: bool = False,
    sampled: bool = False,
) -> Translation:
    """A line's translation from those of its pieces: each n-th of all pieces make one, best first,
    each text once.

    With `mbr` the best has the highest expected chrF (minimum Bayes risk, Kumar and Byrne, 2004),
    with all as references: `sampled` ones equally likely, others by their probabilities.
    """
    if not pieces:
        return EMPTY

    def penalty(tokens: Sequence[int]) -> float:
        average = config.length_norm == "average"
        return float(length_penalty(len(tokens) + 1, config.length_penalty, average=average))

    found = []
    for parts in zip(*decoded, strict=False):  # the piece with the fewest ends the list
        texts = vocabulary.decode([part.tokens for part in parts])
        glued = [text + piece.glue for text, piece in zip(texts, pieces, strict=True)]
        tokens = list(itertools.chain.from_iterable((*part.tokens, EOS) for part in parts))[:-1]
        log_prob = sum(part.log_prob for part in parts)
        # What a score is above that of its length is the coverage penalty, which parts add to.
        coverage = sum(part.score - part.log_prob / penalty(part.tokens) for part in parts)
        hypothesis = Hypothesis(
            # Byte pieces can spell a line break, which would shift every line after it.
            text="".join(glued).replace("\r", " ").replace("\n", " "),
            tokens=tuple(tokens),
            log_prob=log_prob,
            score=parts[0].score if len(parts) == 1 else log_prob / penalty(tokens) + coverage,
        )
        found.append((hypothesis, any(part.at_limit for part in parts)))
    if mbr:
        log_probs = np.array([0.0 if sampled else each.log_prob for each, _ in found])
        weights = np.exp(log_probs - log_probs.max())
        gains = chrf([each.text for each, _ in found]) @ weights
    else:
        gains = np.array([each.score for each, _ in found])
    ordered = [found[place] for place in np.argsort(-gains, kind="stable")]
    found = list(distinct(ordered, lambda each: each[0].text))[:n_best]
    return Translation(
        hypotheses=tuple(hypothesis for hypothesis, _ in found),
        split=len(pieces) > 1,
        at_limit=found[0][1],
    )


def chrf(texts: Sequence[str]) -> Float[np.ndarray, "hypothesis reference"]:
    """chrF2 of each text against each (Popović, 2015; 2016), 0 to 1, as in sacreBLEU.

    Precision and recall are means over n-gram lengths, 1 to 6, that both texts have.
    """
    from sacrebleu.metrics.helpers import extract_all_char_ngrams  # needed by --mbr alone

    precision = np.zeros((len(texts), len(texts)))
    orders = np.zeros_like(precision)
    for grams in zip(*(extract_all_char_ngrams(text, 6) for text in texts), strict=True):
        place = {gram: number for number, gram in enumerate(set[str]().union(*grams))}
        counts = np.zeros((len(texts), len(place)), np.int32)
        for row, own in enumerate(grams):
            counts[row, [place[gram] for gram in own]] = list(own.values())
        both = np.stack([np.minimum(own, counts).sum(axis=1) for own in counts])
        there = counts.sum(axis=1)
        precision += both / np.maximum(there, 1)[:, None]
        orders += (there[:, None] > 0) & (there[None] > 0)
    precision /= np.maximum(orders, 1)
    recall = precision.T
    return 5 * precision * recall / np.maximum(4 * precision + recall, 1e-16)
