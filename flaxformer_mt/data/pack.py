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
        means = [float(np.average(side, weights=counts)) for side in (src_lengths, tgt_lengths)]
        src_length, tgt_length = _lengths(longest, means, batch.tokens // batch.multiple)
    return Shape(rows_within(batch, max(src_length, tgt_length)), src_length, tgt_length)


def plan_packed(
    src_lengths: Lengths, tgt_lengths: Lengths, shape: Shape, random: np.random.Philox
) -> Plan:
    """Every pair exactly once, in nearly full rows. Raises PlanError if one exceeds the shape."""
    both = np.stack([src_lengths, tgt_lengths]).astype(np.int64)
    room = np.array([[shape.src_length], [shape.tgt_length]])
    for side, lengths, limit in zip(("source", "target"), both, room[:, 0], strict=True):
        if len(lengths) and lengths.max() > limit:
            raise PlanError(f"pair {lengths.argmax()} has over {limit} {side} tokens")
    batches = int(np.ceil((both.sum(axis=1) / room[:, 0]).max(initial=0) / shape.rows / _FILL))
    slots = _deal(both, room, batches * shape.rows, random)
    while too_long := _exchange(slots, both, room, random):
        # Sizes that don't combine, such as just over half a row, need more rows.
        more = -(-too_long // shape.rows)
        empty = np.full((more * shape.rows, slots.shape[1]), both.shape[1], np.int32)
        slots, batches = np.concatenate([slots, empty]), batches + more
    slots = slots[_shuffled(len(slots), random)]
    taken = slots < both.shape[1]
    return Plan(
        shapes=(shape,),
        shape_of=np.zeros(batches, np.int64),
        starts=np.arange(batches + 1) * shape.rows,
        row_starts=np.append(0, np.cumsum(taken.sum(axis=1))),
        pairs=slots[taken].astype(np.int32),
    )


def _lengths(longest: tuple[int, int], means: list[float], most: int) -> tuple[int, int]:
    """Those of the least estimated cost per pair, for base on a TPU v5e; at most `most` if that
    holds the longest pair."""
    pairs = max(_PAIRS_A_ROW, longest[0] / means[0], longest[1] / means[1])

    def sizes(longest: int, mean: float) -> Int64[np.ndarray, " sizes"]:
        least = -int(-max(longest, _PAIRS_A_ROW * mean) // _MULTIPLE) * _MULTIPLE
        return np.arange(least, max(least, min(2 * pairs * mean, most)) + 1, _MULTIPLE)

    src, tgt = np.meshgrid(*map(sizes, longest, means))
    keys, own_keys = (-(-length // _LANES) * _LANES for length in (src, tgt))
    scores = (src + tgt) * keys + tgt * own_keys
    cost = (src + tgt + scores / _SCORES) / np.minimum(src / means[0], tgt / means[1])
    return int(src.flat[cost.argmin()]), int(tgt.flat[cost.argmin()])


def _deal(lengths: _Lengths, room: _Room, rows: int, random: np.random.Philox) -> _Slots:
    """The pairs in rows of similar load, some too long. Empty slots hold the number of pairs."""
    pairs = lengths.shape[1]
    # In units in which both sides are full at the same number.
    size = lengths * room[::-1]
    order = _shuffled(pairs, random)
    order = order[np.argsort(-size.max(axis=0)[order], kind="stable")]
    load = np.zeros((2, rows), np.int64)
    slots = []
    for start in range(0, pairs, max(rows, 1)):
        take = order[start : start + rows]
        to = np.argsort(load.max(axis=0), kind="stable")[: len(take)]
        group = np.arange(len(take)) * _GROUPS // len(take)
        take = take[np.lexsort((size[0, take] - size[1, take], group))]
        to = to[np.lexsort((load[1, to] - load[0, to], group))]
        load[:, to] += size[:, take]
        slot = np.full(rows, pairs, np.int32)
        slot[to] = take
        slots.append(slot)
    slots.append(np.full(rows, pairs, np.int32))
    return np.stack(slots, axis=1)


def _exchange(slots: _Slots, lengths: _Lengths, room: _Room, random: np.random.Philox) -> int:
    """Exchanges pairs between rows until none is too long, or no more; how many stay so."""
    lengths = np.concatenate([lengths, np.zeros((2, 1), np.int64)], axis=1)  # the empty slot
    load = lengths[:, slots].sum(axis=2)
    for turn in range(_EXCHANGES):
        excess = _excess(load, room)
        long, fitting = np.flatnonzero(excess), np.flatnonzero(excess == 0)
        count = min(len(long), len(fitting))
        if not count:
            return len(long)
        long = long[_shuffled(len(long), random)[:count]]
        fitting = fitting[_shuffled(len(fitting), random)]
        if turn % 2:
            # Every other time the emptiest partner, for rows that few can help.
            share = (load[:, fitting] * room[::-1]).max(axis=0)
            fitting = fitting[np.argsort(share, kind="stable")]
        for start in range(0, count, _ROWS_AT_A_TIME):
            part = slice(start, min(start + _ROWS_AT_A_TIME, count))
            _exchange_best(slots, lengths, load, room, long[part], fitting[part])
    return int(np.count_nonzero(_excess(load, room)))


def _exchange_best(
    slots: _Slots,
    lengths: Int64[np.ndarray, "2 pairs_and_one"],
    load: Int64[np.ndarray, "2 rows"],
    room: _Room,
    long: Integer[np.ndarray, " chosen"],
    fitting: Integer[np.ndarray, " chosen"],
) -> None:
    """Each long row makes the best exchange with its fitting row, if any helps."""
    give, take = lengths[:, slots[long]], lengths[:, slots[fitting]]
    change = take[:, :, None, :] - give[:, :, :, None]  # [side, chosen, given slot, taken slot]
    after = _excess(load[:, long, None, None] + change, room[:, :, None, None])
    after += _excess(load[:, fitting, None, None] - change, room[:, :, None, None])
    flat = after.reshape(len(long), -1)
    best = flat.argmin(axis=1)
    better = flat[np.arange(len(long)), best] < _excess(load[:, long], room)
    long, fitting = long[better], fitting[better]
    given, taken = np.divmod(best[better], slots.shape[1])
    out, back = slots[long, given], slots[fitting, taken]
    slots[long, given], slots[fitting, taken] = back, out
    moved = lengths[:, back] - lengths[:, out]
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
