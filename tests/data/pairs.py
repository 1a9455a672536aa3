"""Pairs in memory, and what they hold; a text to train small vocabularies on."""

import io
import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import sentencepiece

from flaxformer_mt.data.order import StoredCorpus
from flaxformer_mt.data.store import TokenPairs, Tokens
from flaxformer_mt.data.vocabulary import EOS

TOY = [
    f"{who} {verb} {what} ."
    for who in ("the cat", "a small dog", "die Frau", "der Mann")
    for verb in ("sees", "likes", "kauft", "verliert")
    for what in ("a house", "the green tree", "zwei Bücher", "<s> & </s>")
]


def tokens(sentences: Sequence[Sequence[int]]) -> Tokens:
    """Token ids without marks; the end mark is added."""
    ended = [[*sentence, EOS] for sentence in sentences]
    offsets = np.cumsum([0, *map(len, ended)], dtype=np.int64)
    return Tokens(np.array([*itertools.chain(*ended)], np.uint32), offsets)


def in_memory(src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]) -> TokenPairs:
    return TokenPairs([tokens(src)], [tokens(tgt)])


def of_lengths(src: Iterable[int], tgt: Iterable[int], *parts: StoredCorpus) -> TokenPairs:
    """Pairs of these lengths, end marks included."""
    sides = [tokens([[5] * (int(length) - 1) for length in side]) for side in (src, tgt)]
    return TokenPairs([sides[0]], [sides[1]], parts)


def listed(pairs: TokenPairs, side: str) -> list[list[int]]:
    """All of one side, with their end marks."""
    of_side = pairs.sides[side]
    return [of_side.gather(np.array([number])).tolist() for number in range(len(of_side))]


def sentencepiece_model(sentences: Iterable[str], **settings: object) -> bytes:
    """Trained without this program: its own ids are the usual ones, <unk> 0, <s> 1, </s> 2."""
    model = io.BytesIO()
    arguments = {"sentence_iterator": iter(sentences), "model_writer": model, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(**arguments, **settings)
    return model.getvalue()
