"""The Codex client's connection, handshake, threads and errors, with a server as a child process.

The manifest `codex.toml` lists these tests with the requirements that they prove.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec import structs

import dragoman
from dragoman.client.budgets import Budgets
from dragoman.client.codex import client as client_module
from dragoman.client.permissions import approve_all
from dragoman.client.results import explain
from dragoman.errors import CallTimeout, ProcessExited, ProtocolMismatch, RemoteError
from dragoman.events import model
from dragoman.events.words import ErrorKind, Outcome
from tests.aio import aio
from tests.conformance.codex import (
    ANSWER,
    DIE,
    OPTIONS,
    Script,
    Step,
    ask_command,
    codex,
    command,
    delta,
    ended,
    message,
    refuse,
    started,
    tell,
    thread,
    turns,
    wait_for,
)

OVERLOADED = refuse("Server overloaded; retry later.", -32001)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "OVERLOADED_DELAY", 0.001)


# -- transport


@aio
async def test_every_message_is_one_object_on_a_line_without_jsonrpc(tmp_path: Path) -> None:
    async with thread(tmp_path, turns([message("hello")])) as (talk, wire):
        assert (await talk.ask("x")).text == "hello"
    assert all(isinstance(each, dict) for each in wire.of("client"))
    assert [each for _, each in wire.records()[:-1] if "jsonrpc" in each] == []


@aio
async def test_a_log_line_on_stderr_is_not_a_message(tmp_path: Path) -> None:
    failed = ended(status="failed")["send"]
    steps = [{"log": json.dumps(failed)}, message("hello")]
    async with thread(tmp_path, turns(steps)) as (talk, _):
        result = await talk.ask("x")
    assert (result.outcome, result.text) == (Outcome.OK, "hello")


@aio
async def test_members_that_are_not_known_are_ignored(tmp_path: Path) -> None:
    said = message("hello")["send"]
    said["params"]["item"]["novel"] = {"deep": [1]}
    strange = {"send": {**said, "emittedAtMs": 1, "novel": True}}
    async with thread(tmp_path, turns([strange])) as (talk, wire):
        assert (await talk.ask("x")).text == "hello"
    assert [e for e in wire.events if isinstance(e, model.Unknown)] == []


@pytest.mark.parametrize("line", ["not JSON", "[]", "17", '{"id":99,"result":{}}', "{}"])
@aio
async def test_a_line_that_is_not_a_message_ends_nothing(line: str, tmp_path: Path) -> None:
    steps: list[Step] = [{"write": line}, message("hello")]
    async with thread(tmp_path, turns(steps)) as (talk, _):
        assert (await talk.ask("x")).text == "hello"


@aio
async def test_a_request_without_an_answer_ends_in_time_and_is_sent_once(tmp_path: Path) -> None:
    # Long enough for the second one, which is answered, on a busy machine.
    options = structs.replace(OPTIONS, budgets=Budgets(request=3.0))
    async with codex(tmp_path, {"thread/list": [[]]}, options) as (peer, wire):
        with pytest.raises(CallTimeout):
            [session async for session in peer.list_sessions()]
        assert [session async for session in peer.list_sessions()] == []
        # One for each call: the first was not repeated.
        assert wire.methods().count("thread/list") == 2


@aio
async def test_the_ids_of_both_sides_are_kept_apart(tmp_path: Path) -> None:
    first = [command("inProgress", "started"), ask_command(0), wait_for(0)]
    both = [ask_command(4), ask_command("4"), wait_for("4"), wait_for(4)]
    script = {"turn/start": [[started(), *first, *reversed(both[:2]), *both[3:], ANSWER, ended()]]}
    options = structs.replace(OPTIONS, permit=approve_all)
    async with thread(tmp_path, script, options) as (talk, wire):
        assert (await talk.ask("x")).outcome is Outcome.OK
    (prompt,) = [each for each in wire.of("client") if each.get("method") == "turn/start"]
    assert prompt["id"] == 4
    assert [wire.answer(id) for id in (0, 4, "4")] == [{"decision": "accept"}] * 3


@aio
async def test_closing_ends_the_input_of_the_server_and_it_exits_by_itself(tmp_path: Path) -> None:
    async with codex(tmp_path) as (peer, wire):
        pass
    assert wire.records()[-1] == ("end", None)
    (over,) = [event for event in wire.events if isinstance(event, model.ConnectionOver)]
    assert over.signal is None


@aio
async def test_a_server_that_dies_ends_the_turn_which_may_have_run(tmp_path: Path) -> None:
    script = {"turn/start": [[ANSWER, started(), delta("half"), {"log": "why"}, DIE]]}
    async with thread(tmp_path, script) as (talk, _):
        result = await talk.ask("x")
    assert (result.outcome, result.text) == (Outcome.CRASHED, "half")
    assert isinstance(result.error, ProcessExited)
    assert result.error.may_have_run
    assert "why" in result.error.stderr_tail


# -- handshake


@aio
async def test_the_handshake_is_one_initialize_and_then_initialized(tmp_path: Path) -> None:
    async with thread(tmp_path) as (talk, wire):
        assert talk.id == "t1"
    assert wire.methods()[:2] == ["initialize", "initialized"]
    assert wire.methods().count("initialize") == wire.methods().count("initialized") == 1
    assert [each for each in wire.of("server") if "error" in each] == []
    (hello,) = wire.params("initialize")
    assert hello["clientInfo"]["name"] == "dragoman"
    assert hello["clientInfo"]["version"] == dragoman.__version__
    assert hello["capabilities"]["experimentalApi"] is False


@aio
async def test_an_answer_to_initialize_without_a_user_agent_is_not_codex(tmp_path: Path) -> None:
    script = {"initialize": [[{"reply": {"protocolVersion": 1, "agentCapabilities": {}}}]]}
    with pytest.raises(ProtocolMismatch) as mismatch:
        async with codex(tmp_path, script):
            pass
    assert mismatch.value.dialect == "acp"


@aio
async def test_notifications_may_come_before_the_answer_to_initialize(tmp_path: Path) -> None:
    early = tell("configWarning", summary="no bubblewrap", details=None)
    async with codex(tmp_path, {"initialize": [[early, ANSWER]]}) as (peer, wire):
        assert peer.info.version == "0.166.0"
    (notice,) = [event for event in wire.events if isinstance(event, model.Noticed)]
    assert notice.title == "no bubblewrap"


@aio
async def test_notifications_are_declined_by_exact_names_and_texts_are_not(tmp_path: Path) -> None:
    async with codex(tmp_path) as (_, wire):
        pass
    declined = wire.params("initialize")[0]["capabilities"]["optOutNotificationMethods"]
    assert [name for name in declined if "*" in name or name.startswith(("item/", "turn/st"))] == []


@aio
async def test_a_message_whose_pieces_were_not_sent_has_its_text(tmp_path: Path) -> None:
    async with thread(tmp_path, turns([message("whole")])) as (talk, _):
        assert (await talk.ask("x")).text == "whole"


# -- experimental parts


@pytest.mark.parametrize("experimental", [False, True])
@aio
async def test_experimental_parts_are_opted_into_once_and_only_on_request(
    experimental: bool, tmp_path: Path
) -> None:
    options = structs.replace(OPTIONS, experimental=experimental)
    async with thread(tmp_path, turns([]), options) as (talk, wire):
        await talk.ask("x")
    (hello,) = wire.params("initialize")
    assert hello["capabilities"]["experimentalApi"] is experimental
    assert "experimentalRawEvents" not in json.dumps(wire.of("client"))


@pytest.mark.parametrize(
    ("said", "kind", "outcome"),
    [
        (
            "turn/start.x requires experimentalApi capability",
            ErrorKind.EXPERIMENTAL_REQUIRED,
            Outcome.UNSUPPORTED,
        ),
        ("Not initialized", ErrorKind.NOT_INITIALIZED, Outcome.PROTOCOL_ERROR),
        ("Already initialized", ErrorKind.ALREADY_INITIALIZED, Outcome.PROTOCOL_ERROR),
        ("thread not found: t1", ErrorKind.NOT_FOUND, Outcome.FAILED),
        (
            "Invalid request: unknown variant `session/x`, expected one of …",
            ErrorKind.METHOD_NOT_FOUND,
            Outcome.UNSUPPORTED,
        ),
        (
            "Invalid request: missing field `input`",
            ErrorKind.INVALID_PARAMS,
            Outcome.PROTOCOL_ERROR,
        ),
    ],
)
@aio
async def test_a_refusal_is_known_by_its_words(
    said: str, kind: ErrorKind, outcome: Outcome, tmp_path: Path
) -> None:
    async with thread(tmp_path, {"turn/start": [[refuse(said)]]}) as (talk, wire):
        result = await talk.ask("x")
        assert result.failure is not None
        assert (result.failure.kind, result.outcome) == (kind, outcome)
        # The thread stays usable, and the prompt is not sent again.
        assert wire.methods().count("turn/start") == 1
        assert not talk.unusable


# -- threads


@pytest.mark.parametrize("sandbox", ["read-only", "workspace-write", "danger-full-access"])
@pytest.mark.parametrize("policy", ["untrusted", "on-request", "never"])
@aio
async def test_settings_are_spelled_as_the_server_takes_them(
    sandbox: str, policy: str, tmp_path: Path
) -> None:
    options = structs.replace(OPTIONS, sandbox=sandbox, approval_policy=policy)
    async with thread(tmp_path, None, options) as (_, wire):
        (params,) = wire.params("thread/start")
    assert (params["sandbox"], params["approvalPolicy"]) == (sandbox, policy)


@aio
async def test_the_folder_of_a_thread_is_absolute_and_its_sandbox_only_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path)
    here = os.getcwd()
    async with codex(tmp_path) as (peer, wire), peer.session(cwd="inner"):
        (params,) = wire.params("thread/start")
    assert params["cwd"] == os.path.join(here, "inner")
    # A writable sandbox would mark the directory as trusted in the user's configuration.
    assert params["sandbox"] == "read-only"


@aio
async def test_a_thread_that_the_server_does_not_have_is_not_found(tmp_path: Path) -> None:
    script = {"thread/resume": [[refuse("no rollout found for thread id t9")]]}
    async with codex(tmp_path, script) as (peer, wire):
        with pytest.raises(RemoteError) as refused:
            async with peer.session(load="t9"):
                pass
        assert explain(refused.value)[1].kind is ErrorKind.NOT_FOUND
        assert wire.params("thread/resume")[0]["threadId"] == "t9"


@aio
async def test_a_thread_that_is_left_is_unsubscribed_from(tmp_path: Path) -> None:
    async with thread(tmp_path) as (_, wire):
        assert "thread/unsubscribe" not in wire.methods()
    assert wire.params("thread/unsubscribe") == [{"threadId": "t1"}]


@aio
async def test_the_model_provider_of_another_configuration_fails_the_turn_only(
    tmp_path: Path,
) -> None:
    mismatch = refuse("the provider is another one", -32600, type="modelProviderMismatch")
    script = {"turn/start": [[mismatch], [ANSWER, started(), message("hello"), ended()]]}
    async with thread(tmp_path, script) as (talk, _):
        result = await talk.ask("x")
        assert not result.ok
        assert result.failure is not None
        assert result.failure.data == {"type": "modelProviderMismatch"}
        assert (await talk.ask("again")).text == "hello"


# -- errors


OVERLOADS: dict[str, Script] = {
    "initialize": {"initialize": [[OVERLOADED], [OVERLOADED]]},
    "thread/start": {"thread/start": [[OVERLOADED], [OVERLOADED]]},
    "turn/start": {
        "turn/start": [[OVERLOADED], [OVERLOADED], [ANSWER, started(), message("hello"), ended()]]
    },
}


@pytest.mark.parametrize("method", OVERLOADS)
@aio
async def test_a_call_that_was_refused_as_overloaded_is_sent_again(
    method: str, tmp_path: Path
) -> None:
    script = {**turns([message("hello")]), **OVERLOADS[method]}
    async with thread(tmp_path, script) as (talk, wire):
        assert (await talk.ask("x")).text == "hello"
    assert wire.methods().count(method) == 3


@aio
async def test_an_interrupt_that_was_refused_as_overloaded_is_sent_again(tmp_path: Path) -> None:
    last = wait_for("turn/interrupt")
    script = {
        "turn/start": [
            [ANSWER, started(), delta("a"), last, last, last, ended("u1", "interrupted")]
        ],
        "turn/interrupt": [[OVERLOADED], [OVERLOADED]],
    }
    async with thread(tmp_path, script) as (talk, wire):
        async with talk.prompt("x") as turn:
            async for event in turn:
                if isinstance(event, model.MessageDelta):
                    turn.cancel()
        assert turn.result.outcome is Outcome.CANCELLED
        assert wire.methods().count("turn/interrupt") == 3
        assert not talk.unusable


@pytest.mark.parametrize("code", [-32603, -32000, -32602])
@aio
async def test_a_prompt_that_may_have_run_is_not_sent_again(code: int, tmp_path: Path) -> None:
    async with thread(tmp_path, {"turn/start": [[refuse("boom", code)]]}) as (talk, wire):
        result = await talk.ask("x")
        assert not result.ok
        assert wire.methods().count("turn/start") == 1


@aio
async def test_an_error_that_is_retried_does_not_end_the_turn(tmp_path: Path) -> None:
    error = {"message": "Reconnecting... 1/5", "codexErrorInfo": "other"}
    retried = tell("error", threadId="t1", turnId="u1", error=error, willRetry=True)
    async with thread(tmp_path, turns([retried, retried, message("hello")])) as (talk, wire):
        result = await talk.ask("x")
    assert (result.outcome, result.text, result.failure) == (Outcome.OK, "hello", None)
    assert len([e for e in wire.events if isinstance(e, model.Noticed) and e.retrying]) == 2


@pytest.mark.parametrize(
    ("info", "kind"),
    [
        ("usageLimitExceeded", ErrorKind.QUOTA),
        ({"responseStreamDisconnected": {"httpStatusCode": None}}, ErrorKind.NETWORK),
        ({"responseTooManyFailedAttempts": {"httpStatusCode": 401}}, ErrorKind.AUTH_REQUIRED),
        ("notKnownYet", ErrorKind.PEER),
        ({"notKnownYet": {"a": 1}}, ErrorKind.PEER),
    ],
)
@aio
async def test_the_error_of_a_turn_has_a_kind_whatever_its_info_is(
    info: object, kind: ErrorKind, tmp_path: Path
) -> None:
    error = {"message": "it failed", "codexErrorInfo": info, "additionalDetails": None}
    told = tell("error", threadId="t1", turnId="u1", error=error, willRetry=False)
    script = {"turn/start": [[ANSWER, started(), told, ended("u1", "failed", error=error)]]}
    async with thread(tmp_path, script) as (talk, _):
        result = await talk.ask("x")
    assert result.failure is not None
    assert (result.failure.message, result.failure.kind) == ("it failed", kind)


# -- account


@pytest.mark.parametrize("answer", [{"reply": {"novel": 1}}, refuse("no account")])
@aio
async def test_a_server_that_does_not_tell_its_account_is_used(
    answer: Step, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = {**turns([message("hello")]), "account/read": [[answer]]}
    async with thread(tmp_path, script) as (talk, _):
        assert (await talk.ask("x")).text == "hello"
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@aio
async def test_a_turn_that_fails_without_a_login_needs_one(tmp_path: Path) -> None:
    account = {"reply": {"account": None, "requiresOpenaiAuth": True}}
    failed = ended("u1", "failed", error={"message": "401", "codexErrorInfo": "other"})
    script = {"account/read": [[account]], "turn/start": [[ANSWER, started(), failed]]}
    async with thread(tmp_path, script) as (talk, wire):
        assert (await talk.ask("x")).outcome is Outcome.AUTH_REQUIRED
    assert [name for name in wire.methods() if "login" in name] == []


@aio
async def test_a_notification_about_a_thread_may_come_before_the_thread(tmp_path: Path) -> None:
    name = tell("thread/name/updated", threadId="t1", threadName="named early")
    async with thread(tmp_path, {"thread/start": [[name, ANSWER]]}) as (_, wire):
        pass
    (changed,) = [e for e in wire.events if isinstance(e, model.SessionChanged)]
    assert (changed.session, changed.title) == ("t1", "named early")
