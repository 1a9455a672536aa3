"""Corpora to the vocabulary and token store of a run directory, every pair accounted for."""

from flaxformer_mt.data.prepare.make import prepare as prepare
