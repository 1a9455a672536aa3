"""Lines in, numbered: ends, marks, compression, pipes, and how much of the input they are."""

import functools
import gzip
import io
import lzma
import os
import random
import sys
import threading

import pytest

from flaxformer_mt.bulk.reading import open_lines
from flaxformer_mt.data.corpus import CorpusError
from flaxformer_mt.data.corpus.text_files import zstd
from tests.rundir.buckets import needs_clients

TEXT = b"\xef\xbb\xbfone\r\n\xc2\x85two\rhalf\n\n\xff\nlast"
EXPECTED = [b"one", b"\xc2\x85two\rhalf", b"", b"\xff", b"last"]


@pytest.mark.parametrize(
    ("suffix", "pack", "accuracy"),
    [
        ("", bytes, 0.001),
        (".gz", gzip.compress, 0.03),
        (".xz", functools.partial(lzma.compress, preset=0), 0.2),
        (".zst", zstd.compress, 0.2),
    ],
)
def test_lines_of_plain_and_compressed_files_and_their_share(tmp_path, suffix, pack, accuracy):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(pack(TEXT))
    with open_lines(str(path)) as lines:
        assert list(lines) == EXPECTED
        assert (lines.name, lines.number) == (str(path), 5)
        assert lines.share(lines.bytes_read) == 1.0
    path.write_bytes(pack(b""))
    with open_lines(str(path)) as lines:
        assert list(lines) == [] and not lines.share(0)

    # It grows with what is done, although text is read ahead of that, and the file ahead of text.
    # Python 3.12 reads 128 KiB of a .gz at a time: a fiftieth of this one.
    rng = random.Random(0)
    text = [rng.randbytes(320).hex().encode() + b"\n" for _ in range(20_000)]
    path.write_bytes(pack(b"".join(text)))
    with open_lines(str(path)) as lines:
        done = 0
        for number, line in enumerate(lines, start=1):
            done += len(line) + 1
            if number in (40, 8_000, 16_000):
                assert lines.share(done) == pytest.approx(number / 20_000, abs=accuracy)
        assert lines.share(done // 2) == pytest.approx(0.5, abs=0.01)


def test_a_file_as_standard_input_tells_its_share(monkeypatch, tmp_path):
    (tmp_path / "text").write_bytes(TEXT)
    with open(tmp_path / "text") as file:
        monkeypatch.setattr(sys, "stdin", file)
        with open_lines(None) as lines:
            assert next(lines) == b"one"
            assert lines.share(4) == pytest.approx(4 / len(TEXT))
            assert lines.name == "standard input" and not lines.interactive


def test_a_stream_as_standard_input_tells_no_share(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT)))
    with open_lines(None) as lines:
        assert list(lines) == EXPECTED and lines.share(3) is None


def test_a_pipe_with_a_name_tells_no_share(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(TEXT,))
    writer.start()
    with open_lines(str(path)) as lines:
        assert list(lines) == EXPECTED and lines.share(3) is None
    writer.join()


@needs_clients
def test_an_object_in_a_bucket(gcs, bucket):
    gcs.put(f"{bucket}/in/text.gz", gzip.compress(TEXT))
    with open_lines(f"gs://{bucket}/in/text.gz") as lines:
        assert list(lines) == EXPECTED
        assert lines.share(lines.bytes_read) == 1.0
    with pytest.raises(CorpusError, match=f"gs://{bucket}/in/none: "):
        with open_lines(f"gs://{bucket}/in/none") as lines:
            list(lines)
