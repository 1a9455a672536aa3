"""Lines with marks where something is kept: what the model reads of them, and what is put back."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Sequence

import regex

from flaxformer_mt.keeping.spans import Kept, kept_spans
from flaxformer_mt.sentences import split_sentences

# Stands where a text is kept. It looks like a word in title case, which suits code that looks for
# sentences or words, in a script that nobody writes today: one that a text has is kept, too.
MARK = "\U00010416\U00010438\U00010443\U0001043e"
_LETTER = regex.compile(r"\p{L}")
# A mark with the blanks that go with it: those before it, unless a word touches it on its right.
_TAKEN_OUT = regex.compile(
    rf"^(?:\s*+{MARK})++\s*+|(?<!\s)\s++{MARK}(?=[\s.,;:!?…)\]}}»”’、。，！？]|$)|{MARK}"
)


@dataclasses.dataclass(frozen=True)
class MarkedLine:
    """A line with a mark in the place of each text that is kept."""

    text: str
    kept: tuple[str, ...] = ()  # what is put back, in the source's order
    cores: tuple[str, ...] = ()  # what must be there as often as in the source
    lead: str = ""  # what the text begins with that is not translated, such as a tag
    others: tuple[str, ...] = ()  # what is kept for a caller, in any order

    @property
    def is_kept_whole(self) -> bool:
        """Whether there is nothing in it to translate."""
        return bool(self.kept) and not self.text.strip()

    def restored(self) -> str:
        """The line that was marked."""
        return put_back(self.text, self.kept)


def marked(
    text: str,
    *,
    lead: str = "",
    others: Iterable[Kept] = (),
    keep: bool = True,
    but: Collection[str] = (),
) -> MarkedLine:
    """A line with marks for what must stay, unless `keep` is false, and for `others` outside of
    that. Its `lead` and texts in `but` stay unmarked.

    A line without letters besides is kept whole, and its marked text is blank. So is each sentence
    without letters in a line of several.
    """
    body = text.removeprefix(lead)
    fixed = _found(body, but, keep=keep)
    spans = _with(fixed, others)
    other_texts = tuple(span.core(body) for span in {*spans} - {*fixed})
    cores = tuple(span.core(body) for span in spans)
    if (keep or spans) and body.strip():
        without = _marked(body, spans)
        if not _has_letters(without):
            return MarkedLine("", (body,), cores, others=other_texts)
        spans = _with_bare_sentences(body, without, spans, keep=keep)
    if not spans:
        return MarkedLine(text)
    kept_texts = tuple(body[span.start : span.end] for span in spans)
    return MarkedLine(lead + _marked(body, spans), kept_texts, cores, lead, other_texts)


def with_marks(text: str, *, but: Collection[str] = ()) -> MarkedLine:
    """A text of any number of lines with marks for what must stay, but for texts in `but`."""
    spans = _found(text, but, keep=True)
    return MarkedLine(
        _marked(text, spans),
        tuple(text[span.start : span.end] for span in spans),
        tuple(span.core(text) for span in spans),
    )


def put_back(text: str, kept: Sequence[str]) -> str:
    """A text with each of its marks replaced by the next kept text."""
    parts = text.split(MARK)
    return "".join(part + after for part, after in itertools.zip_longest(parts, kept, fillvalue=""))


def taken_out(text: str) -> str:
    """A marked text as the model reads it."""
    return _TAKEN_OUT.sub("", text) if MARK in text else text


def taken_out_with_places(text: str) -> tuple[str, list[int]]:
    """A marked text as the model reads it, and for each of its bytes, and the end, where that is
    in the marked text, in bytes."""
    parts: list[str] = []
    places: list[int] = []
    start = marked_place = 0
    for match in itertools.chain(_TAKEN_OUT.finditer(text), (None,)):
        end = len(text) if match is None else match.start()
        part = text[start:end]
        size = len(part.encode())
        parts.append(part)
        places += range(marked_place, marked_place + size)
        marked_place += size
        if match is not None:
            marked_place += len(match[0].encode())
            start = match.end()
    return "".join(parts), [*places, marked_place]


def _found(text: str, but: Collection[str], *, keep: bool) -> list[Kept]:
    """What must stay in a text, but for texts in `but`; unless `keep`, only marks that it has."""
    spans = [span for span in kept_spans(text) if span.core(text) not in but] if keep else []
    return _with(spans, [Kept.whole(*mark.span()) for mark in regex.finditer(MARK, text)])


def _marked(text: str, spans: Sequence[Kept]) -> str:
    starts = [0, *(span.end for span in spans)]
    ends = [*(span.start for span in spans), len(text)]
    return MARK.join(text[start:end] for start, end in zip(starts, ends, strict=True))


def _with(spans: list[Kept], others: Iterable[Kept]) -> list[Kept]:
    """The spans and those of the others that don't overlap any, in order."""
    merged = [*spans]
    taken_spans = sorted((span.start, span.end) for span in spans)
    number = 0
    for candidate in others:
        while number < len(taken_spans) and taken_spans[number][1] <= candidate.start:
            number += 1
        if number == len(taken_spans) or candidate.end <= taken_spans[number][0]:
            merged.append(candidate)
    return sorted(merged, key=lambda span: span.start)


def _has_letters(text: str) -> bool:
    return _LETTER.search(text.replace(MARK, "")) is not None


def _with_bare_sentences(
    text: str, marked_text: str, spans: list[Kept], *, keep: bool
) -> list[Kept]:
    """The spans, and as one span each sentence without letters besides its marks; unless `keep`,
    only those with marks."""
    sentences = split_sentences(marked_text, "")
    if len(sentences.texts) < 2 or all(map(_has_letters, sentences.texts)):
        return spans
    result: list[Kept] = []
    waiting = iter(spans)
    place = len(sentences.glue[0])  # in `text`
    for sentence, glue in zip(sentences.texts, sentences.glue[1:], strict=True):
        inner = list(itertools.islice(waiting, sentence.count(MARK)))
        size = len(sentence) + sum(span.end - span.start - len(MARK) for span in inner)
        if _has_letters(sentence) or not (inner or keep):
            result += inner
        else:
            result.append(Kept.whole(place, place + size))
        place += size + len(glue)
    return result
