"""What a peer asks about a session: who answers it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.broker.server import peer_requests
from dragoman.broker.server.cancellation import Trigger
from dragoman.broker.server.jobs import Job
from dragoman.broker.server.live_session import LiveSession
from dragoman.broker.server.peer_requests import ELICITATION, PERMISSION
from dragoman.errors import CallCancelled, DragomanError, RemoteError
from dragoman.gateway.relay import HERE
from dragoman.policy import Policy, Rule
from dragoman.rpc import LATER, Call
from dragoman.wire.messages import Notification, Request
from tests.aio import aio
from tests.integration.broker_stage import Stage, TestCaller
from tests.unit.broker.near import NearAgent, Notes, called, dies, near, notice, standing

READ = "fs/read_text_file"
WRITE = "fs/write_text_file"
RUN = "terminal/create"


class Answers(LiveSession):
    """A session that notes what the peer is answered."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.answered: dict[Any, Any] = {}

    def answer(self, request: Request, result: Any) -> None:
        assert request.id not in self.answered, "a question is answered once"
        self.answered[request.id] = msgspec.json.decode(
            result if isinstance(result, Raw) else msgspec.json.encode(result)
        )

    def refuse(self, request: Request, code: int, message: str, data: Any = None) -> None:
        assert request.id not in self.answered, "a question is answered once"
        self.answered[request.id] = message


@asynccontextmanager
async def asking(
    tmp_path: Path, caller: Any = None, policy: Policy | str | None = None
) -> AsyncIterator[tuple[Answers, Notes]]:
    notes = Notes()
    async with near(NearAgent()) as far:
        live = Answers(notes, far, "s1", key="s-k", name=None, cwd=tmp_path, mcp_servers=Raw(b"[]"))
        live.job = Job("j-1", live, {}, caller=caller, policy=policy)  # type: ignore[arg-type]
        yield live, notes


def question(id: int = 1, method: str = PERMISSION, kind: str = "edit") -> Request:
    call = {"toolCallId": "t", "title": "It", "kind": kind, "locations": [{"path": "a"}]}
    params: dict[str, Any] = {
        "sessionId": "s1",
        "toolCall": call,
        "path": "/a",
        "options": [
            {"optionId": "y", "name": "Yes", "kind": "allow_once"},
            {"optionId": "n", "name": "No", "kind": "reject_once"},
        ],
    }
    raw = msgspec.json.encode(params)
    return Request(id, method, Raw(raw), raw)


@pytest.mark.parametrize(
    ("policy", "kind", "option"),
    [
        ("approve-all", "edit", "y"),
        ("approve-reads", "read", "y"),
        ("approve-reads", "edit", "n"),
        ("deny-all", "read", "n"),
        (None, "read", "n"),
    ],
)
@aio
async def test_without_a_caller_the_policy_decides_at_once(
    tmp_path: Path, policy: str | None, kind: str, option: str
) -> None:
    async with asking(tmp_path, policy=policy) as (live, notes):
        answer = live.request(question(kind=kind))
        assert msgspec.json.decode(msgspec.json.encode(answer))["outcome"]["optionId"] == option
        assert notes.notes[0][1]["optionId"] == option


@aio
async def test_a_malformed_question_is_refused(tmp_path: Path) -> None:
    async with asking(tmp_path) as (live, _):
        with pytest.raises(RemoteError):
            live.request(Request(1, PERMISSION, Raw(b'{"sessionId":"s1"}'), b""))


@aio
async def test_the_caller_of_the_turn_is_asked_and_its_answer_goes_to_the_peer(
    tmp_path: Path,
) -> None:
    async with called(PERMISSION) as (caller, client, other):
        async with asking(tmp_path, caller, "deny-all") as (live, notes):
            live.open_for(caller, "s1")
            for id, option in ((1, "y"), (2, "n"), (3, "what?")):
                assert live.request(question(id)) is LATER
                assert len(notes.saved) == id, "it is known what was asked for, come what may"
                await client.until(lambda: client.questions)
                told = {"outcome": {"outcome": "selected", "optionId": option}}
                other.answer(client.questions.pop(), told)
                await _settled(live, id)
                assert live.answered[id] == told
                assert live.job is not None
                assert live.job.denied is (option == "n")
            assert [data["optionId"] for _, data in notes.notes] == ["y", "n", "what?"]
            assert {data["by"] for _, data in notes.notes} == {"caller"}


