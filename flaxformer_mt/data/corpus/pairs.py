"""A corpus that can be read: its sentence pairs, and an account of what was left out."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from flaxformer_mt.data.normalization import is_blank
from flaxformer_mt.errors import UserError
from flaxformer_mt.files.reading import AnyPath

if TYPE_CHECKING:
    from flaxformer_mt.data.corpus.text_files import LinePlace

# C0 except tab, and DEL. C1 stays: newstest2014's French reference has U+0085. A newline, in JSON
# or a stored record, would break a pair where sentences are written one per line.
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

INVALID_UTF8 = "invalid UTF-8"
CONTROL_CHARACTER = "control character"
EMPTY_SIDE = "empty side"
COLUMNS = "not two columns"
BROKEN_LINE = "line end in a value"
MALFORMED_CSV = "malformed CSV"
MALFORMED_JSON = "malformed JSON"
NO_TEXT = "no text under the key"
UNFINISHED = "no finished translation"
NO_WEIGHT = "no weight"
WEIGHT_OF_ZERO = "weight of 0"
_LARGEST_WEIGHT = 1e6  # more is another kind of number
_SMALLEST_WEIGHT = 2.0**-126  # that float32 has with all its digits
HEADER = "header line"  # of a record that never was a pair
HELD_OUT = "held out for validation"
TRAINED_ON = "used for training"
# Of records that never were a pair.
NO_PAIR = {HEADER, UNFINISHED}
# Of pairs that are not dropped, but in the other split; the last in stores of earlier versions.
ELSEWHERE = {HELD_OUT, TRAINED_ON, "trained on"}
_SIDES: tuple[tuple[Literal["src", "tgt"], str], ...] = (("src", "source"), ("tgt", "target"))
EXAMPLES = 5  # dropped pairs of a reason that are shown


class CorpusError(UserError):
    """A corpus that can't be read; the message names the corpus, the file and the line."""


@dataclasses.dataclass(frozen=True)
class NoText:
    """Stands where a record has no text, or not two, and says why."""

    reason: str
    detail: str


# The source, the target and, where pairs have one, the weight; not yet checked.
CorpusRecord = tuple[bytes, bytes] | tuple[bytes, bytes, bytes] | NoText


def record_of(*texts: bytes | NoText) -> CorpusRecord:
    """The record of a source, a target and perhaps a weight."""
    for text in texts:
        if isinstance(text, NoText):
            return text
    return cast(CorpusRecord, texts)


def checked(record: CorpusRecord) -> tuple[bytes, bytes]:
    """Source and target of a record in which `PairSource.check` has found no defect."""
    assert not isinstance(record, NoText)
    return record[0], record[1]


def weight_of(record: CorpusRecord) -> float:
    """The weight of such a record's pair: 1 where pairs have none."""
    assert not isinstance(record, NoText)
    return float(record[2]) if len(record) == 3 else 1.0


class Pair(NamedTuple):
    """A source and a target sentence and their line, from 1."""

    line: int
    src: str
    tgt: str


class Defect(NamedTuple):
    """Why a record isn't a pair: the file (or corpus) and line, the reason and details."""

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
    examples: list[Defect] = dataclasses.field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, defect: Defect) -> None:
        if defect.reason == HEADER:  # no pair
            return
        count = self.counts.get(defect.reason, 0)
        self.counts[defect.reason] = count + 1
        if count < EXAMPLES:
            self.examples.append(defect)

    def merge(self, later: Drops) -> None:
        before = dict(self.counts)
        for example in sorted(later.examples, key=lambda example: example.line):
            reason = example.reason
            self.counts[reason] = before.get(reason, 0) + later.counts[reason]
            if sum(known.reason == reason for known in self.examples) < EXAMPLES:
                self.examples.append(example)

    def describe(self, leaving_out: Container[str] = ()) -> str:
        """The counts in one line, but for some reasons: "3 empty side, 1 invalid UTF-8"."""
        return ", ".join(
            f"{count:,} {reason}"
            for reason, count in self.counts.items()
            if reason not in leaving_out
        )


