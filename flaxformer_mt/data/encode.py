"""One corpus from text to the store: encoded, filtered, and every pair accounted for."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from flaxformer_mt.config.schema import CorpusConfig, FilterConfig
from flaxformer_mt.data import corpus as corpora, filters
from flaxformer_mt.data.corpus import Drops, Pair
from flaxformer_mt.data.store import StoreWriter
from flaxformer_mt.data.vocabulary import Vocabularies

CHUNK = 20_000
"""Pairs read and encoded at a time."""

VALID_TEXT = ("valid.src.txt", "valid.tgt.txt")
_REPORT_EVERY = 500_000


@dataclasses.dataclass(frozen=True)
class Encoder:
    """What all corpora of a store share."""

    vocabularies: Vocabularies
    writer: StoreWriter
    filter: FilterConfig
    folder: str
    """In which relative paths of corpora stand."""
    directory: Path
    """The store's folder: validation sentences are kept there as text too."""
    report: Callable[[str], None]

    def encode_corpus(self, split: str, key: str, corpus: CorpusConfig) -> dict[str, Any]:
        """Read, encode, filter and store a corpus; its account for the manifest."""
        drops = Drops()
        kept = sound = 0
        paths = list(corpora.files(corpus, self.folder, key=key).values())
        file = str(paths[0]) if paths else f"{key} (built-in grammar)"
        pairs = corpora.read_pairs(corpus, self.folder, drops=drops, key=key)
        while chunk := list(itertools.islice(pairs, CHUNK)):
            if split == "valid":
                self._write_text(chunk)
            src = self.vocabularies.src.encode([pair.src for pair in chunk])
            tgt = self.vocabularies.tgt.encode([pair.tgt for pair in chunk])
            keep = self._filter(split, chunk, src, tgt, drops, file)
            self.writer.append(
                split, list(itertools.compress(src, keep)), list(itertools.compress(tgt, keep))
            )
            kept += int(keep.sum())
            if (sound + len(chunk)) // _REPORT_EVERY > sound // _REPORT_EVERY:
                self.report(f"prepare: {key}: {sound + len(chunk):,} pairs encoded")
            sound += len(chunk)
        self.report(
            f"prepare: {key}: {kept + drops.total:,} pairs read, {kept:,} kept"
            + (f", dropped: {drops.describe()}" if drops.total else "")
        )
        return {
            "key": key,
            "split": split,
            "read": kept + drops.total,
            "kept": kept,
            "dropped": drops.counts,
            "examples": [dataclasses.asdict(example) for example in drops.examples],
        }

    def _filter(
        self,
        split: str,
        chunk: list[Pair],
        src: list[list[int]],
        tgt: list[list[int]],
        drops: Drops,
        file: str,
    ) -> Bool[np.ndarray, " pairs"]:
        """Which pairs of a chunk are stored; the others are counted, each for one reason.

        The ratio is no concern of validation: it cleans what is learned from, and a
        validation pair is left out only where the model cannot take it.
        """
        src_lengths = np.fromiter((len(tokens) + 1 for tokens in src), np.int64, len(src))
        tgt_lengths = np.fromiter((len(tokens) + 1 for tokens in tgt), np.int64, len(tgt))
        # U+2581 reads as a blank, so that a side made of it alone has no tokens.
        void = np.minimum(src_lengths, tgt_lengths) == 1
        long = filters.too_long(src_lengths, tgt_lengths, self.filter) & ~void
        uneven = filters.uneven(src_lengths, tgt_lengths, self.filter) & ~void & ~long
        if split == "valid":
            uneven[:] = False
        for reason, dropped in (
            (corpora.EMPTY_SIDE, void),
            (filters.TOO_LONG, long),
            (filters.LENGTH_RATIO, uneven),
        ):
            for number in np.flatnonzero(dropped):
                detail = f"{src_lengths[number]} source and {tgt_lengths[number]} target tokens"
                drops.add(reason, file=file, line=chunk[number].line, detail=detail)
        return ~(void | long | uneven)

    def _write_text(self, chunk: list[Pair]) -> None:
        sides = ([pair.src for pair in chunk], [pair.tgt for pair in chunk])
        for name, sentences in zip(VALID_TEXT, sides, strict=True):
            with open(self.directory / name, "ab") as stream:
                stream.write("".join(f"{sentence}\n" for sentence in sentences).encode("utf-8"))
