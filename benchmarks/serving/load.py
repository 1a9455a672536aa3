"""Many clients that each ask, read the answer and ask again: how many answers, and how soon."""

import asyncio
import dataclasses
import json
import time
from collections.abc import Callable, Sequence

from benchmarks.serving.process import ServerProcess


@dataclasses.dataclass(frozen=True, kw_only=True)
class Load:
    """The answers that clients got. Times are from the first byte sent to the last received."""

    seconds: float
    milliseconds: tuple[float, ...]  # sorted
    refused: int  # answers other than 200

    def percentile(self, share: float) -> float:
        place = min(len(self.milliseconds) - 1, int(share * len(self.milliseconds)))
        return self.milliseconds[place]

    @property
    def per_second(self) -> float:
        return len(self.milliseconds) / self.seconds


def drive(
    server: ServerProcess,
    sentences: Sequence[str],
    *,
    clients: int,
    requests: int,
    split: bool = False,
    watch: Callable[[int], None] = lambda _: None,
) -> Load:
    """`requests` requests of one sentence each, on `clients` connections that stay open.

    With `split` the server looks for sentence ends, as it does for most clients. `watch` is called
    with the number of answers about every second.
    """
    questions = [_question(sentence, split=split) for sentence in sentences]
    return asyncio.run(_drive(server.port, questions, clients, requests, watch))


async def _drive(
    port: int, questions: Sequence[bytes], clients: int, requests: int, watch: Callable[[int], None]
) -> Load:
    numbers = iter(range(requests))
    times: list[float] = []
    refused = 0

    async def client() -> None:
        nonlocal refused
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:  # shared: each takes the next
            start = time.perf_counter()
            writer.write(questions[number % len(questions)])
            status = await _answer(reader)
            times.append((time.perf_counter() - start) * 1e3)
            refused += status != 200
        writer.close()
        await writer.wait_closed()

    async def watching() -> None:
        while True:
            await asyncio.sleep(1)
            await asyncio.to_thread(watch, len(times))

    begin = time.perf_counter()
    watcher = asyncio.create_task(watching())
    await asyncio.gather(*(client() for _ in range(clients)))
    seconds = time.perf_counter() - begin
    watcher.cancel()
    return Load(seconds=seconds, milliseconds=tuple(sorted(times)), refused=refused)


def _question(sentence: str, *, split: bool) -> bytes:
    body = json.dumps({"text": sentence} | ({} if split else {"sentences": False})).encode()
    head = "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _answer(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length))
    return int(head[9:12])
