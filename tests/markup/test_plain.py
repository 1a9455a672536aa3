"""Plain text and subtitles."""

import pytest

from flaxformer_mt.markup.document import MarkupError
from flaxformer_mt.markup.plain import read_plain, read_subtitles
from tests.markup.pretended import pretended

TIMES = "00:00:01,000 --> 00:00:02,500"


def test_each_line_is_a_text():
    assert pretended(read_plain("One two.\r\n\r\n  a < b & c\t\n---")) == (
        "TWO. ONE\r\n\r\n  C & B < A\t\n---"
    )


@pytest.mark.parametrize(
    ("cue", "translated"),
    [
        ("one two", "TWO ONE"),
        ("one two\nthree four", "FOUR THREE\nTWO ONE"),
        ("one two three\nfour", "FOUR THREE\nTWO ONE"),
        ("- One two.\n- Three four?", "- TWO. ONE\n- FOUR? THREE"),
        ("<i>one two</i> three", "THREE <i>TWO ONE</i>"),
        ("{\\an8}one two", "{\\an8}TWO ONE"),
        ("<v Anna>one two</v>", "<v Anna>TWO ONE</v>"),
        ("♪", "♪"),
        ("<c.loud>one two</c> three", "THREE <c.loud>TWO ONE</c>"),
    ],
)
def test_a_cue_keeps_its_lines_and_tags(cue, translated):
    source = f"7\n{TIMES}\n{{}}\n\n9\n{TIMES} align:left\nlast\n"
    assert pretended(read_subtitles(source.format(cue))) == (
        source.format(translated).replace("last", "LAST")
    )


@pytest.mark.parametrize("times", [TIMES, "00:01 --> 00:02"])
def test_a_cue_may_follow_without_an_empty_line(times):
    source = f"1\n{times}\n{{}}\n2\n{times}\n3\n{times}\n{{}}"
    assert pretended(read_subtitles(source.format("one two\nsix", "three four"))) == (
        source.format("SIX\nTWO ONE", "FOUR THREE")
    )


def test_notes_and_styles_of_webvtt_stay():
    head = "WEBVTT\n\nNOTE one\ntwo\n\nSTYLE\n::cue { color: red }\n\n"
    head += "intro\n00:01.000 --> 00:02.000\n"
    assert pretended(read_subtitles(head + "one two\n")) == head + "TWO ONE\n"


def test_references_of_webvtt_are_read_and_written():
    cue = "WEBVTT\n\n00:01.000 --> 00:02.000\n{}\n"
    source = cue.format("a &lt;b&gt; R&amp;D\n<i>x&nbsp;y &x; AT&T</i>")
    texts = [segment.text for segment in read_subtitles(source).segments]
    assert texts == ["a <b> R&D x y &x; AT&T"]
    written = pretended(read_subtitles(cue.format("- a &lt;b&gt;\n- R&amp;D is AT&T")))
    assert written == cue.format("- &lt;B&gt; A\n- AT&amp;T IS R&amp;D")
    without_text = cue.format("&lt;\n&gt;").replace("\n", "\r\n")
    assert pretended(read_subtitles(without_text)) == without_text
    srt = f"1\n{TIMES}\n{{}}\n"
    assert pretended(read_subtitles(srt.format("R&D is"))) == srt.format("IS R&D")


@pytest.mark.parametrize(
    "hostile", ["<a", "<" + "a" * 50, "{", "- ", "a ", "<i>", "</i>", "&", "&lt;"]
)
def test_hostile_cues_take_linear_time(hostile):
    assert pretended(read_subtitles(f"{TIMES}\n" + hostile * 10_000))
    assert pretended(read_subtitles(f"WEBVTT\n{TIMES}\n" + hostile * 10_000))
    assert pretended(read_subtitles(f"{TIMES}\n<" + "a" * 200_000))


@pytest.mark.parametrize(
    "source", ["WEBVTT", "WEBVTT\n", "WEBVTT - one two\r\n\r\nNOTE three four\r\n\r\n", "WEBVTT\tx"]
)
def test_webvtt_without_cues_stays(source):
    document = read_subtitles(source)
    assert not document.segments and pretended(document) == source


@pytest.mark.parametrize("source", ["", "WEBVTTX\n", "1\n\none two\n"])
def test_srt_without_cues_is_refused(source):
    with pytest.raises(MarkupError, match="not subtitles"):
        read_subtitles(source)


def test_what_has_no_cues_is_refused():
    with pytest.raises(MarkupError, match="not subtitles: it has no line such as"):
        read_subtitles("one\ntwo\n")
