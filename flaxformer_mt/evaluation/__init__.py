"""Metrics with signatures, evaluations of translators and of files, comparisons of systems.

Here are the names and usual numbers among which a caller chooses: a command makes flags of them
before it loads any metric.
"""

from typing import Literal, TypeGuard, get_args

# sacreBLEU's tokenisations. "none" is for text that is tokenised; the last ones cut text into the
# pieces of a SentencePiece model: BLEU of these is called spBLEU.
OF_PIECES = ("spm", "flores101", "flores200", "spBLEU-1K")
TOKENIZERS = ("none", "zh", "13a", "intl", "char", "ja-mecab", "ko-mecab", *OF_PIECES)
PAPER_LANGUAGES = ("de", "en", "fr")  # with tokenisation rules for the paper's BLEU
CHRF_WORD_ORDERS = (0, 1, 2)
TER_OPTIONS = ("case_sensitive", "normalized", "no_punct", "asian_support")
COMET_MODEL = "Unbabel/wmt22-comet-da"

NBestChoice = Literal["first", "score"]
N_BEST_CHOICES: tuple[NBestChoice, ...] = get_args(NBestChoice)

Method = Literal["bootstrap", "randomization"]
METHODS: tuple[Method, ...] = get_args(Method)
TRIALS = 10_000  # of approximate randomisation, as in sacreBLEU
RESAMPLES = 1000  # of the bootstrap
SEED = 12345  # sacreBLEU's

VALID = "valid"  # the name of the set that training validates on
SHOWN = 50  # of the worst translations on a page, and of the best


def is_validation(name: str | None) -> TypeGuard[str]:
    """Whether a set's name means validation text: `valid`, or `valid.NAME`."""
    return name is not None and name.split(".")[0] == VALID
