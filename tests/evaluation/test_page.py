"""The page as a browser would read it, whatever the sentences say."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from flaxformer_mt.evaluation import Scoring, assess
from flaxformer_mt.evaluation.examples import worst_and_best
from flaxformer_mt.evaluation.page import page

HOSTILE = [
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "</style></script><!-- ]]> &amp; &lt;b&gt; {{x}} ${x} `x`",
    "'; alert(1); //\u2028 \u202eright-to-left \u0000 \u001b[31m \u007f",
    "javascript:alert(1) <a href='javascript:alert(1)'>x</a> <svg/onload=alert(1)>",
    "",
]
REFERENCES = ["a b c", "<b>d</b> e", "f & g", "h", "שלום עולם", "nothing"]


class Reader(HTMLParser):
    """Tags with attributes, and the text of each `dd`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.answers: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "dd":
            self.answers.append("")
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "dd" in self.open:
            self.answers[-1] += data


def made(hypotheses: list[str], references: list[str], name: str = "x") -> str:
    found = assess(
        hypotheses,
        references,
        sources=hypotheses,
        scoring=Scoring(language="de", ter=False, resamples=20),
    )
    examples = worst_and_best(found, hypotheses, references, sources=hypotheses)
    return page(name, found, examples, origin=f"Weights: {name}")


def test_sentences_stay_text() -> None:
    text = made(HOSTILE, REFERENCES, name=HOSTILE[0])
    reader = Reader(text)
    assert reader.open == []
    harmless = {tag for tag, _ in Reader(made(REFERENCES[:1], REFERENCES[:1])).tags}
    assert {tag for tag, _ in reader.tags} <= harmless | {"del", "ins", "em", "p"}
    assert sum(tag == "script" for tag, _ in reader.tags) == 1
    assert not any(
        key.startswith("on") or key in ("src", "href", "style")
        for _, attributes in reader.tags
        for key in attributes
    )
    shown = [" ".join(answer.split()) for answer in reader.answers]
    for line in HOSTILE[:3] + HOSTILE[4:5]:
        assert line in shown
    assert "(empty)" in shown
    # Controls are made visible: HTML does not allow them.
    assert any("␀" in answer and "␛[31m ␡" in answer for answer in shown)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", text)


def test_it_asks_for_nothing_and_allows_its_own_code_alone() -> None:
    text = made(REFERENCES, REFERENCES)
    policy = next(
        attributes["content"] or ""
        for tag, attributes in Reader(text).tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    for tag in ("style", "script"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r"https?:|//[a-z]|url\(|@import", text)


def test_it_can_be_read_and_used() -> None:
    text = made(HOSTILE, REFERENCES)
    tags = Reader(text).tags
    assert ("html", {"lang": "en"}) in tags
    assert any(attributes.get("name") == "viewport" for _, attributes in tags)
    labelled = {attributes["for"] for tag, attributes in tags if tag == "label"}
    fields = {a["id"] for tag, a in tags if tag in ("select", "input")}
    assert labelled == fields
    assert "prefers-color-scheme: dark" in text
    assert all(attributes["dir"] == "auto" for tag, attributes in tags if tag == "dd")
    items = [attributes for tag, attributes in tags if tag == "li"]
    assert sorted(int(item["data-line"] or 0) for item in items) == [1, 2, 3, 4, 5, 6]
    for key in re.findall(r'<option value="(\w+)-(?:a|de)scending">', text):
        assert all(float(item[f"data-{key}"] or "x") >= 0 for item in items)


@pytest.mark.extended
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_in_a_browser_its_script_runs_and_theirs_does_not(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(made(HOSTILE, REFERENCES), encoding="utf-8")
    done = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000",
         f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "6 of 6 shown" in done.stdout
    assert "<title>x: worst and best translations</title>" in done.stdout
