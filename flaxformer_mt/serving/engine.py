"""What the model's thread does: batches of sentences and of attention requests, compiled before."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32

from flaxformer_mt.decoding.alignment import Alignment
from flaxformer_mt.decoding.decode import DecodingError
from flaxformer_mt.decoding.segments import OverlongError, TargetError
from flaxformer_mt.decoding.translation import Translation
from flaxformer_mt.serving.model_info import ServedTranslator
from flaxformer_mt.serving.requests import AttentionRequest

WIDE_BATCH = 4  # sentences of an n-best batch: the page's requests, which are few and short
STEP = 4  # from one size of batch to the next; as many times fewer rows a search goes down to
# Pairs are aligned so many at a time, padded by repetition: one pass is cheap, compiling is not.
ALIGNED_TOGETHER = 8


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence to translate; the `aligned` best translations get word alignments.

    The model reads `code` before the text, which does not hold it.
    """

    text: str
    aligned: int = 0
    code: str = ""

    @property
    def read(self) -> str:
        return f"{self.code} {self.text}" if self.code else self.text


@dataclasses.dataclass(frozen=True)
class Translated:
    """A sentence's translations, and an alignment for each that asked for one and can have one."""

    source: str
    translation: Translation
    alignments: tuple[Alignment | None, ...]
    code: str = ""  # that was put before the source


@dataclasses.dataclass(frozen=True)
class Attended:
    """One layer's attention and nothing else of what the model gave: all of it can be many times
    as large, and answers wait to be written."""

    translation: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    layers: int
    weights: Float32[np.ndarray, "heads rows columns"]


@dataclasses.dataclass(frozen=True)
class Search:
    """Key of sentences that can be searched together."""

    n_best: int


@dataclasses.dataclass(frozen=True)
class Attend:
    """Key of attention requests."""


class PairRefused(ValueError):
    """Texts whose attention the model cannot give; the message is for the client."""


class Engine:
    """Runs batches on a translator; used from the model's thread alone.

    A search for n hypotheses is another compiled program for each n. Two are enough: the best one,
    and `widest`, of which a request for fewer takes its part (the search is the same). Where the
    search is `diverse`, n are one of each group in turn, not the n best of more, and each n is a
    program. For the same reason batches have few sizes, 1, 4, 16 ... and are filled up by
    repetition.
    """

    def __init__(
        self, translator: ServedTranslator, *, widest: int, largest: int, diverse: bool = False
    ) -> None:
        self.translator = translator
        self.widest, self._largest, self._diverse = widest, largest, diverse

    def key_of(self, n_best: int) -> Search:
        return Search(n_best if n_best == 1 or self._diverse else self.widest)

    def searches(self) -> list[Search]:
        """Every one that requests can come to need."""
        return list(dict.fromkeys(self.key_of(n_best) for n_best in range(1, self.widest + 1)))

    def sizes(self, key: Hashable) -> list[int]:
        """The sizes of batches, from 1 on."""
        if isinstance(key, Attend):
            return [1]
        wide = isinstance(key, Search) and key.n_best > 1
        largest = min(self._largest, WIDE_BATCH) if wide else self._largest
        sizes = [1]
        while sizes[-1] < largest:
            sizes.append(min(STEP * sizes[-1], largest))
        return sizes

    def take(self, key: Hashable, waiting: int) -> int:
        """How many of those that wait to take: all, unless most of the batch would be filling."""
        sizes = self.sizes(key)
        fitting = [size for size in sizes if size <= waiting]
        return max([fitting[-1], *(min(size, waiting) for size in sizes if size <= 2 * waiting)])

    def run(self, key: Hashable, items: Sequence[Any]) -> Sequence[Any]:
        """The results of one batch. Raises PairRefused, DecodingError and what devices raise."""
        if isinstance(key, Search):
            return self._translate(key, items)
        return [self._attend(item) for item in items]

    def compile(
        self, key: Search, texts: Sequence[str], *, longest: str
    ) -> frozenset[tuple[int, int]]:
        """All that a batch of so many sentences may need, those as long as `longest` among them.

        Returns the shapes of its searches, (rows, source length).
        """
        filled = self._filled(key, texts)
        return self.translator.compile(filled, n_best=key.n_best, longest=longest)

    def _filled(self, key: Search, texts: Sequence[str]) -> list[str]:
        size = min(size for size in self.sizes(key) if size >= len(texts))
        return [*texts, *[texts[-1]] * (size - len(texts))]

    def _translate(self, key: Search, sentences: Sequence[Sentence]) -> list[Translated]:
        texts = [sentence.read for sentence in sentences]
        filled = self._filled(key, texts)
        found = self.translator.translate(filled, n_best=key.n_best)[: len(texts)]
        pairs, places = [], []
        alignments: list[list[Alignment | None]] = []
        for number, (sentence, translation) in enumerate(zip(sentences, found, strict=True)):
            hypotheses = translation.hypotheses[: sentence.aligned]
            alignments.append([None] * len(hypotheses))
            if translation.split:
                continue  # translated in pieces: the model has never seen it whole
            for place, hypothesis in enumerate(hypotheses):
                if hypothesis.text.strip():
                    pairs.append((sentence.read, hypothesis.text))
                    places.append((number, place))
        for (number, place), alignment in zip(places, self.align(pairs), strict=True):
            alignments[number][place] = _without_code(alignment, sentences[number].code)
        return [
            Translated(sentence.text, translation, tuple(aligned), sentence.code)
            for sentence, translation, aligned in zip(sentences, found, alignments, strict=True)
        ]

    def align(self, pairs: Sequence[tuple[str, str]]) -> list[Alignment | None]:
        """Alignments; None for a pair that the model cannot take whole."""
        aligned: list[Alignment | None] = []
        for start in range(0, len(pairs), ALIGNED_TOGETHER):
            some = list(pairs[start : start + ALIGNED_TOGETHER])
            padding = [some[-1]] * (ALIGNED_TOGETHER - len(some))
            aligned += _each_that_can(self.translator.align, [*some, *padding])[: len(some)]
        return aligned

    def _attend(self, asked: AttentionRequest) -> Attended:
        translation = asked.translation
        try:
            if translation is None:
                (own,) = self.translator.translate([asked.text], overlong="refuse")
                translation = own.text
            found = self.translator.attend(asked.text, translation)
        except (OverlongError, TargetError) as error:
            raise PairRefused(str(error)) from error
        weights = getattr(found, asked.kind)
        return Attended(
            translation=translation,
            rows=found.src_pieces if asked.kind == "encoder" else found.tgt_pieces,
            columns=found.tgt_inputs if asked.kind == "decoder" else found.src_pieces,
            layers=len(weights),
            weights=weights[asked.layer].copy(),
        )


