"""sacreBLEU's BLEU with each of its tokenisations, and what to do if one can't be used here."""

import contextlib
import functools
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.tokenizers import tokenizer_spm

from flaxformer_mt.config.tokenizers import missing_extra
from flaxformer_mt.evaluation import OF_PIECES, TOKENIZERS
from flaxformer_mt.evaluation.references import ScoringError

STALL_SECONDS = 20.0  # without a byte, after which a download is given up


@functools.cache
def sacrebleu_with(tokenizer: str, *, lowercase: bool) -> BLEU:
    """sacreBLEU's metric for sentences. For spBLEU, sacreBLEU downloads a model at the first use.

    Raises ScoringError for an unknown tokenisation, and for one that can't be used here.
    """
    if tokenizer not in TOKENIZERS:
        raise ScoringError(f"no tokenizer {tokenizer!r}: {', '.join(TOKENIZERS)}")
    if extra := missing_extra(tokenizer):
        raise ScoringError(
            f'the tokenizer {tokenizer} needs: pip install "sacrebleu[{extra}]"; or '
            "choose another with --tokenize, and for a new run with data.bleu_tokenizer"
        )
    try:
        with limited_sockets(), warnings.catch_warnings():
            # For `spm`, sacreBLEU calls a method of Python's loggers that is deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            # Effective order spares a log message about single sentences.
            return BLEU(tokenize=tokenizer, lowercase=lowercase, force=True, effective_order=True)
    # Anything: sockets, HTTP, packages, damaged files, and sys.exit.
    except (Exception, SystemExit) as error:
        reason = str(getattr(error, "reason", None) or error).strip() or repr(error)
        raise ScoringError(_advice(tokenizer, reason)) from error


@contextlib.contextmanager
def limited_sockets() -> Iterator[None]:
    """A time limit for all sockets: sacreBLEU opens its downloads without one."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(STALL_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def model_file(tokenizer: str) -> Path:
    """Where sacreBLEU keeps a SentencePiece model of `OF_PIECES`."""
    name = tokenizer_spm.SPM_MODELS[tokenizer]["url"].rpartition("/")[2]
    return Path(tokenizer_spm.SACREBLEU_DIR) / "models" / name


def _advice(tokenizer: str, reason: str) -> str:
    if tokenizer not in OF_PIECES:
        return f"the tokenizer {tokenizer} can't be used: {reason}"
    file, url = model_file(tokenizer), tokenizer_spm.SPM_MODELS[tokenizer]["url"]
    if file.exists():
        return (
            f"{file}: is not a SentencePiece model ({reason}): remove it, and sacreBLEU downloads "
            f"it again from {url}"
        )
    return (
        f"the tokenizer {tokenizer} needs a SentencePiece model, which sacreBLEU can't download "
        f"from {url} ({reason}): on a machine with a network, run sacrebleu with --tokenize "
        f"{tokenizer}, and copy its ~/.sacrebleu/models/{file.name} to {file}, in the folder set "
        "by $SACREBLEU"
    )
