"""Writes the results in `benchmarks/results` into documents: all of them into docs/results.md, and
those of ROWS into the README.

python -m benchmarks.readme_tables            rewrites docs/results.md, the README's table and
                                              chart, and the table of docs/deviations.md
python -m benchmarks.readme_tables --check    exit status 1 if one of them says something else
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import RESULTS, speed_table
from benchmarks.deviations import page as deviations
from benchmarks.speed_table import show_machine, show_seconds
from flaxformer_mt.evaluation.paper_protocol import protocol_note
from flaxformer_mt.reproduction.result_file import Result, ResultError, mixture, read_results

README = Path(__file__).parent.parent / "README.md"
PAGE = README.parent / "docs" / "results.md"
DEVIATIONS = README.parent / "docs" / "deviations.md"
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"

# The README's picture.
CHART = "training_speed_base"
# The README's rows by name of the result: a title and its figures. The most telling come first.
ROWS = {
    "multi30k_tiny_seeds": (
        "Multi30k English-German, test 2016: BLEU, mean of five seeds",
        "{bleu_tokenized_lc:.2f} ({bleu_tokenized_lc_lowest:.2f} to "
        "{bleu_tokenized_lc_highest:.2f}); Wu et al. (2021): 41.02",
    ),
    "multi30k_tiny_fr_bfloat16": (
        "Multi30k English-French, test 2016: BLEU, one seed",
        "{bleu_tokenized_lc:.2f}",
    ),
    "europarl_newstest2014": (
        "newstest2014 English-French, base trained on 500,000 pairs: tokenised BLEU",
        "{bleu_paper:.2f}; the paper, on 36 million: 38.1",
    ),
    "tatoeba": ("Tatoeba English-German: sacreBLEU", "{sacrebleu_13a:.2f}"),
    "quickstart": ("Quickstart, held-out sentences: sacreBLEU", "{sacrebleu_13a:.2f}"),
    "training_speed_base": (
        "Training, base model: target tokens per second",
        "here {base_ours_bfloat16_tokens_per_second:,.0f}; "
        "eole {base_eole_bfloat16_tokens_per_second:,.0f}",
    ),
    "decoding_speed": (
        "Beam search, base model: target tokens per second",
        "here {ours_bfloat16_beam_4_tokens_per_second:,.0f}, with shortlist "
        "{ours_bfloat16_shortlist_beam_4_tokens_per_second:,.0f}; CTranslate2 int8 "
        "{ctranslate2_int8_beam_4_tokens_per_second:,.0f}, with vocabulary map "
        "{ctranslate2_int8_vmap_beam_4_tokens_per_second:,.0f}",
    ),
    "interop": (
        "The same model exported: BLEU here, in CTranslate2, in transformers",
        "{beam_bleu_here:.2f}, {beam_bleu_ctranslate2_float32:.2f}, {beam_bleu_huggingface:.2f}",
    ),
}

# How many metrics of a result the page's overview has, and how many its section lists.
SHOWN, LISTED = 4, 12
# The order of the page: its topics, by how the names of their results begin. Real text comes first.
TOPICS = {
    "Translation of real text": (
        "own_data",
        "tatoeba",
        "demo_model",
        "europarl",
        "multi30k",
        "multilingual",
        "symbols",
        "markup",
        "markup_seconds",
        "keeping",
        "back_translation",
    ),
    "Translation of the built-in grammar": ("quickstart", "deviations"),
    "Parsing": ("craft",),
    "Training": ("training_speed", "learning_curves", "attention_speed", "first_contact"),
    "Decoding and serving": (
        "decoding",
        "serving",
        "first_answers",
        "splitter",
        "invariance",
        "interop",
        "browser",
        "onnx",
    ),
    "Data, recovery, tests": ("data_pipeline", "scale_out", "survive", "test_suite"),
    "Planned for TPUs and GPUs": ("plan",),
    "Other": ("",),
}

# Metrics that have a name of their own. Others are shown under their plain name.
LABELS = {
    "lines_equal_share": "lines equal in the browser's engine, float32",
    "lines_equal_share_int8": "and in int8",
    "tokens_equal_share": "tokens equal in ONNX Runtime",
    "web_tokens_equal_share": "in its build for browsers",
    "optimum_greedy_tokens_equal_share": "by optimum's greedy search",
    "optimum_beam_tokens_equal_share": "by its beam search",
    "one_sentence_warm_seconds": "`translate` of a sentence, programs kept",
    "one_sentence_cold_seconds": "and with none",
    "quickstart_500_lines_warm_seconds": "500 lines of the quickstart, programs kept",
    "quickstart_500_lines_cold_seconds": "500 lines with none",
    "quickstart_whole_seconds": "the whole `quickstart`",
    "evaluate_hypotheses_seconds": "`evaluate --hypotheses` of 3,000 lines",
    "slowest_wrong_flag_seconds": "slowest `--help` or mistake",
    "items_kept_share": "URLs, addresses and placeholders kept",
    "items_kept_share_without": "without `--keep`",
    "bleu_beside_items": "BLEU of the rest",
    "bleu_of_lines_as_they_were": "BLEU without them in the source",
    "words_kept_share": "unknown words kept",
    "words_kept_share_without": "without `--copy-unknown`",
    "ours_f1_en": "F1 of sentence ends, English",
    "best_peer_f1_en": "of the best other splitter",
    "ours_f1_de": "German",
    "best_peer_f1_de": "best other, German",
    "bleu_mean_single": "mean BLEU of six models, a direction each",
    "bleu_mean_many": "of one model of their size",
    "bleu_mean_many_wide": "of one twice as wide",
    "well_formed_share": "outputs that are well-formed",
    "tags_kept_share": "tags kept",
    "tags_placed_share": "tags around exactly the right words",
    "tags_placed_share_by_one_layer": "the same by one layer's attention",
    "tags_placed_share_of_all_translations": "tags around the right words in own translations",
    "grammar_bleu": "BLEU on the grammar, tags placed by alignment",
    "placeholders_well_formed_share": "placeholders: outputs that are well-formed",
    "placeholders_kept_share": "placeholders: tags kept",
    "placeholders_placed_share_of_all_translations": "placeholders: around the right words",
    "placeholders_bleu": "placeholders: BLEU on the grammar",
    "placeholders_bleu_lost": "placeholders: BLEU lost to alignment",
    "seconds_per_page": "seconds for a page of 2,000 words",
    "seconds_per_page_libretranslate": "the same by LibreTranslate",
    "times_as_fast": "times as fast",
    "cpu_seconds_per_page": "CPU seconds for a page",
    "cpu_seconds_per_page_libretranslate": "the same by LibreTranslate's server",
    "tags_kept_share_libretranslate": "tags kept by LibreTranslate",
    "well_formed_share_libretranslate": "LibreTranslate's outputs that are well-formed",
    "well_formed_share_of_escapes": "well-formed where code has &lt;",
    "well_formed_share_of_escapes_libretranslate": "the same by LibreTranslate",
    "bleu_libretranslate": "BLEU with tags, LibreTranslate",
    "right_language_share": "outputs in the language of the tag",
    "right_language_share_wide": "and of the wide model",
    "base_uneven_causal_ours_ms": "attention on uneven rows, ms",
    "base_uneven_causal_jax_ms": "the same by jax.nn",
    "base_uneven_causal_cudnn_mask_ms": "the same by cuDNN",
    "base_packed_causal_ours_ms": "attention on packed rows, ms",
    "base_packed_causal_jax_ms": "packed rows by jax.nn",
    "base_packed_causal_cudnn_mask_ms": "packed rows by cuDNN",
    "f1": "parse F1",
    "f1_at_most_40_words": "F1 of sentences of at most 40 words",
    "unrepaired_f1": "F1 without repairs",
    "malformed": "malformed outputs",
    "bleu_tokenized_lc": "BLEU (tokenised, lower-cased)",
    "bleu_tokenized_lc_lowest": "lowest BLEU",
    "bleu_tokenized_lc_highest": "highest BLEU",
    "sacrebleu_13a": "sacreBLEU (13a)",
    "chrf": "chrF",
    "bleu_paper": "the paper's BLEU",
    "valid_perplexity": "perplexity",
    "parameters": "parameters",
    "source_tokens_per_second": "source tokens/s",
    "target_tokens_per_second": "target tokens/s",
    "train_seconds": "training",
    "sacrebleu_13a_without": "sacreBLEU (13a) without back-translation",
    "prepare_pairs_per_second": "prepared pairs/s",
    "prepare_ratio": "prepared on two nodes, to one",
    "translate_ratio": "translated on two nodes, to one",
    "kills": "times killed",
    "kills_unequal": "outputs that kills changed",
    "europarl_bucket_pairs_per_second": "pairs/s of Europarl in buckets",
    "europarl_bucket_padding": "padding share of these",
    "memory_of_41m_mib": "MiB for 41 million pairs",
    "paper_sacrebleu_13a": "BLEU as in the paper",
    "no_averaging_sacrebleu_13a": "BLEU without averaging",
    "greedy_sacrebleu_13a": "BLEU of greedy search",
    "no_length_penalty_sacrebleu_13a": "BLEU without length penalty",
    "beam_bleu_here": "BLEU of beam search here",
    "beam_bleu_ctranslate2_float32": "in CTranslate2",
    "beam_bleu_huggingface": "in transformers",
    "largest_log_prob_difference_huggingface": "largest difference of log P (transformers)",
    "ours_beam_4_tokens_per_second": "target tokens/s, beam 4",
    "beam_4_times_ctranslate2_float32": "ratio to CTranslate2's float32",
    "bfloat16_beam_4_times_ctranslate2_float32": "the same with bfloat16",
    "bfloat16_beam_4_times_ctranslate2_int8": "bfloat16 to CTranslate2's int8",
    "bfloat16_shortlist_beam_4_times_ctranslate2_int8": "the same with a shortlist",
    "float32_tokens_per_second": "tokens/s in float32",
    "float32_products_share": "share of matrix products in float32",
    "bfloat16_tokens_per_second": "tokens/s in bfloat16",
    "bfloat16_products_share": "share of matrix products in bfloat16",
    "valid_bleu_tokenized_lc": "BLEU on the validation set",
    "requests_per_second": "requests/s",
    "p99_ms": "99th percentile, ms",
    "hostile_requests": "hostile requests",
    "hostile_errors": "hostile requests that broke it",
    "sigkills": "times killed",
    "sigterms": "times stopped",
    "damaged_files": "files damaged",
    "faults": "runs neither recovered nor refused",
    "float32_batches_of_32768_changed": "changed by their batch in float32",
    "bfloat16_batches_of_32768_changed": "changed by their batch in bfloat16",
    "bfloat16_against_float32_changed": "changed by bfloat16 itself",
    "base_v5e_8_step_peak_share": "step's share of the matrix peak, base on 8 v5e",
    "base_v5e_8_bfloat16_step_peak_share": "the same with bfloat16 between chips",
    "big_v5e_8_step_peak_share": "of big",
    "big_v5e_8_bfloat16_step_peak_share": "of big with bfloat16 between chips",
    "packed_rate_to_full_rows": "tokens in packed rows, of full rows'",
    "base_h100_32_step_ms": "planned ms/step of base on an H100, rows of 32 + 32",
    "base_h100_256_step_ms": "rows of 256 + 256",
    "big_h100_256_step_ms": "big, rows of 256 + 256",
    "base_h100_32_float32_step_ms": "base with activations in float32, rows of 32 + 32",
    "search_h100_programs": "programs of a search of any lengths",
    "search_h100_compile_seconds": "compiled one by one in",
    "table3_base_v5e_8_step_ms": "planned ms/step of base on 8 v5e, from fewer layers",
    "table3_a_h1_v5e_8_step_ms": "ms/step with 1 head",
    "table3_a_h16_v5e_8_step_ms": "ms/step with 16 heads",
    "table3_c_n2_v5e_8_step_ms": "ms/step with 2 layers",
    "target_tokens": "target tokens",
    "ours_loss_after_3_thirds": "loss here",
    "joeynmt_loss_after_3_thirds": "loss of JoeyNMT",
    "loss_below_joeynmt": "difference of losses",
}


def render_table(results: Sequence[Result]) -> str:
    """The README's table, with a row per result of ROWS if it exists, and the leads in training.

    Raises ResultError for a metric that its result does not have.
    """
    lines = ["| what | measured | on | command |", "|---|---|---|---|"]
    named = {result.name: result for result in results}
    for name, (title, figures) in ROWS.items():
        if name not in named:
            continue
        result = named[name]
        try:
            measured = figures.format_map(result.metrics)
        except KeyError as error:
            raise ResultError(
                f"{name}.json: has no metric {error.args[0]}, which ROWS in "
                "benchmarks/readme_tables.py names"
            ) from error
        command = re.split(r";| --peers| --config\.", result.command)[0]
        ellipsis = "" if command == result.command else " …"
        lines.append(
            f"| [{title}](docs/results.md#{name}) | {measured} | {show_machine(result.machine)}, "
            f"{show_seconds(result.seconds)} | `{command}`{ellipsis} |"
        )
    leads = speed_table.leads(results)
    if leads:
        lines += ["", f"Training speed relative to the fastest other package: {leads}."]
    return "\n".join(lines)


def render_page(results: Sequence[Result]) -> str:
    """docs/results.md: the README's table, then by topic an overview and each result's section."""
    sections = ["# Results"]
    if any(result.name in ROWS for result in results):
        sections.append(render_table(results).replace("docs/results.md#", "#"))
    sections.append(
        "`python -m benchmarks.readme_tables` writes this page from [benchmarks/results]"
        "(../benchmarks/results), whose files have every metric."
    )
    remaining = {result.name: result for result in results}
    for topic, prefixes in TOPICS.items():
        names = [name for prefix in prefixes for name in remaining if name.startswith(prefix)]
        members = [remaining.pop(name) for name in dict.fromkeys(names)]
        if members:
            sections += [f"## {topic}", _overview(members), *map(render_section, members)]
    return "\n\n".join(sections) + "\n"


def _overview(results: Sequence[Result]) -> str:
    """A row per result with its headlines; contests of training speed have a table of their own."""
    rows = ["| result | measured | machine | time |", "|---|---|---|---|"]
    for result in results:
        if not speed_table.is_contest(result):
            headlines = _headline_first(result)[:SHOWN]
            metrics = (f"{called(result, name)} {show_value(name, x)}" for name, x in headlines)
            rows.append(
                f"| [{result.name}](#{result.name}) | {'; '.join(metrics)} "
                f"| {show_machine(result.machine)} | {show_seconds(result.seconds)} |"
            )
    contests = speed_table.render(results)
    return "\n".join(rows) + (f"\n\n{contests}" if contests else "")


def _headline_first(result: Result) -> list[tuple[str, float]]:
    """All metrics: those that have a name of their own come first, in the order of LABELS."""
    place = {name: number for number, name in enumerate(LABELS)}
    return sorted(result.metrics.items(), key=lambda item: place.get(item[0], len(place)))


def render_section(result: Result) -> str:
    """Command, commit and machine of a result, a table of its metrics, and their signatures.

    If it has a training, also when that was, and its code if other code scored it.
    """
    files = (f"{result.name}.json", *result.hypotheses)
    dirty = "-dirty" if result.commit.endswith("-dirty") else ""
    lines = [
        f"### {result.name}",
        "",
        f"    {result.command}",
        "",
        f"Commit {result.commit[:10]}{dirty}, {show_machine(result.machine)}, "
        f"{show_seconds(result.seconds)}; "
        f"{', '.join(f'[{file}](../benchmarks/results/{file})' for file in files)}.",
        "",
        *_training(result),
        "| metric | value |",
        "|---|---:|",
    ]
    metrics = _headline_first(result)
    lines += [f"| {called(result, name)} | {show_value(name, x)} |" for name, x in metrics[:LISTED]]
    unlisted = len(metrics[LISTED:])
    if unlisted:
        lines += ["", f"{unlisted} more are in the file."]
    if result.signatures:
        # Below the table: in it, their bars would divide cells.
        lines += ["", "Signatures:", "", *_signatures(result)]
    return "\n".join(lines)


def _signatures(result: Result) -> list[str]:
    """Each signature with the metrics that have it."""
    labels: dict[str, list[str]] = {}
    for name, signature in result.signatures.items():
        labels.setdefault(signature, []).append(label(name))
    return [f"- `{signature}`: {', '.join(metrics)}" for signature, metrics in labels.items()]


def _training(result: Result) -> list[str]:
    sentences: list[str] = []
    other_code = mixture(result)
    if other_code:
        sentences.append(f"{other_code[:1].upper()}{other_code[1:]}.")
    for name in ("training", "compiled"):
        text = result.details.get(name)
        if text:
            sentences.append(f"{name.capitalize()}: {text}.")
    return [" ".join(sentences), ""] if sentences else []


def label(name: str) -> str:
    """A metric's label, or its name in words if it has none."""
    if name in LABELS:
        return LABELS[name]
    return name.removesuffix("_seconds").replace("_", " ")


