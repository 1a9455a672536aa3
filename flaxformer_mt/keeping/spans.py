"""Finds what must stay in a text: URLs, e-mail addresses, placeholders, emoji."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import regex

from flaxformer_mt.config.languages import SPACED_LETTER, UNSPACED_LETTER, UNSPACED_SIGNS
from flaxformer_mt.keeping.braces import ends_of_braces, is_placeholder

# A letter of a script with blanks between words, or a digit.
_WORD = rf"[{SPACED_LETTER}--\p{{Hangul}}]"
# An address ends at a blank, quotation marks, signs and letters of scripts without blanks, or
# Korean letters, since particles touch it.
_OF_URL = rf"[^\s<>\"“”„«»‘’\p{{Cc}}{UNSPACED_SIGNS}{UNSPACED_LETTER[1:-1]}\p{{Hangul}}]"
_PICTURE = r"[\p{Extended_Pictographic}--[©®‼⁉™ℹ↔-↪〰〽㊗㊙]]"
_PICTURE_PARTS = r"\ufe0f?+\p{Emoji_Modifier}?+[\U000e0020-\U000e007f]*+"
_EMOJI = (
    rf"(?:\p{{RI}}\p{{RI}}|[0-9#*]\ufe0f?+\u20e3"
    rf"|(?:{_PICTURE}|\p{{Extended_Pictographic}}(?=\ufe0f)){_PICTURE_PARTS}"
    rf"(?:\u200d\p{{Extended_Pictographic}}{_PICTURE_PARTS})*+)++"
)
# printf's conversions, also with a name or a number. Not "50%off", and no blank as a flag.
_PRINTF = (
    r"%\([\p{L}_][\p{L}\p{N}_.]{0,63}+\)[-+#0]*+\d{0,4}+(?:\.\d{1,4})?+[a-zA-Z]"
    r"|%\d{1,3}+\$[-+#0]*+\d{0,4}+(?:\.\d{1,4})?+(?:hh|h|ll|l|z|j|t|L)?+[diouxXeEfFgGaAcs@]"
    r"|(?<!\d)%[-+#0]*+(?:\d{1,4}+|\*)?+(?:\.(?:\d{1,4}+|\*))?+"
    r"(?:hh|h|ll|l|z|j|t|L)?+[diouxXeEfFgGcsp@](?!\p{L}{3})"
    r"|(?<!\d)%%"
)
_FOUND = regex.compile(
    rf"(?P<url>(?<!{_WORD})(?:(?:[A-Za-z][A-Za-z0-9+.\-]{{1,19}}+://|www\.)(?=\w){_OF_URL}++"
    rf"|mailto:(?=\w){_OF_URL}++))"
    rf"|(?P<mail>(?<![[{_WORD}]||[.+\-%]]){_WORD}[[{_WORD}]||[.+\-%]]*+@"
    rf"{_WORD}[[{_WORD}]||[-]]*+(?:\.[[{_WORD}]||[-]]++)++)"
    rf"|(?P<name>(?<!\d)%[A-Za-z_][A-Za-z0-9_.]{{2,63}}+%(?![\w(%]))"
    rf"|(?P<printf>{_PRINTF})"
    rf"|(?P<brace>[$#%]?+\{{)"
    rf"|(?P<emoji>{_EMOJI})",
    regex.V1,
)
_PAIRS = {")": "(", "]": "[", "}": "{"}
_AROUND = {
    **{"(": ")", "[": "]", '"': '"', "'": "'", "“": "”", "„": "“", "‘": "’", "«": "»", "`": "`"},
    **{"「": "」", "（": "）", "【": "】"},
}
_MOST_AROUND = 3  # brackets and quotation marks around one placeholder
# Between two placeholders that are kept as one: "{width}x{height}", "{first}, {second}".
_BETWEEN = regex.compile(r", |[^\s\p{L}\p{Extended_Pictographic}.!?;]{1,3}|x|:|\.")
_LONGEST_PART = 30  # characters of a word that is attached to a placeholder
# What is attached to a placeholder and kept with it: "v{version}", "{size}MB", "{name}'s", "#{id}".
_ATTACHED = rf"[-'’/.:=]?+{_WORD}{{1,{_LONGEST_PART}}}+"
_BEHIND = regex.compile(rf"(?:{_ATTACHED})?+(?:{_ATTACHED})?+[%°€$£¥]?+", regex.V1)
_BEFORE = regex.compile(
    rf"(?r)(?<!{_WORD})(?:[€$£¥#+\-]|(?:{_WORD}{{1,{_LONGEST_PART}}}[-'’/.:=]?[€$£¥#]?))?",
    regex.V1,
)
_PLACEHOLDERS = frozenset({"name", "printf", "brace"})
# A greeting's comma goes with the name: "{name}, come here", "Hello, {name}!".
_COMMA_BEHIND = regex.compile(r"[,:;](?=\s)")
_COMMA_BEFORE = regex.compile(r"(?r)(?<=\w), ?")
_END = regex.compile(r"\s*+(?:[.!?…]|$)")


@dataclasses.dataclass(frozen=True)
class Kept:
    """A part of a text that stays as it is, in characters.

    `start` to `end` is taken out of what the model reads: the core, which is what was looked for,
    with brackets, quotation marks and parts of words that belong to it.
    """

    start: int
    end: int
    core_start: int
    core_end: int

    @classmethod
    def whole(cls, start: int, end: int) -> Kept:
        return cls(start, end, start, end)

    def core(self, text: str) -> str:
        return text[self.core_start : self.core_end]


def kept_spans(text: str) -> list[Kept]:
    """What must stay in a text, in its order. Takes time linear in the text's length."""
    spans: list[Kept] = []
    matches = [*_joined(text, _found(text)), ("", len(text), len(text))]
    for (kind, start, end), (_, limit, _) in itertools.pairwise(matches):
        begin = spans[-1].end if spans else 0
        outer = start, end
        if kind in _PLACEHOLDERS:
            outer = _with_attached(text, *outer, begin, limit)
        if kind != "emoji":
            outer = _with_marks_around(text, *outer, begin, limit)
        if kind in _PLACEHOLDERS:
            outer = _with_comma(text, *outer, begin)
        spans.append(Kept(*outer, start, end))
    return spans


