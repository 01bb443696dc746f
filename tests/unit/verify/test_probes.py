from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dragoman.client.conversation import Conversation, Peer
from dragoman.errors import CallTimeout, InvalidAnswer, RemoteError
from dragoman.events import model
from dragoman.events.parts import Capabilities, Choice, SessionOption
from dragoman.verify import probes
from tests.aio import aio

SOURCE = model.Source("acp", "c")
HERE = Path("/workspace")


class _Connection:
    def __init__(self, end: Exception | None = None) -> None:
        self._end = end

    async def call(self, method: str, params: Any, *, timeout: float) -> bytes:
        if self._end is not None:
            raise self._end
        return b"{}"


LEGACY = ("oneshot", "threads", "tagged", "keyed", "chained")


def peer(
    dialect: str = "acp",
    end: Exception | None = None,
    can: Capabilities | None = None,
    names: dict[str, str] | None = None,
) -> Peer:
    known = SimpleNamespace(known=(names or {}).get)
    client = SimpleNamespace(connection=_Connection(end), method_names=known)
    able = can or Capabilities()
    made = SimpleNamespace(dialect=dialect, capabilities=able, client=client)
    return cast(Peer, made)


def settings(*options: SessionOption, modes: tuple[SessionOption, ...] = ()) -> list[model.Event]:
    base = (SOURCE, 1, "s", None, "session/new", b"", False)
    changed = model.SettingsChanged(*base, options=options)
    if modes:
        changed = model.SettingsChanged(*base, options=options, modes=modes)
    return [changed]


def test_an_unknown_session_is_asked_for_in_the_way_that_the_peer_says_it_has() -> None:
    def method(can: Capabilities) -> str:
        asked = probes.unknown_session(peer(can=can), HERE)
        assert asked is not None
        return asked[0]

    assert method(Capabilities(load=True, resume=True)) == "session/load"
    assert method(Capabilities(resume=True)) == "session/resume"
    assert method(Capabilities()) == "session/set_mode"


def test_no_question_about_mistakes_is_a_prompt() -> None:
    names = {"create": "startSession", "list": "listSessions", "prompt": "sendMessage"}
    for dialect in ("acp", "codex", *LEGACY):
        for asked in (
            probes.unknown_session(peer(dialect, names=names), HERE),
            probes.bad_params(peer(dialect, names=names)),
            probes.unknown_method(),
            *probes.with_all_params(peer(dialect, names=names), HERE),
        ):
            if asked is not None:
                assert "prompt" not in asked[0] and not asked[0].startswith("turn")
                assert asked[0] != "sendMessage"


def test_dialects_that_have_no_such_question_are_not_asked() -> None:
    for dialect in ("oneshot", "tagged", "chained"):
        assert probes.unknown_session(peer(dialect), HERE) is None
    for dialect in ("oneshot", "chained"):
        assert probes.bad_params(peer(dialect)) is None
        assert probes.with_all_params(peer(dialect), HERE) == []


def test_an_agent_of_the_threads_dialect_is_asked_for_an_unknown_thread() -> None:
    asked = probes.unknown_session(peer("threads"), HERE)
    assert asked is not None and asked[0] == "threadResume"
    asked = probes.unknown_session(peer("keyed"), HERE)
    assert asked is not None and asked[0] == "session/load"


def test_a_chained_agent_is_asked_under_the_names_that_it_knows() -> None:
    agent = peer("chained", names={"create": "startSession", "list": ""})
    assert probes.bad_params(agent) == ("startSession", {"title": 42, "context": "none"})
    (asked,) = probes.with_all_params(agent, HERE)
    assert asked == ("startSession", {"title": "dragoman", "context": {"cwd": "/workspace"}})
    assert probes.methods_of(agent, {}) == {"create": "startSession"}


def test_the_methods_of_acp_and_codex_are_those_that_the_facts_show() -> None:
    assert probes.methods_of(peer("acp"), {}) == {}
    facts = {"sessions": True, "resumes_sessions": True, "echo": None}
    assert probes.methods_of(peer("codex"), facts) == {
        "create": "thread/start",
        "resume": "thread/resume",
    }


def test_an_oversized_question_is_the_same_question_with_more_in_it() -> None:
    method, params = probes.oversized(("m", {"a": 1}), 1000)
    assert method == "m"
    assert params["a"] == 1
    assert len(params["padding"]) == 1000


@aio
async def test_the_code_of_an_answer_is_that_of_its_error_and_zero_where_there_is_none() -> None:
    asked: probes.Question = ("m", {})

    async def code(end: Exception | None) -> int:
        return await probes.code_of(peer(end=end), asked, timeout=1)

    assert await code(RemoteError(-32601, "no")) == -32601
    assert await code(None) == probes.ACCEPTED
    assert await code(InvalidAnswer("odd")) == probes.ACCEPTED
    with pytest.raises(CallTimeout):
        await code(CallTimeout("m", 1))


@aio
async def test_models_and_modes_come_from_the_options_of_a_session() -> None:
    choices = (Choice("m-1", "One"), Choice("m-2-preview", "Two"))
    option = SessionOption("model", "Model", "m-1", choices, "model")
    told = settings(option, modes=(SessionOption("ask", "Ask", "ask"),))
    here = cast(Conversation, SimpleNamespace(model_choices=()))
    assert await probes.models_of(peer(), here, told) == ("m-1", "m-2-preview")
    assert probes.modes_of(told) == ("ask",)


@aio
async def test_models_of_the_older_kind_are_found_too() -> None:
    here = cast(Conversation, SimpleNamespace(model_choices=[Choice("gemini-3", "Gemini")]))
    assert await probes.models_of(peer(), here, []) == ("gemini-3",)


@aio
async def test_what_a_session_does_not_say_is_unknown() -> None:
    here = cast(Conversation, SimpleNamespace(model_choices=()))
    assert await probes.models_of(peer(), here, []) is None
    assert probes.modes_of([]) is None
    assert await probes.needs_login(peer()) is None


def test_modes_may_be_an_option_like_others() -> None:
    option = SessionOption("mode", "Mode", "a", (Choice("a", "A"), Choice("b", "B")), "mode")
    assert probes.modes_of(settings(option)) == ("a", "b")


@aio
async def test_codex_is_asked_for_its_login_and_its_models() -> None:
    async def account() -> None: ...

    async def models() -> list[Any]:
        return [SimpleNamespace(id="gpt-6")]

    client = SimpleNamespace(account=account, models=models, needs_login=True)
    codex = cast(Peer, SimpleNamespace(dialect="codex", client=client))
    assert await probes.needs_login(codex) is True
    assert await probes.models_of(codex, cast(Conversation, None), []) == ("gpt-6",)


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"result": 1}', b'{"result": {"hello": 1}}'])
def test_an_answer_without_a_version_is_seen(line: bytes) -> None:
    assert not probes.names_version(line)
    assert probes.names_version(b'{"result": {"protocolVersion": 77}}')
