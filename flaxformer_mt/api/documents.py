"""Documents with markup: translated as a whole, with their tags in place."""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Literal, Unpack, get_args

from flaxformer_mt.api import say
from flaxformer_mt.bulk.output_errors import OutputError, output_errors
from flaxformer_mt.bulk.outputs import is_device
from flaxformer_mt.bulk.reading import InputError, open_lines
from flaxformer_mt.config import ConfigError
from flaxformer_mt.config.languages import has_blanks_between_sentences
from flaxformer_mt.decoding import arguments
from flaxformer_mt.decoding.aligned_text import joined_and_aligned
from flaxformer_mt.decoding.alignment import Alignment
from flaxformer_mt.decoding.errors import DecodingError, LineError
from flaxformer_mt.decoding.options import (
    PLAIN_LINE,
    SearchOptions,
    WantedOfAll,
    options_of_all,
)
from flaxformer_mt.decoding.text.coded_sentences import CodedSentences, coded_sentences
from flaxformer_mt.decoding.text.translation import Translation
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.markup.document import LARGEST, Document, MarkupError, Raw, Segment, joined_all
from flaxformer_mt.markup.opening import TextFormat, open_file, open_text
from flaxformer_mt.markup.packages import LARGEST_UNPACKED, PackageFormat
from flaxformer_mt.markup.placing import placed
from flaxformer_mt.progress import Meter
from flaxformer_mt.rundir.paths import as_path, check_output, write_bytes
from flaxformer_mt.wording import counted

DocumentFormat = Literal[TextFormat, PackageFormat]
_WINDOW = 1024  # sentences that are searched together, and then reported
_SHOWN = 60  # characters of a sentence in a message
_PACKAGES = get_args(PackageFormat)
Model = str | os.PathLike[str] | Translator | Callable[[], Translator]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslatedDocument:
    """A translated document, and what its translation took."""

    text: str
    texts: int  # that were translated: of blocks and attributes
    sentences: int
    split: int  # sentences too long for the model, translated in pieces
    at_limit: int  # translations that reached the length limit

    def __str__(self) -> str:
        return self.text

    def describe(self) -> list[str]:
        """Lines for people."""
        lines = [f"{counted(self.texts, 'text')}, {counted(self.sentences, 'sentence')}"]
        if self.split:
            lines.append(
                f"{counted(self.split, 'sentence')} too long for the model: translated in pieces"
            )
        if self.at_limit:
            lines.append(
                f"{counted(self.at_limit, 'translation')} reached the length limit: "
                "see --max-ratio and --max-extra-tokens"
            )
        return lines


def translate_document(
    run: Model,
    document: str,
    *,
    format: TextFormat = "html",
    keep_elements: Collection[str] = (),
    **wanted: Unpack[WantedOfAll],
) -> TranslatedDocument:
    """Translates the text of an HTML page, or a part of one, of an XML or Markdown document, or of
    subtitles (SRT, WebVTT).

    All else stays byte for byte. Tags, and Markdown's signs, within a sentence go with its words,
    by the decoder's attention. The content of `keep_elements` isn't translated, nor that of
    `<code>` and the like in HTML and Markdown and of elements with `translate="no"`. Markdown needs
    the extra `markdown`. Other arguments are those of `Translator.translate` for all lines, but
    `n_best` must be 1. Texts are split at sentence ends unless the model has learnt to read so many
    together; `several="keep"` doesn't split them.

    Raises MarkupError for XML that isn't well-formed and for documents that are too large,
    ConfigError, and what `Translator.load` and `Translator.translate` raise.
    """
    options = _checked(format, get_args(TextFormat), wanted)
    arguments.check_str("document", document)
    keep_elements = arguments.texts("keep_elements", keep_elements)
    try:
        document.encode()
    except UnicodeEncodeError as error:
        line = document.count("\n", 0, error.start) + 1
        raise MarkupError("is not Unicode text: it has half a surrogate pair", line) from error
    parsed = open_text(document, format, keep=keep_elements)
    return _translated(_loaded(run), [parsed], options)[0]


