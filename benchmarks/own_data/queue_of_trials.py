"""The trials of the study: which there are, in which order, and how long those left will take."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from benchmarks.own_data.corpora import CORPORA
from benchmarks.own_data.peers import PEERS
from benchmarks.own_data.settings import SETTINGS, SURVIVORS, halved

Part = Literal["ours", "search", "peers"]
PARTS: tuple[Part, ...] = ("ours", "search", "peers")


@dataclasses.dataclass(frozen=True)
class Trial:
    """A contestant ("ours", a setting or a peer) on a corpus, for so many minutes."""

    corpus: str
    contestant: str
    minutes: int

    @property
    def name(self) -> str:
        return f"{self.corpus}.{self.contestant}.{self.minutes}"

    @property
    def part(self) -> Part:
        if self.contestant == "ours":
            return "ours"
        return "search" if self.contestant in SETTINGS else "peers"

    @property
    def earlier(self) -> int:
        """Minutes that its run has trained before; `files` plans for its time, and begins anew."""
        shorter = [minutes for minutes in CORPORA[self.corpus].minutes if minutes < self.minutes]
        return 0 if self.part == "ours" else max(shorter, default=0)


@dataclasses.dataclass(frozen=True)
class Stage:
    """The trials of one part of a cell; with `most`, only the first of them."""

    corpus: str
    part: Part
    minutes: int
    most: int | None = None

    def __str__(self) -> str:
        return f"{self.corpus}, {self.minutes} minutes: {self.part}"

    @property
    def count(self) -> int:
        """How many trials it has."""
        sizes = {"ours": 1, "search": SURVIVORS[self.minutes], "peers": len(PEERS)}
        return min(sizes[self.part], self.most or sizes[self.part])

    def trials(self, dev_scores: Mapping[Trial, float]) -> list[Trial] | None:
        """Its trials; None if a time before has yet to decide which they are.

        `dev_scores` are of the trials that have ended. One that failed has -1.
        """
        contestants = self._contestants(dev_scores)
        if contestants is None:
            return None
        return [Trial(self.corpus, name, self.minutes) for name in contestants[: self.most]]

    def _contestants(self, dev_scores: Mapping[Trial, float]) -> Sequence[str] | None:
        if self.part == "ours":
            return ["ours"]
        if self.part == "peers":
            return [peer.name for peer in PEERS]

        minutes = CORPORA[self.corpus].minutes
        before = minutes.index(self.minutes) - 1
        if before < 0:
            return list(SETTINGS)
        entered = Stage(self.corpus, "search", minutes[before]).trials(dev_scores)
        if entered is None or any(trial not in dev_scores for trial in entered):
            return None
        scores = {trial.contestant: dev_scores[trial] for trial in entered}
        return halved(scores, self.minutes)


def stages() -> list[Stage]:
    """All in their order: one cell from end to end, four searches of five minutes, and the rest.

    A stage that comes again, whole, has its first trials done.
    """
    first = "multi30k_10000"
    early = ("multi30k_3000", first, "multi30k_29000", "php_18291")
    order = [
        Stage(first, "ours", 5),
        Stage(first, "search", 5, most=2),
        Stage(first, "peers", 5, most=1),
        *(Stage(corpus, "search", 5) for corpus in early),
    ]
    times = sorted({minutes for corpus in CORPORA.values() for minutes in corpus.minutes})
    rest = [
        Stage(corpus.name, part, minutes)
        for minutes in times
        for corpus in CORPORA.values()
        if minutes in corpus.minutes
        for part in PARTS
    ]
    return [*order, *(stage for stage in rest if stage not in order)]


def pending(dev_scores: Mapping[Trial, float]) -> Iterator[Trial]:
    """Trials that can begin, in order. Call it anew when one has ended."""
    begun: set[Trial] = set()
    for stage in stages():
        for trial in stage.trials(dev_scores) or ():
            if trial not in dev_scores and trial not in begun:
                begun.add(trial)
                yield trial


def eliminated(dev_scores: Mapping[Trial, float]) -> Iterator[Trial]:
    """Trials of the search whose runs a longer time has not chosen."""
    for stage in stages():
        earlier = _earlier(stage)
        if stage.part == "search" and earlier:
            entered = Stage(stage.corpus, "search", earlier).trials(dev_scores)
            chosen = stage.trials(dev_scores)
            if entered is not None and chosen is not None:
                names = {trial.contestant for trial in chosen}
                yield from (trial for trial in entered if trial.contestant not in names)


def plan(dev_scores: Mapping[Trial, float]) -> Iterator[str]:
    """A line for each stage with something left to do, with the hours up to its end."""
    total, counted = 0.0, set[Trial]()
    for stage in stages():
        trials = stage.trials(dev_scores)
        if trials is None:
            minutes = stage.count * (stage.minutes - _earlier(stage))
            count = stage.count
        else:
            left = [trial for trial in trials if trial not in dev_scores and trial not in counted]
            counted.update(left)
            minutes = sum(trial.minutes - trial.earlier for trial in left)
            count = len(left)
        if count:
            total += minutes / 60
            yield f"{total:6.1f} h  {stage}, {count} {'trial' if count == 1 else 'trials'}"


def _earlier(stage: Stage) -> int:
    return Trial(stage.corpus, next(iter(SETTINGS)), stage.minutes).earlier
