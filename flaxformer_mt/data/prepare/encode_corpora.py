"""Sends corpora through worker processes into the store, accounting for every pair.

Workers are spawned, not forked: the parent may run threads of JAX, and a forked child inherits the
locks they hold. They import no JAX, build their SentencePiece processors on the first chunk, leave
Ctrl-C to the parent, and end with it however it ends.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import multiprocessing
import signal
import sys
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from jaxtyping import Float32, Int32

from flaxformer_mt.config.schema import DataConfig
from flaxformer_mt.data.corpus import EXAMPLES, Drops, PairSource, open_split
from flaxformer_mt.data.corpus.pairs import ELSEWHERE
from flaxformer_mt.data.prepare.encode import (
    Chunk,
    Encoded,
    EncodingSettings,
    Range,
    Side,
    encode_chunk,
)
from flaxformer_mt.data.prepare.filters import DUPLICATE, NEAR_DUPLICATE, Seen, SeenNear
from flaxformer_mt.data.prepare.manifest import VALID_TEXT, PrepareError, Say
from flaxformer_mt.data.prepare.sample import (
    mixing_weights,
    nothing_left,
    require_decodable,
    share_of,
    text_bytes,
)
from flaxformer_mt.data.prepare.spread import Spread
from flaxformer_mt.data.processes import end_with_parent, mapped, processors, signals_held_back
from flaxformer_mt.data.store_writer import StoreWriter
from flaxformer_mt.data.vocabulary import UNK
from flaxformer_mt.errors import FAILED
from flaxformer_mt.progress import Meter

Encode = Callable[[Chunk], Encoded]
MANY_UNKNOWN = 0.01  # share of a side's tokens: more unknown ones get a warning
EXTREME_WEIGHT = 100  # times the mean: a higher weight gets a warning
SHORT = 5  # a corpus of fewer chunks is encoded before a process has started
_AHEAD = 3  # chunks under way for each worker: none waits for the reader, and memory stays small
_NAMES: dict[Side, str] = {"src": "source", "tgt": "target"}


@dataclasses.dataclass
class UnknownTokens:
    """How many of a side's tokens, end marks included, its vocabulary doesn't know."""

    tokens: int = 0
    unknown: int = 0
    examples: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def add(self, ids: Int32[np.ndarray, " tokens"], examples: Sequence[dict[str, Any]]) -> None:
        self.tokens += len(ids)
        self.unknown += int(np.count_nonzero(ids == UNK))
        for example in examples:
            known = {earlier["text"] for earlier in self.examples}
            if len(known) < EXAMPLES and example["text"] not in known:
                self.examples.append(example)


@dataclasses.dataclass
class Weights:
    """The weights of a corpus's kept pairs, in a few numbers."""

    lowest: float = math.inf
    highest: float = 0.0
    total: float = 0.0
    count: int = 0

    def add(self, weights: Float32[np.ndarray, " kept"]) -> None:
        self.lowest = float(weights.min(initial=self.lowest))
        self.highest = float(weights.max(initial=self.highest))
        self.total += float(weights.sum(dtype=np.float64))
        self.count += len(weights)

    @property
    def mean(self) -> float:
        return self.total / max(1, self.count)

    def __str__(self) -> str:
        return f"weights from {self.lowest:g} to {self.highest:g}, {self.mean:.3g} in the mean"


