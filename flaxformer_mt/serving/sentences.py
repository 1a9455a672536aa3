"""Splits a text into sentences like the model's training data, and rejoins them."""

import dataclasses
import re
from collections.abc import Collection, Sequence

from flaxformer_mt.decoding.segments import split_to_fit

LONGEST = 1000  # characters: about what models take at once
# What Unicode counts as the end of a line or paragraph (UAX 14).
_LINE_ENDS = r"\r\n\v\f\x1c-\x1e\x85\u2028\u2029"
_BLANK = rf"[^\S{_LINE_ENDS}]"
_CLOSING = "\"'”’»›)\\]"
_OPENING = "\"'“‘„«‹(\\["
# A full stop after one of these ends no sentence: initials, ordinals ("am 3. Mai"), abbreviations.
_ABBREVIATED = re.compile(
    r"(?:^|[\s(\"'“‘„«])(?:[^\W\d_]|\d{1,3}|(?:[^\W\d_]\.)+[^\W\d_]|Mrs?|Ms|Mme|Mlle|Dr|Prof|St|Sr|Jr"
    r"|vs|etc|No|Nr|Fig|Abb|Vol|pp?|ca|cf|vgl|bzw|usw|inkl|evtl|Hr|Fr|Str|Inc|Ltd|Co|approx)\.$",
    re.IGNORECASE,
)
_CODE = re.compile(r">>[^<>\s]+<<")
# No part can be retried over the same characters: a text is read once.
_BREAK = re.compile(
    rf"(?P<line>[{_LINE_ENDS}]\s*)"
    # Latin, Greek, Cyrillic: a mark, a blank, and what does not go on in lower case.
    rf"|(?P<mark>(?<![.!?…])[.!?…]++[{_CLOSING}]*){_BLANK}+(?=[{_OPENING}¿¡]*(?P<next>[^\W_]))"
    # Chinese and Japanese put no blank after it.
    rf"|(?P<wide>[。！？][”’」』）]*+){_BLANK}*(?=\S)"
)


@dataclasses.dataclass(frozen=True)
class Sentences:
    """A text as sentences with what is around them: `glue[0]` before the first, and so on.

    `glue` has one entry more than `texts`; sentences have no outer blanks and no line breaks.
    `codes` are what the model reads before each.
    """

    texts: tuple[str, ...]
    glue: tuple[str, ...]
    codes: tuple[str, ...]

    def joined(self, translated: Sequence[str]) -> str:
        """The text with its sentences replaced."""
        inner = (text + after for text, after in zip(translated, self.glue[1:], strict=True))
        return self.glue[0] + "".join(inner)


def split_sentences(text: str, *, at_marks: bool = True, codes: Collection[str] = ()) -> Sentences:
    """Cuts at line breaks and, `at_marks`, at sentence ends; if in doubt it doesn't cut.

    What is still longer than LONGEST is cut as for a model that takes no more. If a sentence
    begins with one of `codes`, the code holds for later sentences too, until another; a code by
    itself is left out of the text.

    `split_sentences(text).joined(sentences) == text` for the sentences themselves.
    """
    texts: list[str] = []
    glue = [""]
    start = 0
    for match in _BREAK.finditer(text):
        end = match.start()
        if match["line"] is None:
            end = match.end("mark") if match["mark"] is not None else match.end("wide")
            if not at_marks or (match["mark"] is not None and not _ends(text, start, match)):
                continue
        _add(texts, glue, text[start:end], text[end : match.end()])
        start = match.end()
    _add(texts, glue, text[start:], "")
    kept: list[str] = []
    around = [glue[0]]
    before: list[str] = []
    current = ""
    for sentence, after in zip(texts, glue[1:], strict=True):
        found = _CODE.match(sentence)
        code = found[0] if found and found[0] in codes else ""
        current = code or current
        if code == sentence:
            around[-1] += after
            continue
        kept.append(sentence)
        before.append("" if code else current)
        around.append(after)
    return Sentences(tuple(kept), tuple(around), tuple(before))


def _ends(text: str, start: int, match: re.Match[str]) -> bool:
    if match["next"].islower():
        return False
    return not _ABBREVIATED.search(text[max(start, match.start() - 20) : match.start() + 1])


def _add(texts: list[str], glue: list[str], part: str, after: str) -> None:
    at = 0
    for piece in split_to_fit(part, lambda text: len(text) <= LONGEST):
        if piece.text:
            start = part.index(piece.text, at)
            glue[-1] += part[at:start]
            texts.append(piece.text)
            glue.append("")
            at = start + len(piece.text)
    glue[-1] += part[at:] + after
