"""The typed, frozen form of an experiment: each setting, its default, bounds and meaning.

The defaults are the paper's base model ("Attention Is All You Need", arXiv 1706.03762).
"""

import dataclasses
import math
from typing import Any, Literal, NamedTuple

from flaxformer_mt.config import kinds

Decides = Literal["training", "scoring", "nothing"]
BleuTokenizer = Literal["auto", "13a", "intl", "char", "zh", "ja-mecab", "ko-mecab"]

MARKS = 4  # PAD, BOS, EOS and UNK, which every vocabulary has
LARGEST_INTEGER = 2**31 - 1  # the libraries that read settings take no larger one
LARGEST_BEAM = 1 << 16  # positions among a beam's candidates are int32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """The numbers that a setting takes. It may equal `minimum` and `maximum`, not the others."""

    minimum: float = -math.inf
    above: float = -math.inf
    maximum: float = math.inf
    below: float = math.inf

    def problem(self, number: float) -> str | None:
        """What is wrong with a number, to be said after it; None for one within the bounds."""
        if self.minimum <= number <= self.maximum and self.above < number < self.below:
            return None
        if math.isfinite(self.below):
            return f"must lie in [{self.minimum}, {self.below})"
        if math.isfinite(self.above) and math.isfinite(self.maximum):
            return f"must lie in ({self.above}, {self.maximum}]"
        if number > self.maximum:
            return f"must be at most {self.maximum:,}"
        if self.above == 0:
            return "must be positive"
        return "must not be negative" if self.minimum == 0 else f"must be at least {self.minimum}"


