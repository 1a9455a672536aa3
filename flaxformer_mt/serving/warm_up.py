"""Compiling what requests will need before the first of them comes."""

from __future__ import annotations

import time
from collections.abc import Callable

from flaxformer_mt.serving.engine import Attend, Engine, PairRefused, Search, Sentence
from flaxformer_mt.serving.requests import AttentionRequest

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
            [_search(engine, key, length, size, longest) for size in _sizes(engine, key)]
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


def _sizes(engine: Engine, key: Search) -> list[int]:
    """1, then the largest, then those between."""
    first, *others = engine.sizes(key)
    return [first, *reversed(others)]


def _text(words: int) -> str:
    return " ".join(["a"] * words)
