"""The least server that translates with CTranslate2: what `benchmarks.serving.small` compares with.

    python -m benchmarks.serving.minimal_server FOLDER --language CODE [--at-once N]

FOLDER is an exported model. `POST /translate` takes and gives the fields of `flaxformer-mt serve`
that a client needs, and splits text into sentences as it does. With `--at-once N`, N translations
run side by side, each on its share of the cores; by default one at a time on all.
"""

import argparse
import asyncio
import os
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ctranslate2
import sentencepiece
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from flaxformer_mt.sentences import split_sentences


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.minimal_server")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--language", required=True)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--beam-size", type=int, required=True)
    options = parser.parse_args()

    model = ctranslate2.Translator(
        str(options.folder),
        inter_threads=options.at_once,
        intra_threads=max(1, len(os.sched_getaffinity(0)) // options.at_once),
    )
    read, write = (
        sentencepiece.SentencePieceProcessor(model_file=str(options.folder / f"{side}.spm"))
        for side in ("source", "target")
    )
    pool = ThreadPoolExecutor(options.at_once)

    def translated(text: str) -> str:
        sentences = split_sentences(text, options.language).texts
        results = model.translate_batch(
            read.encode(list(sentences), out_type=str), beam_size=options.beam_size
        )
        return " ".join(write.decode([result.hypotheses[0] for result in results]))

    async def translate(request: Request) -> JSONResponse:
        body: dict[str, Any] = await request.json()
        loop = asyncio.get_running_loop()
        return JSONResponse({"text": await loop.run_in_executor(pool, translated, body["text"])})

    async def health(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    routes = [
        Route("/translate", translate, methods=["POST"]),
        Route("/health", health),
    ]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
        config = uvicorn.Config(Starlette(routes=routes), log_level="error", http="httptools")
        uvicorn.Server(config).run(sockets=[listener])
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    sys.exit(main())
