"""Translates with eole's own command: `python -m ... CONFIG.json`, which names the files."""

import sys
import warnings
from pathlib import Path

# Each import of eole warns about optional packages that are missing.
warnings.filterwarnings("ignore", category=RuntimeWarning, module="eole")

from eole.bin.run.predict import Predict  # noqa: E402

from benchmarks.own_data.peer_programs.eole_training import run_command  # noqa: E402

if __name__ == "__main__":
    run_command(Predict, Path(sys.argv[1]))
