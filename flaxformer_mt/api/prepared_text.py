"""Makes or verifies a run's vocabulary and token store: all of `prepare`, the start of `train`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from flaxformer_mt.api import say
from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.data.planner import Planner
from flaxformer_mt.data.sampling import resampler_for
from flaxformer_mt.data.store import Store, StoreError
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.rundir import RunDirectoryError, layout
from flaxformer_mt.rundir.cache import INDEX_FILES, local_copy, preparing
from flaxformer_mt.rundir.checkpoint_choice import list_steps
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import exists, explained

if TYPE_CHECKING:
    from flaxformer_mt.data.prepare.spread import Cluster


def begin_folder(run: RunDirectory, config: ExperimentConfig) -> None:
    """Makes a new run's folder, unless its text can't be read. Raises as `check_inputs`."""
    from flaxformer_mt.data.prepare.sample import check_inputs

    if not exists(run.data):
        check_inputs(config.data)
    layout.make_folder(run)


@contextlib.contextmanager
def prepared(
    run: RunDirectory,
    config: ExperimentConfig,
    *,
    source: RunDirectory | None = None,
    cluster: Cluster | None = None,
    thorough: bool = False,
) -> Iterator[Store]:
    """The store; a run in a bucket has it and the vocabulary when this ends without an error.

    Takes the vocabulary of `source`, another run, with types for new tags and symbols; a `cluster`
    does the work. Raises as `data.prepare`, and RunDirectoryError for a trained run without its
    vocabulary.
    """
    if list_steps(run.checkpoints) and not exists(run.vocabulary / INDEX_FILES["vocabulary"]):
        # A newly trained one's ids would mean nothing to the model.
        raise RunDirectoryError(
            f"{run.vocabulary}: missing, but the checkpoints need it: restore it from a copy"
        )
    # Here, since only the first of several processes prepares.
    from etils import epath

    from flaxformer_mt.data.prepare.make import prepare

    with preparing(run) as folder:
        if source is not None and not (folder / "vocabulary" / INDEX_FILES["vocabulary"]).exists():
            # Verified and written aside: half a vocabulary would be taken for the run's.
            _taken_over(source, config).save(folder / "vocabulary")
        yield prepare(
            config.data,
            seed=config.training.seed,
            directory=folder,
            say=say,
            bar=sys.stderr.isatty(),
            cluster=cluster,
            parts=run.parts,
            thorough=thorough,
        )
    with explained(run.parts, "removed"):
        epath.Path(run.parts).rmtree(missing_ok=True)


def _taken_over(source: RunDirectory, config: ExperimentConfig) -> Vocabularies:
    """The vocabulary of a run that another one starts from, with types that the new text needs."""
    from flaxformer_mt.data.extended_vocabulary import new_types, with_types_of
    from flaxformer_mt.wording import counted

    vocabularies = vocabularies_of(source)
    extended = with_types_of(vocabularies, config.data)
    if added := new_types(vocabularies, extended):
        say(
            f"prepare: the vocabulary of {source} with {counted(len(added), 'new type')} after all "
            f"others: {', '.join(added)}; their embeddings start as the mean of the others"
        )
    return extended


def prepare_only(
    run: RunDirectory, config: ExperimentConfig, source: RunDirectory | None = None
) -> None:
    """As `prepared`, for the first of several processes; each then opens the result."""
    with prepared(run, config, source=source):
        pass


def planner_of(config: ExperimentConfig, store: Store, vocabularies: Vocabularies) -> Planner:
    """Plans batches of the training pairs. Raises StoreError if they lack the weights that the
    settings name, or have weights that these don't."""
    if store.train.sides["tgt"].have_weights != config.data.has_pair_weights:
        raise StoreError(
            "the prepared pairs and the settings differ in 'pair_weights': run `prepare` in a new "
            "--workdir"
        )
    seed = config.training.seed
    return Planner(
        store.train,
        config.data.batch,
        seed,
        epoch_pairs=config.data.epoch_pairs,
        resampler=resampler_for(config.data, vocabularies, seed),
    )


def vocabularies_of(run: RunDirectory) -> Vocabularies:
    """A prepared run's vocabularies, from this machine's copy if the run is in a bucket."""
    return Vocabularies.load(local_copy(run.vocabulary))


class PreparedText(NamedTuple):
    """A run's text as token ids."""

    vocabularies: Vocabularies
    store: Store


def open_data(run: RunDirectory) -> PreparedText:
    """A prepared run's text, from this machine's copy if the run is in a bucket."""
    vocabularies = vocabularies_of(run)
    store = Store.open(local_copy(run.data), vocabulary_digest=vocabularies.digest)
    return PreparedText(vocabularies, store)
