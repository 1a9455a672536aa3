"""A weight for each training pair: read from each kind of corpus, stored, and part of a batch."""

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flaxformer_mt.api.prepared_text import planner_of
from flaxformer_mt.config import ConfigError, ExperimentConfig, freeze
from flaxformer_mt.config.consistency import unused_settings
from flaxformer_mt.config.schema import (
    BatchConfig,
    CorpusConfig,
    DataConfig,
    FilterConfig,
    VocabularyConfig,
)
from flaxformer_mt.data.batch import WHOLE, assemble
from flaxformer_mt.data.corpus import CorpusError, LinePlace, open_source, weight_of
from flaxformer_mt.data.order import Position
from flaxformer_mt.data.pipeline import _flat, _from_flat, _Stream
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.data.planner import Planner
from flaxformer_mt.data.prepare.encode import Chunk, EncodingSettings, Range, encode_chunk
from flaxformer_mt.data.prepare.finished_parts import _from_arrays, _to_arrays
from flaxformer_mt.data.prepare.manifest import PrepareError, read_manifest
from flaxformer_mt.data.sampling import Resampler
from flaxformer_mt.data.store import Store, StoreError, TokenPairs
from flaxformer_mt.data.vocabulary import Vocabularies, train_pair
from tests.data.prepare.corpora import GOOD, prepare

WEIGHTS = [0.25, 1, 2.5, "1e-2"]
PAIRS = GOOD[:4]
CONFIG = BatchConfig(tokens=200, multiple=1)


def write(folder: Path, *, weights: list[Any] = WEIGHTS) -> None:
    """The same weighted pairs in files of every kind that can have weights."""
    (folder / "train.en").write_text("".join(f"{src}\n" for src, _ in PAIRS))
    (folder / "train.de").write_text("".join(f"{tgt}\n" for _, tgt in PAIRS))
    (folder / "weights.txt").write_text("".join(f"{weight}\n" for weight in weights))
    rows = [(src, tgt, weight) for (src, tgt), weight in zip(PAIRS, weights, strict=True)]
    (folder / "a.tsv").write_text("".join(f"{w}\t{s}\t{t}\n" for s, t, w in rows))
    lines = ["en,score,de", *(f'"{s}",{w},"{t}"' for s, t, w in rows)]
    (folder / "a.csv").write_text("\n".join(lines) + "\n")
    objects = [{"en": src, "de": tgt, "meta": {"score": weight}} for src, tgt, weight in rows]
    (folder / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in objects))
    columns = {"en": [s for s, _ in PAIRS], "de": [t for _, t in PAIRS]}
    numbers = pa.array([0.25, 1, 2.5, 0.01], pa.float32())
    pq.write_table(pa.table({**columns, "score": numbers}), folder / "a.parquet")


CORPORA = {
    "files": {"src": "train.en", "tgt": "train.de", "pair_weights": "weights.txt"},
    "tsv": {"path": "a.tsv", "src": "2", "tgt": "3", "pair_weights": "1"},
    "csv": {"path": "a.csv", "src": "en", "tgt": "de", "pair_weights": "score"},
    "jsonl": {"path": "a.jsonl", "src": "en", "tgt": "de", "pair_weights": "meta.score"},
    "hf": {"path": "a.parquet", "src": "en", "tgt": "de", "pair_weights": "score"},
}


def config_of(folder: Path, *corpora: CorpusConfig, **settings: Any) -> DataConfig:
    return DataConfig(
        folder=str(folder),
        train=corpora,
        valid=CorpusConfig(name="valid", src="train.en", tgt="train.de"),
        vocabulary=VocabularyConfig(size=60, soft_size=True),
        **settings,
    )


def corpus(kind: str, **changes: Any) -> CorpusConfig:
    return CorpusConfig(name="weighted", kind=kind, **(CORPORA[kind] | changes))  # type: ignore[arg-type]


def weights_of(pairs: TokenPairs) -> list[float] | None:
    weights = pairs.sides["tgt"].weights(np.arange(len(pairs)))
    return None if weights is None else weights.tolist()


@pytest.fixture
def run(tmp_path) -> Path:
    return tmp_path / "run"


@pytest.mark.parametrize("kind", CORPORA)
def test_each_kind_of_corpus_may_have_a_weight_for_each_pair(kind, tmp_path, run):
    write(tmp_path)
    store = prepare(config_of(tmp_path, corpus(kind)), directory=run)
    assert weights_of(store.train) == pytest.approx([0.25, 1, 2.5, 0.01])
    assert weights_of(store.valid) is None
    # As another process maps it, and as it is opened again.
    assert weights_of(pickle.loads(pickle.dumps(store.train))) == weights_of(store.train)
    assert weights_of(Store.open(run / "data", thorough=True).train) == weights_of(store.train)


