import functools
from collections.abc import Callable

import pytest

from flaxformer_mt.rundir.layout import RunDirectory, create
from tests.rundir.snapshots import save


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return create(tmp_path / "run", {"name": "test"}, ["train"])


@pytest.fixture
def saved(run) -> Callable[..., None]:
    """Saves snapshots into the run and closes."""
    return functools.partial(save, run)
