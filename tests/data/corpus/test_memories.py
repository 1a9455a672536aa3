"""Translation memories and catalogues, as their own programs write them."""

import gzip

import pytest

from flaxformer_mt.config import read_config
from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import CorpusError, Drops, read_pairs

pytestmark = pytest.mark.formats
translate = pytest.importorskip("translate", reason="needs the extra memories")

TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4">
<header creationtool="x" creationtoolversion="1" segtype="sentence" o-tmf="x" adminlang="en"
  srclang="en-US" datatype="html"/>
<body>
<tu tuid="1"><tuv xml:lang="en-US"><seg>Hello &amp; welcome.</seg></tuv>
  <tuv xml:lang="de-DE"><seg>Hallo und
    willkommen.</seg></tuv></tu>
<tu><tuv xml:lang="DE"><seg>Ein <bpt i="1">&lt;b&gt;</bpt>fettes<ept i="1">&lt;/b&gt;</ept>
  Wort<ph x="2">&lt;br/&gt;</ph></seg></tuv>
  <tuv xml:lang="en"><seg>A<ph x="2">&lt;br/&gt;</ph> <bpt i="1">&lt;b&gt;</bpt>bold<ept
  i="1">&lt;/b&gt;</ept> <hi type="x">word</hi></seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>No German.</seg></tuv><tuv xml:lang="fr"><seg>Non.</seg></tuv></tu>
</body></tmx>
"""
XLIFF = """<?xml version="1.0" encoding="utf-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file original="a" source-language="en" target-language="de-DE" datatype="plaintext"><body>
<trans-unit id="1"><source>Press <g id="1">Enter</g><x id="2"/>.</source>
  <target><x id="2"/>Die <g id="1">Eingabetaste</g> <mrk mtype="term">drücken</mrk>.</target>
</trans-unit>
<trans-unit id="2"><source>Not yet.</source></trans-unit>
</body></file></xliff>
"""
PO = r"""
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#: a.c:1
msgid "Open the file."
msgstr "Öffnen Sie die Datei."

msgid ""
"Two lines,\n"
"one text."
msgstr ""
"Zwei Zeilen,\n"
"ein Text."

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

#, fuzzy
msgid "Close."
msgstr "Öffnen."

msgid "Not yet."
msgstr ""

#~ msgid "Old."
#~ msgstr "Alt."
"""


def read(folder, name, content, **settings):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    corpus = CorpusConfig(name="a", kind="memory", path=name, **settings)
    drops = Drops()
    pairs = list(read_pairs(corpus, str(folder), drops=drops))
    return [(pair.src, pair.tgt) for pair in pairs], drops


def test_a_memory_has_the_languages_that_are_asked_for(tmp_path):
    pairs, drops = read(tmp_path, "a.tmx", TMX, src="en", tgt="de")
    expected = [
        ("Hello & welcome.", "Hallo und willkommen."),
        ("A bold word", "Ein fettes Wort"),
    ]
    assert pairs == expected
    assert [str(example) for example in drops.examples] == [
        f"{tmp_path}/a.tmx (entries):3: no finished translation: has no 'de'; there: 'en', 'fr'"
    ]
    packed, _ = read(tmp_path, "b.tmx.gz", gzip.compress(TMX.encode()), src="de_DE", tgt="en-US")
    assert packed == [expected[0][::-1]]  # of a region only that
    with pytest.raises(CorpusError, match=r"a\.src and a\.tgt must be set: languages of .*a\.tmx"):
        read(tmp_path, "a.tmx", TMX)


def test_tags_may_stand_as_symbols_that_both_sides_number_alike(tmp_path):
    pairs, _ = read(tmp_path, "a.tmx", TMX, src="en", tgt="de", inline="keep")
    assert pairs[1] == ("A<x1/> <x2>bold</x2> <x3>word</x3>", "Ein <x2>fettes</x2> Wort<x1/>")
    pairs, _ = read(tmp_path, "a.xlf", XLIFF, inline="keep")
    assert pairs == [("Press <x1>Enter</x1><x2/>.", "<x2/>Die <x1>Eingabetaste</x1> drücken.")]


def test_an_exchange_file_has_a_direction_which_languages_may_turn(tmp_path):
    expected = ("Press Enter.", "Die Eingabetaste drücken.")
    pairs, drops = read(tmp_path, "a.xliff", XLIFF)
    assert pairs == [expected] and drops.counts == {"no finished translation": 1}
    assert drops.examples[0].detail == "has no target: Not yet."
    assert read(tmp_path, "a.xliff", XLIFF, src="en", tgt="de")[0] == [expected]
    assert read(tmp_path, "a.xliff", XLIFF, src="de", tgt="en")[0] == [expected[::-1]]
    _, drops = read(tmp_path, "a.xliff", XLIFF, src="en", tgt="fr")
    assert "is from 'en' to 'de-DE'" in drops.examples[0].detail


XLIFF_2 = """<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en"
 trgLang="de"><file id="f"><unit id="1">
<segment><source>A <pc id="1">b</pc><ph id="2"/>.</source>
  <target>C <ph id="2"/><pc id="1">d</pc>.</target></segment>
