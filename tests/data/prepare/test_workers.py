"""Workers: the same bytes for any number, deaths reported, nothing left behind."""

import contextlib
import dataclasses
import functools
import gzip
import itertools
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.cluster import ClusterError
from flaxformer_mt.config.schema import CorpusConfig, DataConfig
from flaxformer_mt.data.corpus import CorpusError, open_source, open_split, text_files
from flaxformer_mt.data.corpus.text_files import require_stamp
from flaxformer_mt.data.prepare import encode, encode_corpora, make, sample, spread
from flaxformer_mt.data.prepare.encode import Chunk, encode_chunk
from flaxformer_mt.data.prepare.encode_corpora import EncodingWorkers, WorkerDied
from flaxformer_mt.data.prepare.manifest import read_manifest
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.rundir.paths import as_path
from tests.conftest import Killed, environment
from tests.data.prepare.corpora import contents, prepare, two_corpora
from tests.rundir.buckets import needs_clients

GRAMMAR = open_source(CorpusConfig(kind="synthetic", size=1))


def chunks(count: int) -> Any:
    return (Chunk("train", GRAMMAR, number + 1, [(b"a", b"b")]) for number in range(count))


def slow(chunk: Chunk) -> int:
    """In place of the encoder. The first chunks take longest, and the 20th kills its worker."""
    if chunk.first_line == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2 / chunk.first_line)
    return chunk.first_line


def test_any_number_of_workers_and_any_parts_give_the_same(tmp_path, monkeypatch):
    config = two_corpora(tmp_path / "text", 600)
    prepare(config, directory=tmp_path / "0", workers=0)
    vocabularies = Vocabularies.load(tmp_path / "0" / "vocabulary")
    encoding = encode.EncodingSettings(vocabularies, config)
    (_, _, source), *_ = open_split(config, "train")

    def encoded(*ranges):
        """`encode_part` needs nothing but its arguments, which can be sent anywhere."""
        account = encode_corpora.Account("one", "train")
        tokens = []
        for first, stop in ranges:
            part = pickle.loads(
                pickle.dumps((encode.Range("train", source, first, stop), encoding))
            )
            for done in encode.encode_part(*part):
                account.add(done)
                of_chunk = done.tokens
                tokens += [*of_chunk.src.tolist(), *of_chunk.tgt_lengths.tolist()]
                tokens += [*of_chunk.hashes.tolist(), *of_chunk.bands.ravel().tolist()]
        return [account, sorted(tokens)]

    assert encoded((0, None)) == encoded((0, 33), (33, 34), (34, 140), (140, None))
    assert encoded((0, None)) != encoded((0, 33), (34, None))
    monkeypatch.setattr(encode, "CHUNK", 23)
    monkeypatch.setattr(sample, "_AT_A_TIME", 5)
    prepare(config, directory=tmp_path / "3", workers=3)
    assert contents(tmp_path / "3") == contents(tmp_path / "0")


def sent(message):
    """Through bytes; arrays are read-only then, as Ray's are."""
    buffers = []
    pickled = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(pickled, buffers=[bytes(buffer.raw()) for buffer in buffers])


class InProcess:
    """A cluster's workers, but for the cluster; items and results are `sent`."""

    def __init__(self, begin):
        self.start(begin)

    def start(self, begin):
        self.told, self._work = sent(begin)()

    def map(self, items, ahead):
        for item in items:
            yield item, sent(self._work(sent(item)))


def on_a_cluster(begin):
    return contextlib.nullcontext(InProcess(begin))


@pytest.fixture
def small_parts(monkeypatch):
    """Lines that end in other blocks than they begin, and many tasks."""
    monkeypatch.setattr(encode, "CHUNK", 25)
    monkeypatch.setattr(spread, "SPAN", 50)
    monkeypatch.setattr(spread, "_COUNTED", 180)
    monkeypatch.setattr(spread, "BLOCK", 60)
    monkeypatch.setattr(text_files, "BLOCK", 60)


