#!/usr/bin/env bash
# joeynmt 2.3.0: without `layer_norm` in its config, a Transformer's encoder normalises before each sub-layer (pre-LN)
# and lacks the normalisation after the last one, which pre-LN needs: its outputs are sums that nothing bounds. The
# decoder normalises after each sub-layer (post-LN). The classes' own default is "post" throughout; the encoder asks
# for "pre" in one place and for "post" in another.
#
# `docs/coming_from.md` says so to those who bring a config along: state `layer_norm`, or the models differ.
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
# importlib_metadata: joeynmt imports it and doesn't ask for it.
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check joeynmt==2.3.0 torch==2.13.0 \
    importlib_metadata==10.2.0

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import importlib.metadata
import sys

import torch
from joeynmt.decoders import TransformerDecoder
from joeynmt.encoders import TransformerEncoder

versions = (f"{name} {importlib.metadata.version(name)}" for name in ("torch", "joeynmt"))
print("Python", sys.version.split()[0], *versions)
torch.manual_seed(1)
sizes = {"hidden_size": 64, "ff_size": 64, "num_layers": 6, "num_heads": 2, "dropout": 0.0}
forms = {}
for setting in (None, "pre", "post"):
    given = {} if setting is None else {"layer_norm": setting}
    encoder = TransformerEncoder(**sizes, emb_size=64, emb_dropout=0.0, **given)
    decoder = TransformerDecoder(**sizes, vocab_size=10, **given)
    forms[setting] = [
        (stack.layers[0]._layer_norm_position, stack.layer_norm is not None)
        for stack in (encoder, decoder)
    ]
    embedded = 30 * torch.randn(1, 5, 64)
    output, _ = encoder(embedded, torch.tensor([5]), torch.ones(1, 1, 5, dtype=torch.bool))
    for stack, (position, last) in zip(("encoder", "decoder"), forms[setting], strict=True):
        print(f"layer_norm {setting}: {stack} {position}, {'a' if last else 'no'} last normalisation")
    print(f"    the encoder's outputs have a standard deviation of {output.std():.2f}")
whole = forms["pre"] == [("pre", True)] * 2 and forms["post"] == [("post", False)] * 2
sys.exit(0 if whole and forms[None] == [("pre", False), ("post", False)] else 1)
PYTHON
