"""Joins the finished shards of an output, each of which must be what its record describes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from flaxformer_mt.bulk.output_errors import OutputError
from flaxformer_mt.bulk.outputs import Output, opened_sink
from flaxformer_mt.bulk.shard_records import (
    ShardRecord,
    check_shard,
    difference,
    record_of,
    shard_content,
)
from flaxformer_mt.bulk.shards import check_count, shard_name
from flaxformer_mt.bulk.sinks import Consumed
from flaxformer_mt.rundir import paths


def join(output: Output, count: int, say: Callable[[str], None]) -> None:
    """Writes the output from its `count` shards, or continues to.

    Raises OutputError for a shard that is missing, has changed, or doesn't follow the one before,
    and ConfigError for an impossible number of shards.
    """
    check_count(count)
    if output.path is None:
        raise OutputError("shards are joined into a file: name the output that they belong to")
    path = output.path
    shards = [shard_name(path, index, count) for index in range(count)]
    records = _records_of(shards)
    identity = _common_identity(shards, records)
    unproven = sum(record.output is None for record in records)
    if unproven:
        say(
            f"{path}: {unproven} of {count} shards were made by an earlier "
            "version, which didn't record their size and digest: these are not checked"
        )
    for shard, record in zip(shards, records, strict=True):
        check_shard(shard, record)  # all of them, before anything is written

    with opened_sink(output, shards) as sink:
        consumed = sink.begin({**identity, "join": count})
        if consumed.lines and consumed.sha256 not in ("", _digest_of(records[: consumed.lines])):
            raise OutputError(
                f"{path}: its first {consumed.lines} shards were made again since they "
                "were joined; start over with --restart"
            )
        for number in range(consumed.lines, count):
            for chunk in shard_content(shards[number], records[number]):
                sink.write(chunk)
            joined = number + 1
            sink.commit(Consumed(lines=joined, sha256=_digest_of(records[:joined])))
        sink.finish()


def _records_of(shards: Sequence[str]) -> list[ShardRecord]:
    """Raises OutputError unless all shards and their records exist."""
    files = [*map(paths.as_path, shards), *map(record_of, shards)]
    missing = [path for path in files if not paths.exists(path)]
    if missing:
        raise OutputError(
            f"{missing[0]}: missing ({len(missing)} of {len(files)} files): "
            "--join needs all shards and records"
        )

    records = []
    for shard in shards:
        with paths.document(record_of(shard), "make the shard again") as document:
            records.append(ShardRecord.read(document))
    return records


def _common_identity(shards: Sequence[str], records: Sequence[ShardRecord]) -> dict[str, Any]:
    """The identity of the shards' common output.

    Raises OutputError unless each shard begins where the one before ends, and the last ends with
    the input.
    """
    advice = "make both from the same input with the same settings"
    expected: dict[str, Any] = {}  # of the next shard
    for number, (shard, record) in enumerate(zip(shards, records, strict=True)):
        identity = {**record.identity, "shards": None, "start": record.start}
        expected = expected or {**identity, "start": [0, ""]}
        if name := difference(expected, identity):
            raise OutputError(
                f"{shard}: has {name} {identity.get(name)!r}, but "
                + (f"after {shards[number - 1]}" if number else "as the first shard")
                + f" it must be {expected.get(name)!r}: {advice}"
            )
        expected = {**identity, "start": record.stop}

    stop = records[-1].stop[0]
    for shard, record in zip(shards, records, strict=True):
        if record.whole not in (None, stop):
            raise OutputError(
                f"{shard}: is of an input of {record.whole:,} lines, but {shards[-1]} ends after "
                f"{stop:,}: {advice}"
            )
    return expected


def _digest_of(records: Sequence[ShardRecord]) -> str:
    """The digest of the shards' content; empty if an earlier version made one of them."""
    if any(record.output is None for record in records):
        return ""
    listed = "".join(f"{record.output['sha256']}\n" for record in records if record.output)
    return hashlib.sha256(listed.encode()).hexdigest()
