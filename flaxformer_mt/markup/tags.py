"""Cuts HTML into tags, text and the rest, as browsers do.

These are the states of the HTML standard's tokenizer (html.spec.whatwg.org, 13.2.5), without what
only scripts can make. The standard library's `html.parser` is not used: it doesn't say where an
attribute's value is, its versions differ in comments, `<title>` and `<textarea>`, and some of them
take quadratic time for a tag without an end.
"""

import dataclasses
from collections.abc import Iterator
from typing import Literal

_BLANKS = "\t\n\f\r "
# Elements whose content has no tags; in the last two, entities count.
RAW_TEXT = frozenset({"script", "style", "xmp", "iframe", "noembed", "noframes", "plaintext"})
WITHOUT_TAGS = RAW_TEXT | {"textarea", "title"}
_FOREIGN = ("svg", "math")


@dataclasses.dataclass(frozen=True)
class Attribute:
    """An attribute, and where its value is without quotation marks; `quote` is "" if it has none,
    and `start` is -1 if it has no value."""

    name: str
    start: int = -1
    end: int = -1
    quote: str = ""


@dataclasses.dataclass(frozen=True)
class Token:
    """The characters `start` to `end - 1`: text, a tag, or something else, such as a comment. The
    names of elements and attributes are in lower case, unless the tokens are XML's."""

    kind: Literal["text", "start", "end", "other"]
    start: int
    end: int
    name: str = ""
    attributes: tuple[Attribute, ...] = ()


def tokens(text: str) -> Iterator[Token]:
    """All of a text, in order and without gaps, in linear time."""
    place = text_start = 0
    foreign = 0  # SVG and MathML elements around, where CDATA sections are text
    while (place := text.find("<", place)) >= 0:
        token = _markup(text, place, in_foreign=foreign > 0)
        if token is None:
            place += 1  # the sign itself, as in "1 < 2"
            continue
        if text_start < place:
            yield Token("text", text_start, place)
        yield token
        place = text_start = token.end
        if token.kind == "start" and token.name in WITHOUT_TAGS and not foreign:
            text_start = place = _end_of_raw(text, token)
            if token.end < place:
                yield Token("text", token.end, place)
        elif token.name in _FOREIGN:
            is_open = token.kind == "start" and not text.endswith("/>", 0, token.end)
            foreign = max(0, foreign + (is_open - (token.kind == "end")))
    if text_start < len(text):
        yield Token("text", text_start, len(text))


def _markup(text: str, place: int, *, in_foreign: bool) -> Token | None:
    """The markup that begins with the "<" at a place, if it is any."""
    after = text[place + 1 : place + 2]
    if _is_letter(after):
        return start_tag(text, place)
    if after == "/" and _is_letter(text[place + 2 : place + 3]):
        name, end = _name(text, place + 2)
        # An end tag may have attributes, which mean nothing.
        return Token("end", place, _attributes(text, end)[1], name.lower())
    if after == "!":
        if text.startswith("--", place + 2):
            return Token("other", place, _end_of_comment(text, place + 4))
        if in_foreign and text.startswith("[CDATA[", place + 2):
            return Token("other", place, _behind(text, "]]>", place + 9))
        return Token("other", place, _behind(text, ">", place + 2))
    if after == "?" or (after == "/" and place + 2 < len(text)):
        return Token("other", place, _behind(text, ">", place + 2))
    return None


def start_tag(text: str, place: int) -> Token:
    """The start tag whose "<" is at a place; without its end, all of the text is in it."""
    name, end = _name(text, place + 1)
    attributes, end = _attributes(text, end)
    return Token("start", place, end, name.lower(), tuple(attributes))


def _is_letter(character: str) -> bool:
    return character.isascii() and character.isalpha()


def _name(text: str, start: int) -> tuple[str, int]:
    """The name of a tag, and where it ends."""
    end = start
    while end < len(text) and text[end] not in "\t\n\f\r />":
        end += 1
    return text[start:end], end


def _attributes(text: str, place: int) -> tuple[list[Attribute], int]:
    """The attributes from a place inside of a tag, and where the tag ends."""
    attributes: list[Attribute] = []
    while place < len(text):
        if text[place] == ">":
            return attributes, place + 1
        if text[place] in "\t\n\f\r /":
            place += 1
            continue
        attribute, place = _attribute(text, place)
        attributes.append(attribute)
    return attributes, len(text)


def _attribute(text: str, start: int) -> tuple[Attribute, int]:
    """The attribute at a place, and where it ends."""
    end = start + 1  # a first "=" is part of the name
    while end < len(text) and text[end] not in "\t\n\f\r />=":
        end += 1
    name = text[start:end].lower()
    equals = _behind_blanks(text, end)
    if not text.startswith("=", equals):
        return Attribute(name), end
    value = _behind_blanks(text, equals + 1)
    quote = text[value : value + 1]
    if quote in ('"', "'"):
        close = text.find(quote, value + 1)
        if close < 0:
            return Attribute(name), len(text)
        return Attribute(name, value + 1, close, quote), close + 1
    end = value
    while end < len(text) and text[end] not in "\t\n\f\r >":
        end += 1
    return Attribute(name, value, end), end


def _behind_blanks(text: str, place: int) -> int:
    while place < len(text) and text[place] in _BLANKS:
        place += 1
    return place


def _behind(text: str, mark: str, place: int) -> int:
    """Behind the next `mark`, or at the end of the text."""
    start = text.find(mark, place)
    return len(text) if start < 0 else start + len(mark)


def _end_of_comment(text: str, place: int) -> int:
    """Behind the comment whose "<!--" ends at a place."""
    if text.startswith(">", place):
        return place + 1
    if text.startswith("->", place):
        return place + 2
    while (place := text.find("--", place)) >= 0:
        if text.startswith(">", place + 2):
            return place + 3
        if text.startswith("!>", place + 2):
            return place + 4
        place += 1
    return len(text)


def _end_of_raw(text: str, tag: Token) -> int:
    """Where the end tag of an element is whose content has no tags."""
    place = tag.end
    if tag.name == "plaintext":
        return len(text)
    while (place := text.find("</", place)) >= 0:
        end = place + 2 + len(tag.name)
        if text[place + 2 : end].lower() == tag.name and text[end : end + 1] in "\t\n\f\r />":
            return place
        place += 2
    return len(text)
