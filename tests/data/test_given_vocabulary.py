"""SentencePiece models of one's own: whatever their ids, text is cut as they cut it."""

import dataclasses

import pytest
import sentencepiece

from flaxformer_mt.config.schema import VocabularyConfig
from flaxformer_mt.data.corpus import CorpusError
from flaxformer_mt.data.given_vocabulary import given_vocabularies, with_marks_first
from flaxformer_mt.data.prepare.manifest import PrepareError, read_manifest
from flaxformer_mt.data.sentencepiece_training import ModelProto
from flaxformer_mt.data.vocabulary import (
    BOS,
    EOS,
    PAD,
    UNK,
    Vocabularies,
    Vocabulary,
    VocabularyError,
)
from flaxformer_mt.grammar.text import pairs
from tests.data.pairs import listed, sentencepiece_model
from tests.data.prepare.corpora import GOOD, data_config, prepare, write

TEXT = [line for pair in pairs("train", 300) for line in pair]
# What people meet in text, some of it in no model's pieces.
HARD = [
    "", " ", "  two  blanks  ", "①② ﬁ Ångström", "1,234.56 x 7", "日本語 unknown ☃☃ signs",
    "a\u2581b", "<s> </s> <pad> <unk>", "<x1/> and <x1/>", "tab\tand\u00a0blank",
]  # fmt: skip
MODELS = {
    "as SentencePiece makes them": {"model_type": "unigram", "vocab_size": 200},
    "bpe": {"model_type": "bpe", "vocab_size": 200},
    "T5": {"vocab_size": 200, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "ids at the end": {"vocab_size": 200, "unk_id": 199, "bos_id": 198, "eos_id": 197},
    "other names": {
        "vocab_size": 200, "unk_piece": "UNK", "bos_piece": "[BOS]", "eos_piece": "[EOS]",
        "pad_id": 3, "pad_piece": "[PAD]",
    },
    "bytes": {"model_type": "bpe", "vocab_size": 420, "byte_fallback": True},
    "symbols": {"vocab_size": 200, "user_defined_symbols": ["<x1/>", "@@"], "split_digits": True},
    "padding as a symbol": {"vocab_size": 200, "user_defined_symbols": ["<pad>"]},
    "identity": {"vocab_size": 200, "normalization_rule_name": "identity"},
    "no dummy prefix": {"model_type": "bpe", "vocab_size": 200, "add_dummy_prefix": False},
    "all blanks": {"vocab_size": 200, "remove_extra_whitespaces": False},
    "blanks last": {"vocab_size": 200, "treat_whitespace_as_suffix": True},
    "pieces of several words": {
        "model_type": "bpe", "vocab_size": 200, "split_by_whitespace": False,
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return sentencepiece_model(TEXT, hard_vocab_limit=False, **MODELS[request.param])


def test_text_is_cut_into_the_model_s_own_pieces(model):
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours = Vocabulary(with_marks_first(model))
    # That padding is a mark and no text is on purpose.
    lines = [line.replace("<pad>", "") for line in TEXT + HARD]
    expected = [[theirs.id_to_piece(id) for id in ids] for ids in theirs.encode(lines)]
    encoded = ours.encode([line.replace("\u2581", " ") for line in lines])
    assert [ours.pieces(ids) for ids in encoded] == expected
    assert not {PAD, BOS, EOS} & {id for ids in encoded for id in ids}
    assert ours.decode(encoded) == theirs.decode([theirs.encode(line) for line in lines])

    flat, lengths = ours.encode_flat([line.encode() for line in lines])
    assert flat.tolist() == [id for ids in encoded for id in (*ids, EOS)]
    assert lengths.tolist() == [len(ids) + 1 for ids in encoded]


def test_marks_are_first_and_every_other_type_is_there_once(model, tmp_path):
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    path = tmp_path / "ours.model"
    path.write_bytes(with_marks_first(model))
    ours = Vocabulary.load(path)  # checks the ids of the marks
    kinds = {number: ours.types()[number].plain for number in (PAD, BOS, EOS, UNK)}
    assert not any(kinds.values())
    their_pieces = [theirs.id_to_piece(id) for id in range(theirs.get_piece_size())]
    assert set(their_pieces) <= set(ours.pieces())
    assert ours.size - len(their_pieces) <= 2  # padding, a begin mark
    assert len(set(ours.pieces())) == ours.size
    assert with_marks_first(path.read_bytes()) == path.read_bytes()


def test_models_that_cannot_be_used():
    without_end = sentencepiece_model(TEXT, vocab_size=150, eos_id=-1)
    with pytest.raises(VocabularyError, match=r"has no end mark, </s>.*: spm_train --input=TEXT"):
        with_marks_first(without_end)
    for content in (b"", b"text", b"\x0a\x03abc"):
        with pytest.raises(VocabularyError, match="is not a SentencePiece model"):
            with_marks_first(content)
    proto = ModelProto.FromString(sentencepiece_model(TEXT, vocab_size=150))
    proto.pieces.add(piece="<pad>", score=-3.0)
    with pytest.raises(VocabularyError, match="the mark <pad> is a piece of text in it"):
        with_marks_first(proto.SerializeToString())
    del proto.pieces[:]
    proto.pieces.add(piece="a", score=0.0)
    with pytest.raises(VocabularyError, match="has no piece for unknown text"):
        with_marks_first(proto.SerializeToString())


@pytest.fixture
def corpus(tmp_path):
    """A corpus in tmp_path/text, with models of it and of each of its sides."""
    text = tmp_path / "text"
    for name, good in (("train", GOOD), ("valid", GOOD[:4])):
        write(text, name, good)
    sides = [[pair[side] for pair in GOOD] for side in (0, 1)]
    for name, lines in (("both", sides[0] + sides[1]), ("en", sides[0]), ("de", sides[1])):
        content = sentencepiece_model(lines, vocab_size=60, hard_vocab_limit=False)
        (text / f"{name}.model").write_bytes(content)
    return text


def test_prepare_takes_a_model_and_learns_none(corpus, tmp_path):
    config = data_config(corpus, vocabulary=VocabularyConfig(model="both.model", size=37_000))
    said = []
    store = prepare(config, directory=tmp_path / "run", say=said.append)
    vocabularies = Vocabularies.load(tmp_path / "run" / "vocabulary")
    assert vocabularies.shared
    rows = [listed(store.train, side) for side in ("src", "tgt")]
    assert list(zip(*map(vocabularies.src.decode, rows), strict=True)) == GOOD
    assert any("using the SentencePiece models given" in line for line in said)
    assert not any("training the vocabulary" in line for line in said)
    assert read_manifest(tmp_path / "run" / "data")["vocabulary"]["sample"] == 0

    prepare(config, directory=tmp_path / "run")
    other = dataclasses.replace(config, vocabulary=VocabularyConfig(model="en.model"))
    with pytest.raises(PrepareError, match=r"data\.vocabulary\.model"):
        prepare(other, directory=tmp_path / "run")


def test_each_side_may_have_a_model(corpus, tmp_path):
    settings = {"src_model": "en.model", "tgt_model": "de.model", "shared": False}
    config = data_config(corpus, vocabulary=VocabularyConfig(**settings))
    prepare(config, directory=tmp_path / "run")
    vocabularies = Vocabularies.load(tmp_path / "run" / "vocabulary")
    for side, language in ((vocabularies.src, "en"), (vocabularies.tgt, "de")):
        content = (corpus / f"{language}.model").read_bytes()
        assert side == Vocabulary(with_marks_first(content))


def test_what_is_wrong_names_the_setting_and_the_file(corpus, tmp_path):
    (corpus / "text.model").write_text("the cat\n")
    for name, error, message in (
        ("none.model", CorpusError, r"data\.vocabulary\.model: .*none\.model does not exist"),
        ("text.model", VocabularyError, r"data\.vocabulary\.model: .*text\.model: is not a Sent"),
    ):
        config = data_config(corpus, vocabulary=VocabularyConfig(model=name))
        with pytest.raises(error, match=message):
            prepare(config, directory=tmp_path / "run")
        assert not (tmp_path / "run").exists() or not any((tmp_path / "run").iterdir())
    assert given_vocabularies(VocabularyConfig(), str(corpus)) is None
