#!/usr/bin/env bash
# sacreBLEU 2.6.0: paired tests count only chance differences larger than the real one, not equal ones. If two
# systems differ in one sentence, exchanging outputs never changes the size of the difference: approximate
# randomisation returns the smallest p-value it can (0.001 in 1,000 trials) where the exact test gives 1. An
# exact copy of the baseline differs "significantly", too, in both tests. The README doesn't say so; a comment
# in the code defends it for copies, as does MultEval, from which the rule is taken.
#
# So `flaxformer_mt/evaluation/significance.py` also counts equal differences.
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check sacrebleu==2.6.0 numpy==2.4.6

cd "$folder"
venv/bin/python - <<'PYTHON'
references = [f"In year {1900 + n} there were {n * 37 % 101} ships in the harbour." for n in range(60)]
baseline = [
    line.replace("there were", "we saw") if n % 3 == 0 else line for n, line in enumerate(references)
]
one_worse = [line.replace("ships", "boats") if n == 10 else line for n, line in enumerate(baseline)]
systems = {"ref": references, "baseline": baseline, "copy": baseline, "one_worse": one_worse}
for name, lines in systems.items():
    with open(f"{name}.txt", "w", encoding="utf-8") as file:
        print(*lines, sep="\n", file=file)
PYTHON

for test in ar bs; do
    venv/bin/sacrebleu ref.txt -i baseline.txt copy.txt one_worse.txt -m bleu "--paired-$test" \
        "--paired-$test-n" 1000 -f json >"$test.json" 2>"$test.log"
done

venv/bin/python - <<'PYTHON'
import importlib.metadata
import json
import sys

versions = (f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "sacrebleu"))
print("Python", sys.version.split()[0], *versions)
p_values = {}
for test in ("ar", "bs"):
    with open(f"{test}.json", encoding="utf-8") as file:
        for row in json.load(file):
            p_value = row["BLEU"]["p_value"]
            print(f"--paired-{test}", row["system"], "BLEU", row["BLEU"]["score"], "p:", p_value)
            p_values[test, row["system"]] = p_value

smallest = 1 / 1001
tied = [("ar", "copy.txt"), ("bs", "copy.txt"), ("ar", "one_worse.txt")]
sys.exit(0 if all(abs(p_values[key] - smallest) < 1e-4 for key in tied) else 1)
PYTHON
