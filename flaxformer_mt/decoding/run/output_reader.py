"""What the search found for each source: rows of arrays as lists of outputs."""

import dataclasses
from collections.abc import Hashable, Sequence

import numpy as np

from flaxformer_mt.decoding.errors import DecodingError, LineError
from flaxformer_mt.decoding.search.settings import Rules
from flaxformer_mt.decoding.search.state import Hypotheses
from flaxformer_mt.decoding.source import Source
from flaxformer_mt.decoding.text.decoded import NO_NUMBERS, Decoded, TextOf, distinct


@dataclasses.dataclass(frozen=True)
class OutputReader:
    """Reads the outputs of sources. Raises DecodingError for scores that aren't numbers, and
    LineError for a source whose constraints leave no output."""

    rules: Rules
    text_of: TextOf | None

    def read(
        self,
        hypotheses: Hypotheses,
        row: int,
        types: np.ndarray,
        source: Source,
        *,
        number: int,
        limit: int,
    ) -> list[Decoded]:
        """A row's outputs, best first; ids number `types`."""
        # Everything was ruled out; a damaged model's scores are no numbers.
        nothing_left = bool((hypotheses.scores[row] == -np.inf).all())
        if nothing_left and (source.phrases or source.forbidden or self.rules.masks):
            raise LineError(
                number,
                f"the search found no translation of at most {limit} tokens with all its "
                "constraints and without what is forbidden",
            )
        return decoded_of(hypotheses, row, limit, self.rules, types, text_of=self.text_of)


def decoded_of(
    hypotheses: Hypotheses,
    row: int,
    limit: int,
    rules: Rules,
    types: np.ndarray,
    *,
    text_of: TextOf | None = None,
) -> list[Decoded]:
    """A row's outputs, best first; ids number `types`. With `text_of`, at most `rules.n_best` of
    different texts. Raises DecodingError."""
    scores = hypotheses.scores[row]
    if not np.isfinite(scores).any() or np.isnan(scores).any():
        raise DecodingError(f"the model's scores are {NO_NUMBERS}")

    def decoded(slot: int) -> Decoded:
        length = int(hypotheses.lengths[row, slot])
        return Decoded(
            tokens=tuple(types[hypotheses.tokens[row, slot, : length - 1]].tolist()),
            log_prob=float(hypotheses.log_probs[row, slot]),
            score=float(scores[slot]),
            # A tree's last bracket takes two tokens, for which there may be one place too few.
            at_limit=length >= limit - (rules.trees is not None),
        )

    slots = np.split(np.arange(rules.slots), rules.diverse_groups)
    groups = [
        [decoded(slot) for slot in of_group[np.isfinite(scores[of_group])]] for of_group in slots
    ]
    if len(groups) > 1:
        return _by_turns(groups, rules.n_best, text_of or tuple)
    if text_of is None or len(groups[0]) < 2:
        return groups[0]
    return list(distinct(groups[0], lambda output: text_of(output.tokens)))[: rules.n_best]


def _by_turns(groups: Sequence[Sequence[Decoded]], count: int, text_of: TextOf) -> list[Decoded]:
    """Each group in turn gives its best whose text isn't chosen yet, starting with the best
    group."""
    chosen: dict[Hashable, Decoded] = {}
    ordered = sorted((group for group in groups if group), key=lambda group: -group[0].score)
    waiting = [iter(group) for group in ordered]
    while waiting and len(chosen) < count:
        for group in list(waiting):
            new = next((output for output in group if text_of(output.tokens) not in chosen), None)
            if new is None:
                waiting.remove(group)
            elif len(chosen) < count:
                chosen[text_of(new.tokens)] = new
    return sorted(chosen.values(), key=lambda output: -output.score)
