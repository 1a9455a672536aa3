"""Decoding as one would write it first: plain loops over Python lists, in float64."""

import itertools
from collections import Counter
from typing import NamedTuple

import numpy as np

PAD, BOS, EOS = 0, 1, 2


class Automaton:
    """Next-token logits that depend on the whole prefix, by a rolling hash of it."""

    def __init__(self, rng: np.random.Generator, *, rows: int, vocab: int, spread: float) -> None:
        self.states = 499
        self.table = (spread * rng.normal(size=(rows, self.states, vocab))).astype(np.float32)

    def log_probs(self, row: int, prefix: tuple[int, ...]) -> np.ndarray:
        state = 0
        for token in (BOS, *prefix):
            state = (state * 31 + token + 1) % self.states
        logits = self.table[row, state].astype(np.float64)
        return logits - np.logaddexp.reduce(logits)


class Output(NamedTuple):
    """Tokens with their end mark."""

    tokens: tuple[int, ...]
    log_prob: float
    score: float


def penalty(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def generated(vocab: int, suppress: tuple[int, ...]) -> list[int]:
    return [token for token in range(vocab) if token not in (PAD, BOS, EOS, *suppress)]


def exhaustive(
    automaton: Automaton, row: int, *, limit: int, alpha: float, suppress: tuple[int, ...] = ()
) -> list[Output]:
    """Every output of at most `limit` tokens, the end mark included, best first."""
    types = generated(automaton.table.shape[-1], suppress)
    outputs = []
    for length in range(limit):
        for body in itertools.product(types, repeat=length):
            tokens = (*body, EOS)
            log_prob = sum(automaton.log_probs(row, tokens[:i])[t] for i, t in enumerate(tokens))
            outputs.append(scored(tokens, log_prob, alpha))
    return sorted(outputs, key=lambda output: -output.score)


def scored(tokens: tuple[int, ...], log_prob: float, alpha: float) -> Output:
    return Output(tokens, log_prob, log_prob / penalty(len(tokens), alpha))


class Candidate(NamedTuple):
    """A token after a hypothesis. Sorted, the best comes first: ties go to the older hypothesis,
    then to the lower token."""

    cost: float
    hypothesis: int
    token: int
    log_prob: float
    tokens: tuple[int, ...]


class Beam:
    """Hypotheses that compete with each other alone."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
        self.finished: list[Output] = []

    def candidates(
        self, automaton: Automaton, row: int, types: list[int], extra_cost: Counter[int]
    ) -> list[Candidate]:
        """The best continuations, twice as many as hypotheses, since half of them may end."""
        offers = []
        for number, (log_prob, prefix) in enumerate(self.live):
            log_probs = automaton.log_probs(row, prefix)
            for token in types:
                total = log_prob + log_probs[token]
                cost = extra_cost[token] - total
                offers.append(Candidate(cost, number, token, total, (*prefix, token)))
        offers.sort(key=lambda offer: offer[:3])
        return offers[: 1 if self.width == 1 else 2 * self.width]

    def advance(self, candidates: list[Candidate], ends_among: int | None, alpha: float) -> None:
        """Finishes the first `ends_among` candidates if they end; keeps the best others."""
        self.finished += [
            scored(candidate.tokens, candidate.log_prob, alpha)
            for candidate in candidates[:ends_among]
            if candidate.token == EOS
        ]
        unfinished = [candidate for candidate in candidates if candidate.token != EOS]
        self.live = [
            (candidate.log_prob, candidate.tokens) for candidate in unfinished[: self.width]
        ]

    def best(self, count: int) -> list[Output]:
        return sorted(self.finished, key=lambda output: -output.score)[:count]


def beam_search(
    automaton: Automaton,
    row: int,
    *,
    limit: int,
    beam: int,
    alpha: float,
    n_best: int,
    suppress: tuple[int, ...] = (),
    ends_among: int | None = None,
    groups: int = 1,
    diversity: float = 0.0,
    patience: int | None = None,
) -> list[Output]:
    """Beam search that stops at the limit, or once `patience` hypotheses have ended in each beam;
    ties go to the older, then the lower.

    `n_best` of each of `groups` beams, in which a token costs `diversity` for each hypothesis of an
    earlier beam that went on with it.
    """
    types = generated(automaton.table.shape[-1], suppress)
    beams = [Beam(beam // groups) for _ in range(groups)]
    for length in range(1, limit + 1):
        allowed = [EOS] if length == limit else sorted([EOS, *types])
        extra_cost: Counter[int] = Counter()
        for group in beams:
            candidates = group.candidates(automaton, row, allowed, extra_cost)
            group.advance(candidates, ends_among, alpha)
            for _, tokens in group.live:
                extra_cost[tokens[-1]] += diversity
        if patience and all(len(group.finished) >= patience for group in beams):
            break
    return [output for group in beams for output in group.best(n_best)]
