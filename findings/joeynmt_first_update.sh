#!/usr/bin/env bash
# joeynmt 2.3.0: the first update of a run with a warm-up has the whole `learning_rate`, since the scheduler first
# steps after it. From then on, update t has the warm-up's rate of step t - 1. With Adam, whose first step moves
# every weight by the rate itself, that is the largest step of all.
# `learning_rate_peak`, which the scheduler "warmupinversesquareroot" reads, never reaches it: the training
# configuration has no such field, and drops it without a word. The peak is `learning_rate`.
#
# `docs/coming_from.md` says so to those who bring a config along.
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
# importlib_metadata: joeynmt imports it and doesn't ask for it.
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check joeynmt==2.3.0 torch==2.13.0 \
    importlib_metadata==10.2.0

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON' 2>log || { cat log >&2; exit 1; }
import importlib.metadata
import random
import sys
from pathlib import Path

import torch
import yaml

versions = (f"{name} {importlib.metadata.version(name)}" for name in ("torch", "joeynmt"))
print("Python", sys.version.split()[0], *versions)
draw = random.Random(1)
lines = [" ".join(draw.choices("abcdefghij", k=draw.randint(2, 8))) for _ in range(100)]
for name in ("train.src", "train.trg", "dev.src", "dev.trg"):
    Path(name).write_text("".join(f"{line}\n" for line in lines))
Path("vocab.txt").write_text("\n".join(["<unk>", "<pad>", "<s>", "</s>", *"abcdefghij", ""]))
stack = {"type": "transformer", "num_layers": 1, "num_heads": 2, "hidden_size": 16, "ff_size": 16}
stack |= {"dropout": 0.0, "embeddings": {"embedding_dim": 16}}
side = {"level": "word", "voc_file": "vocab.txt"}
training = {"optimizer": "adam", "scheduling": "warmupinversesquareroot", "learning_rate": 0.005}
training |= {"learning_rate_peak": 0.001, "learning_rate_warmup": 100, "learning_rate_min": 1e-8}
training |= {"batch_size": 20, "updates": 4, "epochs": 1, "logging_freq": 100}
config = {"name": "toy", "model_dir": "model", "use_cuda": False, "training": training}
config |= {"model": {"encoder": stack, "decoder": stack}, "testing": {"batch_size": 20}}
config["data"] = {"train": "train", "dev": "dev", "dataset_type": "plain"}
config["data"] |= {"src": {"lang": "src", **side}, "trg": {"lang": "trg", **side}}
Path("toy.yaml").write_text(yaml.safe_dump(config))

rates = []
adam = torch.optim.Adam.step


def recorded(optimizer, *arguments, **options):
    rates.append(optimizer.param_groups[0]["lr"])
    return adam(optimizer, *arguments, **options)


torch.optim.Adam.step = recorded
from joeynmt.__main__ import main  # noqa: E402

sys.argv = ["joeynmt", "train", "toy.yaml", "--skip-test"]
main()
print("learning_rate 0.005, learning_rate_peak 0.001, 100 steps of warm-up; the updates' rates:")
print(*(f"{rate:g}" for rate in rates))
expected = [0.005, *(0.005 * step / 100 for step in (1, 2, 3))]
sys.exit(0 if all(abs(a - b) < 1e-12 for a, b in zip(rates, expected, strict=True)) else 1)
PYTHON
