"""The part of HTTP/1.1 that agents need from a model, on asyncio's streams.

Reads requests and writes responses; `server` interprets them. For loopback and tests: no TLS, no
compressed responses, and sizes are limited.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

MAX_HEAD_SIZE: Final = 64 * 1024
MAX_BODY_SIZE: Final = 64 * 1024 * 1024
"""Maximum size of a request body, in bytes. Agents send their whole history each time; this is far
above the largest seen."""


class BadRequest(Exception):
    """Raised for an invalid request. Never leaves this package."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """One request."""

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers by lower-case name."""
    body: bytes = b""
    keep_alive: bool = True

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]


async def read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Request | None:
    """Return the next request, or None at the end of the connection. Raises `BadRequest` if it is
    invalid or too large."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError as error:
        raise BadRequest(431, "the head of the request is too long") from error
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequest(400, "the first line is not that of an HTTP/1 request")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = _unpacked(await _read_body(reader, headers), headers.get("content-encoding", ""))
    keep = words[2] == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    return Request(words[0], words[1], headers, body, keep)


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _read_chunks(reader)
    length = headers.get("content-length", "0")
    if not length.isdecimal():
        raise BadRequest(400, "the length of the body is not a number")
    if int(length) > MAX_BODY_SIZE:
        raise BadRequest(413, "the body is too long")
    return await reader.readexactly(int(length))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        line = await reader.readuntil(b"\r\n")
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError as error:
            raise BadRequest(400, "the length of a chunk is not a number") from error
        if size < 0 or len(body) + size > MAX_BODY_SIZE:
            raise BadRequest(413, "the body is too long")
        if size == 0:
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return bytes(body)
        body += await reader.readexactly(size)
        await reader.readexactly(2)


def _unpacked(body: bytes, encoding: str) -> bytes:
    match encoding.lower():
        case "" | "identity":
            return body
        case "gzip" | "deflate":
            # 32: accept both kinds of header.
            unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
            try:
                plain = unpack.decompress(body, MAX_BODY_SIZE)
            except zlib.error as error:
                raise BadRequest(400, f"the body is not compressed as declared: {error}") from error
            if not unpack.eof:
                raise BadRequest(400, "the compressed body is truncated or too long")
            return plain
        case _:
            raise BadRequest(415, f"unsupported content encoding: {encoding}")


def write_json(
    writer: asyncio.StreamWriter,
    value: Any,
    status: int = 200,
    *,
    keep_alive: bool = True,
    with_body: bool = True,
) -> None:
    """Write a complete response, or only its head without `with_body`, as for a HEAD request."""
    body = json.dumps(value).encode()
    extra = {"content-length": str(len(body))}
    _write_head(writer, status, "application/json", extra, keep_alive=keep_alive)
    if with_body:
        writer.write(body)


def begin_stream(writer: asyncio.StreamWriter, *, keep_alive: bool) -> None:
    """Write the head of a streamed response."""
    extra = {"transfer-encoding": "chunked", "cache-control": "no-cache"}
    _write_head(writer, 200, "text/event-stream", extra, keep_alive=keep_alive)


def write_piece(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


def end_stream(writer: asyncio.StreamWriter) -> None:
    writer.write(b"0\r\n\r\n")


def _write_head(
    writer: asyncio.StreamWriter,
    status: int,
    kind: str,
    extra: Mapping[str, str],
    *,
    keep_alive: bool,
) -> None:
    try:
        reason = HTTPStatus(status).phrase
    except ValueError:
        reason = "Fake"
    fields = {
        "content-type": kind,
        "connection": "keep-alive" if keep_alive else "close",
        **extra,
    }
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in fields.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
