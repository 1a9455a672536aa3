"""Compiling what requests will need before the first of them comes."""

from __future__ import annotations

import time
from collections.abc import Callable

from flaxformer_mt.serving.engine import Attend, Engine, Pair, PairRefused, Search, Sentence

Progress = Callable[[int, int, str], None]  # steps done, of how many, what the last one was
Step = tuple[str, Callable[[], object]]


def warm_up(engine: Engine, *, words: int, compiled: Callable[[], int], progress: Progress) -> None:
    """Runs batches of every size that there will be, with sentences of up to about `words` words.

    Decoding has few shapes: its lengths are powers of two or one and a half of them. The
    sentences repeat a short word of one to three tokens, 5, 7, 11, 15, 23, 31 ... times, and so
    meet each of these lengths. Which programs a search comes to need depends on which of its
    sentences end when, so that running it is not enough: all of them are compiled first. What is
    longer compiles when it comes. Where one sentence of a length needs no program that was not
    there (`compiled` counts them), batches of that length are left out.
    """
    powers = [2**power for power in range(2, 20)]
    every = sorted({n - 1 for power in powers for n in (power * 3 // 2, power * 2)})
    lengths = [length for length in every if words and length < words * 3 / 2]
    done = 0
    # The longest first: what does not fit into memory should show before anyone waits.
    groups = [group for length in reversed(lengths) for group in _groups(engine, length)]
    count = sum(map(len, groups))
    for number, group in enumerate(groups):
        before = compiled()
        for what, step in group:
            start = time.perf_counter()
            try:
                step()
            except PairRefused:
                what += ": longer than the model takes"
            done += 1
            progress(done, count, f"{what}, {time.perf_counter() - start:.1f} s")
            if compiled() == before and number >= len(_groups(engine, 1)):
                break  # as for a longer sentence
        done = sum(map(len, groups[: number + 1]))


def _groups(engine: Engine, length: int) -> list[list[Step]]:
    """What is to be run for sentences of one length, the smallest batch of a kind first."""
    keys = [engine.key_of(1)] if engine.widest == 1 else [engine.key_of(1), engine.key_of(2)]
    text = _text(length)
    return [
        *([_search(engine, key, length, size) for size in _sizes(engine, key)] for key in keys),
        [(f"alignment of {length} words", lambda: engine.align([(text, text)]))],
        [(f"attention of {length} words", lambda: engine.run(Attend(), [Pair(text, text)]))],
    ]


def _search(engine: Engine, key: Search, length: int, size: int) -> Step:
    texts = [_text(length)] * size

    def step() -> None:
        engine.compile(key, texts)
        engine.run(key, [Sentence(text) for text in texts])

    return f"{size} x {length} words, {key.n_best}-best", step


def _sizes(engine: Engine, key: Search) -> list[int]:
    """1, then the largest, then those between."""
    first, *others = engine.sizes(key)
    return [first, *reversed(others)]


def _text(words: int) -> str:
    return " ".join(["a"] * words)
