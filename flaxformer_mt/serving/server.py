"""The process: socket, uvicorn with its own timeouts, signals, and a clean shutdown."""

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import threading
from collections.abc import Callable, Generator
from typing import Any, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.errors import FlaxformerError
from flaxformer_mt.serving.access import is_local
from flaxformer_mt.serving.app import App
from flaxformer_mt.serving.lingering import LingeringTransport
from flaxformer_mt.serving.served_model import ServedModel
from flaxformer_mt.serving.service import Service
from flaxformer_mt.serving.settings import ServerSettings, SettingsError

_HEAD_BYTES = 64 * 1024  # of a request besides its body: head and chunk marks
_HEADERS = 100
_STEP_BYTES = 4096  # are parsed at a time
_PIPELINED = 16  # requests of one connection that wait for the answers of those before them
_OTHER_FILES = 64  # open at most, beside the connections of clients


class ServerError(FlaxformerError):
    """A server that cannot begin, or whose model cannot be made ready."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0: any free port, "": all addresses. Raises ServerError."""
    try:
        family, *_, socket_address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        is_ipv6 = family == socket.AF_INET6
        return socket.create_server(socket_address, family=family, dualstack_ipv6=is_ipv6)
    except (OSError, UnicodeError) as error:  # the latter for a name with an overlong part
        reason = str(getattr(error, "strerror", None) or error).partition(" (while")[0]
        raise ServerError(
            f"cannot listen on {host}:{port}: {reason}; choose another --port or --host"
        ) from error


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _sockets(connections: int) -> int:
    """How many sockets may be open: those beyond `connections` get a refusal."""
    return 2 * connections + 16


def allow_files(connections: int) -> None:
    """Lets the process open as many files as `connections` need. Raises SettingsError."""
    needed = _sockets(connections) + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if needed <= soft or soft == resource.RLIM_INFINITY:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    except (ValueError, OSError):
        raise SettingsError(
            f"--connections {connections} needs {needed} open files, but this process may open "
            f"{hard}: lower it, or raise the limit (ulimit -Hn)"
        ) from None


class TranslationServer(uvicorn.Server):
    """Serves until a signal or `stop()`, then answers what it has accepted."""

    def __init__(
        self,
        translator: Translator,
        model: ServedModel,
        settings: ServerSettings,
        *,
        listener: socket.socket,
        say: Callable[[str], None],
    ) -> None:
        self._say, self._listener = say, listener
        self._broken: BaseException | None = None
        self._service = Service(translator, model, settings, say=say, failed=self._fail)
        app = App(
            self._service,
            connections=lambda: len(self.server_state.connections),
            local=is_local(listener),
        )

        class Bounded(BoundedProtocol):
            patience = settings.body_seconds
            most_bytes = settings.max_body_bytes + _HEAD_BYTES
            most_file_bytes = settings.max_file_bytes + _HEAD_BYTES

        config = uvicorn.Config(
            app,
            http=Bounded,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            # Clients' addresses aren't used, nor those reported by proxies.
            proxy_headers=False,
            # The application refuses those beyond `connections`; this is against floods.
            limit_concurrency=_sockets(settings.connections),
            timeout_keep_alive=max(1, round(settings.body_seconds)),
            timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
        )
        super().__init__(config)

    def run_until_stopped(self) -> None:
        """Raises ServerError if the model can't be used or its thread ends early."""
        # uvicorn's complaints go where our own lines go.
        logger = logging.getLogger("uvicorn.error")
        logger.handlers = [_Lines(self._say)]
        logger.propagate = False
        logger.setLevel(logging.ERROR)
        self.run(sockets=[self._listener])
        if self._broken is not None:
            reason = str(self._broken) or type(self._broken).__name__
            raise ServerError(f"the model cannot be used: {reason}") from self._broken

    def stop(self) -> None:
        self.should_exit = True

    @property
    def model_at_work(self) -> bool:
        """Whether the model's thread outlives the server: it can't be interrupted."""
        return self._service.batcher.at_work

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.begin_stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """SIGINT and SIGTERM end the server in order. (uvicorn would raise the signal again, as if
        the server had crashed.) After a second signal it waits for neither requests nor model."""

        def stop(name: str) -> None:
            if self.should_exit:
                self.force_exit = True
                self._service.hurried.set()
                return
            self._say(f"{name}: finishing accepted requests, then stopping")
            self.should_exit = True

        loop = asyncio.get_running_loop()
        in_main_thread = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if in_main_thread else ()
        for number in numbers:
            loop.add_signal_handler(number, stop, number.name)
        try:
            yield
        finally:  # uvloop leaves them there when it is closed
            for number in numbers:
                loop.remove_signal_handler(number)

    def _fail(self, error: BaseException) -> None:
        self._broken = error
        self.should_exit = True


