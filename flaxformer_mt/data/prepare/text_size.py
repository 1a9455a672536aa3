"""How much text there is to train on: pairs, tokens and different words, before any preparation."""

import dataclasses
import itertools
import re

import regex

from flaxformer_mt.config.languages import UNSPACED_LETTER, is_written_without_blanks
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
# Scripts written without blanks between words. Text of them may stand on a side of another language
# too: in a mixture of several, or where the language is assumed.
_UNSPACED = regex.compile(UNSPACED_LETTER)
_FIRST_BYTES = re.compile(rb"[\xe0\xe1\xe3-\xe9\xf0]")  # of nearly all of them: found much faster
_MUCH_UNSPACED = 0.25  # of the tokens: with more, words between blanks say nothing of the types


@dataclasses.dataclass
class _Tally:
    """Pairs as they are read."""

    without_blanks: tuple[bool, bool]  # source and target language
    types: set[bytes]
    pairs: int = 0
    tokens: int = 0
    unspaced: int = 0  # of the tokens: those of text without blanks on a side of another language
    size: int = 0  # bytes, with line ends

    def add(self, *sides: bytes) -> None:
        self.pairs += 1
        for text, without_blanks in zip(sides, self.without_blanks, strict=True):
            self.size += len(text) + 1
            if without_blanks:
                self.tokens += max(1, tokens_of_characters(len(text.decode())))
                continue
            words, unspaced = _words(text)
            self.tokens += len(words) + unspaced
            self.unspaced += unspaced
            if len(self.types) < _MOST_TYPES:
                self.types.update(words)


def _words(text: bytes) -> tuple[list[bytes], int]:
    """The words between blanks, without characters of unspaced scripts, and how many tokens these
    characters are."""
    if _FIRST_BYTES.search(text) is None:
        return text.split(), 0
    spaced, characters = _UNSPACED.subn("", text.decode())
    return spaced.encode().split(), tokens_of_characters(characters)


def measured_text(config: DataConfig, split: str = "train") -> TextSize:
    """The size of "train" or "valid" before filters, without sets of TFDS or the hub.

    At most a million pairs of a corpus are read, in seconds; its size in bytes tells about the
    rest. Different words are those of the pairs read, and unknown with text written without blanks.
    Raises CorpusError, and PrepareError if no pair is left.
    """
    types, drops = set[bytes](), Drops()
    pairs = tokens = unspaced = 0.0
    is_blankless = False
    opened = open_split(config, split, without_fetched=True)
    for key, _, source in opened:
        most = ENOUGH if source.size is None else _SAMPLE
        src_lang, tgt_lang = source.languages
        without_blanks = is_written_without_blanks(src_lang), is_written_without_blanks(tgt_lang)
        is_blankless = is_blankless or any(without_blanks)
        tally, corpus_drops = _Tally(without_blanks, types), Drops()
        for columns in itertools.islice(sound_records(source, corpus_drops), most):
            tally.add(*columns)
        if source.size is None:
            read = tally.pairs + corpus_drops.total
            require_decodable(key, [source], read, corpus_drops)

        times = _times_read(source, tally, corpus_drops.total, is_whole=tally.pairs < most)
        pairs += times * tally.pairs
        tokens += times * tally.tokens
        unspaced += times * tally.unspaced
        drops.merge(corpus_drops)
    if opened and not pairs:
        raise nothing_left(split, [drops])
    has_types = not is_blankless and unspaced <= _MUCH_UNSPACED * tokens
    return TextSize(tokens=round(tokens), pairs=round(pairs), types=len(types) if has_types else 0)


def _times_read(source: PairSource, tally: _Tally, dropped: int, *, is_whole: bool) -> float:
    """How many times as large as its part that was read a corpus is."""
    if is_whole or not tally.pairs:
        return 1.0
    if source.size is not None:
        return max(1.0, source.size / tally.pairs)
    total = text_bytes(source)
    if total is not None:
        return max(1.0, total / tally.size)
    # Files that hold more than the texts: their bytes tell little.
    records = sum(1 for read in source.readers for _ in read())
    return max(1.0, records / (tally.pairs + dropped))
