"""Translation memories and catalogues: TMX, XLIFF and PO, read by translate-toolkit.

A unit is a pair, or one for each plural form. White space at its ends, and line ends within it, are
layout. Inline tags are dropped with what they hold (TMX 1.4, section 4.2; XLIFF 1.2, section 3.2),
or stand as symbols: `<x1>`, `</x1>` and `<x1/>`, numbered in the order of the source.

A file is read at once.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from flaxformer_mt.config.kinds import TranslationMemory
from flaxformer_mt.data.corpus import paths
from flaxformer_mt.data.corpus.pairs import (
    NO_TEXT,
    UNFINISHED,
    CorpusError,
    CorpusRecord,
    NoText,
    PairSource,
)
from flaxformer_mt.data.corpus.text_files import SUFFIXES, open_text, readable
from flaxformer_mt.files.reading import AnyPath

# What an element's text is: part of the sentence, or the markup of another format.
_WITH_TEXT = {"g", "hi", "mrk", "pc", "sub", "seg", "source", "target"}
_UNMARKED = {"mrk", "sub", "seg", "source", "target"}  # they mark no place in the sentence
_OPENING, _CLOSING = {"bpt", "bx", "sc"}, {"ept", "ex", "ec"}
_SECOND_XLIFF = re.compile(rb"<(\w+:)?xliff\s[^>]*version\s*=\s*[\"']2")
_LAYOUT = re.compile(r"[ \t\r\n]+")
_XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


def open_memory(settings: TranslationMemory, folder: str, key: str) -> PairSource:
    """A file whose ending shows its format. Raises CorpusError."""
    path = paths.require_file(settings.path, folder, f"{key}.path")
    read = functools.partial(
        _records, path, settings.sides, keeps_tags=settings.inline == "keep", key=key
    )
    return PairSource({"path": path}, f"{path} (entries)", (read,), _as_it_is)


def _as_it_is(record: CorpusRecord) -> CorpusRecord:
    return record


def _records(
    path: AnyPath, languages: tuple[str, str] | None, *, keeps_tags: bool, key: str
) -> Iterator[CorpusRecord]:
    """The records of a file's units. Raises CorpusError."""
    store = _store(path, key)
    units = [unit for unit in store.units if not unit.isheader()]
    if path_format(path) == "po":
        if languages is not None:
            raise CorpusError(f"{key}: {path}: a PO file names no languages: leave out src and tgt")
        for unit in units:
            yield from _of_catalogue(unit)
        return

    of_unit = _sides_in_tmx if path_format(path) == "tmx" else _sides_in_xliff
    if languages is None and path_format(path) == "tmx":
        raise CorpusError(f"{key}.src and {key}.tgt must be set: languages of {path}, such as en")
    for unit in units:
        sides = of_unit(unit, languages)
        yield sides if isinstance(sides, NoText) else _texts(*sides, keeps_tags=keeps_tags)


def path_format(path: AnyPath) -> str:
    """The format that a file's name shows: tmx, xliff or po."""
    endings = path.name.lower().split(".")
    if f".{endings[-1]}" in SUFFIXES:
        endings.pop()
    return endings[-1] if endings[-1] in ("tmx", "po") else "xliff"


def _store(path: AnyPath, key: str) -> Any:
    """The file as translate-toolkit reads it. Raises CorpusError."""
    try:
        from translate.storage import factory, xliff2
    except ImportError as error:
        raise CorpusError(
            f"{key}: {path}: needs translate-toolkit: pip install 'flaxformer-mt[memories]'"
        ) from error
    with readable(path), open_text(path) as (stream, _):
        content = stream.read()
    is_second = path_format(path) == "xliff" and _SECOND_XLIFF.search(content) is not None
    kind = xliff2.Xliff2File if is_second else factory.getclass(f"memory.{path_format(path)}")
    try:
        return kind.parsestring(content)
    except Exception as error:  # of whatever parser it uses
        raise CorpusError(f"{path}: cannot be read as {path_format(path)}: {error}") from error


