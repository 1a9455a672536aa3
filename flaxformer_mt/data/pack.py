"""Batches of one static shape: several pairs per row, with both sides nearly full.

The largest pairs left are dealt to the emptiest rows, round by round. Then all rows that are too
long exchange a pair (or a gap) with rows that have room, until none is. First-fit would leave a few
percent empty and take pairs one at a time; here every step is on whole arrays.
"""

import numpy as np
from jaxtyping import Int32, Int64, Integer

from flaxformer_mt.config.schema import BatchConfig
from flaxformer_mt.data.plan import Lengths, Plan, PlanError, Shape, random_order, rows_within

_FILL = 0.985  # the last percent would take longer than it saves
_PAIRS_A_ROW = 4  # average pairs, at least: 4 to 12 fill rows alike (Europarl, Multi30k)
_MULTIPLE = 8  # of lengths, for the 8 x 128 tiles of a TPU
_LANES = 128  # of a tile: a TPU's attention pads the positions attended to
_SCORES = 1024  # attention scores that cost base about as much as the rest of a position, on a v5e
_GROUPS = 16  # of rows of similar load, in which long sources go to rows with most room for them
_EXCHANGES = 64
_ROWS_AT_A_TIME = 4096

_Lengths = Int64[np.ndarray, "2 pairs"]
_Room = Int64[np.ndarray, "2 1"]
_Chosen = Integer[np.ndarray, " chosen"]
_Slots = Int32[np.ndarray, "rows slots"]


