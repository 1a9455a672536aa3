"""Zip archives of two line-aligned files, as OPUS offers corpora in Moses's format.

An archive is read in place and never unpacked.
"""

from __future__ import annotations

import contextlib
import functools
import zipfile
from collections.abc import Iterator
from typing import BinaryIO, cast

from flaxformer_mt.config.kinds import ZipArchive
from flaxformer_mt.data.corpus import paths
from flaxformer_mt.data.corpus.pairs import CorpusError, PairSource
from flaxformer_mt.data.corpus.text_files import lines, readable, require_equal
from flaxformer_mt.files.reading import AnyPath

_SHOWN = 8  # names of members in a message
_ENCRYPTED = 0x1  # of a member's flags
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


def open_archive(settings: ZipArchive, folder: str, key: str) -> PairSource:
    """An archive whose two files' names end in the languages' codes. Raises CorpusError."""
    path = paths.require_file(settings.path, folder, f"{key}.path")
    with _archive(path) as archive:
        members = archive.infolist()
    src, tgt = (_member(members, code, f"{key}: {path}") for code in settings.sides)
    return PairSource(
        {"path": path}, str(path), (functools.partial(aligned, path, src, tgt),), tuple
    )


def aligned(path: AnyPath, src: str, tgt: str) -> Iterator[tuple[bytes, bytes]]:
    """The lines of two members side by side. Raises CorpusError if one has more."""
    sides = [
        functools.partial(lines, path, opened=functools.partial(_opened, member=name))
        for name in (src, tgt)
    ]
    try:
        yield from zip(*(side() for side in sides), strict=True)
    except CorpusError:
        raise
    except ValueError:
        require_equal(
            (f"{path}: {src}", f"{path}: {tgt}"), [sum(1 for _ in side()) for side in sides]
        )


def _member(members: list[zipfile.ZipInfo], code: str, place: str) -> str:
    """The one member of this name, or else whose name ends in it. Raises CorpusError."""
    found = _named(members, code)
    if not found:
        names = [member.filename for member in members if not member.is_dir()]
        present = ", ".join(names[:_SHOWN]) or "nothing"
        raise CorpusError(f"{place}: has no file whose name ends in .{code}; there: {present}")
    if len(found) > 1:
        first, second = (member.filename for member in found[:2])
        raise CorpusError(
            f"{place}: two names end in .{code}: {first} and {second}: give one of these names"
        )
    (member,) = found
    if member.flag_bits & _ENCRYPTED or member.compress_type not in _PACKINGS:
        raise CorpusError(f"{place}: {member.filename} is encrypted or packed unusually: unpack it")
    return member.filename


def _named(members: list[zipfile.ZipInfo], code: str) -> list[zipfile.ZipInfo]:
    """The members of this name, or else those whose names end in it."""
    # macOS adds another for each file.
    own = [member for member in members if not member.filename.startswith("__MACOSX/")]
    exact = [member for member in own if member.filename == code]
    endings = (f".{code}", f"/{code}")
    return exact or [member for member in own if f"/{member.filename}".endswith(endings)]


@contextlib.contextmanager
def _archive(path: AnyPath) -> Iterator[zipfile.ZipFile]:
    with readable(path), paths.open_binary(path) as raw, zipfile.ZipFile(raw) as archive:
        yield archive


@contextlib.contextmanager
def _opened(path: AnyPath, member: str) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """A member's bytes, as `text_files.open_text` gives a file's."""
    with _archive(path) as archive, archive.open(member) as stream:
        opened = cast(BinaryIO, stream)
        yield opened, opened
