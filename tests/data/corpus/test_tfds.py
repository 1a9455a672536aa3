"""TFDS sets without TensorFlow: prepared ones, and ones that are made from their archives."""

from __future__ import annotations

import dataclasses
import http.server
import importlib.util
import pickle
import shutil
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
import tensorflow_datasets as tfds
import tensorflow_datasets.translate
from tensorboardX.record_writer import RecordWriter
from tensorflow_datasets.core.download import checksums

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import (
    CorpusError,
    Pair,
    files,
    open_source,
    read_pairs,
    shards,
)
from flaxformer_mt.errors import FAILED, exit_status
from tests.data.corpus.conftest import Bucket
from tests.data.corpus.tfds_stand_ins import (
    PAIRS,
    FetchedTranslate,
    prepare_tiny,
    write_tgz,
    write_wmt14,
)

WMT14 = "wmt14_translate/de-en"


@pytest.fixture(autouse=True)
def no_tensorflow() -> Iterator[None]:
    assert importlib.util.find_spec("tensorflow") is None
    yield
    assert "tensorflow" not in sys.modules


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_tiny(tmp_path_factory.mktemp("tfds"))


def tiny(folder: Path, split: str = "train", src: str = "en", tgt: str = "de") -> CorpusConfig:
    return CorpusConfig(name="a", kind="tfds", path=str(folder), split=split, src=src, tgt=tgt)


def wmt14(data_dir: Path, archives: Path | None = None, split: str = "train") -> CorpusConfig:
    return CorpusConfig(
        name="wmt",
        kind="tfds",
        path=WMT14,
        split=split,
        src="en",
        tgt="de",
        data_dir=str(data_dir),
        archives=str(archives or ""),
    )


@pytest.mark.parametrize(
    "split", ["train", "test", "train[:10%]", "train[33:71]", "train[-7:]", "test+train[50%:]"]
)
def test_splits_are_what_tfds_says(prepared: Path, split: str) -> None:
    reference = tfds.builder_from_directory(str(prepared)).as_data_source(split=split)
    expected = [
        Pair(line, row["en"].decode(), row["de"].decode()) for line, row in enumerate(reference, 1)
    ]
    assert list(read_pairs(tiny(prepared, split))) == expected
    assert set(pair[:0:-1] for pair in expected) <= {*PAIRS["train"], *PAIRS["test"]}


def test_a_set_is_found_by_name_and_by_folder(
    prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = prepared.parent.parent
    expected = list(read_pairs(tiny(prepared)))
    assert len(expected) == 100
    keys = {"kind": "tfds", "split": "train", "src": "en", "tgt": "de"}
    for path, data_dir, folder in (
        ("tiny_translate", str(root), ""),
        ("tiny_translate:1.0.0", str(root), "/nowhere"),
        ("tiny_translate", root.name, str(root.parent)),
        ("tiny_translate/1.0.0", "", str(root)),
    ):
        corpus = CorpusConfig(path=path, data_dir=data_dir, **keys)
        assert list(read_pairs(corpus, folder)) == expected
    monkeypatch.setenv("TFDS_DATA_DIR", str(root))
    assert list(read_pairs(CorpusConfig(path="tiny_translate", **keys))) == expected


def test_files_are_the_shards_that_are_read(prepared: Path) -> None:
    found = files(tiny(prepared))
    assert [path.name for path in found.values()] == [
        f"tiny_translate-train.array_record-0000{n}-of-00003" for n in range(3)
    ]
    assert len(files(tiny(prepared, "train[:5]"))) == 1
    source = open_source(tiny(prepared, "train[:5]"))
    assert source.label == "tiny_translate/1.0.0 train[:5]"
    assert len(list(pickle.loads(pickle.dumps(source)).records())) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"src": "fr"}, r"data\.train\.a\.src: 'fr' is no language of .*: it has 'de', 'en'"),
        ({"tgt": "En"}, r"data\.train\.a\.tgt: 'En' is no language of .*: it has 'de', 'en'"),
        ({"split": "valid"}, r"data\.train\.a\.split: 'valid' is no split .*: it has test, train"),
        ({"split": "train[:x]"}, r"data\.train\.a\.split: 'train\[:x\]' is no split"),
        ({"split": "train[:900%]"}, r"data\.train\.a\.split: 'train\[:900%\]' is no split"),
    ],
)
def test_unknown_names_are_answered_with_known_ones(
    prepared: Path, change: dict[str, str], message: str
) -> None:
    settings: dict[str, Any] = {"src": "en", "tgt": "de", "split": "train"} | change
    with pytest.raises(CorpusError, match=message):
        open_source(tiny(prepared, **settings), "", "data.train.a")


