"""`prepare`: once, completely or not at all, every pair accounted for, changes and damage named."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.config.schema import DataConfig, FilterConfig, VocabularyConfig
from flaxformer_mt.data.corpus import CorpusError
from flaxformer_mt.data.prepare import (
    PrepareError,
    encode_corpora,
    manifest as manifests,
    prepare,
    read_manifest,
    sample as sampling,
    valid_text,
)
from flaxformer_mt.data.store import Store, StoreError
from flaxformer_mt.data.vocabulary import EOS, Vocabularies
from tests.data.pairs import listed
from tests.data.prepare.corpora import GOOD, contents


def test_the_store_holds_the_corpus(config: DataConfig, tmp_path: Path) -> None:
    store = prepare(config, seed=1, directory=tmp_path / "run")
    vocabularies = Vocabularies.load(tmp_path / "run" / "vocabulary")
    assert len(store.train) == 24 and len(store.valid) == 4
    rows = [listed(store.train, side) for side in ("src", "tgt")]
    assert {row[-1] for row in itertools.chain(*rows)} == {EOS}
    assert list(zip(*map(vocabularies.src.decode, rows), strict=True)) == GOOD
    src, tgt = valid_text(tmp_path / "run" / "data")
    assert list(zip(src, tgt, strict=True)) == GOOD[:4]
    assert store.vocabulary_digest == vocabularies.digest
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["data", "vocabulary"]
    manifest = read_manifest(tmp_path / "run" / "data")
    assert [file["key"] for file in manifest["inputs"]] == [
        *("data.train.good.src", "data.train.good.tgt", "data.valid.src", "data.valid.tgt")
    ]
    assert manifest["store"] == store.digest == Store.open(tmp_path / "run" / "data").digest
    lengths = manifest["lengths"]["train"]["tgt"]
    assert lengths["tokens"] == store.train.tgt_lengths.sum()
    assert lengths["max"] == store.train.tgt_lengths.max()


def test_a_second_call_reuses_the_store(config: DataConfig, tmp_path: Path) -> None:
    first = prepare(config, seed=1, directory=tmp_path / "run")
    before = contents(tmp_path / "run")
    lines: list[str] = []
    # Without its texts: a run directory stands alone.
    shutil.rmtree(tmp_path / "text")
    again = prepare(config, seed=1, directory=tmp_path / "run", report=lines.append)
    assert again.digest == first.digest
    assert contents(tmp_path / "run") == before
    data = tmp_path / "run" / "data"
    assert lines[-1] == f"prepare: 24 training pairs in {data} are up to date"
    assert "does not exist" in lines[0] and "the store made from it is used" in lines[0]


def test_nothing_left_is_an_error_with_the_counts(config: DataConfig, tmp_path: Path) -> None:
    short = replace(config, filter=FilterConfig(max_length=3))
    file = tmp_path / "text" / "train.en"
    left = r"data\.train: none of the 24 pairs read is left: 24"
    for content, wanted, error, message in (
        (None, short, PrepareError, rf"{left} too long; the first: {file}:1: too long"),
        (b"\n" * 24, config, PrepareError, rf"{left} empty side"),
        (b"one\n", config, CorpusError, r"train\.en has 1 lines and .*train\.de has 24"),
        (b"", config, PrepareError, r"data\.train: there are no pairs: the corpus is empty"),
        (None, replace(config, train=()), PrepareError, r"data\.train names no corpus"),
    ):
        if content is not None:
            file.write_bytes(content)
        if content == b"":
            file.with_suffix(".de").write_bytes(b"")
        with pytest.raises(error, match=message):
            prepare(wanted, seed=1, directory=tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_changed_settings_are_named(config: DataConfig, tmp_path: Path) -> None:
    prepare(config, seed=1, directory=tmp_path / "run")
    before = contents(tmp_path / "run")
    other = replace(
        config,
        filter=FilterConfig(max_length=30),
        vocabulary=VocabularyConfig(size=60, byte_fallback=True),
    )
    with pytest.raises(PrepareError) as caught:
        prepare(other, seed=2, directory=tmp_path / "run")
    assert str(caught.value) == (
        f"{tmp_path / 'run' / 'data'} was prepared from other data or settings: "
        "data.filter.max_length: 40 then, 30 now; data.vocabulary.byte_fallback: "
        "False then, True now; training.seed: 1 then, 2 now. "
        "Put them back, or use a new directory"
    )
    more = replace(config, train=(*config.train, replace(config.train[0], name="b")))
    with pytest.raises(PrepareError, match=r"data\.train: \['good'\] then, \['good', 'b'\] now"):
        prepare(more, seed=1, directory=tmp_path / "run")
    # What is drawn while training is no matter of the store, and neither is a language's name.
    sampled = replace(config.vocabulary, sampling=0.1)
    other = replace(config, tgt_lang="fr", vocabulary=sampled)
    prepare(other, seed=1, directory=tmp_path / "run")
    assert contents(tmp_path / "run") == before


def test_changed_files_are_named_and_moved_ones_recognised(
    config: DataConfig, tmp_path: Path
) -> None:
    prepare(config, seed=1, directory=tmp_path / "run")
    shutil.copytree(tmp_path / "text", tmp_path / "moved")
    moved = replace(config, folder=str(tmp_path / "moved"))
    prepare(moved, seed=1, directory=tmp_path / "run")
    path = tmp_path / "moved" / "train.de"
    os.utime(path, ns=(1, 1))
    prepare(moved, seed=1, directory=tmp_path / "run")
    path.write_bytes(path.read_bytes().replace(b"Hund", b"Hase"))
    message = f"data.train.good.tgt: the contents of {path} are not those that were read"
    with pytest.raises(PrepareError, match=re.escape(message)):
        prepare(moved, seed=1, directory=tmp_path / "run")


def test_a_vocabulary_that_is_there_is_used(config: DataConfig, tmp_path: Path) -> None:
    prepare(config, seed=1, directory=tmp_path / "first")
    run = tmp_path / "second"
    run.mkdir()
    shutil.copytree(tmp_path / "first" / "vocabulary", run / "vocabulary")
    lines: list[str] = []
    other = replace(config, vocabulary=VocabularyConfig(size=50))
    store = prepare(other, seed=1, directory=run, report=lines.append)
    assert "using the vocabulary in" in lines[0] and "60 types for both sides" in lines[0]
    assert "of data.vocabulary.* only .sampling has an effect" in lines[0]
    assert store.vocabulary_digest == Vocabularies.load(tmp_path / "first" / "vocabulary").digest
    assert read_manifest(run / "data")["vocabulary"]["found"] is True
    prepare(other, seed=1, directory=run)


def test_a_sample_is_even_and_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_AT_A_TIME", 7)

    def sample(seed: int, size: int = 20, pairs: int = 100) -> list[int]:
        stream = ((number, (b"", b"")) for number in range(pairs))
        return [number for number, _ in sampling.sample(stream, size, seed)]

    assert sample(1) == sample(1) != sample(2)
    assert len(set(sample(1))) == 20
    assert sample(1, size=100) == list(range(100))
    drawn = [number for seed in range(300) for number in sample(seed)]
    # Each pair is drawn 60 times in 300 samples of a fifth, with a deviation of about 7.
    counts = [drawn.count(number) for number in range(100)]
    assert 60 - 5 * 7 < min(counts) and max(counts) < 60 + 5 * 7


def test_what_cannot_be_validated_on_is_found_before_training_text_is_read(
    config: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(
        manifests, "describe_inputs", lambda *_, **__: opened.append("training text")
    )
    valid = tmp_path / "text" / "valid.en"
    for content, error in (
        (b"one more\n" + valid.read_bytes(), CorpusError),
        (b"\n" * valid.read_bytes().count(b"\n"), PrepareError),
    ):
        valid.write_bytes(content)
        with pytest.raises(error, match=r"valid.en has \d+ lines|data.valid: none of the"):
            prepare(config, seed=1, directory=tmp_path / "run")
    assert not opened


def test_a_manifest_from_before_a_setting_existed_is_accepted(
    config: DataConfig, tmp_path: Path
) -> None:
    prepare(config, seed=1, directory=tmp_path / "run")
    file = tmp_path / "run" / "data" / "manifest.json"
    manifest = json.loads(file.read_text("utf-8"))
    newer = ["data.train.good.weight", "data.vocabulary.normalization"]
    newer += [f"data.filter.{name}" for name in ("identical", "duplicates", "script")]
    for name in newer:
        del manifest["settings"][name]
    file.write_text(json.dumps(manifest), "utf-8")
    prepare(config, seed=1, directory=tmp_path / "run")
    changed = replace(config, filter=FilterConfig(max_length=40, identical=True))
    with pytest.raises(PrepareError, match=r"data\.filter\.identical: False then, True now"):
        prepare(changed, seed=1, directory=tmp_path / "run")


def test_corpora_and_their_weights_are_in_the_store(config: DataConfig, tmp_path: Path) -> None:
    good = config.train[0]
    weighted = tuple(
        replace(good, name=name, weight=weight) for name, weight in (("a", 2.0), ("b", 0.5))
    )
    store = prepare(replace(config, train=weighted), seed=1, directory=tmp_path / "run")
    found = [(part.name, part.first, part.size, part.weight) for part in store.train.parts]
    assert found == [("a", 0, 24, 2.0), ("b", 24, 24, 0.5)]
    with pytest.raises(PrepareError, match=r"data\.train\.b\.weight: 0\.5 then, 0\.0 now"):
        unweighted = (weighted[0], replace(good, name="b"))
        prepare(replace(config, train=unweighted), seed=1, directory=tmp_path / "run")


def test_a_sample_of_defective_pairs_alone_is_drawn_again(
    config: DataConfig, tmp_path: Path
) -> None:
    text = Path(config.folder)
    for lang in ("en", "de"):
        lines = (text / f"train.{lang}").read_bytes()
        (text / f"train.{lang}").write_bytes(b"\n" * 3000 + lines)
    few = replace(config, vocabulary=VocabularyConfig(size=30, sample=2))
    prepare(few, seed=1, directory=tmp_path / "run")
    assert read_manifest(tmp_path / "run" / "data")["vocabulary"]["sample"] == 2


def test_damage_is_refused_by_name(config: DataConfig, tmp_path: Path) -> None:
    run = tmp_path / "run"
    prepare(config, seed=1, directory=run)
    text, manifest = run / "data" / "valid.tgt.txt", run / "data" / "manifest.json"
    whole, recorded = text.read_bytes(), manifest.read_text()
    changed = whole.replace(b"a", b"o", 1)
    early = json.loads(recorded)
    early.pop("valid_text")
    for content, record, sound in (
        (changed, recorded, False),
        (changed, json.dumps(early | {"valid_text": 7}), False),
        (changed, json.dumps(early), True),
        (b"\xff\n", json.dumps(early), False),
        (whole, recorded, True),
    ):
        text.write_bytes(content)
        manifest.write_text(record)
        message = r"data: valid.src.txt or valid\.tgt\.txt is not the text"
        with contextlib.nullcontext() if sound else pytest.raises(StoreError, match=message):
            assert len(valid_text(run / "data")[1]) == 4

    other = replace(config, vocabulary=VocabularyConfig(size=50))
    prepare(other, seed=1, directory=tmp_path / "other")
    shutil.rmtree(run / "vocabulary")
    shutil.copytree(tmp_path / "other" / "vocabulary", run / "vocabulary")
    with pytest.raises(PrepareError, match="vocabulary: is not the vocabulary with which"):
        prepare(config, seed=1, directory=run)

    # The store and the vocabulary of another run, with this one's manifest.
    shutil.copytree(tmp_path / "other" / "data", run / "data", dirs_exist_ok=True)
    digest = json.loads(manifest.read_text())["vocabulary"]["digest"]
    manifest.write_text(recorded.replace(json.loads(recorded)["vocabulary"]["digest"], digest))
    with pytest.raises(PrepareError, match=r"store\.json: is not the store that manifest\.json"):
        prepare(config, seed=1, directory=run)

    manifest.write_text("{")
    with pytest.raises(PrepareError, match=r"manifest\.json:1: is not JSON"):
        prepare(config, seed=1, directory=run)
    manifest.unlink()
    with pytest.raises(PrepareError, match=r"holds files but no manifest\.json"):
        prepare(config, seed=1, directory=run)


def test_a_file_that_changes_meanwhile_is_an_error(
    config: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = encode_corpora.StoreWriter.finish

    def touch_and_finish(self: Any) -> str:
        os.utime(tmp_path / "text" / "train.en", ns=(1, 1))
        return real(self)

    monkeypatch.setattr(encode_corpora.StoreWriter, "finish", touch_and_finish)
    with pytest.raises(CorpusError, match=r"train\.en: changed while it was being read"):
        prepare(config, seed=1, directory=tmp_path / "run")
    assert not list((tmp_path / "run").iterdir())


def test_a_file_that_fails_while_it_is_digested_is_named(
    config: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    whole = manifests.paths.open_binary

    def opened(path: Path) -> Any:
        return Failing() if path.name == "train.en" else whole(path)

    monkeypatch.setattr(manifests.paths, "open_binary", opened)
    with pytest.raises(CorpusError, match=r"^.*/train\.en: cannot be read: Input/output error$"):
        prepare(config, seed=1, directory=tmp_path / "run")
