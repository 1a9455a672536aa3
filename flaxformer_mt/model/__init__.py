"""The paper as linen modules."""

from flaxformer_mt.model.transformer import Transformer as Transformer
