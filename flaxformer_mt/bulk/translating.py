"""A window of records translated and rendered."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from flaxformer_mt.bulk.forms import Form, Record, counted
from flaxformer_mt.bulk.stream import Made
from flaxformer_mt.decoding.alignment import Alignment
from flaxformer_mt.decoding.translation import Translation


class Translate(Protocol):
    """Lines with what their translations begin with; `first` is the first one's number."""

    def __call__(
        self, lines: Sequence[str], *, prefixes: Sequence[str] | None, first: int
    ) -> Sequence[Translation]: ...


Align = Callable[[Sequence[tuple[str, Sequence[int]]]], Sequence[Alignment]]

SAID = 20  # lines that are each said to be split; the others are counted


@dataclasses.dataclass
class Translating:
    """The action of `translate`: its own state is only what it has to tell in the end."""

    translate: Translate
    align: Align | None  # given where alignments are wanted
    form: Form
    name: str  # of the input, for messages
    say: Callable[[str], None]
    prefix: str = ""  # of every translation, where the record has none
    split: int = 0  # lines so far that were longer than the model takes
    at_limit: int = 0  # translations so far that are as long as an output may be

    def __call__(self, records: Sequence[Record], first: int) -> Made:
        prefixes = [record.prefix or self.prefix for record in records]
        translations = self.translate(
            [record.source for record in records],
            prefixes=prefixes if any(prefixes) else None,
            first=first,
        )
        aligned = self._alignments(records, translations)
        outputs = []
        for number, (record, translation) in enumerate(
            zip(records, translations, strict=True), start=first
        ):
            if translation.split:
                self._tell(number)
            self.at_limit += translation.at_limit
            links = list(itertools.islice(aligned, len(translation.hypotheses)))
            outputs.append(self.form.render(record, translation, links, number=number))
        tokens = sum(len(translation.tokens) + 1 for translation in translations)
        return Made(outputs, tokens)

    def _alignments(
        self, records: Sequence[Record], translations: Sequence[Translation]
    ) -> itertools.chain[Alignment]:
        if self.align is None:
            return itertools.chain()
        pairs = [
            (record.source, hypothesis.tokens)
            for record, translation in zip(records, translations, strict=True)
            for hypothesis in translation.hypotheses
        ]
        return itertools.chain(self.align(pairs))

    def sums(self) -> dict[str, float]:
        return {"split": self.split, "at_limit": self.at_limit}

    def go_on(self, sums: Mapping[str, float]) -> None:
        self.split, self.at_limit = int(sums["split"]), int(sums["at_limit"])

    def summary(self) -> list[str]:
        """Lines for people, at the end."""
        lines = []
        if self.split:
            lines.append(
                f"{counted(self.split, 'line')} longer than the model takes: translated in pieces"
            )
        if self.at_limit:
            lines.append(
                f"{counted(self.at_limit, 'translation')} as long as an output may be, perhaps cut "
                "short: see --max-ratio and --max-extra-tokens"
            )
        return lines

    def _tell(self, number: int) -> None:
        self.split += 1
        if self.split <= SAID:
            self.say(
                f"{self.name}:{number}: longer than the model takes; "
                "translated in pieces and rejoined"
            )
        if self.split == SAID:
            self.say("further lines in pieces are only counted")
