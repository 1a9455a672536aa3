"""A place in the stream of training batches: three integers, whatever the number of machines."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, order=True)
class Position:
    """Batch `index` of `window` of `epoch`, all counted from 0; it names that batch as well."""

    epoch: int = 0
    window: int = 0
    index: int = 0
