"""What was trained on other text than the paper's: no row of it, and shown after its tables."""

from __future__ import annotations

from collections.abc import Sequence

from flaxformer_mt.evaluation.paper_protocol import protocol_note
from flaxformer_mt.reproduction.provenance import training_commits
from flaxformer_mt.reproduction.result_file import Result
from flaxformer_mt.reproduction.tables import commit, machine, table

# What may be shown of a result, as its column is headed.
SCORES = {
    "bleu_paper": "the paper's BLEU",
    "bleu_tokenized_lc": "tokenised BLEU, lower case",
    "sacrebleu_13a": "sacreBLEU",
    "chrf": "chrF",
    "f1": "F1",
    "f1_at_most_40_words": "F1, 40 words at most",
}


def is_scored(result: Result) -> bool:
    """Whether a result has a score of translations or trees."""
    return bool(SCORES.keys() & result.metrics)


def other_text(results: Sequence[Result]) -> list[str]:
    """A section of the report, a line for each result; nothing where there is none."""
    if not results:
        return []
    shown = [metric for metric in SCORES if any(metric in one.metrics for one in results)]
    header = ["result", "config", *(SCORES[metric] for metric in shown)]
    header += ["steps", "machine that scored", "scored by", "trained by", "command"]
    rows = [
        [
            f"`{one.name}`" + (f", mean of {seeds:.0f}" if seeds else ""),
            f"`{one.config}`",
            *(
                f"{one.metrics[each]:.2f}{protocol_note(one.signatures.get(each, ''))}"
                if each in one.metrics
                else ""
                for each in shown
            ),
            f"{one.metrics['steps']:,.0f}" if "steps" in one.metrics else "",
            machine(one.machine),
            commit(one),
            ", ".join(training_commits(one)) or "not told",
            f"`{one.command}`",
        ]
        for one, seeds in ((one, one.metrics.get("seeds")) for one in results)
    ]
    signatures = {
        f"- {SCORES[metric]}: `{one.signatures[metric]}`"
        for one in results
        for metric in shown
        if metric in one.signatures
    }
    return [
        "## On other text",
        "What this project has trained beside the paper's rows. Each is scored on a test set of "
        "its own, and none is to be held against the paper's values, or against another line.",
        table(header, rows, right=set(range(2, 3 + len(shown)))),
        *(["Signatures:\n\n" + "\n".join(sorted(signatures))] if signatures else []),
    ]
