"""The page of a sentence: all weights within, nothing from outside, whatever the sentence says."""

import base64
import re
from typing import Any

import numpy as np
import pytest

from flaxformer_mt.attention import KINDS
from flaxformer_mt.attention.page import UNITS, attention_page
from flaxformer_mt.attention.weights import pick, shown, weights_of
from tests.figures.examples import SOURCE, TARGET, Reader, data_of, made_up

HOSTILE = "</script><script>document.title='owned'</script> <!-- & \u2028 \u0000"
FOUND = made_up((*SOURCE[:-1], "▁</script>", "▁<!--", "</s>"))


def made(src: str = HOSTILE, **picked: Any) -> str:
    opens = pick(FOUND, **{"kind": "encoder", **picked})
    return attention_page(FOUND, opens, src=src, tgt=src, origin="runs/x", whose="the model's")


def test_it_holds_every_weight_and_opens_with_what_was_picked():
    content = data_of(made(kind="cross", layer=1, heads=(2,), query="sehen"))
    assert content["opens"] == {"kind": "cross", "layer": 0, "heads": [1], "row": 3}
    assert [kind["kind"] for kind in content["kinds"]] == list(KINDS)
    for kind in content["kinds"]:
        weights = weights_of(FOUND, kind["kind"])
        units = np.frombuffer(base64.b64decode(kind["weights"]), "<u2").reshape(kind["shape"])
        np.testing.assert_allclose(units / UNITS, weights, rtol=0, atol=0.5001 / UNITS)
    encoder, decoder, cross = content["kinds"]
    assert encoder["rows"] == cross["columns"] == [shown(piece) for piece in FOUND.src_pieces]
    assert decoder["columns"] == ["‹begin›", *map(shown, TARGET[:-1])]


def test_a_sentence_never_becomes_code():
    reader = Reader(made())
    assert reader.open == []
    assert sum(tag == "script" for tag, _ in reader.tags) == 2  # the data and ours
    assert "</script><script>document.title='owned'</script> <!--" in reader.text
    keys = {key for _, attributes in reader.tags for key in attributes}
    assert not any(key.startswith("on") or key in ("src", "href", "style") for key in keys)
    assert not re.search(r"https?:|//[a-z]|url\(|@import", made("plain").replace("http-equiv", ""))


@pytest.mark.browser
@pytest.mark.extended
def test_in_a_browser_pointing_and_keys_show_weights(browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(made(), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(file.as_uri())
    assert page.title().startswith("Attention: ")
    assert "heads 1, 2, 3" in page.inner_text("#reading")
    page.hover(".rows span >> nth=1")
    mean = FOUND.encoder[1].mean(axis=0)
    first = shown(FOUND.src_pieces[int(mean[1].argmax())])
    assert page.inner_text("#reading").startswith(f"cat looks most at: {first} ")
    shares = page.locator(".columns i").all_inner_texts()
    assert shares == [f"{100 * weight:.1f} %" for weight in np.round(mean[1].astype(float), 6)]
    page.mouse.move(0, 0)

    # The keyboard alone: another kind, a layer, one head, a heat map, a cell.
    page.focus('#kinds [data-value="encoder"]')
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.focus('#layers [data-value="1"]')
    page.keyboard.press("ArrowLeft")
    for head in (0, 2):
        page.focus(f'#heads [data-value="{head}"]')
        page.keyboard.press("Space")
    page.focus('#views [data-value="lines"]')
    page.keyboard.press("ArrowRight")
    page.focus("#stage")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    expected = f"Katze gives cat {100 * FOUND.cross[0, 1, 1, 1]:.1f} % of its attention"
    assert page.inner_text("#reading") == expected
    page.keyboard.press("Escape")
    assert page.inner_text("#reading").startswith("Decoder-to-source attention, layer 1")
    page.close()
    assert complaints == []


@pytest.mark.browser
@pytest.mark.extended
def test_on_a_phone_both_sides_are_seen_without_scrolling(browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(made("plain", kind="cross"), encoding="utf-8")
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(file.as_uri())
    hidden = "page => page.scrollWidth - page.clientWidth"
    assert page.eval_on_selector("html", hidden) == 0
    assert page.eval_on_selector("#stage", hidden) == 0
    assert page.eval_on_selector("canvas", "canvas => canvas.offsetWidth") >= 70
    page.locator(".rows span").nth(1).click()
    page.set_viewport_size({"width": 1000, "height": 844})
    # The browser says so in its own time, and the page then draws on another canvas.
    page.wait_for_function("() => document.querySelector('canvas').offsetWidth === 320")
    page.close()


@pytest.mark.browser
@pytest.mark.extended
def test_in_a_browser_heads_that_agree_are_seen_side_by_side(browser, tmp_path):
    attention = made_up(heads=8)
    attention.cross[:] = 0
    attention.cross[:, :, 1, 3] = 1
    opens = pick(attention, kind="cross")
    file = tmp_path / "page.html"
    content = attention_page(attention, opens, src="", tgt="", origin="", whose="")
    file.write_text(content, encoding="utf-8")
    page = browser.new_page(device_scale_factor=2)
    page.goto(file.as_uri())
    middle = "[...canvas.getContext('2d').getImageData(canvas.width / 2, 0, 1, canvas.height).data]"
    pixels = page.eval_on_selector("canvas", f"canvas => {middle}")
    page.close()
    seen = {tuple(pixels[start : start + 3]) for start in range(0, len(pixels), 4)}
    assert {tuple(bytes.fromhex(colour[1:])) for colour in data_of(content)["colours"]} <= seen
