"""The corpora through the workers into the store, every pair accounted for."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from flaxformer_mt.config.schema import CorpusConfig, DataConfig
from flaxformer_mt.data import corpus as corpora
from flaxformer_mt.data.corpus import Source
from flaxformer_mt.data.prepare import accounts, progress as progresses, workers
from flaxformer_mt.data.prepare.accounts import Account
from flaxformer_mt.data.prepare.duplicates import Seen
from flaxformer_mt.data.prepare.encode import Chunk, Encoded
from flaxformer_mt.data.prepare.extent import record_bytes, text_bytes
from flaxformer_mt.data.prepare.filters import DUPLICATE
from flaxformer_mt.data.prepare.manifest import PrepareError, named_corpora
from flaxformer_mt.data.prepare.meter import Meter
from flaxformer_mt.data.prepare.progress import HASHES, PROGRESS, VOCABULARY, Progress
from flaxformer_mt.data.prepare.workers import Workers
from flaxformer_mt.data.store_writer import StoreWriter
from flaxformer_mt.data.vocabulary import Vocabularies

VALID_TEXT = ("valid.src.txt", "valid.tgt.txt")


class Filling(contextlib.AbstractContextManager["Filling"]):
    """A store under way in a folder of its own, from where `progress` says it is.

    Used in one thread; the folder may be left at any moment and gone on with from there.
    """

    def __init__(
        self,
        directory: Path,
        config: DataConfig,
        vocabularies: Vocabularies,
        progress: Progress,
        workers: Workers,
        meter: Meter,
    ) -> None:
        self._directory = directory
        self._config = config
        self._progress = progress
        self._workers = workers
        self._meter = meter
        self._written = progress.lines
        self._remove_what_came_after()
        self._writer = StoreWriter(
            directory,
            vocabulary_size=max(vocabularies.src.size, vocabularies.tgt.size),
            vocabulary_digest=vocabularies.digest,
            state=progress.store,
        )
        self._files: dict[str, BinaryIO] = {}
        for name in (*VALID_TEXT, *([HASHES] if config.filter.duplicates else [])):
            self._files[name] = _open_at(directory / name, progress.sizes.get(name, 0))
        self._seen = Seen()
        if config.filter.duplicates:
            with open(directory / HASHES, "rb") as stream:
                while data := stream.read(1 << 20):
                    self._seen.add(np.frombuffer(data, "<u8"))

    def fill(self) -> str:
        """Encodes and stores what is left to do; the digest of the store."""
        progress = self._progress
        done = len(progress.accounts) - (progress.lines > 0)
        for number, named in enumerate(named_corpora(self._config)):
            if number >= done:
                total = progress.records[number] if number < len(progress.records) else None
                self._fill_from(*named, total)
        return self._writer.finish()

    def __exit__(self, *_: Any) -> None:
        self._writer.close()
        for file in self._files.values():
            file.close()

    def _fill_from(self, split: str, key: str, corpus: CorpusConfig, total: int | None) -> None:
        progress, meter = self._progress, self._meter
        source = corpora.open_source(corpus, self._config.folder, key)
        if progress.lines == 0:
            self._writer.begin_corpus(split, corpus.name, corpus.weight)
            progress.accounts.append(accounts.new_account(split, key))
            self._written = 0
        else:
            meter.say(f"prepare: {key}: going on after {progress.lines:,} pairs")
        account = progress.accounts[-1]
        text = None if total else text_bytes(source)
        unit, total = ("bytes", text) if text else ("pairs", total)
        done = progress.bytes if text else progress.lines
        with meter.stage(key, total, unit=unit, done=done):
            for chunk, encoded in self._workers.encode(_chunks(split, source, progress.lines)):
                self._store(chunk, encoded, account)
                size = record_bytes(chunk.records)
                progress.lines += len(chunk.records)
                progress.bytes += size
                if progress.lines - self._written >= progresses.EVERY:
                    self._write_progress()
                meter.advance(size if text else len(chunk.records))
        progress.lines = progress.bytes = 0
        self._write_progress()
        meter.say(f"prepare: {accounts.one_line(account)}")

    def _store(self, chunk: Chunk, encoded: Encoded, account: Account) -> None:
        if len(encoded.hashes):
            new = self._seen.add(encoded.hashes)
            places, example = (
                encoded.fates.kept(),
                (chunk.source.label, "the same pair came before"),
            )
            encoded.fates.drop(places[~new], DUPLICATE, itertools.repeat(example))
            encoded.keep(new)
            self._files[HASHES].write(encoded.hashes.astype("<u8").tobytes())
        self._writer.append_flat(
            chunk.split, encoded.src, encoded.src_lengths, encoded.tgt, encoded.tgt_lengths
        )
        for name, text in zip(VALID_TEXT, encoded.text, strict=True):
            self._files[name].write(text)
        accounts.add_chunk(account, chunk, encoded)

    def _write_progress(self) -> None:
        for name, file in self._files.items():
            file.flush()
            os.fsync(file.fileno())
            self._progress.sizes[name] = file.tell()
        self._progress.store = self._writer.flush()
        self._progress.write(self._directory)
        self._written = self._progress.lines

    def _remove_what_came_after(self) -> None:
        """Files that were begun after the progress was written."""
        store = self._progress.store or {"sizes": {}, "finished": {}}
        known = {*store["sizes"], *store["finished"], *self._progress.sizes}
        for path in self._directory.iterdir():
            if path.name not in known | {PROGRESS, VOCABULARY}:
                path.unlink()


def _chunks(split: str, source: Source, done: int) -> Iterator[Chunk]:
    records = itertools.islice(source.records(), done, None)
    while chunk := list(itertools.islice(records, workers.CHUNK)):
        yield Chunk(split, source, done + 1, chunk)
        done += len(chunk)


def _open_at(path: Path, size: int) -> BinaryIO:
    """A file opened to go on after its first `size` bytes; what follows them is cut off."""
    file = open(path, "ab")
    if file.tell() < size:
        file.close()
        raise PrepareError(
            f"{path}: has lost a part of what was written: delete {path.parent} and run "
            f"`prepare` again"
        )
    file.truncate(size)
    file.seek(size)
    return file
