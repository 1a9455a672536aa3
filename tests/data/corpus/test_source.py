"""The one door: what every kind of source promises, whatever it reads."""

import json
import pickle

import pytest

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import CorpusError, Pair, open_source, read_pairs
from flaxformer_mt.grammar import text
from tests.data.corpus.conftest import write_shard

LINES = [("one", "eins"), ("", "zwei"), ("three", "drei")]


def test_kinds_differ_in_nothing_but_the_file(tmp_path):
    objects = [json.dumps({"en": src, "de": tgt}) for src, tgt in LINES]
    for name, lines in (
        ("a.en", [src for src, _ in LINES]),
        ("a.de", [tgt for _, tgt in LINES]),
        ("a.tsv", ["\t".join(pair) for pair in LINES]),
        ("a.jsonl", objects),
    ):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    write_shard(tmp_path / "a.array_record", [line.encode() for line in objects])
    keys = {"name": "a", "src": "en", "tgt": "de"}
    for corpus in (
        CorpusConfig(name="a", src="a.en", tgt="a.de"),
        CorpusConfig(name="a", kind="tsv", path="a.tsv"),
        CorpusConfig(kind="jsonl", path="a.jsonl", **keys),
        CorpusConfig(kind="array_record", path="a.array_*", **keys),
    ):
        source = open_source(corpus, str(tmp_path), "data.train.a")
        records = list(source.records())
        assert records == [tuple(side.encode() for side in pair) for pair in LINES]
        # Worker processes check what the reading process read.
        sent = pickle.loads(pickle.dumps(source))
        first, second, third = (sent.check(columns) for columns in records)
        assert first is third is None
        assert second is not None and second[2:] == ("empty side", "the source is blank")
        assert source.label in (str(next(iter(source.files.values()))), "a.array_*")
        with pytest.raises(CorpusError, match=":2: empty side: the source is blank"):
            list(read_pairs(corpus, str(tmp_path)))


def test_a_setting_that_is_missing_is_named():
    for kind, setting in (
        ("files", "tgt"),
        ("tsv", "path"),
        ("jsonl", "tgt"),
        ("array_record", "path"),
        ("tfds", "split"),
        ("synthetic", "size"),
    ):
        settings = {"src": "a", "tgt": "b", "path": "c", "split": "train"} | {setting: ""}
        message = rf"^data\.train\.a\.{setting} is not set: a corpus of kind '{kind}' needs it$"
        with pytest.raises(CorpusError, match=message):
            open_source(CorpusConfig(name="a", kind=kind, **settings), "", "data.train.a")
    with pytest.raises(CorpusError, match=r"data\.valid\.src .*; or hold out .*\.valid_fraction=0"):
        open_source(CorpusConfig(kind="files"), "", "data.valid")

    # The built-in grammar is read like a file.
    corpus = CorpusConfig(name="g", kind="synthetic", split="valid", size=20)
    expected = [Pair(n, *pair) for n, pair in enumerate(text.pairs("valid", 20), 1)]
    assert list(read_pairs(corpus)) == expected
    assert open_source(corpus, download=False).files == {}
    assert open_source(corpus, key="data.valid").label == "data.valid (built-in grammar)"