@dataclasses.dataclass
class Account:
    """The counts of a corpus; reasons are in the order in which they occurred."""

    key: str
    split: str
    read: int = 0
    kept: int = 0
    text: int = 0  # pairs of validation text, with those that are too long for the store
    drops: Drops = dataclasses.field(default_factory=Drops)
    overlap: Drops = dataclasses.field(default_factory=Drops)  # as Sifted has it
    weights: Weights = dataclasses.field(default_factory=Weights)
    unknown: dict[Side, UnknownTokens] = dataclasses.field(
        default_factory=lambda: {"src": UnknownTokens(), "tgt": UnknownTokens()}
    )

    @property
    def has_weights(self) -> bool:
        """Whether its pairs don't all have the weight of other corpora's."""
        return self.weights.count > 0 and not self.weights.lowest == self.weights.highest == 1

    @property
    def is_one_of_sets(self) -> bool:
        """Whether it is one of several validation sets."""
        return self.key.startswith("data.valid_sets.")

    def add(self, encoded: Encoded) -> None:
        """Counts the corpus's next chunk; where chunks end makes no difference."""
        sifted, tokens = encoded.sifted, encoded.tokens
        self.read += sifted.read
        self.kept += len(tokens.src_lengths)
        self.text += encoded.text[0].count(b"\n")
        self.weights.add(tokens.weights)
        self.drops.merge(sifted.drops)
        self.overlap.merge(sifted.overlap)
        ids_by_side: dict[Side, Any] = {"src": tokens.src, "tgt": tokens.tgt}
        for side, ids in ids_by_side.items():
            examples = [
                {"file": file, "line": sifted.first_line + place, "text": text}
                for place, of_side, file, text in encoded.unknowns
                # It may be dropped as a duplicate after it was encoded.
                if of_side == side and sifted.mask[place]
            ]
            self.unknown[side].add(ids, examples)

    def warnings(self) -> Iterator[str]:
        """A line if evaluation text has some of the sources, and for each side of which more than
        `MANY_UNKNOWN` of the tokens are unknown."""
        if self.overlap.total:
            example = self.overlap.examples[0]
            yield (
                f"{self.key}: {self.overlap.total:,} pairs have a source that is in evaluation "
                f"text, too: {self.overlap.describe()}, first {example.file}:{example.line}; "
                "data.filter.overlap=true drops such pairs"
            )
        if self.weights.highest > EXTREME_WEIGHT * self.weights.mean:
            yield (
                f"{self.key}: {self.weights}: a pair of the highest weight counts as much as "
                f"{self.weights.highest / self.weights.mean:,.0f} others"
            )
        for side, counts in self.unknown.items():
            if counts.unknown <= MANY_UNKNOWN * counts.tokens:
                continue
            share = counts.unknown / counts.tokens
            examples = ""
            if counts.examples:
                first = counts.examples[0]
                texts = ", ".join(repr(example["text"]) for example in counts.examples)
                examples = f": {texts}, first in {first['file']}:{first['line']}"
            yield (
                f"{self.key}: {counts.unknown:,} of {counts.tokens:,} {_NAMES[side]} "
                f"tokens ({share:.1%}) are unknown to the vocabulary{examples}; learn a vocabulary "
                "from such text, or set data.vocabulary.byte_fallback=true"
            )

    def __str__(self) -> str:
        line = f"{self.key}: {self.read:,} pairs read, {self.kept:,} kept"
        for reason, count in self.drops.counts.items():
            if reason in ELSEWHERE:
                line += f", {count:,} {reason}"
        if self.has_weights:
            line += f", {self.weights}"
        dropped = self.drops.describe(leaving_out=ELSEWHERE)
        return f"{line}, dropped: {dropped}" if dropped else line

    def to_json(self) -> dict[str, Any]:
        counts: dict[str, Any] = {"key": self.key, "split": self.split}
        counts |= {"read": self.read, "kept": self.kept}
        if self.split == "valid":
            counts["text"] = self.text
        if self.overlap.total:
            counts["overlap"] = self.overlap.counts
        if self.has_weights:
            numbers = self.weights
            counts["weights"] = {
                "lowest": numbers.lowest,
                "mean": numbers.mean,
                "highest": numbers.highest,
            }
        examples = [example._asdict() for example in self.drops.examples]
        unknown = {side: dataclasses.asdict(tokens) for side, tokens in self.unknown.items()}
        return {**counts, "dropped": self.drops.counts, "examples": examples, "unknown": unknown}


