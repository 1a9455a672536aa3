"""The figures of `benchmarks.serving.small`."""

import pytest

from benchmarks.serving.load import Load
from benchmarks.serving.small import figures, joined


def load(*milliseconds):
    return Load(seconds=1.0, milliseconds=tuple(sorted(milliseconds)), refused=0)


def test_of_the_minimal_servers_forms_the_better_of_each_figure_counts():
    alone = {
        "ours": [load(30.0)],
        "ours_ctranslate2": [load(20.0)],
        "ctranslate2_1_at_once": [load(10.0)],
        "ctranslate2_2_at_once": [load(20.0)],
    }
    together = {
        **{name: [load(*range(100))] for name in alone},
        "ctranslate2_2_at_once": [load(*range(200))],
    }
    metrics = figures(alone, together)
    assert metrics["p50_ms"] == 30.0 and metrics["p50_ms_with_runtime_ctranslate2"] == 20.0
    assert metrics["p50_ms_ctranslate2"] == 10.0
    assert metrics["p99_ms_16_clients_ctranslate2"] == 99.0, "of one at a time"
    assert metrics["sentences_per_second_ctranslate2"] == 200.0, "of two at a time"


def test_rounds_are_one_list_of_times():
    both = joined([load(1.0, 4.0), load(2.0, 3.0)])
    assert both.milliseconds == (1.0, 2.0, 3.0, 4.0) and both.per_second == pytest.approx(2.0)
