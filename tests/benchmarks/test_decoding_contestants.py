"""What the contestants of `decoding_speed` share."""

import concurrent.futures
import time
from pathlib import Path

from benchmarks.decoding_contestants import made_once


def test_contestants_that_start_together_see_a_whole_folder(tmp_path):
    folder = tmp_path / "new" / "model"
    fills = []

    def fill(place: Path) -> None:
        fills.append(place)
        (place / "model.bin").write_text("half")
        time.sleep(0.05)
        (place / "model.bin").write_text("half and half")

    def contestant(_: int) -> str:
        made_once(folder, fill)
        return (folder / "model.bin").read_text()

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert set(threads.map(contestant, range(4))) == {"half and half"}
    assert len(fills) == 1
