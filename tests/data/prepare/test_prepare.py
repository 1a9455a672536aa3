"""`prepare`: once, completely or not at all, every pair accounted for, changes and damage named."""

import contextlib
import errno
import io
import itertools
import json
import os
import re
import shutil
import sys
import types
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flaxformer_mt.config.schema import CorpusConfig, FilterConfig, VocabularyConfig
from flaxformer_mt.data.corpus import CorpusError, Drops, read_pairs
from flaxformer_mt.data.prepare import encode_corpora, manifest as manifests, sample as sampling
from flaxformer_mt.data.prepare.make import valid_text
from flaxformer_mt.data.prepare.manifest import PrepareError, read_manifest
from flaxformer_mt.data.prepare.report import describe
from flaxformer_mt.data.sampling import resampler_for
from flaxformer_mt.data.store import Store, StoreError
from flaxformer_mt.data.vocabulary import EOS, Vocabularies
from tests.data.pairs import listed
from tests.data.prepare.corpora import GOOD, contents, data_config, prepare, write


@pytest.fixture
def config(tmp_path):
    """A corpus in tmp_path/text of 24 good pairs, and one of the first four for validation."""
    for name, pairs in (("train", GOOD), ("valid", GOOD[:4])):
        write(tmp_path / "text", name, pairs)
    return data_config(tmp_path / "text")


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def test_the_store_holds_the_corpus(config, run):
    store = prepare(config, directory=run)
    vocabularies = Vocabularies.load(run / "vocabulary")
    assert len(store.train) == 24 and len(store.valid) == 4
    rows = [listed(store.train, side) for side in ("src", "tgt")]
    assert {row[-1] for row in itertools.chain(*rows)} == {EOS}
    assert list(zip(*map(vocabularies.src.decode, rows), strict=True)) == GOOD
    assert list(zip(*valid_text(run / "data"), strict=True)) == GOOD[:4]


def test_the_manifest_counts_the_sentences_of_source_lines(tmp_path, run):
    pairs = [(f"{src} The lamp sees us .", tgt) for src, tgt in GOOD[:6]] + GOOD[6:]
    for name in ("train", "valid"):
        write(tmp_path / "text", name, pairs)
    prepare(data_config(tmp_path / "text"), directory=run)
    manifest = read_manifest(run / "data")
    assert manifest["sentences"] == {"lines": 24, "by_sentences": {"1": 18, "2": 6}}
    assert "up to 2 sentences: a line of more" in describe(manifest)


def test_the_manifest_names_the_inputs_and_the_store(config, run):
    store = prepare(config, directory=run)
    assert sorted(path.name for path in run.iterdir()) == ["data", "vocabulary"]
    manifest = read_manifest(run / "data")
    keys = ["data.train.train.src", "data.train.train.tgt", "data.valid.src", "data.valid.tgt"]
    assert [file["key"] for file in manifest["inputs"]] == keys
    assert manifest["store"] == store.digest == Store.open(run / "data").digest
    lengths = manifest["lengths"]["train"]["tgt"]
    assert lengths["tokens"] == store.train.lengths[1].sum()


def test_a_second_call_reuses_the_store_without_its_texts(config, tmp_path, run):
    """A run directory stands alone."""
    store = prepare(config, directory=run)
    before = contents(run)
    lines: list[str] = []
    shutil.rmtree(tmp_path / "text")
    again = prepare(config, directory=run, say=lines.append)
    assert again.digest == store.digest and contents(run) == before
    assert lines[-1] == f"prepare: 24 training pairs in {run / 'data'} are up to date"
    assert "does not exist" in lines[0] and "using the store made from it" in lines[0]


def test_nothing_left_is_an_error_with_the_counts(config, tmp_path, run):
    short = replace(config, filter=FilterConfig(max_length=3))
    file = tmp_path / "text" / "train.en"
    left = r"data\.train: all 24 pairs were dropped: 24"
    for content, settings, error, message in (
        (None, short, PrepareError, rf"{left} too long; the first: {file}:1: too long"),
        (b"\n" * 24, config, PrepareError, rf"{left} empty side"),
        (b"one\n", config, CorpusError, r"train\.en has 1 lines and .*train\.de has 24"),
        (b"", config, PrepareError, r"data\.train: the corpus is empty"),
        (None, replace(config, train=()), PrepareError, r"data\.train has no corpus"),
    ):
        if content is not None:
            file.write_bytes(content)
        if content == b"":
            file.with_suffix(".de").write_bytes(b"")
        with pytest.raises(error, match=message):
            prepare(settings, directory=run)
    assert list(run.iterdir()) == []


