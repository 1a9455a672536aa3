"""A line's translation: its hypotheses, rejoined if the line was split."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data.training_text import TrainingText
from flaxformer_mt.data.vocabulary import EOS, Vocabulary
from flaxformer_mt.decoding.penalties import length_penalty
from flaxformer_mt.decoding.text.decoded import Decoded, distinct
from flaxformer_mt.decoding.text.segments import CutLine, Piece, join_translations


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hypothesis:
    text: str  # without line breaks
    tokens: tuple[int, ...]  # with end marks between the pieces of a split line, none at the end
    log_prob: float  # natural logarithm; with a shortlist relative to its types
    score: float  # log_prob / length penalty + coverage penalty


@dataclasses.dataclass(frozen=True, kw_only=True)
class Translation:
    """The translations of one line, at least one, best first."""

    hypotheses: tuple[Hypothesis, ...]
    split: bool = False  # the line was too long for the model: translated in pieces and rejoined
    at_limit: bool = False  # the best one (or a piece of it) had no room to go on
    sentences: int = 1  # in the line, 1 if it was split
    by_sentence: bool = False  # each sentence was translated by itself
    # Translated as a whole, with more sentences than the model is known to read together: it may
    # have left some out.
    at_risk: bool = False
    short: bool = False  # less than a third as long as training text has taught the model

    def __repr__(self) -> str:
        count = f", {len(self.hypotheses)} hypotheses" if len(self.hypotheses) > 1 else ""
        return f"<Translation {self.text!r}, score {self.score:.3f}{count}>"

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


@dataclasses.dataclass(frozen=True)
class Joiner:
    """Joins the outputs of a line's pieces to its translation.

    With `mbr` the best hypothesis has the highest expected chrF (minimum Bayes risk, Kumar and
    Byrne, 2004), with all as references: `sampled` ones equally likely, others by their
    probabilities.
    """

    vocabulary: Vocabulary
    config: DecodingConfig
    n_best: int | None = None
    mbr: bool = False
    sampled: bool = False
    blanks: bool = True  # between the words, and so the sentences, of the target language
    training_text: TrainingText | None = None

    def join(self, line: CutLine, decoded: Sequence[Sequence[Decoded]]) -> Translation:
        """A line's translation from those of its pieces: each n-th of all pieces make one, best
        first, each text once."""
        if not line.pieces:
            return EMPTY
        # The piece with the fewest ends the list.
        combined = list(zip(*decoded, strict=False))
        hypotheses = [self._hypothesis(line.pieces, outputs) for outputs in combined]
        places = np.argsort(-self._gains(hypotheses), kind="stable").tolist()
        places = list(distinct(places, lambda place: hypotheses[place].text))[: self.n_best]
        best = hypotheses[places[0]]
        text = self.training_text
        return Translation(
            hypotheses=tuple(hypotheses[place] for place in places),
            short=text is not None and text.is_short(len(best.tokens), line.tokens),
            split=line.overlong,
            sentences=line.sentences,
            by_sentence=line.by_sentence,
            at_risk=line.at_risk,
            at_limit=any(output.at_limit for output in combined[places[0]]),
        )

    def _hypothesis(self, pieces: Sequence[Piece], outputs: Sequence[Decoded]) -> Hypothesis:
        texts = self.vocabulary.decode([output.tokens for output in outputs])
        joined = join_translations(texts, pieces, blanks=self.blanks)
        tokens = list(itertools.chain.from_iterable((*output.tokens, EOS) for output in outputs))[
            :-1
        ]
        return Hypothesis(
            # Byte pieces can spell a line break, which would shift every line after it.
            text=joined.replace("\r", " ").replace("\n", " "),
            tokens=tuple(tokens),
            log_prob=sum(output.log_prob for output in outputs),
            score=outputs[0].score if len(outputs) == 1 else self._score(outputs, tokens),
        )

    def _score(self, outputs: Sequence[Decoded], tokens: Sequence[int]) -> float:
        """Of several pieces' outputs as one."""
        log_prob = sum(output.log_prob for output in outputs)
        # What a score is above that of its length is the coverage penalty, which pieces add to.
        coverage = sum(
            output.score - output.log_prob / self._penalty(output.tokens) for output in outputs
        )
        return log_prob / self._penalty(tokens) + coverage

    def _penalty(self, tokens: Sequence[int]) -> float:
        average = self.config.length_norm == "average"
        alpha = self.config.length_penalty
        return float(length_penalty(len(tokens) + 1, alpha, average=average))

    def _gains(self, hypotheses: Sequence[Hypothesis]) -> Float[np.ndarray, " hypothesis"]:
        """What hypotheses are ranked by."""
        if not self.mbr:
            return np.array([hypothesis.score for hypothesis in hypotheses])
        log_probs = np.array(
            [0.0 if self.sampled else hypothesis.log_prob for hypothesis in hypotheses]
        )
        weights = np.exp(log_probs - log_probs.max())
        gains: np.ndarray = chrf([hypothesis.text for hypothesis in hypotheses]) @ weights
        return gains


def chrf(texts: Sequence[str]) -> Float[np.ndarray, "hypothesis reference"]:
    """chrF2 of each text against each (Popović, 2015; 2016), 0 to 1, as in sacreBLEU.

    Precision and recall are means over n-gram lengths, 1 to 6, that both texts have.
    """
    from sacrebleu.metrics.helpers import extract_all_char_ngrams  # needed by --mbr alone

    precision = np.zeros((len(texts), len(texts)))
    orders = np.zeros_like(precision)
    for by_text in zip(*(extract_all_char_ngrams(text, 6) for text in texts), strict=True):
        place = {gram: number for number, gram in enumerate(set[str]().union(*by_text))}
        counts = np.zeros((len(texts), len(place)), np.int32)  # [text, n-gram]
        for row, grams in enumerate(by_text):
            counts[row, [place[gram] for gram in grams]] = list(grams.values())
        both = np.stack([np.minimum(row, counts).sum(axis=1) for row in counts])
        total = counts.sum(axis=1)
        precision += both / np.maximum(total, 1)[:, None]
        orders += (total[:, None] > 0) & (total[None] > 0)
    precision /= np.maximum(orders, 1)
    recall = precision.T
    return 5 * precision * recall / np.maximum(4 * precision + recall, 1e-16)
