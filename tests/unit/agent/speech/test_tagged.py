"""An agent that serves a client of the tagged dialect."""

from __future__ import annotations

from typing import Any

from dragoman.agent import Agent, Session, Turn
from tests.aio import aio
from tests.fixtures.documents import load
from tests.unit.agent.speech.client_of_document import DocumentClient, served
from tests.unit.rpc.other_side import until

EXAMPLES = load("tagged")


async def opened(client: DocumentClient) -> None:
    await client.play(EXAMPLES["initialize"])
    await client.play(EXAMPLES["new"])


def prompt(text: str, **more: Any) -> dict[str, Any]:
    return {"sessionId": "session-1", "prompt": [{"type": "text", "text": text}], **more}


@aio
async def test_the_documents_conversation_is_answered() -> None:
    async with served() as client:
        # Everything but `loadSession`: this agent loads nothing.
        hello = await client.play(EXAMPLES["initialize"])
        expected = EXAMPLES["initialized"].body
        assert hello["agentInfo"] == expected["agentInfo"]
        assert hello["protocolVersion"] == expected["protocolVersion"]
        prompts = expected["capabilities"]["promptCapabilities"]
        assert hello["capabilities"] == {"promptCapabilities": prompts}
        assert await client.play(EXAMPLES["new"]) == EXAMPLES["opened"].body
        assert await client.play(EXAMPLES["prompt"]) == {"stopReason": "endTurn"}
        text = "You said: Read the file and 1"
        update = {"type": "messageChunk", "role": "assistant", "chunk": text}
        assert client.told == [("session/update", {"sessionId": "session-1", "update": update})]


@aio
async def test_sessions_are_numbered_and_their_metadata_reaches_the_agent() -> None:
    agent = Agent("a")
    seen: list[Session] = []

    @agent.prompt
    async def answer(turn: Turn) -> None:
        pass

    @agent.new_session
    async def new(session: Session) -> None:
        seen.append(session)

    async with served(agent) as client:
        await opened(client)
        second = await client.call("session/new", {})
        assert second == {"session": {"id": "session-2"}}
    assert str(seen[0].cwd) == "/project"
    assert seen[0].meta == {"workDir": "/project", "branch": "feature/new-ui"}
    assert seen[1].cwd.is_absolute()


@aio
async def test_a_command_is_carried_out_and_an_unknown_one_ends_with_an_error() -> None:
    async with served() as client:
        await opened(client)
        assert await client.play(EXAMPLES["command"]) == {"stopReason": "endTurn"}
        assert client.told[-1][1]["update"]["chunk"] == "searching routers"
        unknown = prompt("x", command={"name": "dance"})
        assert await client.call("session/prompt", unknown) == {"stopReason": "error"}
        reason = "There is no command /dance. The commands are: /search."
        assert client.told[-1][1]["update"] == {
            "type": "messageChunk",
            "role": "assistant",
            "chunk": reason,
        }


@aio
async def test_a_sentence_that_a_client_took_for_a_command_is_a_prompt() -> None:
    async with served() as client:
        await opened(client)
        sentence = prompt("/etc is broken", command={"name": "etc", "input": "is broken"})
        assert await client.call("session/prompt", sentence) == {"stopReason": "endTurn"}
        assert client.told[-1][1]["update"]["chunk"] == "You said: /etc is broken"
        mistyped = prompt("/serch it", command={"name": "serch", "input": "it"})
        assert await client.call("session/prompt", mistyped) == {"stopReason": "error"}
        assert "no command /serch" in client.told[-1][1]["update"]["chunk"]


@aio
async def test_a_command_that_is_also_the_prompts_text_is_there_once() -> None:
    agent = Agent("a")
    seen: list[int] = []

    @agent.prompt
    async def answer(turn: Turn) -> None: ...

    @agent.command("count", "Count")
    async def count(turn: Turn, input: str) -> None:
        seen.append(len(turn.prompt))

    async with served(agent) as client:
        await opened(client)
        command = {"name": "count", "input": "me"}
        await client.call("session/prompt", prompt("/count me", command=command))
        await client.call("session/prompt", prompt("other", command=command))
    assert seen == [1, 2]


@aio
async def test_a_failing_handler_ends_with_an_error() -> None:
    async with served() as client:
        await opened(client)
        for text in ("fail", "refuse", "long"):
            assert await client.call("session/prompt", prompt(text)) == {"stopReason": "error"}
        assert "secret" not in str(client.heard)


@aio
async def test_a_cancel_is_answered_at_once_and_the_prompt_as_cancelled() -> None:
    async with served() as client:
        await opened(client)
        id = client.send("session/prompt", prompt("wait"))
        await until(lambda: bool(client.told))
        assert await client.call("session/cancel", {"sessionId": "session-1"}) == {}
        assert (await client.answered(id))["result"] == EXAMPLES["cancelled"].body
        assert await client.call("session/cancel", {"sessionId": "session-9"}) == {}


