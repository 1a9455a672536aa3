"""The paper's figures 3 to 5 from a run of ours, and two of its formulas as pictures."""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np

from flaxformer_mt.config import freeze
from flaxformer_mt.data.prepare.make import valid_text
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.figures import paper
from flaxformer_mt.figures.canvas import Layout, rendered
from flaxformer_mt.figures.drawings import line_drawing
from flaxformer_mt.figures.find import Head, HeadFindings, attend, find_heads, sentences_of
from flaxformer_mt.figures.maps import pick, whole_word
from flaxformer_mt.figures.statistics import pronouns_of
from flaxformer_mt.reproduction.settings import TEXTS, ReproductionSettings
from flaxformer_mt.rundir.cache import local_copy
from flaxformer_mt.rundir.checkpoint_choice import list_steps
from flaxformer_mt.rundir.layout import RunDirectory, read_record
from flaxformer_mt.rundir.paths import write_bytes

# By the search that finds what each shows; of the encoder's self-attention all three.
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
    """Replaces figures 3 to 5: the encoder's heads that best show what the paper's showed.

    Figure 3 is what one word looks at, by all heads of a layer; figure 4 a head's map, and what it
    and the layer's next best make of the pronoun; figure 5 two heads' maps. `say` gets the names of
    figures without a head. Raises FigureError if no sentence can be used.
    """
    sentences = sentences_of(translator, sources, most=SENTENCES, translated=False)
    found = find_heads(
        sentences,
        lambda sentence: attend(translator, sentence),
        kinds=("encoder",),
        pronouns=(pronouns, ()),
        examples=1,
    )
    for search, name in FIGURES.items():
        for old in folder.glob(f"{name}_*.svg"):  # of another run, maybe, with other heads
            old.unlink()
        heads = [head for head in found.heads if head.search.name == search and head.examples]
        if heads:
            _draw(heads[0], found, folder / name, translator, say)
        else:
            say(f"{name} ({search}): not drawn: no head shows it on these sentences")


def _draw(best: Head, found: HeadFindings, stem: Path, translator: Translator, say: Say) -> None:
    values = np.nan_to_num(found.sums[best.kind].values()[best.search.statistic][best.layer - 1])
    others = [head for head in range(1, len(values) + 1) if head != best.head]
    second = max(others, key=lambda head: values[head - 1], default=None)
    both: tuple[int, ...] = (best.head,)
    if second is not None and values[second - 1] > 0:
        both = best.head, second
    # Heads (none: all), and whether for one word only.
    views: dict[str, list[tuple[tuple[int, ...], bool]]] = {
        "long distance": [((), True)],
        "anaphora": [(both[:1], False), (both, True)],
        "structure": [((head,), False) for head in both],
    }
    example = best.examples[0]
    attention = attend(translator, example.sentence)
    say(f"  {example.query} looks at {example.key} ({example.weight:.2f}): {example.sentence.src}")
    for heads, alone in views[best.search.name]:
        picked = pick(attention, kind=best.kind, layer=best.layer, heads=heads)
        if alone:
            queries = whole_word(picked.rows, example.row - 1)
            picked = dataclasses.replace(picked, queries=queries)
        named = [f"head{head}" for head in heads] or ["all_heads"]
        parts = [stem.name, f"layer{best.layer}", *named, *(["one_word"] if alone else [])]
        _write(line_drawing(picked), stem.with_name("_".join(parts) + ".svg"), say)


def _write(layout: Layout, path: Path, say: Say) -> None:
    write_bytes(path, rendered(layout, "svg", size=None, say=say))
    say(str(path))
