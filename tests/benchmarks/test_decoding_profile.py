"""What a trace is sorted into; the times themselves are the machine's."""

from __future__ import annotations

import collections

import jax
import jax.numpy as jnp
import pytest

from benchmarks.decoding_profile import by_kind, traced


@pytest.mark.extended
def test_nothing_is_left_out_and_products_are_found() -> None:
    a = jnp.ones((512, 512))
    run = jax.jit(lambda x: jnp.sort(jnp.tanh(x @ x), axis=0))
    found = traced(lambda: run(a).block_until_ready())
    kinds = by_kind(found)
    assert kinds["products"] > 0 and kinds["other"] > 0
    assert sum(kinds.values()) == pytest.approx(sum(found.values()))


def test_kinds_by_name() -> None:
    names = ["ynn_fusion", "dot_general", "copy_dynamic-update-slice_fusion", "sort"]
    found = by_kind(collections.Counter({name: 2.0**n for n, name in enumerate(names)}))
    assert found == {"products": 3.0, "cache": 4.0, "other": 8.0}
