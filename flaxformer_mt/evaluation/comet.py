"""COMET (Rei et al., 2020), computed by the program `comet-score` of Unbabel's package, which has
its own environment: its requirements contradict JAX's (NumPy below 2)."""

import dataclasses
import importlib.metadata
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flaxformer_mt.errors import FAILED
from flaxformer_mt.evaluation import COMET_MODEL
from flaxformer_mt.evaluation.metrics import Counts, Lines, Metric, ScoringError, Totals, Values
from flaxformer_mt.evaluation.references import Given, References

PROGRAM = "comet-score"
_BATCH = 8


class CometError(ScoringError):
    """COMET can't be computed here; says what is missing."""

    exit_status = FAILED


def require_comet() -> str:
    """The program, on the PATH or beside this Python. Raises CometError if there is none."""
    folders = os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)
    program = shutil.which(PROGRAM, path=os.pathsep.join(folders))
    if program is None:
        raise CometError(
            "COMET needs the package unbabel-comet: install it in its own environment, since it "
            "conflicts with JAX's requirements (`uv tool install unbabel-comet` or `pipx install "
            f"unbabel-comet`), with `{PROGRAM}` on the PATH"
        )
    return program


def check_single(references: References) -> None:
    """Raises ScoringError for several references: `comet-score` takes one."""
    if references.are_several:
        raise ScoringError(
            "COMET takes one reference per sentence: leave out --comet, or compute it in a call of "
            "its own with one of them"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comet(Metric):
    """The mean of COMET's sentence scores, times 100. `model` is a hub's name or a checkpoint's
    path."""

    sources: Sequence[str] = dataclasses.field(repr=False)
    model: str = COMET_MODEL
    gpus: int = 0
    name: str = "comet"

    @property
    def signature(self) -> str:
        try:
            version = importlib.metadata.version("unbabel-comet")
        except importlib.metadata.PackageNotFoundError:
            version = "unknown"  # of a program in an environment of its own
        return f"nrefs:1|model:{Path(self.model).name}|scale:100|version:{version}"

    def counts(self, hypotheses: Lines, references: Given) -> Counts:
        """Each sentence's score, and 1. Raises CometError if the program fails, and ScoringError
        for several references."""
        references = References.of(references)
        check_single(references)
        targets = [text for (text,) in references]
        command = [require_comet()]
        with tempfile.TemporaryDirectory(prefix="comet-") as folder:
            for flag, side in {"-s": self.sources, "-t": hypotheses, "-r": targets}.items():
                file = Path(folder) / f"side{flag}.txt"
                # It splits lines by Python's rules: other line breaks must become blanks.
                text = "".join(" ".join(line.split()) + "\n" for line in side)
                file.write_text(text, "utf-8")
                command += [flag, str(file)]
            output = Path(folder) / "scores.json"
            command += ["--model", self.model, "--gpus", str(self.gpus), "--quiet"]
            command += ["--batch_size", str(_BATCH), "--to_json", str(output)]
            process = subprocess.run(command, capture_output=True, text=True, errors="replace")
            if process.returncode or not output.exists():
                raise self._failed(process.stderr.strip() or process.stdout.strip())
            try:
                (sentences,) = json.loads(output.read_text("utf-8")).values()
                scores = [float(sentence["COMET"]) for sentence in sentences]
                if len(scores) != len(hypotheses) or not all(map(math.isfinite, scores)):
                    raise ValueError(f"{len(scores):,} for {len(hypotheses):,} sentences")
            except (ValueError, KeyError, TypeError) as error:
                raise self._failed(f"its scores cannot be read: {error!r}") from error
        return np.array([[100 * score, 1.0] for score in scores], np.float64).reshape(-1, 2)

    def score(self, totals: Totals) -> Values:
        return totals[..., 0] / totals[..., 1]

    def _failed(self, reason: str) -> CometError:
        last = reason.rpartition("\n")[2] or "no reason given"
        return CometError(
            f"COMET with the model {self.model} failed: {last}; models are downloaded from the "
            "Hugging Face hub on first use; offline, give a checkpoint's path"
        )
