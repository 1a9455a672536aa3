"""The page in a real browser, over a stand-in translator."""

import contextlib
import dataclasses
import re

import pytest

from tests.serving.stand_in import MODEL, StandIn, eventually, running

pytestmark = [pytest.mark.browser, pytest.mark.extended]
EXAMPLES = ("ein Satz", "one two three")


@pytest.fixture(scope="module")
def translator():
    return StandIn()


@pytest.fixture(scope="module")
def server(translator):
    with running(translator, examples=EXAMPLES, seconds=2.0) as server:
        yield server


@contextlib.contextmanager
def visiting(browser, url, **options):
    """A page that the browser has nothing to complain of but refused questions, and that asks no
    other host for anything, whatever the policy lets through."""
    host, complaints = url.split("/")[2], []
    context = browser.new_context(**options)
    page = context.new_page()

    def hear(message):
        if not message.text.startswith("Failed to load resource: the server responded with a sta"):
            complaints.append(message.text)

    def see(answer):
        if answer.status >= 400 and answer.request.method == "GET":
            complaints.append(f"{answer.status} {answer.url}")

    def ask(request):
        if request.url.split("/")[2] != host:
            complaints.append(request.url)

    page.on("console", hear)
    page.on("response", see)
    page.on("request", ask)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(url)
    yield page
    context.close()
    assert complaints == []


@pytest.fixture
def page(browser, server, translator):
    translator.open.set()
    with visiting(browser, server.url, viewport={"width": 1180, "height": 900}) as page:
        page.wait_for_function("() => document.title.includes('→')")
        yield page


def lit(page, side):
    return page.locator(f"#{side} .word.lit, #{side} .word.at").all_inner_texts()


def lights(page, **words: list[str]):
    """Waits until these words are lit on these sides: the browser tells of a caret in its time."""
    eventually(lambda: all(lit(page, side) == expected for side, expected in words.items()))


def shows(page, text):
    page.wait_for_function("text => target.textContent === text", arg=text)


def translate(page, text, translation):
    page.fill("#source", text)
    shows(page, translation)
    page.wait_for_function("() => !target.classList.contains('waiting')")


def test_keys_in_quick_succession_are_one_question(page, translator):
    assert page.inner_text("#source-name") == "English"
    translator.calls.clear()
    page.locator("#source").press_sequentially("some words in one go", delay=15)
    shows(page, "GO ONE IN WORDS SOME")
    assert len(translator.calls) <= 3
    assert page.inner_text("#count") == "20 of 5000 characters"
    assert page.get_attribute("#target", "lang") == "de"


def test_stale_answers_are_dropped(page, translator):
    translate(page, "first", "FIRST")
    translator.calls.clear()
    translator.open.clear()
    page.fill("#source", "second")
    page.wait_for_function("() => target.classList.contains('waiting')")
    page.wait_for_timeout(100)
    page.fill("#source", "third")
    page.wait_for_timeout(400)
    page.evaluate(
        """() => { const seen = []; new MutationObserver(() => seen.push(target.textContent))
        .observe(target, { childList: true, subtree: true }); window.seen = seen; }"""
    )
    translator.open.set()
    shows(page, "THIRD")
    assert "SECOND" not in page.evaluate("window.seen")


def test_pointing_at_a_word_lights_its_partners(page):
    translate(page, "a dog runs home", "HOME RUNS DOG A")
    page.hover("#target .word >> text=DOG")
    lights(page, mirror=["dog"], target=["DOG"])
    assert page.locator("#links path").count() == 1
    # A word of the text area is no element: its place in the mirror behind is pointed at.
    box = page.locator("#mirror .word >> text=runs").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    lights(page, mirror=["runs"], target=["RUNS"])
    page.mouse.move(5, 5)
    lights(page, mirror=[], target=[])


def test_the_mirror_lies_exactly_behind_the_text(page):
    """Line by line: the text area wraps where the mirror does, so both have one height."""
    page.fill("#source", "words of some length that wrap at the end of a line " * 12)
    page.wait_for_function("() => target.textContent.length > 100")
    source, mirror = (page.locator(f"#{name}").bounding_box() for name in ("source", "mirror"))
    assert source == mirror
    assert page.evaluate("source.scrollHeight - source.clientHeight") <= 1


def test_the_keyboard_walks_through_the_words(page):
    translate(page, "a dog runs", "RUNS DOG A")
    page.focus("#source")
    page.keyboard.press("Control+Home")
    lights(page, target=["A"])  # partner of the word that the caret is in
    for _ in range(3):
        page.keyboard.press("Tab")
        if page.evaluate("target.contains(document.activeElement)"):
            break
    lights(page, target=["RUNS"], mirror=["runs"])
    page.keyboard.press("ArrowRight")
    lights(page, target=["DOG"], mirror=["dog"])
    active = page.locator("*:focus")
    assert active.get_attribute("aria-description") == "from: dog"
    page.keyboard.press("End")
    lights(page, target=["A"])
    page.keyboard.press("Tab")  # one stop for all words
    assert page.evaluate("!target.contains(document.activeElement)")


