from collections.abc import Callable

import pytest

from flaxformer_mt.config import TrainingConfig
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.layout import RunDirectory, create


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return create(tmp_path / "run", {"name": "test"}, ["train"])


@pytest.fixture
def saved(run) -> Callable[..., None]:
    """Saves snapshots into the run and closes."""

    def save(*snapshots: Snapshot, policy: TrainingConfig | None = None) -> None:
        with Checkpoints(
            run.checkpoints, policy or TrainingConfig(keep_for_average=20)
        ) as checkpoints:
            for each in snapshots:
                assert checkpoints.save(each)

    return save
