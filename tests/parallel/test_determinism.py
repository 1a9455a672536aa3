"""The flag for GPUs, which must be set before they are in use."""

import os

import jax
import pytest
from jax._src import xla_bridge

from flaxformer_mt.errors import UserError
from flaxformer_mt.parallel import process_settings
from flaxformer_mt.parallel.process_settings import make_deterministic


def test_the_flag_joins_the_users_own_before_a_gpu_is_in_use(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp/x")
    assert jax.device_count()
    make_deterministic()  # without a GPU it may come at any time
    assert os.environ["XLA_FLAGS"] == "--xla_dump_to=/tmp/x"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(UserError, match="is too late"):
        make_deterministic()
    monkeypatch.setattr(xla_bridge, "backends_are_initialized", lambda: False)
    for _ in range(2):
        make_deterministic()
    assert os.environ["XLA_FLAGS"] == f"--xla_dump_to=/tmp/x {process_settings.FLAG}"
