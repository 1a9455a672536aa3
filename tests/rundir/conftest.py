from collections.abc import Callable

import pytest

from flaxformer_mt.config import TrainingConfig
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.layout import RunDirectory, create
from tests.rundir.snapshots import KEEP_ALL


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return create(tmp_path / "run", {"name": "test"}, ["train"])


@pytest.fixture
def saved(run) -> Callable[..., None]:
    """Saves snapshots into the run and closes."""

    def save(*snapshots: Snapshot, settings: TrainingConfig = KEEP_ALL) -> None:
        with Checkpoints(run.checkpoints, settings) as checkpoints:
            for each in snapshots:
                assert checkpoints.save(each)

    return save