def test_pairs_of_other_corpora_weigh_1_and_dropped_ones_take_theirs_along(tmp_path, run):
    write(tmp_path, weights=["1e-50", "-1", "much", 3])  # the first is 0 in float32
    plain = CorpusConfig(name="plain", src="train.en", tgt="train.de")
    filters = FilterConfig(max_length=40, duplicates=True)
    config = config_of(tmp_path, corpus("files"), plain, filter=filters)
    store = prepare(config, directory=run)
    assert weights_of(store.train) == [3, 1, 1, 1]
    account, of_plain, _ = read_manifest(run / "data")["corpora"]
    assert account["dropped"] == {"weight of 0": 1, "no weight": 2}
    assert account["weights"] == {"lowest": 3, "mean": 3, "highest": 3}
    assert "weights" not in of_plain
    told = [(example["line"], example["detail"]) for example in account["examples"]]
    assert sorted(told) == [
        (1, "the pair would not be trained on"),
        (2, "-1 is not between 0 and 1,000,000"),
        (3, "'much' is not a number"),
    ]
    assert {Path(example["file"]).name for example in account["examples"]} == {"weights.txt"}


def test_weights_are_told_and_extreme_ones_warned_of(tmp_path, run):
    write(tmp_path)
    lines = (tmp_path / "train.en").read_text() * 100, (tmp_path / "train.de").read_text() * 100
    for name, text in zip(("train.en", "train.de"), lines, strict=True):
        (tmp_path / name).write_text(text)
    (tmp_path / "weights.txt").write_text("0.5\n" * 399 + "1000\n")
    said: list[str] = []
    prepare(config_of(tmp_path, corpus("files")), directory=run, say=said.append)
    told = "weights from 0.5 to 1000, 3 in the mean"
    warning = f"{told}: a pair of the highest weight counts as much as 333 others"
    for line in (f"400 pairs read, 400 kept, {told}", warning):
        assert any(line in one for one in said)


def test_weights_that_do_not_fit_their_corpus_are_refused(tmp_path, run):
    write(tmp_path)
    (tmp_path / "weights.txt").write_text("1\n2\n")
    with pytest.raises(CorpusError, match="weights.txt has 2: sides and weights must have one"):
        prepare(config_of(tmp_path, corpus("files")), directory=run)
    with pytest.raises(CorpusError, match=r"weighted\.pair_weights: .*absent"):
        prepare(config_of(tmp_path, corpus("files", pair_weights="absent")), directory=run)
    with pytest.raises(CorpusError, match="has no column 'weight'; there: 'en', 'score', 'de'"):
        open_source(corpus("csv", pair_weights="weight"), str(tmp_path))
    with pytest.raises(CorpusError, match="column 'en' holds list<.*>, not numbers"):
        pq.write_table(
            pa.table({"en": [[1.0]], "de": ["a"], "fr": ["b"]}), tmp_path / "list.parquet"
        )
        listed = corpus("hf", path="list.parquet", src="fr", pair_weights="en")
        list(open_source(listed, str(tmp_path)).records())


@pytest.mark.parametrize(
    ("key", "settings", "problem"),
    [
        ("train", {"kind": "tsv", "path": "a.tsv", "pair_weights": "3"}, "needs the columns"),
        ("valid", CORPORA["files"], "'data.valid.pair_weights': only training pairs have"),
        (
            "train",
            {"kind": "tfds", "pair_weights": "w"},
            "has no effect on a corpus of kind",
        ),
    ],
)
def test_weights_where_there_can_be_none_are_refused(key, settings, problem):
    data = {"train": {"one": settings}} if key == "train" else {"valid": settings}
    try:
        told = "; ".join(unused_settings(freeze({"data": data}, "a test")))
    except ConfigError as error:
        told = str(error)
    assert problem in told


def test_what_is_no_number_is_counted_as_no_weight(tmp_path):
    objects = [{"en": "a", "de": "b", "w": weight} for weight in (None, True, [1], "0.5", 1e300)]
    objects.append({"en": "a", "de": "b"})
    (tmp_path / "odd.jsonl").write_text("".join(json.dumps(one) + "\n" for one in objects))
    source = open_source(corpus("jsonl", path="odd.jsonl", pair_weights="w"), str(tmp_path))
    told = [source.check(record) for record in source.records()]
    assert told[3] is None
    assert [(defect.reason, defect.detail) for defect in told if defect is not None] == [
        ("no weight", "'w' is null, not a number"),
        ("no weight", "'w' is true, not a number"),
        ("no weight", "'w' is [1], not a number"),
        ("no weight", "1e+300 is not between 0 and 1,000,000"),
        ("no weight", "no key 'w'; keys there: 'en', 'de'"),
    ]


def test_validation_text_that_is_held_out_takes_no_notice_of_weights(tmp_path, run):
    lines = [f"{src} {number}" for number in range(40) for src, _ in GOOD[:1]]
    for name in ("train.en", "train.de"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "weights.txt").write_text("1\n0\n" * 20)
    held_out = {"valid": CorpusConfig(name="valid"), "valid_fraction": 0.5}
    sizes = [
        len(prepare(replace(config_of(tmp_path, one), **held_out), directory=run / name).valid)
        for name, one in (("w", corpus("files")), ("p", corpus("files", pair_weights="")))
    ]
    assert sizes[0] == sizes[1] > 10


