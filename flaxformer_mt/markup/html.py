"""HTML as a document: which of it is text, what is inline, and what stays as it is."""

import dataclasses
import html
import re
from collections import Counter
from collections.abc import Collection, Iterator
from html.entities import html5
from typing import Literal

from flaxformer_mt.markup.document import LARGEST, Document, MarkupError, Segment
from flaxformer_mt.markup.segments import Assembler, has_text
from flaxformer_mt.markup.tags import RAW_TEXT, WITHOUT_TAGS, Attribute, Token, tokens

# Elements that part texts; all others are inline, as they are in browsers.
_BLOCKS = frozenset(
    "address article aside base blockquote body button caption center col colgroup datalist dd "
    "details dialog dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 "
    "h4 h5 h6 head header hgroup hr html legend li link listing main map menu meta nav noframes "
    "noscript ol optgroup option p plaintext pre search section select source summary table tbody "
    "td template tfoot th thead title tr track ul xmp".split()
)
_VOID = frozenset(
    "area base basefont bgsound br col embed frame hr img input keygen link meta param source "
    "track wbr".split()
)
KEPT = frozenset(
    "code kbd listing math plaintext pre samp script style svg textarea tt var xmp".split()
) | (RAW_TEXT - {"noframes"})
TRANSLATED_ATTRIBUTES = frozenset({"alt", "title", "placeholder", "aria-label"})
_ENTITY = re.compile(r"&(?:#(?:[0-9]++|[xX][0-9a-fA-F]++)|[a-zA-Z][a-zA-Z0-9]*+);?")
_LONGEST_BARE = max(len(name) for name in html5 if not name.endswith(";"))
# Nine digits are beyond all characters; `int` refuses thousands of them.
_NUMBER = re.compile(r"&#(?=[0-9])0*+([0-9]{0,9})[0-9]*+")
_DESCRIPTIONS = frozenset({"description"})
# The start tags before which an element ends without an end tag.
_ENDED_BY = {
    "li": frozenset({"li"}),
    "dt": frozenset({"dt", "dd"}),
    "dd": frozenset({"dt", "dd"}),
    "option": frozenset({"option", "optgroup"}),
    "optgroup": frozenset({"optgroup"}),
    "td": frozenset({"td", "th", "tr", "tbody", "tfoot"}),
    "th": frozenset({"td", "th", "tr", "tbody", "tfoot"}),
    "tr": frozenset({"tr", "tbody", "tfoot"}),
    "p": _BLOCKS - {"base", "link", "meta", "noscript", "option", "source", "template", "track"},
}


def read_html(text: str, *, keep: Collection[str] = ()) -> Document:
    """The document of a page or a part of one; elements with the names in `keep` aren't
    translated, and neither are those in KEPT, nor those with `translate="no"` or the class
    `notranslate`.

    Raises MarkupError for a document that is too large.
    """
    if len(text) > LARGEST:
        raise MarkupError(f"{len(text):,} characters; a document has at most {LARGEST:,}")
    reader = HtmlReader(text, KEPT.union(name.lower() for name in keep))
    for token in tokens(text):
        reader.read(token)
    return reader.assembler.document()


def read_html_or_text(text: str) -> Document:
    """As `read_html`, but a text that has neither tags nor entities is one segment as it stands,
    line breaks and all: programs send plain text as HTML. Raises MarkupError."""
    if all(token.kind == "text" for token in tokens(text)) and unescaped(text) == text:
        return Document((0,), (Segment(text, plain=True),))
    return read_html(text)


@dataclasses.dataclass(frozen=True)
class _Element:
    """An open element, and whether its content is translated: if not, whether it is inline."""

    name: str
    kept: Literal["", "inline", "block"] = ""


