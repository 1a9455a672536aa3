"""Pictures of what a model attends to and of how runs have learnt."""

from flaxformer_mt.figures.errors import FigureError

__all__ = ["FigureError"]
