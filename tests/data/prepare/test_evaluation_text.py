"""Training pairs whose source is in validation or test text: counted, named, dropped if asked."""

from dataclasses import replace

import pytest

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import CorpusError
from flaxformer_mt.data.prepare.evaluation_text import EvaluationText
from flaxformer_mt.data.prepare.manifest import PrepareError, read_manifest
from tests.data.pairs import listed
from tests.data.prepare.corpora import GOOD, data_config, prepare, write


@pytest.fixture
def config(tmp_path):
    """Training text with two sources of validation text, one with another target, and three of a
    test set, one of them also in validation text."""
    text = tmp_path / "text"
    write(text, "train", [*GOOD[:6], (f" {GOOD[20][0]}", "etwas anderes"), GOOD[21]])
    write(text, "valid", [*GOOD[20:22], GOOD[23]])
    write(text, "test", [*GOOD[:2], GOOD[21], GOOD[22]])
    return replace(
        data_config(text),
        test=(CorpusConfig(name="held_out", src="test.en", tgt="test.de", tag="<x>"),),
    )


def prepared(config, folder):
    lines: list[str] = []
    store = prepare(config, directory=folder, say=lines.append)
    return store, read_manifest(folder / "data")["corpora"][0], "\n".join(lines)


def test_they_are_counted_and_named(config, tmp_path):
    store, account, said = prepared(config, tmp_path / "run")
    assert len(store.train) == 8 and account["kept"] == 8 and account["dropped"] == {}
    assert account["overlap"] == {"in data.valid": 2, "in data.test.held_out": 2}
    assert (
        "warning: data.train.train: 4 pairs have a source that is in evaluation text, too: 2 in "
        f"data.test.held_out, 2 in data.valid, first {tmp_path / 'text' / 'train.en'}:1; "
        "data.filter.overlap=true drops such pairs"
    ) in said


def test_they_are_dropped_if_asked(config, tmp_path):
    dropping = replace(config, filter=replace(config.filter, overlap=True))
    store, account, said = prepared(dropping, tmp_path / "run")
    assert len(store.train) == 4 == len(listed(store.train, "src"))
    assert account["dropped"] == {"in data.valid": 2, "in data.test.held_out": 2}
    assert "overlap" not in account and "evaluation text" not in said
    lines = [example["line"] for example in account["examples"]]
    assert sorted(lines) == [1, 2, 7, 8]
    # No type is learned from them alone, and the setting is one of the store.
    assert "anderes" not in (tmp_path / "run" / "vocabulary" / "shared.pieces.tsv").read_text()
    with pytest.raises(PrepareError, match=r"data\.filter\.overlap: True then, False now"):
        prepare(config, directory=tmp_path / "run")


def test_text_without_any_is_not_remarked_on(config, tmp_path):
    write(tmp_path / "text", "train", GOOD[6:18])
    _, account, said = prepared(config, tmp_path / "run")
    assert "overlap" not in account and "evaluation text" not in said


def test_a_test_set_that_is_elsewhere_is_left_out_and_said(config, tmp_path):
    (tmp_path / "text" / "test.de").unlink()
    _, account, said = prepared(config, tmp_path / "run")
    assert account["overlap"] == {"in data.valid": 2}
    assert "test.de does not exist" in said and "training text is not searched for it" in said
    gone = replace(config, valid=replace(config.valid, src="gone.en"))
    with pytest.raises(CorpusError, match="gone.en does not exist"):
        EvaluationText.of(gone, print)


def test_held_out_text_is_not_in_what_is_trained_on(config, tmp_path):
    held_out = replace(config, valid=CorpusConfig(name="valid"), valid_fraction=0.3, test=())
    text = EvaluationText.of(held_out, print)
    assert text.keys == () and text.owners_of([b"a", b"b"]).tolist() == [-1, -1]
    _, account, _ = prepared(held_out, tmp_path / "run")
    assert "overlap" not in account


def test_each_source_is_one_corpus_s(config):
    text = EvaluationText.of(config, print)
    sources = [GOOD[number][0].encode() for number in (0, 20, 21, 22, 23, 10)]
    assert text.keys == ("data.valid", "data.test.held_out")
    assert text.owners_of(sources).tolist() == [1, 0, 0, 1, 0, -1]
    assert text.owners_of([]).tolist() == []
