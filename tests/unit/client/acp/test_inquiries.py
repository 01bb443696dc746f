"""Questions of an ACP agent to its user, answered by whoever answers all agents."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.client.acp.inquiries import elicit_by, inquiry_of, reply_of, response_of
from dragoman.client.acp.options import ClientOptions
from dragoman.client.acp.peer import open_peer
from dragoman.client.inquiries import CANCELLED, DECLINED, Inquiry, Reply
from dragoman.dialects.acp import v1 as acp
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.unit.client.acp.agent_side import CWD, AgentSide
from tests.unit.rpc.other_side import soon

SCHEMA = acp.ElicitationSchema(properties={"x": acp.StringPropertySchema(title="X")})
FORM = acp.ElicitationForm(
    message="Well?", session_id="s", tool_call_id="t", requested_schema=SCHEMA
)
PAGE = acp.ElicitationUrl(message="Go", session_id="s", elicitation_id="p", url="https://x")


def test_a_form_is_a_json_schema_and_a_page_an_address() -> None:
    form = inquiry_of(FORM)
    assert (form.session_id, form.message, form.tool_call_id) == ("s", "Well?", "t")
    assert form.schema == {
        "type": "object",
        "properties": {"x": {"type": "string", "title": "X"}},
    }
    assert form.native is FORM
    page = inquiry_of(PAGE)
    assert (page.url, page.page_id, page.schema) == ("https://x", "p", None)


@pytest.mark.parametrize("reply", [Reply("accept", {"x": "y"}), DECLINED, CANCELLED])
def test_a_reply_survives_the_way_to_the_agent(reply: Reply) -> None:
    assert reply_of(response_of(reply)) == reply


def test_an_unknown_action_is_not_consent() -> None:
    assert reply_of(acp.UnknownElicitationAction({"action": "maybe"})) == DECLINED


@aio
async def test_the_callback_may_be_plain_or_async() -> None:
    async def later(inquiry: Inquiry) -> Reply:
        return Reply("accept", {"x": inquiry.message})

    assert await elicit_by(later)(FORM) == acp.ElicitationAccepted(content={"x": "Well?"})
    assert await elicit_by(lambda inquiry: CANCELLED)(PAGE) == acp.ElicitationCancelled()
    unknown = acp.UnknownElicitation({"mode": "dance"})
    assert await elicit_by(later)(unknown) == acp.ElicitationDeclined()


@pytest.mark.parametrize("visits", [True, False])
@aio
async def test_the_options_of_a_connection_say_who_answers(visits: bool) -> None:
    ours, theirs = memory_pair()
    agent = AgentSide(theirs)
    theirs.start(agent)
    options = ClientOptions(inquire=lambda inquiry: DECLINED, visits=visits)
    async with await soon(open_peer(ours, CWD, options)) as peer:
        hello = agent.heard[0]["params"]["clientCapabilities"]["elicitation"]
        assert hello == ({"form": {}, "url": {}} if visits else {"form": {}})
        async with peer.session():
            question: dict[str, Any] = {"mode": "form", "sessionId": "s1", "message": "m"}
            question["requestedSchema"] = {"type": "object", "properties": {}}
            agent.ask("a", "elicitation/create", question)
            assert (await soon(agent.heard_answer("a")))["result"] == {"action": "decline"}
            peer.inquire_with(lambda inquiry: Reply("accept", {}))
            agent.ask("b", "elicitation/create", question)
            answer = await soon(agent.heard_answer("b"))
            assert answer["result"] == {"action": "accept", "content": {}}
    await theirs.aclose()
