"""Stream an answer from an OpenAI-compatible chat completions API (server-sent events).

The parser is lenient: servers differ in everything but the text. Sends one request without retry.
`ask` assembles the chunks and rejects a stream that ends without a finish reason.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final

import httpx2
import msgspec

from dragoman.delegation.local_model.failures import from_network, from_status, from_stream
from dragoman.delegation.local_model.model import KEY_VARIABLES, LocalModel, ModelChunk
from dragoman.errors import InvalidAnswer
from dragoman.events.parts import Usage
from dragoman.wire.framing import Framer
from dragoman.wire.messages import UNDECODABLE

NOT_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)
"""Failures before the connection was open, so that no prompt was sent."""

MAX_LINE_SIZE: Final = 1024 * 1024
"""Maximum size of one chunk, in bytes. A chunk is usually a few words and its JSON envelope."""

MAX_ERROR_SIZE: Final = 64 * 1024
"""Maximum number of bytes read from an error response."""


async def stream(
    model: LocalModel, prompt: str, *, key: str, connect_timeout: float
) -> AsyncGenerator[ModelChunk, None]:
    """Yield the answer in chunks. Whatever fails is raised as a `DragomanError`."""
    where = model.base_url or ""
    connected = False
    timeout = httpx2.Timeout(None, connect=connect_timeout)
    async with httpx2.AsyncClient(timeout=timeout, trust_env=not model.on_this_machine) as http:
        try:
            async with http.stream(
                "POST",
                f"{where.rstrip('/')}/chat/completions",
                json=_question(model, prompt),
                headers={"Authorization": f"Bearer {key}"} if key else {},
            ) as response:
                connected = True
                variable = model.key_variable or KEY_VARIABLES[model.api]
                if response.status_code != 200:
                    body = await _error_body(response)
                    raise from_status(
                        response.status_code, body, response.headers, variable=variable
                    )
                async for told in _read_stream(response, variable):
                    yield told
        except NOT_SENT as error:
            raise from_network(error, connected=False, where=where) from error
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            # The request was sent at least in part, unless the URL is invalid.
            sent = connected or not isinstance(error, httpx2.InvalidURL)
            raise from_network(error, connected=sent, where=where) from error


def _question(model: LocalModel, prompt: str) -> dict[str, Any]:
    messages = [{"role": "system", "content": model.system}] if model.system else []
    return {
        "model": model.model,
        "messages": [*messages, {"role": "user", "content": prompt}],
        "max_tokens": model.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def _read_stream(
    response: httpx2.Response, variable: str
) -> AsyncGenerator[ModelChunk, None]:
    framer = Framer(MAX_LINE_SIZE)
    async for data in response.aiter_bytes():
        for line in framer.feed(data):
            if line.startswith(b"data:"):
                payload = line[5:].strip()
                if payload == b"[DONE]":
                    return
                yield read_chunk(payload, variable=variable)
        if framer.overflowed:
            raise InvalidAnswer(f"a chunk of the response is larger than {MAX_LINE_SIZE} bytes")


def read_chunk(payload: bytes, *, variable: str) -> ModelChunk:
    """Decode one chunk. Raises `InvalidAnswer`, or the error that the chunk reports. `variable` is
    the API key variable, for the hint in that error."""
    try:
        chunk = msgspec.json.decode(payload)
    except UNDECODABLE as error:
        raise InvalidAnswer(f"a chunk of the response is not JSON: {error}") from error
    if not isinstance(chunk, dict):
        raise InvalidAnswer("a chunk of the response is not an object")
    if chunk.get("error"):
        raise from_stream(chunk, variable=variable)
    text = stop = ""
    choices = chunk.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        delta = choices[0].get("delta")
        if isinstance(delta, dict) and isinstance(delta.get("content"), str):
            text = delta["content"]
        reason = choices[0].get("finish_reason")
        stop = reason if isinstance(reason, str) else ""
    name = chunk.get("model")
    return ModelChunk(text, stop, name if isinstance(name, str) else "", _usage(chunk.get("usage")))


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    prompt = value.get("prompt_tokens_details")
    spoken = value.get("completion_tokens_details")
    return Usage(
        input_tokens=_count(value.get("prompt_tokens")),
        output_tokens=_count(value.get("completion_tokens")),
        thought_tokens=_count(spoken.get("reasoning_tokens")) if isinstance(spoken, dict) else None,
        cache_read_tokens=_count(prompt.get("cached_tokens")) if isinstance(prompt, dict) else None,
        total_tokens=_count(value.get("total_tokens")),
    )


def _count(value: Any) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and value >= 0 else None


async def _error_body(response: httpx2.Response) -> Any:
    kept = bytearray()
    async for data in response.aiter_bytes():
        kept += data
        if len(kept) > MAX_ERROR_SIZE:
            break
    try:
        return msgspec.json.decode(kept)
    except UNDECODABLE:
        return bytes(kept[:MAX_ERROR_SIZE]).decode("utf-8", "replace")
