"""How much text there is to train on: pairs, tokens and different words, before any preparation."""

import dataclasses
import itertools

from flaxformer_mt.config.languages import is_written_without_blanks
from flaxformer_mt.config.schema import DataConfig
from flaxformer_mt.config.sizes import TextSize, tokens_of_characters
from flaxformer_mt.data.corpus import Drops, PairSource, open_split
from flaxformer_mt.data.prepare.sample import (
    ENOUGH,
    nothing_left,
    require_decodable,
    sound_records,
    text_bytes,
)

_SAMPLE = 20_000  # pairs read of a corpus whose size is known
_MOST_TYPES = 1_000_000  # different words that are told apart: some 100 MB


@dataclasses.dataclass
class _Tally:
    """Pairs as they are read."""

    without_blanks: tuple[bool, bool]  # source and target language
    types: set[bytes]
    pairs: int = 0
    tokens: int = 0
    size: int = 0  # bytes, with line ends

    def add(self, *sides: bytes) -> None:
        self.pairs += 1
        for text, without_blanks in zip(sides, self.without_blanks, strict=True):
            self.size += len(text) + 1
            if without_blanks:
                self.tokens += max(1, tokens_of_characters(len(text.decode())))
                continue
            words = text.split()
            self.tokens += len(words)
            if len(self.types) < _MOST_TYPES:
                self.types.update(words)


def measured_text(config: DataConfig, split: str = "train") -> TextSize:
    """The size of "train" or "valid" before filters, without sets of TFDS or the hub.

    At most a million pairs of a corpus are read, in seconds; its size in bytes tells about the
    rest. Different words are those of the pairs read, and unknown with a language written without
    blanks. Raises CorpusError, and PrepareError if no pair is left.
    """
    without_blanks = (
        is_written_without_blanks(config.src_lang),
        is_written_without_blanks(config.tgt_lang),
    )
    types, drops = set[bytes](), Drops()
    pairs = tokens = 0.0
    opened = open_split(config, split, without_fetched=True)
    for key, _, source in opened:
        most = ENOUGH if source.size is None else _SAMPLE
        tally, corpus_drops = _Tally(without_blanks, types), Drops()
        for columns in itertools.islice(sound_records(source, corpus_drops), most):
            tally.add(*columns)
        if source.size is None:
            read = tally.pairs + corpus_drops.total
            require_decodable(key, source, read, corpus_drops, config)

        times = _times_read(source, tally, is_whole=tally.pairs < most)
        pairs += times * tally.pairs
        tokens += times * tally.tokens
        drops.merge(corpus_drops)
    if opened and not pairs:
        raise nothing_left(split, [drops])
    return TextSize(
        tokens=round(tokens), pairs=round(pairs), types=0 if any(without_blanks) else len(types)
    )


def _times_read(source: PairSource, tally: _Tally, *, is_whole: bool) -> float:
    """How many times as large as its part that was read a corpus is; 1 if that isn't known."""
    if is_whole or not tally.pairs:
        return 1.0
    if source.size is not None:
        return max(1.0, source.size / tally.pairs)
    total = text_bytes(source)
    return max(1.0, total / tally.size) if total else 1.0
