"""The typed, frozen form of an experiment: every setting, its default and its meaning, once.

The defaults are the paper's base model ("Attention Is All You Need", arXiv 1706.03762).
"""

import dataclasses
from typing import Any, Literal

Decides = Literal["training", "scoring", "nothing"]


def setting(
    default: Any, help: str, *, resume: bool = False, decides: Decides | None = None
) -> Any:
    """A dataclass field with its explanation; `resume` says whether a resumed run may change it.

    What may not change is part of what the run *is*: changing it needs a new run directory.
    `decides` is what the setting has a part in: what is trained ("training"), what numbers a
    trained model then gets ("scoring"), or only where, how fast and with what reports that happens
    ("nothing"). None: as the group that it is in, of which the outermost decides training.
    """
    metadata = {"help": help, "resume": resume, "decides": decides}
    if isinstance(default, type):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def operational(default: Any, help: str) -> Any:
    """A setting that decides nothing and may change at any time: where, how fast, what is said."""
    return setting(default, help, resume=True, decides="nothing")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    encoder_layers: int = setting(6, "N of the encoder stack")
    decoder_layers: int = setting(6, "N of the decoder stack")
    d_model: int = setting(512, "width of embeddings and of every sub-layer's output")
    d_ff: int = setting(2048, "inner width of the feed-forward layers")
    num_heads: int = setting(8, "h, attention heads")
    d_k: int = setting(64, "width of a head's queries and keys")
    d_v: int = setting(64, "width of a head's values")
    norm: Literal["post", "pre"] = setting(
        "post", "post: LayerNorm(x + Sublayer(x)), the paper; pre: x + Sublayer(LayerNorm(x))"
    )
    norm_epsilon: float = setting(1e-6, "added to the variance in layer normalisation")
    positions: Literal["sinusoidal", "learned"] = setting(
        "sinusoidal",
        "position encoding: the paper's section 3.5, or a learned table (Table 3 row E)",
    )
    max_length: int = setting(
        256,
        "longest sequence in tokens, end mark included, on either side "
        "(size of a learned position table)",
    )
    tie: Literal["all", "target", "none"] = setting(
        "all",
        "all: one matrix for source, target and softmax (paper, needs a shared vocabulary); "
        "target: target embedding and softmax; none: three matrices",
    )
    activation: Literal["relu", "silu"] = setting(
        "relu", "between the feed-forward layers: relu, the paper; silu (swish), as in OPUS-MT"
    )
    attention_bias: bool = setting(
        False, "biases in attention's four projections (paper: none; Marian and PyTorch: yes)"
    )
    logits_bias: bool = setting(
        False, "a bias for each type of the softmax (paper: none; Marian: yes)"
    )
    vocab_multiple: int = setting(
        1,
        "embedding tables are padded to a multiple of this many rows, such as that over which "
        "mesh.tensor splits them (tensor2tensor's vocab_divisor)",
    )
    dropout: float = setting(0.1, "P_drop: on sub-layer outputs and on embedding + position sums")
    attention_dropout: float = setting(0.0, "dropout on attention weights (paper: none)")
    ffn_dropout: float = setting(0.0, "dropout after the feed-forward ReLU (paper: none)")
    dtype: Literal["auto", "float32", "bfloat16"] = setting(
        "float32",
        "operands of matrix products; parameters, softmax and loss stay float32. auto: bfloat16 "
        "where the hardware multiplies it, float32 elsewhere; a run keeps what it began with",
        resume=True,
    )
    scan_layers: bool = setting(
        False,
        "stack the layers' parameters and scan: compiles in the time of one layer",
        decides="nothing",
    )
    remat: bool = operational(
        False, "recompute each layer in the backward pass: less memory, a third more work"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    name: str = setting("", "the corpus's name in reports: the key it stands under in the config")
    kind: Literal["files", "tsv", "jsonl", "tfds", "array_record", "hf", "synthetic"] = setting(
        "files",
        "files: two line-aligned files; tsv: one file, two columns; jsonl: one JSON object a line; "
        "tfds: a TensorFlow Datasets translation set; array_record: ArrayRecord shards of JSON "
        "objects; hf: parquet files, of the Hugging Face hub or your own; synthetic: the built-in "
        "grammar",
    )
    src: str = setting(
        "",
        "files: the source side (plain, .gz, .xz or .zst); jsonl, tfds, array_record, hf: its key",
    )
    tgt: str = setting("", "files: the target side; jsonl, tfds, array_record, hf: its key")
    path: str = setting(
        "",
        "tsv, jsonl: the file; array_record, hf: the files, as a glob pattern, which on the hub is "
        "hf://datasets/ORG/NAME/PATTERN; tfds: the set, such as wmt14_translate/de-en",
    )
    split: str = setting(
        "train", "synthetic: train, valid or test; tfds: as TFDS writes it, such as train[:10%]"
    )
    data_dir: str = operational(
        "", "tfds: where prepared sets are (empty: TFDS_DATA_DIR, or ~/tensorflow_datasets)"
    )
    archives: str = operational(
        "", "tfds: folder with the set's original archives, fetched by hand"
    )
    size: int = setting(0, "synthetic: how many pairs")
    weight: float = setting(
        0.0, "training: share of this corpus in a mixture, relative to the others' (0: no mixture)"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    kind: Literal["bpe", "unigram"] = setting("bpe", "SentencePiece model type")
    size: int = setting(
        37000, "number of types, special marks included (each side's, if not shared)"
    )
    shared: bool = setting(True, "one vocabulary for both sides")
    tgt_types: Literal["pieces", "words"] = setting(
        "pieces",
        "types of a target vocabulary that is not shared; pieces: learnt as the source's are; "
        "words: its words, never split, as for linearised trees (size is then the source's alone)",
    )
    tgt_words: tuple[str, ...] = setting(
        (), "words: these are types even where the training text lacks them"
    )
    byte_fallback: bool = setting(
        False, "spell unknown characters as bytes: no unknown token is possible"
    )
    character_coverage: float = setting(
        1.0, "share of the corpus's characters that get a type of their own"
    )
    normalization: Literal["none", "blanks", "nfc", "nfkc"] = setting(
        "none",
        "none: text as it is; blanks: odd blanks become plain ones; nfc, nfkc: that and the "
        "Unicode form; part of the vocabulary's model, so translation does the same",
    )
    sampling: float = setting(
        0.0, "subword regularisation of training text: BPE-dropout's p, or unigram's alpha (0: off)"
    )
    sample: int = setting(
        2_000_000, "train on at most this many pairs, drawn evenly over the corpus"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilterConfig:
    max_length: int = setting(
        256, "drop pairs with a side longer than this, in tokens with the end mark"
    )
    max_ratio: float = setting(
        0.0, "drop pairs whose token lengths differ by more than this factor (0: keep)"
    )
    identical: bool = setting(False, "drop pairs whose two sides are the same text")
    duplicates: bool = setting(False, "drop all but the first of equal pairs, over all corpora")
    script: float = setting(
        0.0,
        "drop pairs where, on either side, less than this share of the letters is in that "
        "language's script (0: keep)",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchConfig:
    form: Literal["bucket", "pack"] = setting(
        "bucket",
        "bucket: one pair a row, rows of like length (the paper); pack: several pairs a row, one "
        "shape for all batches",
    )
    tokens: int = setting(
        25_000, "positions a global batch may hold on each side (paper: about 25,000)"
    )
    max_shapes: int = setting(16, "bucket: at most this many batch shapes, each compiled once")
    src_length: int = setting(0, "pack: source positions of a row (0: chosen for the corpus)")
    tgt_length: int = setting(0, "pack: target positions of a row (0: chosen for the corpus)")
    window: int = setting(
        1 << 20, "pairs that are shuffled into batches together; a corpus is read in such windows"
    )
    multiple: int = setting(
        8, "a shape's rows are a multiple of this (the mesh's data size must divide it)"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    src_lang: str = setting(
        "",
        "source language, a code such as en (empty: by the endings of the files of train and "
        "valid, such as train.en.gz; else en)",
        resume=True,
    )
    tgt_lang: str = setting("", "target language, as src_lang (else de)", resume=True)
    tokenized: bool = setting(
        False,
        "the text is tokenised already (and usually lower-cased): BLEU splits at blanks alone",
        resume=True,
        decides="scoring",
    )
    folder: str = operational("", "relative corpus paths stand in this folder")
    train: tuple[CorpusConfig, ...] = setting((), "training corpora, by name")
    valid: CorpusConfig = setting(
        CorpusConfig(name="valid"), "validation corpus, for every choice made in training"
    )
    valid_fraction: float = setting(
        0.0,
        "in place of data.valid: validate on this share of the one training corpus, which then "
        "isn't trained on; chosen by the source text, so that equal sources stay together",
    )
    test: tuple[CorpusConfig, ...] = setting(
        (), "test corpora, by name: scored by `evaluate`", resume=True, decides="scoring"
    )
    epoch_pairs: int = setting(
        0,
        "mixture: pairs that count as one epoch, to within one for each corpus (0: as many as the "
        "corpora hold)",
    )
    workers: int = operational(
        0, "processes that put batches together (0: a thread of the trainer's)"
    )
    vocabulary: VocabularyConfig = setting(VocabularyConfig, "")
    filter: FilterConfig = setting(FilterConfig, "")
    batch: BatchConfig = setting(BatchConfig, "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    kind: Literal["paper", "peak"] = setting(
        "paper",
        "paper: factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5); "
        "peak: the same curve given by its highest value",
    )
    factor: float = setting(1.0, "paper: multiplies the formula")
    peak: float = setting(0.0, "peak: the learning rate at the end of the warm-up")
    warmup_steps: int = setting(4000, "steps of linear growth")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    beta1: float = setting(0.9, "Adam's first decay")
    beta2: float = setting(0.98, "Adam's second decay (paper: .98)")
    epsilon: float = setting(1e-9, "Adam's epsilon (paper: 1e-9)")
    weight_decay: float = setting(0.0, "decoupled weight decay (paper: none)")
    clip_norm: float = setting(0.0, "scale gradients above this global norm (0: off, paper)")
    accumulation: int = setting(1, "split each global batch into this many micro-batches")
    ema_decay: float = setting(0.0, "keep an exponential moving average of the parameters (0: off)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    seed: int = setting(1, "seed of initialisation, order and dropout")
    steps: int = setting(
        100_000, "optimizer updates in all, skipped ones (max_bad_updates) included", resume=True
    )
    label_smoothing: float = setting(0.1, "epsilon_ls, spread evenly over every other type")
    loss_chunk: int = operational(
        -1,
        "target positions whose logits a device holds at once (0: all; -1: all on GPU, else 4096)",
    )
    schedule: ScheduleConfig = setting(ScheduleConfig, "")
    optimizer: OptimizerConfig = setting(OptimizerConfig, "")
    exchange_dtype: Literal["float32", "bfloat16"] = setting(
        "float32",
        "type in which devices exchange gradients and parameters; bfloat16 halves that traffic, "
        "rounds each matrix's gradient and needs model.dtype = bfloat16",
    )
    log_every: int = operational(100, "steps between reports")
    validate_every: int = operational(
        1500,
        "steps between validations (0: only at the end). Each saves a checkpoint: with a multiple "
        "of save_every those that are averaged lie equally far apart",
    )
    validate_bleu: bool = operational(True, "decode the validation set at each validation")
    validate_beam: int = operational(1, "beam size of that decoding: 1 is greedy")
    best_metric: Literal["bleu", "loss"] = setting(
        "bleu", "what `best` means for checkpoints and patience", decides="nothing"
    )
    patience: int = setting(
        0, "stop after this many validations without a new best (0: off)", resume=True
    )
    save_every: int = setting(1500, "steps between checkpoints (paper: 10 minutes)", resume=True)
    keep_latest: int = operational(2, "newest checkpoints kept for resuming")
    keep_best: int = operational(1, "best checkpoints kept")
    keep_for_average: int = setting(
        5, "newest checkpoints kept for `average` (paper: 5 base, 20 big)", resume=True
    )
    max_bad_updates: int = operational(
        20,
        "consecutive updates skipped for a non-finite loss or gradient before the last good "
        "checkpoint is restored",
    )
    max_rollbacks: int = operational(
        3, "such restores, without a checkpoint beyond the place, before the run stops"
    )
    trackers: tuple[str, ...] = operational(
        ("tensorboard",),
        "what gets reports, samples of validation and the config beside metrics.jsonl, of "
        "tensorboard, wandb, mlflow (empty: nothing)",
    )
    chip_tflops: float = operational(
        0.0,
        "MFU is a share of this many TFLOP/s of each device (0: bfloat16 peak by the device's "
        "name; on a CPU, measured)",
    )
    deterministic: bool = operational(
        False, "GPU: the same bits from every run, at some cost in speed (CPU and TPU: always so)"
    )
    freeze: tuple[str, ...] = setting(
        (), "glob patterns of parameter paths that do not train, such as 'encoder/*'"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    beam_size: int = setting(4, "hypotheses kept at each step; 1 is greedy")
    length_penalty: float = setting(0.6, "alpha in ((5 + |Y|) / 6)^alpha")
    length_norm: Literal["gnmt", "average"] = setting(
        "gnmt", "gnmt: the paper's penalty, above; average: |Y|^alpha, as other toolkits have it"
    )
    coverage_penalty: float = setting(
        0.0,
        "beta in beta * sum_i log min(sum_j p_ij, 1), which lowers scores of outputs that leave "
        "source tokens i without attention p_ij (0: off, as in the paper; Wu et al. had 0.2)",
    )
    diverse_groups: int = setting(
        1,
        "diverse beam search: the beam in this many groups, which shun what earlier ones say; "
        "without effect on sampling",
    )
    diversity: float = setting(
        0.5,
        "how much lower a group ranks a token for each hypothesis of an earlier one that says it",
    )
    ends_among: Literal["candidates", "beam"] = setting(
        "candidates",
        "candidates: any of the 2 * beam_size best continuations may end a hypothesis, as in "
        "tensor2tensor; beam: the beam_size best alone, as in other toolkits",
    )
    max_ratio: float = setting(1.0, "an output has at most this many times the input's length ...")
    max_extra_tokens: int = setting(50, "... plus this many tokens")
    no_repeat_ngram: int = setting(
        0, "no sequence of this many tokens occurs twice in an output (0: any may)"
    )
    batch_tokens: int = setting(
        8192,
        "source positions times beams in a device's part of a decoding batch",
        decides="nothing",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig:
    data: int = setting(-1, "devices that split the batch (-1: what is left)")
    fsdp: int = setting(1, "devices that split the batch and the parameters")
    tensor: int = setting(1, "devices that split heads, feed-forward and vocabulary")
    shard_optimizer: bool = setting(
        True,
        "split the optimizer's state and its update over `data` as well, up to 32 ways: "
        "less memory and work",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentConfig:
    """One experiment. Source of the defaults: the paper's base model, sections 3 and 5."""

    name: str = operational("experiment", "title in reports")
    sizes: Literal["given", "corpus"] = operational(
        "given",
        "corpus: what stands at its default of the model, vocabulary, batches, steps and patience "
        "is chosen by the number of training pairs when the run is made, and then given",
    )
    model: ModelConfig = setting(ModelConfig, "")
    data: DataConfig = setting(DataConfig, "")
    training: TrainingConfig = setting(TrainingConfig, "")
    decoding: DecodingConfig = setting(DecodingConfig, "", resume=True, decides="scoring")
    mesh: MeshConfig = setting(MeshConfig, "", resume=True, decides="nothing")
