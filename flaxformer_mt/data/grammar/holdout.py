"""The held-out rule: which (lemma, construction) combinations training never shows.

For each lemma, the constructions that show the same word form make a family. About a quarter of a
family (by a stable digest, never all of it) is held out, three quarters of that for the test split
and the rest for validation. Training therefore shows every word form and every construction, and
asks for their combination only in the other splits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")

HELD_OUT_SHARE = 0.25
TEST_SHARE_OF_HELD_OUT = 0.75


def _digest(*parts: str) -> float:
    """A number in [0, 1) that depends on the text alone: no process, version or seed changes it."""
    raw = hashlib.blake2b("|".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(raw, "big") / 2**64


def assign(lemma: str, constructions: Iterable[tuple[str, str]]) -> dict[str, Split]:
    """The split of each construction of a lemma, given (construction, word form shown) pairs.

    "train" is where training may use it; every split uses those as well.
    """
    families: dict[str, list[str]] = {}
    for construction, form in constructions:
        families.setdefault(form, []).append(construction)
    split: dict[str, Split] = {}
    for form, family in families.items():
        held = int(len(family) * HELD_OUT_SHARE + _digest(lemma, form))
        ranked = sorted(family, key=lambda construction: _digest(lemma, construction))
        for rank, construction in enumerate(ranked):
            if rank < min(held, len(family) - 1):
                test = _digest(lemma, construction, "test") < TEST_SHARE_OF_HELD_OUT
                split[construction] = "test" if test else "valid"
            else:
                split[construction] = "train"
    return split
