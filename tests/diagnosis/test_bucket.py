"""A place for runs in a bucket."""

from __future__ import annotations

from typing import Any

import pytest

from flaxformer_mt.diagnosis import storage
from flaxformer_mt.parallel import ALONE
from flaxformer_mt.rundir.paths import as_path
from tests.rundir.buckets import bucket, gcs, needs_clients

__all__ = ["bucket", "gcs"]
pytestmark = [needs_clients, pytest.mark.extended]


def test_a_checkpoint_goes_there_and_back_and_leaves_nothing(gcs: Any, bucket: str) -> None:
    place = as_path(f"gs://{bucket}/runs")
    (finding,) = storage.check_checkpoint(place, ALONE)
    assert finding.state == "ok", finding
    assert not [name for name in gcs.objects if "doctor" in name]
    assert not list(storage.check_space(place, None))
