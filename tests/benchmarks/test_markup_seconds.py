"""The pages of the benchmark of HTML's speed, and its figures of answers that are known."""

import json
import zipfile
from pathlib import Path

import pytest

from benchmarks import libretranslate
from benchmarks.markup_seconds import WORDS, Answered, figures, grammar_pages


def test_pages_have_their_words_and_none_in_common():
    first, second = grammar_pages(2)
    for page in (first, second):
        words = sum(len(paragraph.plain.split()) for paragraph in page)
        assert WORDS <= words < WORDS + 40
        assert any('<b id="0">' in paragraph.html for paragraph in page)
    assert not {paragraph.plain for paragraph in first} & {paragraph.plain for paragraph in second}


def test_figures_of_known_answers():
    (page,) = grammar_pages(1)
    html = [paragraph.html for paragraph in page]
    plain = "\n".join(f"<p>{paragraph.reference}</p>" for paragraph in page)
    broken = ["<p>a & b</p>", *html[1:]]
    answers = {
        "": [Answered("\n".join(html), seconds, 1.0) for seconds in (1.0, 2.0, 4.0)],
        "_other": [Answered("".join(broken), seconds, 3.0) for seconds in (3.0, 2.0, 8.0)],
    }
    metrics, signature = figures(answers, {"": plain, "_other": plain}, [page] * 3)
    assert (metrics["seconds_per_page"], metrics["seconds_per_page_other"]) == (2.0, 3.0)
    assert (metrics["times_as_fast"], metrics["cpu_seconds_per_page_other"]) == (2.0, 3.0)
    assert metrics["well_formed_share"] == metrics["tags_kept_share"] == 1.0
    assert metrics["well_formed_share_other"] == pytest.approx(1 - 1 / len(page))
    assert metrics["tags_kept_share_other"] < 1
    assert metrics["bleu_without_tags"] == pytest.approx(100) and "tok:13a" in signature
    assert metrics["bleu"] < 5


def test_a_package_is_unpacked_where_its_server_looks(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(libretranslate, "write_splitter", lambda *given: asked.append(given))
    package = tmp_path / "translate-en_de.argosmodel"
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("translate-en_de/metadata.json", "{}")
    environment = libretranslate.unpacked(package, tmp_path / "home", Path("python"))
    packages = tmp_path / "home" / "data" / "argos-translate" / "packages"
    assert asked == [(Path("python"), packages / "translate-en_de" / "spacy")]
    assert environment["XDG_DATA_HOME"] == str(tmp_path / "home" / "data")
    assert json.loads((packages / "none" / "metadata.json").read_text()) == {"type": "none"}
    assert (packages / "translate-en_de" / "metadata.json").exists()
