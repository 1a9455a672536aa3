"""The work of commands, once their arguments are known to be right.

A command whose work needs metrics, arrays or pictures is in two files: `cli/NAME.py` has its flags
and checks, and `cli/actions/NAME.py` the rest. Only `main` imports from here, behind its checks, so
that help and mistakes are shown before NumPy, sacreBLEU or JAX are loaded. What flags have to know,
such as choices and defaults, is in the `__init__.py` of a room. A test watches what is loaded.
"""
