"""What each stage of the hour checks, by name."""

from collections.abc import Callable, Iterator, Mapping

import jax

from flaxformer_mt.diagnosis.examination import examine
from flaxformer_mt.diagnosis.machine import Finding, examined, noted
from flaxformer_mt.planning.describe import name_of
from flaxformer_mt.rehearsal.input import check_input
from flaxformer_mt.rehearsal.rehearsed import Rehearsed
from flaxformer_mt.rehearsal.saving import check_saving
from flaxformer_mt.rehearsal.short_run import check_decoding, check_resuming, check_training
from flaxformer_mt.rehearsal.steps import check_steps

Rehearsal = Callable[[Rehearsed], Iterator[Finding]]


def check_machine(rehearsed: Rehearsed) -> Iterator[Finding]:
    """All of `doctor`, and the name under which these devices are planned for."""
    yield from examine(rehearsed.folder.parent, rehearsed.config, rehearsed.processes)
    topology = name_of(jax.devices())
    if topology is None:
        yield noted("topology", "not one that a step can be planned for")
    else:
        yield noted("topology", str(topology), values=topology._asdict())


STAGES: Mapping[str, Rehearsal] = {
    "machine": check_machine,
    "steps": check_steps,
    "input": check_input,
    "save": check_saving,
    "train": check_training,
    "resume": check_resuming,
    "decode": check_decoding,
}


def rehearse(name: str, rehearsed: Rehearsed) -> Iterator[Finding]:
    """The findings of one stage; an exception is one, too."""
    yield from examined(name, lambda: STAGES[name](rehearsed))
