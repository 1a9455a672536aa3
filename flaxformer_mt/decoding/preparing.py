"""From lines and what is wanted of their translations to the sources of a search."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from flaxformer_mt.data.normalization import is_blank
from flaxformer_mt.data.vocabulary import EOS, UNK, Vocabularies
from flaxformer_mt.decoding.constraints.forbidden import Forbidden, forbidden
from flaxformer_mt.decoding.constraints.phrases import Phrase
from flaxformer_mt.decoding.constraints.required import required_phrases
from flaxformer_mt.decoding.constraints.symbols import Continues, continues_word
from flaxformer_mt.decoding.errors import DecodingError, LineError, OverlongError
from flaxformer_mt.decoding.options import LineOptions, SearchOptions, Several
from flaxformer_mt.decoding.source import Source
from flaxformer_mt.decoding.text.segments import (
    CutLine,
    Piece,
    check_prefix,
    check_unicode,
    describe_overlong,
    encode,
    sentence_count,
    source_pieces,
    types_of,
)
from flaxformer_mt.parsing.linearization import tokens_of


class PreparedLine(NamedTuple):
    """A line in pieces that fit the model."""

    cut: CutLine
    sources: Sequence[Source]  # one per piece


class Spelled(NamedTuple):
    """What is wanted of all lines, in the target vocabulary."""

    suppressed: tuple[int, ...]  # types that are never generated
    forbidden: Forbidden | None  # phrases that no line may have
    # Which types continue a word; None if there are no constraints and no terms.
    continues: Continues | None


@dataclasses.dataclass(frozen=True)
class SourcePreparer:
    """Prepares lines for a model that takes `max_length` tokens of either side."""

    vocabularies: Vocabularies
    max_length: int
    language: str  # of the sources: where their sentences end
    trees: bool = False  # outputs are trees and not text
    tags: Set[str] = frozenset()  # that sources may begin with
    together: int | None = None  # sentences of a line that is not cut; None: any number
    known_together: int = 1  # that the model is known to read together
    # Of each symbol that outputs copy its target type, by the source's.
    copies: Mapping[int, int] = dataclasses.field(default_factory=dict)

    def spell(self, options: SearchOptions, wanted: Sequence[LineOptions]) -> Spelled:
        """What is wanted of all lines, in the target vocabulary. Checks all that can be checked
        without the lines: a term that can't be spelled is an error before the first line that has
        it."""
        of_lines = [(line.prefix, *line.forbid, *line.constraints) for line in wanted]
        check_unicode((*itertools.chain(*of_lines), *options.suppress, *options.forbid))
        self._check_not_forbidden(itertools.chain(options.forbid, *(one.forbid for one in wanted)))
        if self.trees and (options.forbid or any(of_line.forbid for of_line in wanted)):
            raise DecodingError("forbidden phrases need text, but decoding.outputs is trees")

        tgt = self.vocabularies.tgt
        suppressed = self._suppressed(options.suppress)
        never = tuple(options.forbid)
        if options.terminology is not None:
            options.terminology.check(
                tgt, suppressed=suppressed, max_length=self.max_length, never=never
            )
        constrained = options.terminology is not None or any(
            of_line.constraints for of_line in wanted
        )
        return Spelled(
            suppressed=suppressed,
            forbidden=forbidden(never, tgt) if never else None,
            continues=continues_word(tgt) if constrained else None,
        )

    def _suppressed(self, pieces: Sequence[str]) -> tuple[int, ...]:
        """The types that are never generated."""
        tgt = self.vocabularies.tgt
        suppressed = (UNK, *types_of(pieces, tgt)) if pieces else (UNK,)
        if both := {*suppressed} & {*self.copies.values()}:
            (piece,) = tgt.pieces([min(both)])
            raise DecodingError(f"the suppressed piece {piece!r} is a symbol that outputs copy")
        return suppressed

    def _check_not_forbidden(self, phrases: Iterable[str]) -> None:
        """Raises DecodingError for a phrase with a symbol that outputs copy."""
        symbols = self.vocabularies.tgt.pieces([*self.copies.values()])
        for phrase in phrases if symbols else ():
            for symbol in symbols:
                if symbol in phrase:
                    raise DecodingError(
                        f"the forbidden phrase {phrase!r} has {symbol}, which outputs copy"
                    )

    def prepare(
        self,
        lines: Sequence[str],
        options: SearchOptions,
        wanted: Sequence[LineOptions],
        spelled: Spelled,
    ) -> list[PreparedLine]:
        """Each line cut into pieces that fit, and what the search needs of each piece. Raises
        LineError, and OverlongError for a line that doesn't fit if these are refused."""
        prepared = []
        encoded = encode(self.vocabularies.src, lines)
        for number, (line, tokens, of_line) in enumerate(zip(lines, encoded, wanted, strict=True)):
            if options.overlong == "refuse" and len(tokens) >= self.max_length:
                if not is_blank(line):
                    why = describe_overlong(self.max_length, source=tokens)
                    raise OverlongError(number, why, splits=True)
            # Constraints and a prefix hold for the whole line's translation, not for a sentence's:
            # such a line isn't cut by sentence.
            is_whole = of_line.constraints or of_line.prefix
            several = "keep" if is_whole else options.several
            cut, encoded_pieces = self.cut(line, tokens, several)
            # A blank line's translation is blank whatever is wanted of it.
            sources: list[Source] = []
            if cut.pieces:
                try:
                    sources = self._sources(
                        options.first + number,
                        cut.pieces,
                        encoded_pieces,
                        options,
                        of_line,
                        spelled,
                    )
                except DecodingError as error:
                    raise LineError(number, str(error)) from None
            prepared.append(PreparedLine(cut, sources))
        return prepared

    def cut(
        self, line: str, tokens: list[int], several: Several
    ) -> tuple[CutLine, list[list[int]]]:
        """A line of these tokens as the pieces that it is translated in, and their tokens."""
        if not tokens or is_blank(line):
            return CutLine([]), []
        src = self.vocabularies.src
        if len(tokens) >= self.max_length:
            _, pieces, encoded = source_pieces(
                line, src, self.max_length, self.language, tags=self.tags
            )
            return CutLine(pieces, overlong=True, tokens=len(tokens)), encoded

        sentences = 1 if self.trees else sentence_count(line, src, self.language, self.tags)
        if sentences <= self._read_together(several):
            at_risk = sentences > self.known_together
            whole = CutLine([Piece(line, "")], sentences, at_risk=at_risk, tokens=len(tokens))
            return whole, [tokens]
        _, pieces, encoded = source_pieces(
            line, src, self.max_length, self.language, tags=self.tags, by_sentence=True
        )
        return CutLine(pieces, sentences, tokens=len(tokens)), encoded

    def _copied(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """The symbols that the outputs of a source copy, as target types."""
        return tuple(self.copies[token] for token in tokens if token in self.copies)

    def _check_symbols(
        self, copied: tuple[int, ...], prefix: Sequence[int], phrases: Sequence[Phrase]
    ) -> None:
        """Raises DecodingError for symbols of a prefix or a required phrase that the source has
        less often."""
        for wanted in (prefix, *(phrase.tokens for phrase in phrases)) if self.copies else ():
            for symbol in {*wanted} & {*self.copies.values()}:
                if list(wanted).count(symbol) > copied.count(symbol):
                    (piece,) = self.vocabularies.tgt.pieces([symbol])
                    raise DecodingError(
                        f"its prefix or a phrase that is wanted has {piece} more often than the "
                        "source, from which outputs copy it"
                    )

    def _read_together(self, several: Several) -> float:
        """The most sentences of a line that the model reads together."""
        if several == "split":
            return 1
        if several == "auto" and self.together is not None:
            return self.together
        return math.inf

    def _sources(
        self,
        line_number: int,
        pieces: Sequence[Piece],
        encoded_pieces: Sequence[Sequence[int]],
        options: SearchOptions,
        wanted: LineOptions,
        spelled: Spelled,
    ) -> list[Source]:
        """What the search needs of each piece of a line."""
        if wanted.constraints and len(pieces) > 1:
            raise DecodingError(
                "is translated in parts, but its constraints apply to a whole translation"
            )
        tgt = self.vocabularies.tgt
        prefix: Sequence[int] = ()
        if wanted.prefix:
            (prefix,) = encode(tgt, [wanted.prefix])
            check_prefix(wanted.prefix, prefix, tgt, suppressed=spelled.suppressed)

        automata = [] if spelled.forbidden is None else [spelled.forbidden]
        if wanted.forbid:
            automata.append(forbidden(tuple(wanted.forbid), tgt))
        sources = []
        for place, (piece, tokens) in enumerate(zip(pieces, encoded_pieces, strict=True)):
            phrases: Sequence[Phrase] = ()
            if wanted.constraints or options.terminology is not None:
                phrases = required_phrases(
                    wanted.constraints,
                    options.terminology,
                    piece.text,
                    tgt,
                    suppressed=spelled.suppressed,
                )
            copied = self._copied(tokens)
            self._check_symbols(copied, () if place else prefix, phrases)
            source = Source(
                [*tokens, EOS],
                number=(line_number, place),
                prefix=() if place else prefix,
                words=len(tokens_of(piece.text)) if self.trees else 0,
                forbidden=automata,
                phrases=phrases,
                copied=copied,
            )
            sources.append(source)
        return sources
