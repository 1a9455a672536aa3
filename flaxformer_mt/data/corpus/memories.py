"""Translation memories and catalogues: TMX, XLIFF and PO, read by translate-toolkit.

A unit is a pair, or one for each plural form. White space at its ends, and line ends within it, are
layout. Inline tags are dropped with what they hold (TMX 1.4, section 4.2; XLIFF 1.2, section 3.2),
or stand as symbols: `<x1>`, `</x1>` and `<x1/>`, numbered in the order of the source.

A file is read at once.
"""

from __future__ import annotations

import collections
import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from flaxformer_mt.config.kinds import TranslationMemory
from flaxformer_mt.data.corpus import paths
from flaxformer_mt.data.corpus.pairs import (
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
_JOINING = ("i", "rid", "startRef", "id")
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
        found = of_unit(unit, languages)
        if isinstance(found, NoText):
            yield found
            continue
        for sides in found:
            yield _texts(*sides, keeps_tags=keeps_tags)


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
    content = _content(path)
    is_second = path_format(path) == "xliff" and _SECOND_XLIFF.search(content) is not None
    kind = xliff2.Xliff2File if is_second else factory.getclass(f"memory.{path_format(path)}")
    try:
        return kind.parsestring(content)
    except Exception as error:  # of whatever parser it uses
        raise CorpusError(f"{path}: cannot be read as {path_format(path)}: {error}") from error


def _content(path: AnyPath) -> bytes:
    """The file's bytes, decompressed; XML says itself how it is encoded. Raises CorpusError."""
    is_packed = path.suffix.lower() in SUFFIXES
    with readable(path):
        if not is_packed and path_format(path) != "po":
            return path.read_bytes()
        with open_text(path) as (stream, _):
            return stream.read()


def _of_catalogue(unit: Any) -> Iterator[CorpusRecord]:
    """The pairs of a PO file's entry: one, or one for each plural form, of which a language may
    have more or fewer than the source's two."""
    if unfinished := _unfinished(unit):
        yield unfinished
        return
    sources, targets = [unit.source], [unit.target]
    if unit.hasplural():
        sources, targets = unit.source.strings, unit.target.strings
        if len(targets) == 1:
            sources = sources[-1:]
    for number, tgt in enumerate(targets):
        yield _plain(sources[min(number, len(sources) - 1)]), _plain(tgt)


def _unfinished(unit: Any) -> NoText | None:
    """Why an entry of PO isn't a translation yet, or any more."""
    if unit.isobsolete():
        return NoText(UNFINISHED, f"obsolete: {unit.source}")
    if not unit.target:
        return NoText(UNFINISHED, f"has no target: {unit.source}")
    if unit.isfuzzy():
        return NoText(UNFINISHED, f"fuzzy: {unit.source}")
    return None


def _unfinished_in_xliff(unit: Any) -> NoText | None:
    """Why a unit of XLIFF isn't a translation. (To translate-toolkit all that isn't approved is
    fuzzy, and few programs write that.)"""
    element, target = unit.xmlelement, unit.target_dom
    if target is None or not "".join(target.itertext()).strip():
        return NoText(UNFINISHED, f"has no target: {unit.source}")
    for node, attribute in ((target, "state"), (element, "state"), (element, "approved")):
        state = node.get(attribute, "")
        if state in ("new", "initial", "no") or state.startswith("needs-"):
            return NoText(UNFINISHED, f"{attribute}={state}: {unit.source}")
    if element.get("translate") == "no":
        return NoText(UNFINISHED, f"translate=no: {unit.source}")
    return None


def _sides_in_tmx(unit: Any, languages: tuple[str, str] | None) -> list[tuple[Any, Any]] | NoText:
    """The elements of both languages; of several variants, all with all."""
    assert languages is not None
    by_language: dict[str, list[Any]] = {}
    for node in unit.getlanguageNodes():
        segment = node.find("{*}seg")
        if segment is not None and "".join(segment.itertext()).strip():
            by_language.setdefault(_language(node), []).append(segment)
    found = [_matching(wanted, by_language) for wanted in languages]
    for wanted, name in zip(languages, found, strict=True):
        if name is None:
            present = ", ".join(map(repr, by_language)) or "none"
            return NoText(UNFINISHED, f"has no {wanted!r}; there: {present}")
    src, tgt = (by_language[name or ""] for name in found)
    return list(itertools.product(src, tgt))


def _sides_in_xliff(unit: Any, languages: tuple[str, str] | None) -> list[tuple[Any, Any]] | NoText:
    """The elements of source and target, in the direction of the languages."""
    if unfinished := _unfinished_in_xliff(unit):
        return unfinished
    sides = [unit.source_dom, unit.target_dom]
    if languages is None:
        return [(sides[0], sides[1])]

    root = unit.xmlelement.getroottree().getroot()
    element = next(unit.xmlelement.iterancestors("{*}file"), root)
    names = [element.get("source-language") or root.get("srcLang") or ""]
    names += [element.get("target-language") or root.get("trgLang") or ""]
    by_language = dict(zip(map(_normal, names), sides, strict=True))
    matching = [_matching(wanted, by_language) for wanted in languages]
    if None in matching:
        return NoText(UNFINISHED, f"is from {names[0]!r} to {names[1]!r}")
    return [(by_language[matching[0] or ""], by_language[matching[1] or ""])]


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
    written = (
        "".join(_pieces(side, _Tags(numbers) if keeps_tags else None)) for side in (src, tgt)
    )
    first, second = map(_plain, written)
    return first, second


def _pieces(element: Any, tags: _Tags | None) -> Iterator[str]:
    """The text of an element; with `tags`, its tags stand as symbols."""
    if not isinstance(element.tag, str):  # a function of lxml: Comment, or Entity of a DTD
        yield element.text if element.tag.__name__ == "Entity" else ""
        return
    name = element.tag.rpartition("}")[2]
    before, after = "", ""
    if tags is not None and name not in _UNMARKED:
        before, after = _symbols(name, tags.number(element, name))

    yield before
    if name in _WITH_TEXT:
        yield element.text or ""
        for child in element:
            yield from _pieces(child, tags)
            yield child.tail or ""
    yield after


def _symbols(name: str, number: int) -> tuple[str, str]:
    """What stands before and after the text of an element."""
    if name in _WITH_TEXT:
        return f"<x{number}>", f"</x{number}>"
    if name in _OPENING:
        return f"<x{number}>", ""
    return (f"</x{number}>" if name in _CLOSING else f"<x{number}/>"), ""


class _Tags:
    """Numbers the tags of one side, and those that are the same as another side's as there."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self._numbers = numbers  # of both sides, by what makes tags the same
        self._opened: dict[str, int] = {}  # by what joins the two ends of a pair on this side
        self._unnamed = collections.Counter[str]()

    def number(self, element: Any, name: str) -> int:
        """The number of an element: TMX's `x`, or else an id, is the same on both sides; `i`, `rid`
        and `startRef` join the ends of a pair on one."""
        joins = next((element.get(key) for key in _JOINING if key in element.attrib), "")
        if name in _CLOSING and joins in self._opened:
            return self._opened[joins]
        names = "pair" if name in _OPENING | _CLOSING else name
        identity = next((element.get(key) for key in ("x", "id", "i") if key in element.attrib), "")
        if not identity:
            self._unnamed[name] += 1
            identity = f"#{self._unnamed[name]}"
        number = self._numbers.setdefault(f"{names} {identity}", len(self._numbers) + 1)
        if name in _OPENING:
            self._opened[joins] = number
        return number


def _plain(text: str) -> bytes:
    """A text on one line."""
    return _LAYOUT.sub(" ", text).strip().encode(errors="surrogatepass")
