"""A connection that ends without costing its client the last answer."""

import asyncio
from collections.abc import Callable
from typing import Any

MOST_BYTES = 4 << 20  # that are dropped; a fast client has as many under way
MOST_SECONDS = 2.0  # longer than an answer takes to arrive


class LingeringTransport:
    """A connection whose `close` waits until a client that is still sending has its answer.

    A kernel resets a connection that is closed with unread bytes, and drops what it hasn't
    delivered, such as the refusal of these bytes. So `close` ends our side of the connection, and
    then drops what arrives until the client ends its own, at most `MOST_BYTES` and `MOST_SECONDS`.
    """

    def __init__(
        self,
        transport: Any,
        loop: asyncio.AbstractEventLoop,
        client_sends: Callable[[], bool],
    ) -> None:
        """`client_sends` tells whether more of a request is to be expected."""
        self._transport = transport
        self._loop = loop
        self._client_sends = client_sends
        self._limit: asyncio.TimerHandle | None = None  # while it lingers
        self._dropped = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._limit is not None or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing():
            return
        if not self._client_sends():
            self._transport.close()
            return
        self._limit = self._loop.call_later(MOST_SECONDS, self._transport.close)
        try:
            self._transport.write_eof()
            self._transport.resume_reading()
        except OSError:  # the client has left
            self._transport.close()

    def write(self, data: bytes) -> None:
        if not self.is_closing():  # as after any transport's `close`
            self._transport.write(data)

    def drop(self, data: bytes) -> None:
        """Takes note of bytes that arrived after `close`."""
        self._dropped += len(data)
        if self._dropped > MOST_BYTES:
            self._transport.close()

    def pause_reading(self) -> None:
        if not self.is_closing():
            self._transport.pause_reading()

    def lost(self) -> None:
        """The connection has ended."""
        if self._limit is not None:
            self._limit.cancel()
