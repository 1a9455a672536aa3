"""A text as sentences that the model takes, each with its language code."""

import dataclasses
import itertools
import re
from collections.abc import Collection, Sequence

from flaxformer_mt.decoding.text.segments import Piece, join_translations, quoted, split_to_fit
from flaxformer_mt.keeping.marks import MARK, put_back, with_marks
from flaxformer_mt.sentences import LINE_ENDS, SplitText, Unquoted, split_sentences, unquoted

LONGEST = 1000  # characters: about as many as models take at once
_WORD = re.compile(r">>[^<>\s]+<<|\S+(?= )")
_LAYOUT = re.compile(rf"[\t{LINE_ENDS}]")


@dataclasses.dataclass(frozen=True)
class CodedSentences(SplitText):
    """`codes` has the code that the model reads before each sentence, or an empty text.

    `pieces` are the sentences with what goes between and around their translations: a blank, unless
    two are halves of a word or the text's layout parts them, and the marks of a quotation of
    several sentences, which are in `glue` and not in `texts`.
    """

    codes: tuple[str, ...]
    pieces: tuple[Piece, ...]

    def translated(self, translations: Sequence[str], *, blanks: bool) -> str:
        """The text's translation, as `translate` joins a line's; `blanks` is whether the target
        language has blanks between its sentences."""
        before, after = self.glue[0], self.glue[-1] if self.pieces else ""
        if self.pieces:
            before = before.removesuffix(self.pieces[0].opening)
            after = after.removeprefix(self.pieces[-1].closing)
        return before + join_translations(translations, self.pieces, blanks=blanks) + after


def coded_sentences(
    text: str,
    language: str,
    *,
    at_marks: bool = True,
    codes: Collection[str] = (),
    code: str = "",
    together: int | None = None,
    keep: bool = False,
) -> CodedSentences:
    """A text's sentences as `translate` cuts each of its lines; `language` is the text's.

    A line of at most `together` sentences, which the model reads together, is one of them; where
    that is unknown (None), none is. Sentences longer than LONGEST are cut as for a model that takes
    no more. If a line begins with some of `codes`, these hold for later sentences too, until
    another line's; those that are a line by themselves, or before a mark that is set aside, are
    left out of the text. Sentences before the first have `code`. With `keep` no cut is within what
    `translate` keeps.
    """
    if keep:
        line = with_marks(text, but=codes)
        marked = _coded_sentences(line.text, language, at_marks, codes, code, together)
        return _unmarked(marked, line.kept)
    return _coded_sentences(text, language, at_marks, codes, code, together)


def _unmarked(marked: CodedSentences, kept: Sequence[str]) -> CodedSentences:
    """The sentences of a text that had marks instead of what is `kept`."""
    waiting = iter(kept)

    def restored(text: str) -> str:
        return put_back(text, list(itertools.islice(waiting, text.count(MARK))))

    texts = tuple(map(restored, marked.texts))
    pieces = tuple(
        dataclasses.replace(piece, text=text)
        for piece, text in zip(marked.pieces, texts, strict=True)
    )
    return dataclasses.replace(marked, texts=texts, pieces=pieces)


def _coded_sentences(
    text: str,
    language: str,
    at_marks: bool,
    codes: Collection[str],
    code: str,
    together: int | None,
) -> CodedSentences:
    """As `coded_sentences`, of a text that may have marks."""
    before, sentences = _split(text, language, at_marks, codes, together or 1)
    glue = [before]
    pieces: list[Piece] = []
    codes_before: list[str] = []
    current, gap = code, ""
    for lead, sentence, after in sentences:
        current = lead.rstrip() or current
        if not sentence.text:
            glue[-1] += after
            gap += after
            if pieces:
                pieces[-1] = dataclasses.replace(pieces[-1], glue=_seam(gap))
            continue

        parts, around = _parts(lead, sentence.text, language)
        first, *others = quoted(parts, sentence)
        glue[-1] += sentence.opening + around[0]
        glue += [*around[1:-1], around[-1] + sentence.closing + after]
        # The code is left in its sentence, unless a mark is between them.
        is_within = lead != "" and first.opening == ""
        if is_within:
            first = dataclasses.replace(first, text=lead + first.text)

        *inner, last = first, *others
        gap = after
        pieces += [*inner, dataclasses.replace(last, glue=_seam(gap))]
        codes_before += ["" if is_within else current, *[current] * len(inner)]
    return CodedSentences(
        tuple(piece.text for piece in pieces), tuple(glue), tuple(codes_before), tuple(pieces)
    )


def untranslated(text: str) -> CodedSentences:
    """A text without sentences, whose translation it is."""
    return CodedSentences(texts=(), glue=(text,), codes=(), pieces=())


def _seam(gap: str) -> str:
    """What goes between the translations of two sentences with `gap` between them."""
    return gap if _LAYOUT.search(gap) else " "


def _split(
    text: str, language: str, at_marks: bool, codes: Collection[str], together: int
) -> tuple[str, list[tuple[str, Unquoted, str]]]:
    """What is before a text; and its lines, each between its code and what is after it: those of
    more than `together` sentences as these, if `at_marks`."""
    lines = split_sentences(text, language, at_marks=False)
    parts: list[tuple[str, Unquoted, str]] = []
    for line, after in zip(lines.texts, lines.glue[1:], strict=True):
        # As `translate` does: a code is no part of the first sentence, or of its quotation.
        lead = _lead(line, codes)
        uncoded = line.removeprefix(lead)
        sentences = split_sentences(uncoded, language, at_marks=at_marks)
        if len(sentences.texts) <= together:
            parts.append((lead, Unquoted(uncoded), after))
            continue
        leads = [lead, *[""] * (len(sentences.texts) - 1)]
        afters = [*sentences.glue[1:-1], after]
        parts += zip(leads, unquoted(sentences.texts), afters, strict=True)
    return lines.glue[0], parts


def _lead(line: str, codes: Collection[str]) -> str:
    """The codes that a line begins with, and the blanks after them."""
    end = 0
    while (match := _WORD.match(line, end)) and match[0] in codes:
        end = len(line) - len(line[match.end() :].lstrip())
    return line[:end]


def _parts(lead: str, sentence: str, language: str) -> tuple[list[Piece], list[str]]:
    """The parts of a sentence, each read after `lead`, and the text before, between and after
    them."""
    around: list[str] = []
    end = 0
    pieces = split_to_fit(
        sentence, lambda text: len(lead + text) <= LONGEST, language, symbols=[MARK]
    )
    for piece in pieces:
        start = sentence.index(piece.text, end)
        around.append(sentence[end:start])
        end = start + len(piece.text)
    return pieces, [*around, sentence[end:]]
