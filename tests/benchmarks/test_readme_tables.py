"""The README shows what the result files say."""

from __future__ import annotations

import pytest

from benchmarks import readme_tables
from benchmarks.readme_tables import (
    BEGIN,
    END,
    main,
    render,
    replace_between_markers,
    show_metric,
    show_seconds,
)
from benchmarks.result_file import Machine, Result, read_results

RESULT = Result(
    name="tiny",
    command="python -m benchmarks.tiny",
    config="multi30k:tiny",
    commit="0123456789abcdef0123456789abcdef01234567-dirty",
    machine=Machine(cores=2, memory_gib=23.6, accelerator="none"),
    versions={},
    seconds=5400.0,
    metrics={"bleu_tokenized_lc": 41.234, "target_tokens_per_second": 3512.7},
    signatures={"bleu_tokenized_lc": "nrefs:1|case:lc|tok:none"},
)


def test_readme_shows_the_recorded_results():
    readme = readme_tables.README.read_text(encoding="utf-8")
    expected = replace_between_markers(readme, render(read_results()))
    assert readme == expected, "run `python -m benchmarks.readme_tables`"


def test_a_row_says_what_where_and_how():
    table = render([RESULT])
    header, _, row, _, source = table.splitlines()
    assert header.count("|") == row.count("|")
    for part in ("`tiny`", "41.23", "3,513", "2 CPU cores, 24 GiB", "90 min"):
        assert part in row
    assert "benchmarks/results/tiny.json" in source
    assert "0123456789-dirty" in source
    assert "`python -m benchmarks.tiny`" in source
    # Outside the table, where its bars are harmless.
    assert "`nrefs:1|case:lc|tok:none`" in source


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("sacrebleu_13a", 38.0, "sacreBLEU (13a) 38.00"),
        ("parameters", 2600000, "parameters 2,600,000"),
        ("padding_share", 0.0312, "padding share 0.0312"),
        ("train_seconds", 7200.0, "training 2.0 h"),
        ("bad_updates", 0, "bad updates 0"),
    ],
)
def test_metrics_are_shown_in_their_own_way(name, value, shown):
    assert show_metric(name, value) == shown


def test_times_keep_two_or_three_digits():
    assert [show_seconds(s) for s in (9.96, 240, 5999, 9000)] == [
        "10.0 s",
        "4 min",
        "100 min",
        "2.5 h",
    ]


def test_only_what_stands_between_the_markers_changes():
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    new = replace_between_markers(text, "new")
    assert new == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert replace_between_markers(new, "new") == new


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_markers_must_stand_once_and_in_order(text):
    with pytest.raises(ValueError, match="once each"):
        replace_between_markers(text, "new")


def test_command_checks_then_writes_then_is_content(tmp_path, capsys):
    readme = tmp_path / "README.md"
    readme.write_text(f"{BEGIN}\nold\n{END}\n")
    options = ["--readme", str(readme), "--results", str(tmp_path)]
    assert main([*options, "--check"]) == 1
    assert "run `python -m benchmarks.readme_tables`" in capsys.readouterr().err
    assert "old" in readme.read_text()
    assert main(options) == 0
    assert "old" not in readme.read_text()
    assert main([*options, "--check"]) == 0


def test_command_names_a_malformed_file(tmp_path, capsys):
    readme = tmp_path / "README.md"
    readme.write_text(f"{BEGIN}\n{END}\n")
    (tmp_path / "bad.json").write_text("{}")
    assert main(["--readme", str(readme), "--results", str(tmp_path)]) == 1
    assert "bad.json: the result lacks: command" in capsys.readouterr().err