@pytest.fixture
def splitting(config, tmp_path):
    """Settings that hold out a tenth of 2,000 sources, each with two targets and its own blanks."""
    pairs = [(f"line {n // 2}{' ' * (n % 2)}", f"{n % 2} Zeile") for n in range(4000)]
    write(tmp_path / "text", "train", pairs)
    return replace(config, valid=CorpusConfig(name="valid"), valid_fraction=0.1)


def split_sources(settings, directory):
    """The sources that are trained on and those that are held out, without blanks around them."""
    store = prepare(settings, directory=directory)
    src = Vocabularies.load(directory / "vocabulary").src
    trained = [line.strip() for line in src.decode(listed(store.train, "src"))]
    held_out = [line.strip() for line in valid_text(directory / "data")[0]]
    return trained, held_out


def test_validation_is_split_off_one_corpus_by_its_sources(splitting, tmp_path):
    """Equal sources stay together; neither the order of the lines nor their targets decide."""
    text = tmp_path / "text"
    trained, held_out = split_sources(splitting, tmp_path / "forth")
    assert not set(held_out) & set(trained) and len(held_out) + len(trained) == 4000
    assert 0.08 < len(held_out) / 4000 < 0.12
    assert set(Counter(held_out).values()) == {2}

    for path in (text / "train.en", text / "train.de"):
        path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    trained_back, held_out_back = split_sources(splitting, tmp_path / "back")
    assert set(held_out_back) == set(held_out)
    assert sorted(trained_back) == sorted(trained)


def test_what_is_split_off_is_accounted_for(splitting, tmp_path):
    trained, held_out = split_sources(splitting, tmp_path / "run")
    manifest = read_manifest(tmp_path / "run" / "data")
    keys = ["data.train.train.src", "data.train.train.tgt"]
    assert [file["key"] for file in manifest["inputs"]] == keys
    accounts = {account["key"]: account["dropped"] for account in manifest["corpora"]}
    assert accounts == {
        "data.train.train": {"held out for validation": len(held_out)},
        "data.valid": {"used for training": len(trained)},
    }
    table = describe(manifest)
    assert re.search(rf"^data\.valid +4,000 +{len(held_out)} +0$", table, re.MULTILINE)
    assert f"({len(trained):,} used for training)" in table
    with pytest.raises(PrepareError, match="data.valid_fraction: 0.1 then, 0.2 now"):
        prepare(replace(splitting, valid_fraction=0.2), directory=tmp_path / "run")


def test_a_fraction_that_leaves_one_side_without_pairs_is_an_error(splitting, tmp_path):
    with pytest.raises(PrepareError, match="data.valid_fraction holds out none of the 4,000 pairs"):
        prepare(replace(splitting, valid_fraction=1e-9), directory=tmp_path / "little")
    write(tmp_path / "text", "train", [("line", "Zeile")] * 4)
    with pytest.raises(PrepareError, match="data.valid_fraction holds out all 4 pairs"):
        prepare(replace(splitting, valid_fraction=0.99), directory=tmp_path / "most")


# The tag's characters are types of their own, into which it could be cut.
TAGGED_PAIRS = [("< b t >", "ein Hund"), *GOOD[1:]]


@pytest.fixture(params=["bpe", "unigram"])
def tagging(request, config, tmp_path):
    """Settings with one text as two corpora; the second has a tag. One source is empty."""
    write(tmp_path / "text", "train", [("", "ein Hund"), *TAGGED_PAIRS])
    (plain,) = config.train
    tagged = replace(plain, name="tagged", tag="<bt>")
    vocabulary = VocabularyConfig(size=47, kind=request.param)
    return replace(config, train=(plain, tagged), vocabulary=vocabulary)


def test_a_tag_is_one_type_before_every_source_of_its_corpus(tagging, run):
    store = prepare(tagging, directory=run)
    src = Vocabularies.load(run / "vocabulary").src
    rows, tag = listed(store.train, "src"), src.pieces().index("<bt>")
    assert [row.count(tag) for row in rows] == [0] * 24 + [1] * 24
    sources = [source for source, _ in TAGGED_PAIRS]
    assert src.decode(rows) == sources + [f"<bt> {source}" for source in sources]

    # An empty source has no text, whatever stands before it.
    accounts = read_manifest(run / "data")["corpora"]
    assert [account["dropped"] for account in accounts] == [{"empty side": 1}] * 2 + [{}]

    # Cut anew in each epoch, but for the tag.
    sampled = replace(tagging, vocabulary=replace(tagging.vocabulary, sampling=0.9))
    resampler = resampler_for(sampled, Vocabularies.load(run / "vocabulary"), seed=1)
    drawn = listed(resampler.draw(store.train, np.arange(48), 0, (200, 200)), "src")
    assert drawn != rows and [row.count(tag) for row in drawn] == [0] * 24 + [1] * 24


