"""A place in the stream of training batches: two integers, whatever the number of machines."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, order=True)
class Position:
    """Batch `index`, from 0, of epoch `epoch`, from 0; it names that batch as well."""

    epoch: int = 0
    index: int = 0
