"""What is compiled before the first request is all that requests of these lengths can need."""

from __future__ import annotations

import numpy as np
import pytest

from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.serving.engine import Engine, Sentence, warm_up
from flaxformer_mt.serving.metrics import watch_compilations
from tests.decoding.runs import make_run

pytestmark = pytest.mark.extended
WORDS = 20  # of "a", a token each: shapes of 16 and of 32 source positions


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return Translator.load(make_run(tmp_path_factory.mktemp("warm") / "run", {1: None}).path)


def warmed(engine: Engine) -> list[str]:
    said: list[str] = []
    warm_up(engine, words=WORDS, progress=lambda done, count, what: said.append(what))
    return [line.split(",")[0] for line in said if "best" in line]


def programs() -> int:
    """How many this process has compiled."""
    return watch_compilations()["programs"]


def test_programs_of_another_model_hide_none(translator: Translator) -> None:
    """They are the process's: here, one sentence of the shorter shape has them already."""
    translator.compile(["a"], n_best=2)
    translator.translate(["a"], n_best=2)
    engine = Engine(translator, widest=2, largest=3)
    warmed(engine)
    before = programs()
    for texts in (["a"], ["a"] * 2, ["a"] * 3):
        engine.run(engine.key_of(2), [Sentence(text) for text in texts])
    assert programs() == before


def test_no_mixture_of_lengths_compiles(translator: Translator) -> None:
    """Eight sources of 32 positions fill a batch, so that any number is left for another."""
    engine = Engine(translator, widest=1, largest=16)
    warmed(engine)
    before = programs()
    for long in range(17):
        texts = ["a " * 23] * long + ["a"] * (16 - long)
        for part in (texts, texts[: len(texts) // 2], texts[::3]):
            engine.run(engine.key_of(1), [Sentence(text) for text in part])
            assert programs() == before, (long, len(part))


def test_a_shape_that_was_met_is_not_run_again(translator: Translator) -> None:
    said = warmed(Engine(translator, widest=1, largest=16))
    sizes = (1, 16, 4)
    assert said == [
        *(f"{size} x 23 words" for size in sizes),
        *(f"{size} x 15 words" for size in sizes),
        *(f"1 x {length} words" for length in (11, 7, 5)),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_sentences_that_end_at_different_steps_compile_nothing(
    translator: Translator, seed: int
) -> None:
    engine = Engine(translator, widest=2, largest=5)
    warmed(engine)
    before = programs()
    draw = np.random.default_rng(seed)
    words = [*"a the small cat sees big dog . runs".split()]
    for _ in range(20):
        texts = [
            " ".join(draw.choice(words, draw.integers(1, 7))) for _ in range(draw.integers(1, 6))
        ]
        key = engine.key_of(int(draw.integers(1, 3)))
        engine.run(key, [Sentence(text) for text in texts[: max(engine.sizes(key))]])
    assert programs() == before
