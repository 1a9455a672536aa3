"""The recorded results are of the one form."""

from __future__ import annotations

import hashlib
import lzma

from benchmarks.result_file import RESULTS, read_results


def test_the_recorded_results_are_well_formed():
    results = [*read_results(), *read_results(RESULTS / "reproduction")]
    assert results
    named = {file: digest for result in results for file, digest in result.hypotheses.items()}
    kept = {
        path.name: hashlib.sha256(lzma.decompress(path.read_bytes())).hexdigest()
        for path in RESULTS.rglob("*.hyp.xz")
    }
    assert kept == named
