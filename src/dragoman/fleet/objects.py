"""Objects of a fleet: bundles, patches and large results, stored as chunks in a stream.

Each chunk has its own subject, which only its owner may write to, and only once. Chunks are
encrypted, because a member can use wildcards to read chunks without knowing their ids. The key is
in the reference. The NATS object store cannot be restricted like that: a member that can write one
object of a bucket can replace all of them.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dragoman.errors import FleetError, UsageError
from dragoman.fleet import subjects
from dragoman.fleet.connection import FleetConnection
from dragoman.fleet.records import ObjectRef
from dragoman.rpc.tasks import together

CHUNK_SIZE: Final = 512 * 1024
"""Size of a chunk, in bytes: half of the server's message limit."""

AT_ONCE: Final = 8
"""Maximum number of chunks in flight."""

READS: Final = 5
READ_INTERVAL: Final = 0.5
"""Number of tries, and seconds between them, to read a missing chunk: a server in a cluster may not
have it yet."""

MAX_OBJECT_SIZE: Final = 512 * 1024 * 1024

_ID: Final = re.compile(r"[0-9a-f]{32}")
_KEY: Final = re.compile(r"[0-9a-f]{64}")
_NONCE_SIZE: Final = 12


async def put_object(
    connection: FleetConnection, data: bytes, *, timeout: float = 60.0
) -> ObjectRef:
    """Store bytes as an object. `timeout` is for each chunk. Raises `FleetFull` if the server has
    no room, `FleetUnreachable` if it does not answer, and `UsageError` if the object is too
    large."""
    if len(data) > MAX_OBJECT_SIZE:
        raise UsageError(
            f"{len(data) // 1024**2} MiB is too large for a fleet: "
            f"the limit is {MAX_OBJECT_SIZE // 1024**2} MiB"
        )
    object_id, key = secrets.token_hex(16), secrets.token_bytes(32)
    cipher = AESGCM(key)
    parts = [data[at : at + CHUNK_SIZE] for at in range(0, len(data), CHUNK_SIZE)] or [b""]

    async def put(index: int) -> None:
        await connection.store(
            subjects.chunk(connection.name, object_id, index),
            cipher.encrypt(_nonce(index), parts[index], None),
            timeout=timeout,
        )

    try:
        for start in range(0, len(parts), AT_ONCE):
            await together(*(put(index) for index in _some(start, len(parts))))
    except FleetError as error:
        # Chunks that may be stored have no effect: nothing refers to them.
        error.may_have_run = False
        raise
    return ObjectRef(
        owner=connection.name,
        id=object_id,
        chunks=len(parts),
        size=len(data),
        key=key.hex(),
    )


async def get_object(connection: FleetConnection, ref: ObjectRef) -> bytes:
    """Read an object. Raises `FleetError` if it is damaged or no longer on the server."""
    if not (subjects.is_name(ref.owner) and _ID.fullmatch(ref.id) and _KEY.fullmatch(ref.key)):
        # The reference comes from another member, and its parts are used in a subject.
        raise FleetError("invalid object reference")
    if ref.size > MAX_OBJECT_SIZE or not 0 < ref.chunks <= MAX_OBJECT_SIZE // CHUNK_SIZE + 1:
        raise FleetError("the stored object has an invalid size, or is larger than a fleet allows")

    cipher = AESGCM(bytes.fromhex(ref.key))

    async def get(index: int) -> bytes:
        subject = subjects.chunk(ref.owner, ref.id, index)
        for again in range(READS):
            if again:
                await asyncio.sleep(READ_INTERVAL)
            found = await connection.last(subjects.OBJECTS, subject)
            if found is not None:
                return cipher.decrypt(_nonce(index), found.data, None)
        raise FleetError(
            "a stored file or result is no longer on the fleet's server: it has expired"
        )

    parts: list[bytes] = []
    try:
        for start in range(0, ref.chunks, AT_ONCE):
            parts += await together(*(get(index) for index in _some(start, ref.chunks)))
    except InvalidTag as error:
        raise FleetError("a stored file or result is damaged, or its key is wrong") from error
    data = b"".join(parts)
    if len(data) != ref.size:
        raise FleetError("a stored file or result is damaged: wrong size")
    return data


def _nonce(index: int) -> bytes:
    """Return the nonce of a chunk: its number, which is unique because each object has its own
    key."""
    return index.to_bytes(_NONCE_SIZE, "big")


def _some(start: int, count: int) -> Sequence[int]:
    return range(start, min(start + AT_ONCE, count))