def encode_corpora(
    directory: Path,
    settings: EncodingSettings,
    workers: int | None,
    *,
    records: Sequence[int] = (),
    spread: Spread | None = None,
    say: Say,
    bar: bool = False,
) -> tuple[str, list[Account]]:
    """Writes the store and the validation text into an empty folder; its digest and accounts.

    `records` is how many each corpus has, as far as that is known.
    """
    config, vocabularies = settings.data, settings.vocabularies
    accounts = list[Account]()
    largest = max(vocabularies.src.size, vocabularies.tgt.size)
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(
            StoreWriter(
                directory,
                vocabulary_size=largest,
                vocabulary_digest=vocabularies.digest,
                has_weights=config.has_pair_weights,
            )
        )
        texts = [stack.enter_context(open(directory / name, "wb")) for name in VALID_TEXT]
        destination = _Destination(writer, texts)
        if spread:
            encode = spread.encoder(settings)
        else:
            processes = EncodingWorkers(functools.partial(encode_chunk, settings=settings), workers)
            encode = stack.enter_context(processes).encode_corpus

        for corpus in _corpora(config, records):
            writer.begin_corpus(corpus.split, corpus.name, corpus.weight)
            account = Account(corpus.key, corpus.split)
            accounts.append(account)
            for source, count in corpus.sources:
                share = share_of(count or text_bytes(source))
                task = f"prepare: {corpus.key}"
                with Meter(task, say, unit="pairs", share=share, terminal=bar) as meter:
                    for encoded in encode(corpus.split, source):
                        account.add(destination.add(corpus.split, encoded))
                        sifted = encoded.sifted
                        meter.advance(lines=sifted.read, size=sifted.read if count else sifted.size)

            say(f"prepare: {account}")
            sources = [source for source, _ in corpus.sources]
            require_decodable(corpus.key, sources, account.read, account.drops)
            for warning in account.warnings():
                say(f"prepare: warning: {warning}")
        _weigh(writer, [one for one in accounts if one.split == "train"], config, say)
        return writer.finish(), accounts


class _Corpus(NamedTuple):
    """A corpus to encode: its sources, one after the other, and how many records each has, if that
    is known."""

    split: str
    key: str
    name: str
    weight: float
    sources: Sequence[tuple[PairSource, int | None]]


def _corpora(config: DataConfig, records: Sequence[int]) -> Iterator[_Corpus]:
    """The corpora in the order of the store; `records` are of training sources."""
    both = ("train", "valid")
    splits = ((split, *opened) for split in both for opened in open_split(config, split))
    counted = itertools.zip_longest(splits, records)
    for (split, key), of_corpus in itertools.groupby(counted, key=lambda entry: entry[0][:2]):
        entries = [*of_corpus]
        (_, _, corpus, _), _ = entries[0]
        sources = [(source, count) for (*_, source), count in entries]
        yield _Corpus(split, key, corpus.name, corpus.weight, sources)


def _weigh(writer: StoreWriter, accounts: Sequence[Account], config: DataConfig, say: Say) -> None:
    """Gives the training corpora the weights that follow from how many pairs each has kept, if
    `data.mix_temperature` asks for it. Raises PrepareError for one that has none."""
    if not config.mix_temperature:
        return
    for account in accounts:
        if not account.kept:
            raise PrepareError(f"{account}; a corpus of a mixture may not be empty")
    weights = mixing_weights([account.kept for account in accounts], config)
    writer.weigh("train", weights)
    for account, weight in zip(accounts, weights, strict=True):
        say(f"prepare: {account.key}: {weight / sum(weights):.1%} of what training draws")


