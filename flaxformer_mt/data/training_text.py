"""What a store's manifest says about training text, for those who use the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from flaxformer_mt.data.store import TokenPairs
from flaxformer_mt.data.vocabulary import Vocabulary
from flaxformer_mt.sentences import split_sentences

SAMPLE = 10_000  # training lines whose sentences are counted
_MOST = 100  # sentences: longer lines count as so many
# Of lines of n sentences or more, a model has learnt to translate all, and not only the first, if
# they are at least this share of its training text.
KNOWN_SHARE = 0.02
JUDGED_FROM = 8  # tokens of a source whose output may be too short


def sentence_counts(
    pairs: TokenPairs, vocabulary: Vocabulary, languages: Mapping[str, str]
) -> dict[str, Any]:
    """For a manifest: the sentences of up to `SAMPLE` sources, evenly over the pairs.

    `lines` is how many were looked at, and `by_sentences` maps a number of sentences, as text, to
    how many lines have it. `languages` (codes, by corpus) decide where sentences end.
    """
    chosen = np.unique(np.linspace(0, len(pairs) - 1, min(SAMPLE, len(pairs))).round().astype(int))
    side = pairs.sides["src"]
    ends = np.cumsum(side.lengths(chosen))
    sources = np.split(side.gather(chosen), ends[:-1])
    firsts = [corpus.first for corpus in pairs.corpora]
    places = np.searchsorted(firsts, chosen, "right") - 1
    counts: dict[str, int] = {}
    texts = vocabulary.decode([source.tolist() for source in sources])
    for place, text in zip(places.tolist(), texts, strict=True):
        language = languages[pairs.corpora[place].name]
        # An unknown token reads "⁇", which would end a sentence.
        sentences = len(split_sentences(text.replace("⁇", "x"), language).texts)
        sentences = min(max(1, sentences), _MOST)
        counts[str(sentences)] = counts.get(str(sentences), 0) + 1
    return {"lines": len(chosen), "by_sentences": dict(sorted(counts.items(), key=_number))}


def _number(entry: tuple[str, int]) -> int:
    return int(entry[0])


@dataclasses.dataclass(frozen=True)
class TrainingText:
    """What a manifest says about the lines of training text."""

    together: int | None  # sentences of a line that its model reads together; None: not recorded
    length_ratio: float | None  # target tokens for each source token; None: not recorded

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> TrainingText:
        """Raises KeyError and the like for a damaged manifest."""
        ratio = None
        if "lengths" in manifest:  # early manifests lack them
            lengths = manifest["lengths"]["train"]
            ratio = lengths["tgt"]["tokens"] / max(1, lengths["src"]["tokens"])
        return cls(together=_together(manifest.get("sentences")), length_ratio=ratio)

    def is_short(self, output: int, source: int) -> bool:
        """Whether an output of so many tokens, for a source of so many, is less than a third as
        long as usual; of a short source every output is long enough."""
        if self.length_ratio is None or source < JUDGED_FROM:
            return False
        return 3 * output < self.length_ratio * source


def _together(counted: Mapping[str, Any] | None) -> int | None:
    if counted is None:  # of an earlier version
        return None
    together = 1
    for sentences in range(2, _MOST + 1):
        lines = sum(
            count for number, count in counted["by_sentences"].items() if int(number) >= sentences
        )
        if lines < KNOWN_SHARE * counted["lines"]:
            break
        together = sentences
    return together
