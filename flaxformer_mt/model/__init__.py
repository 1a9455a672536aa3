"""The paper as linen modules."""

from flaxformer_mt.model.embedding import CHUNK as CHUNK
from flaxformer_mt.model.transformer import Transformer as Transformer
