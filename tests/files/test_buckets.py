"""What appears in a bucket is seen, whichever room looks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.rundir.buckets import bucket, gcs, needs_clients
from tests.rundir.snapshots import ENVIRONMENT

__all__ = ["bucket", "gcs"]
pytestmark = needs_clients

LOOK = {
    "corpora": """
from flaxformer_mt.data.corpus.paths import locate
found = lambda: sorted(path.name for path in locate("gs://{bucket}/some", "").iterdir())
""",
    "runs": """
from flaxformer_mt.rundir.paths import as_path
found = lambda: sorted(path.name for path in as_path("gs://{bucket}/some").iterdir())
""",
}
TWICE = """
print(found(), flush=True)
input()
print(found(), flush=True)
"""


@pytest.mark.parametrize("room", LOOK)
def test_what_another_process_wrote_is_seen(gcs, bucket, room):
    # A process of its own: the first path made in one decides for all.
    gcs.put(f"{bucket}/some/one", b"1")
    code = LOOK[room].format(bucket=bucket) + TWICE
    looker = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT, **gcs.environment()},
    )
    assert looker.stdin is not None and looker.stdout is not None
    assert looker.stdout.readline() == "['one']\n"
    gcs.put(f"{bucket}/some/two", b"2")
    output, _ = looker.communicate("\n", timeout=60)
    assert output == "['one', 'two']\n"