@aio
async def test_a_cancel_right_behind_its_prompt_is_not_lost() -> None:
    async with served() as client:
        await opened(client)
        client.say(
            {"jsonrpc": "2.0", "id": 50, "method": "session/prompt", "params": prompt("wait")},
            {**EXAMPLES["cancel"].message, "id": 51},
        )
        assert (await client.answered(50))["result"] == {"stopReason": "cancelled"}
        assert (await client.answered(51))["result"] == EXAMPLES["cancel_answer"].body


@aio
async def test_thoughts_plans_and_tools_travel_as_far_as_the_dialect_has_words() -> None:
    async with served() as client:
        await opened(client)
        await client.call("session/prompt", prompt("tools"))
        updates = [params["update"] for _, params in client.told]
        assert updates[0] == {"type": "messageChunk", "role": "thought", "chunk": "hm"}
        assert updates[1] == {"type": "planUpdate", "chunk": "- [ ] Look\n- [ ] Edit"}
        calls = [u["toolCall"] for u in updates if u["type"] == "toolCall"]
        assert calls[0]["status"] == "running" and calls[0]["input"] == '{"path":"c"}'
        assert calls[-1]["status"] == "completed" and calls[-1]["output"] == "done"


@aio
async def test_the_documents_error_code_for_a_method_that_does_not_exist() -> None:
    async with served() as client:
        await opened(client)
        error = await client.refused("session/nothing", {})
        assert error["code"] == EXAMPLES["not_found"].message["error"]["code"]


@aio
async def test_the_handler_of_an_agent_without_commands_switches_on_them_itself() -> None:
    agent = Agent("a")
    seen: list[Any] = []

    @agent.prompt
    async def answer(turn: Turn) -> None:
        command = turn.command
        seen.append(None if command is None else (command.name, command.input))

    async with served(agent) as client:
        await opened(client)
        await client.call("session/prompt", EXAMPLES["command"].body)
        await client.call("session/prompt", EXAMPLES["command_fix"].body)
        other = prompt("and now", command={"name": "search", "input": "x"})
        await client.call("session/prompt", other)
        await client.call("session/prompt", EXAMPLES["prompt"].body)
    assert seen == [("search", "routers"), ("fix", ""), ("search", "x"), None]


@aio
async def test_the_author_sees_the_name_and_the_version_of_the_client() -> None:
    agent = Agent("a")
    seen: list[Any] = []

    @agent.prompt
    async def answer(turn: Turn) -> None:
        seen.append(turn.session.client.client_info)

    async with served(agent) as client:
        await opened(client)
        await client.play(EXAMPLES["prompt"])
    assert (seen[0].name, seen[0].version) == ("my-editor", "1.0.0")


@aio
async def test_only_the_agents_versions_are_accepted() -> None:
    agent = Agent("a", versions=["1", "1.1"])

    @agent.prompt
    async def answer(turn: Turn) -> None: ...

    hello = EXAMPLES["initialize"].body
    async with served(agent) as client:
        error = await client.refused("initialize", {**hello, "protocolVersion": "9.9-nonsense"})
        assert error["code"] == -32602
        assert error["message"] == "unsupported protocol version '9.9-nonsense'"
        assert error["data"] == {"supported": ["1", "1.1"]}
        new = EXAMPLES["new"]
        assert (await client.refused(new.method, new.body))["code"] == -32600
        answered = await client.call("initialize", {**hello, "protocolVersion": "1.1"})
        assert answered["protocolVersion"] == "1.1"
        assert (await client.play(EXAMPLES["new"]))["session"]["id"] == "session-1"


@aio
async def test_an_agent_that_loads_sessions_says_so_and_does() -> None:
    agent = Agent("a")
    seen: list[Session] = []

    @agent.prompt
    async def answer(turn: Turn) -> None:
        await turn.say(f"in {turn.session.id}")

    @agent.load_session
    async def load_session(session: Session, replay: Turn) -> None:
        seen.append(session)
        await replay.echo("Does it build?")
        await replay.say("It builds.")

    async with served(agent) as client:
        hello = await client.play(EXAMPLES["initialize"])
        assert hello["capabilities"]["loadSession"] is True
        metadata = {"workDir": "/project"}
        body = {"sessionId": "session-9", "metadata": metadata}
        loaded = await client.call("session/load", body)
        assert loaded == {"session": {"id": "session-9", "metadata": metadata}}
        updates = [params["update"] for _, params in client.told]
        assert [(each["role"], each["chunk"]) for each in updates] == [
            ("user", "Does it build?"),
            ("assistant", "It builds."),
        ]
        text = {"sessionId": "session-9", "prompt": [{"type": "text", "text": "hi"}]}
        assert await client.call("session/prompt", text) == {"stopReason": "endTurn"}
        assert client.told[-1][1]["update"]["chunk"] == "in session-9"
    assert str(seen[0].cwd) == "/project"
    assert seen[0].meta == metadata
