"""The page of a model of several directions, in a real browser over a stand-in translator."""

import dataclasses

import pytest

from tests.serving.stand_in import MODEL, StandIn, eventually, running
from tests.serving.test_page import EXAMPLES, shows, translate, visiting

pytestmark = [pytest.mark.browser, pytest.mark.extended]
DIRECTIONS = {
    ("en", "de"): "<2de>",
    ("en", "ar"): "<2ar>",
    ("ar", "en"): "<2en>",
    ("de", "en"): "<2en>",
}
SEVERAL = dataclasses.replace(MODEL, directions=DIRECTIONS)


@pytest.fixture(scope="module")
def server():
    with running(StandIn(), model=SEVERAL, examples=EXAMPLES) as server:
        yield server


@pytest.fixture
def page(browser, server):
    with visiting(browser, server.url, viewport={"width": 1180, "height": 900}) as page:
        page.wait_for_function("() => document.title.includes('→')")
        yield page


def offered(page, label):
    return page.get_by_label(label, exact=True).locator("option").all_inner_texts()


def languages(page):
    """The chosen languages' codes, and what the two sheets say of theirs."""
    picked = [page.input_value(f"#{side}-language") for side in ("source", "target")]
    sheets = [page.get_attribute(f"#{side}", "lang") for side in ("source", "target")]
    assert picked == sheets
    directions = [page.get_attribute(f"#{side}", "dir") for side in ("source", "target")]
    return [*picked, *directions]


def test_a_change_of_language_translates_anew(page):
    assert offered(page, "Source language") == ["English", "Arabic", "German"]
    assert offered(page, "Target language") == ["German", "Arabic"]
    translate(page, "one two", "TWO ONE <2DE>")
    assert languages(page) == ["en", "de", "ltr", "ltr"]

    page.get_by_label("Target language").select_option("Arabic")
    shows(page, "TWO ONE <2AR>")
    assert (page.title(), *languages(page)) == ("English → Arabic", "en", "ar", "ltr", "rtl")

    # It has another target.
    page.get_by_label("Source language").select_option("Arabic")
    shows(page, "TWO ONE <2EN>")
    assert offered(page, "Target language") == ["English"]
    assert languages(page) == ["ar", "en", "rtl", "ltr"]
    assert page.get_attribute("#mirror", "dir") == "rtl"
    assert page.get_attribute("#source", "placeholder") == "Type or paste a text in Arabic"


def test_another_source_keeps_the_target_if_it_has_it(page):
    page.get_by_label("Source language").select_option("German")
    translate(page, "one two", "TWO ONE <2EN>")
    page.get_by_label("Source language").select_option("Arabic")
    assert languages(page) == ["ar", "en", "rtl", "ltr"]


def test_the_choice_survives_a_reload(page):
    page.get_by_label("Target language").select_option("Arabic")
    translate(page, "one two", "TWO ONE <2AR>")
    page.reload()
    shows(page, "TWO ONE <2AR>")
    assert languages(page) == ["en", "ar", "ltr", "rtl"]


def test_a_kept_choice_that_the_model_lacks_is_forgotten(page):
    page.evaluate("() => sessionStorage.setItem('flaxformer-source-language', 'fr')")
    page.evaluate("() => sessionStorage.setItem('flaxformer-target-language', 'es')")
    page.reload()
    translate(page, "one two", "TWO ONE <2DE>")
    assert languages(page) == ["en", "de", "ltr", "ltr"]


def test_attention_is_of_the_sentence_with_its_tag(page):
    bodies = []
    page.on("request", lambda request: bodies.append(request.post_data or ""))
    translate(page, "one two", "TWO ONE <2DE>")
    eventually(lambda: any('"text":"<2de> one two"' in body for body in bodies))
    page.wait_for_selector("#map canvas")
    assert page.locator("#map .columns span").first.inner_text() == "-<2de>"
    # Which is no word of the text.
    assert page.locator("#mirror .word").all_inner_texts() == ["one", "two"]


def test_the_lists_have_names_and_the_sheets_keep_theirs(page):
    for name, label in (("English", "Source language"), ("German", "Target language")):
        assert page.get_by_role("combobox", name=label).is_visible()
        assert page.get_by_role("region", name=name).count() == 1
        assert page.get_by_role("heading", name=name, level=2).count() == 1
    assert page.get_by_role("textbox", name="English").count() == 1


def test_a_phone_has_room_for_the_lists(browser, server):
    phone = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
    with visiting(browser, server.url, **phone) as page:
        translate(page, "one two", "TWO ONE <2DE>")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_one_direction_has_names_and_no_lists(browser):
    with running(StandIn()) as server, visiting(browser, server.url) as page:
        translate(page, "one two", "TWO ONE")
        assert page.locator("#source-name:visible, #target-name:visible").count() == 2
        assert page.locator("select:visible").count() == 0
