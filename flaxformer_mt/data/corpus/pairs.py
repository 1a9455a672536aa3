"""What reading a corpus returns: sentence pairs, and an account of what was left out."""

from __future__ import annotations

import dataclasses
import re
from typing import NamedTuple

from flaxformer_mt.data.normalization import is_blank
from flaxformer_mt.errors import UserError

# C0 except tab, and DEL. C1 stays: newstest2014's French reference has U+0085. A newline, in JSON
# or a stored record, would break a pair where sentences are written one per line.
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

INVALID_UTF8 = "invalid UTF-8"
CONTROL_CHARACTER = "control character"
EMPTY_SIDE = "empty side"
COLUMNS = "not two columns"
MALFORMED_JSON = "malformed JSON"
NO_TEXT = "no text under the key"
EXAMPLES = 5  # dropped pairs of a reason that are shown


class CorpusError(UserError):
    """A corpus that can't be read; the message names the corpus, the file and the line."""


class Pair(NamedTuple):
    """A source and a target sentence and their line, from 1."""

    line: int
    src: str
    tgt: str


class Defect(NamedTuple):
    """Why a record isn't a pair: the file (or corpus), the reason and details."""

    file: str
    reason: str
    detail: str


class Example(NamedTuple):
    """One dropped pair: a defect and its line."""

    file: str
    line: int
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}: {self.detail}"


@dataclasses.dataclass
class Drops:
    """How many pairs were left out, by reason, and the first few of each reason."""

    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    examples: list[Example] = dataclasses.field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, line: int, defect: Defect) -> None:
        count = self.counts.get(defect.reason, 0)
        self.counts[defect.reason] = count + 1
        if count < EXAMPLES:
            self.examples.append(Example(defect.file, line, defect.reason, defect.detail))

    def merge(self, later: Drops) -> None:
        before = dict(self.counts)
        for example in sorted(later.examples, key=lambda example: example.line):
            reason = example.reason
            self.counts[reason] = before.get(reason, 0) + later.counts[reason]
            if sum(each.reason == reason for each in self.examples) < EXAMPLES:
                self.examples.append(example)

    def describe(self) -> str:
        """The counts in one line: "3 empty side, 1 invalid UTF-8"."""
        return ", ".join(f"{count:,} {reason}" for reason, count in self.counts.items())


def defect_of_sides(
    sides: tuple[bytes, ...], files: tuple[object, object], where: str
) -> Defect | None:
    """What is wrong with the bytes of a source and a target sentence, if anything.

    `files` are the sides' places; `where`, such as " of the {side} column", the part of a record.
    """
    for side, text, file in zip(("source", "target"), sides, files, strict=True):
        if control := _CONTROL.search(text):
            detail = f"U+{control.group()[0]:04X} at byte {control.start() + 1}"
            return Defect(str(file), CONTROL_CHARACTER, detail + where.format(side=side))
        try:
            decoded = text.decode()
        except UnicodeDecodeError as error:
            detail = f"byte 0x{text[error.start]:02X} at byte {error.start + 1}"
            return Defect(str(file), INVALID_UTF8, detail + where.format(side=side))
        if is_blank(decoded):
            return Defect(str(file), EMPTY_SIDE, f"the {side} is blank")
    return None
