"""Sentences word by word have SentencePiece's own tokens, whatever the text and the model."""

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from flaxformer_mt.config.schema import VocabularyConfig
from flaxformer_mt.data.vocabulary import EOS, Vocabulary, train
from tests.data.pairs import TOY, sentencepiece_model

SENTENCES = [text.replace(" .", "\u00a0.").replace("der ", "der  ") for text in TOY]
MODELS: list[dict[str, Any]] = [
    {"size": 80},
    {"size": 330, "byte_fallback": True},
    {"size": 70, "normalization": "blanks"},
    {"size": 330, "byte_fallback": True, "normalization": "nfkc"},
    {"size": 44, "kind": "unigram"},
]
ALPHABET = "abt heM.ü\u2581\u00a0\t\u200b\u0301e\u3099か\uff76\uff9e\n☃漢"


@functools.cache
def trained(number: int) -> Vocabulary:
    return train(SENTENCES, VocabularyConfig(**MODELS[number]))


@pytest.mark.parametrize("number", range(len(MODELS)))
@settings(max_examples=150, deadline=None)
@given(
    sentences=st.lists(
        st.text(st.sampled_from(ALPHABET), max_size=30)
        | st.text(st.characters(exclude_categories=["Cs"]), max_size=15)
        | st.sampled_from(SENTENCES),
        max_size=6,
    )
)
@example(sentences=["", " ", "\u2581", "a\u2581\u2581b", "a\u2581", " a  b ", "\u2581a"])
# nfkc: U+FF76 becomes a letter which, once it stands there, would compose with a mark.
@example(sentences=["a \u30ab\u200b\u3099 b"])
@example(sentences=["☃漢 漢☃", "☃ ☃", "\u200b", "a \u200b b", "か\u200b\u3099", "か \u3099a"])
def test_tokens_are_those_of_whole_sentences(number, sentences):
    vocabulary = trained(number)
    flat, lengths = vocabulary.encode_flat([sentence.encode() for sentence in sentences])
    expected = [[*tokens, EOS] for tokens in vocabulary.encode(sentences)]
    assert flat.tolist() == [token for tokens in expected for token in tokens]
    assert lengths.tolist() == list(map(len, expected))
    assert flat.dtype == lengths.dtype == np.int32


def test_a_model_with_types_across_blanks_is_not_cut():
    across = {"split_by_whitespace": False, "normalization_rule_name": "identity"}
    model = sentencepiece_model(SENTENCES, model_type="bpe", vocab_size=120, **across)
    vocabulary = Vocabulary(model)
    assert any("\u2581" in piece[1:] for piece in vocabulary.pieces())
    assert vocabulary._words is None
