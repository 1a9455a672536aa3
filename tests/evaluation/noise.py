"""Test sets with systems of known quality: references of the built-in grammar, made worse."""

import random
from collections.abc import Sequence

from flaxformer_mt.grammar.text import pairs


def grammar_text(size: int) -> tuple[list[str], list[str]]:
    """Sources and references."""
    sources, references = zip(*pairs("test", size), strict=True)
    return list(sources), list(references)


def noisy(references: Sequence[str], share: float, seed: int) -> list[str]:
    """Words are replaced, left out or doubled with probability `share`; some change places."""
    rng = random.Random(seed)
    words = [word for line in references for word in line.split()]
    outputs = []
    for line in references:
        words_said: list[str] = []
        for word in line.split():
            choice = rng.random() if rng.random() < share else 1.0
            if choice == 1.0:
                words_said.append(word)
            elif choice < 0.5:
                words_said.append(rng.choice(words))
            elif choice < 0.75:
                words_said += [word, word]
        if len(words_said) > 3 and rng.random() < share:
            words_said[0], words_said[-2] = words_said[-2], words_said[0]
        outputs.append(" ".join(words_said))
    return outputs
