"""The paper's figures 3 to 5 from a run of ours, and two of its formulas as pictures."""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flaxformer_mt.attention.weights import pick, whole_word
from flaxformer_mt.config import freeze
from flaxformer_mt.data.prepare.make import valid_text
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.figures import paper
from flaxformer_mt.figures.canvas import Layout, rendered
from flaxformer_mt.figures.drawings import line_drawing
from flaxformer_mt.figures.find import Head, HeadFindings, attend, find_heads, sentences_of
from flaxformer_mt.figures.statistics import pronouns_of
from flaxformer_mt.reproduction.settings import TEXTS, ReproductionSettings
from flaxformer_mt.rundir.cache import local_copy
from flaxformer_mt.rundir.checkpoint_choice import list_steps
from flaxformer_mt.rundir.layout import RunDirectory, read_record
from flaxformer_mt.rundir.paths import write_bytes

# By the search for their heads. All three show the encoder's self-attention.
FIGURES = {"long distance": "figure3", "anaphora": "figure4", "structure": "figure5"}
SENTENCES = 500
Say = Callable[[str], None]


def draw_formulas(folder: Path, *, say: Say) -> None:
    """The learning rate of section 5.3 and the positions of section 3.5, of the base model."""
    _write(paper.schedule((4000,), d_model=512, steps=100_000), folder / "schedule.svg", say)
    _write(paper.positions(100, d_model=128), folder / "positions.svg", say)


def base_run(workdir: Path) -> RunDirectory | None:
    """The newest run with a checkpoint of Table 2's base for German, if possible at full scale."""
    runs = [RunDirectory(path) for path in (workdir / "runs").glob("table2_en_de_base_*")]
    trained = [run for run in runs if list_steps(run.checkpoints)]
    names = tuple(f"table2_en_de_base_{ReproductionSettings(text=text).extent}_" for text in TEXTS)
    full = [run for run in trained if run.path.name.startswith(names)]
    return max(full or trained, key=lambda run: run.config_file.stat().st_mtime, default=None)


def draw_run(folder: Path, run: RunDirectory, *, say: Say) -> None:
    """Figures 3 to 5 of a run, over its validation sentences. Raises FigureError."""
    data = freeze(read_record(run).config, str(run.config_file)).data
    sources, _ = valid_text(local_copy(run.data))
    say(f"figures 3 to 5: {run}, validation sentences")
    translator = Translator.load(run.path)
    draw_attention(folder, translator, sources, pronouns=pronouns_of(data.src_lang), say=say)


def draw_attention(
    folder: Path,
    translator: Translator,
    sources: Sequence[str],
    *,
    pronouns: Collection[str],
    say: Say,
) -> None:
    """Replaces figures 3 to 5: the encoder's heads that behave most like the paper's.

    Figure 3 shows one word's attention in all heads of a layer; figure 4 a head's map, and the
    pronoun's attention in it and in the layer's next best head; figure 5 two heads' maps. `say`
    gets the names of figures without a head. Raises FigureError if no sentence can be used.
    """
    sentences = sentences_of(translator, sources, most=SENTENCES, translated=False)
    findings = find_heads(
        sentences,
        lambda sentence: attend(translator, sentence),
        kinds=("encoder",),
        pronouns=(pronouns, ()),
        examples=1,
    )
    for search, name in FIGURES.items():
        for former in folder.glob(f"{name}_*.svg"):  # of another run, maybe, with other heads
            former.unlink()
        heads = [head for head in findings.heads if head.search.name == search and head.examples]
        if heads:
            _draw(heads[0], findings, folder / name, translator, say)
        else:
            say(f"{name} ({search}): not drawn: no head shows it on these sentences")


class _View(NamedTuple):
    """A picture of these heads (none: all), with every word's attention or the example's alone."""

    heads: tuple[int, ...]
    one_word: bool


def _draw(best: Head, findings: HeadFindings, stem: Path, translator: Translator, say: Say) -> None:
    second = _second_head(best, findings)
    both = (best.head,) if second is None else (best.head, second)
    views = {
        "long distance": [_View((), True)],
        "anaphora": [_View((best.head,), False), _View(both, True)],
        "structure": [_View((head,), False) for head in both],
    }

    example = best.examples[0]
    attention = attend(translator, example.sentence)
    say(f"  {example.query} looks at {example.key} ({example.weight:.2f}): {example.sentence.src}")
    for view in views[best.search.name]:
        picked = pick(attention, kind=best.kind, layer=best.layer, heads=view.heads)
        if view.one_word:
            queries = whole_word(picked.rows, example.row - 1)
            picked = dataclasses.replace(picked, queries=queries)
        heads = [f"head{head}" for head in view.heads] or ["all_heads"]
        words = ["one_word"] if view.one_word else []
        name = "_".join([stem.name, f"layer{best.layer}", *heads, *words])
        _write(line_drawing(picked), stem.with_name(f"{name}.svg"), say)


def _second_head(best: Head, findings: HeadFindings) -> int | None:
    """The layer's next best head by the same statistic, from 1; None if it isn't above 0."""
    statistics = findings.sums[best.kind].values()[best.search.statistic]  # [layers, heads]
    scores = np.nan_to_num(statistics[best.layer - 1])
    heads = [head for head in range(1, len(scores) + 1) if head != best.head]
    second = max(heads, key=lambda head: scores[head - 1], default=None)
    return second if second is not None and scores[second - 1] > 0 else None


def _write(layout: Layout, path: Path, say: Say) -> None:
    write_bytes(path, rendered(layout, "svg", size=None, say=say))
    say(str(path))
