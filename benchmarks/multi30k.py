"""Trains, averages and scores Multi30k, English to German or French, and records the result.

python -m benchmarks.multi30k --data FOLDER --variant tiny --workdir runs/multi30k-tiny

FOLDER is `data/task1/tok` (variants `tiny`, `tiny_fr`) or `data/task1/raw` (`tiny_raw`) of the
multi30k/dataset repository. Continues a stopped run; on a finished one it only scores. The last
checkpoints' mean is scored; how the length penalty was chosen is told in configs/multi30k.py.
`--penalty` scores the same weights by another rule of search into a result of its own.

`--seed` and `--dtype` begin other runs, unless they are the config's own: with other initial
weights, batches and dropout, or products of another precision. Once several seeds of a variant are
recorded, `multi30k_VARIANT_seeds` has their mean, lowest and highest, too; a seed counts once.
"""

import argparse
import json
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import flaxformer_mt as fm
from benchmarks import RESULTS
from benchmarks.arguments import positive
from benchmarks.trained_run import evaluated, trained
from flaxformer_mt.config import read_config
from flaxformer_mt.reproduction.measuring import measure_evaluated
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
    usual = read_config(spec)

    name = f"multi30k_{options.variant}"
    command = (
        f"python -m benchmarks.multi30k --data FOLDER --variant {options.variant} --workdir DIR"
    )
    settings = {"data.folder": options.data}
    if options.seed not in (None, usual.training.seed):
        settings["training.seed"] = options.seed
        name += f"_seed_{options.seed}"
        command += f" --seed {options.seed}"
    if options.dtype not in (None, usual.model.dtype):
        settings["model.dtype"] = options.dtype
        name += f"_{options.dtype}"
        command += f" --dtype {options.dtype}"
    if norm is not None:
        name += f"_{norm}_{alpha.replace('.', '_')}"
        command += f" --penalty {norm}:{alpha}"

    run = trained(options.workdir, spec, settings, benchmark="benchmarks.multi30k")
    translator = fm.Translator.load(run)
    if norm is not None:
        translator = translator.with_config(length_norm=norm, length_penalty=float(alpha))
    evaluated(run, "valid", translator=translator)
    evaluated(run, TEST, translator=translator, folder=options.data)
    result = measure_evaluated(
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

    A seed counts once: if it was run with several number types, by the config's own, whose name has
    no number type. The details name the runs that count, with commit and machine, and those that
    are left out. The result's machine is that of most seeds.
    """
    seeds = _results_by_seed(name, spec, folder)
    if len(seeds) < 2:
        return

    counted: list[Result] = []
    details: dict[str, str] = {}
    for seed, (result, *left_out) in seeds.items():
        counted.append(result)
        details[result.name] = _origin(result)
        for second in left_out:
            details[second.name] = f"left out: seed {seed} counts once, by {result.name}"

    metrics: dict[str, float] = {"seeds": len(counted)}
    signatures: dict[str, str] = {}
    for metric in SCORES:
        if all(metric in result.metrics for result in counted):
            metrics |= _spread(metric, [result.metrics[metric] for result in counted])
            signatures |= _signature(metric, counted)
    write_result(
        folder / f"{name}_seeds.json",
        command="; ".join(result.command for result in counted),
        config=spec,
        seconds=sum(result.seconds for result in counted),
        machine=statistics.mode(result.machine for result in counted),
        metrics=metrics,
        signatures=signatures,
        details=details,
    )


def _results_by_seed(name: str, spec: str, folder: Path) -> dict[str, list[Result]]:
    """The results of a variant; of each seed the one that counts comes first."""
    names = re.compile(rf"{name}(?:_seed_(\d+))?(_float32|_bfloat16)?")
    usual = str(read_config(spec).training.seed)
    # With the named dtype and seed, which are empty for the config's own, to sort by.
    runs: dict[str, list[tuple[str, str, Result]]] = {}
    for result in read_results(folder):
        match = names.fullmatch(result.name)
        if match:
            seed, dtype = match[1] or "", match[2] or ""
            runs.setdefault(seed or usual, []).append((dtype, seed, result))
    return {
        seed: [result for _, _, result in sorted(members, key=lambda run: run[:2])]
        for seed, members in runs.items()
    }


def _spread(metric: str, scores: Sequence[float]) -> dict[str, float]:
    return {
        metric: statistics.fmean(scores),
        f"{metric}_lowest": min(scores),
        f"{metric}_highest": max(scores),
        f"{metric}_deviation": statistics.stdev(scores),
    }


def _signature(metric: str, results: Sequence[Result]) -> dict[str, str]:
    """A metric's signature, and with different versions of the scorer all of them."""
    distinct = {result.signatures[metric] for result in results if metric in result.signatures}
    return {metric: " and ".join(sorted(distinct))} if distinct else {}


def _origin(result: Result) -> str:
    """Commit and machine of a result, and other code that trained it."""
    machine, other_code = result.machine, mixture(result)
    cores = f"{machine.cores} core{'s' * (machine.cores > 1)}"
    instructions = machine.instructions or "instructions unknown"
    origin = f"{result.commit}, {cores}, {instructions}"
    return origin if other_code is None else f"{origin}; {other_code}"


def _penalty(text: str) -> tuple[str, str]:
    """The two parts of NORM:ALPHA."""
    norm, _, alpha = text.partition(":")
    if norm not in ("gnmt", "average") or not re.fullmatch(r"\d+(\.\d+)?", alpha):
        raise argparse.ArgumentTypeError(f"{text!r}: write gnmt:1.6 or average:1.0")
    return norm, alpha


if __name__ == "__main__":
    sys.exit(main())