def translate_document_file(
    run: Model,
    input: str | os.PathLike[str] | None,
    output: str | os.PathLike[str] | None,
    *,
    format: DocumentFormat = "html",
    keep_elements: Collection[str] = (),
    **wanted: Unpack[WantedOfAll],
) -> TranslatedDocument:
    """As `translate_document`, from a file to a file, also in a bucket; None is standard input or
    output. The input may be compressed, and is read whole: up to 10 million characters of UTF-8.
    The output is written whole or not at all. HTML and XML stay ASCII, with references to other
    characters, if the input is and declares another encoding than UTF-8. The formats "docx" and
    "odt" are for texts of Word and LibreOffice, of up to 64 MiB when they are unpacked; then the
    result's `text` is empty. How far it is goes to stderr, as in `translate_file`.

    Also raises CorpusError, InputError and OutputError.
    """
    options = _checked(format, get_args(DocumentFormat), wanted)
    source = None if input is None else os.fspath(input)
    target = None if output is None else os.fspath(output)
    if target is not None:
        _check_output(source, target)
    keep_elements = arguments.texts("keep_elements", keep_elements)
    name, content = _read_archive(source) if format in _PACKAGES else _read(source)
    try:
        opened = open_file(content, format, keep=keep_elements)
    except MarkupError as error:
        raise error.of_file(name) from error
    translated, texts = _translated(_loaded(run), opened.documents, options, _reported)
    _write(target, opened.pack(texts))
    return dataclasses.replace(translated, text="") if format in _PACKAGES else translated


def _checked(format: str, formats: Sequence[str], wanted: WantedOfAll) -> SearchOptions:
    if format not in formats:
        if format in _PACKAGES:
            raise ConfigError(f"format = {format!r} isn't text: use translate_document_file")
        *first_formats, last = map(repr, formats)
        raise ConfigError(f"format = {format!r} must be {', '.join(first_formats)} or {last}")
    options = options_of_all(wanted, "translate_document")
    if options.n_best != 1:
        raise ConfigError(f"n_best = {options.n_best}: a document has one translation")
    return options


def _loaded(run: Model) -> Translator:
    if isinstance(run, Translator):
        return run
    return Translator.load(run) if isinstance(run, str | os.PathLike) else run()


def _check_output(source: str | None, target: str) -> None:
    """Refuses, before long work, an output that can't be written or is the input."""
    if is_device(target):
        return
    check_output(target)
    if source is None:
        return
    is_same = source == target
    if "://" not in source + target and os.path.exists(source) and os.path.exists(target):
        is_same = os.path.samefile(source, target)
    if is_same:
        raise OutputError(f"{target}: is also the input; choose another output")


def _write(target: str | None, content: bytes) -> None:
    """Writes all of a file or an object at once, or to standard output or a device. Raises
    OutputError."""
    if target is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    elif is_device(target):
        with output_errors(Path(target)):
            Path(target).write_bytes(content)
    else:
        write_bytes(as_path(target), content)


def _read_archive(path: str | None) -> tuple[str, bytes]:
    """The name and the content of a file, or of standard input. Raises InputError."""
    name = path or "standard input"
    try:
        if path is None:
            return name, sys.stdin.buffer.read(LARGEST_UNPACKED + 1)
        with as_path(path).open("rb") as file:
            return name, file.read(LARGEST_UNPACKED + 1)
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error


def _read(path: str | None) -> tuple[str, bytes]:
    """The name and the text of a file, or of standard input. Raises InputError."""
    with open_lines(path) as lines:
        # A byte more than the largest text can have.
        content = lines.read_whole(4 * LARGEST + 1)
        name = lines.name
    try:
        content.decode()
        return name, content
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{name}:{line}: is not UTF-8 text; convert it with iconv") from error


