"""Every example of the five documents, at both ends, as it is written.

Our client is fed each line of an agent and sends each line of a client; our agent is fed each line
of a client. What our agent says is compared with the examples in tests/unit/agent/speech, and that
every shape is written as it was read, in tests/unit/dialects. An example that stands nowhere here
fails: none is left out by accident.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dragoman.client.legacy import DIALECTS, DocumentOptions
from dragoman.dialects.legacy import tagged
from dragoman.dialects.legacy.base import SessionOptions
from dragoman.dialects.legacy.keyed import shapes as keyed
from dragoman.events import model
from dragoman.events.parts import Audio, Block, Image, Link, Resource, Text
from tests.aio import aio
from tests.fixtures.documents import Example, load
from tests.property.talks import DocumentTalk
from tests.unit.agent.speech.client_of_document import DocumentClient, served
from tests.unit.client.legacy.far_end import HELLOS

EVERY = [
    pytest.param(dialect, example, id=f"{dialect}-{name}")
    for dialect in sorted(DIALECTS)
    for name, example in load(dialect).items()
]


def those(*, sender: str, answers: bool) -> list[Any]:
    return [
        parameter
        for parameter in EVERY
        if parameter.values[1].sender == sender and parameter.values[1].is_answer is answers  # type: ignore[union-attr]
    ]


# -- our client reads what an agent says

MEANINGLESS = {"plan"}
"""An update of the tagged dialect that has a type and no field at all."""


@pytest.mark.parametrize(("dialect", "example"), those(sender="agent", answers=False))
@aio
async def test_our_client_reads_what_an_agent_sends(dialect: str, example: Example) -> None:
    with DocumentTalk(dialect, terminals=True) as talk:
        conversation = await talk.open([])
        async with conversation.prompt("go"):
            await talk.prompted()
            known = len(talk.events)
            talk.feed(example.line)
            read = talk.events[known:]
            assert read and read[0].raw == example.line
            unknown = [event for event in read if isinstance(event, model.Unknown)]
            meaningless = dialect == "tagged" and example.name in MEANINGLESS
            assert bool(unknown) is meaningless
            await talk.client.aclose()


@pytest.mark.parametrize(("dialect", "example"), those(sender="agent", answers=True))
@aio
async def test_our_client_reads_what_an_agent_answers(dialect: str, example: Example) -> None:
    """To whichever request: the handshake, a session, a list, a prompt, or a cancel."""
    body = {key: example.message[key] for key in ("result", "error") if key in example.message}
    method = example.method
    with DocumentTalk(dialect, handshake=method == "initialize") as talk:
        if method in OPENING and "result" in body:
            answer = body["result"]
            if example.name == "page":
                # There is no second page here.
                answer = {**answer, "nextOffset": None}
            opened = await talk.open([], load=OPENING[method], answers={method: answer})
            assert opened.id
        else:
            conversation = await talk.open([])
            async with conversation.prompt("go") as turn:
                id = await talk.prompted()
                if method == "session/cancel":
                    turn.cancel()
                    talk.feed(talk.answer(await talk.wire.asked(method), body))
                    body = {"result": {"stopReason": "cancelled"}}
                talk.feed(talk.answer(id, body))
                last = talk.last_word()
                if last is not None:
                    talk.feed(last)
                result = await turn.wait()
            assert ("error" in body) is (result.error is not None), result
        await talk.client.aclose()
        talk.check()


OPENING = {
    "initialize": None,
    "session/new": None,
    "session/load": "ses_1",
    "session/list": None,
    "session/create": None,
    "threadStart": None,
    "threadResume": "thread-abc123",
}
"""What is asked before a prompt, and the session that has to be loaded for it."""


# -- our client sends what a client sends


def sent(dialect: str) -> dict[str, tuple[str, Any]]:
    """What our client sends, under the names of the examples that it should equal."""
    options = DocumentOptions(
        name={"tagged": "my-editor", "keyed": "zed"}.get(dialect, "x"),
        title="Zed",
        version={"tagged": "1.0.0", "keyed": "0.200"}.get(dialect, ""),
        terminals=True,
        handshake=True,
    )
    end = DIALECTS[dialect](options)
    hello = end.hello()
    found: dict[str, Any] = {} if hello is None else {"initialize": hello}

    def opened(name: str, session_id: str | None = None, **wishes: Any) -> None:
        # The first thread comes with the handshake, so that another end has to ask for one.
        end = DIALECTS[dialect](DocumentOptions())
        found[name] = end.opening(session_id, SessionOptions("/project", **wishes))[0]

    match dialect:
        case "oneshot":
            found["prompt"] = end.prompting("", [Text("Research best React state libs")])[0]
        case "threads":
            opened("start")
            opened("resume", "thread-abc123")
            found["turn"] = end.prompting("thread-abc123", [Text("Execute the build command")])[0]
        case "tagged":
            opened("new", metadata={"branch": "feature/new-ui"})
            blocks: list[Block] = [
                Text("Read the file"),
                Image("aGk=", "image/png"),
                Audio("aGk=", "audio/wav"),
            ]
            found["prompt"] = end.prompting("session-1", blocks)[0]
            found["command"] = end.prompting("session-1", [Text("/search routers")])[0]
            found["command_fix"] = end.prompting("session-1", [Text("/fix")])[0]
            found["cancel"] = end.cancelling("session-1")
        case "keyed":
            _keyed(end, found, opened)
        case "chained":
            found["list"] = end.listing(None)[0]
            question = Text("What is the capital of France?")
            found["prompt"] = end.prompting("session-uuid-123", [question])[0]
            image: list[Block] = [Text("What is this?"), Image("aGk=", "image/png")]
            found["prompt_image"] = end.prompting("session-uuid-123", image)[0]
    return found


def _keyed(end: Any, found: dict[str, Any], opened: Any) -> None:
    servers = [
        {"type": "local", "command": "mcp-files", "args": ["--ro"], "environment": {"A": "1"}},
        {"type": "remote", "url": "https://mcp.example/", "headers": {"X-Team": "blue"}},
    ]
    opened("new", mode="plan", model="anthropic/large", mcp_servers=servers)
    opened("new_bare")
    opened("load", "ses_1")
    bare = [
        {"type": "local", "command": "mcp-files"},
        {"type": "remote", "url": "https://mcp.example/"},
    ]
    opened("load_servers", "ses_1", mcp_servers=bare)
    blocks = [
        Text("Fix the bug"),
        Image("aGk=", "image/png", "file:///a.png"),
        Audio("aGk=", "audio/wav"),
        Link("file:///b.py", "b.py", "text/x-python"),
        Resource("file:///c.py", "pass"),
    ]
    found["prompt"] = end.prompting("ses_1", blocks)[0]
    found["set_mode"] = end.setting_mode("ses_1", "code")
    found["cancel"] = end.cancelling("ses_1")
    found["password"] = (keyed.AUTHENTICATE, keyed.Authenticate("password", "open sesame"))
    found["oauth"] = (keyed.AUTHENTICATE, keyed.Authenticate("oauth", None, "a-token"))


ANOTHERS = {
    ("tagged", "initialize"): "files and terminals are offered by it, for which there is no method",
    ("tagged", "new_bare"): "our client always says where a session works",
    ("keyed", "initialize_bare"): "our client says more of itself",
    ("keyed", "prompt_more"): "our client has no annotations",
    ("chained", "create"): "our client always says where a session works",
    ("chained", "create_bare"): "our client always says where a session works",
    ("chained", "list_bare"): "our client always says which page it wants",
    ("chained", "prompt_bare"): "our client always says that it wants a stream",
}
"""Examples that only another client sends, and why."""


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_our_client_sends_what_the_document_shows(dialect: str) -> None:
    ours = sent(dialect)
    for name, example in load(dialect).items():
        if example.sender != "client" or example.is_answer or (dialect, name) in ANOTHERS:
            continue
        method, params = ours.pop(name)
        written = json.loads(msgspec.json.encode(params))
        assert (method, written) == (example.method, example.body), name
    assert set(ours) <= {name for other, name in ANOTHERS if other == dialect}


def test_the_client_of_the_tagged_dialect_differs_only_in_what_it_offers() -> None:
    _, ours = sent("tagged")["initialize"]
    written = json.loads(msgspec.json.encode(ours))
    assert {**load("tagged")["initialize"].body, "capabilities": {}} == written
    assert written["protocolVersion"] == tagged.VERSION


# -- our agent reads what a client sends


async def opened(client: DocumentClient, dialect: str) -> str:
    """A session to put into the examples: the ids of ours are our own."""
    examples = load(dialect)
    first = "initialize" if "initialize" in examples else "list"
    await client.play(examples[first])
    match dialect:
        case "threads":
            return str((await client.play(examples["start"]))["threadId"])
        case "tagged":
            return str((await client.play(examples["new"]))["session"]["id"])
        case "keyed":
            return str((await client.play(examples["new"]))["sessionId"])
        case "chained":
            return str((await client.play(examples["create"]))["sessionId"])
    return ""


@pytest.mark.parametrize(("dialect", "example"), those(sender="client", answers=False))
@aio
async def test_our_agent_reads_what_a_client_sends(dialect: str, example: Example) -> None:
    async with served() as client:
        session = await opened(client, dialect)
        body = dict(example.body)
        for key in ("sessionId", "threadId"):
            if key in body:
                body[key] = session
        if "id" not in example.message:
            client.say({"jsonrpc": "2.0", "method": example.method, "params": body})
            return
        answer = await client.answered(client.send(example.method, body))
        refusal = answer.get("error", {}).get("code")
        # It knows the method and its params; this agent loads nothing and logs nobody in.
        assert refusal not in (-32700, -32600)
        if example.name not in ("load", "load_servers", "password", "oauth", "resume"):
            assert refusal is None, answer


def test_our_agent_understands_every_answer_of_a_client() -> None:
    """Answers to what it asks, which only the keyed dialect can."""
    answers = {name for name, e in load("keyed").items() if e.sender == "client" and e.is_answer}
    shapes: dict[str, Any] = {
        "once": keyed.Decision,
        "always": keyed.Decision,
        "reject": keyed.Decision,
        "content": keyed.FileContent,
        "written": type(None),
        "terminal": keyed.Terminal,
        "output": keyed.TerminalOutput,
        "output_running": keyed.TerminalOutput,
        "output_killed": keyed.TerminalOutput,
        "exit": keyed.TerminalExit,
        "killed": keyed.TerminalExit,
    }
    assert set(shapes) == answers
    for name, shape in shapes.items():
        msgspec.json.decode(load("keyed")[name].raw, type=shape)


def test_every_beginning_of_a_conversation_is_an_example() -> None:
    for dialect, answers in HELLOS.items():
        bodies = [example.body for example in load(dialect).values()]
        assert all(answer in bodies for answer in answers.values())
