"""ACP stays the agent kit's own language, whatever else it learnt."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.agent.speech.acp import AcpSpeech
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import InvalidAnswer
from tests.aio import aio
from tests.unit.agent.speech.client_of_document import served
from tests.unit.rpc.other_side import soon, talk

HELLO: dict[str, Any] = {"protocolVersion": 1, "clientCapabilities": {}}


@aio
async def test_a_client_of_acp_is_served_as_ever() -> None:
    async with served() as client:
        assert (await client.call("initialize", HELLO))["protocolVersion"] == 1
        session = await client.call("session/new", {"cwd": "/", "mcpServers": []})
        prompt = [{"type": "text", "text": "hi"}]
        asked = {"sessionId": session["sessionId"], "prompt": prompt}
        assert (await client.call("session/prompt", asked))["stopReason"] == "end_turn"
        assert client.told[-1][1]["update"]["content"]["text"] == "You said: hi"


@aio
async def test_an_update_is_a_notification_of_its_session() -> None:
    async with talk() as (connection, other):
        speech = AcpSpeech(connection)
        assert speech.update("s", acp.CurrentModeUpdate(current_mode_id="code")) is None
        message = await other.next()
        assert message["method"] == "session/update"
        assert message["params"]["sessionId"] == "s"
        assert message["params"]["update"]["currentModeId"] == "code"
        assert len(speech.new_id()) == 32


@aio
async def test_a_question_is_a_request_and_a_malformed_answer_has_a_name() -> None:
    async with talk() as (connection, other):
        speech = AcpSpeech(connection)
        params = acp.ReadTextFileRequest(session_id="s", path="/x")
        work = connection.tasks.start(speech.ask(acp.FS_READ_TEXT_FILE, params), "ask")
        request = await other.next()
        assert request["params"] == {"sessionId": "s", "path": "/x"}
        other.answer(request, {"content": "text"})
        assert (await soon(work)).content == "text"
        work = connection.tasks.start(speech.ask(acp.FS_READ_TEXT_FILE, params), "ask")
        other.answer(await other.next(), {"nothing": 1})
        with pytest.raises(InvalidAnswer):
            await soon(work)