def test_a_part_of_the_files_is_read_with_its_weights(tmp_path):
    """As a cluster's machines read plain files, each from a place of its own."""
    write(tmp_path)
    source = open_source(corpus("files"), str(tmp_path))
    places = {name: LinePlace(first=2) for name in source.files}
    part = Range("train", source, 2, 4, places)
    assert [weight_of(record) for record in part.records()] == [2.5, 0.01]


def test_settings_and_prepared_pairs_agree_on_weights(tmp_path, run):
    """Also where the file that the settings name can't be read: the store isn't made from it."""
    write(tmp_path)
    without = config_of(tmp_path, corpus("files", pair_weights=""))
    store = prepare(without, directory=run)
    absent = config_of(tmp_path, corpus("files", pair_weights="absent"))
    with pytest.raises(PrepareError, match=r"pair_weights: '' then, 'given' now"):
        prepare(absent, directory=run)
    config = replace(ExperimentConfig(), data=absent)
    with pytest.raises(StoreError, match="differ in 'pair_weights'"):
        planner_of(config, store, Vocabularies.load(run / "vocabulary"))


def test_changed_weights_are_noticed_and_damaged_ones_refused(tmp_path, run):
    write(tmp_path)
    config = config_of(tmp_path, corpus("files"))
    first = prepare(config, directory=run)
    (tmp_path / "weights.txt").write_text("1\n2\n3\n4\n")
    with pytest.raises(PrepareError, match=r"the contents of .*weights.txt have changed"):
        prepare(config, directory=run)
    without = config_of(tmp_path, corpus("files", pair_weights=""))
    with pytest.raises(PrepareError, match=r"pair_weights: 'given' then, '' now"):
        prepare(without, directory=run)
    other = prepare(config, directory=tmp_path / "other")
    assert first.train.digest != other.train.digest

    stored = run / "data" / "train-00000.tgt.weights"
    stored.write_bytes(stored.read_bytes()[::-1])
    with pytest.raises(StoreError, match="tgt.weights: its contents do not match"):
        Store.open(run / "data")


def test_a_batch_has_each_pairs_weight_at_its_target_tokens(tmp_path, run):
    """Also packed, and after another process has made it."""
    write(tmp_path)
    train = prepare(config_of(tmp_path, corpus("files")), directory=run).train
    lengths = train.sides["tgt"].lengths(np.arange(4))
    indices = np.array([2, 0, 3])
    batch = assemble(train, indices, Shape(3, 60, 80), np.array([2, 1]))
    assert batch.tgt_weights is not None and batch.tgt_weights.dtype == np.float32
    expected = np.zeros((3, 80), np.float32)
    expected[0, : lengths[2]] = 2.5
    expected[0, lengths[2] : lengths[2] + lengths[0]] = 0.25
    expected[1, : lengths[3]] = 0.01
    np.testing.assert_array_equal(batch.tgt_weights, expected)

    delivery = next(iter(_Stream(Planner(train, CONFIG, 1), Position(), frozenset(), WHOLE)))
    sent, received = delivery.batch.arrays, _from_flat(_flat(delivery)).batch.arrays
    assert sent.keys() == received.keys() and "tgt_weights" in sent
    for name, array in sent.items():
        np.testing.assert_array_equal(received[name], array)
        assert received[name].dtype == array.dtype


def test_drawn_segmentations_keep_their_pairs_weights(tmp_path, run):
    write(tmp_path)
    train = prepare(config_of(tmp_path, corpus("files")), directory=run).train
    resampler = Resampler(Vocabularies.load(run / "vocabulary"), 0.5, seed=1)
    drawn = resampler.draw(train, np.array([3, 0, 2]), 0, (80, 80))
    assert weights_of(drawn) == pytest.approx([0.01, 0.25, 2.5])
    limited = resampler.draw(train, np.array([3, 0, 2]), 0, (1, 1))  # all stay as stored
    assert weights_of(limited) == weights_of(drawn)


def test_a_clusters_finished_parts_keep_weights(tmp_path):
    write(tmp_path)
    config = config_of(tmp_path, corpus("jsonl"))
    source = open_source(config.train[0], str(tmp_path))
    chunk = Chunk("train", source, 1, list(source.records()))
    vocabularies = train_pair(GOOD, config.vocabulary)
    encoded = encode_chunk(chunk, EncodingSettings(vocabularies, config))
    [restored] = _from_arrays(_to_arrays([encoded]))
    np.testing.assert_array_equal(restored.tokens.weights, encoded.tokens.weights)
    assert restored.tokens.weights.tolist() == pytest.approx([0.25, 1, 2.5, 0.01])