def _of_catalogue(unit: Any) -> Iterator[CorpusRecord]:
    """The pairs of a PO file's entry, with as many plural forms as both sides have."""
    if unit.isobsolete() or unit.isfuzzy():
        yield NoText(UNFINISHED, f"{'obsolete' if unit.isobsolete() else 'fuzzy'}: {unit.source}")
        return
    sources, targets = [unit.source], [unit.target]
    if unit.hasplural():
        sources, targets = unit.source.strings, unit.target.strings
    for src, tgt in zip(sources, targets, strict=False):
        yield _plain(src), _plain(tgt)


def _sides_in_tmx(unit: Any, languages: tuple[str, str] | None) -> tuple[Any, Any] | NoText:
    """The elements of both languages."""
    assert languages is not None
    by_language = {_language(node): node for node in unit.getlanguageNodes()}
    found = []
    for wanted in languages:
        name = _matching(wanted, by_language)
        segment = None if name is None else by_language[name].find("{*}seg")
        if segment is None:
            present = ", ".join(map(repr, by_language)) or "none"
            return NoText(NO_TEXT, f"has no {wanted!r}; there: {present}")
        found.append(segment)
    return found[0], found[1]


def _sides_in_xliff(unit: Any, languages: tuple[str, str] | None) -> tuple[Any, Any] | NoText:
    """The elements of source and target, in the direction of the languages."""
    sides = [unit.source_dom, unit.target_dom]
    if sides[1] is None:
        return NoText(NO_TEXT, f"has no target: {unit.source}")
    if languages is None:
        return sides[0], sides[1]

    element = next(
        unit.xmlelement.iterancestors("{*}file"), unit.xmlelement.getroottree().getroot()
    )
    root = unit.xmlelement.getroottree().getroot()
    names = [element.get("source-language") or root.get("srcLang") or ""]
    names += [element.get("target-language") or root.get("trgLang") or ""]
    by_language = dict(zip(map(_normal, names), sides, strict=True))
    matching = [_matching(wanted, by_language) for wanted in languages]
    if None in matching:
        return NoText(NO_TEXT, f"is from {names[0]!r} to {names[1]!r}")
    return by_language[matching[0] or ""], by_language[matching[1] or ""]


def _language(node: Any) -> str:
    return _normal(node.get(_XML_LANGUAGE) or node.get("lang") or "")


def _normal(code: str) -> str:
    return code.replace("_", "-").lower()


def _matching(wanted: str, present: Mapping[str, Any]) -> str | None:
    """The language of a code, or else the first of its regions."""
    code = _normal(wanted)
    if code in present:
        return code
    return next((name for name in present if name.split("-")[0] == code), None)


def _texts(src: Any, tgt: Any, *, keeps_tags: bool) -> CorpusRecord:
    """The texts of two elements; the numbers of their tags are those of the source."""
    numbers: dict[str, int] = {}
    written = ("".join(_pieces(side, numbers if keeps_tags else None)) for side in (src, tgt))
    first, second = map(_plain, written)
    return first, second


def _pieces(element: Any, numbers: dict[str, int] | None) -> Iterator[str]:
    """The text of an element; with `numbers`, which it adds to, its tags stand as symbols."""
    name = element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""  # a comment
    before, after = "", ""
    if numbers is not None and name and name not in _UNMARKED:
        before, after = _symbols(
            name, numbers.setdefault(_identity(element, name), len(numbers) + 1)
        )

    yield before
    if name in _WITH_TEXT:
        yield element.text or ""
        for child in element:
            yield from _pieces(child, numbers)
            yield child.tail or ""
    yield after


def _symbols(name: str, number: int) -> tuple[str, str]:
    """What stands before and after the text of an element."""
    if name in _WITH_TEXT:
        return f"<x{number}>", f"</x{number}>"
    if name in _OPENING:
        return f"<x{number}>", ""
    return (f"</x{number}>" if name in _CLOSING else f"<x{number}/>"), ""


def _identity(element: Any, name: str) -> str:
    """What makes tags of both sides, and the two ends of a pair, the same."""
    paired = "pair" if name in _OPENING | _CLOSING else name
    for attribute in ("rid", "startRef", "i", "id", "x"):
        if attribute in element.attrib:
            return f"{paired} {element.get(attribute)}"
    return f"{paired} {element.text or ''}"


def _plain(text: str) -> bytes:
    """A text on one line."""
    return _LAYOUT.sub(" ", text).strip().encode(errors="surrogatepass")