@aio
async def test_a_question_that_is_settled_while_it_is_asked_is_shown_to_no_watcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        called(PERMISSION) as (caller, _, _other),
        asking(tmp_path, caller) as (live, _notes),
    ):
        live.open_for(caller, "s1")

        def begin(*_: Any, **__: Any) -> Call:
            raise DragomanError("the caller does not read")

        monkeypatch.setattr(caller.connection, "begin", begin)
        assert live.request(question()) is LATER
        assert live.answered, "the policy has decided"
        assert not live.questions.open
        assert not live.questions.watchers._waiting


async def _settled(live: Answers, id: int) -> None:
    async with asyncio.timeout(5):
        while id not in live.answered:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)


@aio
async def test_a_caller_that_leaves_while_it_is_asked_has_the_policy_speak_for_it(
    tmp_path: Path,
) -> None:
    async with called(PERMISSION, READ, ELICITATION) as (caller, client, _):
        async with asking(tmp_path, caller, "approve-all") as (live, _):
            for id, method in ((1, PERMISSION), (2, ELICITATION), (3, READ)):
                assert live.request(question(id, method)) is LATER
            await client.until(lambda: len(client.questions) == 3)
            live.questions.left(caller)
            assert live.answered[1]["outcome"]["optionId"] == "y"
            assert live.answered[2] == {"action": "decline"}
            assert "should have answered this request" in live.answered[3]
            assert not live.questions.open


@aio
async def test_the_refusal_of_a_service_is_the_peers_and_that_of_a_question_a_matter_of_policy(
    tmp_path: Path,
) -> None:
    async with called(PERMISSION, READ) as (caller, client, other):
        async with asking(tmp_path, caller) as (live, _):
            live.request(question(1))
            live.request(question(2, READ))
            await client.until(lambda: len(client.questions) == 2)
            for each in client.questions:
                other.refuse(each, -32000, "not today")
            await _settled(live, 2)
            assert live.answered[1]["outcome"]["optionId"] == "n"
            assert live.answered[2] == "not today"


@aio
async def test_cancelling_the_turn_calls_every_question_off(tmp_path: Path) -> None:
    async with called(PERMISSION, ELICITATION) as (caller, client, _):
        async with asking(tmp_path, caller) as (live, _):
            live.request(question(1))
            live.request(question(2, ELICITATION))
            await client.until(lambda: len(client.questions) == 2)
            live.cancelling.on(Trigger.BEGIN)
            live.cancelling.on(Trigger.CANCEL)
            live.questions.call_off()
            assert live.answered == {
                1: {"outcome": {"outcome": "cancelled"}},
                2: {"action": "cancel"},
            }
            later = live.request(question(3))
            assert msgspec.json.encode(later) == b'{"outcome":{"outcome":"cancelled"}}'


@aio
async def test_services_that_the_caller_does_not_offer_are_served_here(tmp_path: Path) -> None:
    async with called(PERMISSION) as (caller, _, _), asking(tmp_path, caller) as (live, _):
        assert live.request(question(1, READ)) is HERE
        declined = live.request(question(2, ELICITATION))
        assert msgspec.json.encode(declined) == b'{"action":"decline"}'


@aio
async def test_all_declined_questions_of_a_turn_are_named(tmp_path: Path) -> None:
    async with asking(tmp_path) as (live, notes):
        for id, text in ((1, "Who?"), (2, "Where?")):
            schema = {"type": "object", "properties": {}}
            form = about(ELICITATION, mode="form", message=text, requestedSchema=schema)
            assert msgspec.json.encode(live.request(form)) == b'{"action":"decline"}', id
        assert live.job is not None
        assert [text.split()[3] for text in live.job.notices] == ["'Who?'", "'Where?'"]
        assert [data["text"] for _, data in notes.notes] == live.job.notices


@aio
async def test_a_caller_that_does_not_read_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_requests, "TOLD_TIMEOUT", 0.01)
    async with called(PERMISSION) as (caller, _, other):
        async with asking(tmp_path, caller, "approve-all") as (live, _):
            live.open_for(caller, "s1")
            other._stream.pause_reading()
            live.turn_began(caller)
            for _ in range(5000):
                live.update(notice("s1", "so much that it is not taken"))
            assert live.reader(caller).lags
            assert live.request(question()) is LATER
            await _settled(live, 1)
            assert live.answered[1]["outcome"]["optionId"] == "y"


