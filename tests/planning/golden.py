"""Golden tables of `plan`: what they hold, and a command that writes them anew.

    python -m tests.planning.golden

A change here means that the compiled program has changed: look at the difference before it is
committed. A new JAX or libtpu changes some of them, too.
"""

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

from flaxformer_mt.cli.main import main as command

FOLDER = Path(__file__).parent / "golden"

# Few layers: the program is that of a full one in shape, and compiled sooner.
CASES: dict[str, list[str]] = {
    "tiny_v5e": ["--config=quickstart", "--topology=v5e:2x4"],
    "tiny_v4_two_slices": [
        *("--config=quickstart", "--topology=v4:2x2x1", "--slices=2"),
        *("--config.mesh.fsdp=2", "--config.mesh.tensor=2", "--config.model.scan_layers=true"),
    ],
    "base_v5e": [
        *("--config=wmt14_en_de:base", "--topology=v5e:2x4"),
        *("--config.model.encoder_layers=1", "--config.model.decoder_layers=1"),
    ],
}


def planned(*arguments: str) -> Any:
    """What `flaxformer-mt plan --json` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert command(["plan", *arguments, "--json"]) == 0
    return json.loads(printed.getvalue())


def summary(name: str) -> dict[str, Any]:
    """The parts of a plan that a golden table keeps."""
    return table(planned(*CASES[name]), planned(*CASES[name], "--shardings"))


def table(values: Any, shardings: Any) -> dict[str, Any]:
    """Of a plan and of its shardings."""
    memory = values["memory"]
    return {
        "shape": values["shape"],
        "step_flops": values["step_flops"],
        "replications": len(values["replications"]),
        "memory": {
            kind: memory[kind] for kind in ("arguments", "outputs", "aliased", "temporaries")
        },
        "collectives": sorted(
            [item["kind"], item["network"], item["bytes"]] for item in values["collectives"]
        ),
        "compute_ms": round(1e3 * values["compute"]["seconds"], 3),
        "step_ms": round(1e3 * values["step_seconds"], 3),
        "shardings": [
            f"{row['name']} {row['shape']} / {row['spec'] or '-'} = {row['shard']}"
            for row in shardings
        ],
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for case in sys.argv[1:] or CASES:
        path = FOLDER / f"{case}.json"
        path.write_text(json.dumps(summary(case), indent=1) + "\n", encoding="utf-8")
        print(path)
