"""A request's text as sentences that the model takes, each with its language code."""

import dataclasses
import re
from collections.abc import Collection

from flaxformer_mt.decoding.text.segments import split_to_fit
from flaxformer_mt.sentences import SplitText, split_sentences

LONGEST = 1000  # characters: about as many as models take at once
_CODE = re.compile(r">>[^<>\s]+<<")


@dataclasses.dataclass(frozen=True)
class CodedSentences(SplitText):
    """`codes` has the code that the model reads before each sentence, or an empty text."""

    codes: tuple[str, ...]


def coded_sentences(
    text: str, language: str, *, at_marks: bool = True, codes: Collection[str] = ()
) -> CodedSentences:
    """A text's sentences as `split_sentences` has them; `language` is the text's.

    Sentences longer than LONGEST are cut as for a model that takes no more. If a sentence begins
    with one of `codes`, the code holds for later sentences too, until another code; one that is a
    sentence by itself is left out of the text.
    """
    split = split_sentences(text, language, at_marks=at_marks)
    texts: list[str] = []
    glue = [split.glue[0]]
    codes_before: list[str] = []
    current = ""
    for sentence, after in zip(split.texts, split.glue[1:], strict=True):
        match = _CODE.match(sentence)
        code = match[0] if match and match[0] in codes else ""
        current = code or current
        if code == sentence:
            glue[-1] += after
            continue
        parts, between = _parts(sentence, language)
        texts += parts
        glue += [*between, after]
        codes_before += ["" if code else current, *[current] * len(between)]
    return CodedSentences(tuple(texts), tuple(glue), tuple(codes_before))


def _parts(sentence: str, language: str) -> tuple[list[str], list[str]]:
    """The parts of a sentence, and the text between them."""
    parts: list[str] = []
    between: list[str] = []
    end = 0
    for piece in split_to_fit(sentence, lambda text: len(text) <= LONGEST, language):
        start = sentence.index(piece.text, end)
        if parts:
            between.append(sentence[end:start])
        parts.append(piece.text)
        end = start + len(piece.text)
    return parts, between