def test_alternatives_take_the_place_of_the_translation(page):
    translate(page, "one two", "TWO ONE")
    options = page.locator("#hypotheses input")
    assert options.count() == 4
    assert page.locator("#hypotheses .score").first.inner_text() == "score −0.500 · log p −1.00"
    options.first.focus()
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#target") == "TWO ONE 1"
    page.hover("#target .word >> text=ONE")
    lights(page, mirror=["one"])

    # Each sentence has its own.
    translate(page, "First one.\nSecond two.", "ONE. FIRST\nTWO. SECOND")
    assert "First one." in page.inner_text("#alternatives-of")
    page.click("#target .word >> text=TWO")
    assert "Second two." in page.inner_text("#alternatives-of")
    page.locator("#hypotheses input").nth(1).check()
    assert page.evaluate("target.textContent") == "ONE. FIRST\nTWO. SECOND 1"


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ('"One two. Three."', '"TWO. ONE THREE."'),
        ("“One two. Three.” Four.", "“TWO. ONE THREE.” FOUR."),
    ],
)
def test_a_quotation_has_its_marks(page, text, translation):
    translate(page, text, translation)
    assert page.evaluate("mirror.textContent") == text


def test_terms_and_forbidden_phrases(page):
    translate(page, "one dog", "DOG ONE")
    page.click("#wishes summary")
    page.fill("#terms", "dog = Hund\nunfinished")
    shows(page, "DOG ONE HUND")
    assert page.get_attribute("#terms", "aria-invalid") == "true"
    page.fill("#forbid", "one")
    shows(page, "DOG HUND")
    page.reload()
    shows(page, "DOG HUND")
    assert page.is_visible("#terms") and page.input_value("#forbid") == "one"


def test_a_language_code_holds_for_attention_too(browser, translator):
    model = dataclasses.replace(MODEL, codes=frozenset({">>fra<<"}))
    with running(translator, model=model) as server, visiting(browser, server.url) as page:
        bodies = []
        page.on("request", lambda request: bodies.append(request.post_data or ""))
        translate(page, ">>fra<< One.\nTwo.", "ONE. >>FRA<<\nTWO. >>FRA<<")
        page.locator("#target .word", has_text="TWO.").click()
        eventually(lambda: any('">>fra<< Two."' in data for data in bodies))


def test_attention_by_kind_layer_and_head(page):
    translate(page, "one two", "TWO ONE")
    page.wait_for_selector("#map canvas")
    assert page.locator("#map .rows span").all_inner_texts() == ["-TWO", "-ONE", "‹end›"]
    assert page.locator("#layers input").count() == 3
    assert page.locator("#heads canvas").count() == 3  # the mean and two heads
    page.get_by_label("Encoder").check()
    page.wait_for_function("() => reading.textContent.startsWith('Encoder attention, layer 2')")
    assert page.locator("#layers input").count() == 2
    assert page.locator("#map .rows span").all_inner_texts() == ["-one", "-two", "‹end›"]
    page.locator("#layers input").first.check()
    page.wait_for_function("() => reading.textContent.includes('layer 1')")
    page.locator("#heads input").nth(2).check()
    assert page.inner_text("#reading") == "Encoder attention, layer 1, head 2."
    page.focus("#map")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    said = page.inner_text("#reading")
    assert re.fullmatch(r"-one gives -two \d+\.\d % of its attention", said), said
    inked = page.evaluate(
        """() => [...document.querySelectorAll('#attention canvas')].map((canvas) =>
        canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data
        .some((value) => value > 0))"""
    )
    assert inked == [True] * 4


def test_examples_and_attention_on_its_way_that_is_not_drawn_after_clearing(page):
    page.click(f"text={EXAMPLES[1]}")
    shows(page, "THREE TWO ONE")
    page.wait_for_selector("#map canvas")
    routes = []
    page.route("**/attention", lambda route: routes.append(route))
    page.locator("#layers input").first.check()
    eventually(lambda: bool(routes) or page.wait_for_timeout(5))
    page.click("#clear")
    shows(page, "")
    page.unroute("**/attention")
    with contextlib.suppress(Exception):  # the page has given the question up
        routes[0].continue_()
    page.wait_for_timeout(200)
    assert page.is_hidden("#alternatives") and page.is_hidden("#attention")
    assert page.evaluate("document.activeElement.id") == "source"
    translate(page, EXAMPLES[1], "THREE TWO ONE")  # the same sentence, asked for again
    page.wait_for_selector("#attention:visible #map canvas")


OLD = "For the previous translation: the text has changed since."


def test_what_is_shown_of_an_earlier_text_says_so(page, translator):
    """Also after another layer of it is picked, and until the next answer is drawn."""
    translate(page, "one two", "TWO ONE")
    page.wait_for_selector("#map canvas")
    assert page.locator(f"text={OLD} >> visible=true").count() == 0
    translator.open.clear()
    page.fill("#source", "three four")
    assert page.locator(f"#attention >> text={OLD}").is_visible()
    assert page.locator(f"#alternatives >> text={OLD}").is_visible()
    page.locator("#layers input").first.check()
    page.wait_for_timeout(300)
    assert page.locator(f"#attention >> text={OLD}").is_visible()
    translator.open.set()
    shows(page, "FOUR THREE")
    page.wait_for_function("() => map.querySelector('.rows span').textContent === '-FOUR'")
    assert page.locator(f"text={OLD} >> visible=true").count() == 0


