"""The one door: what every kind of source promises, whatever it reads."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from array_record.python.array_record_module import ArrayRecordWriter

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data import synthetic
from flaxformer_mt.data.corpus import CorpusError, Pair, files, open_source, read_pairs

LINES = [("one", "eins"), ("", "zwei"), ("three", "drei")]


def corpora(folder: Path) -> dict[str, CorpusConfig]:
    """The same pairs in every kind of file; the second has no source."""
    (folder / "a.en").write_text("".join(f"{src}\n" for src, _ in LINES))
    (folder / "a.de").write_text("".join(f"{tgt}\n" for _, tgt in LINES))
    (folder / "a.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in LINES))
    objects = [json.dumps({"en": src, "de": tgt}) for src, tgt in LINES]
    (folder / "a.jsonl").write_text("".join(f"{line}\n" for line in objects))
    writer = ArrayRecordWriter(str(folder / "a.array_record"), "group_size:1")
    for line in objects:
        writer.write(line.encode())
    writer.close()
    keys = {"name": "a", "src": "en", "tgt": "de"}
    return {
        "files": CorpusConfig(name="a", src="a.en", tgt="a.de"),
        "tsv": CorpusConfig(name="a", kind="tsv", path="a.tsv"),
        "jsonl": CorpusConfig(kind="jsonl", path="a.jsonl", **keys),
        "array_record": CorpusConfig(kind="array_record", path="a.array_*", **keys),
    }


@pytest.mark.parametrize("kind", ["files", "tsv", "jsonl", "array_record"])
def test_kinds_differ_in_nothing_but_the_file(tmp_path: Path, kind: str) -> None:
    corpus = corpora(tmp_path)[kind]
    source = open_source(corpus, str(tmp_path), "data.train.a")
    records = list(source.records())
    assert records == [tuple(side.encode() for side in pair) for pair in LINES]
    # Worker processes check what the reading process read.
    there = pickle.loads(pickle.dumps(source))
    defects = [there.check(columns) for columns in records]
    assert [defect is None for defect in defects] == [True, False, True]
    assert defects[1].reason == "empty side"
    assert defects[1].detail == "the source is blank"
    assert source.label in (str(next(iter(source.files.values()))), "a.array_*")
    assert files(corpus, str(tmp_path)) == source.files
    with pytest.raises(CorpusError, match=":2: empty side: the source is blank"):
        list(read_pairs(corpus, str(tmp_path)))


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        ("files", "src"),
        ("files", "tgt"),
        ("tsv", "path"),
        *[(kind, name) for kind in ("jsonl", "array_record", "tfds") for name in ("path", "tgt")],
        ("tfds", "split"),
    ],
)
def test_a_setting_that_is_missing_is_named(kind: str, setting: str) -> None:
    given = {"src": "a", "tgt": "b", "path": "c", "split": "train"} | {setting: ""}
    with pytest.raises(CorpusError) as caught:
        open_source(CorpusConfig(name="a", kind=kind, **given), "", "data.train.a")
    assert str(caught.value) == (
        f"data.train.a.{setting} is not set: a corpus of kind {kind!r} needs it"
    )


def test_the_builtin_grammar_needs_a_size() -> None:
    with pytest.raises(CorpusError, match=r"data\.train\.g\.size is 0"):
        list(read_pairs(CorpusConfig(name="g", kind="synthetic"), key="data.train.g"))


def test_the_builtin_grammar_is_read_like_a_file() -> None:
    corpus = CorpusConfig(name="g", kind="synthetic", split="valid", size=20)
    expected = [Pair(n, *pair) for n, pair in enumerate(synthetic.pairs("valid", 20), 1)]
    assert list(read_pairs(corpus)) == expected
    assert files(corpus) == {}
    assert open_source(corpus, key="data.valid").label == "data.valid (built-in grammar)"
