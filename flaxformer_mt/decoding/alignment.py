"""Which word of a translation comes of which word of its source, by the decoder's attention.

The weights of all heads of one layer of the decoder over the source are averaged, those of a
word's pieces summed, and each target word is aligned to the source word with the largest sum
(Garg et al., 2019, "Jointly Learning to Align and Translate with Transformer Models",
arXiv 1909.02074, whose baseline this is: the last layer but one aligns best there).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float, Int

from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.decoding.attention import cross_weights
from flaxformer_mt.decoding.parts import Part
from flaxformer_mt.model import Transformer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alignment:
    """Words, and pairs (source word, target word) of their indices from 0, by target word.

    Each target word is in one pair, but for those that have no token of their own and those of a
    source without words.
    """

    src_words: tuple[str, ...]
    tgt_words: tuple[str, ...]
    links: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        """The form of the Pharaoh decoder, "0-0 1-2", by source word."""
        return " ".join(f"{src}-{tgt}" for src, tgt in sorted(self.links))


def align_parts(
    params: Mapping[str, Any],
    model: Transformer,
    vocabularies: Vocabularies,
    lines: Sequence[tuple[str, str | None, Sequence[Part]]],
    *,
    layer: int,
    batch_tokens: int,
    mesh: Mesh,
) -> list[Alignment]:
    """The alignment of each line: its source, its translation (None: that of its parts), its parts.

    `params` are on all devices of `mesh`, which share the rows of a batch.
    """
    parts = list(itertools.chain.from_iterable(of for _, _, of in lines))
    weights = iter(
        cross_weights(params, model, parts, layer=layer, batch_tokens=batch_tokens, mesh=mesh)
    )
    aligned = []
    for source, target, of in lines:
        if target is None:
            target = "".join(part.tgt_text + part.glue for part in of)
        aligned.append(_align(source, target, of, [next(weights) for _ in of], vocabularies))
    return aligned


def _align(
    source: str,
    target: str,
    parts: Sequence[Part],
    weights: Sequence[Float[np.ndarray, "tgt src"]],
    vocabularies: Vocabularies,
) -> Alignment:
    src, tgt = _Words(source), _Words(target)
    of_words = np.zeros((len(tgt.texts), len(src.texts)))
    for part, of_pieces in zip(parts, weights, strict=True):
        lead = len(part.src_lead.encode())
        src_spans = [
            (begin - lead, end - lead)
            for begin, end in vocabularies.src.encode_with_spans(part.src_lead + part.src_text)[1]
        ]
        tgt_spans = (
            vocabularies.tgt.decode_with_spans(part.tgt)[1]
            if part.tokens_given
            else vocabularies.tgt.encode_with_spans(part.tgt_text)[1]
        )
        columns, rows = (
            src.of_pieces(part.src_text, src_spans),
            tgt.of_pieces(part.tgt_text, tgt_spans),
        )
        # The end marks are of no word: what goes to them is left out.
        inner = of_pieces[: len(rows), : len(columns)][rows >= 0][:, columns >= 0]
        np.add.at(of_words, (rows[rows >= 0][:, None], columns[columns >= 0][None]), inner)
    links = [(int(of_words[word].argmax()), word) for word in np.flatnonzero(of_words.any(axis=1))]
    return Alignment(
        src_words=src.texts,
        tgt_words=tgt.texts,
        links=tuple((word, int(tgt_word)) for word, tgt_word in links),
    )


class _Words:
    """The words of a line, and to which of them the pieces of its parts belong."""

    def __init__(self, line: str) -> None:
        self.texts = tuple(line.split())
        self._line = line
        self._after = 0  # characters of the line up to the end of the last part
        # The word at each byte; at a blank the next one, whose piece may begin there.
        self._of_bytes: list[int] = []
        word, blank = -1, True
        for character in line:
            word += blank and not character.isspace()
            blank = character.isspace()
            self._of_bytes += [word + blank] * len(character.encode())

    def of_pieces(self, part: str, spans: Sequence[tuple[int, int]]) -> Int[np.ndarray, " pieces"]:
        """The word of each piece of the line's next part, by their spans there; -1: of none.

        Pieces that begin before the part are of none.
        """
        start = self._line.index(part, self._after)
        self._after = start + len(part)
        before = len(self._line[:start].encode())
        words = np.array([*self._of_bytes, len(self.texts)], np.int64)
        begins = np.array([begin for begin, _ in spans], np.int64)
        found = words[before + np.maximum(begins, 0)]
        return np.where((begins >= 0) & (found < len(self.texts)), found, -1)