# -- a whole policy, and what is done here for a caller that has left


def about(method: str, call: dict[str, Any] | None = None, **params: Any) -> Request:
    body: dict[str, Any] = {"sessionId": "s1", **params}
    if call is not None:
        options = msgspec.json.decode(question().params)["options"]
        body |= {"toolCall": {"toolCallId": "t", **call}, "options": options}
    raw = msgspec.json.encode(body)
    return Request(1, method, Raw(raw), raw)


def told(update_kind: str, **call: Any) -> Notification:
    update = {"sessionUpdate": update_kind, "toolCallId": "t", "title": "It", **call}
    raw = msgspec.json.encode({"sessionId": "s1", "update": update})
    line = b'{"jsonrpc":"2.0","method":"session/update","params":%b}' % raw
    return Notification("session/update", Raw(raw), line)


def chosen(answer: Any) -> str:
    option: str = msgspec.json.decode(msgspec.json.encode(answer))["outcome"]["optionId"]
    return option


RULES = Policy(
    preset="ask",
    rules=(
        Rule(action="allow", kind="edit", paths=("src/**",)),
        Rule(action="allow", commands=("git status",)),
        Rule(action="deny", kind="read", paths=(".env",)),
    ),
)


@aio
async def test_a_whole_policy_decides_for_a_caller_that_has_left(tmp_path: Path) -> None:
    async with asking(tmp_path, policy=RULES) as (live, notes):
        for path, option in (("src/a", "y"), ("src/../.env", "n"), ("b", "n")):
            call = {"kind": "edit", "locations": [{"path": str(tmp_path / path)}]}
            assert chosen(live.request(about(PERMISSION, call))) == option
            assert live.job is not None and live.job.denied is (option == "n")
        assert {data["by"] for _, data in notes.notes} == {"policy ask with rules"}


@aio
async def test_a_question_with_an_id_alone_is_judged_by_what_was_reported_before(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path, policy=RULES) as (live, _):
        assert chosen(live.request(about(PERMISSION, {"kind": "edit"}))) == "n"
        live.update(told("tool_call", kind="edit", locations=[{"path": str(tmp_path / "src/a")}]))
        live.update(notice("s1", "t"))
        assert chosen(live.request(about(PERMISSION, {}))) == "y"
        live.update(told("tool_call_update", kind="execute", rawInput={"command": "rm x"}))
        assert chosen(live.request(about(PERMISSION, {"kind": "read"}))) == "n"


@aio
async def test_a_title_is_a_command_where_the_spec_says_so(tmp_path: Path) -> None:
    async with asking(tmp_path, policy=RULES) as (live, _):
        call = {"kind": "execute", "title": "git status"}
        assert chosen(live.request(about(PERMISSION, call))) == "n"
        live.far.command_titles = True
        live.questions = peer_requests.PeerQuestions(live)
        assert chosen(live.request(about(PERMISSION, call))) == "y"


@aio
async def test_without_a_caller_the_policy_guards_what_is_done_here(tmp_path: Path) -> None:
    async with asking(tmp_path, policy=RULES) as (live, notes):
        inside = str(tmp_path / "src/a")
        for request in (
            about(WRITE, path=inside, content="x"),
            about(READ, path=inside),
            about(RUN, command="git", args=["status"]),
        ):
            assert live.request(request) is HERE
        assert live.job is not None and not live.job.denied and not notes.notes
        for request in (
            about(WRITE, path=str(tmp_path / "a"), content="x"),
            about(READ, path=str(tmp_path / "src/../.env")),
            about(RUN, command="git status; rm -r ."),
        ):
            with pytest.raises(RemoteError) as refused:
                live.request(request)
            assert refused.value.data == {"errorClass": "not_permitted"}
        assert live.job.denied and len(notes.notes) == 3
        with pytest.raises(RemoteError):
            live.request(about(WRITE, path=7))


@aio
async def test_where_no_policy_was_left_only_reading_is_done_here(tmp_path: Path) -> None:
    async with asking(tmp_path) as (live, _):
        assert live.request(about(READ, path="/a")) is HERE
        for request in (about(WRITE, path="/a", content=""), about(RUN, command="ls")):
            with pytest.raises(RemoteError):
                live.request(request)


