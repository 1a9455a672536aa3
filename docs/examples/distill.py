"""Teaches a faster model by a run's translations: python distill.py RUN SOURCE TARGET NEW_RUN.

Sequence distillation (Kim and Rush, 2016): the run translates SOURCE into TARGET, and a model with
one decoder layer, where a search spends most of its time, learns from that instead of people's
translations. If SOURCE is long, make TARGET with `flaxformer-mt translate`, which can be resumed.
"""

import dataclasses
import sys
from pathlib import Path

import flaxformer_mt as fm

run, source, target, new_run = sys.argv[1:]
teacher = fm.Translator.load(run)
if not Path(target).exists():
    lines = Path(source).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    translated = "".join(f"{line}\n" for line in teacher.translate(lines))
    Path(target).write_text(translated, encoding="utf-8")

config = fm.load_config(
    run,
    {
        "model.decoder_layers": 1,
        "data.train.distilled.src": Path(source).resolve(),
        "data.train.distilled.tgt": Path(target).resolve(),
    },
)
# Without this line, it learns from people's translations too.
data = dataclasses.replace(config.data, train=config.data.train[-1:])
print(fm.train(dataclasses.replace(config, data=data), new_run))

first = Path(source).read_text(encoding="utf-8").partition("\n")[0]
print("teacher:", teacher.translate(first))
print("student:", fm.Translator.load(new_run).translate(first))
