"""Keeps texts of the source in its translations: marks lines, and puts back what was kept."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

import regex

from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.decoding.alignment import Alignment, AttendedWord, WordPlaces
from flaxformer_mt.decoding.errors import LineError
from flaxformer_mt.decoding.options import LineOptions, SearchOptions
from flaxformer_mt.decoding.text.decoded import distinct
from flaxformer_mt.decoding.text.kept import Restorer, unknown_words
from flaxformer_mt.decoding.text.segments import Target, check_unicode, lead_of
from flaxformer_mt.decoding.text.translation import Hypothesis, Translation
from flaxformer_mt.keeping.marks import MARK, MarkedLine, marked, put_back
from flaxformer_mt.keeping.spans import Kept

# What the units of the translations of marked sources attend to.
Attending = Callable[[Sequence[tuple[str, Target]]], Iterator[Iterable[AttendedWord]]]


@dataclasses.dataclass(frozen=True)
class Keeping:
    """What a translator keeps of its lines: URLs, placeholders and so on if `fixed`, and words that
    the vocabulary doesn't know if `unknown`."""

    vocabularies: Vocabularies
    tags: Set[str]
    fixed: bool
    unknown: bool
    copies: Mapping[int, int] = dataclasses.field(default_factory=dict)  # by the search itself

    def marked(self, lines: Sequence[str]) -> list[MarkedLine]:
        """The lines with marks. Raises DecodingError for text that isn't Unicode."""
        check_unicode(lines)
        symbols = self.vocabularies.src.pieces([*self.copies])
        return [self._marked(line, symbols) for line in lines]

    def _marked(self, line: str, symbols: Sequence[str]) -> MarkedLine:
        src = self.vocabularies.src
        lead = lead_of(line, src, self.tags)
        unknown: list[Kept] = []
        body = line.removeprefix(lead)
        if self.unknown:
            unknown = unknown_words(body, src)
        return marked(line, lead=lead, others=unknown, keep=self.fixed, but=symbols)

    def check(
        self, lines: Sequence[MarkedLine], options: SearchOptions, wanted: Sequence[LineOptions]
    ) -> None:
        """Raises LineError for a line whose unknown word is forbidden, or whose kept text is in a
        prefix or a required phrase. A placeholder is no translation: it may have what is
        forbidden."""
        for number, (line, of_line) in enumerate(zip(lines, wanted, strict=True)):
            if not line.kept:
                continue
            for phrase in (*options.forbid, *of_line.forbid):
                whole_phrase = regex.compile(rf"(?<!\w){regex.escape(phrase.strip())}(?!\w)")
                if phrase.strip() and any(map(whole_phrase.search, line.others)):
                    raise LineError(
                        number,
                        f"the forbidden phrase {phrase!r} is a word of the source that is copied, "
                        "since the vocabulary doesn't know it: allow it, or set copy_unknown to "
                        "false",
                    )
            for phrase in (of_line.prefix, *of_line.constraints):
                for core in line.cores:
                    if core in phrase:
                        raise LineError(
                            number,
                            f"the prefix or required phrase {phrase!r} has {core!r}, which is "
                            "kept from the source as it is: leave it out of the phrase",
                        )
            if line.is_kept_whole and of_line.constraints:
                raise LineError(
                    number,
                    "is kept as it is, so its translation can't have the required phrases: leave "
                    "them out",
                )

    def restored(
        self,
        lines: Sequence[MarkedLine],
        translations: Sequence[Translation],
        options: SearchOptions,
        wanted: Sequence[LineOptions],
        attending: Attending,
    ) -> list[Translation]:
        """The translations of marked lines with what was kept."""
        restorers = [
            Restorer(line, of_line.prefix, _uncut(line, options, of_line))
            for line, of_line in zip(lines, wanted, strict=True)
        ]
        texts = [
            _texts(restorer, translation)
            for restorer, translation in zip(restorers, translations, strict=True)
        ]
        pairs = [
            (line.text, target)
            for line, targets in zip(lines, texts, strict=True)
            for target in targets
        ]
        attended = attending(pairs) if pairs else iter(())
        restored = []
        for restorer, translation, of_line in zip(restorers, translations, wanted, strict=True):
            if restorer.line.is_kept_whole:
                restored.append(_whole(restorer.line, translation, of_line.prefix))
            elif restorer.line.kept:
                restored.append(_with_kept(restorer, translation, attended))
            else:
                restored.append(translation)
        return restored

    def marked_pairs(
        self, pairs: Sequence[tuple[str, Target]]
    ) -> tuple[list[MarkedLine], list[MarkedLine | None]]:
        """Sources with marks, and with the same marks those translations that are texts."""
        sources = self.marked([source for source, _ in pairs])
        targets = [
            _marked_target(target, source) if isinstance(target, str) else None
            for source, (_, target) in zip(sources, pairs, strict=True)
        ]
        return sources, targets


def _whole(line: MarkedLine, translation: Translation, prefix: str) -> Translation:
    text = line.restored()
    (hypothesis,) = translation.hypotheses
    text = f"{prefix} {text}" if prefix else text
    return dataclasses.replace(
        translation, hypotheses=(dataclasses.replace(hypothesis, text=text),)
    )


def _texts(restorer: Restorer, translation: Translation) -> list[Target]:
    """What is aligned of a translation to restore it: its outputs' tokens, or the text of one that
    had to be cleaned; nothing of a line without kept texts, or one kept whole."""
    if not restorer.line.kept or restorer.line.is_kept_whole:
        return []
    cleaned = [
        (hypothesis, restorer.cleaned(hypothesis.text)) for hypothesis in translation.hypotheses
    ]
    return [hypothesis.tokens if hypothesis.text == text else text for hypothesis, text in cleaned]


