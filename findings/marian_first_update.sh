#!/usr/bin/env bash
# Marian 1.12.42 (pymarian): with `--lr-warmup`, the first update's rate is 0, so it changes no weight. Update t
# has the rate of step t - 1. The log can't show it: the line of an update prints the next one's rate.
#
# `docs/differences.md` lists the first step's rate of each program; here it is the paper's.
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check pymarian==1.12.42 numpy==2.3.5

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import importlib.metadata
import random
import subprocess
import sys

import numpy as np

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
    "--mini-batch 16 --workspace 128 --cpu-threads 1 --seed 1 --lr-warmup 10u --lr-report --disp-freq 1u"
)
TRAIN = "import pymarian, sys; pymarian.Trainer(sys.argv[1]).train()"


def trained(rate: str, updates: int) -> dict[str, np.ndarray]:
    name = f"{rate}.{updates}.npz"
    call = f"{COMMON} --learn-rate {rate} --after {updates}u --model {name}"
    command = [sys.executable, "-c", TRAIN, call]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    for line in (done.stdout + done.stderr).splitlines():
        if "L.r." in line:
            print(f"rate {rate}: update {line.split('Up. ')[1].split()[0]} prints L.r.", line.split()[-1])
    arrays = np.load(name)
    return {key: arrays[key] for key in arrays if not key.startswith("special:")}


def same(updates: int) -> bool:
    """Whether the weights are, bit for bit, whatever the rate."""
    low, high = trained("0.001", updates), trained("0.1", updates)
    return all(np.array_equal(low[key], high[key]) for key in low)


first, second = same(1), same(2)
print("the same weights with a hundred times the rate, after 1 update:", first, "- after 2:", second)
sys.exit(0 if first and not second else 1)
PYTHON
