"""An agent that plays scenes and observes how its client reacts.

Defines the order of the scenes and what each proves about the client. It advertises no
capabilities, so any call beyond the baseline is the client's mistake. `client_checks` lists the
checks, `probe_services` covers files, terminals and elicitation, and `probe_agent` is the program.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Final, Literal

from dragoman.rpc.tasks import TaskOwner, finish
from dragoman.testing.conformance import scenes
from dragoman.testing.conformance.checks import Skip, expect
from dragoman.testing.conformance.client_checks import NOT_LEFT, Record
from dragoman.testing.conformance.conversation import (
    Answer,
    Conversation,
    Gone,
    Message,
    Silence,
    Violation,
    refuse,
)
from dragoman.testing.conformance.probe_services import Services
from dragoman.testing.conformance.report import Report
from dragoman.transports.base import Stream
from dragoman.wire import codes

Scenario = Literal["main", "version", "noise"]
"""``main`` plays almost everything; ``version`` agrees on a nonexistent version; ``noise``
sends lines that are not messages, which some clients do not survive."""

SCENARIOS: Final[tuple[Scenario, ...]] = ("main", "version", "noise")

ANSWER_TIMEOUT: Final = 10.0
"""Timeout in seconds for a response from the client, which may need user input."""

FUTURE_VERSION: Final = 999

_BASELINE: Final = ("initialize", "session/new", "session/prompt")


class Probe:
    """One client under test, on one stream."""

    def __init__(
        self,
        stream: Stream,
        *,
        scenario: Scenario = "main",
        timeout: float = ANSWER_TIMEOUT,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._scenario = scenario
        self.record = Record(on_change)
        self._tasks = TaskOwner("probe")
        self._peer: dict[str, Any] = {}
        self._capabilities: Message = {}
        self._sessions: dict[str, str] = {}
        self._running: set[str] = set()
        self._played = False
        self._talk = Conversation(stream, timeout=timeout, respond=self._respond)

    def report(self) -> Report:
        """Return the findings so far."""
        name = self._peer.get("name")
        subject = name if isinstance(name, str) else "a client"
        return Report("client", subject, self.record.findings(), self._peer)

    async def run(self) -> Report:
        """Serve the client until it disconnects, or for `scenes.LIFE_LIMIT`, and return the
        findings."""
        talk = self._talk
        try:
            await talk.until(lambda: talk.failure, "its end", timeout=scenes.LIFE_LIMIT)
            self.record.passed("end_of_input_ends_the_agent")
        except Silence:
            pass
        finally:
            await finish(self._close())
        self._watch()
        return self.report()

    async def _close(self) -> None:
        await self._tasks.aclose()
        await self._talk.aclose()

    # -- requests from the client

    def _respond(self, request: Message) -> Message | None:
        method = request["method"]
        params = request.get("params")
        params = params if isinstance(params, dict) else {}
        if method not in _BASELINE:
            self._judge("only_advertised_methods_are_called", False, f"it called {method}", request)
            return refuse()
        first = len(self._talk.messages) == 1
        self._judge(
            "handshake_comes_first",
            first or bool(self._peer),
            "`initialize` was not the first message",
            request,
        )
        if method == "initialize":
            return self._initialize(params)
        if method == "session/new":
            return self._new(params, request)
        self._tasks.start(self._prompt(params, request), "play")
        return None

    def _initialize(self, params: Message) -> Message:
        info = params.get("clientInfo")
        self._peer = info if isinstance(info, dict) else {"name": ""}
        capabilities = params.get("clientCapabilities")
        self._capabilities = capabilities if isinstance(capabilities, dict) else {}
        version = params.get("protocolVersion")
        whole = type(version) is int and 0 < version < 65536
        self._judge("version_is_a_whole_number", whole, f"protocolVersion is {version!r}", params)
        problem = scenes.client_capabilities(capabilities)
        self._judge("capabilities_are_told", not problem, problem, params)
        named = isinstance(info, dict) and all(
            isinstance(info.get(name), str) for name in ("name", "version")
        )
        self._judge("client_names_itself", named, "clientInfo has no name or version", params)
        self._judge_root("initialize", params)
        self.record.passed("only_advertised_methods_are_called")
        self._watch()
        if self._scenario == "version":
            self.record.passed("unknown_version_ends_it")
            return {"result": {**scenes.HELLO, "protocolVersion": FUTURE_VERSION}}
        return {"result": scenes.HELLO}

    def _new(self, params: Message, request: Message) -> Message:
        if self._scenario == "version":
            self._judge("unknown_version_ends_it", False, "it opened a session anyway", request)
            return refuse(codes.INVALID_REQUEST, "unsupported protocol version")
        cwd = params.get("cwd")
        rooted = isinstance(cwd, str) and (
            PurePosixPath(cwd).is_absolute() or PureWindowsPath(cwd).is_absolute()
        )
        self._judge("session_folder_is_absolute", rooted, f"cwd is {cwd!r}", request)
        servers = params.get("mcpServers")
        listed = servers if isinstance(servers, list) else []
        reason = "mcpServers is not a list"
        self._judge("servers_are_always_listed", listed is servers, reason, request)
        on_network = [s for s in listed if isinstance(s, dict) and "type" in s]
        self._judge_content(not on_network, "it names servers on the network", request)
        more = params.get("additionalDirectories")
        self._judge_content(not more, "it names additional directories", request)
        self._judge_root("session/new", params)
        session = f"probe-{secrets.token_hex(8)}"
        self._sessions[session] = str(cwd)
        for update in scenes.EARLY:
            self._update(session, update)
        return {"result": {"sessionId": session}}

    # -- turns

    async def _prompt(self, params: Message, request: Message) -> None:
        session = str(params.get("sessionId"))
        prompt = params.get("prompt")
        blocks = [b for b in prompt if isinstance(b, dict)] if isinstance(prompt, list) else []
        self._judge(
            "handshake_comes_first",
            session in self._sessions,
            "a prompt without a session",
            request,
        )
        foreign = [b for b in blocks if b.get("type") not in ("text", "resource_link")]
        self._judge_content(not foreign, "a prompt has content that was not offered", request)
        self._judge_root("session/prompt", params)
        alone = session not in self._running
        self._judge("one_prompt_at_a_time", alone, "a second prompt was sent", request)
        self.record.passed("bare_agent_is_enough")
        self.record.passed("early_updates_are_survived")
        self._running.add(session)
        text = " ".join(str(b.get("text", "")) for b in blocks).lower()
        reason = "end_turn"
        if self._scenario == "noise":
            await self._noise()
        elif "cancel" in text:
            reason = await self._cancelling(session)
        elif not self._played:
            self._played = True
            await self._scenes(session)
        else:
            self._update(session, scenes.chunk("Nothing more to see here."))
        self._running.discard(session)
        self._watch()
        answer = {"jsonrpc": "2.0", "id": request["id"], "result": {"stopReason": reason}}
        self._talk.say(answer)
        await self._afterwards(session)

    async def _noise(self) -> None:
        for name, lines, what in (
            ("noise_is_survived", scenes.NOISE, "a line that is not JSON"),
            ("stray_answer_is_survived", scenes.STRAY, "stray answers"),
            ("odd_json_is_survived", scenes.ODD_JSON, "JSON lines that are not messages"),
        ):
            await self._try(name, self._lines(lines, what))

    async def _scenes(self, session: str) -> None:
        self._update(session, scenes.chunk("Looking around."))
        for name, updates in scenes.UPDATES.items():
            await self._survives(name, session, updates)
        await self._try("unknown_extension_is_refused", self._unknown("_dragoman/no/such/method"))
        await self._try("unknown_method_is_refused", self._unknown("dragoman/no_such_method"))
        await self._try("ids_are_echoed_as_they_came", self._ids)
        await self._try("unknown_notification_is_ignored", self._notifications)
        await self._try("permission_gets_an_offered_option", self._permission(session))
        await self._try("unknown_kinds_are_not_chosen", self._odd_permission(session))
        await self._try("called_off_permission_is_answered", self._called_off(session))
        await self._try("missing_params_are_refused", self._bare_permission)
        cwd = self._sessions.get(session, "")
        services = Services(self._talk, session, cwd, self._capabilities)
        for name, service in (
            ("services_not_offered_are_refused", services.refused),
            ("files_are_written_and_read", services.files),
            ("wrong_paths_are_refused", services.wrong_paths),
            ("terminals_run_and_are_released", services.terminal),
            ("terminal_output_loses_its_beginning", services.truncated),
            ("killed_terminal_can_be_read", services.killed),
            ("form_is_accepted_declined_or_cancelled", services.form),
            ("unknown_way_of_asking_is_refused", services.unknown_way),
        ):
            await self._try(name, service)
        await self._try("unknown_question_done_is_ignored", self._question_done)

    async def _cancelling(self, session: str) -> str:
        """Send a permission request, wait for the cancel, and check how the client answers that
        request, another one, and updates. Returns the stop reason with which to end the turn."""
        talk = self._talk
        self._update(session, scenes.chunk("Cancel this turn now."))
        question = talk.begin("session/request_permission", scenes.question(session))
        try:
            cancel = await talk.until(
                lambda: next(iter(talk.heard("session/cancel")), None), "session/cancel"
            )
        except Violation:
            return "end_turn"
        names = isinstance(cancel.get("params"), dict) and "id" not in cancel
        right = names and cancel["params"].get("sessionId") == session
        self._judge("cancel_is_a_notification", right, "the cancel notification is invalid", cancel)

        async def opened() -> None:
            answer = await talk.answer(question, "an open question")
            if answer.position < talk.messages.index(cancel):
                raise Skip("the client answered before it cancelled")
            _cancelled(answer)

        async def crossing() -> None:
            _cancelled(await talk.ask("session/request_permission", scenes.question(session)))

        await self._try("open_questions_are_cancelled", opened)
        await self._try("questions_after_a_cancel_are_cancelled", crossing)
        await self._survives("updates_after_a_cancel_are_taken", session, scenes.AFTER_CANCEL)
        return "cancelled"

    async def _afterwards(self, session: str) -> None:
        for update in scenes.LATE:
            self._update(session, update)
        try:
            await self._talk.fence("late updates")
        except Gone:
            # A client may disconnect after the response.
            self.record.skipped("late_updates_are_survived", NOT_LEFT)
        except Violation as violation:
            self.record.failed("late_updates_are_survived", violation)
        else:
            self.record.passed("late_updates_are_survived")

    # -- scenes

    async def _survives(self, name: str, session: str, updates: tuple[Message, ...]) -> None:
        async def play() -> None:
            for update in updates:
                self._update(session, update)
            await self._talk.fence("such updates")

        await self._try(name, play)

    def _unknown(self, method: str) -> Callable[[], Awaitable[None]]:
        async def play() -> None:
            answer = await self._talk.ask(method, {"a": 1})
            good = answer.code == codes.METHOD_NOT_FOUND
            expect(good, "not refused with -32601", answer.message)

        return play

    def _lines(self, lines: bytes, what: str) -> Callable[[], Awaitable[None]]:
        async def play() -> None:
            self._talk.say_bytes(lines)
            await self._talk.fence(what)

        return play

    async def _ids(self) -> None:
        # Small numbers are also the ids of the client's own requests.
        for id in ("a-1", 0, 2**40, "0", "ünï-☃"):
            await self._talk.ask("_dragoman/echo", {}, id=id)

    async def _notifications(self) -> None:
        talk = self._talk
        before = len(talk.messages)
        for method in ("_dragoman/no/such", "dragoman/no_such", "$/dragoman/anything"):
            talk.tell(method, {"a": 1})
        talk.tell("$/cancel_request", {"requestId": "no-such-request"})
        fence = await talk.fence("unknown notifications")
        for message in talk.messages[before : fence.position]:
            expect("method" in message, "a notification was answered", message)

    def _permission(self, session: str) -> Callable[[], Awaitable[None]]:
        async def play() -> None:
            params = scenes.question(session)
            answer = await self._talk.ask("session/request_permission", params)
            _decided(answer, [option["optionId"] for option in params["options"]])

        return play

    def _odd_permission(self, session: str) -> Callable[[], Awaitable[None]]:
        async def play() -> None:
            params = {**scenes.question(session), "options": scenes.ODD_OPTIONS}
            answer = await self._talk.ask("session/request_permission", params)
            if answer.error is None:
                chosen = _decided(answer, [o["optionId"] for o in scenes.ODD_OPTIONS])
                expect(chosen is None, "an option of an unknown kind was chosen", answer.message)

        return play

    def _called_off(self, session: str) -> Callable[[], Awaitable[None]]:
        async def play() -> None:
            params = scenes.question(session)
            id = self._talk.begin("session/request_permission", params)
            self._talk.tell("$/cancel_request", {"requestId": id})
            answer = await self._talk.answer(id, "a permission request that was cancelled")
            if answer.code != codes.REQUEST_CANCELLED:
                _decided(answer, [option["optionId"] for option in params["options"]])

        return play

    async def _bare_permission(self) -> None:
        answer = await self._talk.ask("session/request_permission", {})
        good = answer.code == codes.INVALID_PARAMS
        expect(good, "not refused with -32602", answer.message)

    async def _question_done(self) -> None:
        self._talk.tell("elicitation/complete", {"elicitationId": "dragoman-unknown"})
        await self._talk.fence("elicitation/complete")

    # -- internals

    def _update(self, session: str, update: Message) -> None:
        self._talk.tell("session/update", {"sessionId": session, "update": update})

    async def _try(self, name: str, play: Callable[[], Awaitable[None]]) -> None:
        if self._talk.failure is not None:
            self.record.skipped(name, NOT_LEFT)
            return
        try:
            await play()
        except Skip as skip:
            self.record.skipped(name, str(skip))
        except Violation as violation:
            self.record.failed(name, violation)
        else:
            self.record.passed(name)

    def _judge(self, name: str, good: object, reason: str, evidence: object) -> None:
        if good:
            self.record.passed(name)
        else:
            self.record.failed(name, Violation(reason, evidence))

    def _judge_content(self, good: object, reason: str, evidence: object) -> None:
        self._judge("only_advertised_content_is_sent", good, reason, evidence)

    def _judge_root(self, method: str, params: Message) -> None:
        unknown = sorted(params.keys() - scenes.ROOTS[method])
        reason = f"{method} has custom fields at its root: {unknown}"
        self._judge("custom_fields_stay_in_meta", not unknown, reason, params)

    def _watch(self) -> None:
        """Check the rules for every line received so far."""
        groups: tuple[tuple[str, tuple[str, ...]], ...] = (
            ("input_is_only_messages", ("encoding", "noise", "batch")),
            ("messages_are_well_formed", ("version", "shape", "id")),
        )
        for name, kinds in groups:
            found = [breach for breach in self._talk.breaches if breach.kind in kinds]
            if found:
                self.record.failed(name, Violation(found[0].reason, found[0].line))
            elif self._peer:
                self.record.passed(name)


def _decided(answer: Answer, offered: list[str]) -> str | None:
    """Return the id of the chosen option, or None for cancelled. Raises `Violation` if the response
    is invalid."""
    outcome = answer.fields().get("outcome")
    expect(isinstance(outcome, dict), "the response has no outcome", answer.message)
    assert isinstance(outcome, dict)
    if outcome.get("outcome") == "cancelled":
        return None
    expect(
        outcome.get("outcome") == "selected",
        "the outcome is neither selected nor cancelled",
        answer.message,
    )
    chosen = outcome.get("optionId")
    expect(chosen in offered, "an option was chosen that was not offered", answer.message)
    return str(chosen)


def _cancelled(answer: Answer) -> None:
    expect(_decided(answer, []) is None, "the response is not cancelled", answer.message)
