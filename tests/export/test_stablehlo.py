"""Models as StableHLO programs: the same outputs at any sizes, with nothing of this package."""

from __future__ import annotations

from pathlib import Path

import jax
import pytest

from flaxformer_mt.export import stablehlo
from flaxformer_mt.export.parity import Reference, compare
from tests.export.translators import LINES, translator

pytest.importorskip("flatbuffers", reason="needs the [export] extra")

FORMS = [
    {"attention_bias": True, "logits_bias": True, "activation": "silu"},
    {"norm": "pre", "positions": "learned", "tie": "none", "scan_layers": True, "d_k": 3},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_it_is_the_same(form, tmp_path: Path) -> None:
    made = translator(**form)
    stablehlo.write(made, tmp_path)
    runtime = stablehlo.Runtime(tmp_path)
    parity = compare(Reference(made), runtime, LINES, "lines", bound=1e-4)
    assert parity.agrees and parity.same_output == len(LINES), parity
    assert not (tmp_path / "__pycache__").exists()

    for name in ("encoder", "decode_step"):
        program = jax.export.deserialize(bytearray((tmp_path / f"{name}.jaxexport").read_bytes()))
        assert program.platforms == ("cpu", "cuda", "tpu")
