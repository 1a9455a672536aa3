"""The README of an exported folder."""

from __future__ import annotations

from pathlib import Path


def write_readme(folder: Path, *, title: str, install: str, use: str, notes: str) -> None:
    """Writes README.md: what to install and the lines of Python that translate."""
    text = f"""# {title}

    pip install {install}

In this folder:

```python
{use}```

{notes}
Written by flaxformer-mt. `parity.json`, where it is there, says how far this model's outputs were
found to agree with those of the run that it was made from.
"""
    (folder / "README.md").write_text(text, "utf-8")
