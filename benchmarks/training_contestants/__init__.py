"""The contestants of `benchmarks.training_speed`: each file trains one package's Transformer.

All but `ours` run in environments where this project is not installed: they import NumPy, their own
package and what stands in `contest.py` and `torch_steps.py`, and nothing else of the repository.
"""
