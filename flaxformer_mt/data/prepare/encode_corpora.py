"""The corpora through worker processes into the store, every pair accounted for.

Workers are spawned, not forked: the parent may run threads of JAX, and a forked child inherits the
locks they hold. They import no JAX, build their SentencePiece processors on the first chunk, leave
Ctrl-C to the parent, and end with it however it ends.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import multiprocessing
import os
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np

from flaxformer_mt.data import corpus as corpora
from flaxformer_mt.data.corpus import Drops, Example
from flaxformer_mt.data.prepare.encode import (
    EXAMPLES,
    Chunk,
    Encoded,
    Range,
    Settings,
    encode_chunk,
)
from flaxformer_mt.data.prepare.filters import DUPLICATE, Seen
from flaxformer_mt.data.prepare.manifest import VALID_TEXT, PrepareError, Report, named_corpora
from flaxformer_mt.data.prepare.sample import nothing_left, record_bytes, share_of, text_bytes
from flaxformer_mt.data.processes import end_with_parent, signals_held_back
from flaxformer_mt.data.store_writer import StoreWriter
from flaxformer_mt.errors import FAILED
from flaxformer_mt.progress import Meter

Encode = Callable[[Chunk], Encoded]
SHORT = 5
"""A corpus of fewer chunks is encoded before a process has started."""
_AHEAD = 3
"""Chunks under way for each worker: none waits for the reader, and memory stays small."""
Account = dict[str, Any]
"""What became of a corpus, as it stands in the manifest: key, split, read, kept, dropped (a count
for each reason, in the order in which they occurred), examples."""


def encode_corpora(
    directory: Path,
    settings: Settings,
    workers: int | None,
    *,
    records: Sequence[int] = (),
    report: Report,
    bar: bool = False,
) -> tuple[str, list[Account]]:
    """Writes the store and the validation text into an empty folder; its digest and accounts.

    `workers` are as in `Workers`, `records` how many each corpus has, as far as that is known.
    """
    config, vocabularies = settings.data, settings.vocabularies
    seen, accounts = Seen(), list[Account]()
    largest = max(vocabularies.src.size, vocabularies.tgt.size)
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(
            StoreWriter(directory, vocabulary_size=largest, vocabulary_digest=vocabularies.digest)
        )
        texts = [stack.enter_context(open(directory / name, "wb")) for name in VALID_TEXT]
        encode = functools.partial(encode_chunk, settings=settings)
        processes = stack.enter_context(Workers(encode, workers))
        for (split, key, corpus), count in itertools.zip_longest(named_corpora(config), records):
            source = corpora.open_source(corpus, config.folder, key)
            writer.begin_corpus(split, corpus.name, corpus.weight)
            account = new_account(split, key)
            accounts.append(account)
            size, total = (len, count) if count else (record_bytes, text_bytes(source))
            share = share_of(total)
            with Meter(f"prepare: {key}", report, unit="pairs", share=share, terminal=bar) as meter:
                for chunk, encoded in processes.encode(Range(split, source).chunks()):
                    if len(encoded.hashes):
                        _drop_seen(seen, chunk, encoded)
                    writer.append(
                        split, encoded.src, encoded.src_lengths, encoded.tgt, encoded.tgt_lengths
                    )
                    for file, text in zip(texts, encoded.text, strict=True):
                        file.write(text)
                    add_chunk(account, chunk, encoded)
                    meter.advance(lines=len(chunk.records), size=size(chunk.records))
            report(f"prepare: {one_line(account)}")
        return writer.finish(), accounts


def new_account(split: str, key: str) -> Account:
    return {"key": key, "split": split, "read": 0, "kept": 0, "dropped": {}, "examples": []}


def add_chunk(account: Account, chunk: Chunk, encoded: Encoded) -> None:
    """Adds what became of the corpus's next chunk; where chunks end makes no difference."""
    fates = encoded.fates
    account["read"] += len(fates.codes)
    account["kept"] += len(encoded.src_lengths)
    codes, firsts, counts = np.unique(fates.codes, return_index=True, return_counts=True)
    for number in np.argsort(firsts):
        code, count = int(codes[number]), int(counts[number])
        if code == 0:
            continue
        reason = fates.reasons[code]
        before = account["dropped"].get(reason, 0)
        account["dropped"][reason] = before + count
        for place in np.flatnonzero(fates.codes == code)[: max(0, EXAMPLES - before)].tolist():
            file, detail = fates.examples[place]
            example = Example(file, chunk.first_line + place, reason, detail)
            account["examples"].append(example._asdict())
    account["examples"].sort(key=lambda example: example["line"])


