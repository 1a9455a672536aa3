"""The README and the page of results show what the result files say."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks import readme_tables
from benchmarks.readme_tables import (
    BEGIN,
    END,
    SHOWN,
    called,
    headlines,
    label,
    main,
    render_page,
    render_section,
    render_table,
    replace_between_markers,
    show_seconds,
    show_value,
)
from benchmarks.result_file import Machine, Result, ResultError, read_results
from benchmarks.speed_table import is_contest

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


def test_readme_and_page_show_the_recorded_results():
    assert main(["--check"]) == 0, "run `python -m benchmarks.readme_tables`"
    readme = readme_tables.README.read_text(encoding="utf-8")
    assert render_table(read_results()) in readme
    assert render_page(read_results()) == readme_tables.PAGE.read_text(encoding="utf-8")


def test_a_row_is_short_and_leads_to_its_section():
    table = render_table([RESULT])
    header, _, row = table.splitlines()
    assert header.count("|") == row.count("|")
    for part in ("`tiny`", "41.23", "3,513", "2 CPU cores, 24 GiB", "90 min"):
        assert part in row
    assert "(docs/results.md#tiny)" in row
    assert "## tiny\n" in render_page([RESULT])


def test_a_row_says_what_the_cores_can_where_it_is_known():
    known = dataclasses.replace(RESULT.machine, instructions="avx512_bf16")
    table = render_table([dataclasses.replace(RESULT, machine=known)])
    assert "| 2 CPU cores (avx512_bf16), 24 GiB |" in table


def test_the_readme_shows_few_metrics_of_any_result_and_the_page_all():
    for result in read_results():
        if is_contest(result):
            continue
        cell = render_table([result]).splitlines()[-1].split("|")[2]
        assert 1 <= len(cell.split("; ")) <= SHOWN
    for result in read_results():
        section = render_section(result)
        assert section.count("\n| ") == len(result.metrics) + 1
        assert all(f"| {called(result, name)} | " in section for name in result.metrics)


@pytest.mark.parametrize("name", ["multi30k_tiny_seed_2_bfloat16", "multi30k_tiny_fr_seed_3"])
def test_other_runs_of_an_experiment_show_the_same(name):
    shown = readme_tables.HEADLINES["multi30k_tiny"]
    metrics = {"ter": 39.0, **dict.fromkeys(reversed(shown), 40.0)}
    found = headlines(dataclasses.replace(RESULT, name=name, metrics=metrics))
    assert [metric for metric, _ in found] == [*shown]


def test_headlines_by_name_come_before_the_first_ones(monkeypatch):
    metrics = {f"metric_{number}": number for number in range(SHOWN + 2)}
    many = dataclasses.replace(RESULT, metrics=metrics, signatures={})
    assert f"metric {SHOWN - 1} {SHOWN - 1}" in render_table([many])
    assert f"metric {SHOWN}" not in render_table([many])
    monkeypatch.setitem(readme_tables.HEADLINES, "tiny", (f"metric_{SHOWN}",))
    assert "metric 0" not in render_table([many])
    assert f"metric {SHOWN} {SHOWN} |" in render_table([many])
    monkeypatch.setitem(readme_tables.HEADLINES, "tiny", ("lost",))
    with pytest.raises(ResultError, match=r"tiny\.json: has no metric lost"):
        render_table([many])


def test_a_section_says_how_it_was_measured():
    section = render_section(RESULT)
    assert "\n    python -m benchmarks.tiny\n" in section
    assert "(../benchmarks/results/tiny.json)" in section
    assert "0123456789-dirty" in section
    assert "2 CPU cores, 24 GiB" in section
    # Outside the table, where its bars are harmless.
    assert "- BLEU (tokenised, lower-cased): `nrefs:1|case:lc|tok:none`" in section


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("sacrebleu_13a", 38.0, ("sacreBLEU (13a)", "38.00")),
        ("parameters", 2600000, ("parameters", "2,600,000")),
        ("padding_share", 0.0312, ("padding share", "0.0312")),
        ("train_seconds", 7200.0, ("training", "2.0 h")),
        ("first_batch_seconds", 2.1, ("first batch", "2.1 s")),
        ("bad_updates", 0, ("bad updates", "0")),
    ],
)
def test_metrics_are_shown_in_their_own_way(name, value, shown):
    assert (label(name), show_value(name, value)) == shown


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


@pytest.fixture
def documents(tmp_path):
    """A README and a page with options that name them, and a folder of no results."""
    readme, page = tmp_path / "README.md", tmp_path / "results.md"
    deviations = tmp_path / "deviations.md"
    for path in (readme, deviations):
        path.write_text(f"{BEGIN}\nold\n{END}\n")
    options = ["--readme", str(readme), "--page", str(page), "--results", str(tmp_path)]
    options += ["--deviations", str(deviations)]
    return readme, page, options


def test_command_checks_then_writes_then_is_content(documents, capsys):
    readme, page, options = documents
    assert main([*options, "--check"]) == 1
    assert "run `python -m benchmarks.readme_tables`" in capsys.readouterr().err
    assert "old" in readme.read_text()
    assert not page.exists()
    assert main(options) == 0
    assert "old" not in readme.read_text()
    assert main([*options, "--check"]) == 0


def test_either_document_can_be_stale(documents, capsys):
    readme, page, options = documents
    assert main(options) == 0
    for path in (readme, page):
        whole = path.read_text()
        path.write_text(whole.replace("esults", "umours"))
        capsys.readouterr()
        assert main([*options, "--check"]) == 1
        assert str(path) in capsys.readouterr().err
        path.write_text(whole)
    assert main([*options, "--check"]) == 0


def test_command_names_a_malformed_file(documents, tmp_path, capsys):
    (tmp_path / "bad.json").write_text("{}")
    assert main(documents[-1]) == 1
    assert "bad.json: the result lacks: command" in capsys.readouterr().err
