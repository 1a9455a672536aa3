"""A corpus without defects, and changes to its settings."""

from __future__ import annotations

import dataclasses
from typing import Any

from flaxformer_mt.config.schema import DataConfig

GOOD = [
    (f"the {a} sees {n} {b} .", f"{A} sieht {m} {B} .")
    for a, A in (("cat", "die Katze"), ("dog", "der Hund"), ("woman", "die Frau"))
    for n, m in (("one", "eine"), ("no", "keine"))
    for b, B in (("house", "Hütte"), ("street", "Straße"), ("lamp", "Lampe"), ("door", "Tür"))
]


def with_(config: DataConfig, **changes: Any) -> DataConfig:
    return dataclasses.replace(config, **changes)
