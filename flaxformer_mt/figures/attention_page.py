"""A sentence's attention as one HTML file, with pickers and weights on hover."""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING, Any

import numpy as np

from flaxformer_mt.figures.canvas import head_colours
from flaxformer_mt.figures.maps import (
    KINDS,
    MARKS,
    NAMES,
    SIDES,
    Kind,
    Picked,
    pick,
    shown,
    sides,
    weights_of,
    words,
)
from flaxformer_mt.pages import asset, standalone, text

if TYPE_CHECKING:
    from flaxformer_mt.decoding.teacher_forcing import Attention

UNITS = 65535  # weights are kept as whole numbers of 1/UNITS
_HERE = "flaxformer_mt.figures"


def attention_page(
    found: Attention, opens: Picked, *, src: str, tgt: str, origin: str, whose: str
) -> str:
    """The file's text. It holds all weights of all kinds, and opens with `opens`.

    `whose` says whose the translation is, and `origin` which model it comes from.
    """
    heads = max(weights_of(found, kind).shape[1] for kind in KINDS)
    data = {
        "units": UNITS,
        "colours": head_colours(heads),
        "kinds": [_kind(found, kind) for kind in KINDS],
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
        style=asset(_HERE, "page.css") + asset(_HERE, "attention.css"),
        script=asset(_HERE, "attention.js"),
        data=data,
    )


def framed(found: Attention) -> str:
    """The page in a frame, for a cell of a notebook; it opens with the decoder's last layer."""
    src, tgt = (
        " ".join(word for word, _ in words(pieces) if word not in MARKS)
        for pieces in (found.src_pieces, found.tgt_pieces)
    )
    layers, heads = found.cross.shape[:2]
    origin = f"{layers} layers of {heads} heads"
    opens = pick(found, kind="cross")
    page = attention_page(found, opens, src=src, tgt=tgt, origin=origin, whose="given")
    style = "width: 100%; height: 42em; border: 0"
    return f'<iframe srcdoc="{html.escape(page)}" style="{style}"></iframe>'


def _kind(found: Attention, kind: Kind) -> dict[str, Any]:
    weights = weights_of(found, kind)
    rows, columns = sides(found, kind)
    # Base64 of little-endian 16-bit numbers, off by at most 1/131070: a tenth of what four decimals
    # would take away, at a third of the size.
    whole = np.rint(np.clip(weights, 0.0, 1.0).astype(np.float64) * UNITS).astype("<u2")
    return {
        "kind": kind,
        "name": NAMES[kind],
        "sides": SIDES[kind],
        "rows": [shown(piece) for piece in rows],
        "columns": [shown(piece) for piece in columns],
        "shape": weights.shape,
        "weights": base64.b64encode(whole.tobytes()).decode("ascii"),
    }
