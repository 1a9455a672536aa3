"""Corpora on object stores, through the real fsspec and epath and a store in memory."""

import gzip
import pickle
import sys
from pathlib import Path

import pytest
from etils.epath import backend
from fsspec.implementations.memory import MemoryFile
from fsspec.registry import _registry

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import CorpusError, Pair, open_source, paths, read_pairs, text_files
from flaxformer_mt.data.corpus.text_files import zstd
from tests.data.corpus.conftest import Bucket, write_shard

PAIRS = [Pair(1, "one", "eins"), Pair(2, "two", "zwei")]


@pytest.mark.parametrize(
    ("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".zst", zstd.compress)]
)
def test_files_are_streamed_from_a_store(bucket, tmp_path, suffix, pack):
    (tmp_path / "a.de").write_bytes(b"eins\nzwei\n")
    bucket.pipe(f"gs://b/wmt/a.en{suffix}", pack(b"one\ntwo\n"))
    bucket.pipe(f"gs://b/wmt/a.de{suffix}", pack(b"eins\nzwei\n"))
    absolute = CorpusConfig(src=f"gs://b/wmt/a.en{suffix}", tgt=f"gs://b/wmt/a.de{suffix}")
    relative = CorpusConfig(src=f"wmt/a.en{suffix}", tgt=f"wmt/a.de{suffix}")
    mixed = CorpusConfig(src=f"gs://b/wmt/a.en{suffix}", tgt=str(tmp_path / "a.de"))
    assert list(read_pairs(absolute, "/a/local/folder")) == PAIRS
    assert list(read_pairs(relative, "gs://b")) == list(read_pairs(mixed, "gs://b")) == PAIRS
    files = open_source(relative, "gs://b/", download=False).files
    assert str(files["src"]) == f"gs://b/wmt/a.en{suffix}"
    assert paths.stamp(files["src"])[0] == len(pack(b"one\ntwo\n"))

    # Workers have it, too.
    source = pickle.loads(pickle.dumps(open_source(relative, "gs://b")))
    defect = source.check((b"", b"x"))
    assert defect is not None and defect.file == f"gs://b/wmt/a.en{suffix}"


def test_shards_are_streamed_from_a_store(bucket, tmp_path):
    for number, pair in enumerate(PAIRS):
        local = tmp_path / "shard"
        write_shard(local, [b'{"en": "%s", "de": "%s"}' % tuple(x.encode() for x in pair[1:])])
        bucket.pipe(f"gs://b/x/part{number}/s-{number}", local.read_bytes())
    corpus = CorpusConfig(kind="array_record", path="x/part*/s-*", src="en", tgt="de")
    assert list(read_pairs(corpus, "gs://b")) == PAIRS
    names = [str(path) for path in open_source(corpus, "gs://b", download=False).files.values()]
    assert names == ["gs://b/x/part0/s-0", "gs://b/x/part1/s-1"]


@pytest.mark.parametrize("method", ["read1", "read"])
def test_what_the_client_raises_names_the_path(bucket, monkeypatch, method):
    """Files of some clients have both methods, of others the second alone."""

    def refuse(*_, **__):
        raise Exception("no such account")  # Of a class of the client's.

    def refuse_later(file, size):
        read = super(MemoryFile, file).read
        return read(size) if file.tell() == 0 else refuse()

    corpus = CorpusConfig(kind="tsv", path="gs://b/a.tsv")
    monkeypatch.setattr(text_files, "BLOCK", 4096)
    bucket.pipe("gs://b/a.tsv", b"one\teins\n" * 2000)
    if method == "read":
        monkeypatch.setattr(MemoryFile, "read1", property(lambda file: file.absent), raising=False)
    monkeypatch.setattr(MemoryFile, method, refuse_later, raising=False)
    stream = read_pairs(corpus)
    assert next(stream).line == 1
    with pytest.raises(CorpusError, match=r"gs://b/a\.tsv: .* line [1-9].*: no such account"):
        list(stream)
    monkeypatch.setattr(Bucket, "exists", refuse)
    with pytest.raises(CorpusError, match=r"gs://b/a\.tsv: .* Exception: no such account"):
        list(read_pairs(corpus))


def test_without_the_extra_the_message_names_it(bucket, monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    for name in ("gcs", "gs"):
        monkeypatch.delitem(_registry, name, raising=False)
    backend.fsspec_backend._get_filesystem.cache_clear()
    with pytest.raises(CorpusError, match=r'for gs:// install "flaxformer-mt\[gcs\]"'):
        list(read_pairs(CorpusConfig(kind="tsv", path="gs://b/a.tsv")))


def test_local_errors_name_the_file(tmp_path, monkeypatch):
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_bytes(b"one\n")
    corpus = CorpusConfig(src="a.en", tgt="a.de")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(CorpusError, match=rf"^{tmp_path / 'a.en'}: cannot be read: Permission"):
        list(read_pairs(corpus, str(tmp_path)))
    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(CorpusError, match=rf"^{tmp_path / 'a.en'}: cannot be read: Permission"):
        open_source(corpus, str(tmp_path))
