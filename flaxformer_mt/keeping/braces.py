"""Placeholders in braces: `{name}`, `{{name}}`, `${name}`, ICU's `{count, plural, ...}`."""

from __future__ import annotations

import regex

_NAME = r"[\p{L}_$@*][\p{L}\p{N}_.$@\-\[\]>]{0,63}+|\p{Nd}{1,9}+|"
# With Python's conversions and format specifications, and .NET's, which may have braces inside.
_SIMPLE = regex.compile(
    rf"\s{{0,3}}+(?:{_NAME})(?:,-?\d{{1,9}})?+(?:![rsa])?+(?:[:|](?=\S)[^\n]{{0,80}}+)?+\s{{0,3}}+"
)
# ICU's argument types (Unicode, UTS 35 and MessageFormat), and `list` and `relativetime`.
_TYPES = (
    "plural|selectordinal|select|choice|number|date|time|spellout|ordinal|duration|list|"
    "relativetime"
)
_TYPED = regex.compile(
    rf"\{{\s{{0,9}}+(?:[\p{{L}}_$][\p{{L}}\p{{N}}_.$\-]{{0,63}}+|\p{{Nd}}{{1,9}}+)\s{{0,9}}+,"
    rf"\s{{0,9}}+(?:{_TYPES})\s{{0,9}}+[,}}]"
)
_MARKS = regex.compile("[{}']")
_LONGEST_EXPRESSION = 200  # characters in double braces


def ends_of_braces(text: str) -> dict[int, int]:
    """Where each opening brace's group ends: after its closing brace. Takes time linear in the
    text's length, however deep the groups are.

    Inside an ICU message an apostrophe before a brace quotes what follows, up to the next one.
    """
    ends: dict[int, int] = {}
    open_: list[tuple[int, bool]] = []  # a brace, and whether it is in an ICU message
    place = 0
    while match := _MARKS.search(text, place):
        start, place = match.start(), match.end()
        within_message = bool(open_) and open_[-1][1]
        if match[0] == "{":
            open_.append((start, within_message or _TYPED.match(text, start) is not None))
        elif match[0] == "}":
            if open_:
                ends[open_.pop()[0]] = place
        elif within_message:
            place = _after_quote(text, start)
    return ends


def _after_quote(text: str, start: int) -> int:
    """Where a message goes on after an apostrophe: two are a plain one, and quote nothing."""
    following = text[start + 1 : start + 2]
    if following == "'":
        return start + 2
    if following not in ("{", "}"):
        return start + 1
    end = text.find("'", start + 2)
    return len(text) if end < 0 else end + 1


def is_placeholder(text: str, start: int, end: int) -> bool:
    """Whether the group in braces from `start` to `end` is a placeholder, and not text."""
    if text.startswith("{{", start) and text.startswith("}}", end - 2):
        return end - start - 4 <= _LONGEST_EXPRESSION and "\n" not in text[start:end]
    if _TYPED.match(text, start, end):
        return True
    return _SIMPLE.fullmatch(text, start + 1, end - 1) is not None
