"""The built-in corpus: pairs of English and German sentences from a synchronous grammar.

A stream of pairs is a pure function of (split, seed). A source has one translation, so a perfect
model scores 100 BLEU.

The splits share every lemma, word form and construction, but not their combinations
(`splits.py`): each test or validation sentence has a (lemma, construction) that neither
other split shows, so no sentence is in two splits.
"""

import hashlib
import random
from collections.abc import Iterator
from typing import NamedTuple

from flaxformer_mt.grammar.clauses import Combination
from flaxformer_mt.grammar.sentences import SentenceSampler
from flaxformer_mt.grammar.splits import (
    SPLITS as SPLITS,
    Split as Split,
    assignments,
)

SHORTEST, LONGEST = 3, 35  # words of a side; shorter and longer sentences are drawn again


class Derivation(NamedTuple):
    """A pair and the combinations that it shows."""

    src: str
    tgt: str
    shown: tuple[Combination, ...]


def derivations(
    split: Split, size: int, seed: int = 0, *, sampled_by: type[SentenceSampler] = SentenceSampler
) -> Iterator[Derivation]:
    """`size` derivations of a split, lazily; a longer stream begins with the shorter one. A
    subclass of the sampler may mark the words of phrases, if it changes no choice."""
    digest = hashlib.blake2b(f"{split}|{seed}".encode(), digest_size=8).digest()
    sampler = sampled_by(random.Random(int.from_bytes(digest, "big")), split)
    split_of = assignments()
    while size > 0:
        sentence = sampler.sentence()
        if split != "train" and not any(
            split_of[combination] == split for combination in sentence.shown
        ):
            continue
        src, tgt = sentence.english, sentence.german
        lengths = src.count(" ") + 1, tgt.count(" ") + 1
        if SHORTEST <= min(lengths) and max(lengths) <= LONGEST:
            yield Derivation(src, tgt, sentence.shown)
            size -= 1


def pairs(split: Split, size: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """`size` (English, German) sentence pairs of a split; raises as `derivations` does."""
    return ((src, tgt) for src, tgt, _ in derivations(split, size, seed))
