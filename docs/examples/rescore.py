"""Two models together: python rescore.py RUN OTHER_RUN < sentences. The runs share a vocabulary.

An ensemble averages the models' probabilities at each step of one search. Rescoring is cheaper:
one model proposes a list of translations, and the other scores them.
"""

import sys

import flaxformer_mt as fm

run, other_run = sys.argv[1:]
lines = sys.stdin.read().splitlines()
ensemble = fm.Translator.load_ensemble([run, other_run])
proposer, judge = fm.Translator.load(run), fm.Translator.load(other_run)

together = ensemble.translate(lines)
proposed = proposer.translate(lines, n_best=4)
for line, first, of_both in zip(lines, proposed, together, strict=True):
    judged = judge.score([(line, each.tokens) for each in first.hypotheses])
    both = [a.score + b.score for a, b in zip(first.hypotheses, judged, strict=True)]
    best = first.hypotheses[both.index(max(both))]
    print(f"{line}\n  alone     {first}\n  rescored  {best.text}\n  ensemble  {of_both}")
