"""The corpora through the workers into the store, every pair accounted for."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flaxformer_mt.config.schema import DataConfig
from flaxformer_mt.data import corpus as corpora
from flaxformer_mt.data.corpus import Drops, Example
from flaxformer_mt.data.prepare.encode import EXAMPLES, Chunk, Encoded, Range
from flaxformer_mt.data.prepare.filters import DUPLICATE, Seen
from flaxformer_mt.data.prepare.manifest import VALID_TEXT, PrepareError, Report, named_corpora
from flaxformer_mt.data.prepare.sample import nothing_left, record_bytes, share_of, text_bytes
from flaxformer_mt.data.prepare.workers import Workers
from flaxformer_mt.data.store_writer import StoreWriter
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.progress import Meter

Account = dict[str, Any]
"""What became of a corpus, as it stands in the manifest: key, split, read, kept, dropped (a count
for each reason, in the order in which they occurred), examples."""


def encode_corpora(
    directory: Path,
    config: DataConfig,
    vocabularies: Vocabularies,
    workers: Workers,
    *,
    records: Sequence[int] = (),
    report: Report,
    bar: bool = False,
) -> tuple[str, list[Account]]:
    """Writes the store and the validation text into an empty folder; its digest and accounts.

    `records` are how many each corpus has, as far as that is known.
    """
    seen, accounts = Seen(), list[Account]()
    largest = max(vocabularies.src.size, vocabularies.tgt.size)
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(
            StoreWriter(directory, vocabulary_size=largest, vocabulary_digest=vocabularies.digest)
        )
        texts = [stack.enter_context(open(directory / name, "wb")) for name in VALID_TEXT]
        for (split, key, corpus), count in itertools.zip_longest(named_corpora(config), records):
            source = corpora.open_source(corpus, config.folder, key)
            writer.begin_corpus(split, corpus.name, corpus.weight)
            account = new_account(split, key)
            accounts.append(account)
            size, total = (len, count) if count else (record_bytes, text_bytes(source))
            share = share_of(total)
            with Meter(f"prepare: {key}", report, unit="pairs", share=share, terminal=bar) as meter:
                for chunk, encoded in workers.encode(Range(split, source).chunks()):
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
        code = codes[number]
        if code == 0:
            continue
        reason = fates.reasons[code]
        before = account["dropped"].get(reason, 0)
        account["dropped"][reason] = before + int(counts[number])
        for place in np.flatnonzero(fates.codes == code)[: max(0, EXAMPLES - before)].tolist():
            file, detail = fates.examples[place]
            example = Example(file, chunk.first_line + place, reason, detail)
            account["examples"].append(vars(example))
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
        drops = Drops()
        for account in of_split:
            for reason, count in account["dropped"].items():
                drops.counts[reason] = drops.counts.get(reason, 0) + count
            drops.examples += [Example(**example) for example in account["examples"]]
        raise nothing_left(split, drops)


def _drop_seen(seen: Seen, chunk: Chunk, encoded: Encoded) -> None:
    new = seen.add(encoded.hashes)
    example = (chunk.source.label, "the same pair came before")
    encoded.fates.drop(encoded.fates.kept()[~new], DUPLICATE, itertools.repeat(example))
    encoded.keep(new)
