"""A request's text as sentences that the model takes, each with its language code."""

import dataclasses
import re
from collections.abc import Collection, Sequence

from flaxformer_mt.decoding.text.segments import Piece, join_translations, quoted, split_to_fit
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
    together: int | None = None,
) -> CodedSentences:
    """A text's sentences as `translate` cuts each of its lines; `language` is the text's.

    A line of at most `together` sentences, which the model reads together, is one of them; where
    that is unknown (None), none is. Sentences longer than LONGEST are cut as for a model that takes
    no more. If a sentence begins with one of `codes`, the code holds for later sentences too, until
    another code; one that is a sentence by itself is left out of the text.
    """
    before, sentences = _split(text, language, at_marks, together or 1)
    glue = [before]
    pieces: list[Piece] = []
    codes_before: list[str] = []
    current = ""
    for sentence, after in sentences:
        match = _WORD.match(sentence.text)
        code = match[0] if match and match[0] in codes else ""
        current = code or current
        if code == sentence.text:
            glue[-1] += after
            continue
        parts, around = _parts(sentence.text, language)
        glue[-1] += sentence.opening + around[0]
        glue += [*around[1:-1], around[-1] + sentence.closing + after]
        *inner, last = quoted(parts, sentence)
        seam = after if _LAYOUT.search(after) else " "
        pieces += [*inner, dataclasses.replace(last, glue=seam)]
        codes_before += ["" if code else current, *[current] * len(inner)]
    return CodedSentences(
        tuple(piece.text for piece in pieces), tuple(glue), tuple(codes_before), tuple(pieces)
    )


def _split(
    text: str, language: str, at_marks: bool, together: int
) -> tuple[str, list[tuple[Unquoted, str]]]:
    """What is before a text, and its lines with what is after each: those of more than `together`
    sentences as these, if `at_marks`."""
    lines = split_sentences(text, language, at_marks=False)
    parts: list[tuple[Unquoted, str]] = []
    for line, after in zip(lines.texts, lines.glue[1:], strict=True):
        sentences = split_sentences(line, language, at_marks=at_marks)
        if len(sentences.texts) <= together:
            parts.append((Unquoted(line), after))
        else:
            parts += zip(unquoted(sentences.texts), [*sentences.glue[1:-1], after], strict=True)
    return lines.glue[0], parts


def _parts(sentence: str, language: str) -> tuple[list[Piece], list[str]]:
    """The parts of a sentence, and the text before, between and after them."""
    around: list[str] = []
    end = 0
    pieces = split_to_fit(sentence, lambda text: len(text) <= LONGEST, language)
    for piece in pieces:
        start = sentence.index(piece.text, end)
        around.append(sentence[end:start])
        end = start + len(piece.text)
    return pieces, [*around, sentence[end:]]
