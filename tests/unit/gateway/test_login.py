"""Which login methods of a peer a client sees, and what is sent for them."""

from __future__ import annotations

import pytest

from dragoman.agent.speech.keyed import Login
from dragoman.client.acp.options import ClientOptions
from dragoman.client.acp.peer import AcpPeer, open_peer
from dragoman.errors import Unsupported
from dragoman.gateway import login
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.unit.client.acp.agent_side import CWD, AgentSide
from tests.unit.client.legacy.far_end import meet
from tests.unit.rpc.other_side import soon


def secret(method_id: str, password: str) -> Login:
    made = Login(method_id)
    made.password = password
    return made


@aio
async def test_methods_with_a_secret_are_for_clients_that_can_send_one() -> None:
    async with meet("keyed", {"authenticate": None}) as (peer, agent):
        assert login.methods(peer, secret=False) == ()
        shown = [method.id for method in login.methods(peer, secret=True)]
        assert shown == ["none", "password", "oauth"]
        await soon(login.authenticate(peer, secret("password", "open sesame")))
        assert agent.params("authenticate") == {"method": "password", "password": "open sesame"}


@aio
async def test_a_peer_of_acp_logs_in_by_itself_and_takes_no_secret() -> None:
    ours, theirs = memory_pair()
    agent = AgentSide(theirs)
    agent.replies["initialize"]["authMethods"] = [{"id": "browser", "name": "Browser"}]
    agent.replies["authenticate"] = {}
    theirs.start(agent)
    peer: AcpPeer = await soon(open_peer(ours, CWD, ClientOptions()))
    try:
        assert [method.id for method in login.methods(peer, secret=False)] == ["browser"]
        assert login.methods(peer, secret=True) == ()
        await soon(login.authenticate(peer, Login("browser")))
        assert agent.told("authenticate")[0]["methodId"] == "browser"
        with pytest.raises(Unsupported, match="takes no password"):
            await soon(login.authenticate(peer, secret("browser", "x")))
    finally:
        await peer.aclose()
        await theirs.aclose()
