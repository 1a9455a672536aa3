"""The model thread's work: batches of sentences and attention requests, precompiled."""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flaxformer_mt.attention.weights import Picked, pick
from flaxformer_mt.decoding.alignment import Alignment
from flaxformer_mt.decoding.constraints.terminology import Terminology
from flaxformer_mt.decoding.errors import DecodingError, LineError, OverlongError, TargetError
from flaxformer_mt.decoding.options import PLAIN_LINE, SearchOptions
from flaxformer_mt.decoding.run.arrays import ConstraintSizes
from flaxformer_mt.decoding.text.translation import Translation
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.serving.access import Refusal, bad_request, shown
from flaxformer_mt.serving.requests import AttentionRequest

# Sentences of an n-best batch, or of one with terms, for the page's few and short requests.
WIDE_BATCH = 4
STEP = 4  # factor between batch sizes, and by which rows of a search on a CPU shrink
# Sizes to which arrays of terms and forbidden phrases are padded. Programs for the first are
# compiled beforehand. Those for the second take five times as long, and are compiled when a request
# needs them.
CONSTRAINT_SIZES = (ConstraintSizes(4, 8, 256), ConstraintSizes(16, 32, 2048))
# Pairs aligned at a time, padded by repetition: a pass is cheap, compiling isn't.
ALIGNED_TOGETHER = 8


class Key(NamedTuple):
    """Sentences with the same key can be searched together."""

    n_best: int
    terms: tuple[tuple[str, str], ...] = ()
    forbid: tuple[str, ...] = ()
    keep: bool = True

    @property
    def constrained(self) -> bool:
        return bool(self.terms or self.forbid)


ATTENTION = Key(0)


@dataclasses.dataclass(frozen=True)
class QueuedSentence:
    """A sentence to translate; the `aligned` best translations get alignments of words, or with
    `letters` of letters in scripts without blanks.

    The model reads `code`, which isn't in the text, before it. `languages` are its source's and its
    translation's, if they aren't the translator's own.
    """

    text: str
    aligned: int = 0
    letters: bool = False
    code: str = ""
    languages: tuple[str, str] | None = None

    @property
    def read(self) -> str:
        return f"{self.code} {self.text}" if self.code else self.text


@dataclasses.dataclass(frozen=True)
class Translated:
    """A sentence's translations, with an alignment for each that needs one, if possible."""

    sentence: QueuedSentence
    translation: Translation
    alignments: list[Alignment | None]


# A translation and a copy of one layer's attention: all layers would take many times the memory
# while answers queue.
Attended = tuple[str, Picked]


