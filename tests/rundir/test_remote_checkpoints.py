"""Checkpoints in a bucket, written and read there by Orbax and TensorStore themselves."""

import pytest

from flaxformer_mt.config import TrainingConfig
from flaxformer_mt.rundir import CheckpointError
from flaxformer_mt.rundir.checkpoint_choice import list_steps
from flaxformer_mt.rundir.checkpoints import Checkpoints
from flaxformer_mt.rundir.paths import COMMITTED
from flaxformer_mt.rundir.weights import load_params
from tests.rundir.buckets import needs_clients
from tests.rundir.snapshots import KEEP_ALL, abstract, assert_same, save, snapshot

pytestmark = needs_clients
FORM = abstract(snapshot(1))


def test_saved_is_restored_bit_for_bit_and_old_steps_go(gcs, bucket, remote):
    policy = TrainingConfig(keep_latest=1, keep_best=1, keep_for_average=0)
    order: list[str] = []
    with Checkpoints(
        remote.checkpoints, policy, before_save=lambda: order.append("before")
    ) as checkpoints:
        for step, bleu in ((1, 9.0), (2, 5.0), (3, 6.0)):
            assert checkpoints.save(snapshot(step, bleu=bleu))
        assert not checkpoints.save(snapshot(3))
        assert_same(checkpoints.restore(*FORM), snapshot(3, bleu=6.0))
    assert order == ["before"] * 3
    assert list_steps(remote.checkpoints) == [1, 3]
    assert not gcs.names(f"{bucket}/runs/one/checkpoints/2/")


def test_what_is_not_committed_is_no_step_and_is_removed(gcs, bucket, remote):
    """As of a save that was killed; one that fails is an error, and the next one is new."""
    save(remote, snapshot(1), snapshot(2))
    del gcs.objects[f"{bucket}/runs/one/checkpoints/2/{COMMITTED}"]
    assert list_steps(remote.checkpoints) == [1]
    assert load_params(remote, "latest")
    with Checkpoints(remote.checkpoints, KEEP_ALL) as checkpoints:
        assert checkpoints.steps() == [1]
        assert not gcs.names(f"{bucket}/runs/one/checkpoints/2/")
        gcs.fault = lambda method, name: 403 if method == "PUT" and "/2/" in name else None
        with pytest.raises(CheckpointError, match="earlier ones are intact"):
            checkpoints.save(snapshot(2))
            checkpoints.wait()
        gcs.allow()
        assert list_steps(remote.checkpoints) == [1]
        assert checkpoints.save(snapshot(2))
    assert list_steps(remote.checkpoints) == [1, 2]


@pytest.mark.parametrize("item", ["params", "meta"])
def test_a_bucket_that_does_not_answer_is_not_damage(gcs, bucket, remote, item):
    save(remote, snapshot(1), snapshot(2))
    place = f"{bucket}/runs/one/checkpoints/2/"
    refused = (place + item, place + COMMITTED)
    with Checkpoints(remote.checkpoints, KEEP_ALL) as checkpoints:
        gcs.fault = lambda method, name: 403 if name.startswith(refused) else None
        with pytest.raises(CheckpointError, match=f"checkpoints/2: {item} cannot be read"):
            checkpoints.restore(*FORM)
        gcs.allow()
        assert checkpoints.steps() == [1, 2]
        assert_same(checkpoints.restore(*FORM), snapshot(2))
