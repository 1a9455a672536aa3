"""Pairs of lines read, scored and rendered."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

from flaxformer_mt.bulk.forms import (
    BadLine,
    check_written,
    columns_of,
    decoded,
    parsed_object,
    text_under,
    with_fields,
)
from flaxformer_mt.bulk.stream import Made, Window, made_of
from flaxformer_mt.data.vocabulary import EOS, Vocabulary
from flaxformer_mt.decoding.segments import Overlong, Target
from flaxformer_mt.decoding.teacher_forcing import Scored
from flaxformer_mt.decoding.translator import Translator


@dataclasses.dataclass(frozen=True)
class PairRecord:
    """A pair that was read; where `target` is tokens, `text` is what stands beside them."""

    source: str
    target: Target
    line: str = ""  # as it was read: columns, or an object
    text: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairForm:
    """How pairs are read and their scores written.

    "files": lines of two, with scores alone. "tsv": columns `src` and `tgt`, from 0, with scores
    as further columns. "jsonl": objects with the texts under `source_key` and `target_key`, and
    scores in an object under `scored_key`; with `tokens_key`, the tokens there are scored.

    Raises ValueError for a `scored_key` with a dot.
    """

    name: Literal["files", "tsv", "jsonl"]
    src: int = 0
    tgt: int = 1
    source_key: str = "source"
    target_key: str = "translation"
    tokens_key: str = ""
    scored_key: str = "scored"
    per_token: bool = False

    def __post_init__(self) -> None:
        check_written("scores'", self.scored_key)

    def parse(self, line: bytes) -> PairRecord:
        """What a line holds. Raises BadLine."""
        if self.name == "files":
            src, _, tgt = line.partition(b"\n")
            return PairRecord(*(_side(*side) for side in (("source", src), ("target", tgt))))
        if self.name == "jsonl":
            return self._parse_json(line)
        columns = columns_of(line, max(self.src, self.tgt))
        return PairRecord(columns[self.src], columns[self.tgt], line="\t".join(columns))

    def _parse_json(self, line: bytes) -> PairRecord:
        record = parsed_object(line)
        if self.scored_key in record.value:
            raise BadLine(
                f"has {self.scored_key!r} already, which scoring adds: rename it, or choose another"
            )
        source = text_under(record, self.source_key)
        if not self.tokens_key:
            return PairRecord(source, text_under(record, self.target_key), line=record.json)
        tokens = record.value.get(self.tokens_key)
        if not isinstance(tokens, list) or any(type(token) is not int for token in tokens):
            raise BadLine(
                f"has no list of whole numbers under {self.tokens_key!r}: `translate --format "
                "jsonl --tokens` writes it"
            )
        text = None
        with contextlib.suppress(BadLine):  # it may be missing: the tokens are what counts
            text = text_under(record, self.target_key)
        return PairRecord(source, tokens, record.json, text)

    def render(self, record: PairRecord, scored: Scored, vocabulary: Vocabulary) -> bytes:
        """The line to write: natural logarithms, to six places."""
        pieces = vocabulary.pieces(scored.tokens) if self.per_token else []
        if self.name == "jsonl":
            fields: dict[str, Any] = {
                "log_prob": round(scored.log_prob, 6),
                "score": round(scored.score, 6),
            }
            if self.per_token:
                fields["pieces"] = pieces
                fields["token_log_probs"] = [round(each, 6) for each in scored.token_log_probs]
            return with_fields(record.line, {self.scored_key: fields})
        columns = [f"{scored.log_prob:.6f}", f"{scored.score:.6f}"]
        if self.per_token:
            each = zip(pieces, scored.token_log_probs, strict=True)
            columns.append(" ".join(f"{piece}:{log_prob:.6f}" for piece, log_prob in each))
        if self.name == "tsv":
            columns.insert(0, record.line)
        return ("\t".join(columns) + "\n").encode()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """What decides of the output besides the model and its own settings."""

    form: PairForm
    overlong: Overlong = "refuse"


def score_window(window: Window, settings: ScoreSettings, translator: Translator) -> Made:
    """The scores of a window's pairs, rendered; sums pairs, tokens and log-probabilities.

    It also counts the texts whose own tokens are not those that were scored.
    """
    form, vocabulary = settings.form, translator.vocabularies.tgt

    def make(records: list[PairRecord]) -> Made:
        pairs = [(record.source, record.target) for record in records]
        found = translator.score(pairs, overlong=settings.overlong)
        known = [record for record in records if record.text is not None]
        texts = vocabulary.encode([record.text or "" for record in known])
        tokens = sum(len(scored.tokens) for scored in found)
        return Made(
            output=b"".join(
                form.render(record, scored, vocabulary)
                for record, scored in zip(records, found, strict=True)
            ),
            tokens=tokens,
            sums={
                "pairs": len(records),
                "tokens": tokens,
                "log_prob": math.fsum(scored.log_prob for scored in found),
                "encoded_otherwise": sum(
                    [token for token in record.target if token != EOS] != encoded
                    for record, encoded in zip(known, texts, strict=True)
                ),
            },
        )

    return made_of(window, form.parse, make)


def describe_scored(sums: Mapping[str, float]) -> list[str]:
    """Lines for people: the perplexity, and how many texts do not stand for their tokens."""
    pairs, tokens = int(sums.get("pairs", 0)), int(sums.get("tokens", 0))
    lines = [f"{pairs:,} pairs, {tokens:,} target tokens (end marks included)"]
    if tokens:
        mean = sums["log_prob"] / tokens
        perplexity = math.exp(min(-mean, 700.0))
        lines[0] += f": {mean:.4f} nats a token, perplexity {perplexity:.4f}"
    if otherwise := int(sums.get("encoded_otherwise", 0)):
        lines.append(
            f"{otherwise:,} of the texts encode into other tokens than those that were scored: "
            "scored as texts they would have other scores"
        )
    return lines


def _side(side: str, text: bytes) -> str:
    try:
        return decoded(text)
    except BadLine as why:
        raise BadLine(f"the {side} {why}") from None
