"""Saving a run's state while training continues, and restoring the newest intact one.

`save` returns once the arrays are copied off the devices, so they may be donated to the next step.
A step is renamed when complete; in a bucket Orbax writes `commit_success.txt` last. A step that a
kill interrupts is not committed or doesn't match its digests, and is never used.
"""

import contextlib
import dataclasses
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from flaxformer_mt.config import TrainingConfig
from flaxformer_mt.rundir import (
    CheckpointError,
    DamagedError,
    UnreadError,
    checkpoint_choice as choice,
    checkpoint_format as form,
)
from flaxformer_mt.rundir.checkpoint_choice import Kind
from flaxformer_mt.rundir.digests import flatten_paths
from flaxformer_mt.rundir.paths import as_path, check_writable, is_remote, remove

_TEMPORARY = ("[0-9]*.orbax-checkpoint-tmp*", f"{form.BASE}.orbax-checkpoint-tmp*")
_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Everything that lets a stopped run resume as if it hadn't stopped.

    `params`, `opt_state` and `ema` (the parameters' moving average, if kept) are trees of arrays;
    `position` (of the data iterator) and `metrics` are plain JSON. `kind` says why it was saved. If
    the parameters are adapters of the directory's base, `adapter_scale` is their factor.
    """

    step: int
    params: Any
    opt_state: Any
    position: Mapping[str, Any]
    metrics: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    ema: Any = None
    adapter_scale: float | None = None
    kind: Kind = "regular"


class Checkpoints(contextlib.AbstractContextManager["Checkpoints"]):
    """The checkpoints of one run, for the process that trains and holds the run's lock.

    `settings` say which to keep; `say` gets a sentence about each that is set aside. Raises
    CheckpointError.
    """

    def __init__(
        self,
        directory: Path,
        settings: TrainingConfig,
        *,
        say: Callable[[str], None] = _LOGGER.warning,
        before_save: Callable[[], None] = lambda: None,
    ) -> None:
        form.hush()
        self.directory = as_path(directory)
        check_writable(self.directory)
        self.settings = settings
        self._before_save = before_save
        self._say = say
        self._unproven: int | None = None  # the first step saved here, until it was read back
        self._has_saved = False
        self._manager: ocp.CheckpointManager | None = self._open()

    def save(self, snapshot: Snapshot) -> bool:
        """Starts saving once the previous save is done. False if the step exists."""
        self.wait()
        if snapshot.step in self.steps():
            return False
        self._before_save()
        trees: dict[str, Any] = {"params": snapshot.params, "opt_state": snapshot.opt_state}
        if snapshot.ema is not None:
            trees["ema"] = snapshot.ema
        meta: dict[str, Any] = {
            "step": snapshot.step,
            "kind": snapshot.kind,
            "metrics": dict(snapshot.metrics),
            "best": choice.best_by(self.settings),
        }
        if snapshot.adapter_scale is not None:
            base = form.base_digest(self.directory)
            meta["adapters"] = {"scale": snapshot.adapter_scale, "base": base}
        arguments = form.composite(trees, {"position": snapshot.position, "meta": meta})
        self._metas[snapshot.step] = meta
        try:
            self._opened().save(snapshot.step, args=arguments, force=True)
        except Exception as error:
            self._failed(error)
        if not self._has_saved:
            self._has_saved = True
            self._unproven = snapshot.step
        return True

    def save_base(self, params: Any) -> None:
        """Saves the weights whose adapters the checkpoints will be, once for all of them, and
        before the first. Raises CheckpointError."""
        place = self.directory / form.BASE
        self._before_save()
        try:
            if jax.process_index() == 0:
                remove(place)  # of an earlier start, which came to no checkpoint
            form.everywhere(True)
            with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as writer:
                writer.save(place, args=form.composite({"params": params}, {"meta": {}}))
            with form.damaged_for_all(f"{place}:"):
                if jax.process_index() == 0:  # others may see it only later, on NFS
                    form.read_back(place)
        except Exception as error:  # Orbax and TensorStore raise anything.
            raise CheckpointError(
                f"{place}: cannot be written: {form.first_line(error)}"
            ) from error

    def restore_base(self, abstract: Any) -> Any:
        """What `save_base` saved, placed as `abstract` says. Raises CheckpointError, also if it
        isn't what the newest checkpoint's adapters belong to."""
        newest = self._metas[max(self._metas)]
        return form.read_base(self.directory, newest["adapters"]["base"], abstract)

    def wait(self) -> None:
        """Returns when the last save is on disk. Raises CheckpointError if it failed, and if the
        first one can't be read back."""
        try:
            self._opened().wait_until_finished()
        except Exception as error:
            self._failed(error)
        step, self._unproven = self._unproven, None
        if step is not None:
            self._read_back(self.directory / str(step))

    def restore(
        self, abstract_params: Any, abstract_opt_state: Any, *, abstract_ema: Any = None
    ) -> Snapshot:
        """The newest intact snapshot, every leaf checked, placed as the abstract trees say.

        Damaged ones after it are reported and renamed to `damaged-STEP`. Raises CheckpointError for
        another model's, and UnreadError for one that the machine fails to read.
        """
        self.wait()
        abstract = {"params": abstract_params, "opt_state": abstract_opt_state}
        if abstract_ema is not None:
            abstract["ema"] = abstract_ema

        damaged: dict[int, str] = {}
        for candidate in reversed(self.steps()):
            try:
                snapshot = read_snapshot(self.directory / str(candidate), abstract)
            except DamagedError as error:
                damaged[candidate] = str(error)
                continue
            self._set_aside(damaged, snapshot.step)
            return snapshot

        if not damaged:
            raise CheckpointError(f"{self.directory}: has no checkpoint")
        steps = choice.listed(sorted(damaged))
        reasons = "\n".join(f"  {reason}" for reason in damaged.values())
        raise CheckpointError(
            f"{self.directory}: none of the checkpoints {steps} can be used; left in place:\n"
            f"{reasons}"
        )

    def steps(self) -> list[int]:
        """Steps on disk or on their way there, in order."""
        return sorted(self._opened().all_steps())

    def latest_step(self) -> int | None:
        return max(self.steps(), default=None)

    def close(self) -> None:
        """Waits for the last save and ends. Raises CheckpointError if that failed."""
        if self._manager is None:
            return
        try:
            self.wait()
        finally:
            self._close_manager()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> ocp.CheckpointManager:
        try:
            if not is_remote(self.directory):
                self.directory.mkdir(parents=True, exist_ok=True)
            if jax.process_index() == 0:
                self._remove_leftovers()
        except OSError as error:
            why = error.strerror or error
            raise CheckpointError(f"{self.directory}: cannot hold checkpoints: {why}") from error
        form.everywhere(True)

        self._metas = self._read_metas()
        return ocp.CheckpointManager(
            self.directory,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=self,
                # Orbax would refuse to open a directory with one damaged step.
                lightweight_initialize=True,
                # Otherwise a folder that can't be made leaves threads that wait for five minutes.
                async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
            ),
        )

    def _remove_leftovers(self) -> None:
        """Removes steps that a killed process was writing."""
        if is_remote(self.directory):
            for step in choice.steps_begun(self.directory):
                if not choice.is_there(self.directory / str(step)):
                    remove(self.directory / str(step))
        else:
            # Orbax's own clean-up overlooks the temporary folders of steps.
            for pattern in _TEMPORARY:
                for leftover in self.directory.glob(pattern):
                    shutil.rmtree(leftover)

    def _read_metas(self) -> dict[int, Mapping[str, Any]]:
        """Every readable step's description."""
        metas: dict[int, Mapping[str, Any]] = {}
        for step in form.listed_alike(self.directory, choice.list_steps):
            try:
                metas[step] = form.read_meta(self.directory / str(step))
            except DamagedError:
                continue  # named when it is to be restored
            except UnreadError as error:
                self._say(f"{error}; keeping it for now")
        return metas

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
        """Tells Orbax which checkpoints to keep."""
        steps = [checkpoint.step for checkpoint in checkpoints]
        metrics = {step: self._metas[step]["metrics"] for step in steps if step in self._metas}
        irregular = {step for step in metrics if choice.kind_of(self._metas[step]) != "regular"}
        to_keep = choice.steps_to_keep(steps, metrics, self.settings, irregular=irregular)
        # An unreadable one may be the best.
        return [step in to_keep or step not in metrics for step in steps]

    def _opened(self) -> ocp.CheckpointManager:
        if self._manager is None:
            self._manager = self._open()
        return self._manager

    def _close_manager(self) -> None:
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.close()

    def _failed(self, error: Exception) -> None:
        """Closes the manager, which is unusable after a failure; the next call makes a new one."""
        self._has_saved = False
        self._unproven = None
        try:
            self._close_manager()
        except Exception as second:
            error.add_note(f"and closing: {second}")
        raise CheckpointError(
            f"{self.directory}: a checkpoint could not be saved: {form.first_line(error)}; "
            "earlier ones are intact"
        ) from error

    def _read_back(self, folder: Path) -> None:
        """Raises CheckpointError if a save that seemed to succeed didn't."""
        try:
            with form.damaged_for_all(f"{folder}:"):
                try:
                    if jax.process_index() == 0:  # others may see it only later, on NFS
                        form.read_back(folder)
                except UnreadError as error:
                    self._say(f"{error}; reading back the next one instead")
                    self._has_saved = False
        except DamagedError as error:
            raise CheckpointError(
                f"{error}, although it was just saved; train in another folder, since nothing "
                "saved here could be used"
            ) from error

    def _set_aside(self, damaged: Mapping[int, str], used: int) -> None:
        """Renames damaged steps, each with its reason, since step `used` is restored instead."""
        if not damaged:
            return
        asides = {step: _free_name(self.directory, f"damaged-{step}") for step in damaged}
        form.everywhere(True)
        for step, reason in damaged.items():
            if jax.process_index() == 0:
                (self.directory / str(step)).rename(asides[step])
            self._metas.pop(step, None)
            self._say(f"{reason}; set aside as {asides[step].name}, going back to step {used}")
        form.everywhere(True)
        form.listed_alike(self.directory, choice.list_steps)
        self._opened().reload()


def read_snapshot(folder: Path, abstract: Mapping[str, Any]) -> Snapshot:
    """A checkpoint's trees of the given names, placed as the abstract trees say.

    Raises DamagedError, CheckpointError for another model's, UnreadError.
    """
    with form.damaged_for_all(f"{folder}:"):
        meta = form.read_meta(folder)
        if str(meta["step"]) != folder.name:
            raise DamagedError(f"{folder}: holds step {meta['step']}; restore the folder's name")
        for name, tree in abstract.items():
            form.check_form(folder, meta, name, flatten_paths(tree))
        position = form.read_document(folder, meta, "position")
    trees = {name: form.read_tree(folder, meta, name, tree) for name, tree in abstract.items()}
    return Snapshot(
        step=meta["step"],
        params=trees["params"],
        opt_state=trees["opt_state"],
        ema=trees.get("ema"),
        position=position,
        metrics=meta["metrics"],
        kind=choice.kind_of(meta),
    )


def _free_name(directory: Path, name: str) -> Path:
    """`directory/NAME`, or with the first number from 2 that isn't taken: `directory/NAME-2`."""
    path = directory / name
    number = 2
    while path.exists():
        path = directory / f"{name}-{number}"
        number += 1
    return path
