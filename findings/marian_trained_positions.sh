#!/usr/bin/env bash
# Marian 1.12.42 (pymarian): `--transformer-train-position-embeddings true` changes nothing. The option is accepted
# and recorded in the model, but the Transformer looks for one of another name ("transformer-train-positions",
# src/models/transformer.h), so positions stay sinusoids: the trained model has no position table (`Wpos`), and
# every weight is the same, bit for bit, as without the option.
# A converter that trusts the recorded setting looks for a table that isn't there.
#
# So `flaxformer_mt/interop` reads such a model whatever this setting says, and exports no learned positions.
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check pymarian==1.12.42 numpy==2.3.5 pyyaml==6.0.3

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import importlib.metadata
import random
import subprocess
import sys

import numpy as np
import yaml

versions = (f"{name} {importlib.metadata.version(name)}" for name in ("pymarian", "numpy"))
print("Python", sys.version.split()[0], *versions)
draw = random.Random(1)
lines = [" ".join(draw.choices("abcdefghij", k=draw.randint(2, 8))) for _ in range(400)]
for side in ("src", "tgt"):
    with open(f"text.{side}", "w", encoding="utf-8") as file:
        print(*lines, sep="\n", file=file)

COMMON = (
    "--type transformer --train-sets text.src text.tgt --vocabs src.yml tgt.yml --dim-vocabs 30 30 "
    "--dim-emb 32 --transformer-heads 2 --transformer-dim-ffn 64 --enc-depth 1 --dec-depth 1 "
    "--after 4u --mini-batch 16 --workspace 128 --cpu-threads 1 --seed 1 --quiet"
)
FLAG = "--transformer-train-position-embeddings"
TRAIN = "import pymarian, sys; pymarian.Trainer(sys.argv[1]).train()"
models = {}
for name, more in (("plain", ""), ("asked", f"{FLAG} true")):
    call = f"{COMMON} --model {name}.npz {more}"
    subprocess.run([sys.executable, "-c", TRAIN, call], check=True, capture_output=True)
    models[name] = dict(np.load(f"{name}.npz"))

settings = yaml.safe_load(models["asked"]["special:model.yml"].tobytes().rstrip(b"\0").decode())
print("recorded:", FLAG.removeprefix("--"), settings[FLAG.removeprefix("--")])
weights = {
    name: {key: array for key, array in model.items() if not key.startswith("special:")}
    for name, model in models.items()
}
print("arrays:", *sorted(weights["asked"])[:4], "...; with positions:", end=" ")
print([key for key in weights["asked"] if "pos" in key.lower()] or "none")
same = weights["asked"].keys() == weights["plain"].keys() and all(
    np.array_equal(array, weights["plain"][key]) for key, array in weights["asked"].items()
)
print("the same weights, bit for bit, as without the option:", same)
sys.exit(0 if same and settings[FLAG.removeprefix("--")] is True else 1)
PYTHON
