"""The frame of every page: only its own code runs, and content stays content."""

import base64
import hashlib
import json
import re

import pytest

from flaxformer_mt.pages import standalone, text


def made(**changed: object) -> str:
    parts = {"body": "<p>b</p>", "style": "p { color: red }", "script": "let a = 1 < 2;"}
    return standalone("a title", **(parts | changed))


def test_the_policy_allows_its_style_and_script_and_nothing_else():
    page = made()
    (policy,) = re.findall('Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'; ")
    for tag, content in (("style", "p { color: red }"), ("script", "let a = 1 < 2;")):
        assert f"<{tag}>{content}</{tag}>" in page
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_data_survive_and_titles_and_texts_are_escaped():
    data = {"text": "</script><!-- \u2028 é", "numbers": [1, 2.5, None]}
    (block,) = re.findall(
        '<script type="application/json" id="data">(.*?)</script>', made(data=data)
    )
    assert json.loads(block) == data
    assert "<" not in block
    assert "application/json" not in made()
    with pytest.raises(ValueError, match="JSON"):
        made(data=[float("nan")])
    assert "<title>&lt;b&gt; &amp; &quot;q&quot;</title>" in standalone(
        '<b> & "q"', body="", style="", script=""
    )
    assert text("a\x00\x1b\x7f\n") == "a\u2400\u241b\u2421\u240a"
