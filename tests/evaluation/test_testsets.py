"""sacreBLEU's test sets: where they are looked for, and what is said where they are not."""

import io
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import sacrebleu.utils
from sacrebleu.dataset import DATASETS

from flaxformer_mt.evaluation.bleu_tokenizers import STALL_SECONDS
from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.evaluation.references import References
from flaxformer_mt.evaluation.testsets import load_testset


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """sacreBLEU's folder, empty, and no network. A set keeps its place since it was imported."""
    monkeypatch.setattr(sacrebleu.utils, "SACREBLEU_DIR", str(tmp_path))
    for name in ("wmt14/full", "wmt17/tworefs", "wmt21/B", "wmt21/dev", "wmt22", "wmt23"):
        monkeypatch.setattr(DATASETS[name], "_outdir", str(tmp_path / name))
        monkeypatch.setattr(DATASETS[name], "_rawdir", str(tmp_path / name / "raw"))
    unreachable = urllib.error.URLError("Name or service not known")
    monkeypatch.setattr(urllib.request, "urlopen", mock.Mock(side_effect=unreachable))
    return tmp_path


def put(folder: Path, name: str, field: str, lines: list[str], langpair: str = "en-de") -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('/', '_')}.{langpair}"
    (folder / name / f"{stem}.{field}").write_text("".join(f"{line}\n" for line in lines))


def test_on_disk_nothing_is_fetched(folder):
    put(folder, "wmt14/full", "src", ["a\u2028b", "c"])
    put(folder, "wmt14/full", "ref", ["A", "C"])
    assert load_testset("wmt14/full", "en-de") == (["a\u2028b", "c"], ["A", "C"], 0)
    # It is where sacreBLEU itself looks.
    theirs = DATASETS["wmt14/full"]._get_txt_file_path("en-de", "src")
    assert Path(theirs).read_text().split("\n")[0] == "a\u2028b"


@pytest.mark.parametrize(
    ("name", "langpair", "fields"),
    [
        ("wmt21/B", "cs-en", ["ref:B"]),
        ("wmt23", "en-de", ["ref:refA"]),
        ("wmt22", "liv-en", ["ref"]),
        ("wmt21/dev", "en-ha", ["ref:A", "ref"]),
    ],
)
def test_they_are_the_references_that_sacrebleu_scores_with(
    folder, monkeypatch, name, langpair, fields
):
    names = ["src", "ref", "ref:A", "ref:B", "ref:refA", "ref:refB"]
    for reference in names:
        put(folder, name, reference.replace(":", "-"), [reference], langpair)
    sources, references, unused = load_testset(name, langpair)
    assert sources == ["src"] and unused == 5 - len(fields)
    assert References.of(references).columns == tuple([field] for field in fields)
    # So does sacreBLEU itself with these files.
    data = DATASETS[name]
    monkeypatch.setattr(data, "fieldnames", lambda _: names)
    paths = [data._get_txt_file_path(langpair, reference) for reference in names]
    monkeypatch.setattr(data, "get_files", lambda _: paths)
    theirs = [Path(path).read_text() for path in data.get_reference_files(langpair)]
    assert sorted(theirs) == sorted(f"{field}\n" for field in fields)


def test_a_set_of_two_references_has_both_or_is_refused(folder):
    put(folder, "wmt17/tworefs", "src", ["a"], "en-fi")
    put(folder, "wmt17/tworefs", "ref-0", ["A"], "en-fi")
    both = "wmt17_tworefs.en-fi.ref-0 and wmt17_tworefs.en-fi.ref-1 "
    with pytest.raises(ScoringError, match=both):
        load_testset("wmt17/tworefs", "en-fi")
    put(folder, "wmt17/tworefs", "ref-1", ["B"], "en-fi")
    assert load_testset("wmt17/tworefs", "en-fi") == (["a"], (["A"], ["B"]), 0)
    put(folder, "wmt17/tworefs", "ref-1", ["B", "C"], "en-fi")
    with pytest.raises(ScoringError, match="has 1 lines and .*ref-1 has 2: remove"):
        load_testset("wmt17/tworefs", "en-fi")


def test_files_that_do_not_do_are_refused(folder):
    put(folder, "wmt21/B", "src", ["a"], "cs-en")
    put(folder, "wmt21/B", "ref-A", ["A"], "cs-en")  # another reference does not stand in
    with pytest.raises(ScoringError, match=r"put wmt21_B.cs-en.src and wmt21_B.cs-en.ref-B "):
        load_testset("wmt21/B", "cs-en")
    put(folder, "wmt22", "src", ["a", "b"])
    put(folder, "wmt22", "ref-A", ["A"])
    with pytest.raises(ScoringError, match=r"has 2 lines and .*wmt22.en-de.ref-A has 1: remove"):
        load_testset("wmt22", "en-de")


def test_without_a_network_it_says_where_the_files_go(folder):
    with pytest.raises(ScoringError) as refused:
        load_testset("wmt14/full", "en-de")
    message = str(refused.value)
    assert "Name or service not known" in message
    assert DATASETS["wmt14/full"].data[0] in message
    assert "put wmt14_full.en-de.src and wmt14_full.en-de.ref" in message and "\n" not in message
    assert str(folder / "wmt14" / "full") in message


def test_a_network_that_swallows_everything_is_given_up_in_seconds(folder, monkeypatch):
    limits: list[float | None] = []

    def swallow(*_: Any, **__: Any) -> Any:
        limits.append(socket.getdefaulttimeout())
        raise TimeoutError("timed out")

    monkeypatch.setattr(urllib.request, "urlopen", swallow)
    with pytest.raises(ScoringError, match="timed out"):
        load_testset("wmt14/full", "en-de")
    assert set(limits) == {STALL_SECONDS} and socket.getdefaulttimeout() is None


def test_a_network_that_sends_something_else_is_named(folder, monkeypatch):
    """By itself, sacreBLEU exits the program for a wrong digest."""
    page = b"<html>please log in</html>"
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: io.BytesIO(page))
    with pytest.raises(ScoringError, match="cannot be downloaded from https://statmt.org"):
        load_testset("wmt14/full", "en-de")


def test_names_are_checked_before_anything_is_done():
    with pytest.raises(ScoringError, match="no test set 'wmt41', but wmt"):
        load_testset("wmt41", "en-de")
    with pytest.raises(ScoringError, match="wmt14/full has no pair 'en-xx': cs-en, de-en"):
        load_testset("wmt14/full", "en-xx")
