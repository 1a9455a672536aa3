"""A run directory made of Marian's own files: `decoder.yml`, a model as `.npz`, and SentencePiece
vocabularies."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from flax.traverse_util import unflatten_dict

from flaxformer_mt.config import ConfigError, default_config, freeze, to_dict
from flaxformer_mt.config.schema import ExperimentConfig, TrainingConfig
from flaxformer_mt.data.sentencepiece_training import VocabularyError
from flaxformer_mt.files.reading import read_text
from flaxformer_mt.interop import ExportError
from flaxformer_mt.interop.folder import appearing
from flaxformer_mt.interop.marian_files import read_npz
from flaxformer_mt.interop.marian_program import DECODER, LENGTH_FACTOR, ReadModel, read_model
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.layout import Status, write_status
from flaxformer_mt.rundir.paths import as_path, check_writable

# Marian's defaults, with LENGTH_FACTOR.
_MAX_LENGTH, _BEAM_SIZE, _NORMALIZE = 1000, 12, 0.0
# Settings of the search without a form here, with the values that have no effect.
_WITHOUT_FORM = {
    "word-penalty": 0,
    "allow-unk": False,
    "output-sampling": [],
    "output-approx-knn": [],
    "shortlist": [],
}


def decoder_file(folder: str | os.PathLike[str]) -> Path | None:
    """The settings of Marian's search in a local folder of Marian's own files; None if it is none.

    A training leaves `MODEL.npz.decoder.yml`. Raises ExportError if there are several.
    """
    path = Path(folder)
    if not path.is_dir() or (path / "config.json").exists():
        return None
    if (path / DECODER).exists():
        return path / DECODER
    files = sorted(path.glob(f"*.npz.{DECODER}"))
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise ExportError(f"{path}: has {names}: copy the one that counts to {DECODER}")
    return files[0] if files else None


def import_npz(
    decoder_yml: Path,
    workdir: str | os.PathLike[str],
    command_line: Sequence[str],
    *,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Converts the model that the file `decoder_yml` names into the new run directory `workdir`.
    Paths in it are relative to its folder, in which the files are also found by their names.

    Raises ExportError and WorkdirError, and leaves nothing, if the files can't be read or this
    program has no form for the model.
    """
    if "://" not in str(workdir):  # else refused when the folder is to be made
        check_writable(as_path(workdir))
    path = decoder_yml.parent
    decoder = _decoder(decoder_yml)
    try:
        model, *vocabs = _files(decoder, path)
        max_length = int(decoder.get("max-length", _MAX_LENGTH))
        read = read_model(read_npz(model), vocabs, max_length=max_length)
        config = _experiment(decoder_yml, decoder, read)
    except (ExportError, VocabularyError) as error:
        raise ExportError(f"{path}: {error}") from error
    except OSError as error:
        raise ExportError(f"{error.filename}: cannot be read: {error.strerror}") from error
    except (ConfigError, KeyError, TypeError, ValueError) as error:
        reason = str(error) if isinstance(error, ConfigError) else repr(error)
        raise ExportError(f"{path}: is not a folder of Marian's: {reason}") from error
    for name, off in _WITHOUT_FORM.items():
        if decoder.get(name, off) != off:
            say(f"{name} = {decoder[name]!r} is not imported: it has no form here")

    with appearing(workdir) as aside:
        run = layout.create(aside, to_dict(config), command_line)
        read.vocabularies.save(run.vocabulary)
        with Checkpoints(run.checkpoints, TrainingConfig()) as checkpoints:
            params = unflatten_dict(read.weights, sep="/")
            checkpoints.save(Snapshot(step=0, params=params, opt_state={}, position={}))
        write_status(run, Status(state="finished", step=0, reason=f"imported from {path}"))


def _decoder(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(read_text(path, ExportError))
    except yaml.YAMLError as error:
        raise ExportError(f"{path}: is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise ExportError(f"{path}: is not a mapping of Marian's settings")
    return content


def _files(decoder: Mapping[str, Any], folder: Path) -> list[Path]:
    """The model, and the vocabulary of each side. Raises ExportError unless there is one of each,
    and KeyError or TypeError for settings that are missing or of another type."""
    models, vocabs = decoder["models"], decoder["vocabs"]
    for name, files in (("models", models), ("vocabs", vocabs)):
        if not isinstance(files, list):
            raise ExportError(f"'{name}' must be a list of files, but is {files!r}")
    if len(models) != 1:
        raise ExportError(
            f"'models' names {len(models)} files: an ensemble can't be imported as one run; name "
            "one of them, and import each by itself"
        )
    if len(vocabs) != 2:
        raise ExportError(f"'vocabs' names {len(vocabs)} files, but a model has two sides: name 2")
    for vocab in vocabs:
        if Path(vocab).suffix != ".spm":
            raise ExportError(f"{vocab}: is not a SentencePiece model (.spm)")
    names = [*models, *vocabs]
    files = [_file(folder, name) for name in names]
    if len({*names}) != len({*files}):
        raise ExportError(
            f"'vocabs' names two files {Path(vocabs[0]).name!r}, but the folder has only one: copy "
            "both there under different names, and name these"
        )
    return files


def _file(folder: Path, name: str) -> Path:
    """A file that `decoder.yml` names. Raises ExportError if it is missing.

    After a training in another folder, as with `--model runs/model.npz`, Marian leaves paths from
    there, which lead nowhere from here; the files are usually in the same folder.
    """
    for path in (folder / name, folder / Path(name).name):
        if path.exists():
            return path
    raise ExportError(f"{name}: no such file: copy it to {folder}")


def _experiment(path: Path, decoder: dict[str, Any], read: ReadModel) -> ExperimentConfig:
    tree = default_config()
    tree.name = path.resolve().parent.name
    tree.model.update(to_dict(ExperimentConfig(model=read.config))["model"])
    vocabularies = read.vocabularies
    tree.data.vocabulary.shared = vocabularies.src.model == vocabularies.tgt.model
    tree.data.vocabulary.size = vocabularies.tgt.size
    tree.data.vocabulary.kind = "bpe" if vocabularies.tgt.is_bpe else "unigram"
    tree.data.filter.max_length = min(tree.data.filter.max_length, read.config.max_length)
    tree.decoding.update(
        beam_size=int(decoder.get("beam-size", _BEAM_SIZE)),
        length_norm="average",
        length_penalty=float(decoder.get("normalize", _NORMALIZE)),
        ends_among="beam",
        max_ratio=float(decoder.get("max-length-factor", LENGTH_FACTOR)),
        max_extra_tokens=1,
    )
    return freeze(tree, str(path))
