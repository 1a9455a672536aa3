"""Pairs of lines read, scored and rendered."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from flaxformer_mt.bulk.forms import (
    BadLine,
    counted,
    decoded,
    parsed_object,
    text_under,
    with_fields,
)
from flaxformer_mt.bulk.reading import InputError, Lines, open_lines
from flaxformer_mt.bulk.stream import Made
from flaxformer_mt.data.vocabulary import EOS, Vocabulary
from flaxformer_mt.decoding.forced import Scored
from flaxformer_mt.decoding.segments import Target

_SUMS = ("pairs", "tokens", "log_prob", "encoded_otherwise")

Score = Callable[[Sequence[tuple[str, Target]]], Sequence[Scored]]


class TwoInputs:
    """Line n of one input and line n of another, with a line end between them."""

    def __init__(self, src: Lines, tgt: Lines) -> None:
        self._src, self._tgt = src, tgt
        self.name = f"{src.name}, {tgt.name}"
        self.interactive = False

    @property
    def number(self) -> int:
        return self._src.number

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        src, tgt = next(self._src, None), next(self._tgt, None)
        if src is None and tgt is None:
            raise StopIteration
        if src is None or tgt is None:
            short, long = (self._src, self._tgt) if src is None else (self._tgt, self._src)
            raise InputError(
                f"{short.name}: ends after {short.number:,} lines, and {long.name} has more: there "
                "must be one line for each pair"
            )
        return src + b"\n" + tgt

    def share(self, done: int) -> float | None:
        # Both sides' text is what is done; of equal lines each has its part.
        read = self._src.bytes_read + self._tgt.bytes_read
        return self._src.share(round(done * self._src.bytes_read / read)) if read else None


@contextlib.contextmanager
def open_pairs(src: str, tgt: str) -> Iterator[TwoInputs]:
    """The lines of two files in step. Raises CorpusError, and InputError if one has more."""
    with open_lines(src) as src_lines, open_lines(tgt) as tgt_lines:
        yield TwoInputs(src_lines, tgt_lines)


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
        if "." in self.scored_key:
            raise ValueError(
                "the scores' key is written as it is, and a dot would lead into an object when it "
                f"is read: {self.scored_key!r}"
            )

    def parse(self, line: bytes) -> PairRecord:
        """What a line holds. Raises BadLine."""
        if self.name == "files":
            src, _, tgt = line.partition(b"\n")
            return PairRecord(*(_side(*side) for side in (("source", src), ("target", tgt))))
        if self.name == "jsonl":
            return self._parse_json(line)
        columns = decoded(line).split("\t")
        wanted = max(self.src, self.tgt) + 1
        if len(columns) < wanted:
            raise BadLine(f"has {counted(len(columns), 'column')}, no column {wanted}")
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


@dataclasses.dataclass
class Scoring:
    """The action of `score`, and the sums that it reports at its end."""

    score: Score
    form: PairForm
    vocabulary: Vocabulary
    pairs: int = 0
    tokens: int = 0
    log_prob: float = 0.0
    encoded_otherwise: int = 0  # texts whose own tokens are not those that were scored

    def __call__(self, records: Sequence[PairRecord], first: int) -> Made:
        found = self.score([(record.source, record.target) for record in records])
        tokens = sum(len(scored.tokens) for scored in found)
        self.pairs += len(records)
        self.tokens += tokens
        self.log_prob += math.fsum(scored.log_prob for scored in found)
        self._compare(records)
        outputs = [
            self.form.render(record, scored, self.vocabulary)
            for record, scored in zip(records, found, strict=True)
        ]
        return Made(outputs, tokens)

    def _compare(self, records: Sequence[PairRecord]) -> None:
        known = [record for record in records if record.text is not None]
        texts = self.vocabulary.encode([record.text or "" for record in known])
        for record, encoded in zip(known, texts, strict=True):
            said = [token for token in record.target if token != EOS]
            self.encoded_otherwise += said != encoded

    def sums(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in _SUMS}

    def go_on(self, sums: Mapping[str, float]) -> None:
        for name in _SUMS:
            setattr(self, name, sums[name])

    def summary(self) -> list[str]:
        """Lines for people: the perplexity, and how many texts do not stand for their tokens."""
        lines = [f"{self.pairs:,} pairs, {self.tokens:,} target tokens (end marks included)"]
        if self.tokens:
            mean = self.log_prob / self.tokens
            perplexity = math.exp(min(-mean, 700.0))
            lines[0] += f": {mean:.4f} nats a token, perplexity {perplexity:.4f}"
        if self.encoded_otherwise:
            lines.append(
                f"{self.encoded_otherwise:,} of the texts encode into other tokens than those that "
                "were scored: scored as texts they would have other scores"
            )
        return lines


def _side(side: str, text: bytes) -> str:
    try:
        return decoded(text)
    except BadLine as why:
        raise BadLine(f"the {side} {why}") from None
