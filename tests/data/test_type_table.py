"""Vocabularies whose ids are those of a table beside the SentencePiece model."""

import functools
import json
import pickle

import pytest
import sentencepiece
from hypothesis import given, strategies as st

from flaxformer_mt.data.sampling import Resampler
from flaxformer_mt.data.type_table import MARKS, AddedToken, TypeTable
from flaxformer_mt.data.vocabulary import (
    BOS,
    EOS,
    PAD,
    UNK,
    Vocabularies,
    Vocabulary,
    VocabularyError,
)
from tests.data.pairs import sentencepiece_model

SENTENCES = [
    f"{who} {verb} {what} ."
    for who in ("the cat", "a small dog", "the man")
    for verb in ("sees", "likes", "buys", "loses")
    for what in ("a house", "the green tree", "two books")
]


@functools.cache
def processor(kind: str = "unigram") -> sentencepiece.SentencePieceProcessor:
    model = sentencepiece_model(SENTENCES, model_type=kind, vocab_size=32)
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def tabled(*more: str, kind: str = "unigram") -> Vocabulary:
    """The model's pieces backwards, without its last one, between other types."""
    pieces = [processor(kind).id_to_piece(number) for number in range(3, 32)]
    table = TypeTable((*MARKS, ">>fra<<", *reversed(pieces[:-1]), "é", *more))
    return Vocabulary(processor(kind).serialized_model_proto(), table)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_ids_are_the_tables_and_other_pieces_are_unknown(kind):
    vocabulary = tabled("<extra>", kind=kind)
    assert vocabulary.table is not None and vocabulary.size == 4 + 1 + 28 + 1 + 1
    assert vocabulary.pieces([4, 0]) == [">>fra<<", "<pad>"]
    for text in SENTENCES:
        [tokens] = vocabulary.encode([text])
        cut = processor(kind).encode(text, out_type=str)
        assert tokens == [vocabulary.table.ids.get(piece, UNK) for piece in cut]
        assert vocabulary.decode([[PAD, *tokens, EOS]]) == vocabulary.decode([tokens])
        if UNK not in tokens:
            assert vocabulary.decode([tokens, []]) == [text, ""]
    assert "⁇" in vocabulary.decode([[UNK]])[0]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_text_yields_no_marks(kind):
    vocabulary = tabled("<extra>", kind=kind)
    for text in ("<pad>", "</s> <s>", "<unk>", "✗<pad>"):
        assert not set(vocabulary.encode([text])[0]) & {PAD, BOS, EOS}


def test_pieces_of_the_other_language_and_language_codes_have_their_ids():
    """As the tables of joint vocabularies are used: by the written piece."""
    vocabulary = tabled("\u2581gar\u00e7on")
    assert vocabulary.table is not None
    [tokens] = vocabulary.encode(["the cat é"])
    assert tokens[-1] == vocabulary.table.ids["é"]
    assert vocabulary.decode([tokens])[0].endswith("é")

    # A piece that only the table has is text with plain blanks: the model leaves them as signs.
    plain, coded, unknown, quote = vocabulary.encode(
        ["the cat", ">>fra<< the cat", ">>xyz<< the cat", ">>the cat"]
    )
    french = vocabulary.table.ids["\u2581gar\u00e7on"]
    assert vocabulary.decode([[*plain, french], [french]]) == ["the cat gar\u00e7on", "gar\u00e7on"]
    assert coded == [4, *plain]
    # What is no code is text.
    assert unknown[0] != UNK or len(unknown) > len(plain) + 1
    assert len(quote) > len(plain)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_spans_cut_the_text_where_its_tokens_are(kind):
    vocabulary = tabled("\u2581gar\u00e7on", kind=kind)
    for text in ("the cat sees", "  a é  dog ", "✗✗ the", ">>fra<< the cat", ">>fra<<é", "", ">>x"):
        tokens, spans = vocabulary.encode_with_spans(text)
        assert tokens == vocabulary.encode([text])[0]
        said = "".join(text.encode()[a:b].decode() for a, b in spans)
        assert "".join(said.split()) == "".join(text.split()), "nothing twice, nothing left out"
        assert sorted(spans) == spans
    assert vocabulary.encode_with_spans(">>fra<< the")[1][0] == (0, 7), "one token, all its bytes"


@given(st.lists(st.integers(0, 34), max_size=8))
def test_spans_of_any_tokens_cut_the_decoded_text(tokens):
    vocabulary = tabled("\u2581gar\u00e7on")
    assert vocabulary.size == 35
    text, spans = vocabulary.decode_with_spans(tokens)
    assert [text] == vocabulary.decode([tokens])
    assert len(spans) == len(tokens)
    assert "".join(text.encode()[a:b].decode() for a, b in spans) == text
    for token, (begin, end), piece in zip(tokens, spans, vocabulary.pieces(tokens), strict=True):
        if token in (PAD, BOS, EOS):
            assert begin == end
        elif token != UNK:
            said = text.encode()[begin:end].decode()
            assert said.strip() == piece.replace("\u2581", " ").strip()


