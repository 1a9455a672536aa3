"""Trains a faster model on a run's translations: python distill.py RUN SOURCE TARGET NEW_RUN [...].

Sequence-level knowledge distillation (Kim and Rush, 2016): RUN translates SOURCE into TARGET, and
NEW_RUN learns from these, with one decoder layer, a vocabulary of its own and RUN's other settings,
unless some are given at the end. If SOURCE is long, make TARGET with `flaxformer-mt translate`.
"""

import sys
from pathlib import Path

import flaxformer_mt as fm

run, source, target, new_run, *settings = sys.argv[1:]
lines = Path(source).read_bytes().decode("utf-8-sig").removesuffix("\n").split("\n")
if not Path(target).exists():
    translated = fm.Translator.load(run).translate(lines)
    Path(target).write_bytes("".join(f"{line}\n" for line in translated).encode())

# In place of all the corpora that RUN was trained on.
text = {"data.train": (Path(source).resolve(), Path(target).resolve()), "data.epoch_pairs": 0}
smaller = {"model.decoder_layers": 1} | dict(setting.split("=", 1) for setting in settings)
config = fm.load_config(run, text | smaller)
print(fm.train(config, new_run))
print("teacher:", fm.Translator.load(run).translate(lines[0]))
print("student:", fm.Translator.load(new_run).translate(lines[0]))
