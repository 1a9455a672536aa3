"""Commands that measure, and the files in `results/` that they write. Not part of the package."""

from pathlib import Path

RESULTS = Path(__file__).parent / "results"