@aio
async def test_what_a_caller_allowed_before_it_left_is_still_done(tmp_path: Path) -> None:
    path = str(tmp_path / "b")
    writing = about(WRITE, path=path, content="x")
    async with called(PERMISSION) as (caller, client, other):
        async with asking(tmp_path, caller, Policy(preset="ask")) as (live, _):
            live.open_for(caller, "s1")
            with pytest.raises(RemoteError, match="not permitted"):
                live.request(writing)
            asked = about(PERMISSION, {"kind": "edit", "locations": [{"path": path}]})
            assert live.request(asked) is LATER
            await client.until(lambda: client.questions)
            answer = {"outcome": {"outcome": "selected", "optionId": "y"}}
            other.answer(client.questions.pop(), answer)
            await _settled(live, 1)
            assert live.job is not None
            live.job.caller = None
            assert live.request(writing) is HERE
            with pytest.raises(RemoteError):
                live.request(about(WRITE, path=str(tmp_path / "c"), content="x"))


@pytest.mark.parametrize(
    ("terms", "written"),
    [
        (None, False),
        ({"policy": "approve-all"}, True),
        ({"policy": "approve-reads"}, False),
        ({"policy": "approve-all", "writeFiles": False}, False),
        (7, False),
    ],
)
@aio
async def test_the_broker_writes_what_the_policy_in_the_callers_terms_allows(
    tmp_path: Path, terms: Any, written: bool
) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        if terms is not None:
            caller.connection.post("_dragoman/terms", terms)
        session = await caller.new(tmp_path)
        prompting = at.broker.tasks.start(caller.prompting(session, "x"), "prompt")
        await agent.until(lambda: agent.prompts)
        assert agent.connection is not None
        path = tmp_path / "workspace" / "made.txt"
        params = {"sessionId": session, "path": str(path), "content": "x"}
        refused = None
        try:
            await agent.connection.call(WRITE, params, timeout=5)
        except RemoteError as error:
            refused = error
        assert path.exists() is written
        assert (refused is None) is written
        assert "not permitted" in str(refused) or written
        agent.end()
        await prompting
        # Outside of turns there is nobody who would allow it.
        later = params | {"path": str(path.with_name("later.txt"))}
        with pytest.raises(RemoteError, match="not permitted"):
            await agent.connection.call(WRITE, later, timeout=5)
        assert "_dragoman/terms" not in [method for method, _ in agent.told]


@asynccontextmanager
async def asked_in_a_turn(
    tmp_path: Path, method: str, params: dict[str, Any]
) -> AsyncIterator[tuple[Stage, NearAgent, TestCaller, Call, list[Any]]]:
    """A caller that is asked something by the agent in its turn, and does not answer by itself."""
    agent = NearAgent()
    ends: list[Any] = []
    offers: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "terminal": True}
    async with standing(tmp_path, agent) as at, at.caller(**offers) as caller:
        caller.answer = lambda request: LATER
        session = await caller.new(tmp_path)
        prompting = at.broker.tasks.start(
            caller.prompting(session, "x", policy="approve-all"), "prompt"
        )
        await agent.until(lambda: agent.prompts)
        assert agent.connection is not None

        def settle(result: Raw | None, error: DragomanError | None) -> None:
            ends.append(error if result is None else msgspec.json.decode(result))
            agent.changed.set()

        call = agent.connection.begin(method, {"sessionId": session, **params}, settle=settle)
        await caller.until(lambda: caller.questions)
        yield at, agent, caller, call, ends
        if agent.connection.failure is None and agent.prompts:
            agent.end()
        await asyncio.wait([prompting])


OPTIONS: dict[str, Any] = {
    "toolCall": {"toolCallId": "t", "title": "It", "kind": "edit"},
    "options": [
        {"optionId": "y", "name": "Yes", "kind": "allow_once"},
        {"optionId": "n", "name": "No", "kind": "reject_once"},
    ],
}
PAGE: dict[str, Any] = {"mode": "url", "elicitationId": "e1", "url": "https://x.y", "message": "?"}


