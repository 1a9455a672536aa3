"""Metadata for PyPI: the project's addresses, and a README whose links work outside the checkout.

The repository is GITHUB_REPOSITORY at GITHUB_REF_NAME, which GitHub's workflows set, or the
checkout's remote `origin`. Without either, links to the checkout's files become plain text.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\[\]]*)\]\(([^():#\s][^():\s]*)\)")  # to a file of the checkout
PAPER = "https://arxiv.org/abs/1706.03762"


class Addresses(MetadataHookInterface):
    """Fills in `readme` and `urls`."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        repository = _repository(Path(self.root))
        ref = os.environ.get("GITHUB_REF_NAME", "HEAD")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = absolute(text, repository, ref)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls(repository, ref)


def absolute(text: str, repository: str, ref: str) -> str:
    """`text` with its links to files leading to `repository`, OWNER/NAME; without them if it is
    ""."""

    def replaced(link: re.Match[str]) -> str:
        picture, label, path = link.groups()
        if not repository:
            return "" if picture else label
        if picture:
            return f"![{label}](https://raw.githubusercontent.com/{repository}/{ref}/{path})"
        return f"[{label}](https://github.com/{repository}/blob/{ref}/{path})"

    return LINK.sub(replaced, text)


def urls(repository: str, ref: str) -> dict[str, str]:
    """The project's addresses; the site of docs/ is where the release workflow puts it."""
    if not repository:
        return {"Paper": PAPER}
    owner, name = repository.split("/")
    source = f"https://github.com/{repository}"
    return {
        "Documentation": f"https://{owner.lower()}.github.io/{name}/",
        "Source": source,
        "Issues": f"{source}/issues",
        "Changelog": f"{source}/blob/{ref}/CHANGELOG.md",
        "Paper": PAPER,
    }


def _repository(root: Path) -> str:
    named = os.environ.get("GITHUB_REPOSITORY")
    if named:
        return named
    if not (root / ".git").exists():  # else git would look for a repository around an unpacked one
        return ""
    command = ["git", "-C", str(root), "config", "--get", "remote.origin.url"]
    try:
        origin = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:  # no git
        return ""
    address = re.search(r"github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?$", origin)
    return address[1] if address else ""