class _Destination:
    """The store and the files of validation text, where duplicates are left out."""

    def __init__(self, writer: StoreWriter, texts: Sequence[BinaryIO]) -> None:
        """`texts` are the files of both sides."""
        self._writer = writer
        self._texts = texts
        self._seen = Seen()
        self._seen_near = SeenNear()

    def add(self, split: str, encoded: Encoded) -> Encoded:
        """Writes the chunk without its pairs that came before, and returns it without them."""
        if len(hashes := encoded.tokens.hashes):
            known = ~self._seen.add(hashes)
            encoded = encoded.without(known, DUPLICATE, "the same pair came before")
        if len(bands := encoded.tokens.bands):
            known = ~self._seen_near.add(bands)
            encoded = encoded.without(known, NEAR_DUPLICATE, "a similar pair came before")
        tokens = encoded.tokens
        self._writer.append(
            split,
            tokens.src,
            tokens.src_lengths,
            tokens.tgt,
            tokens.tgt_lengths,
            tokens.weights,
        )
        for file, text in zip(self._texts, encoded.text, strict=True):
            file.write(text)
        return encoded


def require_pairs(accounts: Sequence[Account], weighted: Collection[str]) -> None:
    """Raises PrepareError if nothing is left to train or to validate on.

    Nor may a corpus be empty that has a share in a mixture (`weighted`, by key), since the shares
    of the others would change, or one of several validation sets, since their mean would.
    """
    _require_split_pairs(accounts)
    for account in accounts:
        if account.key in weighted and not account.kept:
            raise PrepareError(f"{account}; a corpus with a weight may not be empty")
        if account.is_one_of_sets and not account.kept:
            raise PrepareError(f"{account}; a validation set may not be empty")


def _require_split_pairs(accounts: Sequence[Account]) -> None:
    for split in ("train", "valid"):
        of_split = [account for account in accounts if account.split == split]
        if not any(account.kept for account in of_split):
            raise nothing_left(split, [account.drops for account in of_split])


class WorkerDied(PrepareError):
    """A worker process ended without having been asked to."""

    exit_status = FAILED


class EncodingWorkers(contextlib.AbstractContextManager["EncodingWorkers"]):
    """Encodes chunks in `count` processes, or in this one where that is 0.

    Without a count there is one for each processor, started once a corpus is worth it.
    """

    def __init__(self, encode: Encode, count: int | None = None) -> None:
        self._encode = encode
        self._even_for_short = count is not None
        if count is None:
            available = processors()
            count = available if available > 1 else 0
        self._count = count
        self._pool: ProcessPoolExecutor | None = None

    def encode(self, chunks: Iterator[Chunk]) -> Iterator[Encoded]:
        """Encodes chunks, in order. Raises WorkerDied."""
        first = list(itertools.islice(chunks, SHORT))
        chunks = itertools.chain(first, chunks)
        short = len(first) < SHORT and not self._even_for_short
        if self._count and (self._pool or not short):
            return self._encode_elsewhere(chunks)
        return map(self._encode, chunks)

    def encode_corpus(self, split: str, source: PairSource) -> Iterator[Encoded]:
        return self.encode(Range(split, source).chunks())

    def __exit__(self, *_: Any) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def _encode_elsewhere(self, chunks: Iterator[Chunk]) -> Iterator[Encoded]:
        try:
            yield from mapped(self._submit, chunks, ahead=_AHEAD * self._count)
        except BrokenProcessPool as error:
            raise WorkerDied("a worker process was killed, perhaps out of memory") from error

    def _submit(self, chunk: Chunk) -> Future[Encoded]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self._count,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start,
                initargs=(self._encode,),
            )
        # This may start a process, which would first run the user's script once more: without
        # `if __name__ == "__main__":` it trains again, and the input of `python -` isn't found.
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            # The pool ends processes by SIGTERM.
            with signals_held_back(signal.SIGINT):
                return self._pool.submit(_encode_here, chunk)
        finally:
            sys.modules["__main__"] = main


_encode: Encode  # in a worker process, set when it starts


def _start(encode: Encode) -> None:
    global _encode
    _encode = encode
    end_with_parent()


def _encode_here(chunk: Chunk) -> Encoded:
    return _encode(chunk)