class HtmlReader:
    """Gives an assembler the tokens of a text in HTML; elements with the names in `keep` aren't
    translated."""

    def __init__(self, text: str, keep: frozenset[str]) -> None:
        self.assembler = Assembler(one_by_one=frozenset({"a"}))
        self._text, self._keep_names = text, keep
        self._open: list[_Element] = []
        self._open_names: Counter[str] = Counter()

    def go_on(self, text: str, assembler: Assembler) -> None:
        """Reads another text from here on, within the elements that are open."""
        self._text, self.assembler = text, assembler

    def read(self, token: Token) -> None:
        raw = self._text[token.start : token.end]
        if token.kind == "start":
            self._start(token, raw)
        elif token.kind == "end":
            self._end(token, raw)
        elif self.kept:
            self._keep(raw, self.kept)
        elif token.kind == "text":
            self.assembler.text(_meanings(raw))
        else:
            self.assembler.point((raw,))

    @property
    def kept(self) -> Literal["", "inline", "block"]:
        return self._open[-1].kept if self._open else ""

    def _start(self, token: Token, raw: str) -> None:
        name = token.name
        while self._open and name in _ENDED_BY.get(self._open[-1].name, ()):
            self._pop()
        keeping: Literal["", "inline", "block"] = ""
        if self._is_kept(token):
            keeping = self.kept or ("block" if name in _BLOCKS else "inline")
        is_empty = name in _VOID or (raw.endswith("/>") and name not in WITHOUT_TAGS)
        if not is_empty:
            self._open.append(_Element(name, keeping))
            self._open_names[name] += 1

        if keeping:
            self._keep(raw, keeping)
        elif name in _BLOCKS:
            self.assembler.block(tuple(self._translated(token)))
        elif is_empty:
            self.assembler.point(tuple(self._translated(token)), parts_words=name == "br")
        else:
            self.assembler.opening(name, tuple(self._translated(token)))

    def _end(self, token: Token, raw: str) -> None:
        name = token.name
        keeping = self.kept
        if self._open_names[name]:
            while (element := self._pop()).name != name:
                pass
            keeping = element.kept
        if keeping:
            self._keep(raw, keeping)
        elif name in _BLOCKS:
            self.assembler.block((raw,))
        elif name == "br":  # which browsers read as a start tag
            self.assembler.point((raw,), parts_words=True)
        else:
            self.assembler.closing(name, (raw,))

    def _pop(self) -> _Element:
        element = self._open.pop()
        self._open_names[element.name] -= 1
        return element

    def _keep(self, raw: str, kept: Literal["inline", "block"]) -> None:
        if kept == "block":
            self.assembler.block((raw,))
        else:
            self.assembler.kept(raw)

    def _is_kept(self, token: Token) -> bool:
        """Whether the content of the element that begins isn't translated."""
        if token.name in self._keep_names:
            return True
        values = {attribute.name: attribute for attribute in reversed(token.attributes)}
        translate = self._value(values.get("translate"))
        classes = self._value(values.get("class")) or ""
        if "notranslate" in classes.split():
            return True
        if translate is not None and translate.lower() in ("no", "yes", ""):
            return translate.lower() == "no"
        return self.kept != ""

    def _value(self, attribute: Attribute | None) -> str | None:
        if attribute is None:
            return None
        if attribute.start < 0:
            return ""
        return _ENTITY.sub(_in_attribute, self._text[attribute.start : attribute.end])

    def _translated(self, token: Token) -> Iterator[str | int]:
        """A start tag with its attributes to translate."""
        place = token.start
        names = TRANSLATED_ATTRIBUTES
        if self._is_description(token):
            names |= {"content"}
        for attribute in token.attributes:
            if attribute.start < 0 or attribute.name not in names:
                continue
            value = self._value(attribute) or ""
            if not has_text(value):
                continue
            # A value without quotation marks may get blanks.
            yield self._text[place : attribute.start] + ('"' if not attribute.quote else "")
            yield from self.assembler.value(value, attribute.quote or '"')
            if not attribute.quote:
                yield '"'
            place = attribute.end
        yield self._text[place : token.end]

    def _is_description(self, token: Token) -> bool:
        if token.name != "meta":
            return False
        named = (attribute for attribute in token.attributes if attribute.name == "name")
        return (self._value(next(named, None)) or "").lower() in _DESCRIPTIONS


def unescaped(text: str) -> str:
    """A text with the characters that its entities stand for."""
    return html.unescape(_NUMBER.sub(r"&#0\1", text))


def _in_attribute(match: re.Match[str]) -> str:
    """What an entity in an attribute's value means. Without a semicolon, and before "=" or a letter
    or digit, it is part of an address there: "?a=1&copy=2"."""
    written = match[0]
    is_known = written.startswith("&#") or written[1:] in html5
    following = match.string[match.end() : match.end() + 1]
    is_address = not written.endswith(";") and following == "="
    return unescaped(written) if is_known and not is_address else written


def _meanings(raw: str) -> Iterator[tuple[str, str]]:
    """Text as it is written and what it means, entity by entity."""
    place = 0
    for match in _ENTITY.finditer(raw):
        written = _known(match[0])
        if not written:
            continue
        if place < match.start():
            yield raw[place : match.start()], raw[place : match.start()]
        yield written, unescaped(written)
        place = match.start() + len(written)
    if place < len(raw):
        yield raw[place:], raw[place:]


def _known(written: str) -> str:
    """The part of what looks like an entity that is one; empty: none of it. Browsers know some
    without a semicolon, and letters may follow these: "&ampx"."""
    name = written[1:]
    if name.startswith("#") or name in html5:
        return written
    sizes = range(min(len(name), _LONGEST_BARE), 1, -1)
    return next((written[: size + 1] for size in sizes if name[:size] in html5), "")
