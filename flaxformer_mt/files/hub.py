"""The Hugging Face hub, through `huggingface_hub` and its settings (HF_TOKEN, HF_HOME)."""

import contextlib
import importlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from flaxformer_mt.errors import UserError, first_line, install

_NAME = r"\w[\w.-]*/\w[\w.-]*"
_SIGN_IN = "use `hf auth login` or set HF_TOKEN: https://huggingface.co/settings/tokens"


class HubError(UserError):
    """What the hub doesn't have or give, or a missing package, in one line."""


class Address(NamedTuple):
    """ORG/NAME, and a branch, tag or commit (None: main)."""

    name: str
    revision: str | None = None

    def __str__(self) -> str:
        return self.name if self.revision is None else f"{self.name}@{self.revision}"


def address(text: str) -> Address | None:
    """The address ORG/NAME or ORG/NAME@REVISION; None for other text."""
    match = re.fullmatch(rf"({_NAME})(?:@([^@\s]+))?", text)
    return match and Address(match[1], match[2])


def fetch(
    repository: Address,
    patterns: Sequence[str],
    *,
    kind: Literal["model", "dataset"] = "model",
    download: bool = True,
) -> Path:
    """The local folder of a repository's files that match `patterns`. Raises HubError.

    Without `download`, or if the hub can't be reached, earlier downloads.
    """
    hub = _library()
    with _explained(f"{kind} {repository}"):
        folder = hub.snapshot_download(
            repository.name,
            repo_type=kind,
            revision=repository.revision,
            allow_patterns=list(patterns),
            local_files_only=not download,
        )
    return Path(folder)


def check_push(name: str) -> None:
    """Raises HubError if `push` would fail for want of the package, a token, or its right."""
    if (repository := address(name)) is None or repository.revision is not None:
        raise HubError(f"{name}: not a valid hub name: write ORG/NAME")
    hub = _library()
    if hub.get_token() is None:
        raise HubError(f"{name}: uploading needs a hub token: {_SIGN_IN}")
    with _explained(name):
        token = hub.HfApi().whoami().get("auth", {}).get("accessToken", {})
    if token.get("role") == "read":
        raise HubError(f"{name}: the token is read-only: {_SIGN_IN}, with write access")


def push(folder: str | os.PathLike[str], name: str) -> str:
    """Uploads a folder to the model ORG/NAME, new or not; returns its page. Raises HubError."""
    api, message = _library().HfApi(), "Exported by flaxformer-mt"
    try:
        with _explained(name):
            page = api.create_repo(name, repo_type="model", exist_ok=True)
            api.upload_folder(repo_id=name, folder_path=str(folder), commit_message=message)
    except HubError as error:
        advice = f"{folder} is complete; upload it with `hf upload {name} {folder}`"
        raise HubError(f"{error}; {advice}") from error.__cause__
    return str(page)


def _library() -> Any:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise HubError(f"huggingface_hub is not installed: {install('hub')}") from error


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turns errors of the package and the network into one line about `what`."""
    errors = importlib.import_module("huggingface_hub.errors")
    try:
        yield
    except errors.RevisionNotFoundError:
        raise HubError(f"{what}: no such branch, tag or commit on the hub") from None
    except errors.HfHubHTTPError as error:
        absent = isinstance(error, errors.RepositoryNotFoundError)
        said = {
            401: f"the hub refuses the token: {_SIGN_IN}",
            403: f"the token has no access: {_SIGN_IN}, with write access",
            404: "not found on the hub, or not readable; a private or gated one needs a token: "
            f"{_SIGN_IN}",
        }.get(404 if absent else error.response.status_code)
        # What the hub refuses it refuses again; another answer may be better next time.
        answer = said or f"the hub answered {first_line(error)}"
        raise HubError(f"{what}: {answer}") from None if said else error
    except errors.LocalEntryNotFoundError as error:
        if error.__cause__ is None:
            raise HubError(f"{what}: not downloaded yet") from None
        why = first_line(error.__cause__)
        raise HubError(f"{what}: the hub cannot be reached: {why}") from error.__cause__
    except Exception as error:  # a damaged answer, a refused model card, the network, the disk
        reason = error if error.__cause__ is None else error.__cause__
        raise HubError(f"{what}: {first_line(reason)}") from error