<segment><source>E.</source><target>F.</target></segment></unit></file></xliff>"""


def test_the_second_version_has_a_pair_for_each_segment(tmp_path):
    pairs, _ = read(tmp_path, "a.xlf", XLIFF_2, src="de", tgt="en")
    assert pairs == [("C d.", "A b."), ("F.", "E.")]
    pairs, _ = read(tmp_path, "a.xlf", XLIFF_2, inline="keep")
    assert pairs[0] == ("A <x1>b</x1><x2/>.", "C <x2/><x1>d</x1>.")


def test_a_catalogue_gives_finished_translations_and_plurals(tmp_path):
    pairs, drops = read(tmp_path, "a.po", PO)
    assert pairs == [
        ("Open the file.", "Öffnen Sie die Datei."),
        ("Two lines, one text.", "Zwei Zeilen, ein Text."),
        ("%d file", "%d Datei"),
        ("%d files", "%d Dateien"),
    ]
    # In a test set, too, what isn't finished is no pair.
    corpus = CorpusConfig(name="a", kind="memory", path="a.po")
    assert len(list(read_pairs(corpus, str(tmp_path)))) == 4
    assert drops.counts == {"no finished translation": 3}
    with pytest.raises(
        CorpusError, match=r"a\.po: a PO file names no languages: leave out src and"
    ):
        read(tmp_path, "a.po", PO, src="en", tgt="de")


PLURALS = """
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\nPlural-Forms: nplurals={count}; plural=0;\\n"

msgid "%d file"
msgid_plural "%d files"
{forms}
"""


@pytest.mark.parametrize(
    ("targets", "sources"),
    [("a", ["%d files"]), ("ab", ["%d file", "%d files"]), ("abc", ["%d file", *["%d files"] * 2])],
)
def test_each_plural_form_of_a_language_has_a_source(tmp_path, targets, sources):
    forms = "\n".join(f'msgstr[{number}] "{form}"' for number, form in enumerate(targets))
    content = PLURALS.format(count=len(targets), forms=forms)
    pairs, drops = read(tmp_path, "a.po", content)
    assert pairs == list(zip(sources, targets, strict=True)) and drops.total == 0


def tmx_of(*variants, doctype=""):
    segments = (f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in variants)
    header = '<header creationtool="x" creationtoolversion="1" segtype="sentence" o-tmf="x"'
    header += ' adminlang="en" srclang="en" datatype="html"/>'
    return f'{doctype}<tmx version="1.4">{header}<body><tu>{"".join(segments)}</tu></body></tmx>'


def test_variants_of_a_language_are_pairs_of_their_own(tmp_path):
    content = tmx_of(("en", "Yes"), ("de", "Ja"), ("de", "Jawohl"), ("de-AT", " "))
    pairs, drops = read(tmp_path, "a.tmx", content, src="en", tgt="de")
    assert pairs == [("Yes", "Ja"), ("Yes", "Jawohl")] and drops.total == 0
    # With its own statement of how it is encoded, as Trados writes it.
    packed = ('<?xml version="1.0" encoding="UTF-16"?>' + content).encode("utf-16")
    assert read(tmp_path, "b.tmx", packed, src="en", tgt="de")[0] == pairs


def test_tags_of_two_sides_are_the_same_by_their_x_and_not_by_their_i(tmp_path):
    def pair(i, x, text):
        return f'<bpt i="{i}" x="{x}">b</bpt>{text}<ept i="{i}">b</ept>'

    content = tmx_of(
        ("en", f"{pair(1, 1, 'Save')} or {pair(2, 2, 'quit')}<hi>!</hi>"),
        ("de", f"{pair(1, 2, 'Beenden')} oder {pair(2, 1, 'sichern')}<hi>.</hi>"),
    )
    pairs, _ = read(tmp_path, "a.tmx", content, src="en", tgt="de", inline="keep")
    expected = "<x2>Beenden</x2> oder <x1>sichern</x1><x3>.</x3>"
    assert pairs == [("<x1>Save</x1> or <x2>quit</x2><x3>!</x3>", expected)]


@pytest.mark.parametrize("state", ['state="new"', 'state="needs-translation"'])
def test_targets_that_are_no_translations_yet_are_no_pairs(tmp_path, state):
    content = XLIFF.replace("<target>", f"<target {state}>", 1)
    pairs, drops = read(tmp_path, "a.xlf", content)
    assert pairs == [] and drops.counts == {"no finished translation": 2}


@pytest.mark.parametrize("name", ["a.tmx", "a.xliff", "a.po"])
def test_files_that_the_library_writes_are_read(tmp_path, name):
    from translate.storage import factory

    store = factory.getclass(name)()
    for language, set_language in (("en", "setsourcelanguage"), ("de", "settargetlanguage")):
        getattr(store, set_language)(language)
    expected = [("One < two & three.", "Eins < zwei & drei."), ("ﬁ 中文", "größer")]
    for src, tgt in expected:
        unit = store.addsourceunit(src)
        if name == "a.tmx":
            unit.settarget(tgt, "de")
        else:
            unit.target = tgt
    store.savefile(str(tmp_path / name))
    content = (tmp_path / name).read_bytes()
    languages = {} if name == "a.po" else {"src": "en", "tgt": "de"}
    assert read(tmp_path, name, content, **languages)[0] == expected


@pytest.mark.parametrize("name", ["a.tmx", "a.xliff"])
def test_what_is_not_such_a_file_is_an_error(tmp_path, name):
    for content in ("", "plain text", "<html/>", TMX[:400], b"\xff\xfe\x00"):
        with pytest.raises(CorpusError, match=rf"{name}: (cannot be read as|is UTF-16)"):
            read(tmp_path, name, content, src="en", tgt="de")


def test_a_file_s_name_shows_its_kind():
    for text in ("x.tmx,en,de", "x.xlf", "x.po.gz"):
        (corpus,) = read_config("files", [f"data.train={text}"]).data.train
        assert corpus.kind == "memory"
