"""A pretended translation, whose alignment is known: the same words in capitals, backwards or not;
and documents made up at random."""

import random

from flaxformer_mt.markup.document import Document
from flaxformer_mt.markup.placing import AlignedSentence, placed

WORDS = "the old dog sleeps, I think. 1 < 2 & you? yes; Äpfel x-y (so) H2O".split()
INLINE = ("b", "i", "a", "span", "em", "x-y")
POINTS = (
    "<br/>",
    '<img alt="a dog"/>',
    "<!-- c -->",
    "<wbr/>",
    "<?p i?>",
    "<code>&lt;b&gt;</code>",
)
BLOCKS = ("p", "div", "li", "td", "h1")
BLANKS = ("", " ", "  ", "\n", "&#160;")


def pretended(document: Document, *, backwards: bool = True) -> str:
    """The document in the pretended language."""
    contents = []
    for segment in document.segments:
        words = segment.text.upper().split()
        count = len(words)
        order = [*reversed(range(count))] if backwards else [*range(count)]
        target = " ".join(words[word] for word in order)
        links = [(word, place) for place, word in enumerate(order)]
        sentence = AlignedSentence(segment.text, target, links=links)
        contents.append(placed(segment, target, [sentence]))
    return document.joined(contents)


def well_formed(rng: random.Random, depth: int = 3) -> str:
    """A well-formed document, as XML and as HTML."""
    blocks = "".join(_block(rng, depth) for _ in range(rng.randint(1, 3)))
    return f"<body>{blocks}</body>"


def _block(rng: random.Random, depth: int) -> str:
    name = rng.choice(BLOCKS)
    inner = _inline(rng, depth)
    if depth and name == "div" and rng.random() < 0.5:
        inner += _block(rng, depth - 1)
    return f"{rng.choice(BLANKS[:4])}<{name} class='x'>{inner}</{name}>"


def _inline(rng: random.Random, depth: int) -> str:
    parts = []
    for _ in range(rng.randint(0, 5)):
        draw = rng.random()
        if draw < 0.5 or not depth:
            parts.append(_words(rng))
        elif draw < 0.8:
            name = rng.choice(INLINE)
            title = rng.choice(["", ' title="one &amp; two"', " href='x'"])
            parts.append(f"<{name}{title}>{_inline(rng, depth - 1)}</{name}>")
        else:
            parts.append(rng.choice(POINTS))
        parts.append(rng.choice(BLANKS))
    return "".join(parts)


def _words(rng: random.Random) -> str:
    words = [rng.choice(WORDS) for _ in range(rng.randint(1, 4))]
    return " ".join(words).replace("&", "&amp;").replace("<", "&lt;")


def soup(rng: random.Random) -> str:
    """Tags in any order, also cut short."""
    tags = [f"<{slash}{name}>" for name in (*INLINE, *BLOCKS) for slash in ("", "/")]
    odd = ["<", "&", "<br>", "<b/>", "</", "<p class='", '<a title="x">', "<!-- ", "-->", "<pre>"]
    odd += ["</pre>", "<script>", "</script>", "<title>", "<svg>", "</svg>", "<code>", "<i a=b c>"]
    parts = [rng.choice([*tags, *odd, *POINTS, *WORDS, " ", "\n"]) for _ in range(40)]
    return "".join(parts)
