"""Why a request is not answered: what the client is told, and nothing else."""

from __future__ import annotations


class Refusal(Exception):
    """A request that gets an error: its status, a message for the client, headers.

    Messages repeat nothing of a request but short names of its keys.
    """

    def __init__(
        self, status: int, message: str, *, reason: str, headers: dict[str, str] | None = None
    ) -> None:
        """`reason` is one word for the metrics."""
        super().__init__(message)
        self.status, self.message, self.reason = status, message, reason
        self.headers = headers or {}


def bad_request(message: str) -> Refusal:
    return Refusal(400, message, reason="request")


def too_large(message: str) -> Refusal:
    return Refusal(413, message, reason="size")


def unavailable(message: str, *, retry_after: int, reason: str) -> Refusal:
    return Refusal(503, message, reason=reason, headers={"retry-after": str(retry_after)})


def shown(text: str) -> str:
    """A client's short text for a message: printable, and cut at 40 characters."""
    plain = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for character in text[:40]
    )
    return plain + ("…" if len(text) > 40 else "")
