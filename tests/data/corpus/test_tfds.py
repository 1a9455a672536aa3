"""TFDS sets without TensorFlow, which is not installed: prepared, and made from archives."""

import dataclasses
import http.server
import pickle
import shutil
import threading
from functools import partial
from pathlib import Path

import pytest
import requests
import tensorflow_datasets as tfds
import tensorflow_datasets.translate
from tensorboardX.record_writer import RecordWriter
from tensorflow_datasets.core.download import checksums
from tensorflow_datasets.proto import tf_example_pb2

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import CorpusError, Pair, open_source, read_pairs, shards
from flaxformer_mt.errors import FAILED, exit_status
from tests.data.corpus.tfds_stand_ins import FetchedTranslate, prepare_tiny, write_tgz, write_wmt14

WMT14 = "wmt14_translate/de-en"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return prepare_tiny(tmp_path_factory.mktemp("tfds"))


def a_set(path: Path | str, split: str = "train", **settings: str) -> CorpusConfig:
    languages = {"src": "en", "tgt": "de"}
    return CorpusConfig(name="a", kind="tfds", path=str(path), split=split, **languages | settings)


def wmt14(data_dir: Path, archives: Path | str = "", split: str = "train") -> CorpusConfig:
    return a_set(WMT14, split, data_dir=str(data_dir), archives=str(archives))


def read(corpus: CorpusConfig, folder: str = "") -> list[Pair]:
    return list(read_pairs(corpus, folder))


def test_splits_are_what_tfds_says_in_the_direction_asked_for(prepared):
    builder = tfds.builder_from_directory(str(prepared))
    for split in ("train", "train[:10%]", "train[33:71]", "train[-7:]", "test+train[50%:]"):
        rows = enumerate(builder.as_data_source(split=split), 1)
        expected = [Pair(line, row["en"].decode(), row["de"].decode()) for line, row in rows]
        assert read(a_set(prepared, split)) == expected
    back = read(a_set(prepared, split, src="de", tgt="en"))
    assert back == [Pair(line, tgt, src) for line, src, tgt in expected]
    assert "sentence" in expected[0].src and "Satz" in expected[0].tgt
    files = open_source(a_set(prepared), download=False).files
    assert [path.name for path in files.values()] == [
        f"tiny_translate-train.array_record-0000{n}-of-00003" for n in range(3)
    ]
    assert len(open_source(a_set(prepared, "train[:5]"), download=False).files) == 1
    source = open_source(a_set(prepared, "train[:5]"))
    assert source.label == "tiny_translate/1.0.0 train[:5]"
    assert len(list(pickle.loads(pickle.dumps(source)).records())) == 5


def test_a_set_is_found_by_name_and_folder_and_unknown_names_answered(prepared, monkeypatch):
    root = prepared.parent.parent
    expected = read(a_set(prepared))
    assert len(expected) == 100
    for path, data_dir, folder in (
        ("tiny_translate", str(root), ""),
        ("tiny_translate:1.0.0", str(root), "/nowhere"),
        ("tiny_translate", root.name, str(root.parent)),
        ("tiny_translate/1.0.0", "", str(root)),
    ):
        assert read(a_set(path, data_dir=data_dir), folder) == expected
    monkeypatch.setenv("TFDS_DATA_DIR", str(root))
    assert read(a_set("tiny_translate")) == expected
    for change, message in (
        ({"src": "fr"}, r"data\.train\.a\.src: .* has no language 'fr', only 'de', 'en'"),
        ({"tgt": "En"}, r"data\.train\.a\.tgt: .* has no language 'En', only 'de', 'en'"),
        ({"split": "valid"}, r"data\.train\.a\.split: .* has no split 'valid', only test, train"),
        ({"split": "train[:x]"}, r"data\.train\.a\.split: .* no split 'train\[:x\]'"),
        ({"split": "train[:900%]"}, r"data\.train\.a\.split: .* no split 'train\[:900%\]'"),
    ):
        with pytest.raises(CorpusError, match=message):
            open_source(a_set(prepared, **change), "", "data.train.a")


