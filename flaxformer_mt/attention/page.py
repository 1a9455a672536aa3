"""An HTML file of a sentence's attention, with pickers and weights on hover."""

import base64
import html
from typing import Any

import numpy as np

from flaxformer_mt.attention import KINDS, Kind
from flaxformer_mt.attention.weights import (
    MARKS,
    NAMES,
    SIDES,
    AttentionWeights,
    Picked,
    pick,
    shown,
    sides,
    weights_of,
    words,
)
from flaxformer_mt.colours import head_colours
from flaxformer_mt.pages import asset, figure_style, standalone, text

UNITS = 65535  # weights are kept as whole numbers of 1/UNITS
_HERE = "flaxformer_mt.attention"


def attention_page(
    attention: AttentionWeights, opens: Picked, *, src: str, tgt: str, origin: str, whose: str
) -> str:
    """The file's text, with all weights of all kinds; it opens with `opens`. `whose` says whose the
    translation is, and `origin` which model it comes from."""
    heads = max(weights_of(attention, kind).shape[1] for kind in KINDS)
    data = {
        "units": UNITS,
        "colours": head_colours(heads),
        "kinds": [_kind(attention, kind) for kind in KINDS],
        "opens": {
            "kind": opens.kind,
            "layer": opens.layer - 1,
            "heads": [head - 1 for head in opens.heads],
            "row": opens.queries[0] if opens.queries else None,
        },
    }
    body = f"""<header>
<h1>What each head attends to</h1>
<dl>
<div><dt>source</dt><dd dir="auto">{text(src)}</dd></div>
<div><dt>translation ({text(whose)})</dt><dd dir="auto">{text(tgt) or "<em>(empty)</em>"}</dd></div>
<div><dt>model</dt><dd>{text(origin)}</dd></div>
</dl>
</header>
<main>
<noscript><p>This page needs JavaScript to draw its pictures.</p>
</noscript>
<form id="pickers" hidden>
<fieldset id="kinds"><legend>Attention</legend></fieldset>
<fieldset id="layers"><legend>Layer</legend></fieldset>
<fieldset id="heads"><legend>Heads</legend></fieldset>
<fieldset id="views"><legend>As</legend></fieldset>
</form>
<p id="reading" aria-live="polite"></p>
<div id="stage" tabindex="0" role="application" aria-roledescription="attention"
 aria-label="Attention. Arrow keys move through pieces, Escape shows all."
 aria-describedby="reading"></div>
</main>"""
    return standalone(
        f"Attention: {src}",
        body=body,
        style=figure_style(_HERE, "attention.css"),
        script=asset(_HERE, "attention.js"),
        data=data,
    )


def framed(attention: AttentionWeights) -> str:
    """The page in a frame, for a cell of a notebook; it opens with the decoder's last layer."""
    src, tgt = (
        " ".join(word for word, _ in words(pieces) if word not in MARKS)
        for pieces in (attention.src_pieces, attention.tgt_pieces)
    )
    layers, heads = attention.cross.shape[:2]
    origin = f"{layers} layers of {heads} heads"
    opens = pick(attention, kind="cross")
    page = attention_page(attention, opens, src=src, tgt=tgt, origin=origin, whose="given")
    style = "width: 100%; height: 42em; border: 0"
    return f'<iframe srcdoc="{html.escape(page)}" style="{style}"></iframe>'


def _kind(attention: AttentionWeights, kind: Kind) -> dict[str, Any]:
    weights = weights_of(attention, kind)
    rows, columns = sides(attention, kind)
    # Base64 of little-endian 16-bit numbers, off by at most 1/131070: a tenth of the error of four
    # decimals, at a third of the size.
    units = np.rint(np.clip(weights, 0.0, 1.0).astype(np.float64) * UNITS).astype("<u2")
    return {
        "kind": kind,
        "name": NAMES[kind],
        "sides": SIDES[kind],
        "rows": [*map(shown, rows)],
        "columns": [*map(shown, columns)],
        "shape": weights.shape,
        "weights": base64.b64encode(units.tobytes()).decode("ascii"),
    }