def test_damaged_and_missing_shards_are_named(prepared: Path, tmp_path: Path) -> None:
    copy = tmp_path / "tiny_translate" / "1.0.0"
    shutil.copytree(prepared, copy)
    shard = sorted(copy.glob("*train*"))[1]
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-10])
    with pytest.raises(CorpusError, match=f"{shard}: cannot be read beyond record 0"):
        list(read_pairs(tiny(copy)))
    other = sorted(copy.glob("*test*"))[0]
    shutil.copyfile(other, shard)
    with pytest.raises(CorpusError, match=f"{shard}: .* records are expected"):
        list(read_pairs(tiny(copy)))
    shard.unlink()
    with pytest.raises(CorpusError, match=rf"{shard} does not exist, .* copy the set again"):
        open_source(tiny(copy))


def test_sets_that_tensorflow_wrote_are_read(prepared: Path, tmp_path: Path) -> None:
    copy = tmp_path / "tiny_translate" / "1.0.0"
    copy.mkdir(parents=True)
    for file in prepared.iterdir():
        if file.suffix == ".json":
            (copy / file.name).write_text(file.read_text().replace("array_record", "tfrecord"))
            continue
        writer = RecordWriter(str(copy / file.name.replace("array_record", "tfrecord")))
        for record in shards.read_array_record(file):
            writer.write(record)
        writer.close()
    for split in ("train", "train[40:60]", "test"):
        expected = list(read_pairs(tiny(prepared, split)))
        assert list(read_pairs(tiny(copy, split))) == expected
    shard = sorted(copy.glob("*train*"))[0]
    whole = shard.read_bytes()
    for damaged in (whole[:-1], whole[:-20], whole[:5], b"", b"\xff" + whole[1:]):
        shard.write_bytes(damaged)
        with pytest.raises(CorpusError, match=f"{shard}: cannot be read beyond record"):
            list(read_pairs(tiny(copy)))


def test_a_set_may_stand_on_an_object_store(
    prepared: Path, bucket: Bucket, no_network: None
) -> None:
    for file in prepared.iterdir():
        bucket.pipe(f"gs://b/tfds/tiny_translate/1.0.0/{file.name}", file.read_bytes())
    expected = list(read_pairs(tiny(prepared, "train[20:70]")))
    corpus = dataclasses.replace(
        tiny(prepared, "train[20:70]"), path="tiny_translate", data_dir="gs://b/tfds"
    )
    assert list(read_pairs(corpus)) == expected
    assert str(files(corpus)["path[0]"]).startswith("gs://b/tfds/tiny_translate/1.0.0/")
    elsewhere = dataclasses.replace(corpus, data_dir="gs://b/none")
    with pytest.raises(CorpusError, match=r"\.data_dir to a local folder, and copy"):
        open_source(elsewhere)


