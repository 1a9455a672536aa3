"""Word and OpenDocument texts made up at random lose nothing, whatever is within what."""

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from flaxformer_mt.markup.opendocument import read_opendocument
from flaxformer_mt.markup.word import read_word
from tests.markup.archives import OPEN, WORD, run
from tests.markup.pretended import pretended

SEEDS = range(200)
# What a translation may have more of or less of: pieces of text in one format.
_REWRITTEN = {"r", "t", "rPr", "b", "i", "proofErr"}


class _MadeUp:
    """Writes paragraphs with new words, so that each is in the document once."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._words: Iterator[str] = (f"word{number}" for number in itertools.count())

    def word_paragraphs(self, depth: int) -> str:
        count = self._rng.randint(1, 3)
        return "".join(f"<w:p>{self._word_inline(depth)}</w:p>" for _ in range(count))

    def _word_inline(self, depth: int) -> str:
        return "".join(self._word_piece(depth) for _ in range(self._rng.randint(0, 5)))

    def _word_piece(self, depth: int) -> str:
        draw = self._rng.random()
        if draw < 0.4 or not depth:
            return self._run()
        if draw < 0.6:
            return f"<w:r>{self._word_box(depth)}</w:r>"
        if draw < 0.8:
            return self._field(depth)
        around = self._rng.choice(["hyperlink", "ins", "del", "fldSimple", "moveFrom", "sdt"])
        return f"<w:{around}>{self._word_inline(depth - 1)}</w:{around}>"

    def _run(self) -> str:
        text = " " * self._rng.randint(0, 1) + next(self._words) + " " * self._rng.randint(0, 1)
        others = [run("..."), "<w:proofErr/>", "<w:r><w:tab/></w:r>"]
        others.append(f"<w:bookmarkStart w:id='{text}'/>")
        if self._rng.random() < 0.5:
            return self._rng.choice(others)
        return run(text, self._rng.choice(["", "<w:b/>", "<w:i/>"]))

    def _word_box(self, depth: int) -> str:
        inner = f"<w:txbxContent>{self.word_paragraphs(depth - 1)}</w:txbxContent>"
        name = self._rng.choice(["w:pict", "w:drawing", "w:object"])
        return f"<{name}><v:textbox>{inner}</v:textbox></{name}>"

    def _field(self, depth: int) -> str:
        """A field, mostly a complete one."""
        code = self._rng.choice(["PAGE", "SHAPE \\* MERGEFORMAT", "HYPERLINK x"])
        marks = [f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in _FIELD_MARKS]
        inner = [f"<w:r><w:instrText>{code}</w:instrText></w:r>", self._word_inline(depth - 1), ""]
        if self._rng.random() < 0.1:
            inner[0] += self._word_inline(depth - 1)
        if self._rng.random() < 0.1:
            del marks[self._rng.randrange(3)]
        parts = [*itertools.chain.from_iterable(zip(marks, inner, strict=False))]
        if self._rng.random() < 0.2:
            start = self._rng.randrange(len(parts))
            parts.insert(self._rng.randint(start, len(parts)), "</w:ins>")
            parts.insert(start, "<w:ins>")
        return "".join(parts)

    def open_paragraphs(self, depth: int) -> str:
        count = self._rng.randint(1, 3)
        return "".join(f"<text:p>{self._open_inline(depth)}</text:p>" for _ in range(count))

    def _open_inline(self, depth: int) -> str:
        return "".join(self._open_piece(depth) for _ in range(self._rng.randint(0, 5)))

    def _open_piece(self, depth: int) -> str:
        draw = self._rng.random()
        if draw < 0.5 or not depth:
            word = next(self._words)
            points = [f"<text:date>{word}</text:date>", "<text:s/>", "..."]
            points.append(f"<text:bookmark-start text:name='{word}'/>")
            return self._rng.choice([word, f" {word} ", f"{word} ", *points])
        name = self._rng.choice(["draw:frame", "text:note", "office:annotation", "text:ruby"])
        if draw < 0.75:
            return f"<{name}>{self.open_paragraphs(depth - 1)}</{name}>"
        name = self._rng.choice(["text:span", "text:a", "text:meta", "text:placeholder"])
        return f"<{name}>{self._open_inline(depth - 1)}</{name}>"


_FIELD_MARKS = ("begin", "separate", "end")


def _contents(text: str) -> tuple[Counter[str], Counter[str]]:
    """How often each element with its attributes is in a document, and each word."""
    root = ElementTree.fromstring(text.replace(" xmlns:", ' xmlns:v="v" xmlns:draw="d" xmlns:', 1))
    elements = Counter(
        f"{element.tag} {sorted(element.attrib.items())}"
        for element in root.iter()
        if element.tag.rpartition("}")[2] not in _REWRITTEN
    )
    words = "".join(root.itertext()).upper()
    return elements, Counter(re.findall(r"WORD\d+|[.]", words))


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("format", ["docx", "odt"])
def test_every_element_and_every_word_is_there_once(format, backwards):
    for seed in SEEDS:
        made_up = _MadeUp(seed)
        if format == "docx":
            text = WORD.format(made_up.word_paragraphs(3))
            translated = pretended(read_word(text), backwards=backwards)
        else:
            text = OPEN.format(made_up.open_paragraphs(3))
            translated = pretended(read_opendocument(text), backwards=backwards)
        assert _contents(translated) == _contents(text), seed