def packed_shape(
    src_lengths: Lengths,
    tgt_lengths: Lengths,
    batch: BatchConfig,
    counts: Int64[np.ndarray, " pairs"] | None = None,
) -> Shape:
    """The shape of every batch: `batch.src_length` and `.tgt_length`, or lengths for this corpus.

    These hold the longest pair at the least estimated cost per pair: longer rows waste fewer
    positions but spend more on attention. `counts[i]` pairs have these lengths. Raises PlanError.
    """
    if len(src_lengths) == 0:
        raise PlanError("there are no pairs to batch")
    longest = int(src_lengths.max()), int(tgt_lengths.max())
    if batch.src_length:
        src_length, tgt_length = batch.src_length, batch.tgt_length
        if longest[0] > src_length or longest[1] > tgt_length:
            raise PlanError(
                f"the longest pair's {longest[0]} source or {longest[1]} target tokens exceed "
                "data.batch.src_length or .tgt_length: raise them, or lower data.filter.max_length"
            )
    else:
        means = (
            float(np.average(src_lengths, weights=counts)),
            float(np.average(tgt_lengths, weights=counts)),
        )
        src_length, tgt_length = _cheapest_lengths(longest, means, batch.tokens // batch.multiple)
    return Shape(rows_within(batch, max(src_length, tgt_length)), src_length, tgt_length)


def plan_packed(
    src_lengths: Lengths, tgt_lengths: Lengths, shape: Shape, random: np.random.Philox
) -> Plan:
    """Every pair exactly once, in nearly full rows. Raises PlanError if one exceeds the shape."""
    both_lengths = np.stack([src_lengths, tgt_lengths]).astype(np.int64)  # [sides, pairs]
    room = np.array([[shape.src_length], [shape.tgt_length]])  # [sides, 1]
    for side, lengths, limit in zip(("source", "target"), both_lengths, room[:, 0], strict=True):
        if len(lengths) and lengths.max() > limit:
            raise PlanError(f"pair {lengths.argmax()} has over {limit} {side} tokens")

    full_rows = (both_lengths.sum(axis=1) / room[:, 0]).max(initial=0)
    batches = int(np.ceil(full_rows / shape.rows / _FILL))
    slots = _deal(both_lengths, room, batches * shape.rows, random)
    while too_long := _exchange(slots, both_lengths, room, random):
        # Sizes that don't combine, such as just over half a row, need more rows.
        more_batches = -(-too_long // shape.rows)
        empty = np.full((more_batches * shape.rows, slots.shape[1]), len(src_lengths), np.int32)
        slots = np.concatenate([slots, empty])
        batches += more_batches

    slots = slots[_shuffled(len(slots), random)]
    filled = slots < len(src_lengths)
    return Plan(
        shapes=(shape,),
        shape_of=np.zeros(batches, np.int64),
        starts=np.arange(batches + 1) * shape.rows,
        row_starts=np.append(0, np.cumsum(filled.sum(axis=1))),
        pairs=slots[filled].astype(np.int32),
    )


def _cheapest_lengths(
    longest: tuple[int, int], means: tuple[float, float], most: int
) -> tuple[int, int]:
    """Lengths of the least estimated cost per pair, for base on a TPU v5e.

    `longest` and `means` are those of the pairs' sides. A length is at most `most` if that holds
    the longest pair.
    """
    pairs = max(_PAIRS_A_ROW, longest[0] / means[0], longest[1] / means[1])
    src_candidates = _candidates(longest[0], means[0], pairs, most)
    tgt_candidates = _candidates(longest[1], means[1], pairs, most)
    src, tgt = np.meshgrid(src_candidates, tgt_candidates)  # [tgt candidates, src candidates]

    src_keys, tgt_keys = (-(-length // _LANES) * _LANES for length in (src, tgt))
    scores = (src + tgt) * src_keys + tgt * tgt_keys
    pairs_a_row = np.minimum(src / means[0], tgt / means[1])
    cost = (src + tgt + scores / _SCORES) / pairs_a_row
    cheapest = cost.argmin()
    return int(src.flat[cheapest]), int(tgt.flat[cheapest])


def _candidates(
    longest: int, mean: float, pairs: float, most: int
) -> Int64[np.ndarray, " candidates"]:
    """A side's lengths to try: for the longest sentence, or from `_PAIRS_A_ROW` average ones on.

    They end where twice `pairs` average sentences fit, or at `most`.
    """
    least = -int(-max(longest, _PAIRS_A_ROW * mean) // _MULTIPLE) * _MULTIPLE
    return np.arange(least, max(least, min(2 * pairs * mean, most)) + 1, _MULTIPLE)


def _deal(lengths: _Lengths, room: _Room, rows: int, random: np.random.Philox) -> _Slots:
    """The pairs in rows of similar load, some too long. Empty slots hold the number of pairs."""
    pair_count = lengths.shape[1]
    # In units in which both sides are full at the same number.
    sizes = lengths * room[::-1]
    largest_first = _shuffled(pair_count, random)
    largest_first = largest_first[np.argsort(-sizes.max(axis=0)[largest_first], kind="stable")]

    load = np.zeros((2, rows), np.int64)
    rounds = []
    for start in range(0, pair_count, max(rows, 1)):
        dealt = largest_first[start : start + rows]
        emptiest = np.argsort(load.max(axis=0), kind="stable")[: len(dealt)]
        # In a group, the more source a pair has beside its target, the more room its row has.
        group = np.arange(len(dealt)) * _GROUPS // len(dealt)
        dealt = dealt[np.lexsort((sizes[0, dealt] - sizes[1, dealt], group))]
        emptiest = emptiest[np.lexsort((load[1, emptiest] - load[0, emptiest], group))]

        load[:, emptiest] += sizes[:, dealt]
        slot = np.full(rows, pair_count, np.int32)
        slot[emptiest] = dealt
        rounds.append(slot)
    rounds.append(np.full(rows, pair_count, np.int32))
    return np.stack(rounds, axis=1)  # [rows, slots]


def _exchange(slots: _Slots, lengths: _Lengths, room: _Room, random: np.random.Philox) -> int:
    """Exchanges pairs between rows, in place, until all fit or some turns are over.

    Returns how many rows are still too long.
    """
    rows = _Rows(slots, lengths, room)
    for turn in range(_EXCHANGES):
        excess = rows.excess()
        long, fitting = np.flatnonzero(excess), np.flatnonzero(excess == 0)
        count = min(len(long), len(fitting))
        if not count:
            return len(long)

        long = long[_shuffled(len(long), random)[:count]]
        fitting = fitting[_shuffled(len(fitting), random)]
        if turn % 2:
            # Every other time the emptiest partner, for rows that few can help.
            fitting = fitting[np.argsort(rows.fullness(fitting), kind="stable")]
        for start in range(0, count, _ROWS_AT_A_TIME):
            block = slice(start, min(start + _ROWS_AT_A_TIME, count))
            rows.exchange_best(long[block], fitting[block])
    return int(np.count_nonzero(rows.excess()))


class _Rows:
    """Rows of pairs and their load while pairs are exchanged."""

    def __init__(self, slots: _Slots, lengths: _Lengths, room: _Room) -> None:
        """Exchanges change `slots`."""
        self._slots = slots
        self._room = room
        empty_slot = np.zeros((2, 1), np.int64)
        self._lengths = np.concatenate([lengths, empty_slot], axis=1)  # [sides, pairs + 1]
        self._load = self._lengths[:, slots].sum(axis=2)  # [sides, rows]

    def excess(self) -> Int64[np.ndarray, " rows"]:
        """By how much each row is too long."""
        return _excess(self._load, self._room)

    def fullness(self, rows: _Chosen) -> Int64[np.ndarray, " chosen"]:
        """The load of the fuller side of these rows."""
        return (self._load[:, rows] * self._room[::-1]).max(axis=0)

    def exchange_best(self, long: _Chosen, fitting: _Chosen) -> None:
        """Each long row makes the best exchange with its fitting row, if any helps."""
        slots, lengths, load, room = self._slots, self._lengths, self._load, self._room
        long_lengths = lengths[:, slots[long]]  # [sides, chosen, slots]
        fitting_lengths = lengths[:, slots[fitting]]
        # By how much each exchange would lengthen the long row, and shorten the fitting one.
        change = fitting_lengths[:, :, None, :] - long_lengths[:, :, :, None]
        # --> [sides, chosen, slots of the long row, slots of the fitting row]
        excess_after = _excess(load[:, long, None, None] + change, room[:, :, None, None])
        excess_after += _excess(load[:, fitting, None, None] - change, room[:, :, None, None])
        excess_after = excess_after.reshape(len(long), -1)  # [chosen, exchanges]

        best = excess_after.argmin(axis=1)
        helps = excess_after[np.arange(len(long)), best] < _excess(load[:, long], room)
        long, fitting = long[helps], fitting[helps]
        long_slot, fitting_slot = np.divmod(best[helps], slots.shape[1])
        leaving, coming = slots[long, long_slot], slots[fitting, fitting_slot]
        slots[long, long_slot] = coming
        slots[fitting, fitting_slot] = leaving

        moved = lengths[:, coming] - lengths[:, leaving]
        load[:, long] += moved
        load[:, fitting] -= moved


def _excess(
    load: Int64[np.ndarray, "2 ..."], room: Int64[np.ndarray, "2 ..."]
) -> Int64[np.ndarray, "..."]:
    """By how much rows are too long, both sides in the same units."""
    over = np.maximum(load - room, 0) * room[::-1]
    return over[0] + over[1]


def _shuffled(count: int, random: np.random.Philox) -> Int32[np.ndarray, " items"]:
    return random_order(random, np.zeros(count, np.uint8))
