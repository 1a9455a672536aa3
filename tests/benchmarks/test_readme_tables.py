"""The README and the pages of results show what the result files say, and the files are whole.

How a table and a section look, their check against the recorded results owns.
"""

import hashlib
import lzma

from benchmarks import RESULTS, readme_tables
from benchmarks.readme_tables import main, render_page, render_table
from flaxformer_mt.reproduction.result_file import read_results


def test_readme_and_page_show_the_recorded_results_whose_outputs_have_their_digests():
    assert main(["--check"]) == 0, "run `python -m benchmarks.readme_tables`"
    assert render_table(read_results(RESULTS)) in readme_tables.README.read_text(encoding="utf-8")
    assert render_page(read_results(RESULTS)) == readme_tables.PAGE.read_text(encoding="utf-8")
    results = [*read_results(RESULTS), *read_results(RESULTS / "reproduction")]
    assert results
    named = {file: digest for result in results for file, digest in result.hypotheses.items()}
    stored = {
        path.name: hashlib.sha256(lzma.decompress(path.read_bytes())).hexdigest()
        for path in RESULTS.rglob("*.hyp.xz")
    }
    assert stored == named
