"""The README and the pages of results show what the result files say, and the files are whole.

How a table and a section look, their check against the recorded results owns.
"""

import hashlib
import lzma

import pytest

from benchmarks import RESULTS, readme_tables
from benchmarks.readme_tables import (
    BEGIN,
    END,
    main,
    render_page,
    render_table,
    replace_between_markers,
)
from flaxformer_mt.reproduction.result_file import read_results


def test_readme_and_page_show_the_recorded_results_whose_outputs_have_their_digests():
    assert main(["--check"]) == 0, "run `python -m benchmarks.readme_tables`"
    readme = readme_tables.README.read_text(encoding="utf-8")
    assert render_table(read_results(RESULTS)) in readme
    assert render_page(read_results(RESULTS)) == readme_tables.PAGE.read_text(encoding="utf-8")
    results = [*read_results(RESULTS), *read_results(RESULTS / "reproduction")]
    assert results
    named = {file: digest for result in results for file, digest in result.hypotheses.items()}
    kept = {
        path.name: hashlib.sha256(lzma.decompress(path.read_bytes())).hexdigest()
        for path in RESULTS.rglob("*.hyp.xz")
    }
    assert kept == named


def test_the_command_writes_what_its_check_finds_stale(tmp_path, capsys):
    readme, page, deviations = (tmp_path / name for name in ("README.md", "page.md", "dev.md"))
    for path in (readme, deviations):
        path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    options = ["--readme", str(readme), "--page", str(page), "--results", str(tmp_path)]
    options += ["--deviations", str(deviations)]
    assert main([*options, "--check"]) == 1
    assert "run `python -m benchmarks.readme_tables`" in capsys.readouterr().err
    assert "old" in readme.read_text() and not page.exists()
    assert main(options) == 0
    assert readme.read_text().startswith(f"before\n{BEGIN}\n\n")
    assert readme.read_text().endswith(f"\n\n{END}\nafter\n")
    for path in (readme, page):
        whole = path.read_text()
        assert "old" not in whole
        path.write_text(whole.replace("esults", "umours"))
        assert main([*options, "--check"]) == 1
        assert str(path) in capsys.readouterr().err
        path.write_text(whole)
    assert main([*options, "--check"]) == 0
    for wrong in ("", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"):
        with pytest.raises(ValueError, match="once each"):
            replace_between_markers(wrong, "new")
    (tmp_path / "bad.json").write_text("{}")
    assert main(options) == 1
    assert "bad.json: the result lacks: command" in capsys.readouterr().err
