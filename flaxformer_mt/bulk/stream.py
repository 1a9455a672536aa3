"""Any number of lines through a model, in order and in constant memory: translations or scores."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from flaxformer_mt.bulk.forms import BadLine, Form, PairForm, PairRecord, Record, counted
from flaxformer_mt.bulk.reading import InputError, Lines, Shard, TwoInputs
from flaxformer_mt.bulk.sinks import Consumed, OutputError, Place, Sink
from flaxformer_mt.data.corpus import CorpusError
from flaxformer_mt.data.vocabulary import EOS, Vocabulary
from flaxformer_mt.decoding.text.segments import LineError, Overlong
from flaxformer_mt.progress import Meter

WINDOW = 4096  # lines read before any is written: sorted by length, they share batches
WINDOW_BYTES = 1 << 22  # bytes of them, so that long lines take no more memory
NOTES = 20  # of a call's notes, and of a remark's lines, are shown
SEVERAL = (
    "with several sentences, but the model may translate only one of them: put each on its own line"
)

T = TypeVar("T")


@dataclasses.dataclass
class Window:
    """Consecutive lines of an input, and the error that ended reading, if any."""

    name: str  # the input's, for messages
    first: int  # the first one's number, from 1
    lines: list[bytes]
    error: Exception | None = None

    @property
    def size(self) -> int:
        return sum(map(len, self.lines)) + len(self.lines)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """A window's output, up to a refused line."""

    output: bytes = b""
    tokens: int = 0
    sums: Mapping[str, float] = dataclasses.field(default_factory=dict)  # added over windows
    notes: Sequence[str] = ()  # for the user, about single lines
    # Line numbers by remark, which is the end of a sentence that begins with "LINES lines".
    remarks: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    error: Exception | None = None  # why a line was refused


def windows(lines: Lines | TwoInputs | Shard, *, window: int) -> Iterator[Window]:
    """The lines, `window` or `WINDOW_BYTES` at a time, the same for a call that resumes."""
    while True:
        current = Window(lines.name, lines.number + 1, [])
        size = 0
        try:
            while len(current.lines) < window and size < WINDOW_BYTES:
                current.lines.append(next(lines))
                size += len(current.lines[-1])
        except StopIteration:
            if current.lines:
                yield current
            return
        except (InputError, CorpusError) as error:
            current.error = error
            yield current
            return
        yield current


