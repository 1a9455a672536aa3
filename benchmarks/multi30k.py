"""Trains, averages and scores Multi30k, English to German or French, and records the result.

python -m benchmarks.multi30k --data FOLDER --variant tiny --workdir runs/multi30k-tiny

FOLDER is `data/task1/tok` (variants `tiny`, `tiny_fr`) or `data/task1/raw` (`tiny_raw`) of the
multi30k/dataset repository. Continues a stopped run; on a finished one it only scores. The last
checkpoints' mean is scored; how the length penalty was chosen is told in configs/multi30k.py.
`--penalty` scores the same weights by another rule of search into a result of its own.

`--seed` and `--dtype` begin runs of their own, where they are not the config's: other initial
weights, other batches, other dropout; products of other precision. Once several of a variant are
recorded, `multi30k_VARIANT_seeds` has their mean, lowest and highest, too; a seed counts once.
"""

import argparse
import json
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import RESULTS
from benchmarks.trained_run import record, trained
from flaxformer_mt.cli import evaluate
from flaxformer_mt.cli.arguments import positive
from flaxformer_mt.config import load_config
from flaxformer_mt.reproduction.result_file import Result, mixture, read_results, write_result

TEST = "test_2016_flickr"
SCORES = ("bleu_tokenized_lc", "sacrebleu_13a", "chrf")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.multi30k")
    parser.add_argument("--data", required=True, metavar="FOLDER", help="the corpus")
    parser.add_argument("--variant", default="tiny", choices=("tiny", "tiny_fr", "tiny_raw"))
    parser.add_argument("--workdir", required=True, metavar="DIR", help="run directory")
    parser.add_argument(
        "--penalty",
        metavar="NORM:ALPHA",
        type=_penalty,
        default=(None, None),
        help="in place of the config's decoding.length_norm and .length_penalty, such as gnmt:1.6",
    )
    parser.add_argument("--seed", type=positive, metavar="N", help="in place of the config's")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="the same of model.dtype")
    options = parser.parse_args(arguments)
    norm, alpha = options.penalty
    spec = f"multi30k:{options.variant}"
    overrides = [f"data.folder={options.data}"]
    usual = load_config(spec)
    seed = None if options.seed == usual.training.seed else options.seed
    dtype = None if options.dtype == usual.model.dtype else options.dtype
    if seed is not None:
        overrides.append(f"training.seed={seed}")
    if dtype is not None:
        overrides.append(f"model.dtype={dtype}")
    run = trained(options.workdir, spec, overrides, benchmark="benchmarks.multi30k")
    how = ["--workdir", str(run)]
    name = f"multi30k_{options.variant}"
    command = (
        f"python -m benchmarks.multi30k --data FOLDER --variant {options.variant} --workdir DIR"
    )
    if seed is not None:
        name += f"_seed_{seed}"
        command += f" --seed {seed}"
    if dtype is not None:
        name += f"_{dtype}"
        command += f" --dtype {dtype}"
    if norm is not None:
        how += ["--length-norm", norm, "--length-penalty", alpha]
        name += f"_{norm}_{alpha.replace('.', '_')}"
        command += f" --penalty {norm}:{alpha}"
    evaluate.main([*how, "--set", "valid"], "evaluate", "")
    evaluate.main([*how, "--set", TEST, "--folder", options.data], "evaluate", "")
    result = record(
        run,
        RESULTS / f"{name}.json",
        command=command,
        config=spec,
        test=TEST,
    )
    print(json.dumps(dict(result.metrics), indent=2))
    if norm is None:
        write_seeds(f"multi30k_{options.variant}", spec, RESULTS)
    return 0


def write_seeds(name: str, spec: str, folder: Path) -> None:
    """The result `NAME_seeds` of all seeds of a variant, if there are several. Raises ResultError.

    A seed counts once: of runs with both number types the one with the config's own, whose name has
    none. Its details say which these are, of what commit and machine, and which are left out. Its
    machine is that of most seeds.
    """
    of_seed = re.compile(rf"{name}(?:_seed_(\d+))?(_float32|_bfloat16)?")
    usual = str(load_config(spec).training.seed)
    runs: dict[str, list[tuple[str, str, Result]]] = {}
    for result in read_results(folder):
        if match := of_seed.fullmatch(result.name):
            run = (match[2] or "", match[1] or "", result)
            runs.setdefault(match[1] or usual, []).append(run)
    if len(runs) < 2:
        return
    found: list[Result] = []
    details: dict[str, str] = {}
    for seed, of_one in runs.items():
        counted, *others = (run[-1] for run in sorted(of_one, key=lambda run: run[:2]))
        found.append(counted)
        details[counted.name] = _origin(counted)
        for result in others:
            details[result.name] = f"left out: seed {seed} counts once, by {counted.name}"
    metrics: dict[str, float] = {"seeds": len(found)}
    signatures: dict[str, str] = {}
    for metric in SCORES:
        if all(metric in result.metrics for result in found):
            values = [result.metrics[metric] for result in found]
            metrics[metric] = statistics.fmean(values)
            metrics |= {f"{metric}_lowest": min(values), f"{metric}_highest": max(values)}
            metrics[f"{metric}_deviation"] = statistics.stdev(values)
            if said := {
                result.signatures[metric] for result in found if metric in result.signatures
            }:
                # Of different versions of the scorer all are told.
                signatures[metric] = " and ".join(sorted(said))
    write_result(
        folder / f"{name}_seeds.json",
        command="; ".join(result.command for result in found),
        config=spec,
        seconds=sum(result.seconds for result in found),
        machine=statistics.mode(result.machine for result in found),
        metrics=metrics,
        signatures=signatures,
        details=details,
    )


def _origin(result: Result) -> str:
    machine, mixed = result.machine, mixture(result)
    told = f"{result.commit}, {machine.cores} core{'s' * (machine.cores > 1)}, "
    told += machine.instructions or "instructions unknown"
    return told if mixed is None else f"{told}; {mixed}"


def _penalty(text: str) -> tuple[str, str]:
    """The two parts of NORM:ALPHA."""
    norm, _, alpha = text.partition(":")
    if norm not in ("gnmt", "average") or not re.fullmatch(r"\d+(\.\d+)?", alpha):
        raise argparse.ArgumentTypeError(f"{text!r}: write gnmt:1.6 or average:1.0")
    return norm, alpha


if __name__ == "__main__":
    sys.exit(main())