def test_a_tag_is_read_with_its_corpus(tagging):
    plain, tagged = tagging.train
    with_tags = [(f"<bt> {source}", target) for source, target in TAGGED_PAIRS]
    for corpus, expected in ((plain, TAGGED_PAIRS), (tagged, with_tags)):
        assert [pair[1:] for pair in read_pairs(corpus, tagging.folder, drops=Drops())] == expected


def test_a_tag_that_changes_is_named(tagging, tmp_path, run):
    plain, tagged = tagging.train
    prepare(tagging, directory=run)
    with pytest.raises(PrepareError, match=r"tagged\.tag: '<bt>' then, '' now"):
        prepare(replace(tagging, train=(plain, replace(tagged, tag=""))), directory=run)
    lines: list[str] = []
    shutil.copytree(run / "vocabulary", tmp_path / "other" / "vocabulary")
    with_another_tag = replace(tagging, train=(replace(plain, tag="<x>"),))
    prepare(with_another_tag, directory=tmp_path / "other", say=lines.append)
    assert any("data.train.train.tag = <x> is not in that vocabulary" in line for line in lines)


def test_what_is_held_out_does_not_depend_on_a_tag(config, tmp_path):
    parts = []
    for tag in ("", "<bt>"):
        settings = replace(config, valid=CorpusConfig(name="valid"), valid_fraction=0.3)
        settings = replace(settings, train=(replace(config.train[0], tag=tag),))
        prepare(settings, directory=tmp_path / f"run{tag}")
        sources, _ = valid_text(tmp_path / f"run{tag}" / "data")
        assert sources and all(source.startswith(tag) for source in sources)
        parts.append([source.removeprefix(f"{tag} ") for source in sources])
    assert parts[0] == parts[1]


def test_changed_settings_are_named(config, run):
    prepare(config, directory=run)
    vocabulary = VocabularyConfig(size=60, byte_fallback=True)
    changed = replace(config, filter=FilterConfig(max_length=30), vocabulary=vocabulary)
    with pytest.raises(PrepareError) as caught:
        prepare(changed, seed=2, directory=run)
    assert str(caught.value) == (
        f"{run / 'data'} was prepared from other data or settings: data.filter.max_length: 40 "
        "then, 30 now; data.vocabulary.byte_fallback: False then, True now; training.seed: 1 "
        "then, 2 now. Set them back, or use a new directory; before training, you can delete "
        f"{run / 'data'}"
    )
    with_corpus = replace(config, train=(*config.train, replace(config.train[0], name="b")))
    with pytest.raises(PrepareError, match=r"data\.train: \['train'\] then, \['train', 'b'\] now"):
        prepare(with_corpus, directory=run)


def test_settings_that_decide_nothing_about_the_store_may_change(config, run):
    """Sampling while training and a language's name don't affect the store."""
    prepare(config, directory=run)
    before = contents(run)
    sampled = replace(config.vocabulary, sampling=0.1)
    prepare(replace(config, tgt_lang="fr", vocabulary=sampled), directory=run)
    assert contents(run) == before


def test_a_setting_that_an_early_store_does_not_record_had_its_default(config, run):
    prepare(config, directory=run)
    file = run / "data" / "manifest.json"
    manifest = json.loads(file.read_text("utf-8"))
    later = ("train.train.weight", "vocabulary.normalization", "filter.identical")
    for name in (*later, "filter.near_duplicates"):
        del manifest["settings"][f"data.{name}"]
    file.write_text(json.dumps(manifest), "utf-8")
    prepare(config, directory=run)
    changed = replace(config, filter=FilterConfig(max_length=40, near_duplicates=0.8))
    with pytest.raises(PrepareError, match=r"data\.filter\.near_duplicates: 0\.0 then, 0\.8 now"):
        prepare(changed, directory=run)