def corpora_of_all_kinds(text: Path) -> DataConfig:
    """Corpora that workers read, plain text and JSON lines, and one that is read here."""
    config = two_corpora(text, 800)
    sides = [path.read_bytes() for path in (text / "one.en", text / "one.de")]
    # A byte order mark, other line ends, and none at the end.
    (text / "one.en").write_bytes(b"\xef\xbb\xbf" + sides[0].replace(b"\n", b"\r\n")[:-2])
    pairs = zip(*(side.decode(errors="replace").split("\n") for side in sides), strict=True)
    records = [json.dumps({"a": {"b": src}, "c": tgt}) for src, tgt in pairs]
    (text / "three.jsonl").write_text("\n".join([*records, "{", '{"a": 1}']))
    (text / "four.tsv.gz").write_bytes(gzip.compress(b"one\ttwo\nthree\n"))
    (text / "five.tsv").write_bytes(b"Ein Haus\tA house\nno tab\n" * 30)
    (text / "empty.tsv").touch()

    train = (
        dataclasses.replace(config.train[0], tag="<one>"),
        config.train[1],
        CorpusConfig(kind="jsonl", name="three", path="three.jsonl", src="a.b", tgt="c"),
        CorpusConfig(kind="tsv", name="four", path="four.tsv.gz"),
        CorpusConfig(kind="tsv", name="five", path="five.tsv"),
        CorpusConfig(kind="tsv", name="empt", path="empty.tsv"),
    )
    sampled = dataclasses.replace(config.vocabulary, sample=150)
    return dataclasses.replace(config, train=train, vocabulary=sampled)


@pytest.mark.parametrize("valid_fraction", [0.0, 0.1])
def test_a_cluster_s_store_is_one_machine_s(tmp_path, small_parts, valid_fraction):
    config = corpora_of_all_kinds(tmp_path / "text")
    config = dataclasses.replace(config, valid_fraction=valid_fraction)
    prepare(config, directory=tmp_path / "0", workers=0)
    prepare(config, directory=tmp_path / "1", cluster=on_a_cluster)
    assert contents(tmp_path / "1") == contents(tmp_path / "0")
    dropped = [account["dropped"] for account in read_manifest(tmp_path / "0/data")["corpora"]]
    assert all(dropped[corpus]["near-duplicate"] > 3 for corpus in (0, 1))


@pytest.fixture
def prepared(tmp_path, small_parts):
    """A function that prepares two corpora on a cluster; each test makes it fail."""
    config = two_corpora(tmp_path / "text", 600)
    return functools.partial(prepare, config, directory=tmp_path / "run", cluster=on_a_cluster)


def test_a_cluster_with_other_versions_is_refused(prepared, monkeypatch):
    versions = itertools.chain(({"regex": 1}, {"regex": 2}), itertools.repeat({"regex": 1}))
    monkeypatch.setattr(spread, "_versions", lambda config: next(versions))
    with pytest.raises(ClusterError, match="the cluster has regex 1, but here is"):
        prepared()


def test_another_machine_s_file_is_refused(prepared, monkeypatch):
    monkeypatch.setattr(
        text_files, "require_stamp", lambda path, stamp: require_stamp(path, (1, 2))
    )
    with pytest.raises(CorpusError, match=r"one\.en: is missing or different on a machine"):
        prepared()


def test_a_text_that_changes_while_its_vocabulary_is_learned_leaves_nothing(
    prepared, tmp_path, monkeypatch
):
    learn = make.train_vocabulary

    def learn_and_touch(*arguments, **options):
        vocabulary = learn(*arguments, **options)
        (tmp_path / "text" / "one.en").touch()
        return vocabulary

    monkeypatch.setattr(make, "train_vocabulary", learn_and_touch)
    with pytest.raises(CorpusError, match=r"one\.en: changed while it was being read"):
        prepared(parts=tmp_path / "parts")
    assert not (tmp_path / "parts").exists()


