"""The gain of tagged back-translation on a small corpus: BLEU with it and without, by seed.

    python -m benchmarks.back_translation --data FOLDER --workdir DIR [--sample]

FOLDER is `data/task1/raw` of the multi30k/dataset repository. The first 10,000 training pairs are
the parallel text; of the others only the German is used. A German-to-English model of the same
pairs translates it, by beam search or with `--sample`, and the seeds train on both halves in equal
parts, the translated one tagged <bt> (Caswell et al., 2019). All models have the same sizes, steps
and rate. The last checkpoints' mean is scored; test_2016_flickr decides nothing. Continues what was
stopped.
"""

import argparse
import gzip
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import flaxformer_mt as fm
from benchmarks import RESULTS
from benchmarks.trained_run import evaluated, trained
from flaxformer_mt.evaluation.compare import compare
from flaxformer_mt.reproduction.measuring import TrainingLog, training_details
from flaxformer_mt.reproduction.result_file import write_result
from flaxformer_mt.rundir.layout import RunDirectory

SPEC, TEST = "multi30k:tiny_raw", "test_2016_flickr"
PAIRS = 10_000
SEEDS = (1, 2, 3)
RECIPE = {
    "data.vocabulary.size": 4000,
    "data.batch.tokens": 2048,
    "data.batch.max_shapes": 8,
    "training.steps": 4000,
    "training.schedule.warmup_steps": 800,
    "training.schedule.peak": 0.003,
    "training.validate_every": 1000,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.back_translation")
    parser.add_argument("--data", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    parser.add_argument("--sample", action="store_true", help="sample the back-translations")
    options = parser.parse_args(arguments)
    text = options.workdir / "text"
    cut(options.data, text)
    name = "sampled" if options.sample else "beam"
    reverse = run_of(options.workdir / "reverse", text, "de", "en", 1)
    synthetic = text / f"synthetic.{name}.en"
    if not (options.workdir / f"{name}-{SEEDS[0]}").exists():  # none has begun with it
        back_translate(reverse, text / "more.de", synthetic, sample=options.sample)

    runs = [reverse]
    metrics: dict[str, float] = {}
    signatures: dict[str, str] = {}
    scores: dict[str, list[float]] = defaultdict(list)
    for seed in SEEDS:
        pair = [
            run_of(options.workdir / f"without-{seed}", text, "en", "de", seed),
            run_of(options.workdir / f"{name}-{seed}", text, "en", "de", seed, synthetic),
        ]
        runs += pair
        comparison = compare(pair, methods=["randomization"])
        for metric, test in comparison.systems[1].tests["randomization"].items():
            metrics[f"{metric}_p_value_seed_{seed}"] = test.p_value
        for side, system in zip(("_without", ""), comparison.systems, strict=True):
            for metric, score in system.assessment.scores.metrics.items():
                scores[f"{metric}{side}"].append(score)
                metrics[f"{metric}{side}_seed_{seed}"] = score
            signatures |= system.assessment.scores.signatures
    for metric, seeds in scores.items():
        metrics[metric] = statistics.fmean(seeds)
        metrics[f"{metric}_deviation"] = statistics.stdev(seeds)

    command = "python -m benchmarks.back_translation --data FOLDER --workdir DIR"
    write_result(
        RESULTS / f"back_translation_{name}.json",
        command=command + " --sample" * options.sample,
        config=SPEC,
        seconds=sum(TrainingLog.read(run).seconds for run in runs),
        metrics=metrics,
        signatures=signatures,
        details=training_details(*runs),
    )
    for metric, number in metrics.items():
        print(f"{metric}: {number:.4g}")
    return 0


def back_translate(reverse: RunDirectory, german: Path, synthetic: Path, *, sample: bool) -> None:
    translator = fm.Translator.load(reverse)
    if sample:
        translator = translator.with_config(beam_size=1)
    fm.translate_file(translator, german, synthetic, sampling=fm.Sampling() if sample else None)


def cut(data: Path, text: Path) -> None:
    """Writes the parallel pairs, the other German lines, and the validation and test text."""

    def unpacked(name: str) -> bytes:
        return gzip.decompress((data / f"{name}.gz").read_bytes())

    text.mkdir(parents=True, exist_ok=True)
    for side in ("en", "de"):
        (text / f"valid.{side}").write_bytes(unpacked(f"val.{side}"))
        (text / f"test.{side}").write_bytes(unpacked(f"{TEST}.{side}"))
        lines = unpacked(f"train.{side}").splitlines(keepends=True)
        (text / f"train.{side}").write_bytes(b"".join(lines[:PAIRS]))
        if side == "de":
            (text / "more.de").write_bytes(b"".join(lines[PAIRS:]))


def run_of(
    workdir: Path, text: Path, src: str, tgt: str, seed: int, synthetic: Path | None = None
) -> RunDirectory:
    """A trained, averaged and, from English, scored run."""
    corpora = {"train.multi30k": "train", "valid": "valid", f"test.{TEST}": "test"}
    settings: dict[str, object] = {
        "data.folder": text,
        "data.src_lang": src,
        "data.tgt_lang": tgt,
    }
    for corpus, name in corpora.items():
        settings |= {f"data.{corpus}.src": f"{name}.{src}", f"data.{corpus}.tgt": f"{name}.{tgt}"}
    settings |= {**RECIPE, "training.seed": seed}
    if synthetic is not None:
        settings |= {
            "data.train.multi30k.weight": 1.0,
            "data.train.synthetic.weight": 1.0,
            "data.train.synthetic.src": synthetic.name,
            "data.train.synthetic.tgt": f"more.{tgt}",
            "data.train.synthetic.tag": "<bt>",
        }
    run = trained(workdir, SPEC, settings, benchmark="benchmarks.back_translation")
    if src == "en":
        evaluated(run, TEST)
    return run


if __name__ == "__main__":
    sys.exit(main())
