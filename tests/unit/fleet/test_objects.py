"""Objects: stored in chunks, read back, and rejected if they are not what was stored."""

from __future__ import annotations

import pytest
from msgspec import structs

from dragoman.errors import FleetError, FleetUnreachable, UsageError
from dragoman.fleet import objects
from dragoman.fleet.objects import get_object, put_object
from tests.aio import aio
from tests.unit.fleet.fakes import MemoryConnection


@aio
async def test_an_object_of_many_chunks_is_read_back_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(objects, "CHUNK_SIZE", 10)
    memory = MemoryConnection()
    data = bytes(range(256)) * 3
    ref = await put_object(memory.as_connection(), data)
    assert (ref.owner, ref.chunks, ref.size) == ("w1", 77, 768)
    assert await get_object(memory.as_connection(), ref) == data


@aio
async def test_an_empty_object_has_one_chunk() -> None:
    memory = MemoryConnection()
    ref = await put_object(memory.as_connection(), b"")
    assert ref.chunks == 1
    assert await get_object(memory.as_connection(), ref) == b""


@aio
async def test_reading_a_missing_or_changed_object_is_an_error() -> None:
    memory = MemoryConnection()
    ref = await put_object(memory.as_connection(), b"data")
    with pytest.raises(FleetError, match="damaged"):
        await get_object(memory.as_connection(), structs.replace(ref, key="0" * 64))
    with pytest.raises(FleetError, match="damaged"):
        await get_object(memory.as_connection(), structs.replace(ref, size=5))
    with pytest.raises(FleetError, match="expired"):
        await get_object(memory.as_connection(), structs.replace(ref, id="0" * 32))
    with pytest.raises(FleetError, match="larger"):
        await get_object(memory.as_connection(), structs.replace(ref, chunks=10**9))


@aio
async def test_an_object_that_may_be_stored_has_had_no_effect() -> None:
    memory = MemoryConnection()
    memory.fail = FleetUnreachable("gone", may_have_run=True)
    with pytest.raises(FleetUnreachable) as caught:
        await put_object(memory.as_connection(), b"data")
    assert not caught.value.may_have_run


@aio
async def test_no_chunk_can_be_read_without_the_reference() -> None:
    memory = MemoryConnection()
    await put_object(memory.as_connection(), b"secret of the submitter")
    assert b"secret" not in memory.messages[0].data


@aio
@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "*"},
        {"id": "0" * 31 + "."},
        {"owner": "*"},
        {"owner": "a.b"},
        {"id": "x 0\r\nPUB result.w1.f1.1 2\r\n{}\r\n"},
        {"key": ""},
    ],
)
async def test_an_invalid_reference_is_rejected(
    wrong: dict[str, str],
) -> None:
    memory = MemoryConnection()
    ref = await put_object(memory.as_connection(), b"data")
    with pytest.raises(FleetError, match="invalid object reference"):
        await get_object(memory.as_connection(), structs.replace(ref, **wrong))


@aio
async def test_an_object_that_is_too_large_is_rejected_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(objects, "MAX_OBJECT_SIZE", 3)
    memory = MemoryConnection()
    with pytest.raises(UsageError, match="too large for a fleet"):
        await put_object(memory.as_connection(), b"data")
    assert memory.messages == []
