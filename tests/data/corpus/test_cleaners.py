"""What OpusFilter and OpusCleaner write is read as it is, with nothing in between."""

import dataclasses
import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import open_source, weight_of
from flaxformer_mt.data.corpus.source import read_pairs
from flaxformer_mt.grammar.text import pairs
from tests.system.conftest import ran

pytestmark = pytest.mark.formats
PAIRS = list(dict.fromkeys(pairs("train", 60)))


def written(folder: Path) -> list[tuple[str, str]]:
    """PAIRS in raw.en and raw.de, with the first one again and one that is much too long."""
    lines = [*PAIRS, PAIRS[0], ("word " * 99, "Wort " * 99)]
    for side, lang in enumerate(("en", "de")):
        (folder / f"raw.{lang}").write_text("".join(f"{line[side]}\n" for line in lines))
    return PAIRS


def test_files_and_scores_that_opusfilter_writes(tmp_path):
    """Aligned files of each compression, and its scores as weights."""
    opusfilter = pytest.importorskip("opusfilter.opusfilter")
    expected = written(tmp_path)
    raw, unique = ["raw.en", "raw.de"], ["unique.en.gz", "unique.de.gz"]
    kept = ["kept.en.xz", "kept.de.xz"]
    ratio = {"LengthRatioFilter": {"unit": "char", "threshold": 9}}
    lengths = {"LengthFilter": {"unit": "word", "max_length": 50}}
    steps: list[dict[str, Any]] = [
        {"type": "remove_duplicates", "parameters": {"inputs": raw, "outputs": unique}},
        {"type": "filter", "parameters": {"inputs": unique, "outputs": kept, "filters": [lengths]}},
        {
            "type": "score",
            "parameters": {"inputs": kept, "output": "scores.jsonl", "filters": [ratio]},
        },
    ]
    common = {"output_directory": str(tmp_path)}
    opusfilter.OpusFilter({"common": common, "steps": steps}).execute_steps()

    corpus = CorpusConfig(name="kept", src=kept[0], tgt=kept[1])
    assert [(pair.src, pair.tgt) for pair in read_pairs(corpus, str(tmp_path))] == expected
    scores = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    inverse = [1 / score["LengthRatioFilter"] for score in scores]
    (tmp_path / "weights").write_text("".join(f"{weight}\n" for weight in inverse))
    source = open_source(dataclasses.replace(corpus, pair_weights="weights"), str(tmp_path))
    assert [weight_of(record) for record in source.records()] == inverse and max(inverse) <= 1


def test_a_table_that_opuscleaner_writes(tmp_path):
    """Its columns are in the order of its files: by number, either way round."""
    program = os.environ.get("OPUSCLEANER") or shutil.which("opuscleaner-clean")
    if program is None:
        pytest.skip("needs OpusCleaner, in an environment of its own: pip install opuscleaner")
    expected = written(tmp_path)
    lengths = {
        "filter": "max_length",
        "parameters": {"MAXLENGTH": 50, "MINLENGTH": 1},
        "language": None,
    }
    for lang in ("de", "en"):  # it takes compressed files only
        (tmp_path / f"{lang}.gz").write_bytes(
            gzip.compress((tmp_path / f"raw.{lang}").read_bytes())
        )
    settings = {"version": 1, "files": ["de.gz", "en.gz"], "filters": [lengths]}
    (tmp_path / "raw.filters.json").write_text(json.dumps(settings))
    table = tmp_path / "clean.tsv"
    done = ran(program, "--output", table, tmp_path / "raw.filters.json")
    assert done.returncode == 0, done.stderr
    corpus = CorpusConfig(name="clean", kind="tsv", path=str(table), src="2", tgt="1")
    read = [(pair.src, pair.tgt) for pair in read_pairs(corpus)]
    assert read == [*expected, expected[0]]