Found = tuple[str, int, int]  # kind, start and end


def _found(text: str) -> Iterator[Found]:
    """The cores, with their kinds; no two overlap."""
    if text.isascii() and not any(sign in text for sign in "%{@:") and "www." not in text:
        return
    ends = ends_of_braces(text) if "{" in text else {}
    place = 0
    while match := _FOUND.search(text, place):
        start, place = match.start(), match.end()
        kind = str(match.lastgroup)
        if kind == "brace":
            end = ends.get(place - 1)
            if end is None or not is_placeholder(text, place - 1, end):
                continue
            place = end
        elif kind == "url":
            place = _end_of_url(text, start, place)
        yield kind, start, place


def _end_of_url(text: str, start: int, end: int) -> int:
    """Where a URL ends, without marks of its sentence, such as brackets that it doesn't open."""
    url = text[start:end]
    spare = {
        closing: url.count(closing) - url.count(opening) for closing, opening in _PAIRS.items()
    }
    while end > start:
        last = text[end - 1]
        if spare.get(last, 0) > 0:
            spare[last] -= 1
        elif last not in ".,;:!?'*":
            break
        end -= 1
    return end


def _joined(text: str, found: Iterator[Found]) -> Iterator[Found]:
    """Placeholders with next to nothing between them are one."""
    waiting: Found | None = None
    for kind, start, end in found:
        if waiting is not None:
            gap_start = waiting[2]
            is_near = gap_start == start or (
                start - gap_start <= 3 and _BETWEEN.fullmatch(text, gap_start, start)
            )
            if is_near and waiting[0] in _PLACEHOLDERS and kind in _PLACEHOLDERS:
                waiting = waiting[0], waiting[1], end
                continue
            yield waiting
        waiting = kind, start, end
    if waiting is not None:
        yield waiting


def _with_attached(text: str, start: int, end: int, begin: int, limit: int) -> tuple[int, int]:
    """With the parts of words that touch a placeholder, from `begin` to `limit` at most."""
    behind = _BEHIND.match(text, end, limit)
    if behind is not None and not _is_word_char(text, behind.end()):
        end = behind.end()
    before = _BEFORE.match(text, begin, start)
    if before is not None:
        start = before.start()
    return start, end


def _is_word_char(text: str, place: int) -> bool:
    return _ONE.match(text, place) is not None


_ONE = regex.compile(_WORD, regex.V1)


def _with_marks_around(text: str, start: int, end: int, begin: int, limit: int) -> tuple[int, int]:
    """With the brackets and quotation marks that have nothing else between them."""
    for _ in range(_MOST_AROUND):
        if start <= begin or end >= limit:
            break
        if _AROUND.get(text[start - 1]) != text[end]:
            break
        start, end = start - 1, end + 1
    return start, end


def _with_comma(text: str, start: int, end: int, begin: int) -> tuple[int, int]:
    """With the comma that would be left alone at the beginning or end of the text."""
    if not text[begin:start].strip() and begin == 0 and (behind := _COMMA_BEHIND.match(text, end)):
        return start, behind.end()
    if _END.match(text, end) and (before := _COMMA_BEFORE.match(text, begin, start)):
        return before.start(), end
    return start, end
