"""A training report of your own: python report.py RUN REPORTS.csv.

Trains the run for a hundred more steps, and writes its reports to a table. Any tracker can replace
the file.
"""

import csv
import sys

import flaxformer_mt as fm

run, name = sys.argv[1:]
steps = fm.load_config(run).training.steps + 100
config = fm.load_config(run, {"training.steps": steps, "training.log_every": 50})
with open(name, "w", newline="") as file:
    table = csv.DictWriter(file, ["step", "kind", "loss", "bleu"], extrasaction="ignore")
    table.writeheader()
    status = fm.train(config, run, on_report=table.writerow)
print(status)
