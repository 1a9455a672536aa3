"""How often each test calls two systems different that differ by chance only.

Run: .venv/bin/python -m benchmarks.false_rates [PAIRS]

The null hypothesis is made true: two systems of equal quality, whose outputs are exchanged for
random sentences, so that neither is better. A test at 0.05 should find a difference in 5% of the
pairs.
"""

import random
import sys
from collections.abc import Sequence

import numpy as np

from flaxformer_mt.evaluation.metrics import Bleu, Chrf, Measured, measure
from flaxformer_mt.evaluation.significance import approximate_randomization, paired_bootstrap
from flaxformer_mt.grammar.text import pairs

LEVEL = 0.05
SENTENCES = (100, 400, 1600)
DRAWS = 1000  # of each test
WRONG = 0.25  # share of the words


def main(arguments: Sequence[str]) -> None:
    count = int(arguments[0]) if arguments else 1000
    print("sentences  metric         bootstrap  randomization   pairs")
    for sentences in SENTENCES:
        for name, (by_bootstrap, by_exchange) in false_rates(sentences, count).items():
            rates = f"{by_bootstrap:8.1%}  {by_exchange:13.1%}"
            print(f"{sentences:9}  {name:13}  {rates}  {count:6}", flush=True)


def false_rates(sentences: int, count: int) -> dict[str, tuple[float, float]]:
    """By metric, the share of `count` pairs in which the bootstrap and the randomization test
    find a difference."""
    references = [target for _, target in pairs("test", sentences)]
    systems = [measured(references, seed) for seed in (1, 2)]
    hits: dict[str, list[tuple[bool, bool]]] = {}
    for seed in range(count):
        exchange = np.random.default_rng(seed).integers(2, size=(sentences, 1), dtype=bool)
        baseline, system = (
            [
                Measured(first.metric, np.where(exchange == swapped, first.counts, second.counts))
                for first, second in zip(*systems, strict=True)
            ]
            for swapped in (False, True)
        )
        tests = zip(
            paired_bootstrap(baseline, system, samples=DRAWS, seed=seed),
            approximate_randomization(baseline, system, trials=DRAWS, seed=seed),
            strict=True,
        )
        for bootstrap, randomization in tests:
            significant = bootstrap.p_value < LEVEL, randomization.p_value < LEVEL
            hits.setdefault(bootstrap.metric, []).append(significant)
    rates = {metric: np.mean(significant, axis=0) for metric, significant in hits.items()}
    return {
        metric: (float(bootstrap), float(randomization))
        for metric, (bootstrap, randomization) in rates.items()
    }


def measured(references: Sequence[str], seed: int) -> tuple[Measured, ...]:
    """A system that gets a share of the words wrong."""
    rng = random.Random(seed)
    words = [word for line in references for word in line.split()]
    outputs = [
        " ".join(rng.choice(words) if rng.random() < WRONG else word for word in line.split())
        for line in references
    ]
    return measure([Bleu(), Chrf()], outputs, references)


if __name__ == "__main__":
    main(sys.argv[1:])