def test_exchanged_and_missing_shards_are_named(prepared, tmp_path):
    copy = tmp_path / "tiny_translate" / "1.0.0"
    shutil.copytree(prepared, copy)
    shard = sorted(copy.glob("*train*"))[1]
    shutil.copyfile(sorted(copy.glob("*test*"))[0], shard)
    with pytest.raises(CorpusError, match=f"{shard}: .* records expected"):
        read(a_set(copy))
    shard.unlink()
    with pytest.raises(CorpusError, match=rf"{shard}: cannot be read"):
        read(a_set(copy))


def test_sets_that_tensorflow_wrote_are_read(prepared, tmp_path):
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
        assert read(a_set(copy, split)) == read(a_set(prepared, split))
    shard = sorted(copy.glob("*train*"))[0]
    content = shard.read_bytes()
    for damaged in (content[:-1], content[:-20], content[:5], b"", b"\xff" + content[1:]):
        shard.write_bytes(damaged)
        with pytest.raises(CorpusError, match=f"{shard}: cannot be read beyond record"):
            read(a_set(copy))


def test_white_space_at_the_ends_of_a_text_is_not_content(prepared, tmp_path):
    copy = tmp_path / "tiny_translate" / "1.0.0"
    copy.mkdir(parents=True)
    for file in prepared.iterdir():
        if file.suffix == ".json":
            (copy / file.name).write_text(file.read_text().replace("array_record", "tfrecord"))
            continue
        writer = RecordWriter(str(copy / file.name.replace("array_record", "tfrecord")))
        for record in shards.read_array_record(file):
            example = tf_example_pb2.Example.FromString(record)
            for language in ("en", "de"):
                texts = example.features.feature[language].bytes_list.value
                texts[0] = b"\n" + texts[0] + b" \r\n"
            writer.write(example.SerializeToString())
        writer.close()
    assert read(a_set(copy, "test")) == read(a_set(prepared, "test"))


def test_a_set_may_stand_on_an_object_store(prepared, bucket, no_network):
    for file in prepared.iterdir():
        bucket.pipe(f"gs://b/tfds/tiny_translate/1.0.0/{file.name}", file.read_bytes())
    corpus = a_set("tiny_translate", "train[20:70]", data_dir="gs://b/tfds")
    assert read(corpus) == read(a_set(prepared, "train[20:70]"))
    assert str(open_source(corpus, download=False).files["path[0]"]).startswith(
        "gs://b/tfds/tiny_translate/1.0.0/"
    )
    with pytest.raises(CorpusError, match=r"\.data_dir to a local folder, and copy"):
        open_source(dataclasses.replace(corpus, data_dir="gs://b/none"))


@pytest.fixture
def fake_wmt14(tmp_path, monkeypatch):
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
def no_network(monkeypatch):
    def fail(*_, **__):
        raise requests.ConnectionError("no network")

    monkeypatch.setattr("requests.Session.request", fail)


WMT14_TEXTS = sorted(
    (f"{tag} en {number}", f"{tag} de {number}")
    for tag, count in {"europarl": 5, "crawl": 4, "news": 3}.items()
    for number in range(count)
)


def test_wmt14_is_made_from_its_archives(fake_wmt14, tmp_path, no_network, capsys):
    data_dir = tmp_path / "data"
    pairs = read(wmt14(data_dir, fake_wmt14))
    assert sorted(pair[1:] for pair in pairs) == WMT14_TEXTS
    # What is prepared is read again without archives, and nothing else is left.
    assert read(wmt14(data_dir)) == pairs
    assert len(read(wmt14(data_dir, split="validation"))) == 2
    test = read(wmt14(data_dir, split="test"))
    assert {pair[1:] for pair in test} == {(f"2014 en {i}", f"2014 de {i}") for i in range(3)}
    assert not list(data_dir.glob("unpacked-*"))
    assert capsys.readouterr().out == ""


