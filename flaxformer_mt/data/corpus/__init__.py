"""Reading parallel text: from files, JSON lines, stored records, TFDS, the hub and the grammar.

Readers neither filter nor tokenise; they give every pair that is sound, and account for the rest.
"""

from flaxformer_mt.data.corpus.pairs import (
    EMPTY_SIDE as EMPTY_SIDE,
    EXAMPLES as EXAMPLES,
    CorpusError as CorpusError,
    CorpusRecord as CorpusRecord,
    Defect as Defect,
    Drops as Drops,
    NoText as NoText,
    Pair as Pair,
    PairSource as PairSource,
    checked as checked,
    weight_of as weight_of,
)
from flaxformer_mt.data.corpus.source import (
    open_source as open_source,
    open_sources as open_sources,
    open_split as open_split,
    read_pairs as read_pairs,
)
from flaxformer_mt.data.corpus.text_files import (
    LinePlace as LinePlace,
    require_equal as require_equal,
)
