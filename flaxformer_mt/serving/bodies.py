"""From a request's bytes to a mapping: bounded in size, in time and in depth."""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from collections.abc import Mapping
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request

from flaxformer_mt.serving.refusals import Refusal, bad_request, too_large

JSON, FORM = "application/json", "application/x-www-form-urlencoded"
_MOST_FIELDS = 100


async def read_payload(
    request: Request, *, limit: int, seconds: float
) -> tuple[Mapping[str, Any], str]:
    """The body of a POST as a mapping, and whether it was `JSON` or `FORM`.

    The values of a form are texts, or lists of them where a field is repeated. Raises Refusal: 400,
    408 when the body does not arrive in time, 413, 415.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (JSON, FORM):
        raise Refusal(415, f"send {JSON}, or a form as {FORM}", reason="request")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refusal(415, "send the body without content-encoding", reason="request")
    body = await _read(request, limit, seconds)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise bad_request(f"the body is not UTF-8 (byte {error.start + 1})") from None
    return (_parse_json(text), JSON) if kind == JSON else (_parse_form(text), FORM)


async def _read(request: Request, limit: int, seconds: float) -> bytes:
    message = f"the body has more than {limit} bytes"
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:19]) > limit:
        raise too_large(message)
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise too_large(message)
    except TimeoutError:
        raise Refusal(408, f"the body did not arrive within {seconds:g} s", reason="slow") from None
    except ClientDisconnect:
        raise Refusal(499, "the client has gone", reason="gone") from None
    return bytes(body)


def _parse_json(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise bad_request("the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise bad_request(
            f"the body is not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        ) from None
    except ValueError:
        raise bad_request("the JSON has a number that is none, or one of too many digits") from None
    if not isinstance(value, dict):
        raise bad_request("the JSON must be an object")
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _parse_form(text: str) -> Mapping[str, Any]:
    try:
        fields = urllib.parse.parse_qs(
            text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except UnicodeDecodeError:
        raise bad_request("a field of the form is not UTF-8") from None
    except ValueError:
        raise too_large(f"the form has more than {_MOST_FIELDS} fields") from None
    return {name: values if len(values) > 1 else values[0] for name, values in fields.items()}
