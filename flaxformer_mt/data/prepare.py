"""From raw corpora to the vocabulary and the token store of a run directory, once.

Everything is written aside and renamed into place at the end: a directory holds a complete store or
none. The manifest in the store's folder records what it was made from; a later call with other
settings or changed files is an error that names the difference, never a silent reuse.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from flaxformer_mt.config.schema import DataConfig
from flaxformer_mt.data import corpus as corpora, inputs, vocabulary
from flaxformer_mt.data.corpus import Drops, Example, Pair
from flaxformer_mt.data.encode import CHUNK, VALID_TEXT, Encoder
from flaxformer_mt.data.manifest import (
    FORMAT,
    MANIFEST,
    PrepareError as PrepareError,
    describe as describe,
    named_corpora,
    read_manifest as read_manifest,
    settings_of,
    summary,
)
from flaxformer_mt.data.store import Store, StoreWriter
from flaxformer_mt.data.vocabulary import Vocabularies

Report = Callable[[str], None]


def prepare(
    config: DataConfig,
    *,
    seed: int,
    directory: str | Path,
    report: Report = lambda line: None,
) -> Store:
    """The token store of a run directory, made on the first call and verified on later ones.

    Writes `vocabulary/` (unless it is there, as in fine-tuning) and `data/`: the store, the
    manifest and the validation sentences as text. `report` gets one line of progress at a time.

    Raises:
      PrepareError: nothing is left to train or validate on, or the directory was prepared with
        other settings or from files that have changed; the message names them.
      CorpusError, VocabularyError, StoreError: see there.
    """
    directory = Path(directory)
    data = directory / "data"
    if (data / MANIFEST).exists():
        return _reuse(config, seed, directory, report)
    if data.exists() and any(data.iterdir()):
        raise PrepareError(
            f"{data}: holds files but no {MANIFEST}: it was not made by `prepare`; move it away"
        )
    aside = directory / "data.partial"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        return _make(config, seed, directory, aside, report)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def valid_text(directory: str | Path) -> tuple[list[str], list[str]]:
    """The validation sentences in a store's folder as raw text: sources and references.

    Every sound pair is there, also one too long to be among the store's tokens.
    """
    texts = [(Path(directory) / name).read_bytes().decode("utf-8") for name in VALID_TEXT]
    src, tgt = (text.split("\n")[:-1] for text in texts)
    return src, tgt


def _make(config: DataConfig, seed: int, directory: Path, aside: Path, report: Report) -> Store:
    if not config.train:
        raise PrepareError("data.train names no corpus: set data.train.NAME.src and .tgt")
    read_from = inputs.describe_all(named_corpora(config), config.folder)
    found = (directory / "vocabulary" / vocabulary.INDEX).exists()
    if found:
        vocabularies, sample = Vocabularies.load(directory / "vocabulary"), 0
        report(
            f"prepare: using the vocabulary in {directory / 'vocabulary'}, "
            f"{_sizes(vocabularies)}; the settings data.vocabulary.* have no effect"
        )
    else:
        vocabularies, sample = _train_vocabulary(config, seed, report)
    size = max(vocabularies.src.size, vocabularies.tgt.size)
    writer = StoreWriter(aside, vocabulary_size=size, vocabulary_digest=vocabularies.digest)
    encoder = Encoder(vocabularies, writer, config.filter, config.folder, aside, report)
    try:
        accounts = [
            encoder.encode_corpus(split, key, corpus)
            for split, key, corpus in named_corpora(config)
        ]
    finally:
        writer.close()
    for split in ("train", "valid"):
        _require_pairs(split, [account for account in accounts if account["split"] == split])

    digest = writer.finish()
    inputs.require_unchanged(read_from)
    store = Store.open(aside)
    manifest = {
        "format": FORMAT,
        "settings": settings_of(config, seed),
        "inputs": read_from,
        "corpora": accounts,
        "vocabulary": {
            "digest": vocabularies.digest,
            "shared": vocabularies.shared,
            "sizes": {"src": vocabularies.src.size, "tgt": vocabularies.tgt.size},
            "found": found,
            "sample": sample,
        },
        "lengths": {
            split: {"src": summary(pairs.src_lengths), "tgt": summary(pairs.tgt_lengths)}
            for split, pairs in (("train", store.train), ("valid", store.valid))
        },
        "store": digest,
    }
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    (aside / MANIFEST).write_text(text, "utf-8")
    if not found:
        vocabularies.save(directory / "vocabulary")
    os.replace(aside, directory / "data")
    return Store.open(directory / "data", vocabulary_digest=vocabularies.digest)


def _reuse(config: DataConfig, seed: int, directory: Path, report: Report) -> Store:
    """The store that is there, if it is the one which this call would make."""
    data = directory / "data"
    manifest = read_manifest(data)
    recorded, wanted = manifest["settings"], settings_of(config, seed)
    changes = [
        f"{key}: {recorded.get(key, 'not set')!r} then, {wanted.get(key, 'not set')!r} now"
        for key in sorted(recorded.keys() | wanted.keys())
        if recorded.get(key) != wanted.get(key)
    ]
    if not changes:
        changes, gone = inputs.compare(manifest["inputs"], named_corpora(config), config.folder)
        for line in gone:
            report(f"prepare: {line} (the store made from it is used)")
    if changes:
        raise PrepareError(
            f"{data} was prepared from other data or settings: {'; '.join(changes)}. "
            f"Put them back, or use a new directory"
        )
    vocabularies = Vocabularies.load(directory / "vocabulary")
    if vocabularies.digest != manifest["vocabulary"]["digest"]:
        raise PrepareError(
            f"{directory / 'vocabulary'}: is not the vocabulary with which {data} was prepared; "
            f"put that back, or use a new directory"
        )
    store = Store.open(data, vocabulary_digest=vocabularies.digest)
    if store.digest != manifest["store"]:
        raise PrepareError(
            f"{data / 'store.json'}: is not the store that {MANIFEST} records; delete {data} and "
            f"run `prepare` again"
        )
    report(f"prepare: {len(store.train):,} training pairs in {data} are up to date")
    return store


def _train_vocabulary(config: DataConfig, seed: int, report: Report) -> tuple[Vocabularies, int]:
    """A vocabulary of the training corpora, and on how many pairs it was trained."""
    # A first reading for the sample alone; the second, which encodes, keeps the account.
    drops = Drops()
    pairs = itertools.chain.from_iterable(
        corpora.read_pairs(corpus, config.folder, drops=drops, key=key)
        for split, key, corpus in named_corpora(config)
        if split == "train"
    )
    sample = _sample(pairs, config.vocabulary.sample, seed)
    if not sample:
        raise PrepareError(_nothing_left("train", drops))
    report(f"prepare: training the vocabulary on {len(sample):,} pairs")
    vocabularies = vocabulary.train_pair(sample, config.vocabulary)
    report(f"prepare: the vocabulary has {_sizes(vocabularies)}")
    return vocabularies, len(sample)


def _sizes(vocabularies: Vocabularies) -> str:
    if vocabularies.shared:
        return f"{vocabularies.src.size:,} types for both sides"
    return f"{vocabularies.src.size:,} source and {vocabularies.tgt.size:,} target types"


def _sample(pairs: Iterator[Pair], size: int, seed: int) -> list[tuple[str, str]]:
    """At most `size` pairs, each with the same chance (Vitter 1985's reservoir, algorithm R)."""
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
    sample = [(pair.src, pair.tgt) for pair in itertools.islice(pairs, size)]
    seen = len(sample)
    while chunk := list(itertools.islice(pairs, CHUNK)):
        seen_by_then = seen + 1 + np.arange(len(chunk))
        places = (random.random(len(chunk)) * seen_by_then).astype(np.int64)
        for number in np.flatnonzero(places < size):
            sample[places[number]] = (chunk[number].src, chunk[number].tgt)
        seen += len(chunk)
    return sample


def _require_pairs(split: str, accounts: list[dict[str, Any]]) -> None:
    if any(account["kept"] for account in accounts):
        return
    drops = Drops()
    for account in accounts:
        for reason, count in account["dropped"].items():
            drops.counts[reason] = drops.counts.get(reason, 0) + count
        drops.examples.extend(Example(**example) for example in account["examples"])
    raise PrepareError(_nothing_left(split, drops))


def _nothing_left(split: str, drops: Drops) -> str:
    if not drops.total:
        return f"data.{split}: there are no pairs: the corpus is empty"
    return (
        f"data.{split}: none of the {drops.total:,} pairs read is left: {drops.describe()}; "
        f"the first: {drops.examples[0]}"
    )