def called(result: Result, name: str) -> str:
    """A metric's label, with the protocol of a score whose protocol is no longer the current one.

    Scores on the validation set have the signature of those on the test set.
    """
    return label(name) + protocol_note(result.signatures.get(name.removeprefix("valid_"), ""))


def show_value(name: str, value: float) -> str:
    """Times as times, large numbers as whole ones, scores with two decimals."""
    if name.endswith("_seconds"):
        return show_seconds(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    # Scores are compared to two decimals; a small number keeps three significant digits instead.
    return f"{value:.2f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def replace_between_markers(text: str, content: str) -> str:
    """`text` with `content` between the two markers. Raises ValueError without them."""
    before, begin, remainder = text.partition(BEGIN)
    _, end, after = remainder.partition(END)
    if not begin or not end or BEGIN in remainder or END in after:
        raise ValueError(f"the lines {BEGIN} and {END} must stand in it once each, in this order")
    return f"{before}{BEGIN}\n\n{content}\n\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Writes what the result files say into documents.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if one is stale")
    parser.add_argument("--readme", type=Path, default=README)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--deviations", type=Path, default=DEVIATIONS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    try:
        contents = documents(options, read_results(options.results))
    except (ResultError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1

    stale = [path for path, text in contents.items() if _text(path) != text]
    for path in stale:
        if options.check:
            print(
                f"{path}: its results are not those of {options.results}; "
                "run `python -m benchmarks.readme_tables`",
                file=sys.stderr,
            )
            continue
        path.write_text(contents[path], encoding="utf-8")
        print(f"{path}: results rewritten", file=sys.stderr)
    return 1 if options.check and stale else 0


def documents(options: argparse.Namespace, results: Sequence[Result]) -> dict[Path, str]:
    """The text of each document. Raises ResultError, and ValueError for a document without the
    markers."""
    named = {result.name: result for result in results}
    contents = {options.page: render_page(results)}
    if CHART in named:
        contents[options.page.with_name(f"{CHART}.svg")] = speed_table.draw(named[CHART])
    tables = {
        options.readme: render_table(results),
        options.deviations: deviations.render(named.get("deviations")),
    }
    for path, table in tables.items():
        try:
            contents[path] = replace_between_markers(path.read_text(encoding="utf-8"), table)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    return contents


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
