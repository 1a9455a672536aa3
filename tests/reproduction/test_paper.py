"""The paper's values: complete, in agreement with the configs, and written down once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flaxformer_mt.config import load_config
from flaxformer_mt.config.load import find_config
from flaxformer_mt.reproduction.paper import ROWS, RowError, row_of, rows_of

ROOT = Path(__file__).parents[2]
IDS = [row.label for row in ROWS]


@pytest.mark.parametrize("row", ROWS, ids=IDS)
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


def test_the_config_s_own_words_agree_with_the_values():
    """configs/table3.py says what to expect: perplexity and BLEU, in the order of its rows."""
    text = find_config("table3").read_text(encoding="utf-8").split('"""')[1]
    listed = re.findall(r"^`.* \d\d\.\d$", text, re.MULTILINE)
    names = [name for line in listed for name in re.findall(r"`(\w+)`", line)]
    scores = [pair for line in listed for pair in re.findall(r"(\d\.\d\d) (\d\d\.\d)", line)]
    assert len(names) == len(scores) == 20
    for name, (perplexity, bleu) in zip(names, scores, strict=True):
        (row,) = rows_of("table3", [name])
        assert (row.values["perplexity"], row.values["bleu"]) == (float(perplexity), float(bleu))


@pytest.mark.parametrize(
    ("config", "size", "bleu"),
    [("wmt14_en_de", "base", 27.3), ("wmt14_en_de", "big", 28.4), ("wmt14_en_fr", "base", 38.1),
     ("wmt14_en_fr", "big", 41.8)],
)  # fmt: skip
def test_so_do_those_of_table_2(config, size, bleu):
    row = row_of(f"table2/{config.removeprefix('wmt14_')}_{size}")
    assert row.values["bleu"] == bleu and row.spec == f"{config}:{size}"
    words = find_config(config).read_text(encoding="utf-8").split(f"`{size}`")[1]
    assert f"BLEU {bleu}" in words.split("\n`")[0]


def test_the_paper_s_flops_are_time_times_what_its_gpus_sustain():
    """12 hours and 3.5 days on 8 P100, which it takes to sustain 9.5 TFLOP/s (its footnote 5)."""
    for name, hours in (("en_de_base", 12), ("en_de_big", 84)):
        flops = row_of(f"table2/{name}").values["flops"]
        assert flops == pytest.approx(hours * 3600 * 8 * 9.5e12, rel=0.02)


def test_rows_come_in_the_paper_s_order_and_unknown_ones_are_named():
    assert [row.name for row in rows_of("table3", ["big", "a_h1"])] == ["a_h1", "big"]
    assert len(rows_of("table3")) == 20 and len(rows_of("table2")) == 4
    with pytest.raises(RowError, match="table3 has no row 'c_n2'; did you mean c_N2?"):
        rows_of("table3", ["c_n2"])
    with pytest.raises(RowError, match="there are wsj_only, semi_supervised"):
        rows_of("table4", ["???"])
