"""Files of one segment a line: hypotheses and references as other toolkits write them."""

from __future__ import annotations

from flaxformer_mt.data.corpus.paths import locate, reaching
from flaxformer_mt.data.corpus.text_files import lines
from flaxformer_mt.evaluation.errors import ScoringError


def read_segments(path: str) -> list[str]:
    """The lines of a UTF-8 file, plain or `.gz`, `.xz`, `.zst`, here or in a bucket.

    A line may be blank: a system may have nothing to say. Raises ScoringError and CorpusError,
    which name the file and the line.
    """
    located = locate(path, "")
    with reaching(located):
        if located.is_dir() or not located.exists():
            what = "is a folder" if located.is_dir() else "does not exist"
            raise ScoringError(f"{path}: {what}; name a file with one segment a line")
    found = []
    for number, line in enumerate(lines(located), start=1):
        try:
            found.append(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ScoringError(
                f"{path}:{number}: is not UTF-8 text (byte {error.start + 1})"
            ) from error
    return found