class Engine:
    """Runs batches on a translator; used only by the model's thread.

    Each number of hypotheses is another compiled program, so there are two: for the best one, and
    for `widest`, from which requests for fewer take a part (unless the search is `diverse`, which
    has one for each). For the same reason batches have few sizes, 1, 4, 16 ..., and are filled by
    repetition.
    """

    def __init__(
        self, translator: Translator, *, widest: int, largest: int, diverse: bool = False
    ) -> None:
        self.translator = translator
        self._others: dict[bool, Translator] = {}  # by whether they keep URLs and so on
        self.widest, self._largest, self._diverse = widest, largest, diverse

    def key_of(
        self,
        n_best: int,
        terms: Mapping[str, str] | None = None,
        forbid: Sequence[str] = (),
        *,
        keep: bool = True,
    ) -> Key:
        searched = n_best if n_best == 1 or self._diverse else self.widest
        return Key(searched, tuple((terms or {}).items()), tuple(forbid), keep)

    def searches(self) -> list[Key]:
        """The keys that requests without terms and forbidden phrases may need."""
        return list(dict.fromkeys(self.key_of(n_best) for n_best in range(1, self.widest + 1)))

    def sizes(self, key: Key) -> list[int]:
        if key == ATTENTION:
            return [1]
        few = key.n_best > 1 or key.constrained
        largest = min(self._largest, WIDE_BATCH) if few else self._largest
        sizes = [1]
        while sizes[-1] < largest:
            sizes.append(min(STEP * sizes[-1], largest))
        return sizes

    def take(self, key: Key, waiting: int) -> int:
        """How many of the waiting sentences or requests to take: all, unless repetitions would
        fill most of the batch."""
        sizes = self.sizes(key)
        fitting = [size for size in sizes if size <= waiting]
        return max([fitting[-1], *(min(size, waiting) for size in sizes if size <= 2 * waiting)])

    def run(self, key: Key, items: Sequence[Any]) -> Sequence[Any]:
        """A batch's answers: Translated for sentences, Attended for AttentionRequests.

        Raises Refusal for a pair that is too long, and for terms and forbidden phrases that the
        search can't satisfy.
        """
        if key == ATTENTION:
            return [*map(self._attend, items)]
        return self._translate(key, items)

    def prepare(
        self, key: Key, texts: Sequence[str], *, longest: str
    ) -> frozenset[tuple[int, int]]:
        """Compiles and runs a batch of this many sentences of up to the length of `longest`; with
        terms, compiles alone. Returns the shapes of its searches, (rows, source length)."""
        filled = self._filled(key, texts)
        if key.constrained:
            return self.translator.compile(
                filled, n_best=key.n_best, longest=longest, constraint_sizes=CONSTRAINT_SIZES[:1]
            )
        shapes = self.translator.compile(filled, n_best=key.n_best, longest=longest)
        self.run(key, [*map(QueuedSentence, texts)])
        return shapes

    def _filled(self, key: Key, texts: Sequence[str]) -> list[str]:
        if self.translator.runtime is not None:
            return list(texts)  # it compiles nothing for a size
        size = min(size for size in self.sizes(key) if size >= len(texts))
        return [*texts, *[texts[-1]] * (size - len(texts))]

    def _translate(self, key: Key, sentences: Sequence[QueuedSentence]) -> list[Translated]:
        translations = self._searched(key, sentences)
        batch = [
            Translated(sentence, translation, [None] * min(sentence.aligned, key.n_best))
            for sentence, translation in zip(sentences, translations, strict=False)
        ]  # without the repetitions that filled it
        self._align_batch(batch, key.keep)
        return batch

    def _keeping(self, keep: bool) -> Translator:
        """The translator that keeps URLs and so on, or not; both share compiled searches. Trees
        have nothing to keep."""
        config = self.translator.config
        if keep == config.keep or config.outputs == "trees":
            return self.translator
        if keep not in self._others:
            self._others[keep] = self.translator.with_config(keep=keep)
        return self._others[keep]

    def _searched(self, key: Key, sentences: Sequence[QueuedSentence]) -> list[Translation]:
        """The translations of a filled batch. Raises Refusal for terms and phrases."""
        keeping = self._keeping(key.keep)
        translations = self._search(keeping, key, sentences)
        for number, sentence in enumerate(sentences):
            if sentence.languages is not None and translations[number].split:
                # Its languages decide how it is cut and joined. Few sentences are too long for the
                # model: to search each twice costs less than batches of one direction.
                translator = keeping.in_languages(*sentence.languages)
                (translations[number],) = self._search(translator, key, [sentence])
        return translations

    def _search(
        self, translator: Translator, key: Key, sentences: Sequence[QueuedSentence]
    ) -> list[Translation]:
        filled = self._filled(key, [sentence.read for sentence in sentences])
        try:
            options = SearchOptions(
                n_best=key.n_best,
                several="keep",
                forbid=key.forbid,
                terminology=Terminology.of(dict(key.terms)) if key.terms else None,
                constraint_sizes=CONSTRAINT_SIZES if key.constrained else (),
            )
            return translator.translate_with(filled, options, [PLAIN_LINE] * len(filled))
        except DecodingError as error:
            if not key.constrained:
                raise
            message = str(error)
            if isinstance(error, LineError):
                message = f"'{shown(sentences[error.number].text)}': {message}"
            raise bad_request(message) from error

    def _align_batch(self, batch: Sequence[Translated], keep: bool) -> None:
        """Sets the alignments that were asked for, where there can be any."""
        hypotheses = [
            (translated, rank, hypothesis.text)
            for translated in batch
            if not translated.translation.split  # the model has never seen it whole
            for rank, hypothesis in enumerate(
                translated.translation.hypotheses[: translated.sentence.aligned]
            )
            if hypothesis.text.strip()
        ]
        for letters in (False, True):
            of_kind = [one for one in hypotheses if one[0].sentence.letters == letters]
            alignments = self.align(
                [(translated.sentence.read, text) for translated, _, text in of_kind],
                keep=keep,
                letters=letters,
            )
            for (translated, rank, _), alignment in zip(of_kind, alignments, strict=True):
                code = translated.sentence.code
                translated.alignments[rank] = _without_code(alignment, code)

    def align(
        self, pairs: Sequence[tuple[str, str]], *, keep: bool = True, letters: bool = False
    ) -> list[Alignment | None]:
        """Alignments; None for a pair that is too long for the model."""
        filled = [*pairs, *list(pairs[-1:]) * (-len(pairs) % ALIGNED_TOGETHER)]
        alignments: list[Alignment | None] = []
        for start in range(0, len(filled), ALIGNED_TOGETHER):
            together = filled[start : start + ALIGNED_TOGETHER]
            alignments += _aligned_if_possible(self._keeping(keep), together, letters)
        return alignments[: len(pairs)]

    def _attend(self, request: AttentionRequest) -> Attended:
        translation = request.translation
        try:
            if translation is None:
                options = SearchOptions(overlong="refuse", several="keep")
                (translated,) = self.translator.translate_with(
                    [request.text], options, [PLAIN_LINE]
                )
                translation = translated.text
            attention = self.translator.attend(request.text, translation)
        except (OverlongError, TargetError) as error:
            raise bad_request(str(error)) from error
        return translation, pick(attention, kind=request.kind, layer=request.layer + 1)