@dataclasses.dataclass(frozen=True)
class PairSource:
    """A corpus whose files exist, ready to be read. It can be pickled.

    A `tag` is put before each source after the filters (`tagged`; Caswell et al. 2019). With a
    `fraction`, these are the validation pairs if `held_out`, else the others.
    """

    files: Mapping[str, AnyPath]  # the files to read, by setting name
    label: str  # the corpus in messages, such as its first file or a pattern
    readers: tuple[functools.partial[Iterator[Any]], ...]  # called in order
    texts: Callable[[Any], CorpusRecord]  # of what a reader gives
    where: str = " of the {side} text"  # in a record, for messages; empty if each side has a file
    is_seekable: bool = False  # its one reader can begin at a `LinePlace` of each file
    is_bare_text: bool = False  # the files hold the texts and nothing else
    size: int | None = None  # how many records there are, if this is known without reading
    tag: str = ""
    languages: tuple[str, str] = ("", "")  # of both sides, as codes; empty where nobody asks
    fraction: float = 0.0
    held_out: bool = False

    def tagged(self, src: bytes) -> bytes:
        """A source as the model reads it, after the tag."""
        return f"{self.tag} ".encode() + src if self.tag else src

    def starting_at(self, places: Mapping[str, LinePlace]) -> PairSource:
        """A seekable corpus from these places of its files on."""
        (read,) = self.readers
        read_from = functools.partial(read, *(places[name] for name in self.files))
        return dataclasses.replace(self, readers=(read_from,))

    def file_of(self, side: Literal["src", "tgt"]) -> str:
        """The file that holds a side, for messages; the corpus's label if one holds both."""
        return self.label if self.where else str(self.files[side])

    def records(self) -> Iterator[CorpusRecord]:
        """The records without the tag, streaming.

        Record n, from 1, counts through all readers and is "line" n. Raises CorpusError.
        """
        for read in self.readers:
            yield from map(self.texts, read())

    def check(self, record: CorpusRecord, line: int = 0) -> Defect | None:
        """None if the record of a line is a source and a target sentence in UTF-8.

        A pair on the other side of `held_out` has a defect, so that lines keep their numbers.
        """
        if isinstance(record, NoText):
            return Defect(self.label, line, record.reason, record.detail)
        src, tgt, *weight = record
        for (side, name), text in zip(_SIDES, (src, tgt), strict=True):
            problem = self._problem(name, text)
            if problem:
                return Defect(self.file_of(side), line, *problem)
        if self.fraction:
            digest = hashlib.blake2b(src.strip(), digest_size=8).digest()
            if (int.from_bytes(digest) < self.fraction * 2**64) != self.held_out:
                reason = TRAINED_ON if self.held_out else HELD_OUT
                return Defect(self.label, line, reason, "by its source text")
        for text in () if self.held_out else weight:
            if problem := _weight_problem(text):
                return Defect(str(self.files.get("pair_weights", self.label)), line, *problem)
        return None

    def _problem(self, side: str, text: bytes) -> tuple[str, str] | None:
        """Why a text isn't a sentence in UTF-8: the reason and details. `side` is for messages."""
        if control := _CONTROL.search(text):
            where = f"at byte {control.start() + 1}{self.where.format(side=side)}"
            return CONTROL_CHARACTER, f"U+{control.group()[0]:04X} {where}"
        try:
            decoded = text.decode()
        except UnicodeDecodeError as error:
            where = f"at byte {error.start + 1}{self.where.format(side=side)}"
            return INVALID_UTF8, f"byte 0x{text[error.start]:02X} {where}"
        if is_blank(decoded):
            return EMPTY_SIDE, f"the {side} is blank"
        return None


def _weight_problem(text: bytes) -> tuple[str, str] | None:
    """Why a text isn't the weight of a pair to train on: the reason and details."""
    try:
        weight = float(text)
    except ValueError:
        return NO_WEIGHT, f"{text.decode(errors='replace')!r} is not a number"
    if not 0 <= weight <= _LARGEST_WEIGHT:
        return NO_WEIGHT, f"{weight:g} is not between 0 and {_LARGEST_WEIGHT:,.0f}"
    if weight < _SMALLEST_WEIGHT:
        return WEIGHT_OF_ZERO, "the pair would not be trained on"
    return None
