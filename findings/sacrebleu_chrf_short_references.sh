#!/usr/bin/env bash
# sacreBLEU 2.6.0: chrF counts a hypothesis's character n-grams only if the reference is at least n characters
# long. Text that a model adds to a one-word reference ("No", "好", "5") is not counted as wrong for most
# orders, so corpus chrF hardly falls; against an empty reference it isn't counted at all. The README doesn't
# say so ("Don't count hits if no reference exists for that n-gram" is a comment in the code). BLEU counts it.
#
# `Chrf` in `flaxformer_mt/evaluation/metrics.py` follows sacreBLEU, so that scores can be compared.
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check sacrebleu==2.6.0

"$folder/venv/bin/python" - <<'PYTHON'
import importlib.metadata
import sys
from collections import Counter

from sacrebleu.metrics import BLEU, CHRF

print("Python", sys.version.split()[0], "sacrebleu", importlib.metadata.version("sacrebleu"))


def counting_all(hypotheses, references):
    """chrF2 of a corpus that counts every n-gram of the hypotheses."""
    precision = recall = 0.0
    for n in range(1, 7):
        matches = in_hypotheses = in_references = 0
        for pair in zip(hypotheses, references):
            texts = ["".join(text.split()) for text in pair]
            first, second = (Counter(text[i : i + n] for i in range(len(text) - n + 1)) for text in texts)
            matches += (first & second).total()
            in_hypotheses += first.total()
            in_references += second.total()
        precision += matches / in_hypotheses / 6
        recall += matches / in_references / 6
    return 500 * precision * recall / (4 * precision + recall)


sentence = "The night train to Vienna leaves from platform nine at a quarter past ten."
added = "The committee met on Tuesday to discuss the budget for the coming year and agreed on most of it."
lines = [sentence] * 3
right = CHRF().corpus_score([*lines, "No"], [[*lines, "No"]]).score
print("all lines right:", right)
scores = {}
for reference in ("", "5", "No", "A long answer is expected here, not one that the model made up itself."):
    hypotheses, references = [*lines, added], [*lines, reference]
    scores[reference] = CHRF().corpus_score(hypotheses, [references]).score
    print(
        f"instead of {reference!r}, {len(added)} other characters:",
        f"chrF {scores[reference]:.1f},",
        f"with all n-grams counted {counting_all(hypotheses, references):.1f},",
        f"BLEU {BLEU().corpus_score(hypotheses, [references]).score:.1f}",
    )

same = right == 100 and scores[""] == 100 and scores["5"] > 98 and scores["No"] > 97
same = same and abs(counting_all(lines[:1] + [added], lines[:1] + [added]) - 100) < 1e-9
same = same and all(counting_all([*lines, added], [*lines, short]) < 93 for short in ("", "5", "No"))
sys.exit(0 if same else 1)
PYTHON
