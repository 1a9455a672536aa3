"""sacreBLEU's test sets by name, from its local folder or downloaded."""

import difflib
import socket
from pathlib import Path

import sacrebleu.utils
from sacrebleu.dataset import DATASETS

from flaxformer_mt.evaluation.evaluate import read_segments
from flaxformer_mt.evaluation.metrics import ScoringError

STALL_SECONDS = 20.0  # without a byte, after which a download is given up


def load_testset(name: str, langpair: str) -> tuple[list[str], list[str], int]:
    """Sources and sacreBLEU's first references of `wmt14/full`, `en-de` and the like, and how many
    more references there are. Raises ScoringError."""
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
    files = _on_disk(name, langpair) or _fetched(name, langpair)
    if not files:
        raise ScoringError(
            f"sacreBLEU's download of {name} has no {langpair}; {_advice(name, langpair)}"
        )
    src, ref, *further = files
    sources, references = read_segments(str(src)), read_segments(str(ref))
    if len(sources) != len(references):
        raise ScoringError(
            f"{src} has {len(sources):,} lines and {ref} has {len(references):,}: remove "
            f"{src.parent} and download the test set again"
        )
    return sources, references, len(further)


def _file(name: str, langpair: str, ending: str) -> Path:
    folder = Path(sacrebleu.utils.SACREBLEU_DIR) / name
    return folder / f"{name.replace('/', '_')}.{langpair}.{ending}"


def _on_disk(name: str, langpair: str) -> list[Path]:
    """The source and references where sacreBLEU keeps them, its first choice first; or nothing."""
    source = _file(name, langpair, "src")
    references = sorted(source.parent.glob(_file(name, langpair, "ref*").name))
    if not source.exists() or not references:
        return []

    scored_with = [_file(name, langpair, ending) for ending in _scored_references(name, langpair)]
    if not scored_with:
        return [source, *references]
    first = [path for path in scored_with if path in references]
    if not first:
        return []
    return [source, *first, *(path for path in references if path not in first)]


def _scored_references(name: str, langpair: str) -> list[str]:
    """The endings of the references that sacreBLEU scores with (WMT21 and later); none: any."""
    choose = getattr(DATASETS[name], "_get_langpair_allowed_refs", None)
    # A field "ref:B" is kept in a file whose name ends in "ref-B".
    return [] if choose is None else [field.replace(":", "-") for field in choose(langpair)]


def _advice(name: str, langpair: str) -> str:
    source = _file(name, langpair, "src")
    reference = next(iter(_scored_references(name, langpair)), "ref")
    return (
        f"put {source.name} and {_file(name, langpair, reference).name} (UTF-8, one segment per "
        f"line) into {source.parent}, in the folder set by $SACREBLEU; or use --src FILE --ref "
        "FILE"
    )


def _fetched(name: str, langpair: str) -> list[Path]:
    # sacreBLEU opens its downloads without a time limit: one for all sockets meanwhile.
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(STALL_SECONDS)
    try:
        DATASETS[name].get_files(langpair)
    # Anything: sockets, HTTP, archives, and sys.exit for a wrong digest.
    except (Exception, SystemExit) as error:
        url = (DATASETS[name].data or ["nowhere"])[0]
        reason = getattr(error, "reason", None) or error
        raise ScoringError(
            f"the test set {name} is not on this machine and cannot be downloaded from {url} "
            f"({reason}): {_advice(name, langpair)}"
        ) from error
    finally:
        socket.setdefaulttimeout(before)
    return _on_disk(name, langpair)