def test_near_duplicates_are_dropped_from_training_text(tmp_path, run, monkeypatch):
    src = (
        "The next item is the debate on the report by Mr {} on the protection of the environment ."
    )
    tgt = "Das Wort hat Frau {} zum Bericht über den Schutz der Umwelt in den Mitgliedstaaten ."
    pairs = [(src.format(a).encode(), tgt.format(b).encode()) for a, b in ("Aa", "Be", "ee", "eE")]
    unlike = (pairs[0][0], b"Ein ganz anderer Satz, der nichts mit dem ersten gemein hat !")
    for name, corpus in (("one", pairs[:1]), ("two", [*pairs[:2], unlike, *pairs[2:]])):
        write(tmp_path / "text", name, corpus)
    write(tmp_path / "text", "valid", pairs)
    near = FilterConfig(max_length=200, duplicates=True, near_duplicates=0.8)
    config = data_config(tmp_path / "text", ("one", "two"), filter=near)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "rensa", None)
        message = r"data\.filter\.near_duplicates: rensa is not installed: .*\[dedup\]"
        with pytest.raises(PrepareError, match=message):
            prepare(config, directory=run)
        assert not run.exists()
    store = prepare(config, directory=run)
    assert len(store.train) == 2 and len(store.valid) == 4
    account = read_manifest(run / "data")["corpora"][1]
    assert account["dropped"] == {"duplicate": 1, "near-duplicate": 3}
    near = [e["line"] for e in account["examples"] if e["reason"] == "near-duplicate"]
    assert near == [2, 4, 5]

    # A store that is there needs no package.
    monkeypatch.setitem(sys.modules, "rensa", None)
    assert prepare(config, directory=run).digest == store.digest


def test_changed_files_are_named_and_moved_ones_recognised(config, tmp_path, run):
    prepare(config, directory=run)
    shutil.copytree(tmp_path / "text", tmp_path / "moved")
    moved = replace(config, folder=str(tmp_path / "moved"))
    path = tmp_path / "moved" / "train.de"
    os.utime(path, ns=(1, 1))
    prepare(moved, directory=run)
    path.write_bytes(path.read_bytes().replace(b"Hund", b"Hase"))
    message = f"data.train.train.tgt: the contents of {path} have changed"
    with pytest.raises(PrepareError, match=re.escape(message)):
        prepare(moved, directory=run)


def test_a_vocabulary_that_is_there_is_used(config, tmp_path, run):
    prepare(config, directory=tmp_path / "first")
    shutil.copytree(tmp_path / "first" / "vocabulary", run / "vocabulary")
    lines: list[str] = []
    smaller = replace(config, vocabulary=VocabularyConfig(size=50))
    prepare(smaller, directory=run, say=lines.append)
    assert "using the vocabulary in" in lines[0] and "60 types for both sides" in lines[0]
    assert "data.vocabulary.* has no effect, except .sampling" in lines[0]
    assert read_manifest(run / "data")["vocabulary"]["found"] is True
    prepare(smaller, directory=run)


def test_a_sample_is_even_and_deterministic(monkeypatch):
    monkeypatch.setattr(sampling, "_AT_A_TIME", 7)

    def sample(seed, size=20, pairs=100):
        stream = ((number, (b"", b"")) for number in range(pairs))
        return [number for number, _ in sampling.sample(stream, size, seed)]

    assert sample(1) == sample(1) != sample(2)
    assert len(set(sample(1))) == 20
    assert sample(1, size=100) == list(range(100))
    drawn = [number for seed in range(300) for number in sample(seed)]

    # Each pair is drawn 60 times in 300 samples of a fifth, with a deviation of about 7.
    counts = [drawn.count(number) for number in range(100)]
    assert 60 - 5 * 7 < min(counts) and max(counts) < 60 + 5 * 7


def test_validation_text_is_read_before_training_text(config, tmp_path, run, monkeypatch):
    # It would be a TypeError.
    monkeypatch.setattr(manifests, "describe_inputs", None)
    valid = tmp_path / "text" / "valid.en"
    for content, error in ((b"one\n" * 5, CorpusError), (b"\n" * 4, PrepareError)):
        valid.write_bytes(content)
        with pytest.raises(error, match=r"valid.en has \d+ lines|data.valid: all 4 pairs were"):
            prepare(config, directory=run)


def test_corpora_and_their_weights_are_in_the_store(config, run):
    a, b = (replace(config.train[0], name=name) for name in "ab")
    a, weighted = replace(a, weight=2.0), replace(b, weight=0.5)
    store = prepare(replace(config, train=(a, weighted)), directory=run)
    parts = [(part.name, part.first, part.size, part.weight) for part in store.train.corpora]
    assert parts == [("a", 0, 24, 2.0), ("b", 24, 24, 0.5)]
    with pytest.raises(PrepareError, match=r"data\.train\.b\.weight: 0\.5 then, 0\.0 now"):
        prepare(replace(config, train=(a, b)), directory=run)


