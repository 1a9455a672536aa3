"""What the contestants of `decoding_speed` share."""

import concurrent.futures
import time
from pathlib import Path

from benchmarks.decoding_contestants import made_once, quickest


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


def test_the_quickest_way_is_found_for_each_size():
    def way(name, slow_beam):
        def decode(beam, batch):
            calls.append((name, beam))
            time.sleep(0.05 * (beam == slow_beam))
            return beam

        return decode

    calls = []
    decode = quickest([way("a", 1), way("b", 4)])
    for beam, best in ((1, "b"), (4, "a")):
        assert decode(beam, 32) == beam
        calls.clear()
        assert decode(beam, 32) == beam and calls == [(best, beam)]
