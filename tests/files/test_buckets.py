"""What appears in a bucket is seen."""

import subprocess
import sys

from tests.conftest import environment
from tests.rundir.buckets import needs_clients

pytestmark = needs_clients

LOOK = """
import sys
from flaxformer_mt.files.reading import bucket_path
for again in range(2):
    print(sorted(path.name for path in bucket_path(sys.argv[1]).iterdir()), flush=True)
    input()
"""


def test_what_another_process_wrote_is_seen(gcs, bucket):
    # A process of its own: the first path made in one decides for all.
    gcs.put(f"{bucket}/some/one", b"1")
    looker = subprocess.Popen(
        [sys.executable, "-c", LOOK, f"gs://{bucket}/some"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(**gcs.environment()),
    )
    assert looker.stdout.readline() == "['one']\n"
    gcs.put(f"{bucket}/some/two", b"2")
    output, _ = looker.communicate("\n\n", timeout=60)
    assert output == "['one', 'two']\n"
