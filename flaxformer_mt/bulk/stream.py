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
from flaxformer_mt.data.vocabulary import EOS
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
    remarks: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)  # lines, by what
    error: Exception | None = None  # why a line was refused


def windows(lines: Lines | TwoInputs | Shard, *, window: int) -> Iterator[Window]:
    """The lines, `window` or `WINDOW_BYTES` at a time, the same for a call that resumes."""
    error: Exception | None = None
    while error is None:
        found, size = Window(lines.name, lines.number + 1, []), 0
        try:
            while len(found.lines) < window and size < WINDOW_BYTES:
                found.lines.append(next(lines))
                size += len(found.lines[-1])
        except StopIteration:
            if found.lines:
                yield found
            return
        except (InputError, CorpusError) as why:
            found.error = error = why
        yield found


def shard_ends(whole: Lines | TwoInputs, count: int, *, window: int) -> list[tuple[Place, int]]:
    """The place and the bytes of text before each of `count` parts of whole windows, and in all."""
    ends = [((0, ""), 0)]
    for each in windows(whole, window=window):
        if each.error is not None:
            raise each.error
        last = hashlib.sha256(each.lines[-1]).hexdigest()[:16]
        ends.append(((whole.number, last), ends[-1][1] + each.size))
    return [ends[(len(ends) - 1) * part // count] for part in range(count + 1)]


def stream(
    lines: Lines | TwoInputs | Shard,
    sink: Sink,
    work: Callable[[Iterable[Window]], Iterable[tuple[Window, Made]]],
    *,
    identity: Mapping[str, Any],
    window: int,
    meter: Meter,
) -> dict[str, float]:
    """Writes what `work` makes of the lines, window by window; returns the sums.

    `work` yields windows in order and may read ahead. Continues output of the same `identity`.
    Raises InputError and CorpusError with file and line, OutputError (also for another input than
    before) and what `work` raises. At the end, also after an error, the meter says each remark with
    the first lines that it is about.
    """
    done, digest = sink.begin(identity), hashlib.sha256()
    if done.lines:
        while lines.number < lines.start + done.lines and (line := next(lines, None)) is not None:
            digest.update(line + b"\n")
        if digest.hexdigest() != done.sha256:
            raise OutputError(
                f"{lines.name}: its first {done.lines:,} lines differ from those the output was "
                "made from; give the same input, or start over with --restart"
            )
        meter.say(f"{sink.kept}: resuming after line {lines.start + done.lines:,}")
    meter.begin(skipped=done.size)
    sums, noted = dict(done.sums), 0
    with _remarks(lines.name, meter) as remarks:
        for each, made in work(windows(lines, window=window)):
            for note in made.notes[: max(0, NOTES - noted)]:
                meter.say(note)
            if noted <= NOTES < noted + len(made.notes):
                meter.say("more lines like these are only counted")
            noted += len(made.notes)
            remarks.add(made.remarks)
            meter.close()  # the output may go to the same terminal
            sink.write(made.output)
            if made.error is not None:
                raise made.error
            for line in each.lines:
                digest.update(line + b"\n")
            sums = {name: sums.get(name, 0) + value for name, value in made.sums.items()}
            done = Consumed(
                lines=done.lines + len(each.lines),
                size=done.size + each.size,
                sha256=digest.hexdigest(),
                sums=sums,
            )
            sink.commit(done)
            meter.advance(lines=len(each.lines), tokens=made.tokens, size=each.size)
    sink.finish()
    return sums


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
            shown = ", ".join(map(str, self._first[remark])) + ", ..." * (count > NOTES)
            yield f"{counted(count, 'line')} {remark} ({'line' if count == 1 else 'lines'} {shown})"


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
    """What `make` makes of the lines before the first that `parse` or it refuses, and why."""
    records, error = [], window.error
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
            number = window.first + why.number
            error = InputError(f"{window.name}:{number}: {why.reason}{advice}")
            records = records[: why.number]
    return Made(error=error)


if TYPE_CHECKING:
    from flaxformer_mt.decoding.masks.terminology import Terminology
    from flaxformer_mt.decoding.search.sampling import Sampling
    from flaxformer_mt.decoding.translator import Translator


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateSettings:
    """What decides translations besides the model and its settings."""

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
        """Raises DecodingError for what no line could have: terms and phrases that can't be
        spelled, and constraints in a search that can't have any."""
        from flaxformer_mt.decoding.masks.terminology import Terminology

        terminology = self.terminology
        if terminology is None and self.form.constraints_key is not None:
            terminology = Terminology.of({})
        translator.translate(
            [],
            suppress=self.suppress,
            forbid=self.forbid or (),
            terminology=terminology,
            sampling=self.sampling,
        )

    def make(self, window: Window, translator: Translator) -> Made:
        """A window's translations; counts split lines and those at the limit."""
        make = functools.partial(self._translated, window, translator)
        return made_of(window, self.form.parse, make)

    def _translated(self, window: Window, translator: Translator, records: list[Record]) -> Made:
        sources = [record.source for record in records]
        prefixes = [record.prefix or self.prefix for record in records]
        translations = translator.translate(
            sources,
            n_best=self.n_best,
            overlong=self.overlong,
            several="keep",
            prefixes=prefixes if any(prefixes) else None,
            suppress=self.suppress,
            forbid=self.forbid or (),
            forbid_each=[record.forbid for record in records],
            constraints=[record.constraints for record in records],
            terminology=self.terminology,
            sampling=self.sampling,
            first=window.first,
            mbr=bool(self.mbr),
        )
        pairs = [
            (source, hypothesis.tokens)
            for source, translation in zip(sources, translations, strict=True)
            for hypothesis in translation.hypotheses
        ]
        aligned = iter(translator.align(pairs) if self.form.shown.alignments else ())
        output, notes, several = [], [], []
        each = zip(records, translations, strict=True)
        for number, (record, translation) in enumerate(each, start=window.first):
            if translation.split:
                notes.append(f"{window.name}:{number}: too long: translated in pieces")
            if translation.sentences > 1:
                several.append(number)
            links = list(itertools.islice(aligned, len(translation.hypotheses)))
            output.append(self.form.render(record, translation, links, number=number))
        at_limit = sum(translation.at_limit for translation in translations)
        return Made(
            output=b"".join(output),
            tokens=sum(len(translation.tokens) + 1 for translation in translations),
            sums={"split": len(notes), "at_limit": at_limit},
            notes=notes,
            remarks={SEVERAL: several} if several else {},
        )

    def identity(self) -> dict[str, Any]:
        """What a call must share to continue an output, as JSON."""
        terms = self.terminology
        plain = dataclasses.asdict(dataclasses.replace(self, terminology=None))
        return plain | {"terminology": None if terms is None else terms.digest}

    def describe(self, sums: Mapping[str, float]) -> list[str]:
        """Lines for people, at the end."""
        lines = []
        if split := int(sums.get("split", 0)):
            what = counted(split, "line")
            lines.append(f"{what} too long for the model: translated in pieces")
        if at_limit := int(sums.get("at_limit", 0)):
            limited = f"{counted(at_limit, 'translation')} reached the length limit"
            lines.append(f"{limited}: see --max-ratio and --max-extra-tokens")
        return lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """What decides scores besides the model and its settings."""

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
        found = translator.score(pairs, overlong=self.overlong)
        known = [record for record in records if record.text is not None]
        texts = vocabulary.encode([record.text or "" for record in known])
        tokens = sum(len(scored.tokens) for scored in found)
        return Made(
            output=b"".join(
                self.form.render(record, scored, vocabulary)
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
