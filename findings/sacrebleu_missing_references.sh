#!/usr/bin/env bash
# sacreBLEU 2.6.0: comments in its code call '' and None placeholders for a sentence's missing reference. Only
# None is one. '' counts as a reference without words: it raises TER, whose edits are divided by the mean length
# of a sentence's references, and raises BLEU where an output is short, since the closest reference is then the
# empty one. The signature says nrefs:2 and not nrefs:var.
# The command can't pass None: a blank line of a reference file arrives as ''. So nrefs:var is out of its reach,
# and test sets with a varying number of references score differently on the command line than from Python.
#
# So `evaluate` and `compare` have `--blank-references` (`flaxformer_mt/evaluation/references.py`).
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check sacrebleu==2.6.0

cd "$folder"
printf '%s\n' 'the cat sat on a mat today' 'a dog runs home' >hypotheses
printf '%s\n' 'the cat sat on the mat today' 'a small dog runs back to his own home' >first
printf '%s\n' 'the cat was sitting on the mat today' '' >second
venv/bin/sacrebleu first second -i hypotheses -m bleu ter -w 4 >command.json

venv/bin/python - <<'PYTHON'
import importlib.metadata
import json
import sys

from sacrebleu.metrics import BLEU, TER

print("Python", sys.version.split()[0], "sacrebleu", importlib.metadata.version("sacrebleu"))
hypotheses, first, second = (
    open(name).read().split("\n")[:-1] for name in ("hypotheses", "first", "second")
)
command = {each["name"]: each for each in json.load(open("command.json"))}
scores = {}
for metric in (BLEU, TER):
    for name, others in (("''", second), ("None", [line or None for line in second])):
        scorer = metric()
        score = scorer.corpus_score(hypotheses, [first, others]).score
        scores[metric.__name__, name] = score, str(scorer.get_signature()).split("|")[0]
        print(f"{metric.__name__:4} with {name:4} for the missing reference: {score:.4f}", end=" ")
        print(scores[metric.__name__, name][1])
    print(f"{metric.__name__:4} of the command: {command[metric.__name__]['score']:.4f}", end=" ")
    print("nrefs:" + command[metric.__name__]["nrefs"])

for metric in ("BLEU", "TER"):
    (empty, empty_signature), (missing, missing_signature) = (
        scores[metric, name] for name in ("''", "None")
    )
    assert empty > missing + 1, (metric, empty, missing)
    assert (empty_signature, missing_signature) == ("nrefs:2", "nrefs:var")
    assert abs(command[metric]["score"] - empty) < 1e-3 and command[metric]["nrefs"] == "2"
print("an empty reference counts, a missing one doesn't, and the command has only empty ones")
PYTHON