def setting(
    default: Any,
    help: str,
    *,
    resume: bool = False,
    decides: Decides | None = None,
    weights: bool = False,
    **bounds: float,
) -> Any:
    """A dataclass field with its explanation; `resume`: a resumed run may change it.

    `weights`: it decides which parameters a model has, or their shapes.

    `decides` is what the setting affects: what is trained, a trained model's scores, or only where,
    how fast and with what reports ("nothing"). None: as its group; the outermost decides training.
    `bounds` are a number's, as in `Bounds`.
    """
    if type(default) is int:
        bounds = {"maximum": LARGEST_INTEGER} | bounds
    metadata = {
        "help": help,
        "resume": resume,
        "decides": decides,
        "weights": weights,
        "bounds": Bounds(**bounds),
    }
    if isinstance(default, type):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def operational(default: Any, help: str, **bounds: float) -> Any:
    """A setting that decides nothing and may change at any time."""
    return setting(default, help, resume=True, decides="nothing", weights=False, **bounds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    encoder_layers: int = setting(6, "N of the encoder stack", weights=True, minimum=1)
    decoder_layers: int = setting(6, "N of the decoder stack", weights=True, minimum=1)
    d_model: int = setting(
        512, "width of embeddings and of every sub-layer's output", weights=True, minimum=1
    )
    d_ff: int = setting(2048, "hidden width of the feed-forward layers", weights=True, minimum=1)
    num_heads: int = setting(
        8,
        "h, attention heads; d_k and d_v stay as they are: set them too (paper: d_model / h)",
        weights=True,
        minimum=1,
    )
    d_k: int = setting(
        64,
        "width of each head's queries and keys, whatever d_model and h are",
        weights=True,
        minimum=1,
    )
    d_v: int = setting(
        64, "width of each head's values, whatever d_model and h are", weights=True, minimum=1
    )
    norm: Literal["post", "pre"] = setting(
        "post",
        "post: LayerNorm(x + Sublayer(x)), the paper; pre: x + Sublayer(LayerNorm(x))",
        weights=True,
    )
    norm_epsilon: float = setting(1e-6, "added to the variance in layer normalisation", above=0)
    positions: Literal["sinusoidal", "tensor2tensor", "learned"] = setting(
        "sinusoidal",
        "position encoding: the paper's section 3.5; the sinusoids of its authors' tensor2tensor, "
        "which are Marian's; or a learned table (Table 3 row E)",
        weights=True,
    )
    position_scale: Literal["auto", "one", "sqrt_d_model"] = setting(
        "auto",
        "factor of a learned position table: sqrt_d_model, as for tokens (tensor2tensor's first "
        "release), or one. auto: sqrt_d_model in a new run; one in a run from before this setting",
    )
    max_length: int = setting(
        256,
        "longest sequence on either side, in tokens with the end mark (size of a learned position "
        "table)",
        minimum=1,
    )
    tie: Literal["all", "target", "none"] = setting(
        "all",
        "all: one matrix for source, target and softmax (paper, needs a shared vocabulary); "
        "target: target embedding and softmax; none: three matrices",
        weights=True,
    )
    activation: Literal["relu", "silu"] = setting(
        "relu", "between the feed-forward layers: relu (paper) or silu (swish; OPUS-MT)"
    )
    attention_bias: bool = setting(
        False,
        "biases in attention's four projections (paper: no; Marian and PyTorch: yes)",
        weights=True,
    )
    logits_bias: bool = setting(
        False, "a bias on the output logits (paper: no; Marian: yes)", weights=True
    )
    vocab_multiple: int = setting(
        1,
        "pad embedding tables to a multiple of this many rows, so that mesh.tensor can split them "
        "(tensor2tensor's vocab_divisor)",
        minimum=1,
    )
    dropout: float = setting(
        0.1, "P_drop: on sub-layer outputs and on embedding + position sums", minimum=0, below=1
    )
    attention_dropout: float = setting(
        0.0, "dropout on attention weights (paper: none)", minimum=0, below=1
    )
    ffn_dropout: float = setting(
        0.0, "dropout after the feed-forward ReLU (paper: none)", minimum=0, below=1
    )
    dtype: Literal["auto", "float32", "bfloat16"] = setting(
        "float32",
        "type of matrix-product operands; parameters, softmax and loss stay float32. auto: "
        "bfloat16 where the hardware supports it, else float32; a run keeps the type it started "
        "with",
        resume=True,
    )
    activation_dtype: Literal["auto", "float32", "bfloat16"] = operational(
        "auto",
        "type of activations between one training kernel and the next, where dtype is bfloat16; "
        "sums, statistics, softmax and loss stay float32. auto: bfloat16 on GPUs, whose steps are "
        "bound by memory traffic, else float32",
    )
    attention_kernel: Literal["auto", "einsum", "cudnn"] = operational(
        "auto",
        "attention in training: einsum, two matrix products; cudnn, one kernel of NVIDIA's "
        "library, from Ampere (A100) on, with activation_dtype bfloat16, no dropout on attention, "
        "and equal d_k and d_v up to 128. auto: cudnn where it can be used, else einsum",
    )
    scan_layers: bool = setting(
        False,
        "stack the layers' parameters and scan over them: compiles as fast as one layer",
        decides="nothing",
    )
    remat: bool = operational(
        False, "recompute each layer in the backward pass: less memory, one third more compute"
    )

    @property
    def kept_dtype(self) -> str:
        """The type of activations between kernels; float32 until a device has settled it."""
        return "bfloat16" if self.activation_dtype == self.dtype == "bfloat16" else "float32"

    @property
    def stream_dtype(self) -> str:
        """The type of what flows from sub-layer to sub-layer.

        Pre-LN sums up all sub-layers' outputs, and nothing normalises the sum: it stays in float32.
        """
        return self.kept_dtype if self.norm == "post" else "float32"

    @property
    def for_search(self) -> "ModelConfig":
        """The same model without the kernels chosen for training: any device may search with it."""
        return dataclasses.replace(self, activation_dtype="auto", attention_kernel="auto")


WEIGHT_FIELDS = tuple(
    field for field in dataclasses.fields(ModelConfig) if field.metadata["weights"]
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    name: str = setting("", "name in reports: the corpus's key in the config")
    kind: kinds.SourceName = setting("files", kinds.meanings(kinds.CorpusSource))
    src: str = setting(
        "",
        "files: the source side (plain, .gz, .bz2, .xz or .zst); jsonl, tfds, array_record, hf: "
        "its key; tsv, csv: its column, by its name in the first line or its number, from 1; zip: "
        "the end of its file's name, such as en; memory: its language",
    )
    tgt: str = setting(
        "",
        "files: the target side; jsonl, tfds, array_record, hf: its key; tsv, csv: its column; "
        "zip: the end of its file's name; memory: its language",
    )
    path: str = setting(
        "",
        "tsv, csv, jsonl, zip, memory: the file; array_record, hf: a glob pattern (on the hub: "
        "hf://datasets/ORG/NAME/PATTERN); tfds: the dataset, such as wmt14_translate/de-en",
    )
    split: str = setting(
        "train", "synthetic: train, valid or test; tfds: in TFDS's notation, such as train[:10%]"
    )
    data_dir: str = operational(
        "", "tfds: folder of prepared datasets (empty: TFDS_DATA_DIR, or ~/tensorflow_datasets)"
    )
    archives: str = operational(
        "", "tfds: folder with the dataset's original archives, downloaded by hand"
    )
    inline: Literal["drop", "keep"] = setting(
        "drop", "memory: inline tags; keep: as symbols, <x1>, </x1> and <x1/>"
    )
    size: int = setting(0, "synthetic: number of pairs")
    weight: float = setting(
        0.0,
        "training: weight of this corpus in a mixture, relative to the others (0: no mixture)",
        minimum=0,
    )
    pair_weights: str = setting(
        "",
        "training: a weight for each pair, by which its loss is multiplied (1 changes nothing). "
        "files: a file with a number per line; tsv, csv: its column; jsonl, array_record, hf: its "
        "key",
    )
    tag: str = setting(
        "",
        "one token put before every source, such as <bt> for back-translated text or <2de> for a "
        "target language, or several with blanks between them; to translate, write them before "
        "your own text, or give `translate` its --tag",
    )
    src_lang: str = setting(
        "", "its source language, in a model of several (empty: data.src_lang)", resume=True
    )
    tgt_lang: str = setting(
        "", "its target language, in a model of several (empty: data.tgt_lang)", resume=True
    )
    bleu_tokenizer: BleuTokenizer = setting(
        "auto",
        "sacreBLEU's tokenisation for BLEU of this corpus. auto: data.bleu_tokenizer, or that of "
        "the corpus's own language; a run keeps what it started with",
        decides="nothing",
    )

    @property
    def tags(self) -> tuple[str, ...]:
        """The tokens put before every source."""
        return tuple(self.tag.split())

    @property
    def source(self) -> kinds.CorpusSource:
        """The settings that its kind reads."""
        source: kinds.CorpusSource = kinds.typed(kinds.CorpusSource, self.kind, self)
        return source


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    model: str = setting(
        "",
        "a SentencePiece model for both sides, instead of one learned by the settings below",
    )
    src_model: str = setting("", "... or a model for the source, with a vocabulary per side ...")
    tgt_model: str = setting("", "... and one for the target")
    joint_types: str = setting(
        "",
        "src_model and tgt_model: Marian's vocab.yml, which gives the pieces of both their ids, as "
        "OPUS-MT's models have them; both sides then share one vocabulary",
    )
    kind: Literal["bpe", "unigram"] = setting("bpe", "SentencePiece model type")
    size: int = setting(
        37000,
        "types (entries), special tokens included (per side, if not shared)",
        minimum=MARKS + 1,
    )
    tgt_size: int = setting(
        0, "types of the target, with a vocabulary per side (0: as many as `size`)", minimum=0
    )
    soft_size: bool = operational(
        False,
        "take fewer types than `size` if the text yields fewer, and more if its characters need "
        "more, instead of refusing the text; the config `files` sets it with a size of its choice",
    )
    shared: bool = setting(True, "one vocabulary for both sides")
    tgt_types: Literal["pieces", "words", "brackets"] = setting(
        "pieces",
        "pieces: learned like the source's; words: whole words, never split, as for linearised "
        "trees (needs a vocabulary per side; size is then the source's only); brackets: pieces, "
        "but target words that begin with a round bracket are never split, as for trees of the "
        "source's words (needs a shared vocabulary)",
    )
    tgt_words: tuple[str, ...] = setting(
        (), "words, brackets: always include these, even if the training text lacks them"
    )
    symbols: tuple[str, ...] = setting(
        (),
        "placeholders and the like, such as <x1/>: one type each, never split, wherever they are; "
        "with a given model, those of its symbols that decoding.copy_symbols copies",
    )
    split_digits: bool = setting(False, "every digit is a piece of its own")
    byte_fallback: bool = setting(
        False, "spell unknown characters as bytes, so that no token is unknown"
    )
    character_coverage: float = setting(
        1.0, "share of the corpus's characters that get their own type", above=0, maximum=1
    )
    normalization: Literal["none", "blanks", "nfc", "nfkc"] = setting(
        "none",
        "none: leave text as it is; blanks: turn unusual spaces into plain ones; nfc, nfkc: that, "
        "and the Unicode form. Stored in the vocabulary, so translation does the same",
    )
    sampling: float = setting(
        0.0,
        "subword regularisation of training text: BPE-dropout's p, or unigram's alpha (0: off)",
        minimum=0,
        below=1,
    )
    sample: int = setting(
        2_000_000,
        "learn the vocabulary from at most this many pairs, sampled evenly over the corpus",
        minimum=1,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilterConfig:
    max_length: int = setting(
        256, "drop pairs with a side longer than this, in tokens with the end mark", minimum=1
    )
    max_ratio: float = setting(
        0.0, "drop pairs whose token lengths differ by more than this factor (0: keep)", minimum=0
    )
    identical: bool = setting(False, "drop pairs whose two sides are identical")
    duplicates: bool = setting(False, "drop repeated pairs, keeping the first, across all corpora")
    near_duplicates: float = setting(
        0.0,
        "drop pairs whose similarity to an earlier pair of any corpus is about this or more: the "
        "Jaccard similarity of both sides' character 5-grams, by MinHash (0: keep)",
        minimum=0,
        below=1,
    )
    overlap: bool = setting(
        False,
        "drop pairs whose source is a source of validation or test text that can be read now; such "
        "pairs are counted and named in any case",
    )
    script: float = setting(
        0.0,
        "drop pairs in which less than this share of either side's letters is in its language's "
        "script (0: keep)",
        minimum=0,
        below=1,
    )
    language: float = setting(
        0.0,
        "drop pairs if py3langid finds another language for a side, and the expected one is less "
        "than this many times as probable (0: keep; 0.1 drops hardly anything that is right)",
        minimum=0,
        below=1,
    )
    max_characters: int = setting(
        0, "drop pairs with a side longer than this, in characters (0: keep)", minimum=0
    )
    max_character_ratio: float = setting(
        0.0,
        "drop pairs whose lengths in characters differ by more than this factor (0: keep)",
        minimum=0,
    )

    @property
    def reads_languages(self) -> bool:
        """Whether a filter depends on the languages of the text."""
        return bool(self.script or self.language)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchConfig:
    form: kinds.LayoutName = setting("bucket", kinds.meanings(kinds.BatchLayout))
    tokens: int = setting(
        25_000, "most positions per side in a global batch (paper: about 25,000)", minimum=1
    )
    max_shapes: int = setting(
        16,
        "bucket: at most this many batch shapes, each compiled once (0: as many as the length of "
        "the training repays, chosen when the run is created)",
        minimum=0,
    )
    src_length: int = setting(
        0, "pack: source positions per row (0: chosen for the corpus)", minimum=0
    )
    tgt_length: int = setting(
        0, "pack: target positions per row (0: chosen for the corpus)", minimum=0
    )
    window: int = setting(
        1 << 20,
        "pairs shuffled into batches together; a corpus is read window by window",
        minimum=1,
    )
    multiple: int = setting(
        8,
        "each shape has a multiple of this many rows; the mesh's data size must divide it",
        minimum=1,
    )

    @property
    def layout(self) -> kinds.BatchLayout:
        """The settings that its form reads."""
        layout: kinds.BatchLayout = kinds.typed(kinds.BatchLayout, self.form, self)
        return layout


class Direction(NamedTuple):
    """A pair of languages (codes), and the tag of a training corpus of that pair; maybe empty."""

    src_lang: str
    tgt_lang: str
    tag: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    src_lang: str = setting(
        "",
        "source language code, such as en (empty: from the file names of train and valid, such as "
        "train.en.gz; else en)",
        resume=True,
    )
    tgt_lang: str = setting("", "target language code, found like src_lang (else de)", resume=True)
    tokenized: bool = setting(
        False,
        "the text is already tokenised (and usually lower-cased): BLEU splits at spaces only",
        resume=True,
        decides="scoring",
    )
    bleu_tokenizer: BleuTokenizer = setting(
        "auto",
        "sacreBLEU's tokenisation for BLEU of raw text. auto: by target language (zh: zh; ja and "
        "ko: MeCab's, if installed; others written without blanks: char; else 13a); a run keeps "
        "what it started with",
        decides="nothing",
    )
    folder: str = operational("", "folder that relative corpus paths start from")
    train: tuple[CorpusConfig, ...] = setting((), "training corpora, by name")
    valid: CorpusConfig = setting(
        CorpusConfig(name="valid"), "validation corpus, used for every choice during training"
    )
    valid_sets: tuple[CorpusConfig, ...] = setting(
        (),
        "instead of data.valid: several validation corpora, by name. Each is scored, and their "
        "mean decides, or training.best_set",
    )
    valid_fraction: float = setting(
        0.0,
        "instead of data.valid: hold out this share of the only training corpus for validation; "
        "split by source text, so that equal sources stay together",
        minimum=0,
        below=1,
    )
    test: tuple[CorpusConfig, ...] = setting(
        (), "test corpora, by name, scored by `evaluate`", resume=True, decides="scoring"
    )
    mix_temperature: float = setting(
        0.0,
        "mixture without weights: each corpus's share is proportional to its number of pairs to "
        "the power 1/T. 1 leaves the sizes as they are; the higher, the more often a small corpus "
        "is drawn (Arivazhagan et al., 2019: 5). 0: no mixture",
        minimum=0,
    )
    epoch_pairs: int = setting(
        0,
        "mixture: pairs per epoch, to within one per corpus (0: the corpora's total)",
        minimum=0,
    )
    workers: int = operational(
        0, "processes that assemble batches (0: a thread of the trainer)", minimum=0
    )
    vocabulary: VocabularyConfig = setting(VocabularyConfig, "")
    filter: FilterConfig = setting(FilterConfig, "")
    batch: BatchConfig = setting(BatchConfig, "")

    @property
    def has_pair_weights(self) -> bool:
        """Whether training text has a weight for each pair, in one of its corpora at least."""
        return any(corpus.pair_weights for corpus in self.train)

    @property
    def has_validation_text(self) -> bool:
        """Whether validation text of its own is named; a share of the training text doesn't
        count."""
        return bool(self.valid_sets) or self.valid != CorpusConfig(name="valid")

    @property
    def validation(self) -> dict[str, CorpusConfig]:
        """The validation corpora that are named, by dotted key: one of data.valid, or several."""
        if self.valid_sets:
            return {f"data.valid_sets.{corpus.name}": corpus for corpus in self.valid_sets}
        return {"data.valid": self.valid}

    @property
    def tags(self) -> frozenset[str]:
        """The tags of training and validation text, each by itself."""
        corpora = (*self.train, *self.validation.values())
        return frozenset(tag for corpus in corpora for tag in corpus.tags)

    @property
    def directions(self) -> tuple[Direction, ...]:
        """Languages and tag of each training corpus, in their order; of an imported model, whose
        text isn't known, its languages."""
        corpora = ((self.of_corpus(corpus), corpus.tag) for corpus in self.train)
        every = (Direction(data.src_lang, data.tgt_lang, tag) for data, tag in corpora)
        return tuple(dict.fromkeys(every)) or (Direction(self.src_lang, self.tgt_lang, ""),)

    def of_corpus(self, corpus: CorpusConfig) -> "DataConfig":
        """These settings in the languages of one of the corpora."""
        return dataclasses.replace(
            self,
            src_lang=corpus.src_lang or self.src_lang,
            tgt_lang=corpus.tgt_lang or self.tgt_lang,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    kind: kinds.CurveName = setting("paper", kinds.meanings(kinds.RateCurve))
    factor: float = setting(1.0, "paper: multiplies the formula")
    peak: float = setting(
        0.0, "all but paper: the learning rate at the end of the warm-up, the highest"
    )
    warmup_steps: int = setting(4000, "steps of linear warm-up", minimum=1)
    final: float = setting(
        0.0,
        "linear, cosine, wsd: the learning rate at the end, as a share of peak",
        minimum=0,
        maximum=1,
    )
    total_steps: int = setting(
        0,
        "linear, cosine, wsd: the step at which the curve ends; later steps keep its last rate (0: "
        "training.steps, and another curve if these change)",
        minimum=0,
    )
    decay_steps: int = setting(
        0, "wsd: steps of the decay at the end (0: a tenth of all)", minimum=0
    )

    @property
    def curve(self) -> kinds.RateCurve:
        """The settings that its kind reads."""
        curve: kinds.RateCurve = kinds.typed(kinds.RateCurve, self.kind, self)
        return curve


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    kind: kinds.RuleName = setting("adam", kinds.meanings(kinds.UpdateRule))
    beta1: float = setting(0.9, "all but adafactor: the first decay", minimum=0, below=1)
    beta2: float = setting(
        0.98, "all but adafactor: the second decay (paper: .98)", minimum=0, below=1
    )
    epsilon: float = setting(1e-9, "adam, adamw, muon: Adam's epsilon (paper: 1e-9)", above=0)
    momentum: float = setting(0.95, "muon: decay of the matrices' momentum", minimum=0, below=1)
    decay_exponent: float = setting(
        0.8, "adafactor: at step t the second moments decay by 1 - t^-decay_exponent", above=0
    )
    parameter_scale: bool = setting(
        True,
        "adafactor: the rate is a share of each parameter's root mean square, and so about ten "
        "times Adam's (false: a rate like Adam's)",
    )
    weight_decay: float = setting(0.0, "decoupled weight decay (paper: none)", minimum=0)
    clip_norm: float = setting(
        0.0, "scale gradients above this global norm (0: off, paper)", minimum=0
    )
    accumulation: int = setting(1, "micro-batches per global batch", minimum=1)
    ema_decay: float = setting(
        0.0, "keep an exponential moving average of the parameters (0: off)", minimum=0, below=1
    )

    @property
    def rule(self) -> kinds.UpdateRule:
        """The settings that its kind reads."""
        rule: kinds.UpdateRule = kinds.typed(kinds.UpdateRule, self.kind, self)
        return rule


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdapterConfig:
    rank: int = setting(
        0,
        "with --init-from: train low-rank adapters of this rank, such as 8, beside that run's "
        "weights, which stay as they are (Hu et al., 2022; 0: none, train the weights)",
        minimum=0,
    )
    scale: float = setting(
        2.0, "factor of an adapter's product (elsewhere alpha / rank)", above=0, maximum=1000
    )
    matrices: tuple[str, ...] = setting(
        ("*",),
        "glob patterns of the layers' matrices that get an adapter, such as '*/query'",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    seed: int = setting(1, "seed for initialisation, data order and dropout", minimum=0)
    steps: int = setting(
        100_000,
        "total optimizer updates, including skipped ones (max_bad_updates)",
        resume=True,
        minimum=1,
    )
    minutes: float = operational(
        0.0,
        "config `files`: train for about this long, with preparation, compiling and validation. "
        "When the run is created, this machine's speed decides `steps` and, where they would be "
        "too few, a smaller model (0: by the text)",
        minimum=0,
        maximum=1_000_000,
    )
    label_smoothing: float = setting(
        0.1, "epsilon_ls, spread evenly over all other types", minimum=0, below=1
    )
    loss_chunk: int = operational(
        -1,
        "target positions whose logits a device holds at once (0: all; -1: all on a GPU, else "
        "4096)",
        minimum=-1,
    )
    schedule: ScheduleConfig = setting(ScheduleConfig, "")
    optimizer: OptimizerConfig = setting(OptimizerConfig, "")
    keep_moments: bool = setting(
        False,
        "with --init-from: start from the weights and the optimizer's moments of that run's best "
        "checkpoint (false: from its average, if there is one, without moments)",
    )
    adapters: AdapterConfig = setting(AdapterConfig, "")
    exchange_dtype: Literal["float32", "bfloat16"] = setting(
        "float32",
        "type in which devices exchange gradients and parameters; bfloat16 halves the traffic but "
        "rounds each matrix's gradient, and needs model.dtype = bfloat16",
    )
    log_every: int = operational(100, "steps between reports", minimum=1)
    validate_every: int = operational(
        1500,
        "steps between validations (0: only at the end). Each saves a checkpoint; use a multiple "
        "of save_every to space averaged checkpoints evenly",
        minimum=0,
    )
    validate_bleu: bool = operational(True, "decode the validation set at each validation")
    validate_beam: int = operational(
        1, "beam size for validation; 1 is greedy", minimum=1, maximum=LARGEST_BEAM
    )
    best_metric: Literal["bleu", "chrf", "loss"] = setting(
        "bleu",
        "metric that decides the best checkpoint and patience; where it is equal, the lower loss "
        "does",
        decides="nothing",
    )
    best_set: str = setting(
        "",
        "of several validation sets (data.valid_sets), the one whose metric decides (empty: the "
        "mean, in which every set counts equally)",
        decides="nothing",
    )
    patience: int = setting(
        0, "stop after this many validations without improvement (0: off)", resume=True, minimum=0
    )
    save_every: int = setting(
        1500, "steps between checkpoints (paper: 10 minutes)", resume=True, minimum=1
    )
    keep_latest: int = operational(2, "newest checkpoints to keep for resuming", minimum=1)
    keep_best: int = operational(1, "best checkpoints to keep", minimum=0)
    keep_for_average: int = setting(
        5,
        "newest checkpoints to keep for `average` (paper: 5 base, 20 big)",
        resume=True,
        minimum=0,
    )
    max_bad_updates: int = operational(
        20,
        "consecutive updates to skip for a non-finite loss or gradient before restoring the last "
        "good checkpoint",
        minimum=1,
    )
    max_rollbacks: int = operational(
        3, "restores without progress to a new checkpoint before the run stops", minimum=0
    )
    trackers: tuple[str, ...] = operational(
        ("tensorboard",),
        "where to log reports, validation samples and the config besides metrics.jsonl: "
        "tensorboard, wandb, mlflow (empty: nowhere)",
    )
    chip_tflops: float = operational(
        0.0,
        "peak TFLOP/s per device, the basis of MFU (0: bfloat16 peak by device name; measured on "
        "a CPU)",
        minimum=0,
    )
    deterministic: bool = operational(
        False, "GPU: bitwise identical runs, at some cost in speed (CPU and TPU always are)"
    )
    freeze: tuple[str, ...] = setting(
        (), "glob patterns of parameters not to train, such as 'encoder/*'"
    )

    @property
    def best_score(self) -> str:
        """The name, among a validation's scores, of the one that decides: `bleu`, `bleu/SET`."""
        return f"{self.best_metric}/{self.best_set}" if self.best_set else self.best_metric

    @property
    def loss_score(self) -> str:
        """The name of the loss that decides where that score is equal."""
        return f"loss/{self.best_set}" if self.best_set else "loss"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    beam_size: int = setting(
        4, "hypotheses kept at each step; 1 is greedy", minimum=1, maximum=LARGEST_BEAM
    )
    # Beyond the largest numbers here, a score or a length overflows.
    length_penalty: float = setting(0.6, "alpha in ((5 + |Y|) / 6)^alpha", minimum=0, maximum=10)
    length_norm: Literal["gnmt", "average"] = setting(
        "gnmt", "gnmt: the paper's penalty, above; average: |Y|^alpha, as in other toolkits"
    )
    length_choice: Literal["given", "validation"] = setting(
        "given",
        "validation: if length_penalty and length_norm have their defaults, use the pair of them "
        "that scores best on validation text (200 pairs or more), chosen when training ends and by "
        "`average`",
    )
    coverage_penalty: float = setting(
        0.0,
        "beta in beta * sum_i log min(sum_j p_ij, 1), which penalises outputs that leave source "
        "tokens i without attention p_ij (0: off, as in the paper; Wu et al.: 0.2)",
        minimum=0,
        maximum=1_000_000,
    )
    diverse_groups: int = setting(
        1,
        "diverse beam search: split the beam into this many groups, each avoiding the tokens of "
        "earlier ones; no effect on sampling",
        minimum=1,
    )
    diversity: float = setting(
        0.5,
        "penalty on a token for each hypothesis of an earlier group that chose it",
        minimum=0,
        maximum=1_000_000,
    )
    ends_among: Literal["candidates", "beam"] = setting(
        "candidates",
        "candidates: any of the 2 * beam_size best continuations may end a hypothesis, as in "
        "tensor2tensor; beam: only the beam_size best, as in other toolkits",
    )
    patience: float = setting(
        0.0,
        "stop once patience * beam_size hypotheses have ended (0: once no other can win)",
        minimum=0,
        maximum=1000,
    )
    outputs: Literal["text", "trees"] = setting(
        "text",
        "trees: generate linearised trees only, with balanced brackets and one leaf for each word "
        "of the source (docs/parsing.md)",
    )
    min_length: int = setting(
        0,
        "an output (of each part of a line) has at least this many tokens, the end mark not "
        "counted, if its limit allows ...",
        minimum=0,
    )
    min_ratio: float = setting(
        0.0, "... and at least this many for each of the input's", minimum=0, maximum=1000
    )
    max_ratio: float = setting(
        1.0,
        "an output is at most this many times as long as the input ...",
        minimum=0,
        maximum=1000,
    )
    max_extra_tokens: int = setting(50, "... plus this many tokens", minimum=1)
    no_repeat_ngram: int = setting(
        0, "never repeat a sequence of this many tokens (0: off)", minimum=0
    )
    copy_symbols: bool = setting(
        False,
        "an output has each of data.vocabulary.symbols, such as a placeholder, exactly as often as "
        "its source; with a given model, which may have such symbols of its own, all of these if "
        "that setting is empty",
    )
    keep: bool = setting(
        False,
        "URLs, e-mail addresses, placeholders such as {name}, %d or ICU's, emoji, and lines of "
        "only numbers and punctuation stay as they are: the model doesn't read them, and word "
        "alignment says where they go in the output",
    )
    copy_unknown: bool = setting(
        False,
        "words that the source vocabulary can't spell stay as they are, as with `keep`",
    )
    batch_tokens: int = setting(
        0,
        "source positions times beams per device in a decoding batch (0: 8,192; in searches on a "
        "GPU 65,536)",
        decides="nothing",
        minimum=0,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig:
    data: int = setting(-1, "devices that split the batch (-1: all remaining)")
    fsdp: int = setting(1, "devices that split the batch and the parameters")
    tensor: int = setting(1, "devices that split heads, feed-forward and vocabulary")
    shard_optimizer: bool = setting(
        True,
        "also split the optimizer's state and update over `data`, up to 32 ways: less memory and "
        "compute",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentConfig:
    """One experiment. Source of the defaults: the paper's base model, sections 3 and 5."""

    name: str = operational("experiment", "title in reports")
    sizes: Literal["given", "corpus"] = operational(
        "given",
        "corpus: choose the model, vocabulary, batch, step and patience settings left at their "
        "defaults by the amount of training text, once, when the run is created",
    )
    model: ModelConfig = setting(ModelConfig, "")
    data: DataConfig = setting(DataConfig, "")
    training: TrainingConfig = setting(TrainingConfig, "")
    decoding: DecodingConfig = setting(DecodingConfig, "", resume=True, decides="scoring")
    mesh: MeshConfig = setting(MeshConfig, "", resume=True, decides="nothing")
