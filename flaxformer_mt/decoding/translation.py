"""What a line is translated into: its hypotheses, rejoined where the line was cut into pieces."""

import dataclasses
import itertools
from collections.abc import Sequence

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data.vocabulary import EOS, Vocabulary
from flaxformer_mt.decoding.batches import Decoded
from flaxformer_mt.decoding.search import length_penalty
from flaxformer_mt.decoding.segments import Piece


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """One translation of a line."""

    text: str  # without line breaks
    tokens: tuple[int, ...]  # with end marks between the parts of a split line, none at the end
    log_prob: float  # natural logarithm
    score: float  # log_prob / length penalty + coverage penalty


@dataclasses.dataclass(frozen=True, kw_only=True)
class Translation:
    """The translations of one line, best first; there is always one."""

    hypotheses: tuple[Hypothesis, ...]
    split: bool = False  # the line was too long for the model: translated in pieces and rejoined
    at_limit: bool = False  # the best one (or a piece of it) is as long as an output may be

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


def joined(
    pieces: Sequence[Piece],
    decoded: Sequence[Sequence[Decoded]],
    vocabulary: Vocabulary,
    config: DecodingConfig,
) -> Translation:
    """The translation of a line from those of its pieces: the n-th of each make one, best first.

    Their sums need not be in the order of the pieces' scores, since the penalty is of the length.
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
    found.sort(key=lambda each: -each[0].score)
    return Translation(
        hypotheses=tuple(hypothesis for hypothesis, _ in found),
        split=len(pieces) > 1,
        at_limit=found[0][1],
    )
