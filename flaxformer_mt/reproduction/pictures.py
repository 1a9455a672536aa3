"""The paper's figures 3 to 5 from a run of ours, and two of its formulas as pictures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from flaxformer_mt.decoding import Translator
from flaxformer_mt.figures import paper
from flaxformer_mt.figures.canvas import Layout, rendered
from flaxformer_mt.figures.find import Head, find_heads
from flaxformer_mt.figures.line_drawing import line_drawing
from flaxformer_mt.figures.maps import pick, weights_of
from flaxformer_mt.figures.sentences import attend, sentences_of
from flaxformer_mt.rundir.atomic import write_bytes

# Of the encoder's self-attention all three, as in the paper; and how many heads each shows.
FIGURES = {"long distance": ("figure3", 1), "anaphora": ("figure4", 2), "structure": ("figure5", 2)}
SENTENCES = 500
Say = Callable[[str], None]


def draw_formulas(folder: Path, *, say: Say) -> None:
    """The learning rate of section 5.3 and the positions of section 3.5, of the base model."""
    _write(paper.schedule((4000,), d_model=512, steps=100_000), folder / "schedule.svg", say)
    _write(paper.positions(100, d_model=128), folder / "positions.svg", say)


def draw_attention(
    folder: Path,
    translator: Translator,
    sources: Sequence[str],
    *,
    pronouns: Collection[str],
    say: Say,
) -> list[str]:
    """Figures 3 to 5: the heads of the encoder that show best what the paper's showed.

    They are looked for over the first `SENTENCES` of `sources` that fit the model. The names of
    figures for which there is no head are returned: none looks far, or no sentence has a pronoun.
    Raises FigureError where no sentence can be used.
    """
    sentences = sentences_of(translator, sources, most=SENTENCES, translated=False)
    found = find_heads(
        sentences.used,
        lambda sentence: attend(translator, sentence),
        kinds=("encoder",),
        pronouns=(pronouns, ()),
        examples=1,
    )
    missing = []
    for search, (name, count) in FIGURES.items():
        heads = [head for head in found.heads if head.search.name == search and head.examples]
        for head in heads[:count]:
            _draw(head, folder, name, translator, say)
        if not heads:
            missing.append(f"{name} ({search})")
    return missing


def _draw(head: Head, folder: Path, name: str, translator: Translator, say: Say) -> None:
    example = head.examples[0]
    attention = attend(translator, example.sentence)
    picked = pick(attention, kind=head.kind, layer=head.layer, heads=(head.head,))
    layout = line_drawing(picked, heads=weights_of(attention, head.kind).shape[1])
    _write(layout, folder / f"{name}_layer{head.layer}_head{head.head}.svg", say)
    say(f"  {example.query} looks at {example.key} ({example.weight:.2f}): {example.sentence.src}")


def _write(layout: Layout, path: Path, say: Say) -> None:
    write_bytes(path, rendered(layout, "svg", size=None, say=say))
    say(str(path))
