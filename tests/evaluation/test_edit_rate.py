"""Edits against sacreBLEU's function, which computes every cell of the distances."""

import random

import pytest
from hypothesis import given, settings, strategies as st
from sacrebleu.metrics.lib_ter import translation_edit_rate

from flaxformer_mt.evaluation import edit_rate
from flaxformer_mt.evaluation.edit_rate import edits
from tests.evaluation.noise import grammar_text, noisy

WORDS = st.lists(st.sampled_from("abcd"), max_size=14)


@settings(deadline=None, max_examples=300)
@given(WORDS, WORDS)
def test_edits_are_sacrebleu_s(hypothesis, reference):
    assert edits(hypothesis, reference) == translation_edit_rate(hypothesis, reference)[0]


def moved(words: list[str], rng: random.Random) -> list[str]:
    """The words with a few replaced, and a few phrases elsewhere."""
    words = [word if rng.random() < 0.8 else rng.choice(words) for word in words]
    for _ in range(rng.randrange(6)):
        start, length = rng.randrange(len(words)), rng.randint(1, 4)
        phrase, words = words[start : start + length], words[:start] + words[start + length :]
        place = rng.randint(0, len(words))
        words[place:place] = phrase
    return words


@pytest.mark.parametrize(("types", "size"), [(2, 60), (6, 30), (40, 26), (400, 90)])
def test_edits_of_long_sentences_with_moved_phrases(types, size):
    """Two words make more shifts than are tried; 90 words leave the cells near the diagonal."""
    rng = random.Random(size)
    for _ in range(25):
        reference = [str(rng.randrange(types)) for _ in range(rng.randint(size - 4, size))]
        for hypothesis in (moved(reference, rng), [str(rng.randrange(types)) for _ in range(size)]):
            assert edits(hypothesis, reference) == translation_edit_rate(hypothesis, reference)[0]


def test_usual_sentences_need_no_second_computation(monkeypatch):
    monkeypatch.setattr(edit_rate, "translation_edit_rate", None)
    _, references = grammar_text(100)
    assert sum(
        edits(hypothesis.split(), reference.split())
        for hypothesis, reference in zip(noisy(references, 0.4, 2), references, strict=True)
    )
