"""The closed unions of the config, and how little of the program knows each of their members."""

import dataclasses
import re
import typing
from pathlib import Path

import pytest

import flaxformer_mt
from flaxformer_mt.config import CorpusConfig, OptimizerConfig, ScheduleConfig, kinds
from flaxformer_mt.config.schema import BatchConfig

PACKAGE = Path(flaxformer_mt.__file__).parent
SOURCES = typing.get_args(kinds.CorpusSource)
GROUPS = {
    "kind": (CorpusConfig, kinds.CorpusSource, kinds.SourceName),
    "curve": (ScheduleConfig, kinds.RateCurve, kinds.CurveName),
    "rule": (OptimizerConfig, kinds.UpdateRule, kinds.RuleName),
    "form": (BatchConfig, kinds.BatchLayout, kinds.LayoutName),
}


@pytest.mark.parametrize(("group", "union", "names"), GROUPS.values(), ids=GROUPS)
def test_a_union_has_a_member_for_each_name_and_its_settings_are_the_groups(group, union, names):
    members = typing.get_args(union)
    assert tuple(member.kind for member in members) == typing.get_args(names)
    types = typing.get_type_hints(group)
    for member in members:
        hints = typing.get_type_hints(member)
        for field in dataclasses.fields(member):
            assert hints[field.name] == types[field.name]


def test_a_corpus_has_the_settings_of_its_kind_alone():
    corpus = CorpusConfig(kind="jsonl", path="a.jsonl", src="en", tgt="de", size=9, weight=2.0)
    assert corpus.source == kinds.JsonLines(path="a.jsonl", src="en", tgt="de", pair_weights="")
    assert corpus.source.needed() == ("path", "src", "tgt")
    assert ScheduleConfig(kind="peak", peak=0.5).curve == kinds.PeakCurve(
        peak=0.5, warmup_steps=4000
    )


@pytest.mark.parametrize("source", SOURCES, ids=[source.kind for source in SOURCES])
def test_a_kind_of_corpus_is_known_to_three_files(source):
    """Its class, its reader, and the one `match` over all kinds; what is said of single kinds
    in other files is about the quickstart's text and the paper's sets."""
    naming = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(rf"\b{source.__name__}\b", path.read_text())
    }
    others = naming - {"config/kinds.py", "data/corpus/source.py"}
    others -= {"cli/quickstart.py", "reproduction/run_rows.py"}
    assert len(others) <= 1 and all(path.startswith("data/corpus/") for path in others)


def test_no_file_compares_names_of_kinds():
    """`match` on the member does, where mypy knows which are missing."""
    names = "|".join(source.kind for source in SOURCES)
    compared = re.compile(rf'corpus\.kind (==|!=|in|not in) .*"({names})"')
    assert not [path for path in PACKAGE.rglob("*.py") if compared.search(path.read_text())]
