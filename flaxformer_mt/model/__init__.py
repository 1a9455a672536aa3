"""The paper as linen modules."""

from flaxformer_mt.model.embedding import (
    CHUNK,
    of_types,
    softmax_bias,
    softmax_table,
    table_copies,
    table_rows,
)
from flaxformer_mt.model.transformer import Transformer

__all__ = [
    "CHUNK",
    "Transformer",
    "of_types",
    "softmax_bias",
    "softmax_table",
    "table_copies",
    "table_rows",
]
