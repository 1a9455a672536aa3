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

# By HTTP status.
_REFUSALS = {
    401: f"the hub refuses the token: {_SIGN_IN}",
    403: f"the token has no access: {_SIGN_IN}, with write access",
    404: f"not found on the hub, or not readable; a private or gated one needs a token: {_SIGN_IN}",
}


class HubError(UserError):
    """The hub, or a repository there, that can't be used; in one line."""


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
    with _hub_errors(f"{kind} {repository}"):
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
    repository = address(name)
    if repository is None or repository.revision is not None:
        raise HubError(f"{name}: not a valid hub name: write ORG/NAME")
    hub = _library()
    if hub.get_token() is None:
        raise HubError(f"{name}: uploading needs a hub token: {_SIGN_IN}")
    with _hub_errors(name):
        token = hub.HfApi().whoami().get("auth", {}).get("accessToken", {})
    if token.get("role") == "read":
        raise HubError(f"{name}: the token is read-only: {_SIGN_IN}, with write access")


def push(folder: str | os.PathLike[str], name: str) -> str:
    """Uploads a folder to the model ORG/NAME, new or not; returns its page. Raises HubError."""
    api = _library().HfApi()
    message = "Exported by flaxformer-mt"
    try:
        with _hub_errors(name):
            page = api.create_repo(name, repo_type="model", exist_ok=True)
            api.upload_folder(repo_id=name, folder_path=str(folder), commit_message=message)
    except HubError as error:
        raise HubError(
            f"{error}; {folder} is complete; upload it with `hf upload {name} {folder}`"
        ) from error.__cause__
    return str(page)


def _library() -> Any:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise HubError(f"huggingface_hub is not installed: {install('hub')}") from error


@contextlib.contextmanager
def _hub_errors(repository: str) -> Iterator[None]:
    """Turns errors of the package and the network into one line about a repository."""
    errors = importlib.import_module("huggingface_hub.errors")
    try:
        yield
    except errors.RevisionNotFoundError:
        raise HubError(f"{repository}: no such branch, tag or commit on the hub") from None
    except errors.HfHubHTTPError as error:
        is_absent = isinstance(error, errors.RepositoryNotFoundError)
        refusal = _REFUSALS.get(404 if is_absent else error.response.status_code)
        if refusal is not None:
            # Without a cause: the same request will be refused again.
            raise HubError(f"{repository}: {refusal}") from None
        raise HubError(f"{repository}: the hub answered {first_line(error)}") from error
    except errors.LocalEntryNotFoundError as error:
        if error.__cause__ is None:
            raise HubError(f"{repository}: not downloaded yet") from None
        raise HubError(
            f"{repository}: the hub cannot be reached: {first_line(error.__cause__)}"
        ) from error.__cause__
    except Exception as error:  # a damaged answer, a refused model card, the network, the disk
        reason = error if error.__cause__ is None else error.__cause__
        raise HubError(f"{repository}: {first_line(reason)}") from error