def _without_code(alignment: Alignment | None, code: str) -> Alignment | None:
    """In the words of the sentence itself."""
    if alignment is None or not code or alignment.src_words[:1] != (code,):
        return alignment
    return dataclasses.replace(
        alignment,
        src_words=alignment.src_words[1:],
        links=tuple((source - 1, target) for source, target in alignment.links if source),
    )


def _each_that_can(
    align: Callable[[Sequence[tuple[str, str]]], Sequence[Alignment]],
    pairs: Sequence[tuple[str, str]],
) -> list[Alignment | None]:
    try:
        return list(align(pairs))
    except DecodingError:
        if len(pairs) == 1:
            return [None]
        # An output may be longer than what can be forced through the model again.
        return [each for pair in pairs for each in _each_that_can(align, [pair])]


# --- before the first request ---------------------------------------------------------------------

Progress = Callable[[int, int, str], None]  # steps done, of how many, what the last one was
Programs = tuple[Search, frozenset[tuple[int, int]]]  # a search, and the shapes of its batches
Step = tuple[str, Callable[[], Programs | None]]


def warm_up(engine: Engine, *, words: int, progress: Progress) -> None:
    """Runs batches of every size that there will be, with sentences of up to about `words` words.

    Decoding has few shapes: its lengths are powers of two or one and a half of them. The
    sentences repeat a short word of one to three tokens, 5, 7, 11, 15, 23, 31 ... times, and so
    meet each of these lengths. Which programs a search comes to need depends on which of its
    sentences end when, so that running it is not enough: all of them are compiled first. What is
    longer compiles when it comes, and so may a sentence that the model takes in pieces, beside
    others. Where one sentence has the shape that one of another length had, batches of that length
    are left out.
    """
    powers = [2**power for power in range(2, 20)]
    every = sorted({n - 1 for power in powers for n in (power * 3 // 2, power * 2)})
    lengths = [length for length in every if words and length < words * 3 / 2]
    done = 0
    # The longest first: what does not fit into memory should show before anyone waits.
    groups = [group for n in reversed(lengths) for group in _groups(engine, n, lengths[-1])]
    count = sum(map(len, groups))
    met: set[Programs | None] = set()
    for number, group in enumerate(groups):
        for place, (what, step) in enumerate(group):
            start = time.perf_counter()
            programs = None
            try:
                programs = step()
            except PairRefused:
                what += ": longer than the model takes"
            done += 1
            progress(done, count, f"{what}, {time.perf_counter() - start:.1f} s")
            # By the shape, not by whether anything was compiled: another model of this process may
            # have needed the same programs for one sentence, and none of those for more.
            if place == 0 and programs in met:
                break
            met.add(programs)
        done = sum(map(len, groups[: number + 1]))


def _groups(engine: Engine, length: int, longest: int) -> list[list[Step]]:
    """What is to be run for sentences of one length, the smallest batch of a kind first."""
    text = _text(length)

    def align() -> None:
        engine.align([(text, text)])

    def attend() -> None:
        engine.run(Attend(), [AttentionRequest(text=text, translation=text, layer=0)])

    return [
        *(
            # One sentence, then the largest batch, then those between.
            [_search(engine, key, length, size, longest) for size in (1, *engine.sizes(key)[:0:-1])]
            for key in engine.searches()
        ),
        [(f"alignment of {length} words", align)],
        [(f"attention of {length} words", attend)],
    ]


def _search(engine: Engine, key: Search, length: int, size: int, longest: int) -> Step:
    texts = [_text(length)] * size

    def step() -> Programs:
        shapes = engine.compile(key, texts, longest=_text(longest))
        engine.run(key, [Sentence(text) for text in texts])
        return key, shapes

    return f"{size} x {length} words, {key.n_best}-best", step


def _text(words: int) -> str:
    return " ".join(["a"] * words)