def one_line(account: Account) -> str:
    line = f"{account['key']}: {account['read']:,} pairs read, {account['kept']:,} kept"
    dropped = Drops(account["dropped"])
    return f"{line}, dropped: {dropped.describe()}" if dropped.total else line


def require_pairs(accounts: Sequence[Account], weighted: Collection[str]) -> None:
    """Raises PrepareError if nothing is left to train or to validate on.

    Nor may a corpus be empty that has a share in a mixture (`weighted`, by key): the shares of the
    others would change.
    """
    for account in accounts:
        if account["key"] in weighted and not account["kept"]:
            raise PrepareError(
                f"{account['key']}: has a weight in the mixture and no pair is left of it: "
                f"{one_line(account)}"
            )
    for split in ("train", "valid"):
        of_split = [account for account in accounts if account["split"] == split]
        if any(account["kept"] for account in of_split):
            continue
        counts: collections.Counter[str] = collections.Counter()
        for account in of_split:
            counts.update(account["dropped"])
        examples = [Example(**example) for account in of_split for example in account["examples"]]
        raise nothing_left(split, Drops(dict(counts), examples))


def _drop_seen(seen: Seen, chunk: Chunk, encoded: Encoded) -> None:
    new = seen.add(encoded.hashes)
    file, detail = chunk.source.label, "the same pair came before"
    encoded.fates.drop(encoded.fates.kept()[~new], DUPLICATE, file, detail)
    encoded.keep(new)


class WorkerDied(PrepareError):
    """A worker process ended without having been asked to."""

    exit_status = FAILED


class Workers(contextlib.AbstractContextManager["Workers"]):
    """Encodes chunks in `count` processes, or in this one where that is 0.

    What encodes one can be pickled. Without a count there is a process for each processor that this
    one may use, and none until there is a corpus long enough to be worth their start.
    """

    def __init__(self, encode: Encode, count: int | None = None) -> None:
        self._encode = encode
        self._count = _default_count() if count is None else count
        self._even_for_short = count is not None
        self._pool: ProcessPoolExecutor | None = None

    def encode(self, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, Encoded]]:
        """Each chunk and what became of it, in the order of the chunks. Raises WorkerDied."""
        first = list(itertools.islice(chunks, SHORT))
        chunks = itertools.chain(first, chunks)
        short = len(first) < SHORT and not self._even_for_short
        if self._count and (self._pool or not short):
            return self._encode_elsewhere(chunks)
        return ((chunk, self._encode(chunk)) for chunk in chunks)

    def __exit__(self, *_: Any) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def _encode_elsewhere(self, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, Encoded]]:
        under_way: collections.deque[tuple[Chunk, Future[Encoded]]] = collections.deque()
        try:
            while True:
                for chunk in itertools.islice(chunks, _AHEAD * self._count - len(under_way)):
                    under_way.append((chunk, self._submit(chunk)))
                if not under_way:
                    return
                chunk, future = under_way.popleft()
                yield chunk, future.result()
        except BrokenProcessPool as error:
            raise WorkerDied(
                "a worker process of `prepare` died: it was killed, perhaps for want of memory; "
                "the same command starts over"
            ) from error

    def _submit(self, chunk: Chunk) -> Future[Encoded]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self._count,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start,
                initargs=(self._encode,),
            )
        # This may start a process. The pool ends processes by SIGTERM.
        with signals_held_back(signal.SIGINT):
            return self._pool.submit(_encode_here, chunk)


def _default_count() -> int:
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    else:
        processors = os.cpu_count() or 1
    return processors if processors > 1 else 0


_encode: Encode
"""In a worker process: what it was started with."""


def _start(encode: Encode) -> None:
    global _encode
    _encode = encode
    end_with_parent()


def _encode_here(chunk: Chunk) -> Encoded:
    return _encode(chunk)