@pytest.fixture
def fake_wmt14(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of small archives that TFDS takes for the originals."""
    folder = tmp_path / "archives"
    folder.mkdir()
    write_wmt14(folder)
    known = tfds.builder(WMT14, data_dir=str(tmp_path)).url_infos
    for url, info in list(known.items()):
        if (folder / info.filename).exists():
            monkeypatch.setitem(known, url, checksums.compute_url_info(folder / info.filename))
    return folder


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise requests.ConnectionError("no network")

    monkeypatch.setattr("requests.Session.request", fail)


def test_wmt14_is_made_from_its_archives(
    fake_wmt14: Path, tmp_path: Path, no_network: None, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = tmp_path / "data"
    pairs = list(read_pairs(wmt14(data_dir, fake_wmt14)))
    expected = {
        (f"{tag} en {i}", f"{tag} de {i}")
        for tag, count in {"europarl": 5, "crawl": 4, "news": 3}.items()
        for i in range(count)
    }
    assert {pair[1:] for pair in pairs} == expected and len(pairs) == 12
    # What is prepared is read again without archives, and nothing else is left.
    assert list(read_pairs(wmt14(data_dir))) == pairs
    assert len(list(read_pairs(wmt14(data_dir, split="validation")))) == 2
    test = list(read_pairs(wmt14(data_dir, split="test")))
    assert {pair[1:] for pair in test} == {(f"2014 en {i}", f"2014 de {i}") for i in range(3)}
    assert not list(data_dir.glob("unpacked-*"))
    assert capsys.readouterr().out == ""


def test_archives_that_are_missing_are_named(fake_wmt14: Path, tmp_path: Path) -> None:
    (fake_wmt14 / "dev.tgz").unlink()
    with pytest.raises(CorpusError) as caught:
        open_source(wmt14(tmp_path / "data", fake_wmt14), "", "data.train.wmt")
    message = str(caught.value)
    assert message.startswith(
        f"data.train.wmt.archives: wmt14_translate/de-en is made from archives, and these are not "
        f"in {fake_wmt14}\n  dev.tgz  "
    )
    assert message.count("\n") == 1 and "/wmt19/translation-task/dev.tgz" in message


def test_archives_that_are_damaged_or_would_write_elsewhere_are_named(
    fake_wmt14: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fake_wmt14 / "dev.tgz"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(CorpusError, match=rf"(?s)cannot be prepared .*dev\.tgz.*{path}.*checksum"):
        open_source(wmt14(tmp_path / "data", fake_wmt14))
    write_tgz(path, {"../../evil": "x"})
    known = tfds.builder(WMT14, data_dir=str(tmp_path)).url_infos
    url = next(url for url, info in known.items() if info.filename == path.name)
    monkeypatch.setitem(known, url, checksums.compute_url_info(path))
    with pytest.raises(CorpusError, match=f"{path}: cannot be unpacked: "):
        open_source(wmt14(tmp_path / "data", fake_wmt14))
    assert not list(tmp_path.rglob("evil"))
    assert not list((tmp_path / "data").rglob("unpacked-*"))


def test_without_a_network_the_archives_are_named(tmp_path: Path, no_network: None) -> None:
    with pytest.raises(CorpusError) as caught:
        open_source(wmt14(tmp_path), "", "data.train.wmt")
    message = str(caught.value)
    assert f"wmt14_translate/de-en is not prepared in {tmp_path}" in message
    assert "set data.train.wmt.archives to it" in message
    for line in (
        "training-parallel-europarl-v7.tgz  657.6 MB  http://www.statmt.org/wmt13/",
        "training-parallel-commoncrawl.tgz  918.3 MB  http",
        "training-parallel-nc-v9.tgz  80.4 MB  http",
        "dev.tgz  38.7 MB  http",
    ):
        assert f"\n  {line}" in message
    assert message.count("\n") == 4
    # Another attempt may find a network.
    assert exit_status(caught.value) == FAILED
    # Nothing is begun by asking for the files, with a network or without.
    with pytest.raises(CorpusError, match="is not prepared in"):
        files(wmt14(tmp_path))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        # Archives of unknown size.
        ("wmt14_translate/fr-en", r"training-giga-fren\.tar  .*\.tar"),
        ("no_such_set/de-en", r"data\.a\.path: TFDS .* has no set 'no_such_set/de-en'"),
        ("wmt14_translate/de-xx", r"data\.a\.path: 'wmt14_translate/de-xx': .* cs-en, de-en"),
        ("not a name", r"data\.a\.path: "),
    ],
)
def test_names_that_tfds_does_not_know_or_has_not(
    tmp_path: Path, no_network: None, name: str, message: str
) -> None:
    corpus = CorpusConfig(kind="tfds", path=name, src="en", tgt="fr", data_dir=str(tmp_path))
    with pytest.raises(CorpusError, match=rf"(?s){message}"):
        open_source(corpus, "", "data.a")


@pytest.mark.parametrize("packed", ["tgz", "zip"])
def test_archives_without_a_digest_are_taken_from_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: None, packed: str
) -> None:
    shutil.make_archive(
        str(tmp_path / "text"), {"tgz": "gztar", "zip": "zip"}[packed], two_sides(tmp_path / "in")
    )
    made = next(path for path in tmp_path.iterdir() if path.name.startswith("text."))
    made.rename(tmp_path / f"text.{packed}")
    monkeypatch.setattr(FetchedTranslate, "url", f"http://nowhere/text.{packed}")
    corpus = dataclasses.replace(
        tiny(Path("fetched_translate")), data_dir=str(tmp_path / "data"), archives=str(tmp_path)
    )
    assert {pair[1:] for pair in read_pairs(corpus)} == {("one", "eins"), ("two", "zwei")}


def test_with_a_network_archives_are_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    shutil.make_archive(str(tmp_path / "text"), "gztar", two_sides(tmp_path / "in"))
    corpus = dataclasses.replace(
        tiny(Path("fetched_translate")), data_dir=str(tmp_path / "data"), archives=""
    )
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.05,))
        thread.start()
        address = f"http://127.0.0.1:{httpd.server_address[1]}"
        try:
            monkeypatch.setattr(FetchedTranslate, "url", f"{address}/missing.tgz")
            with pytest.raises(CorpusError, match=r"(?s)downloaded.*404.* a\.archives .*missing\."):
                open_source(corpus)
            monkeypatch.setattr(FetchedTranslate, "url", f"{address}/text.tar.gz")
            assert {pair[1:] for pair in read_pairs(corpus)} == {("one", "eins"), ("two", "zwei")}
        finally:
            httpd.shutdown()
            thread.join()


def two_sides(folder: Path) -> Path:
    folder.mkdir()
    (folder / "text.de").write_text("eins zwei")
    (folder / "text.en").write_text("one two")
    return folder


def test_direction_is_explicit(prepared: Path) -> None:
    there = list(read_pairs(tiny(prepared, src="en", tgt="de")))
    back = list(read_pairs(tiny(prepared, src="de", tgt="en")))
    assert "sentence" in there[0].src and "Satz" in there[0].tgt
    assert back == [Pair(pair.line, pair.tgt, pair.src) for pair in there]
