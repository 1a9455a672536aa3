"""A request's text as sentences that the model takes, each with its language code."""

import dataclasses
import re
from collections.abc import Collection, Sequence

from flaxformer_mt.decoding.text.segments import join_translations, split_to_fit
from flaxformer_mt.sentences import LINE_ENDS, SplitText, split_sentences

LONGEST = 1000  # characters: about as many as models take at once
_WORD = re.compile(r">>[^<>\s]+<<|\S+(?= )")
_LAYOUT = re.compile(rf"[\t{LINE_ENDS}]")


@dataclasses.dataclass(frozen=True)
class CodedSentences(SplitText):
    """`codes` has the code that the model reads before each sentence, or an empty text.

    `seams[n]` is between the translations of the n-th sentence and the next: a blank, unless the
    two are halves of a word or the text's layout parts them.
    """

    codes: tuple[str, ...]
    seams: tuple[str, ...]

    def translated(self, translations: Sequence[str], *, blanks: bool) -> str:
        """The text's translation, as `translate` joins a line's; `blanks` is whether the target
        language has blanks between its sentences."""
        joined = join_translations(translations, self.seams, blanks=blanks)
        return self.glue[0] + joined + (self.glue[-1] if self.texts else "")


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
    split = _split(text, language, at_marks, together or 1)
    texts: list[str] = []
    glue = [split.glue[0]]
    seams: list[str] = []
    codes_before: list[str] = []
    current = ""
    for sentence, after in zip(split.texts, split.glue[1:], strict=True):
        match = _WORD.match(sentence)
        code = match[0] if match and match[0] in codes else ""
        current = code or current
        if code == sentence:
            glue[-1] += after
            continue
        parts, between, between_translations = _parts(sentence, language)
        texts += parts
        glue += [*between, after]
        seams += [*between_translations, after if _is_layout(after) else " "]
        codes_before += ["" if code else current, *[current] * len(between)]
    if seams:
        seams[-1] = ""  # the text's own end follows
    return CodedSentences(tuple(texts), tuple(glue), tuple(codes_before), tuple(seams))


def _split(text: str, language: str, at_marks: bool, together: int) -> SplitText:
    """A text's lines, those of more than `together` sentences cut into these if `at_marks`."""
    lines = split_sentences(text, language, at_marks=False)
    if not at_marks:
        return lines
    texts: list[str] = []
    glue = [lines.glue[0]]
    for line, after in zip(lines.texts, lines.glue[1:], strict=True):
        sentences = split_sentences(line, language)
        if len(sentences.texts) <= together:
            texts.append(line)
        else:
            texts += sentences.texts
            glue += sentences.glue[1:-1]
        glue.append(after)
    return SplitText(tuple(texts), tuple(glue))


def _is_layout(glue: str) -> bool:
    """Whether white space is more than blanks, which translations have their own of."""
    return _LAYOUT.search(glue) is not None


def _parts(sentence: str, language: str) -> tuple[list[str], list[str], list[str]]:
    """The parts of a sentence, the text between them, and that between their translations."""
    parts: list[str] = []
    between: list[str] = []
    end = 0
    pieces = split_to_fit(sentence, lambda text: len(text) <= LONGEST, language)
    for piece in pieces:
        start = sentence.index(piece.text, end)
        if parts:
            between.append(sentence[end:start])
        parts.append(piece.text)
        end = start + len(piece.text)
    return parts, between, [piece.glue for piece in pieces[:-1]]
