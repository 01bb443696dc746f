"""Joining by a code: one coordinator answers, the one that knows the code."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from dragoman.broker.error_codec import revive
from dragoman.errors import FleetError
from dragoman.fleet import join_requests
from dragoman.fleet.credentials import JoinReply, JoinRequest, decode_code
from dragoman.fleet.join_requests import JoinRequests
from dragoman.fleet.nkeys import new_key
from dragoman.fleet.records import decode, encode
from dragoman.fleet.team import FleetFolder, new_team
from dragoman.fleet.tokens import read_token
from tests.aio import aio
from tests.unit.fleet.fakes import MemoryConnection


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_requests, "UNKNOWN_DELAY", 0.0)


@pytest.fixture
def folder(tmp_path: Path) -> FleetFolder:
    folder = FleetFolder(tmp_path / "fleet")
    keys = folder.prepare().with_team(new_team("team"))
    folder.change(structs.replace(keys, urls=("nats://127.0.0.1:4222",)))
    return folder


async def replies(folder: Any, code_id: str, *, leads: bool, public: str = "") -> list[JoinReply]:
    """What a coordinator answers to a request, with a new key unless one is given."""
    memory = MemoryConnection()
    desk = JoinRequests(memory.as_connection(), folder, team="team", leads=lambda: leads)
    data = encode(JoinRequest(public=public or new_key("user").public))
    message: Any = SimpleNamespace(subject=f"join.{code_id}", data=data, reply="_INBOX_x.y")
    await desk.on_request(message)
    return [decode(one, JoinReply) for one in memory.replies]


@aio
@pytest.mark.parametrize("leads", [True, False])
async def test_a_coordinator_that_knows_the_code_admits_the_machine_once(
    folder: FleetFolder, leads: bool
) -> None:
    code = decode_code(folder.invite("worker", "w1", team=None, now=100))
    (reply,) = await replies(folder, code.id, leads=leads)
    assert read_token(reply.token)["name"] == "w1"
    again = await replies(folder, code.id, leads=leads)
    # Only the leader says so: the others do not know whether another one knows the code.
    assert ["already used" in one.error for one in again] == ([True] if leads else [])


@aio
async def test_a_machine_that_asks_again_gets_its_token_again(folder: FleetFolder) -> None:
    code = decode_code(folder.invite("worker", "w1", team=None, now=100))
    public = new_key("user").public
    for leads in (True, False):
        (reply,) = await replies(folder, code.id, leads=leads, public=public)
        assert read_token(reply.token)["sub"] == public


@aio
@pytest.mark.parametrize("same", [True, False])
async def test_two_coordinators_with_one_directory_admit_one_machine(
    folder: FleetFolder, same: bool
) -> None:
    code = decode_code(folder.invite("worker", "w1", team=None, now=100))

    class Late(FleetFolder):
        """The directory of a coordinator that is overtaken by the other one."""

        def admit(self, code_id: str, public: str, **more: Any) -> str:
            folder.admit(code_id, public if same else new_key("user").public, **more)
            return super().admit(code_id, public, **more)

    (reply,) = await replies(Late(folder.path), code.id, leads=False)
    assert bool(reply.token) is same and ("already used" in reply.error) is not same


@aio
async def test_a_machine_gets_an_answer_if_the_keys_cannot_be_written(folder: FleetFolder) -> None:
    def admit(*args: object, **more: object) -> str:
        raise PermissionError(13, "no access", "fleet.json")

    broken = SimpleNamespace(file=folder.file, expects=lambda *args, **more: True, admit=admit)
    (reply,) = await replies(broken, "join-1", leads=True)
    failure = revive(reply.failure)
    assert type(failure) is FleetError and "no access" in str(failure) == reply.error


@aio
async def test_a_request_without_a_place_for_the_answer_uses_no_code(folder: FleetFolder) -> None:
    code = decode_code(folder.invite("worker", "w1", team=None, now=100))
    memory = MemoryConnection()
    desk = JoinRequests(memory.as_connection(), folder, team="team", leads=lambda: True)
    message: Any = SimpleNamespace(subject=f"join.{code.id}", data=b"{}", reply="")
    await desk.on_request(message)
    assert folder.expects(code.id, new_key("user").public, team="team")
