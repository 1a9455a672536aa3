"""Decoding as one would write it first: plain loops over Python lists, in float64."""

import itertools
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


class Found(NamedTuple):
    tokens: tuple[int, ...]
    log_prob: float
    score: float


def penalty(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def generated(vocab: int, suppress: tuple[int, ...]) -> list[int]:
    return [token for token in range(vocab) if token not in (PAD, BOS, EOS, *suppress)]


def exhaustive(
    automaton: Automaton, row: int, *, limit: int, alpha: float, suppress: tuple[int, ...] = ()
) -> list[Found]:
    """Every output of at most `limit` tokens, the end mark included, best first."""
    types = generated(automaton.table.shape[-1], suppress)
    found = []
    for length in range(limit):
        for body in itertools.product(types, repeat=length):
            tokens = (*body, EOS)
            log_prob = sum(automaton.log_probs(row, tokens[:i])[t] for i, t in enumerate(tokens))
            found.append(Found(tokens, log_prob, log_prob / penalty(len(tokens), alpha)))
    return sorted(found, key=lambda item: -item.score)


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
) -> list[Found]:
    """Beam search that stops at the limit, or once `patience` hypotheses have ended in each beam;
    ties go to the older, then the lower.

    `n_best` of each of `groups` beams, in which a token costs `diversity` for each hypothesis of an
    earlier beam that went on with it.
    """
    types, width = generated(automaton.table.shape[-1], suppress), beam // groups
    live: list[list[tuple[float, tuple[int, ...]]]] = [[(0.0, ())] for _ in range(groups)]
    finished: list[list[Found]] = [[] for _ in range(groups)]
    for length in range(1, limit + 1):
        said: list[int] = []
        for group in range(groups):
            candidates = []
            for order, (log_prob, prefix) in enumerate(live[group]):
                log_probs = automaton.log_probs(row, prefix)
                for token in sorted([EOS] if length == limit else [EOS, *types]):
                    total = log_prob + log_probs[token]
                    rank = total - diversity * said.count(token)
                    candidates.append((-rank, order, token, total, (*prefix, token)))
            candidates.sort(key=lambda item: item[:3])
            candidates = candidates[: 1 if width == 1 else 2 * width]
            finished[group] += [
                Found(tokens, total, total / penalty(length, alpha))
                for _, _, token, total, tokens in candidates[:ends_among]
                if token == EOS
            ]
            going = [item for item in candidates if item[2] != EOS][:width]
            said += [item[2] for item in going]
            live[group] = [(item[3], item[4]) for item in going]
        if patience and all(len(ended) >= patience for ended in finished):
            break
    each = [sorted(found, key=lambda item: -item.score)[:n_best] for found in finished]
    return [item for found in each for item in found]
