"""What is translated of XML, what is refused, and what stays byte for byte."""

import pytest

from flaxformer_mt.markup.document import MarkupError
from flaxformer_mt.markup.xml import read_xml
from tests.markup.pretended import pretended

BOOK = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE book [<!ENTITY chapter SYSTEM "/etc/passwd"><!ENTITY me "Me">]>
<?style x?><!-- c -->
<book  id='1' ><title>a &lt;b&gt;</title>
  <para>an <emph>old
  <Big>dog</Big></emph>&#160;&chapter; <x/>here</para>
  <list><item>one</item><item>two <x/></item></list>
  <a><b/></a><![CDATA[ <p>text</p> ]]>
</book>
"""


def test_text_is_translated_and_all_else_stays():
    expected = BOOK
    for before, after in [
        ("a &lt;b&gt;", "&lt;B&gt; A"),
        ("an <emph>old\n  <Big>dog</Big></emph>", "HERE <emph><Big>DOG</Big> OLD</emph>"),
        ("&#160;&chapter; <x/>here", " &chapter; <x/>AN"),
        ("one", "ONE"),
        ("two", "TWO"),
    ]:
        expected = expected.replace(before, after)
    assert pretended(read_xml(BOOK)) == expected


def test_elements_with_text_of_their_own_are_texts():
    def texts(text, **options):
        return [segment.text for segment in read_xml(text, **options).segments]

    assert texts("<a><b>one</b><b>two</b></a>") == ["one", "two"]
    assert texts("<a>x <b>one</b><b>two</b></a>") == ["x onetwo"]
    assert texts("<a>x <b>one</b></a>", keep=["b"]) == ["x"]
    assert texts("<a>x <b translate='no'>one</b> y</a>") == ["x y"]
    assert texts("<a translate='no'>x <b translate='yes'>one</b></a>") == ["one"]
    assert texts("<a its:translate='no'><b>one</b></a>") == []


def test_names_are_told_apart_by_case():
    text = "<a><Code>x</Code><code>y</code></a>"
    assert pretended(read_xml(text, keep=["Code"])) == "<a><Code>x</Code><code>Y</code></a>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<a>\n<b></a>", "line 2: not well-formed XML: mismatched tag"),
        ("<a>&unknown;</a>", "line 1: not well-formed XML: undefined entity"),
        ("", "line 1: not well-formed XML: no element found"),
        ("<a/>\n<b/>", "line 2: not well-formed XML: junk after document element"),
        ('<!DOCTYPE a [<!ENTITY b "&c;">]><a/>', "line 1: the entity 'b' is long or refers to"),
        (f'<!DOCTYPE a [<!ENTITY b "{"x" * 1001}">]><a/>', "the entity 'b' is long"),
    ],
)
def test_what_cannot_be_read_safely_is_refused(text, message):
    with pytest.raises(MarkupError, match=message):
        read_xml(text)


def test_entities_are_not_expanded():
    text = '<!DOCTYPE a [<!ENTITY b "<c/>"><!ENTITY d SYSTEM "x">]><a>x &b;&d; y</a>'
    assert pretended(read_xml(text)).endswith("<a>Y X &b;&d;</a>")


def test_the_declared_encoding_does_not_matter():
    text = '<?xml version="1.0" encoding="ISO-8859-1"?><a>Ärger</a>'
    assert pretended(read_xml(text)) == text.replace("Ärger", "ÄRGER")


def test_deep_documents_are_read():
    text = "<a>" * 50_000 + "x" + "</a>" * 50_000
    assert pretended(read_xml(text)) == text.replace("x", "X")