def _aligned_if_possible(
    translator: Translator, pairs: Sequence[tuple[str, str]], letters: bool
) -> list[Alignment | None]:
    try:
        return list(translator.align(pairs, letters=letters))
    except DecodingError:
        if len(pairs) == 1:
            return [None]
        # An output may be too long to be forced through the model: pair by pair.
        one_by_one = [_aligned_if_possible(translator, [pair], letters) for pair in pairs]
        return [alignment for of_pair in one_by_one for alignment in of_pair]


def _without_code(alignment: Alignment | None, code: str) -> Alignment | None:
    words = tuple(code.split())
    count = len(words)
    if alignment is None or not words or alignment.src_words[:count] != words:
        return alignment
    return dataclasses.replace(
        alignment,
        src_words=alignment.src_words[count:],
        links=tuple(
            (source - count, target) for source, target in alignment.links if source >= count
        ),
    )


def warm_up(
    engine: Engine,
    *,
    words: int,
    progress: Callable[[int, int, str], None],
    constraints: bool = True,
) -> Iterator[bool]:
    """Runs batches of every size, with sentences of up to about `words` words; yields True per
    step.

    With `constraints` also searches with a few terms and forbidden phrases, which share programs.
    `progress` is called with the steps done, the number of steps, and a label of the last one.

    Searches have few lengths: at most the powers of two and one and a half times these. Sentences
    repeat a short word of one to three tokens 5, 7, 11, 15, 23, 31 ... times, to meet each length.
    Which programs a search needs depends on when its sentences end, so all are compiled before it
    runs. Longer sentences, and perhaps sentences that are split, compile when they come. A length
    is skipped if a single sentence of it has a shape that was met before.
    """
    bounds = (bound for power in range(2, 20) for bound in (2**power * 3 // 2, 2**power * 2))
    lengths = [bound - 1 for bound in bounds if words and bound - 1 < words * 3 / 2]
    plain = engine.searches()
    constrained = [key._replace(forbid=("any",)) for key in plain] if constraints else []
    # One sentence, then the largest batch, then those between.
    sizes = {key: (1, *engine.sizes(key)[:0:-1]) for key in [*plain, *constrained]}
    steps = _WarmUp(engine, lengths, sizes, progress)
    for length in lengths:
        yield from steps.searches(plain, length)
        text = _words(length)
        steps.run(f"alignment of {length} words", functools.partial(engine.align, [(text, text)]))
        yield True
        request = AttentionRequest(text=text, translation=text, layer=0)
        attend = functools.partial(engine.run, ATTENTION, [request])
        steps.run(f"attention of {length} words", attend)
        yield True
    # Last, since fewer requests need them.
    for length in lengths:
        yield from steps.searches(constrained, length)


class _WarmUp:
    """The steps of a warm-up, counted."""

    def __init__(
        self,
        engine: Engine,
        lengths: Sequence[int],
        sizes: Mapping[Key, Sequence[int]],
        progress: Callable[[int, int, str], None],
    ) -> None:
        self._engine, self._sizes, self._progress = engine, sizes, progress
        self._longest = _words(lengths[-1]) if lengths else ""
        self._done = 0
        self._count = len(lengths) * (sum(map(len, sizes.values())) + 2)
        self._met: set[tuple[Key, Any]] = set()

    def run(self, label: str, work: Callable[[], Any]) -> Any:
        """Returns what `work` returns; None if the model can't read a text of that length."""
        start = time.perf_counter()
        returned = None
        try:
            returned = work()
        except Refusal:
            label += ": too long for the model"
        self._done += 1
        seconds = time.perf_counter() - start
        self._progress(self._done, self._count, f"{label}, {seconds:.1f} s")
        return returned

    def searches(self, keys: Sequence[Key], length: int) -> Iterator[bool]:
        """Searches with batches of every size, of sentences of `length` words."""
        for key in keys:
            sizes = self._sizes[key]
            for size in sizes:
                texts = [_words(length)] * size
                prepare = functools.partial(self._engine.prepare, key, texts, longest=self._longest)
                terms = " with terms" * key.constrained
                shapes = self.run(f"{size} x {length} words, {key.n_best}-best{terms}", prepare)
                yield True
                # By shape, not by whether anything was compiled: another model in this process may
                # have needed the same programs for one sentence, and none of those for more.
                if size == 1 and (key, shapes) in self._met:
                    self._done += len(sizes) - 1
                    break
                self._met.add((key, shapes))


def _words(count: int) -> str:
    return " ".join("a" * count)
