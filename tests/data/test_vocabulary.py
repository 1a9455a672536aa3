"""Vocabularies: round trips, determinism, digests, and errors that say which size is possible."""

import functools
import json
import os
import re
from typing import Literal

import pytest
from hypothesis import example, given, settings, strategies as st

from flaxformer_mt.config import expected_types
from flaxformer_mt.config.schema import VocabularyConfig
from flaxformer_mt.data.vocabulary import (
    BOS,
    EOS,
    PAD,
    UNK,
    Vocabularies,
    Vocabulary,
    VocabularyError,
    train,
    train_pair,
)
from tests.data.pairs import TOY, sentencepiece_model

Kind = Literal["bpe", "unigram"]


@functools.cache
def small(kind: Kind = "bpe", byte_fallback: bool = False) -> Vocabulary:
    # The unigram trainer finds fewer types in a text of this size.
    size = (60 if kind == "bpe" else 40) + (256 if byte_fallback else 0)
    return train(TOY, VocabularyConfig(kind=kind, size=size, byte_fallback=byte_fallback))


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
@example("<s> </s> <unk> <pad> <0x41>")
@example("\u2581 \u2581a\u2581\u2581b\u2581")
@example("e\u0301 é ﬁ Å \u212b")
@example("a\u0085b\u2028c\u00a0d\u3000e\tf")
@example("\u2585 \ufeff \u200b \U0001f469\u200d\U0001f4bb")
def test_any_text_comes_back_by_byte_fallback(text):
    vocabulary = small(byte_fallback=True)
    [tokens] = vocabulary.encode([text])
    assert not set(tokens) & {PAD, BOS, EOS, UNK}
    # U+2581 is SentencePiece's own sign for a blank.
    spaced = re.sub(" +", " ", text.replace("\u2581", " ")).strip(" ")
    assert vocabulary.decode([tokens]) == [spaced]
    [without_bytes] = small().encode([text])
    assert not set(without_bytes) & {PAD, BOS, EOS}


def test_spans_are_those_of_the_original_text():
    vocabulary = small(byte_fallback=True)
    tokens, spans = vocabulary.encode_with_spans("a\u2581\u2581é\u2581")
    assert tokens == vocabulary.encode(["a é"])[0]
    assert spans[0] == (0, 1) and spans[-1][1] == 9


def test_marks_are_left_out_of_text():
    vocabulary = small()
    [tokens] = vocabulary.encode(["the cat sees a house ."])
    assert vocabulary.decode([[BOS, *tokens, EOS, PAD, PAD]]) == ["the cat sees a house ."]
    assert vocabulary.decode([[], [EOS]]) == ["", ""]
    assert vocabulary.decode([]) == []
    assert vocabulary.encode(["", "  "]) == [[], []]
    with pytest.raises(VocabularyError, match="token 60 is not in a vocabulary of 60 types"):
        vocabulary.decode([[5], [4, 60]])


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_training_is_deterministic_and_silent(kind, capfd):
    small.cache_clear()
    first = small(kind)
    small.cache_clear()
    assert small(kind).model == first.model
    plain = [sentence for sentence in TOY if "<" not in sentence]
    assert first.decode(first.encode(plain)) == plain
    # Long sentences take part.
    assert "ж" in "".join(
        train([*TOY, "ж" * 5000], VocabularyConfig(size=62, normalization="blanks")).pieces()
    )
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_impossible_sizes_name_a_possible_one(kind):
    message = r"^data\.vocabulary\.size: the training text yields ([\d,]+) types: set \1 or less$"
    with pytest.raises(VocabularyError, match=message) as caught:
        train(TOY, VocabularyConfig(kind=kind, size=30_000))
    largest = int(str(caught.value).partition("yields ")[2].partition(" ")[0].replace(",", ""))
    assert train(TOY, VocabularyConfig(kind=kind, size=largest)).size == largest
    with pytest.raises(VocabularyError, match=r"size is 10, but .* alone take \d+:"):
        train(TOY, VocabularyConfig(kind=kind, size=10))


CASED_PAIRS = [(sentence, sentence.upper()) for sentence in TOY]


def test_shared_and_separate_vocabularies():
    shared = train_pair(CASED_PAIRS, VocabularyConfig(size=80))
    assert shared.shared and shared.src is shared.tgt
    separate = train_pair(CASED_PAIRS, VocabularyConfig(size=60, shared=False))
    assert not separate.shared
    assert separate.src.model == small().model
    assert shared.digest != separate.digest


def test_a_shared_vocabulary_is_stored_once(tmp_path):
    shared = train_pair(CASED_PAIRS, VocabularyConfig(size=80))
    shared.save(tmp_path / "v")
    names = {path.name for path in (tmp_path / "v").iterdir()}
    assert names == {"shared.model", "shared.pieces.tsv", "vocabulary.json"}
    loaded = Vocabularies.load(tmp_path / "v")
    assert loaded.src is loaded.tgt and loaded == shared


@pytest.fixture
def saved(tmp_path):
    folder = tmp_path / "vocabulary"
    Vocabularies(small(), small("unigram")).save(folder)
    return folder