def _reported(translations: Iterator[Translation], count: int) -> Iterator[Translation]:
    """The translations of so many sentences; says on stderr how far they are."""
    with Meter(
        "translate",
        say,
        share=lambda done: done / count,
        unit="sentences",
        terminal=sys.stderr.isatty(),
    ) as meter:
        for translation in translations:
            meter.advance(lines=1, size=1)
            yield translation


def _translated(
    translator: Translator,
    documents: Sequence[Document],
    options: SearchOptions,
    watched: Callable[[Iterator[Translation], int], Iterator[Translation]] | None = None,
) -> tuple[TranslatedDocument, list[str]]:
    """What was translated, and the text of each document."""
    segments = [segment for document in documents for segment in document.segments]
    _check_single(translator, segments)
    texts = _texts(translator, segments, options)
    lines = [sentence for text in texts for sentence in text.texts]
    searched = _searched(translator, lines, options)
    translations = list(searched if watched is None else watched(searched, len(lines)))
    alignments = _alignments(translator, segments, texts, translations)
    blanks = has_blanks_between_sentences(translator.tgt_lang)
    contents: list[Raw] = []
    remaining = iter(translations)
    for segment, text in zip(segments, texts, strict=True):
        outputs = [translation.text for translation in itertools.islice(remaining, len(text.texts))]
        aligned = [next(alignments) if segment.needs_alignment else None for _ in outputs]
        contents.append(placed(segment, *joined_and_aligned(text, outputs, aligned, blanks=blanks)))
    joined = joined_all(documents, contents)
    translated = TranslatedDocument(
        text="".join(joined),
        texts=len(segments),
        sentences=len(lines),
        split=sum(translation.split for translation in translations),
        at_limit=sum(translation.at_limit for translation in translations),
    )
    return translated, joined


def _check_single(translator: Translator, segments: Sequence[Segment]) -> None:
    """Refuses an ensemble before the work."""
    if len(translator.members) > 1 and any(segment.needs_alignment for segment in segments):
        raise DecodingError(
            "the places of tags within a sentence need a single model's alignments, not an "
            "ensemble's: translate the document with one of its runs"
        )


def _texts(
    translator: Translator, segments: Sequence[Segment], options: SearchOptions
) -> list[CodedSentences]:
    """The sentences of each segment."""
    together = translator.together
    if options.several == "keep" or (options.several == "auto" and translator.takes_whole_lines):
        together = sys.maxsize
    elif options.several == "split":
        together = 1
    return [
        coded_sentences(
            segment.text, translator.src_lang, together=together, keep=translator.config.keep
        )
        for segment in segments
    ]


def _searched(
    translator: Translator, lines: Sequence[str], options: SearchOptions
) -> Iterator[Translation]:
    """The translations of sentences. Raises DecodingError with the text of a wrong one."""
    for first in range(0, len(lines), _WINDOW):
        window = lines[first : first + _WINDOW]
        numbered = dataclasses.replace(options, several="keep", first=options.first + first)
        try:
            yield from translator.translate_with(window, numbered, [PLAIN_LINE] * len(window))
        except LineError as error:
            raise DecodingError(f"'{window[error.number][:_SHOWN]}': {error.reason}") from error


def _alignments(
    translator: Translator,
    segments: Sequence[Segment],
    texts: Sequence[CodedSentences],
    translations: Sequence[Translation],
) -> Iterator[Alignment]:
    """Those of the sentences of segments that need them."""
    needed = [
        segment.needs_alignment
        for segment, text in zip(segments, texts, strict=True)
        for _ in text.texts
    ]
    lines = [line for text in texts for line in text.texts]
    pairs = [
        (line, translator.target_of(translation))
        for line, translation, is_needed in zip(lines, translations, needed, strict=True)
        if is_needed
    ]
    return iter(translator.align(pairs, letters=True) if pairs else ())
