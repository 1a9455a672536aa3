"""Markdown made up at random keeps its structure, whatever the translation says."""

import random
import re
from collections import Counter

import pytest

pytest.importorskip("mdit_py_plugins", reason="the extra [markdown] is not installed")
from markdown_it import MarkdownIt
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.front_matter import front_matter_plugin

from flaxformer_mt.markup.markdown import read_markdown
from flaxformer_mt.markup.placing import AlignedSentence, placed

SEEDS = range(150)
WORDS = "the old dog sleeps, I think. (so) x-y snake_case 5 Äpfel".split()
# What a text may be in a translation, and mustn't be more than text.
HOSTILE = (
    "* ** _ __ # ## - + = === --- 1. 2) > ` ``` ~~ ~~~ [a] [a](b) ![a](b) <b> </b> <!-- &amp; &lt; "
    "| |-| \\ \\* a*b* *a* _a_ ~~a~~ [ref] [^1] ^[n] <http://a.b> [x] [ ] : ::: !NOTE "
    "Setext *** ___ <div> a&b &#42; `a` [ref]: x [^1]: - | $x$"
).split(" ")
CODE = (
    "`a * b`",
    "`` ` ``",
    "https://a.example/b_c",
    "<br>",
    "&nbsp;",
    "[^1]",
    "<!-- c -->",
    "\\*",
)


def parsed(text):
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    footnote_plugin(parser)
    front_matter_plugin(parser)
    return parser.parse(text)


def blocks(text):
    return [
        (
            token.type,
            token.tag,
            token.content if "code" in token.type or token.type == "fence" else "",
        )
        for token in parsed(text)
    ]


def inline(text):
    """How often each kind of inline markup is in each block, with what stays as it is."""
    return [
        Counter(
            (
                child.type,
                child.attrs.get("href") or child.attrs.get("src"),
                child.content * ("code" in child.type),
            )
            for child in token.children
            if child.type not in ("text", "softbreak", "text_special")
        )
        for token in parsed(text)
        if token.type == "inline"
    ]


def document(rng):
    blocks = "\n\n".join(block(rng, 2) for _ in range(rng.randint(1, 5)))
    front = "---\ntitle: the dog\n---\n\n" * (rng.random() < 0.2)
    ends = "\n\n[ref]: http://a.example 'Title'\n[^1]: the note\n"
    return front + blocks + ends


def block(rng, depth):
    draw = rng.random()
    if draw < 0.35 or not depth:
        return paragraph(rng)
    if draw < 0.45:
        return "#" * rng.randint(1, 6) + " " + line(rng) + rng.choice(["", " #", " ###"])
    if draw < 0.5:
        return paragraph(rng) + "\n" + rng.choice(["===", "---"])
    if draw < 0.6:
        return indented(block(rng, depth - 1), "> ", "> ")
    if draw < 0.75:
        sign = rng.choice(["- ", "* ", "1. ", "10) ", "- [ ] "])
        items = [
            indented(block(rng, depth - 1), sign, " " * len(sign.split("[")[0])) for _ in range(2)
        ]
        return rng.choice(["\n", "\n\n"]).join(items)
    if draw < 0.85:
        rows = [f"| {line(rng)} | {line(rng)} |".replace("\n", " ") for _ in range(3)]
        return "\n".join([rows[0], "|---|:-:|", *rows[1:]])
    if draw < 0.9:
        return f"```\n{line(rng)}\n```"
    return f"<div class='a'>\n{line(rng)}\n</div>".replace("<!-- c -->", "")


def indented(text, first, others):
    lines = text.split("\n")
    return "\n".join([first + lines[0], *[(others + part).rstrip() for part in lines[1:]]])


def paragraph(rng):
    return rng.choice(["\n", " ", "  \n", "\\\n"]).join(line(rng) for _ in range(rng.randint(1, 3)))


def line(rng, depth=2, signs=("*", "_", "**", "__", "~~")):
    parts = [rng.choice(WORDS)]
    for _ in range(rng.randint(0, 5)):
        draw = rng.random()
        if draw < 0.5 or not depth:
            parts.append(rng.choice(WORDS))
        elif draw < 0.7:
            sign = rng.choice(signs)
            inner = [other for other in signs if (sign, other) != ("~~", "~~")]
            parts.append(sign + line(rng, depth - 1, inner) + sign)
        elif draw < 0.8:
            target = rng.choice(
                ["(http://a.example)", '(b.html "the title")', "[ref]", "(<c d> 'old (dog)')"]
            )
            parts.append(f"[{rng.choice(WORDS)}]{target}")
        elif draw < 0.85:
            parts.append(
                rng.choice(
                    ["![the dog](a.png)", '![the *dog*](a.png "title x")', "[ref]", "![]( )"]
                )
            )
        else:
            parts.append(rng.choice(CODE))
    return " ".join(parts)


def pretended(document, rng, *, backwards, hostile):
    contents = []
    for segment in document.segments:
        words = segment.text.upper().split()
        if hostile:
            words = [rng.choice(HOSTILE) if rng.random() < hostile else word for word in words]
        order = [*range(len(words))][:: -1 if backwards else 1]
        target = " ".join(words[word] for word in order)
        links = [(word, place) for place, word in enumerate(order)]
        contents.append(
            placed(segment, target, [AlignedSentence(segment.text, target, links=links)])
        )
    return document.joined(contents)


@pytest.mark.parametrize("hostile", [0, 0.3, 1])
@pytest.mark.parametrize("backwards", [False, True])
def test_the_structure_stays(backwards, hostile):
    for seed in SEEDS:
        rng = random.Random(seed)
        text = document(rng)
        out = pretended(read_markdown(text), rng, backwards=backwards, hostile=hostile)
        assert blocks(out) == blocks(text), f"seed {seed}"
        assert inline(out) == inline(text), f"seed {seed}"


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_all_but_text_stays_byte_for_byte(line_end):
    for seed in SEEDS:
        text = document(random.Random(seed)).replace("\n", line_end)
        parts = [part if isinstance(part, str) else None for part in read_markdown(text).parts]
        pattern = "".join("(.+?)" if part is None else re.escape(part) for part in parts)
        assert re.fullmatch(pattern, text, re.DOTALL), f"seed {seed}"