def test_a_text_that_is_put_back_is_not_old(page):
    translate(page, "one two", "TWO ONE")
    page.wait_for_selector("#map canvas")
    page.fill("#source", "one two three")
    page.fill("#source", "one two")
    page.wait_for_function("() => !target.classList.contains('stale')")
    assert page.locator(f"text={OLD} >> visible=true").count() == 0


def test_attention_that_fails_at_once_says_why(page):
    refusal = '{"error": "as if there were no room"}'
    page.route("**/attention", lambda route: route.fulfill(status=503, body=refusal))
    translate(page, "one two", "TWO ONE")
    page.wait_for_selector("#attention:visible")
    assert page.inner_text("#reading") == "as if there were no room"
    page.focus("#map")
    page.keyboard.press("ArrowDown")  # there is nothing to walk through, which is no error
    page.unroute("**/attention")
    page.locator("#layers input").first.check()
    page.wait_for_selector("#map canvas")
    assert page.inner_text("#reading").startswith("Cross attention, layer 1")


def test_text_is_never_taken_for_markup(page):
    text = "<img src=x onerror=alert(1)> <b>bold</b> &amp;"
    translate(page, text, " ".join(reversed(text.upper().split())))
    page.wait_for_selector("#map canvas")
    assert page.locator("#desk img, main b >> text=bold").count() == 0


def test_refusals_are_shown_and_the_next_text_is_translated(page, server):
    page.fill("#source", "x" * 5001)
    page.wait_for_selector("#status.bad >> text=at most 5000")
    translate(page, "fine", "FINE")
    assert page.inner_text("#status") == ""


def test_a_busy_server_is_asked_again(page, translator):
    translator.open.clear()
    page.fill("#source", "later")
    page.wait_for_selector("#status >> text=Trying again")
    translator.open.set()
    shows(page, "LATER")


def test_colours_follow_the_system_and_the_button(page):
    def paper():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = paper()
    page.emulate_media(color_scheme="dark")
    dark = paper()
    assert light != dark
    page.click("#theme")  # light, whatever the system has
    assert paper() == light
    page.reload()
    assert paper() == light
    page.click("#theme")
    page.emulate_media(color_scheme="light")
    assert paper() == dark


def test_a_phone_sees_all_of_it_without_scrolling_sideways(browser, server):
    phone = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
    with visiting(browser, server.url, **phone) as page:
        page.fill("#source", "a sentence whose attention map is wider than a phone is " * 3)
        page.wait_for_selector("#map canvas")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        top = "getBoundingClientRect().top"
        assert page.evaluate(f"target.{top} > source.{top}")
        page.locator("#target .word").first.tap()
        assert len(lit(page, "target")) == 1


def test_keys_are_asked_for_by_a_browser_that_keeps_nothing_of_sites(browser):
    keys = {"keys": frozenset({"sesame"})}
    with running(StandIn(), **keys) as server, visiting(browser, server.url) as page:
        for kind in ("localStorage", "sessionStorage"):
            page.add_init_script(
                f"Object.defineProperty(window, '{kind}',"
                " {get() { throw new DOMException('denied', 'SecurityError'); }})"
            )
        page.reload()
        page.fill("#source", "open")
        page.wait_for_selector("#status.bad")
        page.fill("#key", "wrong")
        page.click("#key-form button")
        page.wait_for_selector("text=not valid")
        page.fill("#key", "sesame")
        page.click("#key-form button")
        shows(page, "OPEN")
        assert page.is_hidden("#key-form")
        page.click("#theme")
        assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_the_api_page_shows_every_address(browser, server):
    with visiting(browser, f"{server.url}/docs") as page:
        page.wait_for_selector("pre")
        addresses = page.locator("h2.address").all_inner_texts()
        assert len(addresses) == 9 and "/translate" in addresses[0]
        assert f"curl {server.url}/translate" in page.inner_text("main")


def test_what_a_screen_reader_is_told(page):
    """Everything that can be operated has a name, and headings are in order."""
    translate(page, "one two", "TWO ONE")
    page.wait_for_selector("#map canvas")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, a, textarea, input, meter, [tabindex]')]
        .filter((each) => each.checkVisibility() && !(each.getAttribute('aria-label')
          || each.getAttribute('aria-labelledby') || each.textContent.trim()
          || each.closest('label')?.textContent.trim() || each.labels?.length))
        .map((each) => each.outerHTML)"""
    )
    assert nameless == []
    levels = page.evaluate(
        "() => [...document.querySelectorAll('h1, h2, h3')].map((each) => each.tagName)"
    )
    assert levels[0] == "H1" and set(levels[1:]) == {"H2"}
