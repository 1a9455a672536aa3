"""Scores the pairs of a window: what a bulk job does, its records and its counts."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from flaxformer_mt.bulk.forms import PairForm, PairRecord
from flaxformer_mt.bulk.stream import Made, Window, made_of
from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding.text.segments import Overlong

if TYPE_CHECKING:
    from flaxformer_mt.decoding.translator import Translator


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreCounts:
    """Of a whole output, also the part that earlier calls wrote."""

    pairs: int = 0
    tokens: int = 0  # of the targets, end marks included
    log_prob: float = 0.0  # natural, of all of them
    encoded_otherwise: int = 0  # texts whose tokens aren't the scored ones

    @property
    def perplexity(self) -> float:
        """Of a token; NaN without any."""
        if not self.tokens:
            return math.nan
        return math.exp(min(-self.log_prob / self.tokens, 700.0))

    def describe(self) -> list[str]:
        """Lines for people, with the perplexity."""
        lines = [f"{self.pairs:,} pairs, {self.tokens:,} target tokens (end marks included)"]
        if self.tokens:
            mean = self.log_prob / self.tokens
            lines[0] += f": {mean:.4f} nats per token, perplexity {self.perplexity:.4f}"
        if self.encoded_otherwise:
            lines.append(
                f"{self.encoded_otherwise:,} texts encode into other tokens than the scored ones"
            )
        return lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """Settings of scores besides the model and its own settings."""

    what: ClassVar[str] = "score"

    form: PairForm
    overlong: Overlong = "refuse"

    def check(self, translator: Translator) -> None:
        """Raises DecodingError for an ensemble, and ValueError for another word than Overlong's."""
        translator.score([], overlong=self.overlong)

    def make(self, window: Window, translator: Translator) -> Made:
        """The scores of a window's pairs; also counts texts whose tokens aren't the scored ones."""
        return made_of(window, self.form.parse, functools.partial(self._scored, translator))

    def _scored(self, translator: Translator, records: list[PairRecord]) -> Made:
        vocabulary = translator.vocabularies.tgt
        pairs = [(record.source, record.target) for record in records]
        scores = translator.score(pairs, overlong=self.overlong)
        tokens = sum(len(scored.tokens) for scored in scores)
        return Made(
            output=b"".join(
                self.form.render(record, scored, vocabulary)
                for record, scored in zip(records, scores, strict=True)
            ),
            tokens=tokens,
            sums={
                "pairs": len(records),
                "tokens": tokens,
                "log_prob": math.fsum(scored.log_prob for scored in scores),
                "encoded_otherwise": _encoded_otherwise(records, translator),
            },
        )

    def identity(self) -> dict[str, Any]:
        """The settings that a later call must share to continue an output, as JSON."""
        return dataclasses.asdict(self)

    def counts(self, sums: Mapping[str, float]) -> ScoreCounts:
        """The counts behind the sums of `make`."""
        return ScoreCounts(
            pairs=int(sums.get("pairs", 0)),
            tokens=int(sums.get("tokens", 0)),
            log_prob=sums.get("log_prob", 0.0),
            encoded_otherwise=int(sums.get("encoded_otherwise", 0)),
        )


def _encoded_otherwise(records: Iterable[PairRecord], translator: Translator) -> int:
    """How many records have a text that encodes into other tokens than theirs."""
    with_text = [record for record in records if record.text is not None]
    texts = translator.encode_targets([(record.source, record.text or "") for record in with_text])
    return sum(
        [token for token in record.target if token != EOS] != encoded
        for record, encoded in zip(with_text, texts, strict=True)
    )
