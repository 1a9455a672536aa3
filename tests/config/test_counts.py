"""Parameters and cost of the rows of Tables 2 and 4, by formula and counted in the program.

Those of Table 3 are in test_table3.py.
"""

from __future__ import annotations

import dataclasses

import pytest

from flaxformer_mt.config import load_config
from flaxformer_mt.model.flops import shape_flops
from flaxformer_mt.model.parameters import count_by_formula
from flaxformer_mt.reproduction.paper import ROWS
from tests.config.tracing import traced

# English to German about 37,000 types for both languages, English to French 32,000 (section 5.1);
# parsing 16,000 or 32,000 (section 6.3) on the source's side, some tags and brackets on the other.
TYPES = {
    "wmt14_en_de": (37_000, 37_000),
    "wmt14_en_fr": (32_000, 32_000),
    "wsj_only": (16_000, 128),
    "semi_supervised": (32_000, 128),
    "craft": (6_000, 128),
}
SPECS = sorted({row.spec for row in ROWS if row.table != "table3"} | {"parsing:craft"})


def test_no_row_is_left_out():
    assert len(SPECS) == 7
    assert all(any(name in spec for name in TYPES) for spec in SPECS)


@pytest.mark.parametrize("spec", SPECS)
def test_parameters_and_flops_by_formula_are_those_of_the_program(spec):
    (types,) = (sizes for name, sizes in TYPES.items() if name in spec)
    # Neither depends on what is dropped out.
    model = dataclasses.replace(load_config(spec).model, dropout=0.0)
    counted, flops = traced(model, *types)
    formula = count_by_formula(model, *types)
    assert counted == {part: number for part, number in formula.items() if number}
    # Backward costs twice the forward pass. The softmax is of the target's types alone.
    assert shape_flops(model, types[1], rows=2, src_length=3, tgt_length=3) == 3 * flops