def test_wmt14_may_be_made_by_another_process_meanwhile(
    fake_wmt14, tmp_path, no_network, monkeypatch
):
    builder_class = tfds.core.DatasetBuilder
    make = builder_class.download_and_prepare

    def late(builder, **how):
        make(builder, **how)
        raise FileExistsError

    monkeypatch.setattr(builder_class, "download_and_prepare", late)
    pairs = read(wmt14(tmp_path / "data", fake_wmt14))
    assert sorted(pair[1:] for pair in pairs) == WMT14_TEXTS


def test_missing_damaged_and_malicious_archives_are_named(fake_wmt14, tmp_path, monkeypatch):
    corpus, path = wmt14(tmp_path / "data", fake_wmt14), fake_wmt14 / "dev.tgz"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(CorpusError, match=rf"(?s)cannot be prepared: .*dev\.tgz.*{path}.*checksum"):
        open_source(corpus)
    path.unlink()
    message = (
        rf"^a\.archives: {WMT14} needs these archives, which are not in {fake_wmt14}\n"
        r"  dev\.tgz  .*/wmt19/translation-task/dev\.tgz$"
    )
    with pytest.raises(CorpusError, match=message):
        open_source(corpus)
    write_tgz(path, {"../../evil": "x"})
    known = tfds.builder(WMT14, data_dir=str(tmp_path)).url_infos
    url = next(url for url, info in known.items() if info.filename == path.name)
    monkeypatch.setitem(known, url, checksums.compute_url_info(path))
    with pytest.raises(CorpusError, match=f"{path}: cannot be unpacked: "):
        open_source(corpus)
    assert not list(tmp_path.rglob("evil"))
    assert not list((tmp_path / "data").rglob("unpacked-*"))


def test_without_a_network_the_archives_are_named(tmp_path, no_network):
    with pytest.raises(CorpusError) as caught:
        open_source(wmt14(tmp_path), "", "data.train.wmt")
    said, *listed = str(caught.value).split("\n")
    assert f"wmt14_translate/de-en is not prepared in {tmp_path}" in said
    assert "set data.train.wmt.archives to it" in said
    assert [line.split("http")[0] for line in listed] == [
        "  training-parallel-europarl-v7.tgz  657.6 MB  ",
        "  training-parallel-commoncrawl.tgz  918.3 MB  ",
        "  training-parallel-nc-v9.tgz  80.4 MB  ",
        "  dev.tgz  38.7 MB  ",
    ]
    # Another attempt may find a network.
    assert exit_status(caught.value) == FAILED

    # Nothing is begun by asking for the files, with a network or without.
    with pytest.raises(CorpusError, match="is not prepared in"):
        open_source(wmt14(tmp_path), download=False)
    for name, message in (
        # Archives of unknown size.
        ("wmt14_translate/fr-en", r"training-giga-fren\.tar  .*\.tar"),
        ("no_such_set/de-en", r"data\.a\.path: TFDS .* has no dataset 'no_such_set/de-en'"),
        ("wmt14_translate/de-xx", r"data\.a\.path: 'wmt14_translate/de-xx': .* cs-en, de-en"),
        ("not a name", r"data\.a\.path: "),
    ):
        with pytest.raises(CorpusError, match=rf"(?s){message}"):
            open_source(a_set(name, data_dir=str(tmp_path)), "", "data.a")


def test_archives_without_a_digest_are_taken_from_the_folder_or_downloaded(tmp_path, monkeypatch):
    texts = tmp_path / "in"
    texts.mkdir()
    (texts / "text.de").write_text("eins zwei")
    (texts / "text.en").write_text("one two")
    expected = {("one", "eins"), ("two", "zwei")}
    corpus = a_set("fetched_translate", archives=str(tmp_path))
    for packed in ("gztar", "zip"):
        archive = Path(shutil.make_archive(str(tmp_path / "text"), packed, texts))
        monkeypatch.setattr(FetchedTranslate, "url", f"http://nowhere/{archive.name}")
        placed = dataclasses.replace(corpus, data_dir=str(tmp_path / packed))
        assert {pair[1:] for pair in read(placed)} == expected
    corpus = dataclasses.replace(corpus, data_dir=str(tmp_path / "data"), archives="")
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *_: None)
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
            assert {pair[1:] for pair in read(corpus)} == expected
        finally:
            httpd.shutdown()
            thread.join()
