"""How long rows take here: steps that are timed, and hours that follow from them."""

import dataclasses
import time

import pytest

from flaxformer_mt.reproduction.planned import planned_flops
from flaxformer_mt.reproduction.rate import TrainingRate, measured_rate
from flaxformer_mt.reproduction.run_rows import listing
from tests.reproduction.made_up import experiment

SIZES = ("model.d_model=32", "model.d_ff=64", "model.d_k=4", "model.d_v=4")
SMALL = (*SIZES, "data.vocabulary.size=300", "data.batch.tokens=800")


def test_a_pace_is_measured_in_seconds():
    begin = time.perf_counter()
    rate = measured_rate(experiment("table3/base", overrides=SMALL).config)
    assert 1.0 <= rate.spent <= time.perf_counter() - begin < 60
    assert 1e6 < rate.flops < 1e15


def test_a_mesh_and_micro_batches_of_other_machines_are_left_out():
    changes = ("mesh.tensor=64", "training.optimizer.accumulation=4")
    assert measured_rate(experiment("table3/base", overrides=(*SMALL, *changes)).config).flops > 0


def test_padding_takes_time_too():
    config = experiment("table3/base", scale=1.0).config
    seconds = TrainingRate(flops=planned_flops(config), spent=0).seconds(config)
    assert seconds == pytest.approx(1 / 0.8392)


def test_the_list_has_hours_of_each_row_and_of_those_still_to_do(tmp_path):
    rows = [experiment(f"table3/{name}", scale=1.0) for name in ("base", "c_N2")]
    flops = planned_flops(rows[0].config)
    rate = TrainingRate(flops=flops / (3600 * 1234), spent=6.4, row="table3/base")
    header, base, *_, said = listing(rows, tmp_path, rate=rate).splitlines()
    assert header.endswith("hours here") and base.split()[-1] == "1,500"
    assert said.startswith("an estimate for this machine: 2,300 hours still to do, at ")
    assert "(a few steps of table3/base, measured now in 6 s)" in said


def test_without_a_pace_there_are_no_hours(tmp_path):
    assert "hours" not in listing([experiment()], tmp_path)


@pytest.mark.parametrize(
    ("hours", "shown"), [(0.0012, "0.0012"), (0.351, "0.35"), (4.24, "4.2"), (1234.0, "1,200")]
)
def test_hours_have_two_digits(tmp_path, hours, shown):
    row = experiment("table3/base", scale=1.0)
    whole = TrainingRate(flops=1.0, spent=0)
    rate = dataclasses.replace(whole, flops=whole.seconds(row.config) / 3600 / hours)
    assert listing([row], tmp_path, rate=rate).splitlines()[1].split()[-1] == shown