def shard_ends(whole: Lines | TwoInputs, count: int, *, window: int) -> list[tuple[Place, int]]:
    """The place and the bytes of text before each of `count` parts of whole windows, and in all."""
    size = 0
    ends: list[tuple[Place, int]] = [((0, ""), size)]  # of every window
    for part in windows(whole, window=window):
        if part.error is not None:
            raise part.error
        last_line = hashlib.sha256(part.lines[-1]).hexdigest()[:16]
        size += part.size
        ends.append(((whole.number, last_line), size))
    window_count = len(ends) - 1
    return [ends[window_count * shard // count] for shard in range(count + 1)]


def stream(
    lines: Lines | TwoInputs | Shard,
    sink: Sink,
    work: Callable[[Iterable[Window]], Iterable[tuple[Window, Made]]],
    *,
    identity: Mapping[str, Any],
    window: int,
    meter: Meter,
) -> dict[str, float]:
    """Writes the output of `work` for the lines, window by window; returns the sums.

    `work` yields windows in order and may read ahead. Continues output of the same `identity`.
    Raises InputError and CorpusError with file and line, OutputError (also if the input has changed
    since the output was begun) and the errors of `work`. At the end, also after an error, the meter
    says each remark with the first lines that it is about.
    """
    done = sink.begin(identity)
    digest = hashlib.sha256()
    if done.lines:
        _skip(lines, done.lines, digest)
        if digest.hexdigest() != done.sha256:
            raise OutputError(
                f"{lines.name}: its first {done.lines:,} lines differ from those the output was "
                "made from; give the same input, or start over with --restart"
            )
        meter.say(f"{sink.kept}: resuming after line {lines.start + done.lines:,}")
    meter.begin(skipped=done.size)

    notes = _Notes(meter)
    with _remarks(lines.name, meter) as remarks:
        for part, product in work(windows(lines, window=window)):
            notes.say(product.notes)
            remarks.add(product.remarks)
            meter.close()  # the output may go to the same terminal
            sink.write(product.output)
            if product.error is not None:
                raise product.error

            for line in part.lines:
                digest.update(line + b"\n")
            done = Consumed(
                lines=done.lines + len(part.lines),
                size=done.size + part.size,
                sha256=digest.hexdigest(),
                sums={
                    name: done.sums.get(name, 0) + number for name, number in product.sums.items()
                },
            )
            sink.commit(done)
            meter.advance(lines=len(part.lines), tokens=product.tokens, size=part.size)
    sink.finish()
    return dict(done.sums)


def _skip(lines: Lines | TwoInputs | Shard, count: int, digest: hashlib._Hash) -> None:
    """Reads the first `count` lines, or as many as there are, into a digest."""
    while lines.number < lines.start + count:
        line = next(lines, None)
        if line is None:
            return
        digest.update(line + b"\n")


class _Notes:
    """Says the first notes of a call."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._count = 0

    def say(self, notes: Sequence[str]) -> None:
        for note in notes[: max(0, NOTES - self._count)]:
            self._meter.say(note)
        if self._count <= NOTES < self._count + len(notes):
            self._meter.say("more lines like these are only counted")
        self._count += len(notes)


class _Remarks:
    """How many lines each remark is about, and the first of them."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._first: dict[str, list[int]] = {}

    def add(self, remarks: Mapping[str, Sequence[int]]) -> None:
        for remark, numbers in remarks.items():
            self._counts[remark] = self._counts.get(remark, 0) + len(numbers)
            first = self._first.setdefault(remark, [])
            first += numbers[: NOTES - len(first)]

    def describe(self) -> Iterator[str]:
        for remark, count in self._counts.items():
            numbers = ", ".join(map(str, self._first[remark])) + ", ..." * (count > NOTES)
            noun = "line" if count == 1 else "lines"
            yield f"{counted(count, 'line')} {remark} ({noun} {numbers})"


@contextlib.contextmanager
def _remarks(name: str, meter: Meter) -> Iterator[_Remarks]:
    """Says the remarks at the end, also after an error."""
    remarks = _Remarks()
    try:
        yield remarks
    finally:
        for line in remarks.describe():
            meter.say(f"{name}: {line}")


def made_of(window: Window, parse: Callable[[bytes], T], make: Callable[[list[T]], Made]) -> Made:
    """The output that `make` gives for a window's lines.

    It ends before the first line that `parse` or `make` refuses, with the reason as its `error`.
    """
    records = []
    error = window.error
    for number, line in enumerate(window.lines, start=window.first):
        try:
            records.append(parse(line))
        except BadLine as why:
            error = InputError(f"{window.name}:{number}: {why}")
            break
    while records:
        try:
            return dataclasses.replace(make(records), error=error)
        except LineError as why:
            advice = "; use --overlong split" if why.splits else ""
            error = InputError(f"{window.name}:{window.first + why.number}: {why.reason}{advice}")
            records = records[: why.number]
    return Made(error=error)


if TYPE_CHECKING:
    from flaxformer_mt.decoding.masks.terminology import Terminology
    from flaxformer_mt.decoding.options import LineOptions, SearchOptions
    from flaxformer_mt.decoding.search.sampling import Sampling
    from flaxformer_mt.decoding.text.translation import Translation
    from flaxformer_mt.decoding.translator import Translator


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateSettings:
    """Settings of translations besides the model and its own settings."""

    form: Form
    n_best: int = 1
    overlong: Overlong = "split"
    prefix: str = ""  # of translations whose record has none
    suppress: tuple[str, ...] = ()
    forbid: tuple[str, ...] | None = None  # besides the record's
    terminology: Terminology | None = None
    sampling: Sampling | None = None
    mbr: bool | None = None

    def check(self, translator: Translator) -> None:
        """Raises DecodingError for settings that would fail with any line.

        These are terms and phrases that can't be spelled, and constraints in a search that can't
        have any.
        """
        from flaxformer_mt.decoding.masks.terminology import Terminology

        options = self.search_options(first=0)
        if options.terminology is None and self.form.constraints_key is not None:
            options = dataclasses.replace(options, terminology=Terminology.of({}))
        translator.translate_with([], options, [])

    def search_options(self, *, first: int) -> SearchOptions:
        """What is wanted of all lines of a window, whose first has the number `first`."""
        from flaxformer_mt.decoding.options import SearchOptions

        return SearchOptions(
            n_best=self.n_best,
            overlong=self.overlong,
            several="keep",
            suppress=self.suppress,
            forbid=self.forbid or (),
            terminology=self.terminology,
            sampling=self.sampling,
            first=first,
            mbr=bool(self.mbr),
        )

    def line_options(self, record: Record) -> LineOptions:
        """What is wanted of one line."""
        from flaxformer_mt.decoding.options import LineOptions

        return LineOptions(
            prefix=record.prefix or self.prefix,
            forbid=record.forbid,
            constraints=record.constraints,
        )

    def make(self, window: Window, translator: Translator) -> Made:
        """A window's translations; counts split lines and those at the limit."""
        make = functools.partial(self._translated, window, translator)
        return made_of(window, self.form.parse, make)

    def _translated(self, window: Window, translator: Translator, records: list[Record]) -> Made:
        translations = translator.translate_with(
            [record.source for record in records],
            self.search_options(first=window.first),
            [self.line_options(record) for record in records],
        )
        notes = []
        several = []
        for number, translation in enumerate(translations, start=window.first):
            if translation.split:
                notes.append(f"{window.name}:{number}: too long: translated in pieces")
            if translation.sentences > 1:
                several.append(number)
        return Made(
            output=self._rendered(window, translator, records, translations),
            tokens=sum(len(translation.tokens) + 1 for translation in translations),
            sums={
                "split": len(notes),
                "at_limit": sum(translation.at_limit for translation in translations),
            },
            notes=notes,
            remarks={SEVERAL: several} if several else {},
        )

    def _rendered(
        self,
        window: Window,
        translator: Translator,
        records: Sequence[Record],
        translations: Sequence[Translation],
    ) -> bytes:
        pairs = [
            (record.source, hypothesis.tokens)
            for record, translation in zip(records, translations, strict=True)
            for hypothesis in translation.hypotheses
        ]
        alignments = iter(translator.align(pairs) if self.form.shown.alignments else ())
        output = []
        for index, (record, translation) in enumerate(zip(records, translations, strict=True)):
            own_alignments = list(itertools.islice(alignments, len(translation.hypotheses)))
            output.append(
                self.form.render(record, translation, own_alignments, number=window.first + index)
            )
        return b"".join(output)

    def identity(self) -> dict[str, Any]:
        """The settings that a later call must share to continue an output, as JSON."""
        terms = self.terminology
        plain = dataclasses.asdict(dataclasses.replace(self, terminology=None))
        return plain | {"terminology": None if terms is None else terms.digest}

    def describe(self, sums: Mapping[str, float]) -> list[str]:
        """Lines for people, at the end."""
        lines = []
        if split := int(sums.get("split", 0)):
            lines.append(f"{counted(split, 'line')} too long for the model: translated in pieces")
        if at_limit := int(sums.get("at_limit", 0)):
            lines.append(
                f"{counted(at_limit, 'translation')} reached the length limit: "
                "see --max-ratio and --max-extra-tokens"
            )
        return lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """Settings of scores besides the model and its own settings."""

    form: PairForm
    overlong: Overlong = "refuse"

    def identity(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

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
                "encoded_otherwise": _encoded_otherwise(records, vocabulary),
            },
        )

    def describe(self, sums: Mapping[str, float]) -> list[str]:
        """Lines for people, with the perplexity."""
        pairs = int(sums.get("pairs", 0))
        tokens = int(sums.get("tokens", 0))
        lines = [f"{pairs:,} pairs, {tokens:,} target tokens (end marks included)"]
        if tokens:
            mean = sums["log_prob"] / tokens
            perplexity = math.exp(min(-mean, 700.0))
            lines[0] += f": {mean:.4f} nats per token, perplexity {perplexity:.4f}"
        if otherwise := int(sums.get("encoded_otherwise", 0)):
            lines.append(f"{otherwise:,} texts encode into other tokens than the scored ones")
        return lines


def _encoded_otherwise(records: Iterable[PairRecord], vocabulary: Vocabulary) -> int:
    """How many records have a text that encodes into other tokens than theirs."""
    with_text = [record for record in records if record.text is not None]
    texts = vocabulary.encode([record.text or "" for record in with_text])
    return sum(
        [token for token in record.target if token != EOS] != encoded
        for record, encoded in zip(with_text, texts, strict=True)
    )