class BoundedProtocol(HttpToolsProtocol):
    """A connection that is closed when its client sends too much, never finishes a request's head,
    or doesn't read its answer. (uvicorn closes idle ones.)"""

    patience = 10.0  # seconds
    most_bytes = 0  # of a request with its head and chunk marks
    most_file_bytes = 0  # of one with a file

    def connection_made(self, transport: Any) -> None:
        self._lingering = LingeringTransport(transport, self.loop, self._client_sends)
        super().connection_made(cast(asyncio.Transport, self._lingering))
        self._bytes = 0
        self._has_file = False
        self._last_seen: object = None
        self._refused = ""  # why nothing more is read
        self._watch = self.loop.call_later(self.patience, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.cancel()
        self._lingering.lost()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            self._lingering.drop(data)
            return
        self._unset_keepalive_if_required()
        # `data` may hold several requests. The limit is for each, after the step of its beginning.
        for start in range(0, len(data), _STEP_BYTES):
            if self._refused:
                return
            part = data[start : start + _STEP_BYTES]
            self._bytes += len(part)
            if self._bytes > (self.most_file_bytes if self._has_file else self.most_bytes):
                self._refuse("The request is too large.")
                return
            try:
                self.parser.feed_data(part)
            except httptools.HttpParserUpgrade as upgrade:
                # Java's HttpClient offers to change to HTTP/2. The parser then skips the body, so
                # the request is parsed again without the offer.
                head = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
                head += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
                unparsed = data[start + upgrade.args[0] :]
                self.data_received(b"\r\n".join([*head, b"", unparsed]))
                return
            except httptools.HttpParserError:
                self._refuse("Invalid HTTP request received.")

    def _refuse(self, why: str) -> None:
        """Ends the connection with a 400, after the answers to earlier requests: clients match
        answers to requests by their order."""
        self._refused = why
        if self.pipeline and self.cycle.more_body:
            self.pipeline.popleft()  # the refused one itself
        elif self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            self.send_400_response(why)

    def _client_sends(self) -> bool:
        """Whether the client may be sending what isn't read."""
        return bool(self._refused) or (self.cycle is not None and self.cycle.more_body)

    def on_response_complete(self) -> None:
        if self._refused and not self.pipeline and not self.transport.is_closing():
            self.send_400_response(self._refused)
        super().on_response_complete()

    # The parser turns what these callbacks raise into a HttpParserError.

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= _PIPELINED:
            raise ValueError("too many pipelined requests")
        self._bytes = 0
        self._has_file = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= _HEADERS:  # trailers are counted too
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.parser.get_method() == b"CONNECT":
            raise ValueError("not a proxy")
        self._has_file = self.url.partition(b"?")[0] == b"/translate_file"
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _look(self) -> None:
        unread = self.transport.get_write_buffer_size()
        cycle = self.cycle
        waiting = unread > 0 or cycle is None or cycle.response_complete
        state = (cycle, unread, waiting)
        if waiting and state == self._last_seen:
            self.transport.abort()
            return
        self._last_seen = state
        self._watch = self.loop.call_later(self.patience, self._look)


class _Lines(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage().strip())  # without its trace, which could quote a request
