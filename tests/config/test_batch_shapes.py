"""How many batch shapes a training repays, and when that is settled."""

import pytest

import flaxformer_mt as fm
from flaxformer_mt.api.settings import SettingsRequest
from flaxformer_mt.config import ConfigError, read_config, to_dict
from flaxformer_mt.config.batch_shapes import (
    FEWEST_SHAPES,
    MOST_SHAPES,
    TrainingWork,
    repaid_shapes,
)
from flaxformer_mt.rundir.layout import RunDirectory, create

CHOSEN = "data.batch.max_shapes=0"


def shapes(*settings: str, spec: str = "quickstart") -> int:
    return read_config(spec, [CHOSEN, *settings]).data.batch.max_shapes


def test_a_longer_training_repays_more_shapes():
    chosen = [shapes(f"training.steps={steps}") for steps in (1, 100, 1300, 5000, 100_000)]
    assert chosen == sorted(chosen) and chosen[0] == FEWEST_SHAPES and chosen[-1] == MOST_SHAPES
    assert FEWEST_SHAPES < chosen[2] < chosen[3] < MOST_SHAPES


def test_a_larger_model_repays_more_shapes():
    # Compiling takes about as long, and a step longer.
    assert shapes("model.d_ff=8192") > shapes("model.d_ff=256")


@pytest.mark.parametrize("steps", [300, 1300, 4000])
def test_four_times_the_steps_repay_twice_the_shapes(steps):
    config = read_config("quickstart", [f"training.steps={steps}"])
    chosen = repaid_shapes(TrainingWork.of(config))
    # Padding falls with the shapes and compiling grows with them: both costs double.
    four_times = read_config("quickstart", [f"training.steps={4 * steps}"])
    longer = repaid_shapes(TrainingWork.of(four_times))
    assert abs(longer - 2 * chosen) <= 1


def test_a_resumed_run_keeps_its_shapes():
    recorded = read_config("quickstart", [CHOSEN])
    longer = read_config("quickstart", [CHOSEN, "training.steps=90000"], recorded=recorded)
    assert longer.data.batch.max_shapes == recorded.data.batch.max_shapes < MOST_SHAPES


def test_a_short_run_from_another_gets_fewer_shapes(tmp_path):
    source = read_config("quickstart", ["training.steps=20000", "data.batch.max_shapes=12"])
    create(tmp_path / "source", to_dict(source), ["train"])

    def settled(*overrides: str) -> int:
        request = SettingsRequest(
            RunDirectory(tmp_path / "new"), None, overrides, str(tmp_path / "source")
        )
        return request.settled().data.batch.max_shapes

    assert settled("training.steps=100") == FEWEST_SHAPES
    assert settled() == 12  # at most the other run's
    assert settled("training.steps=100", "data.batch.max_shapes=5") == 5
    assert settled("training.steps=100", "data.batch.max_shapes=12") == 12


def test_a_run_that_exists_keeps_its_shapes_without_a_config_file(tmp_path):
    source = read_config("quickstart", ["data.batch.max_shapes=5"])
    create(tmp_path / "run", to_dict(source), ["train"])
    request = SettingsRequest(RunDirectory(tmp_path / "run"), None, [CHOSEN])
    assert request.settled().data.batch.max_shapes == 5
    loaded = fm.load_config(tmp_path / "run", {"data.batch.max_shapes": 0})
    assert loaded.data.batch.max_shapes == 5


def test_less_than_none_is_refused():
    with pytest.raises(ConfigError, match="max_shapes"):
        fm.load_config("quickstart", {"data.batch.max_shapes": -1})