def test_saved_vocabularies_load_and_are_never_replaced(saved):
    with pytest.raises(VocabularyError, match="already exists"):
        Vocabularies(small(), small()).save(saved)
    loaded = Vocabularies.load(saved)
    assert loaded == Vocabularies(small(), small("unigram")) and not loaded.shared
    assert loaded.digest == Vocabularies(small(), small("unigram")).digest
    assert [path.name for path in saved.parent.iterdir()] == ["vocabulary"]


def test_saved_vocabularies_can_be_read_by_others(saved):
    index = json.loads((saved / "vocabulary.json").read_text())
    assert index["format"] == 1 and "table" not in index["src"]
    assert index["ids"] == {"pad": 0, "bos": 1, "eos": 2, "unk": 3}
    table = (saved / "src.pieces.tsv").read_bytes().decode().split("\n")
    assert table[:4] == ["0\t<pad>", "1\t<s>", "2\t</s>", "3\t<unk>"] and len(table) == 61


def test_damage_is_refused_by_name(saved, capfd):
    index = json.loads((saved / "vocabulary.json").read_text())
    for name, data, message in (
        ("vocabulary.json", "{", "1: is not JSON"),
        ("vocabulary.json", "{}", "is damaged: KeyError"),
        ("vocabulary.json", '{"format": 9}', "has unknown format 9"),
        ("vocabulary.json", json.dumps(index), ""),
        ("src.model", "", "does not match its record"),
        ("src.model", None, "cannot be read: No such file"),
    ):
        (saved / name).unlink()
        if data is not None:
            (saved / name).write_text(data)
        if message:
            with pytest.raises(VocabularyError, match=rf"^{saved / name}: ?.*{message}"):
                Vocabularies.load(saved)
    os.mkfifo(saved / "src.model")
    with pytest.raises(VocabularyError, match=r"src\.model: cannot be read: not a regular file"):
        Vocabularies.load(saved)
    assert capfd.readouterr() == ("", "")


def test_what_is_no_model_or_has_other_mark_ids_is_refused(tmp_path):
    model = sentencepiece_model(TOY, vocab_size=40)
    for data, message in (
        (b"", "not a SentencePiece model"),
        (b"nonsense", "not a SentencePiece model"),
        (model, "the pad token has id -1, not 0"),
    ):
        (tmp_path / "x.model").write_bytes(data)
        with pytest.raises(VocabularyError, match=rf"x\.model: {message}"):
            Vocabulary.load(tmp_path / "x.model")


SYMBOLS = ("<x1/>", "\uff5fNUM_2\uff60", "@@URL@@", "%1$s")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("normalization", ["none", "nfkc"])
def test_symbols_are_never_split_and_come_back(kind, normalization):
    """Wherever they are, in no training text either, and although NFKC has other brackets."""
    config = VocabularyConfig(
        kind=kind, size=64, soft_size=True, symbols=SYMBOLS, normalization=normalization
    )
    vocabulary = train(TOY, config)
    types = {piece: number for number, piece in enumerate(vocabulary.pieces())}
    for symbol in SYMBOLS:
        for text in (symbol, f"the cat {symbol} sees", f"cat{symbol}{symbol}.", f"{symbol} a"):
            [ids] = vocabulary.encode([text])
            assert ids.count(types[symbol]) == text.count(symbol), text
            assert vocabulary.decode([ids]) == [text]
            flat, _ = vocabulary.encode_flat([text.encode()])
            assert flat.tolist() == [*ids, EOS]


def test_a_vocabulary_of_whole_words_keeps_words_with_symbols_in_them():
    config = VocabularyConfig(
        size=60, tgt_types="words", shared=False, soft_size=True, symbols=("<x1/>",)
    )
    text = "the cat a<x1/>b"
    vocabularies = train_pair([(sentence, text) for sentence in TOY], config)
    assert vocabularies.tgt.pieces(vocabularies.tgt.encode([text])[0]) == [
        "\u2581the", "\u2581cat", "\u2581a<x1/>b",
    ]  # fmt: skip
    assert vocabularies.src.is_one_type("<x1/>") and not vocabularies.tgt.is_one_type("<x1/>")


def test_the_size_that_does_not_fit_is_named():
    pairs = [(sentence, sentence) for sentence in TOY]
    config = VocabularyConfig(size=60, tgt_size=3000, shared=False, soft_size=True)
    with pytest.raises(VocabularyError, match=r"data\.vocabulary\.tgt_size: the training text"):
        train_pair(pairs, config)


def test_digits_may_be_pieces_of_their_own():
    text = [f"in {year} or {year}" for year in range(1990, 2000)]
    whole, split = (
        train(text, VocabularyConfig(size=40, soft_size=True, split_digits=split))
        for split in (False, True)
    )
    assert any(re.search(r"\d\d", piece) for piece in whole.pieces())
    assert not any(re.search(r"\d\d", piece) for piece in split.pieces())


def test_the_target_may_have_a_size_of_its_own():
    pairs = [(sentence, sentence[::-1]) for sentence in TOY]
    config = VocabularyConfig(size=60, tgt_size=50, shared=False)
    vocabularies = train_pair(pairs, config)
    assert (vocabularies.src.size, vocabularies.tgt.size) == (60, 50)
    assert expected_types(config) == (60, 50)