def test_a_text_that_changes_while_it_is_encoded_leaves_the_vocabulary_alone(
    prepared, tmp_path, monkeypatch
):
    def touch_and_encode(chunk, settings):
        (tmp_path / "text" / "one.en").touch()
        return encode_chunk(chunk, settings)

    monkeypatch.setattr(encode, "encode_chunk", touch_and_encode)
    with pytest.raises(CorpusError, match=r"one\.en: is missing or different on a machine"):
        prepared(parts=tmp_path / "parts")
    assert len([*(tmp_path / "parts").iterdir()]) == 1  # the vocabulary


def test_texts_of_different_lengths_are_named_by_a_cluster_too(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(make, "check_inputs", lambda config: None)
    with open(tmp_path / "text" / "two.de", "ab") as file:
        file.write(b"another")
    with pytest.raises(CorpusError, match=r"two.en has 400 lines and .*two.de has 401: both sides"):
        prepared()


class Counted(InProcess):
    """Lists the ranges that it encodes, up to `stop` of them."""

    def __init__(self, begin, encoded, stop):
        super().__init__(begin)
        self._encoded, self._stop = encoded, stop

    def map(self, items, ahead):
        for item in items:
            if isinstance(item, encode.Range):
                if len(self._encoded) == self._stop:
                    raise Killed
                self._encoded.append((item.source.label, item.first))
            yield from super().map([item], ahead)


class Preparation:
    """Prepares one run, on clusters that may be lost before they finish."""

    def __init__(self, config: DataConfig, folder: Path, parts: Any, monkeypatch: Any) -> None:
        self.config = config
        self.parts = parts
        self._run = folder / "run"
        self._alone = folder / "alone"
        self._monkeypatch = monkeypatch

    def on_a_cluster(
        self, config: DataConfig, *, stop: int | None = None, learns: bool = False
    ) -> tuple[list[Any], list[str]]:
        """Prepares on a cluster that is lost after `stop` ranges; unless it `learns` a vocabulary,
        learning one is an error.

        Returns the encoded ranges and the messages about finished parts.
        """
        encoded: list[Any] = []
        lines: list[str] = []
        learn = sample.train_vocabulary if learns else pytest.fail
        self._monkeypatch.setattr(make, "train_vocabulary", learn)
        with contextlib.suppress(Killed):
            prepare(
                config,
                directory=self._run,
                parts=self.parts,
                cluster=lambda begin: contextlib.nullcontext(Counted(begin, encoded, stop)),
                say=lines.append,
            )
        return encoded, [line for line in lines if " finished parts " in line]

    def check_store(self, config: DataConfig) -> None:
        """Compares it with one machine's."""
        self._monkeypatch.setattr(make, "train_vocabulary", sample.train_vocabulary)
        prepare(config, directory=self._alone, workers=0)
        for name in ("data", "vocabulary"):
            assert contents(self._run / name) == contents(self._alone / name)
        shutil.rmtree(self._alone)

    def remove_store(self) -> None:
        """The parts stay, so that the next call makes it of them."""
        for name in ("data", "vocabulary"):
            shutil.rmtree(self._run / name)


@pytest.fixture(params=["local", pytest.param("bucket", marks=needs_clients)])
def preparation(request, tmp_path, small_parts, monkeypatch):
    """Finished parts are stored in a local folder or in a bucket."""
    config = two_corpora(tmp_path / "text", 600)
    in_bucket = request.param == "bucket"
    vocabulary = dataclasses.replace(config.vocabulary, shared=in_bucket)
    config = dataclasses.replace(config, vocabulary=vocabulary)
    parts = tmp_path / "run" / "data.parts"
    if in_bucket:
        parts = as_path(f"gs://{request.getfixturevalue('bucket')}/run/data.parts")
    return Preparation(config, tmp_path, parts, monkeypatch)


def test_a_cluster_s_finished_parts_are_not_made_again(preparation):
    """Damaged parts, and parts under the wrong name, are made again."""
    config, parts = preparation.config, preparation.parts
    assert preparation.on_a_cluster(config, stop=0, learns=True) == ([], [])
    [learned] = parts.iterdir()
    first, _ = preparation.on_a_cluster(config, stop=5)
    second, _ = preparation.on_a_cluster(config, stop=4)
    assert (len(first), len(second)) == (5, 4)

    flipped, cut, replaced, sound, *_ = (path for path in parts.iterdir() if path != learned)
    content = flipped.read_bytes()
    flipped.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    cut.write_bytes(cut.read_bytes()[:-9])
    replaced.write_bytes(sound.read_bytes())
    third, messages = preparation.on_a_cluster(config)
    message = f"prepare: 7 finished parts of an interrupted call were in {parts}"
    assert messages == [message]
    assert len(third) == 9 and len({*first, *second, *third}) == 6 + 8 + 1

    preparation.check_store(config)
    preparation.remove_store()
    assert preparation.on_a_cluster(config) == ([], [message.replace(" 7 ", " 16 ")])
    preparation.check_store(config)


@pytest.mark.parametrize("changes", ["filter", "text"])
def test_a_change_makes_all_parts_anew(preparation, changes):
    config = preparation.config
    before, _ = preparation.on_a_cluster(config, learns=True)
    preparation.remove_store()

    if changes == "filter":
        shorter = dataclasses.replace(config.filter, max_length=20)
        config = dataclasses.replace(config, filter=shorter)
    else:
        text = Path(config.folder, "two.de")
        text.write_bytes(text.read_bytes().replace(b"die", b"der", 1))
    after, messages = preparation.on_a_cluster(config, learns=True)
    assert {*after} == {*before} and len(before) == 6 + 8 + 1 and not messages
    preparation.check_store(config)


def test_results_come_in_order_reading_is_not_far_ahead_and_death_is_reported(
    tmp_path, monkeypatch
):
    # A script without `if __name__ == "__main__":`, which workers must not run.
    script = types.ModuleType("__main__")
    script.__file__ = str(tmp_path / "script.py")
    Path(script.__file__).write_text("raise SystemExit('run again')")
    monkeypatch.setitem(sys.modules, "__main__", script)
    read = itertools.count()
    with EncodingWorkers(slow, 2) as processes:
        numbers = processes.encode(chunk for chunk in chunks(50) if next(read) >= 0)
        assert next(numbers) == 1
        assert next(read) <= encode_corpora.SHORT + 2 * 3
        for expected, number in enumerate(itertools.islice(numbers, 10), 2):
            assert number == expected
        assert sys.modules["__main__"] is script
        with pytest.raises(WorkerDied, match="a worker process was killed"):
            list(numbers)


SCRIPT = """
import pickle, sys
from pathlib import Path
from flaxformer_mt.data.prepare import prepare, encode

encode.CHUNK = 20
folder = Path(sys.argv[1])
config = pickle.loads((folder / "config").read_bytes())
try:
    prepare(config, seed=1, directory=folder / "run", workers=2)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.extended
@pytest.mark.parametrize("end", ["killed", "Ctrl-C"])
def test_workers_end_with_their_parent(tmp_path, end):
    """Killed, or by Ctrl-C, which ends it quietly and leaves nothing."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    (tmp_path / "config").write_bytes(pickle.dumps(two_corpora(tmp_path / "text", 6_000)))
    process = subprocess.Popen(
        [sys.executable, script, tmp_path],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        if not children.exists():
            pytest.skip("needs Linux's list of a process's children")
        shard = tmp_path / "run" / "data.partial" / "train-00000.src.tokens"
        while not (shard.exists() and shard.stat().st_size):
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        workers = children.read_text().split()
        assert len(workers) >= 2
        if end == "killed":
            process.kill()
        else:  # As a terminal does it: to every process of the group.
            os.killpg(process.pid, signal.SIGINT)
            _, errors = process.communicate()
            assert process.returncode == 130 and errors == b""
            assert not list((tmp_path / "run").iterdir())
        # The test's own limit ends it where a worker outlives its parent.
        for worker in workers:
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{worker}/stat")
                while stat.read_text().rpartition(")")[2].split()[0] != "Z":
                    time.sleep(0.05)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
