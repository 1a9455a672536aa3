"""The paper's rows: complete and in agreement with the configs; the page shows their values."""

from __future__ import annotations

import pytest

from flaxformer_mt.config import load_config
from flaxformer_mt.reproduction.paper import ROWS, RowError, rows_of


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.label)
def test_each_row_has_a_config_that_averages_and_tests_as_the_paper_did(row):
    config = load_config(row.spec)
    assert config.training.keep_for_average == row.average
    assert {corpus.name for corpus in config.data.train} == set(row.pairs)
    assert row.test == "valid" or row.test in {corpus.name for corpus in config.data.test}
    load_config(row.base)


def test_every_variant_of_the_tables_configs_is_a_row():
    listed = {}
    for name in ("table3", "wmt14_en_de", "wmt14_en_fr", "parsing"):
        with pytest.raises(ValueError, match="valid variants") as error:
            load_config(f"{name}:?")
        variants = str(error.value).rpartition("variants: ")[2].split(", ")
        listed[name] = {f"{name}:{v}" for v in variants if "tfds" not in v and v != "craft"}
    assert set().union(*listed.values()) == {row.spec for row in ROWS}


def test_rows_come_in_the_paper_s_order_and_unknown_ones_are_named():
    assert [row.name for row in rows_of("table3", ["big", "a_h1"])] == ["a_h1", "big"]
    assert len(rows_of("table3")) == 20 and len(rows_of("table2")) == 4
    with pytest.raises(RowError, match="table3 has no row 'c_n2'; did you mean c_N2?"):
        rows_of("table3", ["c_n2"])
    with pytest.raises(RowError, match="there are wsj_only, semi_supervised"):
        rows_of("table4", ["???"])
