"""Handlers that know no method refuse requests and drop the rest."""

from __future__ import annotations

import pytest
from msgspec import Raw

from dragoman.errors import RemoteError
from dragoman.rpc.handlers import Ignore
from dragoman.wire import codes
from dragoman.wire.messages import Notification, Request
from dragoman.wire.peer import Noise
from tests.aio import aio
from tests.unit.rpc.other_side import talk


def test_whoever_knows_no_method_refuses_each_by_its_name() -> None:
    handlers = Ignore()
    with pytest.raises(RemoteError) as refused:
        handlers.request(Request(1, "dance", Raw(b"{}"), b""))
    assert refused.value.code == codes.METHOD_NOT_FOUND
    assert refused.value.data == {"method": "dance"}
    handlers.notification(Notification("dance", Raw(b"{}"), b""))
    handlers.noise(Noise(b"?", "not JSON"))


@aio
async def test_a_connection_without_handlers_refuses_what_it_is_asked() -> None:
    async with talk() as (_, other):
        other.say({"method": "news"}, {"id": 1, "method": "dance"})
        assert (await other.next())["error"]["code"] == codes.METHOD_NOT_FOUND