def with_added(*added: AddedToken) -> Vocabulary:
    plain = tabled(*(token.text for token in added))
    assert plain.table is not None
    return Vocabulary(plain.model, TypeTable(plain.table.pieces, added))


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("the <tag> cat", ["the ", "<tag>", " cat"]),
        ("<tag>the<tag><tag>", ["<tag>", "the", "<tag>", "<tag>"]),
        ("the <tag2> <tag", ["the ", "<tag2>", " <tag"]),  # the longest
        (">>fra<< <tag> the", [">>fra<<", " ", "<tag>", " the"]),
        ("the wide cat", ["the ", "wide", " cat"]),
        ("thewide cat widen", ["thewide", " cat ", "widen"]),  # not within a word
        ("the <eat> cat", ["the", "<eat>", "cat"]),  # with the blanks beside it
        ("the word cat", ["the", "word", " cat"]),  # a word by the blank that goes with it
        ("thewordcat word", ["theword", "cat", "word"]),
        ("", []),
    ],
)
def test_added_tokens_are_one_token_each(text, cut):
    tokens = [AddedToken("<tag>"), AddedToken("<tag2>"), AddedToken("wide", single_word=True)]
    tokens += [AddedToken("word", lstrip=True, single_word=True)]
    vocabulary = with_added(*tokens, AddedToken("<eat>", lstrip=True, rstrip=True))
    plain, ids = tabled(), vocabulary.table.ids
    expected = [
        token for part in cut for token in ([ids[part]] if part in ids else plain.encode([part])[0])
    ]
    assert vocabulary.encode([text, "the"]) == [expected, plain.encode(["the"])[0]]
    tokens, spans = vocabulary.encode_with_spans(text)
    assert tokens == expected
    spelled = [text.encode()[begin:end].decode() for begin, end in spans]
    assert "".join("".join(spelled).split()) == "".join(text.split())


def test_added_tokens_are_saved(tmp_path):
    pair = Vocabularies(with_added(AddedToken("<tag>", lstrip=True)), tabled("<tag>"))
    pair.save(tmp_path / "vocabulary")
    assert Vocabularies.load(tmp_path / "vocabulary") == pair
    index = json.loads((tmp_path / "vocabulary" / "vocabulary.json").read_text())
    assert index["format"] == 3, "a version that knows no added tokens must not split them"
    file = tmp_path / "vocabulary" / "src.table.json"
    for change in ({"pieces": 3}, {"added": [{"text": "absent"}]}, {"added": [{"word": "<tag>"}]}):
        file.write_text(json.dumps({"pieces": [*MARKS, "<tag>"], "added": []} | change))
        with pytest.raises(VocabularyError, match=r"src.table.json: (is not|the added token 'abs)"):
            Vocabularies.load(tmp_path / "vocabulary")


def test_saved_and_loaded(tmp_path):
    pair = Vocabularies(tabled(), tabled("<extra>"))
    pair.save(tmp_path / "vocabulary")
    assert Vocabularies.load(tmp_path / "vocabulary") == pair == pickle.loads(pickle.dumps(pair))
    index = json.loads((tmp_path / "vocabulary" / "vocabulary.json").read_text())
    assert index["format"] == 2, "a version that knows no tables must not take the models' ids"
    table = (tmp_path / "vocabulary" / "src.pieces.tsv").read_text().splitlines()
    assert table[4] == "4\t>>fra<<"


def test_a_changed_table_is_noticed(tmp_path):
    Vocabularies(tabled(), tabled()).save(tmp_path / "shared")
    file = tmp_path / "shared" / "shared.table.json"
    content = file.read_text()
    for text, message in (
        (content.replace("fra", "deu"), "does not match its record"),
        (content.replace("<pad>", "pad"), "shared.table.json: the first types must be <pad>, <s>"),
        ("[1, 2]", "shared.table.json: is not a JSON list of pieces"),
        (json.dumps([*MARKS, "a", "b", "a"]), "shared.table.json: the piece 'a' has more than"),
        (None, "shared.table.json: cannot be read"),
    ):
        file.unlink()
        if text is not None:
            file.write_text(text)
        with pytest.raises(VocabularyError, match=message):
            Vocabularies.load(tmp_path / "shared")


def test_subword_regularisation_cuts_what_the_model_knows():
    vocabulary = tabled()
    kinds, model = vocabulary.types(), processor()
    # The model has neither the first five nor the last.
    assert not any(kind.plain for kind in (*kinds[:5], kinds[-1]))
    for kind in kinds[5:-1]:
        assert kind.plain and kind.score == model.get_score(model.piece_to_id(kind.text))
    assert not vocabulary.is_bpe
    Resampler(Vocabularies(vocabulary, vocabulary), 0.5, seed=1)
