"""Compares a commit with the working tree, to the bit: for refactorings that must change no number.

    python -m benchmarks.same_bits --old COMMIT --run RUN --workdir DIR

Both train four models for 50 steps (bucketed, packed, accumulated, scanned, all with dropout),
translate, score and evaluate with a trained run of the quickstart, and print configs. Compared are
losses, checkpoints, token stores, outputs, scores and golden texts.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

STEPS = 50
TRAIN = (
    "data.train.grammar.size=6000",
    "data.valid.size=500",
    "data.vocabulary.size=800",
    "model.d_model=64",
    "model.d_ff=128",
    "model.num_heads=2",
    "model.dropout=0.1",
    f"training.steps={STEPS}",
    "training.log_every=1",
    "training.validate_every=25",
    "training.validate_bleu=False",
    "training.best_metric=loss",
    "training.save_every=25",
    "training.schedule.warmup_steps=20",
    "training.optimizer.ema_decay=0.9",
)
RUNS = {
    "bucketed": (),
    "packed": ("data.batch.form=pack",),
    "accumulated": ("training.optimizer.accumulation=2",),
    "scanned": ("model.scan_layers=True",),
}
SEARCHES = {
    "beam": ("--scores", "--n-best", "2"),
    "greedy": ("--beam-size", "1"),
    "rules": ("--no-repeat-ngram", "2", "--coverage-penalty", "0.2", "--alignments"),
    "diverse": ("--diverse-groups", "2", "--diversity", "0.5", "--ends-among", "beam"),
    "sampled": ("--sample", "--top-k", "20"),
    "jsonl": ("--output-format", "jsonl", "--tokens"),
}
CONFIGS = (
    "quickstart",
    "files:small",
    "files:base",
    "multi30k:tiny",
    "tatoeba",
    "parsing",
    "wmt14_en_de",
    "wmt14_en_de:big",
    "wmt14_en_fr",
    "wmt14_en_fr:big",
    "europarl:base",
)
# In names of a report's fields that depend on the machine's speed.
TIMED = ("time", "second", "per_", "goodput", "mfu", "memory", "share", "wait", "hours", "load")


def digests(tree: Path, folder: Path, trained: Path) -> dict[str, str]:
    """Runs the code of `tree` in `folder`: a digest of each output that must not change."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(tree), "JAX_PLATFORMS": "cpu"}
    outputs: dict[str, str] = {}

    def call(*arguments: str) -> str:
        completed = subprocess.run(
            [sys.executable, "-m", "flaxformer_mt", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        if completed.returncode:
            sys.exit(
                f"{tree}: {' '.join(arguments)} ended with {completed.returncode}\n"
                f"{completed.stderr}"
            )
        return completed.stdout

    for name in CONFIGS:
        outputs[f"config {name}"] = digest(call("config", "--config", name).encode())
    for name, settings in RUNS.items():
        overrides = [f"--config.{setting}" for setting in (*TRAIN, *settings)]
        call("train", "--config", "quickstart", "--workdir", name, *overrides)
        outputs |= {f"{name} {key}": text for key, text in run_digests(folder / name)}

    run = folder / "trained"
    shutil.copytree(trained, run)
    valid = folder / "bucketed" / "data"
    texts = ["--src", f"{valid}/valid.src.txt", "--tgt", f"{valid}/valid.tgt.txt"]
    for name, flags in SEARCHES.items():
        translations = call("translate", "--workdir", str(run), "--input", texts[1], *flags)
        outputs[f"translate {name}"] = digest(translations.encode())
    token_scores = call("score", "--workdir", str(run), *texts, "--per-token")
    outputs["score"] = digest(token_scores.encode())
    call("evaluate", "--workdir", str(run), "--set", "grammar")
    scores = json.loads((run / "evaluation" / "grammar.json").read_text())
    scores.pop("seconds")
    outputs["evaluate"] = digest(json.dumps(scores, sort_keys=True).encode())
    return outputs


def run_digests(run: Path) -> Iterator[tuple[str, str]]:
    """Digests of a run's losses, checkpoints and token store."""
    for place, line in enumerate((run / "metrics.jsonl").read_text().splitlines()):
        report = json.loads(line)
        numbers = {key: report[key] for key in report if not any(word in key for word in TIMED)}
        yield f"report {place}", digest(json.dumps(numbers, sort_keys=True).encode())
    for step in sorted((run / "checkpoints").glob("[0-9]*")):
        import orbax.checkpoint as ocp

        with ocp.PyTreeCheckpointer() as reader:
            for part in ("params", "opt_state", "ema"):
                if (step / part).is_dir():
                    yield f"checkpoint {step.name} {part}", digest_tree(reader.restore(step / part))
    for file in sorted((run / "data").rglob("*")):
        if file.is_file() and file.suffix not in (".json", ".svg"):
            yield str(file.relative_to(run)), digest(file.read_bytes())


def digest_tree(tree: object) -> str:
    import jax
    import numpy as np

    sha256 = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        sha256.update(f"{jax.tree_util.keystr(path)} {np.asarray(leaf).dtype}".encode())
        sha256.update(np.ascontiguousarray(leaf).tobytes())
    return sha256.hexdigest()[:16]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.same_bits")
    parser.add_argument("--old", required=True, metavar="COMMIT")
    parser.add_argument("--run", required=True, type=Path, help="a trained run of the quickstart")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    options = parser.parse_args(arguments)
    place = options.workdir.resolve()
    old = place / "tree"
    if not old.exists():
        git = ["git", "-C", str(ROOT), "worktree", "add", "--detach", str(old), options.old]
        subprocess.run(git, check=True, capture_output=True)
    results = place / "old.json"
    if not results.exists():
        results.write_text(json.dumps(digests(old, place / "old", options.run), indent=1))
    before = json.loads(results.read_text())
    after = digests(ROOT, place / "new", options.run)
    differing = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    for key in differing:
        print(f"{key}: {before.get(key, 'missing')} -> {after.get(key, 'missing')}")
    print(f"{len(before)} digests compared, {len(differing)} differ")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
