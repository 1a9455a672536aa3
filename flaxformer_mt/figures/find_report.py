"""What a search for heads found, as a table, as sentences for people, and as JSON."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from flaxformer_mt.figures.find import Example, Found, Head
from flaxformer_mt.figures.statistics import DEFINITIONS
from flaxformer_mt.text_table import aligned

_SHOWN = (
    "distance",
    "entropy",
    "diagonal",
    "previous",
    "next",
    "mark",
    "far",
    "reach",
    "structure",
)


def table(found: Found) -> str:
    """A line a head; shares in percent."""
    columns = [*_SHOWN, *(["anaphora"] if _has_pronouns(found) else [])]
    rows = []
    for kind, sums in found.sums.items():
        values = sums.values()
        for layer, head in np.ndindex(sums.entropy.shape):
            cells = [_cell(name, float(values[name][layer, head])) for name in columns]
            rows.append([kind, str(layer + 1), str(head + 1), *cells])
    return aligned(["kind", "layer", "head", *columns], rows)


def legend(found: Found) -> str:
    """What the columns of the table are."""
    columns = [*_SHOWN, *(["anaphora"] if _has_pronouns(found) else [])]
    lines = [f"  {name:9} {_definition(name, found)}" for name in columns]
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
                lines.append(f"    line {example.sentence.number}: {_link(example)}")
            if head.examples:
                drawn = command(head, head.examples[0], model=model, decoding=decoding)
                lines.append(f"    {drawn}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def command(
    head: Head,
    example: Example,
    *,
    model: Sequence[str],
    decoding: Sequence[str],
    output: str = "attention.svg",
) -> str:
    """The command that draws an example.

    `model` are the flags that name the model, `decoding` those by which it finds a translation.
    """
    words = ["flaxformer-mt", "attention", *model, "--src", example.sentence.src]
    if head.kind != "encoder":  # which knows of no translation
        given = example.sentence.tokens is None
        words += ["--tgt", example.sentence.tgt] if given else decoding
    words += ["--kind", head.kind, "--layer", str(head.layer), "--head", str(head.head)]
    return shlex.join([*words, "--query", str(example.row), "--output", output])


def to_json(found: Found) -> dict[str, Any]:
    """All statistics of all heads, and the heads found; what is not defined is null."""
    heads = []
    for kind, sums in found.sums.items():
        values = sums.values()
        for layer in range(sums.entropy.shape[0]):
            for head in range(sums.entropy.shape[1]):
                of_head = {name: _finite(each[layer, head]) for name, each in values.items()}
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
    return {
        "search": head.search.name,
        "statistic": head.search.statistic,
        "kind": head.kind,
        "layer": head.layer,
        "head": head.head,
        "value": head.value,
        "examples": [
            {
                "line": example.sentence.number,
                "source": example.sentence.src,
                "translation": example.sentence.tgt if head.kind != "encoder" else None,
                "value": example.value,
                "row": example.row,
                "column": example.column,
                "query": example.query,
                "key": example.key,
                "weight": example.weight,
            }
            for example in head.examples
        ],
    }


def _link(example: Example) -> str:
    return f"{example.query} → {example.key} {example.weight:.0%} · {example.sentence.src}"


def _definition(name: str, found: Found) -> str:
    return DEFINITIONS[name].format(far=found.far)


def _has_pronouns(found: Found) -> bool:
    return any(sums.pronouns for sums in found.sums.values())


def _cell(name: str, value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.2f}" if name in ("distance", "entropy", "structure") else f"{value:.1%}"


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
