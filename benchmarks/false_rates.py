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

from flaxformer_mt.data.synthetic import pairs
from flaxformer_mt.evaluation.metrics import Bleu, Chrf, Measured, measure
from flaxformer_mt.evaluation.significance import approximate_randomization, paired_bootstrap

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
    found: dict[str, list[tuple[bool, bool]]] = {}
    for seed in range(count):
        exchange = np.random.default_rng(seed).integers(2, size=(sentences, 1), dtype=bool)
        ones, others = (
            [
                Measured(one.metric, np.where(exchange == swapped, one.counts, other.counts))
                for one, other in zip(*systems, strict=True)
            ]
            for swapped in (False, True)
        )
        tests = zip(
            paired_bootstrap(ones, others, samples=DRAWS, seed=seed),
            approximate_randomization(ones, others, trials=DRAWS, seed=seed),
            strict=True,
        )
        for drawn, exchanged in tests:
            hits = drawn.p_value < LEVEL, exchanged.p_value < LEVEL
            found.setdefault(drawn.metric, []).append(hits)
    rates = {name: np.mean(hits, axis=0) for name, hits in found.items()}
    return {name: (float(drawn), float(exchanged)) for name, (drawn, exchanged) in rates.items()}


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
