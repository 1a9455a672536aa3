"""Pictures of a model's attention and of training."""

from flaxformer_mt.attention import FigureError as FigureError