def test_a_sample_of_defective_pairs_alone_is_drawn_again(config, run):
    for lang in ("en", "de"):
        text = Path(config.folder) / f"train.{lang}"
        text.write_bytes(b"\n" * 3000 + text.read_bytes())
    prepare(replace(config, vocabulary=VocabularyConfig(size=30, sample=2)), directory=run)
    assert read_manifest(run / "data")["vocabulary"]["sample"] == 2


def test_validation_text_that_does_not_match_is_refused(config, run):
    prepare(config, directory=run)
    text, manifest = run / "data" / "valid.tgt.txt", run / "data" / "manifest.json"
    original, recorded = text.read_bytes(), manifest.read_text()
    early = json.loads(recorded)
    early.pop("valid_text")
    for content, record, sound in (
        (original.replace(b"a", b"o", 1), recorded, False),
        (original.replace(b"a", b"o", 1), json.dumps(early), True),
        (b"\xff\n", json.dumps(early), False),
        (original, recorded, True),
    ):
        text.write_bytes(content)
        manifest.write_text(record)
        message = r"data: valid.src.txt or valid\.tgt\.txt does not match"
        with contextlib.nullcontext() if sound else pytest.raises(StoreError, match=message):
            assert len(valid_text(run / "data")[1]) == 4


@pytest.fixture
def prepared_runs(config, tmp_path, run):
    """Two prepared runs; the second has a smaller vocabulary."""
    prepare(config, directory=run)
    smaller = replace(config, vocabulary=VocabularyConfig(size=50))
    prepare(smaller, directory=tmp_path / "other")
    return run, tmp_path / "other"


def test_another_run_s_vocabulary_is_refused(config, prepared_runs):
    run, other = prepared_runs
    shutil.copytree(other / "vocabulary", run / "vocabulary", dirs_exist_ok=True)
    message = "vocabulary: is not the vocabulary of .*data; restore it"
    with pytest.raises(PrepareError, match=message):
        prepare(config, directory=run)


def test_another_run_s_store_is_refused(config, prepared_runs):
    """Even if this run's manifest has that run's vocabulary."""
    run, other = prepared_runs
    recorded = (run / "data" / "manifest.json").read_text()
    for name in ("vocabulary", "data"):
        shutil.copytree(other / name, run / name, dirs_exist_ok=True)
    digest = read_manifest(other / "data")["vocabulary"]["digest"]
    manifest = recorded.replace(json.loads(recorded)["vocabulary"]["digest"], digest)
    (run / "data" / "manifest.json").write_text(manifest)
    with pytest.raises(PrepareError, match=r"store\.json: is not the store that manifest\.json"):
        prepare(config, directory=run)


def test_a_manifest_that_is_damaged_or_missing_is_named(config, run):
    prepare(config, directory=run)
    manifest = run / "data" / "manifest.json"
    manifest.write_text("{")
    with pytest.raises(PrepareError, match=r"manifest\.json:1: is not JSON"):
        prepare(config, directory=run)
    manifest.unlink()
    with pytest.raises(PrepareError, match=r"holds files but no manifest\.json"):
        prepare(config, directory=run)


def test_a_file_that_changes_meanwhile_is_an_error(config, tmp_path, run, monkeypatch):
    finish = encode_corpora.StoreWriter.finish

    def touch_and_finish(self):
        os.utime(tmp_path / "text" / "train.en", ns=(1, 1))
        return finish(self)

    monkeypatch.setattr(encode_corpora.StoreWriter, "finish", touch_and_finish)
    with pytest.raises(CorpusError, match=r"train\.en: changed while it was being read"):
        prepare(config, directory=run)
    assert not list(run.iterdir())


def test_a_file_that_fails_while_its_digest_is_made_is_an_error(config, run, monkeypatch):
    open_binary = manifests.paths.open_binary

    class Failing(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, buffer):
            raise OSError(errno.EIO, "Input/output error")

    def opened(path):
        return Failing() if path.name == "train.en" else open_binary(path)

    failing = types.SimpleNamespace(**vars(manifests.paths) | {"open_binary": opened})
    monkeypatch.setattr(manifests, "paths", failing)
    with pytest.raises(CorpusError, match=r"^.*/train\.en: cannot be read: Input/output error$"):
        prepare(config, directory=run)
    assert not run.exists()
