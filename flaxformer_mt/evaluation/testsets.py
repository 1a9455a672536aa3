"""sacreBLEU's test sets by name, from its local folder or downloaded."""

import difflib
from pathlib import Path
from typing import Any, NamedTuple

import sacrebleu.utils
from sacrebleu.dataset import DATASETS

from flaxformer_mt.evaluation.bleu_tokenizers import limited_sockets
from flaxformer_mt.evaluation.evaluate import read_segments
from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.evaluation.references import Given, References


class _Paths(NamedTuple):
    """Where a set's text is: the references are those that sacreBLEU's command scores with."""

    source: Path
    references: list[Path]
    unused: int  # references that it leaves out


def load_testset(name: str, langpair: str) -> tuple[list[str], Given, int]:
    """Sources and references of `wmt14/full`, `en-de` and the like, and how many more references
    there are that sacreBLEU's command leaves out. Raises ScoringError."""
    if name not in DATASETS:
        similar = difflib.get_close_matches(name, DATASETS, n=4, cutoff=0.5)
        raise ScoringError(
            f"sacreBLEU has no test set {name!r}"
            + (f", but {', '.join(similar)}" if similar else "")
            + " (`sacrebleu --list`)"
        )
    pairs = DATASETS[name].langpairs
    if langpair not in pairs:
        raise ScoringError(f"{name} has no pair {langpair!r}: {', '.join(sorted(pairs))}")
    paths = _on_disk(name, langpair) or _fetched(name, langpair)
    if paths is None:
        raise ScoringError(
            f"sacreBLEU's download of {name} has no {langpair}; {_advice(name, langpair)}"
        )
    sources = read_segments(str(paths.source))
    references = [read_segments(str(path)) for path in paths.references]
    for path, texts in zip(paths.references, references, strict=True):
        if len(sources) != len(texts):
            raise ScoringError(
                f"{paths.source} has {len(sources):,} lines and {path} has {len(texts):,}: remove "
                f"{path.parent} and download the test set again"
            )
    return sources, References.of(references).given, paths.unused


def _file(name: str, langpair: str, ending: str) -> Path:
    folder = Path(sacrebleu.utils.SACREBLEU_DIR) / name
    return folder / f"{name.replace('/', '_')}.{langpair}.{ending}"


def _on_disk(name: str, langpair: str) -> _Paths | None:
    """The source and references where sacreBLEU keeps them; None if one is missing."""
    source = _file(name, langpair, "src")
    fields = _scored_references(name, langpair)
    scored = [path for field in fields if (path := _file(name, langpair, field)).exists()]
    # WMT21 and later name references of which a set may have only some.
    complete = scored if _names_references(name) else len(scored) == len(fields)
    if not source.exists() or not complete:
        return None
    references = set(source.parent.glob(_file(name, langpair, "ref*").name))
    return _Paths(source, scored, unused=len(references - {*scored}))


def _names_references(name: str) -> bool:
    return hasattr(DATASETS[name], "_get_langpair_allowed_refs")


def _scored_references(name: str, langpair: str) -> list[str]:
    """The endings of the references that sacreBLEU scores with."""
    dataset: Any = DATASETS[name]
    if _names_references(name):
        fields = dataset._get_langpair_allowed_refs(langpair)
    else:
        fields = [field for field in dataset.fieldnames(langpair) if field.startswith("ref")]
    # A field "ref:B" is kept in a file whose name ends in "ref-B".
    return [field.replace(":", "-") for field in fields]


def _advice(name: str, langpair: str) -> str:
    fields = _scored_references(name, langpair)
    if _names_references(name):
        fields = fields[:1] or ["ref"]
    files = [_file(name, langpair, field) for field in ("src", *fields)]
    return (
        f"put {' and '.join(file.name for file in files)} (UTF-8, one segment per line) into "
        f"{files[0].parent}, in the folder set by $SACREBLEU; or use --src FILE --ref FILE"
    )


def _fetched(name: str, langpair: str) -> _Paths | None:
    try:
        with limited_sockets():
            DATASETS[name].get_files(langpair)
    # Anything: sockets, HTTP, archives, and sys.exit for a wrong digest.
    except (Exception, SystemExit) as error:
        url = (DATASETS[name].data or ["nowhere"])[0]
        reason = getattr(error, "reason", None) or error
        raise ScoringError(
            f"the test set {name} is not on this machine and cannot be downloaded from {url} "
            f"({reason}): {_advice(name, langpair)}"
        ) from error
    return _on_disk(name, langpair)
