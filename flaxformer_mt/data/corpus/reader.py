"""A corpus as sentence pairs."""

from __future__ import annotations

from collections.abc import Iterator

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus.pairs import CorpusError, Drops, Pair
from flaxformer_mt.data.corpus.paths import AnyPath
from flaxformer_mt.data.corpus.source import open_source


def read_pairs(
    corpus: CorpusConfig, folder: str = "", *, drops: Drops | None = None, key: str = ""
) -> Iterator[Pair]:
    """The corpus's pairs in order, streaming.

    A pair with invalid UTF-8, a control character, an empty side, or (where a record holds both
    sides) not exactly the two texts is counted in `drops`; without `drops` it raises, for
    corpora such as test sets of which nothing may be left out. A tab inside a sentence is text.
    `key` is the corpus's place in the configuration, for messages.

    Raises:
      CorpusError: a file that is missing, damaged or not what its name says, sides with
        different numbers of lines, or a defective pair where `drops` is None.
    """
    key = key or corpus.name or "corpus"
    source = open_source(corpus, folder, key)
    for line, columns in enumerate(source.records(), 1):
        defect = source.check(columns)
        if defect is None:
            src, tgt = columns
            yield Pair(line, src.decode("utf-8"), tgt.decode("utf-8"))
        elif drops is None:
            raise CorpusError(
                f"{defect.file}:{line}: {defect.reason}: {defect.detail} ({key}); no pair of this "
                f"corpus may be left out: correct the line"
            )
        else:
            drops.add(defect.reason, file=defect.file, line=line, detail=defect.detail)


def files(corpus: CorpusConfig, folder: str = "", *, key: str = "") -> dict[str, AnyPath]:
    """The files of a corpus by setting name, existence checked; none for the built-in grammar.

    Nothing is made for it: a TFDS set that is not prepared counts as missing.

    Raises:
      CorpusError: a setting is empty or its file is missing; the message names the setting.
    """
    return dict(open_source(corpus, folder, key, make=False).files)
