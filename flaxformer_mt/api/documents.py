"""Documents with markup: translated as a whole, with their tags in place."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Literal, Unpack, get_args

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
from flaxformer_mt.markup.document import LARGEST, Document, MarkupError, Raw
from flaxformer_mt.markup.html import read_html
from flaxformer_mt.markup.placing import placed
from flaxformer_mt.markup.xml import read_xml
from flaxformer_mt.rundir.paths import as_path, check_output, write_bytes
from flaxformer_mt.wording import counted

DocumentFormat = Literal["html", "xml"]
_WINDOW = 4096  # sentences that are searched together
_SHOWN = 60  # characters of a sentence in a message
_BOM = "\ufeff"
_HEAD = 2048  # characters in which a document may declare its encoding
_OTHER_ENCODING = re.compile(
    r"^<\?xml\s[^>]*?\sencoding\s*=\s*[\"'](?!utf-?8[\"'])"
    r"|<meta\s[^>]*?charset\s*=\s*[\"']?\s*(?!utf-?8\b)\w",
    re.IGNORECASE,
)
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
    format: DocumentFormat = "html",
    keep_elements: Collection[str] = (),
    **wanted: Unpack[WantedOfAll],
) -> TranslatedDocument:
    """Translates the text of an HTML page, or a part of one, or of an XML document.

    All else stays byte for byte. Tags within a sentence go with its words, by the decoder's
    attention. The content of `keep_elements` isn't translated, nor that of `<code>` and the like in
    HTML and of elements with `translate="no"`. What is `wanted` of all sentences is as in
    `Translator.translate`, but with one translation; `several` "keep" doesn't split texts at
    sentence ends, as is done unless the model has learnt to read so many together.

    Raises MarkupError for XML that isn't well-formed and for documents that are too large,
    ConfigError, and what `Translator.load` and `Translator.translate` raise.
    """
    options = _checked(format, wanted)
    parsed = _parsed(document, format, keep_elements)
    return _translated(_loaded(run), parsed, options)


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
    The output is written whole or not at all. It stays ASCII, with references to other characters,
    if the input is and declares another encoding than UTF-8.

    Also raises CorpusError, InputError and OutputError.
    """
    options = _checked(format, wanted)
    source = None if input is None else os.fspath(input)
    target = None if output is None else os.fspath(output)
    if target is not None:
        _check_output(source, target)
    name, text = _read(source)
    try:
        parsed = _parsed(text.removeprefix(_BOM), format, keep_elements)
    except MarkupError as error:
        raise error.of_file(name) from error
    translated = _translated(_loaded(run), parsed, options)
    _write(target, _encoded(_BOM * text.startswith(_BOM) + translated.text, text))
    return translated


def _checked(format: str, wanted: WantedOfAll) -> SearchOptions:
    if format not in get_args(DocumentFormat):
        raise ConfigError(f"format = {format!r} must be 'html' or 'xml'")
    options = options_of_all(wanted, "translate_document")
    if options.n_best != 1:
        raise ConfigError(f"n_best = {options.n_best}: a document has one translation")
    return options


def _parsed(text: str, format: DocumentFormat, keep_elements: Collection[str]) -> Document:
    arguments.check_str("document", text)
    keep_elements = arguments.texts("keep_elements", keep_elements)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise MarkupError("is not Unicode text: it has half a surrogate pair", line) from error
    if format == "html":
        return read_html(text, keep=keep_elements)
    return read_xml(text, keep=keep_elements)


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


def _encoded(text: str, source: str) -> bytes:
    """A document's translation as it is read again, whatever encoding the source declares."""
    if source.isascii() and _OTHER_ENCODING.search(source, 0, _HEAD):
        return text.encode("ascii", "xmlcharrefreplace")
    return text.encode()


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


def _read(path: str | None) -> tuple[str, str]:
    """The name and the text of a file, or of standard input. Raises InputError."""
    with open_lines(path) as lines:
        # A byte more than the largest text can have.
        content = lines.read_whole(4 * LARGEST + 1)
        name = lines.name
    try:
        return name, content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{name}:{line}: is not UTF-8 text; convert it with iconv") from error


def _translated(
    translator: Translator, document: Document, options: SearchOptions
) -> TranslatedDocument:
    texts = _texts(translator, document, options)
    lines = [sentence for text in texts for sentence in text.texts]
    translations = list(_searched(translator, lines, options))
    alignments = _alignments(translator, document, texts, translations)
    blanks = has_blanks_between_sentences(translator.tgt_lang)
    contents: list[Raw] = []
    rest = iter(translations)
    for segment, text in zip(document.segments, texts, strict=True):
        outputs = [translation.text for translation in itertools.islice(rest, len(text.texts))]
        aligned = [next(alignments) if segment.needs_alignment else None for _ in outputs]
        contents.append(placed(segment, *joined_and_aligned(text, outputs, aligned, blanks=blanks)))
    return TranslatedDocument(
        text=document.joined(contents),
        texts=len(document.segments),
        sentences=len(lines),
        split=sum(translation.split for translation in translations),
        at_limit=sum(translation.at_limit for translation in translations),
    )


def _texts(
    translator: Translator, document: Document, options: SearchOptions
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
        for segment in document.segments
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
    document: Document,
    texts: Sequence[CodedSentences],
    translations: Sequence[Translation],
) -> Iterator[Alignment]:
    """Those of the sentences of segments that need them."""
    needed = [
        segment.needs_alignment
        for segment, text in zip(document.segments, texts, strict=True)
        for _ in text.texts
    ]
    lines = [line for text in texts for line in text.texts]
    pairs = [
        (line, translator.target_of(translation))
        for line, translation, is_needed in zip(lines, translations, needed, strict=True)
        if is_needed
    ]
    return iter(translator.align(pairs, letters=True) if pairs else ())
