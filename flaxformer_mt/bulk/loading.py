"""Loads a job's model, here or in a cluster's worker, and says what decides the output."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import flaxformer_mt
from flaxformer_mt.bulk.stream import Made, Window

if TYPE_CHECKING:
    from flaxformer_mt.decoding.translator import Translator

Counts = TypeVar("Counts", covariant=True)


class Task(Protocol[Counts]):
    """What is done with each window of lines: `TranslateSettings` or `ScoreSettings`."""

    what: ClassVar[str]  # the work, for its progress

    def check(self, translator: Translator) -> None:
        """Raises an error for settings that would fail with any line."""

    def make(self, window: Window, translator: Translator) -> Made:
        """A window's output."""

    def identity(self) -> dict[str, Any]:
        """The settings that a later call must share to continue an output, as JSON."""

    def counts(self, sums: Mapping[str, float]) -> Counts:
        """The counts behind the sums of `make`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loading:
    """How a process gets ready for its windows; with Ray it is sent to the workers."""

    task: Task[Any]
    load: Callable[[], Translator]
    window: int  # lines
    is_continued: bool  # whether a later call may continue the output
    is_worker: bool  # of a cluster

    def __call__(self) -> tuple[dict[str, Any], Callable[[Window], Made]]:
        """Loads the model; returns everything that decides the output, and a function of a window.

        Raises what `load` and `Task.check` raise.
        """
        if self.is_worker:  # its process has not passed through the command's `main`
            from flaxformer_mt.parallel.compile_cache import keep_compiled
            from flaxformer_mt.rundir.cache import cache_folder

            keep_compiled(cache_folder() / "xla")

        translator = self.load()
        self.task.check(translator)
        make = functools.partial(self.task.make, translator=translator)
        if not self.is_continued and not self.is_worker:
            # Nothing is compared later.
            return {"weights": translator.name}, make
        return identity(translator, window=self.window, **self.task.identity()), make


def identity(translator: Translator, **settings: Any) -> dict[str, Any]:
    """Everything except the input that decides the output: another command must not resume it.

    Leaves out the size of batches: a call that ran out of memory may be resumed with smaller ones.
    """
    from flaxformer_mt.rundir.digests import tree_digest

    decoding = dataclasses.asdict(translator.config)
    del decoding["batch_tokens"]
    del decoding["length_choice"]  # what it led to is among the others
    for name in ("min_length", "min_ratio", "copy_symbols", "keep", "copy_unknown"):
        if not decoding[name]:
            del decoding[name]  # records of before these settings don't have them
    flat: dict[str, Any] = {}
    for name, value in {"decoding": decoding, **settings}.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": setting for key, setting in value.items()}
        else:
            flat[name] = value

    digests = tree_digest([params for params, _ in translator.members])
    listed = "".join(f"{path} {digest}\n" for path, digest in sorted(digests.items()))

    return {
        "program": f"flaxformer_mt {flaxformer_mt.__version__}",
        "weights": translator.name,
        "parameters": hashlib.sha256(listed.encode()).hexdigest()[:16],
        "vocabulary": translator.vocabularies.digest[:16],
        "shortlist": translator.shortlist and translator.shortlist.digest,
        "together": translator.together,  # sentences of a line
        "dtype": ", ".join(model.config.dtype for _, model in translator.members),
        **({"runtime": translator.runtime.name} if translator.runtime else {}),
        **translator.told,
        **flat,
    }
