"""SentencePiece models of one's own: whatever their ids, text is cut as they cut it."""

import dataclasses
import functools
import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import yaml

from flaxformer_mt.config.schema import VocabularyConfig
from flaxformer_mt.data.corpus import CorpusError
from flaxformer_mt.data.given_vocabulary import (
    given_vocabularies,
    joint_types,
    with_marks_first,
)
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
    "begin and end swapped": {"vocab_size": 200, "bos_id": 2, "eos_id": 1},
    "characters": {"model_type": "char", "vocab_size": 60},
    "words": {"model_type": "word", "vocab_size": 100},
    "lower case": {"vocab_size": 200, "normalization_rule_name": "nfkc_cf"},
    "pieces of several words": {
        "model_type": "bpe", "vocab_size": 200, "split_by_whitespace": False,
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return sentencepiece_model(TEXT, hard_vocab_limit=False, **MODELS[request.param])


def their_names(theirs: sentencepiece.SentencePieceProcessor) -> dict[str, str]:
    """Their marks' names, to ours."""
    ids = {"<pad>": theirs.pad_id(), "<s>": theirs.bos_id(), "</s>": theirs.eos_id()}
    ids["<unk>"] = theirs.unk_id()
    return {theirs.id_to_piece(id): name for name, id in ids.items() if id >= 0}


def test_text_is_cut_into_the_model_s_own_pieces(model):
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours = Vocabulary(with_marks_first(model))
    named = their_names(theirs)
    # That padding is a mark and no text, and runs of blanks count as one, is on purpose.
    lines = [" ".join(line.replace("<pad>", "").split()) for line in TEXT + HARD]
    expected = [
        [named.get(piece, piece) for piece in map(theirs.id_to_piece, ids)]
        for ids in theirs.encode(lines)
    ]
    encoded = ours.encode(lines)
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
    assert ours.pieces()[: UNK + 1] == ["<pad>", "<s>", "</s>", "<unk>"]
    assert not any(ours.types()[number].plain for number in (PAD, BOS, EOS, UNK))
    named = their_names(theirs)
    their_pieces = [theirs.id_to_piece(id) for id in range(theirs.get_piece_size())]
    assert {named.get(piece, piece) for piece in their_pieces} <= set(ours.pieces())
    assert ours.size - len(their_pieces) <= 2  # padding, a begin mark
    assert len(set(ours.pieces())) == ours.size


def test_what_the_model_says_of_itself_is_true_of_ours(model, tmp_path):
    path = tmp_path / "ours.model"
    path.write_bytes(with_marks_first(model))
    ours = Vocabulary.load(path)
    assert with_marks_first(path.read_bytes()) == path.read_bytes()
    spec = ModelProto.FromString(path.read_bytes()).trainer_spec
    assert (spec.pad_id, spec.bos_id, spec.eos_id, spec.unk_id) == (PAD, BOS, EOS, UNK)
    assert ours.encode(["  the   cat  "]) == ours.encode(["the cat"])
    assert ours.is_bpe == (ModelProto.FromString(model).trainer_spec.model_type == 2)


def refused(model: bytes, message: str) -> None:
    with pytest.raises(VocabularyError, match=message):
        Vocabulary(with_marks_first(model)).check()


def test_models_that_cannot_be_used():
    of_text = functools.partial(sentencepiece_model, TEXT, vocab_size=150)
    refused(of_text(eos_id=-1), r"has no end mark, </s>.*: spm_train --input=TEXT")
    refused(of_text(treat_whitespace_as_suffix=True), "has no sign of a blank where words begin")
    for content in (b"", b"text", b"\x0a\x03abc"):
        refused(content, "is not a SentencePiece model")

    def changed(change: Callable[[Any], None]) -> bytes:
        proto = ModelProto.FromString(of_text())
        change(proto)
        return proto.SerializeToString()

    def switch_off(proto: Any) -> None:
        proto.pieces[9].type = proto.pieces[9].UNUSED

    def leave_one(proto: Any) -> None:
        del proto.pieces[1:]
        proto.pieces[0].type = proto.pieces[0].NORMAL

    def name_padding_as_begin(proto: Any) -> None:
        proto.trainer_spec.pad_piece = "<s>"

    add = "the cat"
    refused(changed(lambda proto: proto.pieces.add(piece="<pad>")), "its pad mark, <pad>, as a pie")
    refused(changed(switch_off), r"switched off \(SetVocabulary\)")
    refused(changed(leave_one), "has no single piece for unknown text")
    Vocabulary(with_marks_first(changed(name_padding_as_begin))).check()  # two marks here
    twice = changed(lambda proto: [proto.pieces.add(piece=add) for _ in range(2)])
    refused(twice, "not a SentencePiece model")


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

    # Its contents count, not its place, and it may be gone.
    (corpus / "both.model").rename(corpus / "moved.model")
    prepare(config, directory=tmp_path / "run", say=said.append)
    assert any("both.model does not exist" in line and "is used" in line for line in said)
    for vocabulary, message in (
        (VocabularyConfig(model="moved.model", size=37_000), None),
        (VocabularyConfig(model="en.model", size=37_000), "names another model"),
        (VocabularyConfig(size=37_000), r"data\.vocabulary\.model"),
    ):
        other = dataclasses.replace(config, vocabulary=vocabulary)
        with nullcontext() if message is None else pytest.raises(PrepareError, match=message):
            prepare(other, directory=tmp_path / "run")


def test_what_a_given_or_found_vocabulary_lacks_is_told(corpus, tmp_path):
    tagged = dataclasses.replace(data_config(corpus).train[0], tag="<2de>")
    control = sentencepiece_model(
        [line for pair in GOOD for line in pair],
        vocab_size=60,
        hard_vocab_limit=False,
        control_symbols=["<2de>"],
    )
    (corpus / "both.model").write_bytes(control)
    config = data_config(corpus, vocabulary=VocabularyConfig(model="both.model"))
    said = []
    config = dataclasses.replace(config, train=(tagged,))
    prepare(config, directory=tmp_path / "run", say=said.append)
    assert Vocabularies.load(tmp_path / "run" / "vocabulary").src.is_one_type("<2de>")

    shutil.rmtree(tmp_path / "run" / "data")
    symbols = VocabularyConfig(symbols=("<x1/>",))
    prepare(data_config(corpus, vocabulary=symbols), directory=tmp_path / "run", say=said.append)
    assert any("symbols: <x1/> is not in that vocabulary; it is split" in line for line in said)
    shutil.rmtree(tmp_path / "run" / "data")
    with pytest.raises(PrepareError, match="names another model than the vocabulary in"):
        other = data_config(corpus, vocabulary=VocabularyConfig(model="en.model"))
        prepare(other, directory=tmp_path / "run")


def test_tags_that_a_model_lacks_are_added_to_it(corpus, tmp_path):
    train = dataclasses.replace(data_config(corpus).train[0], tag="<2de> <news>")
    given = VocabularyConfig(model="en.model", symbols=("<x1/>",))
    config = data_config(corpus, vocabulary=given)
    said = []
    prepare(dataclasses.replace(config, train=(train,)), directory=tmp_path / "a", say=said.append)
    assert "prepare: with tags as types after all others: <2de>, <news>" in said
    assert any("symbols: <x1/> is not in that vocabulary; it is split" in line for line in said)
    vocabulary = Vocabularies.load(tmp_path / "a" / "vocabulary").src
    before = Vocabulary(with_marks_first((corpus / "en.model").read_bytes()))
    assert vocabulary.pieces() == [*before.pieces(), "<2de>", "<news>"]
    assert vocabulary.encode(TEXT) == before.encode(TEXT)
    prepare(dataclasses.replace(config, train=(train,)), directory=tmp_path / "a")  # verifies it


def test_each_side_may_have_a_model(corpus, tmp_path):
    settings = {"src_model": "en.model", "tgt_model": "de.model", "shared": False}
    config = data_config(corpus, vocabulary=VocabularyConfig(**settings))
    prepare(config, directory=tmp_path / "run")
    vocabularies = Vocabularies.load(tmp_path / "run" / "vocabulary")
    for side, language in ((vocabularies.src, "en"), (vocabularies.tgt, "de")):
        content = (corpus / f"{language}.model").read_bytes()
        assert side == Vocabulary(with_marks_first(content))


def joint_yaml(corpus: Path, *, leave_out: str = "") -> str:
    """Marian's table of both languages' types, in an order of its own."""
    models = [(corpus / f"{language}.model").read_bytes() for language in ("de", "en")]
    pieces = dict.fromkeys(["</s>", "<unk>"])
    for model in models:
        pieces |= dict.fromkeys(piece.piece for piece in ModelProto.FromString(model).pieces)
    names = [name for name in pieces if name not in ("<s>", leave_out)]
    lines = [f"{json.dumps(name)}: {number}" for number, name in enumerate(names)]
    return "\n".join(reversed(lines)) + "\n"


JOINT = VocabularyConfig(src_model="en.model", tgt_model="de.model", joint_types="vocab.yml")


def test_two_models_may_share_the_types_of_marian_s_table(corpus, tmp_path):
    (corpus / "vocab.yml").write_text(joint_yaml(corpus), "utf-8")
    store = prepare(data_config(corpus, vocabulary=JOINT), directory=tmp_path / "run")
    vocabularies = Vocabularies.load(tmp_path / "run" / "vocabulary")
    src, tgt = vocabularies.src, vocabularies.tgt
    assert src.size == tgt.size and src.pieces() == tgt.pieces()  # one embedding may serve both
    ids = yaml.safe_load(joint_yaml(corpus))
    assert src.pieces()[UNK + 1 :] == [name for name in sorted(ids, key=ids.get) if ids[name] > 1]
    rows = [listed(store.train, side) for side in ("src", "tgt")]
    for row, side, number in zip(rows, (src, tgt), (0, 1), strict=True):
        assert side.decode(row) == [pair[number] for pair in GOOD]
        language = ("en", "de")[number]
        content = (corpus / f"{language}.model").read_bytes()
        theirs = sentencepiece.SentencePieceProcessor(model_proto=content)
        lines = [pair[number] for pair in GOOD]
        assert [side.pieces(ids)[:-1] for ids in row] == theirs.encode(lines, out_type=str)

    (corpus / "vocab.yml").write_text(joint_yaml(corpus, leave_out=src.pieces()[9]), "utf-8")
    with pytest.raises(PrepareError, match="names another model than the vocabulary in"):
        prepare(data_config(corpus, vocabulary=JOINT), directory=tmp_path / "run")


def test_a_table_of_another_model_is_refused(corpus):
    (corpus / "vocab.yml").write_text('"</s>": 0\n"<unk>": 1\n"a": 2\n', "utf-8")
    with pytest.raises(VocabularyError, match=r"vocab\.yml: has . of the \d+ pieces of en\.model"):
        given_vocabularies(JOINT, str(corpus))


MARIAN = '"</s>": 0\n"<unk>": 1\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (MARIAN + "a: [", "is not a mapping from pieces to ids|is not YAML"),
        ("a: {b: c", "is not a mapping from pieces to ids"),
        ("- a", "is not a mapping from pieces to ids"),
        ("", "is not a mapping from pieces to ids"),
        (MARIAN + '"a": [2]\n', "is not a mapping from pieces to ids"),
        (MARIAN + "[" * 100_000, "is not a mapping from pieces to ids|is not YAML"),
        (MARIAN + '"a": "b"\n', "has 'a': 'b', which is not a piece and its id"),
        (MARIAN + '"a": -2\n', "has 'a': '-2', which is not a piece and its id"),
        (MARIAN + '"a": 2\n"b": 2\n', "has 'a' and 'b' with the id 2"),
        (MARIAN + '"a": 2\n"a": 3\n', "has the piece 'a' twice"),
        ('"</s>": 0\n', "has no <unk>, Marian's marks"),
        ("{}", "has no </s> and no <unk>"),
        (b"\xff\xfe\x00", "is not YAML"),
    ],
)
def test_what_is_no_table_of_types_is_told(content, message):
    with pytest.raises(VocabularyError, match=message):
        joint_types(content.encode() if isinstance(content, str) else content)


def test_pieces_are_taken_as_they_are_written():
    table = joint_types((MARIAN + "no: 2\n5: 4\n'1:30': 3\n").encode())
    assert table.pieces[UNK + 1 :] == ("no", "1:30", "5")


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
