"""The lines that a job reads, and where they are cut into shards."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

from flaxformer_mt.bulk.reading import Input, Lines, Paragraphs, Shard, Whole
from flaxformer_mt.bulk.shard_records import Ends
from flaxformer_mt.bulk.shards import Cut, OneShard, Share, shard_name
from flaxformer_mt.bulk.stream import shard_ends


@dataclasses.dataclass(frozen=True)
class OpenInput:
    """An open input; of one that is cut, the lines of the shards to write."""

    lines: Whole | Shard
    cut: Cut | None
    is_typed: bool  # by a person, who sees what becomes of each line

    def prompt(self) -> None:
        """Prompts the person who types, before each line."""
        if isinstance(self.lines, Lines):
            self.lines.prompt = "> "
        elif isinstance(self.lines, Paragraphs):
            self.lines.prompt("> ")

    @property
    def advice(self) -> str:
        """What the person who types does."""
        if isinstance(self.lines, Paragraphs):
            return "type a paragraph, then an empty line; Ctrl-D quits"
        return "type a sentence and press Enter; Ctrl-D quits"


@contextlib.contextmanager
def opened_input(
    source: Input,
    *,
    share: Share | None,
    output: str | None,
    window: int,
    say: Callable[[str], None],
) -> Iterator[OpenInput]:
    """Opens an input; for a `share` of it, it is read once before, to count its windows.

    `output` names the file whose shards are written. Raises CorpusError and InputError.
    """
    if share is None or output is None:
        with source.opened() as lines:
            is_typed = isinstance(lines, Lines | Paragraphs) and lines.interactive
            yield OpenInput(lines, cut=None, is_typed=is_typed)
        return

    with source.opened() as lines:
        boundaries = shard_ends(lines, share.count, window=window)
    ends: dict[str, Ends] = {}
    for number in share.numbers:
        name = shard_name(output, number, share.count)
        ends[name] = boundaries[number][0], boundaries[number + 1][0]

    (start, _), bytes_before = boundaries[share.numbers.start]
    (stop, _), bytes_through = boundaries[share.numbers.stop]
    if isinstance(share, OneShard) and start == stop:
        say(f"--shard {share.text}: nothing to do; lower --window for more parts")
    (line_count, _), _ = boundaries[-1]
    with source.opened() as lines:
        part = Shard(lines, start, stop, bytes_through - bytes_before)
        yield OpenInput(part, Cut(ends, line_count), is_typed=False)
