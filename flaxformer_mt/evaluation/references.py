"""What hypotheses are compared with: one reference per sentence, or several."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TypeAlias, cast

from flaxformer_mt.errors import UserError
from flaxformer_mt.wording import counted

VARIABLE = "var"  # sacreBLEU's word for sentences with different numbers of references


class ScoringError(UserError):
    """Hypotheses and references, or settings, that cannot be scored; says what to do."""


@dataclasses.dataclass(frozen=True)
class References:
    """The references of a test set, each a sequence of one text per sentence, as in sacreBLEU.

    A text may be None where a sentence has fewer references than others, but each sentence has one
    at least. Raises ScoringError.
    """

    columns: tuple[Sequence[str | None], ...]

    def __post_init__(self) -> None:
        first, *further_columns = self.columns
        for number, further_column in enumerate(further_columns, start=2):
            if len(further_column) != len(first):
                raise ScoringError(
                    f"reference {number} has {counted(len(further_column), 'sentence')}, but "
                    f"the first has {len(first):,}: they must be aligned line by line"
                )
        for line, texts in enumerate(zip(*self.columns, strict=True), start=1):
            if all(text is None for text in texts):
                raise ScoringError(
                    f"line {line:,} has no reference: each sentence needs one at least"
                )

    @classmethod
    def of(cls, given: Given) -> References:
        """From one sequence of texts, or a sequence of such sequences. Raises ScoringError."""
        if isinstance(given, References):
            return given
        # None is no sequence, but a text that one reference may not lack.
        if not given or given[0] is None or isinstance(given[0], str):
            return cls((cast("Sequence[str]", given),))
        return cls(tuple(given))

    @property
    def given(self) -> Sequence[str] | Sequence[Sequence[str | None]]:
        """As a caller gives them: if there is one per sentence, just this."""
        return self.columns[0] if len(self.columns) == 1 else self.columns  # type: ignore[return-value]

    def __len__(self) -> int:
        """Sentences."""
        return len(self.columns[0])

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        """Each sentence's references."""
        for texts in zip(*self.columns, strict=True):
            yield tuple(text for text in texts if text is not None)

    def __getitem__(self, sentence: int) -> tuple[str, ...]:
        texts = (column[sentence] for column in self.columns)
        return tuple(text for text in texts if text is not None)

    @property
    def are_several(self) -> bool:
        """Whether any sentence may have more than one."""
        return len(self.columns) > 1

    @property
    def number(self) -> str:
        """Of references per sentence, as sacreBLEU's signatures have it."""
        counts = {len(texts) for texts in self}
        return str(counts.pop()) if len(counts) == 1 else VARIABLE

    def blank_lines(self) -> list[int]:
        """The lines, from 1, at which some references have words and others have none."""
        lines = []
        for line, texts in enumerate(self, start=1):
            are_blank = [not text.strip() for text in texts]
            if any(are_blank) and not all(are_blank):
                lines.append(line)
        return lines

    def without_blanks(self) -> References:
        """The same, without texts that have no words where others have some."""
        lines = {*self.blank_lines()}
        return References(
            tuple(
                [
                    None if line in lines and not (text or "").strip() else text
                    for line, text in enumerate(column, start=1)
                ]
                for column in self.columns
            )
        )

    def missing(self) -> list[list[int]]:
        """The lines, from 1, that each reference lacks."""
        return [
            [line for line, text in enumerate(column, start=1) if text is None]
            for column in self.columns
        ]


# One reference per sentence, or several such sequences, in which None is a missing text.
Given: TypeAlias = Sequence[str] | Sequence[Sequence[str | None]] | References
