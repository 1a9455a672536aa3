"""Files of every format as documents, and back to bytes."""

import dataclasses
import importlib.util
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, get_args

from flaxformer_mt.errors import install
from flaxformer_mt.markup.document import Document, MarkupError
from flaxformer_mt.markup.html import read_html
from flaxformer_mt.markup.packages import PackageFormat, read_package
from flaxformer_mt.markup.plain import read_plain, read_subtitles
from flaxformer_mt.markup.xml import read_xml

TextFormat = Literal["html", "xml", "markdown", "srt", "vtt"]
FileFormat = Literal[TextFormat, PackageFormat, "txt"]
ENDINGS: Mapping[str, FileFormat] = {
    ".txt": "txt",
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".docx": "docx",
    ".odt": "odt",
    ".srt": "srt",
    ".vtt": "vtt",
}
_BOM = "\ufeff"
_HEAD = 2048  # characters in which a document may declare its encoding
_OTHER_ENCODING = re.compile(
    r"^<\?xml\s[^>]*?\sencoding\s*=\s*[\"'](?!utf-?8[\"'])"
    r"|<meta\s[^>]*?charset\s*=\s*[\"']?\s*(?!utf-?8\b)\w",
    re.IGNORECASE,
)
_ENCODING_OF_XML = re.compile(
    r"<\?xml\s[^>]*?\sencoding\s*=\s*[\"']((?!utf-?8[\"'])[^\"'>]*)[\"']", re.IGNORECASE
)


@dataclasses.dataclass(frozen=True)
class OpenedFile:
    """The documents of a file, and what makes its bytes of their translated texts."""

    documents: Sequence[Document]
    pack: Callable[[Sequence[str]], bytes]


def endings() -> list[str]:
    """Those of files that this installation can read."""
    return [ending for ending, format in ENDINGS.items() if not missing_package(format)]


def missing_package(format: FileFormat) -> str:
    """What of an extra a format needs and isn't installed."""
    if format == "markdown":
        for package in ("markdown_it", "mdit_py_plugins"):
            if importlib.util.find_spec(package) is None:
                return package
    return ""


def open_file(content: bytes, format: FileFormat, *, keep: Collection[str] = ()) -> OpenedFile:
    """The file of a format. Raises MarkupError."""
    if format in get_args(PackageFormat):
        package = read_package(content, format)  # type: ignore[arg-type]
        return OpenedFile([*package.documents.values()], package.packed)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise MarkupError("is not UTF-8 text; convert it with iconv", line) from error
    if format == "xml":
        _check_declared(text)
    document = open_text(text.removeprefix(_BOM), format, keep=keep)
    mark = _BOM * text.startswith(_BOM)
    return OpenedFile(
        [document], lambda texts: _encoded(mark + "".join(texts), source=text, format=format)
    )


def _check_declared(text: str) -> None:
    """Refuses XML that its declaration has others read as another encoding. HTML may declare one,
    too, but browsers believe a server rather than a page."""
    declared = _ENCODING_OF_XML.match(text.removeprefix(_BOM))
    if declared and not text.isascii():
        raise MarkupError(
            f'declares encoding="{declared[1]}", but is UTF-8 text: declare UTF-8, or other '
            "programs will misread it",
            1,
        )


def _encoded(text: str, *, source: str, format: FileFormat) -> bytes:
    """A translation as it is read again, whatever encoding the source declares."""
    is_markup = format in ("html", "xml")
    if is_markup and source.isascii() and _OTHER_ENCODING.search(source, 0, _HEAD):
        return text.encode("ascii", "xmlcharrefreplace")
    return text.encode()


def open_text(text: str, format: FileFormat, *, keep: Collection[str] = ()) -> Document:
    """The document of a text. Raises MarkupError."""
    if format == "html":
        return read_html(text, keep=keep)
    if format == "xml":
        return read_xml(text, keep=keep)
    if format in ("srt", "vtt"):
        return read_subtitles(text)
    if format == "txt":
        return read_plain(text)
    if package := missing_package(format):
        raise MarkupError(f"Markdown needs {package}, which is missing: {install('markdown')}")
    from flaxformer_mt.markup.markdown import read_markdown

    return read_markdown(text, keep=keep)
