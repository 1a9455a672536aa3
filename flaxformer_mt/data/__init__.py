"""From raw parallel text to ready batches: corpus, vocabulary, store, plan, pipeline.

Only `pipeline` imports JAX; everything else is NumPy, quick to import and to test.
"""
