"""What a search for heads found, as a table, as sentences for people, and as JSON."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from flaxformer_mt.figures.find import Example, Found, Head
from flaxformer_mt.figures.statistics import DEFINITIONS
from flaxformer_mt.text_table import aligned

_SHOWN = "distance entropy diagonal previous next mark far reach structure".split()


def table(found: Found) -> str:
    """A line a head; shares in percent."""
    columns = _columns(found)
    rows = []
    for kind, sums in found.sums.items():
        values = sums.values()
        for layer, head in np.ndindex(sums.shape):
            cells = [_cell(name, float(values[name][layer, head])) for name in columns]
            rows.append([kind, str(layer + 1), str(head + 1), *cells])
    return aligned(["kind", "layer", "head", *columns], rows)


def legend(found: Found) -> str:
    """What the columns of the table are."""
    lines = [f"  {name:9} {_definition(name, found)}" for name in _columns(found)]
    return "\n".join(["Over the pieces of the sentences, marks apart:", *lines])


def highlights(found: Found, *, model: Sequence[str], decoding: Sequence[str]) -> str:
    """The heads of each search, with examples and the first one's `command`."""
    blocks = []
    for search in dict.fromkeys(head.search for head in found.heads):
        lines = [f"{search.name} (by {search.statistic!r})"]
        for head in (head for head in found.heads if head.search == search):
            value = _cell(search.statistic, head.value)
            lines.append(f"  {head.kind} layer {head.layer} head {head.head}: {value}")
            for example in head.examples:
                link = f"{example.query} → {example.key} {example.weight:.0%}"
                lines.append(f"    line {example.sentence.number}: {link} · {example.sentence.src}")
            for example in head.examples[:1]:
                lines.append(f"    {command(head, example, model=model, decoding=decoding)}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def command(head: Head, example: Example, *, model: Sequence[str], decoding: Sequence[str]) -> str:
    """The command that draws an example.

    `model` are the flags that name the model, `decoding` those by which it finds a translation.
    """
    words = ["flaxformer-mt", "attention", *model, "--src", example.sentence.src]
    if head.kind != "encoder":  # which knows of no translation
        given = example.sentence.tokens is None
        words += ["--tgt", example.sentence.tgt] if given else decoding
    words += ["--kind", head.kind, "--layer", str(head.layer), "--head", str(head.head)]
    return shlex.join([*words, "--query", str(example.row), "--output", "attention.svg"])


def to_json(found: Found) -> dict[str, Any]:
    """All statistics of all heads, and the heads found; what is not defined is null."""
    heads = []
    for kind, sums in found.sums.items():
        values = sums.values()
        for layer, head in np.ndindex(sums.shape):
            of_head = {name: _finite(float(each[layer, head])) for name, each in values.items()}
            heads.append({"kind": kind, "layer": layer + 1, "head": head + 1, **of_head})
    return {
        "sentences": found.sentences,
        "far": found.far,
        "queries": {kind: sums.queries for kind, sums in found.sums.items()},
        "pronouns": {kind: sums.pronouns for kind, sums in found.sums.items()},
        "statistics": {name: _definition(name, found) for name in DEFINITIONS},
        "heads": heads,
        "found": [_head_json(head) for head in found.heads],
    }


def _head_json(head: Head) -> dict[str, Any]:
    examples = []
    for example in head.examples:
        content = dataclasses.asdict(example)
        sentence = content.pop("sentence")
        translation = sentence["tgt"] if head.kind != "encoder" else None
        about = {"source": sentence["src"], "translation": translation}
        examples.append({"line": sentence["number"], **about, **content})
    return {
        "search": head.search.name,
        "statistic": head.search.statistic,
        "kind": head.kind,
        "layer": head.layer,
        "head": head.head,
        "value": head.value,
        "examples": examples,
    }


def _columns(found: Found) -> list[str]:
    has_pronouns = any(sums.pronouns for sums in found.sums.values())
    return [*_SHOWN, *(["anaphora"] if has_pronouns else [])]


def _definition(name: str, found: Found) -> str:
    return DEFINITIONS[name].format(far=found.far)


def _cell(name: str, value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.2f}" if name in ("distance", "entropy", "structure") else f"{value:.1%}"


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value
