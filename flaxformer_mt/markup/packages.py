"""Word and OpenDocument texts: zip archives whose XML is read as segments and written back.

The XML is edited as it stands, and not through python-docx or odfpy: these give paragraphs as lists
of runs without hyperlinks, fields and tracked changes, which a rewritten paragraph would lose.
"""

import dataclasses
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from flaxformer_mt.markup.document import LARGEST, Document, MarkupError
from flaxformer_mt.markup.opendocument import read_opendocument
from flaxformer_mt.markup.word import read_word

PackageFormat = Literal["docx", "odt"]
LARGEST_UNPACKED = 64 << 20  # bytes of all members
_MOST_MEMBERS = 4096
# Tags, references and line ends of all texts, which the parser gives one by one: each takes some
# hundred bytes while it is read.
_MOST_PIECES = 1_000_000
_TEXTS = {
    "docx": re.compile(r"word/(document|header\d*|footer\d*|footnotes|endnotes)\.xml"),
    "odt": re.compile(r"(content|styles)\.xml"),
}
_MAIN: Mapping[PackageFormat, str] = {"docx": "word/document.xml", "odt": "content.xml"}
_READERS: Mapping[PackageFormat, Callable[[str], Document]] = {
    "docx": read_word,
    "odt": read_opendocument,
}
# What zipfile raises for a wrong archive; ValueError for wrong places and names.
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    struct.error,
)
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclasses.dataclass(frozen=True)
class Package:
    """An archive's members in their order, with the documents of those that have text."""

    members: Sequence[tuple[zipfile.ZipInfo, bytes]]
    documents: Mapping[str, Document]  # by the member's name

    def packed(self, texts: Sequence[str]) -> bytes:
        """The archive with these texts for its documents; the other members are as they were."""
        content = {name: text.encode() for name, text in zip(self.documents, texts, strict=True)}
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for info, old in self.members:
                archive.writestr(_same_member(info), content.get(info.filename, old))
        return file.getvalue()


def read_package(content: bytes, format: PackageFormat) -> Package:
    """The archive of a DOCX or ODT file.

    Raises MarkupError for what isn't such a file, is encrypted, has more than 64 MiB when it is
    unpacked, or has XML that isn't well-formed or declares a document type.
    """
    if len(content) > LARGEST_UNPACKED:
        raise MarkupError(f"a {format} file has at most {LARGEST_UNPACKED:,} bytes")
    try:
        members = _members(content)
    except _DAMAGED as error:
        raise MarkupError(f"not a {format} file: {error}") from error
    names = [info.filename for info, _ in members]
    if _MAIN[format] not in names:
        raise MarkupError(f"not a {format} file: it has no {_MAIN[format]}")
    if len(set(names)) < len(names):
        raise MarkupError("two members of the archive have the same name")
    texts = {
        info.filename: member for info, member in members if _TEXTS[format].fullmatch(info.filename)
    }
    pieces = sum(member.count(sign) for member in texts.values() for sign in (b"<", b"&", b"\n"))
    if pieces > _MOST_PIECES:
        raise MarkupError(
            f"{pieces:,} tags, references and line ends; a {format} file has at most "
            f"{_MOST_PIECES:,}"
        )
    documents = {name: _document(name, member, _READERS[format]) for name, member in texts.items()}
    return Package(members, documents)


def _members(content: bytes) -> list[tuple[zipfile.ZipInfo, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        infos = archive.infolist()
        size = sum(info.file_size for info in infos)
        if len(infos) > _MOST_MEMBERS or size > LARGEST_UNPACKED:
            raise MarkupError(
                f"{len(infos):,} members of {size:,} bytes; an archive has at most "
                f"{_MOST_MEMBERS:,} of {LARGEST_UNPACKED:,} bytes in all"
            )
        for info in infos:
            if info.flag_bits & 1:
                raise MarkupError("the file is encrypted: remove its password")
            if info.compress_type not in _METHODS:
                raise MarkupError(f"{info.filename[:60]!r} is compressed in an unusual way")
        # No member gives more bytes than it is said to have.
        return [(info, archive.read(info)) for info in infos]


def _document(name: str, member: bytes, read: Callable[[str], Document]) -> Document:
    try:
        text = member.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MarkupError("not UTF-8", name=name) from error
    if len(text) > LARGEST:
        raise MarkupError(f"{name}: {len(text):,} characters; at most {LARGEST:,}")
    if "<!DOCTYPE" in text:
        raise MarkupError(f"{name}: declares a document type, which such files don't have")
    try:
        return read(text)
    except MarkupError as error:
        raise error.of_file(name) from error


def _same_member(info: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """A member like another one, without what belongs to its old content."""
    copied = zipfile.ZipInfo(info.filename, info.date_time)
    copied.compress_type, copied.external_attr = info.compress_type, info.external_attr
    return copied
