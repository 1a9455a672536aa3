"""Reading parallel text: from files, JSON lines, stored records, TFDS and the built-in grammar.

Readers neither filter nor tokenise; they give every pair that is sound, and account for the rest.
"""

from flaxformer_mt.data.corpus.pairs import (
    COLUMNS,
    CONTROL_CHARACTER,
    EMPTY_SIDE,
    INVALID_UTF8,
    MALFORMED_JSON,
    NO_TEXT,
    CorpusError,
    Defect,
    Drops,
    Example,
    Pair,
)
from flaxformer_mt.data.corpus.reader import files, read_pairs
from flaxformer_mt.data.corpus.source import Source, open_source

__all__ = [
    "COLUMNS",
    "CONTROL_CHARACTER",
    "EMPTY_SIDE",
    "INVALID_UTF8",
    "MALFORMED_JSON",
    "NO_TEXT",
    "CorpusError",
    "Defect",
    "Drops",
    "Example",
    "Pair",
    "Source",
    "files",
    "open_source",
    "read_pairs",
]
