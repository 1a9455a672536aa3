"""Documents made up at random keep their tags, and stay well-formed."""

import random
import time
from collections import Counter
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from flaxformer_mt.markup.html import read_html
from flaxformer_mt.markup.tags import tokens
from flaxformer_mt.markup.xml import read_xml
from tests.markup.pretended import pretended, soup, well_formed

SEEDS = range(150)
READERS = {"html": read_html, "xml": read_xml}


def markup(text: str) -> list[str]:
    """Every tag and comment, but for the translated attributes."""
    found = [text[token.start : token.end] for token in tokens(text) if token.kind != "text"]
    return [tag.replace("A DOG", "a dog").replace("DOG A", "a dog") for tag in found]


@pytest.mark.parametrize("form", READERS)
@pytest.mark.parametrize("backwards", [False, True])
def test_what_is_well_formed_stays_so(form, backwards):
    for seed in SEEDS:
        text = well_formed(random.Random(seed))
        out = pretended(READERS[form](text), backwards=backwards)
        root = ElementTree.fromstring(out)
        assert sum(1 for _ in root.iter()) == sum(1 for _ in ElementTree.fromstring(text).iter())


@pytest.mark.parametrize("form", READERS)
def test_words_in_the_same_order_leave_all_tags_where_they_are(form):
    for seed in SEEDS:
        text = well_formed(random.Random(seed))
        out = pretended(READERS[form](text), backwards=False)
        changed = [tag.upper() for tag in markup(text)], [tag.upper() for tag in markup(out)]
        assert changed[0] == changed[1]


@pytest.mark.parametrize("form", READERS)
def test_every_tag_and_every_letter_is_there_once(form):
    for seed in SEEDS:
        text = well_formed(random.Random(seed))
        out = pretended(READERS[form](text))
        assert letters(out) == letters(text)


def letters(text: str) -> Counter:
    """All characters but white space and the signs that may be written in two ways."""
    plain = text.upper().replace("&#160;", "").replace("&GT;", ">")
    return Counter("".join(plain.split()))


def test_soup_loses_no_tag():
    for seed in range(1500):
        text = soup(random.Random(seed))
        tags = Counter(map(str.upper, markup(pretended(read_html(text)))))
        assert tags == Counter(map(str.upper, markup(text)))


def test_soup_stays_in_order_where_tags_do_not_match():
    for seed in range(300):
        text = "one <b>two <i>three</b> four</i> five" + soup(random.Random(seed))
        out = pretended(read_html(text))
        assert markup(out)[:4] == ["<b>", "<i>", "</b>", "</i>"]


def test_nothing_of_a_document_is_lost_in_tokens():
    for seed in range(300):
        text = soup(random.Random(seed))
        found = list(tokens(text))
        assert "".join(text[token.start : token.end] for token in found) == text
        assert [token.start for token in found[1:]] == [token.end for token in found[:-1]]


class _Heard(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=False)
        self.tags = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(("start", tag, [name for name, _ in attrs]))

    def handle_endtag(self, tag):
        self.tags.append(("end", tag))


def test_tags_are_those_of_the_standard_library_in_well_formed_text():
    for seed in SEEDS:
        text = well_formed(random.Random(seed)).replace("/>", ">")
        heard = _Heard()
        heard.feed(text)
        heard.close()
        ours = [
            (token.kind, token.name, [one.name for one in token.attributes])
            if token.kind == "start"
            else (token.kind, token.name)
            for token in tokens(text)
            if token.kind in ("start", "end")
        ]
        assert ours == heard.tags


@pytest.mark.parametrize(
    "hostile",
    [
        "<",
        "<a ",
        "<a b='",
        "<!--",
        "<a =",
        "</",
        "<b>",
        "</b>",
        "&",
        "<script>",
        "<svg>",
        "<p>x",
        "<code>",
        "<a>x</a>",
        "<i></i>",
        "&#",
        "<![CDATA[",
        "<?",
        '<b x="',
        "x<br>",
        "<td>",
        "<b>x</b>",
    ],
)
def test_hostile_text_takes_linear_time(hostile):
    text = hostile * 20_000
    if hostile == "<b>":
        text = text + "x"
    assert pretended(read_html(text))


def test_a_tag_with_many_attributes_takes_linear_time():
    tag = "<meta " + "name=description content=x " * 5_000 + ">"
    start = time.process_time()
    assert len(read_html(tag).segments) == 5_000
    assert time.process_time() - start < 3  # quadratic time takes five seconds and more
