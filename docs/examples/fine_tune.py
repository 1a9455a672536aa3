"""Fine-tunes a run on new text alone: python fine_tune.py RUN SOURCE TARGET NEW_RUN.

SOURCE and TARGET are two files of parallel text. The run's vocabulary stays, and so does its
validation text, if that has files of its own.
"""

import sys
from pathlib import Path

import flaxformer_mt as fm

run, source, target, new_run = sys.argv[1:]
config = fm.load_config(
    run,
    {
        # In place of all the corpora that the run was trained on.
        "data.train": (Path(source).resolve(), Path(target).resolve()),
        "data.epoch_pairs": 0,
        "training.steps": 60,
        "training.schedule.kind": "peak",
        "training.schedule.factor": 1.0,
        "training.schedule.peak": 0.0003,
        "training.schedule.warmup_steps": 10,
        "training.validate_every": 20,
        "training.save_every": 20,
    },
)
status = fm.train(config, new_run, init_from=run)

first = Path(source).read_text(encoding="utf-8").partition("\n")[0]
print(status)
print("before:", fm.Translator.load(run).translate(first))
print("after: ", fm.Translator.load(new_run).translate(first))
