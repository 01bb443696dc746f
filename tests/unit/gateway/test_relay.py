"""Updates and requests from an agent find their way by the id of their session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import Raw

from dragoman.client import early_messages
from dragoman.client.acp.options import ClientOptions
from dragoman.dialects.acp import v1 as acp
from dragoman.gateway.relay import HERE, Route, Upstream, decoded
from dragoman.wire.messages import Notification, Request
from tests.aio import aio
from tests.unit.client.acp.agent_side import CWD, driven
from tests.unit.rpc.other_side import turns, until


class Owner(Route):
    """Has a session, and keeps what comes for it."""

    def __init__(self, answer: Any = HERE) -> None:
        self.updates: list[bytes] = []
        self.requests: list[str] = []
        self._answer = answer

    def update(self, notification: Notification) -> None:
        self.updates.append(notification.line)

    def request(self, request: Request) -> Any:
        self.requests.append(request.method)
        return self._answer


@aio
async def test_updates_go_to_the_owner_of_the_session_and_the_rest_to_the_client() -> None:
    noises: list[Any] = []
    async with driven(ClientOptions(on_noise=noises.append)) as (client, agent):
        upstream = Upstream(client)
        owner = Owner()
        upstream.route("s1", owner)
        agent.update({"sessionUpdate": "a"}, {"sessionUpdate": "b"})
        agent.update({"sessionUpdate": "c"}, session_id="s2")
        await until(lambda: len(noises) == 1)
        assert [b'"a"' in owner.updates[0], b'"b"' in owner.updates[1]] == [True, True]
        upstream.forget("s1", owner)
        assert "s1" not in upstream
        agent.update({"sessionUpdate": "d"})
        await until(lambda: len(noises) == 2)
        assert len(owner.updates) == 2


@aio
async def test_only_its_owner_forgets_a_session() -> None:
    async with driven() as (client, agent):
        upstream = Upstream(client)
        before, owner = Owner(), Owner()
        upstream.route("s1", before)
        upstream.route("s1", owner)
        upstream.forget("s1", before)
        agent.update({"sessionUpdate": "a"})
        await until(lambda: len(owner.updates) == 1)
        assert before.updates == []


def compact(session_id: str, *texts: str) -> bytes:
    """Updates as agents spell them, without spaces."""
    begin = f'{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session_id}",'
    return "".join(f'{begin}"update":{{"sessionUpdate":"{text}"}}}}}}\n' for text in texts).encode()


@aio
async def test_updates_of_one_session_that_come_together_are_handed_over_together() -> None:
    batches: list[int] = []

    class Batch(Owner):
        def update_all(self, notifications: Sequence[Notification]) -> None:
            batches.append(len(notifications))
            super().update_all(notifications)

    async with driven() as (client, agent):
        upstream = Upstream(client)
        owner, other = Batch(), Batch()
        upstream.route("s1", owner)
        upstream.route("s2", other)
        agent.raw(compact("s1", "first"))
        await until(lambda: len(owner.updates) == 1)
        agent.raw(
            b"".join(compact("s1", f"u{number}") for number in range(5))
            + compact("s2", "x", "y")
            + compact("s1", "last")
        )
        await until(lambda: len(owner.updates) == 7)
        assert batches == [5], "those that begin like the first"
        texts = [b"first", *(b"u%d" % number for number in range(5)), b"last"]
        assert [text in line for text, line in zip(texts, owner.updates, strict=True)] == [True] * 7
        assert len(other.updates) == 2


@aio
async def test_what_comes_before_its_session_is_known_is_kept_for_it() -> None:
    noises: list[Any] = []
    async with driven(ClientOptions(on_noise=noises.append)) as (client, agent):
        upstream = Upstream(client)
        owner = Owner()
        del agent.replies["session/new"]
        upstream.open("session/new", {}, lambda result, error: upstream.route("s1", owner))
        asked = await agent.expect("session/new")
        agent.update({"sessionUpdate": "a"})
        agent.update({"sessionUpdate": "b"}, session_id="s2")
        agent.answer(asked, {"sessionId": "s1"})
        await until(lambda: len(noises) == 1)
        assert len(owner.updates) == 1


@aio
async def test_only_so_many_bytes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_messages, "MAX_EARLY_SIZE", 300)
    async with driven() as (client, agent):
        upstream = Upstream(client)
        owner = Owner()
        del agent.replies["session/new"]
        upstream.open("session/new", {}, lambda result, error: upstream.route("s1", owner))
        asked = await agent.expect("session/new")
        agent.update({"sessionUpdate": "a", "x": "x" * 90})
        agent.update({"sessionUpdate": "b", "x": "x" * 290})
        agent.answer(asked, {"sessionId": "s1"})
        await until(lambda: "s1" in upstream)
        await turns()
        assert len(owner.updates) == 1


@aio
async def test_a_request_is_its_owners_or_is_served_by_the_client() -> None:
    async with driven() as (client, agent):
        upstream = Upstream(client)
        mine = Owner({"outcome": {"outcome": "cancelled"}})
        left = Owner(HERE)
        upstream.route("s1", mine)
        upstream.route("s2", left)
        client.shelter("s2", CWD)
        agent.ask("q1", "session/request_permission", agent.permission())
        assert (await agent.heard_answer("q1"))["result"]["outcome"]["outcome"] == "cancelled"
        agent.ask("q2", "session/request_permission", agent.permission(session_id="s2"))
        # The client's own rule is to refuse.
        assert (await agent.heard_answer("q2"))["result"]["outcome"]["optionId"] == "cancel"
        assert (mine.requests, left.requests) == (
            ["session/request_permission"],
            ["session/request_permission"],
        )
        agent.ask("q3", "_no/such", {"sessionId": "s9"})
        assert (await agent.heard_answer("q3"))["error"]["code"] == -32601


@aio
async def test_a_request_that_cannot_be_sent_leaves_nothing_expected() -> None:
    async with driven() as (client, agent):
        upstream = Upstream(client)
        await client.aclose()
        with pytest.raises(Exception, match="closed"):
            upstream.open("session/new", {}, lambda result, error: None)
        assert not upstream._early.keep("s1", Notification("m", Raw(b"{}"), b"{}"), 2)
        assert agent.told("session/new") == []


@aio
async def test_a_client_that_has_disconnected_is_not_notified_of_a_page() -> None:
    async with driven(ClientOptions()) as (client, _), driven(ClientOptions()) as (other, _):
        upstream = Upstream(client)
        upstream.pages = {"one": client.connection, "two": other.connection}
        upstream.left(client.connection)
        upstream.left(client.connection)
        assert upstream.pages == {"two": other.connection}


def test_invalid_params_of_a_notification_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def cancel(params: bytes) -> acp.CancelRequestNotification | None:
        sent = Notification("$/cancel_request", Raw(params), b"")
        return decoded(sent, acp.CancelRequestNotification)

    assert cancel(b'{"requestId":7}') == acp.CancelRequestNotification(request_id=7)
    assert not caplog.records
    assert cancel(b'{"requestId":{}}') is None
    assert "a $/cancel_request could not be decoded" in caplog.text