def _with_kept(
    restorer: Restorer, translation: Translation, attended: Iterator[Iterable[AttendedWord]]
) -> Translation:
    hypotheses: list[Hypothesis] = [
        dataclasses.replace(
            each, text=restorer.restored(restorer.cleaned(each.text), next(attended))
        )
        for each in translation.hypotheses
    ]
    # Two outputs may have differed in what they had of the kept texts alone.
    different = tuple(distinct(hypotheses, lambda hypothesis: hypothesis.text))
    return dataclasses.replace(translation, hypotheses=different)


def _uncut(
    line: MarkedLine, options: SearchOptions, wanted: LineOptions
) -> list[regex.Pattern[str]]:
    """The patterns of phrases that no kept text may be put into."""
    phrases = [wanted.prefix, *wanted.constraints]
    last = ""
    if options.terminology is not None:
        phrases += options.terminology.translations(line.text)
        last = r"\w*" if options.terminology.mode == "soft" else ""
    patterns = []
    for phrase in phrases:
        *words, word = phrase.split() or [""]
        if not word:
            continue
        # The last word of a soft term may have another ending.
        ending = r"\w+" if last and words else regex.escape(word)
        patterns.append(regex.compile(r"\s*".join([*map(regex.escape, words), ending])))
    return patterns


def _marked_target(target: str, source: MarkedLine) -> MarkedLine:
    """A translation with marks where it has the kept texts of its source."""
    if source.is_kept_whole and target == source.kept[0]:
        return MarkedLine("", (target,))
    if source.is_kept_whole or not source.kept:
        return MarkedLine(target)
    places = _places(source.kept, target)
    starts = [0, *(end for _, end in places)]
    ends = [*(start for start, _ in places), len(target)]
    text = MARK.join(target[start:end] for start, end in zip(starts, ends, strict=True))
    return MarkedLine(text, tuple(target[start:end] for start, end in places))


def _places(kept_texts: Sequence[str], target: str) -> list[tuple[int, int]]:
    """Where a translation has texts that are kept, in order: the longest are looked for first."""
    places: list[tuple[int, int]] = []
    is_taken = bytearray(len(target))  # 1 for each character that is in a place
    counts = collections.Counter(kept_texts)
    for kept_text in sorted(counts, key=len, reverse=True):
        spans = (match.span() for match in regex.finditer(regex.escape(kept_text), target))
        free = ((start, end) for start, end in spans if not any(is_taken[start:end]))
        for start, end in itertools.islice(free, counts[kept_text]):
            is_taken[start:end] = b"\x01" * (end - start)
            places.append((start, end))
    return sorted(places)


def unmarked(
    alignment: Alignment, source: MarkedLine, target: MarkedLine | None, words: WordPlaces
) -> Alignment:
    """The alignment of the lines that were marked (None: a translation without marks). The words of
    a kept text are aligned to its own."""
    src = _Words.of(source, words)
    tgt = _Words.of(target or MarkedLine(" ".join(alignment.tgt_words)), words)
    origins = dict((tgt_word, src_word) for src_word, tgt_word in alignment.links)
    links = []
    for number in range(len(tgt.words)):
        source_word = src.of_kept.get(tgt.kept.get(number, ("", 0)))
        if source_word is None and (word := tgt.marked.get(number)) in origins:
            source_word = src.of_marked.get(origins[word])
        if source_word is not None:
            links.append((source_word, number))
    return Alignment(src_words=tuple(src.words), tgt_words=tuple(tgt.words), links=tuple(links))


@dataclasses.dataclass(frozen=True)
class _Words:
    """The words of a line that was marked: which word of the marked line each is, or which word of
    which kept text (by text and number)."""

    words: list[str]
    marked: dict[int, int]
    kept: dict[int, tuple[str, int]]

    @functools.cached_property
    def of_marked(self) -> dict[int, int]:
        return {marked: number for number, marked in reversed(self.marked.items())}

    @functools.cached_property
    def of_kept(self) -> dict[tuple[str, int], int]:
        return {kept_word: number for number, kept_word in reversed(self.kept.items())}

    @classmethod
    def of(cls, line: MarkedLine, places: WordPlaces) -> _Words:
        text, origins = put_back(line.text, line.kept), _origins(line, places)
        words = places(text)
        marked: dict[int, int] = {}
        kept_words: dict[int, tuple[str, int]] = {}
        for number, (start, end) in enumerate(words):
            for origin in origins[start:end]:
                if isinstance(origin, int):
                    marked.setdefault(number, origin)
                elif origin is not None:
                    kept_words.setdefault(number, origin)
        return cls([text[start:end] for start, end in words], marked, kept_words)


def _origins(line: MarkedLine, places: WordPlaces) -> list[int | tuple[str, int] | None]:
    """What each character of the line without marks is of: a word of the marked line, or a word of
    a kept text. Blanks are of nothing."""
    of_marked = _numbered(line.text, places)
    origins: list[int | tuple[str, int] | None] = []
    position = 0
    for part, kept_text in itertools.zip_longest(line.text.split(MARK), line.kept, fillvalue=""):
        origins += of_marked[position : position + len(part)]
        origins += [
            None if word is None else (kept_text, word) for word in _numbered(kept_text, places)
        ]
        position += len(part) + len(MARK)
    return origins


def _numbered(text: str, places: WordPlaces) -> list[int | None]:
    """The number of each character's word, if it is of one."""
    numbers: list[int | None] = [None] * len(text)
    for number, (start, end) in enumerate(places(text)):
        numbers[start:end] = [number] * (end - start)
    return numbers