@aio
async def test_a_question_that_the_peer_takes_back_is_taken_back_from_the_caller(
    tmp_path: Path,
) -> None:
    async with asked_in_a_turn(tmp_path, PERMISSION, OPTIONS) as (at, agent, caller, call, ends):
        assert agent.connection is not None
        agent.connection.post("$/cancel_request", {"requestId": call.id})
        await caller.until(lambda: "$/cancel_request" in [method for method, _ in caller.told])
        asked = caller.questions[0].id
        assert caller.told[-1] == ("$/cancel_request", {"requestId": asked})
        await agent.until(lambda: ends)
        assert isinstance(ends[0], CallCancelled)
        far = at.broker.far
        assert far is not None and not far.upstream.asked


@pytest.mark.parametrize(
    ("method", "answer"),
    [(PERMISSION, {"outcome": {"outcome": "cancelled"}}), (ELICITATION, {"action": "cancel"})],
)
@aio
async def test_a_question_that_outlasts_its_turn_is_withdrawn(
    tmp_path: Path, method: str, answer: dict[str, Any]
) -> None:
    params = OPTIONS if method == PERMISSION else PAGE
    async with asked_in_a_turn(tmp_path, method, params) as (at, agent, caller, _, ends):
        (session,) = at.broker.sessions
        agent.end()
        await agent.until(lambda: ends)
        assert ends == [answer]
        await caller.until(lambda: "$/cancel_request" in [method for method, _ in caller.told])
        assert not session.questions.open


@aio
async def test_another_request_that_outlasts_its_turn_stays_open(tmp_path: Path) -> None:
    method, params = "terminal/wait_for_exit", {"terminalId": "t1"}
    async with asked_in_a_turn(tmp_path, method, params) as (at, agent, caller, _, ends):
        (session,) = at.broker.sessions
        agent.end()
        await at.until(lambda: not at.broker.turns.queue.busy)
        assert session.questions.open and not ends
        caller.connection.answer(caller.questions[0], {"exitCode": 0})
        await agent.until(lambda: ends)
        assert ends == [{"exitCode": 0}]


@aio
async def test_the_caller_whose_user_was_sent_to_a_page_is_notified_that_it_is_done(
    tmp_path: Path,
) -> None:
    async with asked_in_a_turn(tmp_path, ELICITATION, PAGE) as (at, agent, caller, _, ends):
        far = at.broker.far
        assert agent.connection is not None and far is not None
        async with at.caller(elicitation={"url": {}}) as other:
            caller.connection.answer(caller.questions[0], {"action": "accept"})
            await agent.until(lambda: ends)
            agent.connection.post("elicitation/complete", {"elicitationId": "e1"})
            await caller.until(lambda: caller.told)
            assert caller.told == [("elicitation/complete", {"elicitationId": "e1"})]
            assert other.told == []
        assert not far.upstream.pages


@aio
async def test_a_caller_that_never_answers_counts_as_one_that_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_requests, "ANSWER_TIMEOUT", 0.05)
    async with asked_in_a_turn(tmp_path, PERMISSION, OPTIONS) as (_, agent, _, _, ends):
        await agent.until(lambda: ends)
        assert ends == [{"outcome": {"outcome": "selected", "optionId": "y"}}], "by its policy"


@aio
async def test_what_a_dead_peer_asked_is_not_answered_to_the_next_one(tmp_path: Path) -> None:
    async with asked_in_a_turn(tmp_path, PERMISSION, OPTIONS) as (at, agent, caller, _, _):
        dies(agent)
        await caller.until(lambda: "$/cancel_request" in [method for method, _ in caller.told])
        (session,) = at.broker.sessions
        assert not session.questions.open


@aio
async def test_an_answer_for_the_whole_session_counts_before_the_caller_is_asked_again(
    tmp_path: Path,
) -> None:
    async with called(PERMISSION) as (caller, client, _):
        async with asking(tmp_path, caller, Policy(preset="ask")) as (live, _):
            live.open_for(caller, "s1")
            assert live.job is not None
            live.job.asks = True
            assert live.request(question(1)) is LATER
            # A watcher answers before the caller was asked, so that the caller never hears of it.
            (asked,) = live.questions.open
            yes = Raw(b'{"outcome":{"outcome":"selected","optionId":"y"}}')
            assert asked.answer(yes, "allow_always")
            answer = live.request(question(2))
            told = msgspec.json.decode(msgspec.json.encode(answer))
            assert told["outcome"]["optionId"] == "y"
            assert not client.questions
