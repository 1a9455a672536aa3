"""What became of every pair of a corpus: read, kept, dropped and why, with places to look at."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from flaxformer_mt.data.corpus import Drops, Example
from flaxformer_mt.data.prepare.encode import EXAMPLES, Chunk, Encoded
from flaxformer_mt.data.prepare.manifest import PrepareError

Account = dict[str, Any]
"""As it stands in the manifest: key, split, read, kept, dropped (a count for each reason, in the
order in which they occurred), examples."""


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


def nothing_left(split: str, drops: Drops) -> PrepareError:
    if not drops.total:
        return PrepareError(f"data.{split}: there are no pairs: the corpus is empty")
    return PrepareError(
        f"data.{split}: none of the {drops.total:,} pairs read is left: {drops.describe()}; "
        f"the first: {drops.examples[0]}"
    )
