"""A folder of StableHLO programs as its own `translate.py` runs it, for comparison."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float


class Runtime:
    """The `Model` that the folder's own copy of the runner defines; ids are this program's."""

    def __init__(self, folder: Path) -> None:
        self.name = f"StableHLO in JAX {jax.__version__}"
        # Leaves no compiled file in the folder, as an import would.
        self._model = runpy.run_path(str(folder / "translate.py"))["Model"](folder)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """As in parity.Runtime."""
        return self._model.encode(lines)

    def greedy(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
        """As in parity.Runtime."""
        return self._model.greedy(sources, limits)

    def log_probs(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[Float[np.ndarray, " tokens"]]:
        """As in parity.Runtime."""
        with jax.default_matmul_precision("highest"):
            return self._model.log_probs(sources, targets)
