"""Starting a new run from another run's weights."""

from __future__ import annotations

from typing import Any

import jax

from flaxformer_mt.errors import UserError
from flaxformer_mt.training.optimizer import path_name


class StartError(UserError):
    """Weights that do not fit the new run's model."""


def check_same_form(params: Any, abstract: Any, origin: str) -> None:
    """Raises StartError naming every parameter whose shape differs or that one side lacks."""
    have = {path_name(p): leaf.shape for p, leaf in jax.tree_util.tree_leaves_with_path(params)}
    want = {path_name(p): leaf.shape for p, leaf in jax.tree_util.tree_leaves_with_path(abstract)}
    problems = [
        f"{name}: {have.get(name, 'absent')} there, {want.get(name, 'absent')} here"
        for name in sorted({*have, *want})
        if have.get(name) != want.get(name)
    ]
    if problems:
        shown = "; ".join(problems[:5]) + (
            f"; and {len(problems) - 5} more" if problems[5:] else ""
        )
        raise StartError(f"{origin}: its weights do not fit this model: {shown}")
