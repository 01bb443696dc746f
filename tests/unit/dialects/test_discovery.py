"""The rules that tell dialects apart, from a launch, an answer, or a client's first request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import Raw

from dragoman.dialects import discovery
from dragoman.dialects.discovery import MemoryCache, Program
from dragoman.errors import (
    AuthRequired,
    CallTimeout,
    ConnectionEnded,
    DragomanError,
    InvalidAnswer,
    ProtocolMismatch,
    RemoteError,
    SpawnError,
    UsageError,
)


@pytest.mark.parametrize(
    ("argv", "family"),
    [
        (["codex", "app-server"], "codex"),
        (["codex", "-c", "model=x", "app-server"], "codex"),
        (["/opt/bin/codex-app-server"], "codex"),
        (["codex-app-server.exe"], "codex"),
        (["CODEX-APP-SERVER.CMD"], "codex"),
        (["codex", "acp"], "acp"),
        (["gemini", "--acp"], "acp"),
        (["app-server"], "acp"),
        (["codex-app-server-wrapper"], "acp"),
        ([], "acp"),
    ],
)
def test_the_command_line_decides_the_family(argv: list[str], family: str) -> None:
    assert discovery.family(argv) == family


@pytest.mark.parametrize(
    ("result", "dialect"),
    [
        ({"protocolVersion": 1, "agentCapabilities": {}}, "acp"),
        ({"protocolVersion": 1, "authMethods": [{"id": "a", "name": "A"}]}, "acp"),
        ({"protocolVersion": 1, "agentCapabilities": {"plan": True}}, "keyed"),
        ({"protocolVersion": 1, "agentCapabilities": {"modes": False}}, "keyed"),
        ({"protocolVersion": 1, "agentCapabilities": {"modes": {}}}, "acp"),
        ({"protocolVersion": 1, "authMethods": ["oauth"]}, "keyed"),
        ({"userAgent": "codex/1.2"}, "codex"),
        ({"threadId": "t"}, "threads"),
        ({"protocolVersion": "1.0", "agentInfo": {}}, "tagged"),
        ({"protocolVersion": "1.0", "capabilities": {}}, "tagged"),
        ({"protocolVersion": "2025-01-01"}, "oneshot"),
        ({"protocolVersion": None, "userAgent": "codex/1.2"}, "codex"),
    ],
)
def test_the_answer_to_initialize_decides_the_dialect(result: Any, dialect: str) -> None:
    assert discovery.of_answer(result) == dialect


@pytest.mark.parametrize(
    "result",
    [{}, None, [], "1", 1, {"protocolVersion": 2}, {"protocolVersion": 1.0}],
)
def test_an_answer_of_no_known_dialect_is_not_guessed(result: Any) -> None:
    assert discovery.of_answer(result) is None


def test_another_version_of_keyed_is_keyed() -> None:
    answer = {"protocolVersion": 2, "agentCapabilities": {"modes": True}}
    assert discovery.of_answer(answer) == "keyed"


def test_true_is_not_version_one() -> None:
    assert discovery.of_answer({"protocolVersion": True}) is None
    assert discovery.of_request("initialize", {"protocolVersion": True}) is None


def test_an_undecoded_answer_is_judged_like_a_decoded_one() -> None:
    assert discovery.of_text(b'{"protocolVersion":1}') == "acp"
    assert discovery.of_text(Raw(b'{"userAgent":"codex"}')) == "codex"


@pytest.mark.parametrize("text", [b"", b"{", b'"\xff"', b"[" * 100_000])
def test_text_that_is_not_json_is_not_a_dialect(text: bytes) -> None:
    assert discovery.of_text(text) is None


@pytest.mark.parametrize(
    ("method", "params", "dialect"),
    [
        ("initialize", {"protocolVersion": 1, "clientCapabilities": {"fs": {}}}, "acp"),
        ("initialize", {"protocolVersion": 1}, "acp"),
        ("initialize", {"protocolVersion": 1, "clientCapabilities": {"prompt": {}}}, "keyed"),
        ("initialize", {"protocolVersion": 1, "clientCapabilities": {"mcp": {}}}, "keyed"),
        ("initialize", {"clientInfo": {"name": "n"}}, "codex"),
        ("initialize", {"service_name": "s", "clientInfo": {}}, "threads"),
        ("initialize", {"protocolVersion": "1.0", "capabilities": {}}, "tagged"),
        ("initialize", {"protocolVersion": "2025-01-01"}, "oneshot"),
        ("threadStart", None, "threads"),
        ("threadResume", {}, "threads"),
        ("turn", {}, "threads"),
        ("prompt", {"prompt": "hi"}, "oneshot"),
        ("session/list", {}, "chained"),
        ("sendMessage", [], "chained"),
    ],
)
def test_a_clients_first_request_decides_its_dialect(
    method: str, params: Any, dialect: str
) -> None:
    assert discovery.of_request(method, params) == dialect


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("initialize", {}),
        ("initialize", None),
        ("initialize", {"protocolVersion": 1.5, "clientInfo": {}}),
        ("session/prompt", {}),
        ("", {}),
    ],
)
def test_a_first_request_of_no_known_dialect_is_not_guessed(method: str, params: Any) -> None:
    assert discovery.of_request(method, params) is None


def test_every_dialect_that_a_rule_can_name_can_be_chosen() -> None:
    assert list(discovery.DIALECTS) == [
        "acp",
        "codex",
        "oneshot",
        "threads",
        "tagged",
        "keyed",
        "chained",
    ]


@pytest.mark.parametrize(
    ("code", "message", "proved"),
    [
        (-32601, "Method not found", True),
        (-32600, "Invalid request: unknown variant `turn/go`, expected one of `a`", True),
        (-32600, "turn/go requires experimentalApi capability", True),
        (-32600, "Invalid request: unknown variant `other`", False),
        (-32600, "Invalid request", False),
        (-32602, "unknown variant `turn/go`", False),
        (-32603, "turn/go requires experimentalApi capability", False),
        (0, "", False),
    ],
)
def test_only_an_error_that_proves_it_allows_another_try(
    code: int, message: str, proved: bool
) -> None:
    assert discovery.not_executed(code, message, "turn/go") is proved


def test_the_cache_forgets_when_the_file_is_another() -> None:
    cache = MemoryCache()
    program = Program("/bin/agent", 10, 20)
    cache.put(program, "dialect", "keyed")
    assert cache.get(Program("/bin/agent", 10, 20), "dialect") == "keyed"
    assert cache.get(Program("/bin/agent", 11, 20), "dialect") is None
    assert cache.get(Program("/bin/agent", 10, 21), "dialect") is None


def test_the_cache_keeps_concepts_apart_and_the_last_word_counts() -> None:
    cache = MemoryCache()
    program = Program("/bin/agent", 10, 20)
    cache.put(program, "prompt", "chat/send")
    cache.put(program, "prompt", "sendMessage")
    assert cache.get(program, "prompt") == "sendMessage"
    assert cache.get(program, "list") is None


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/new", {"cwd": "/"}),
        ("session/new", {"cwd": "/", "mcpServers": [], "modeId": "plan"}),
        ("session/new", {"cwd": "/", "mcpServers": [], "model": {"modelID": "large"}}),
        ("session/new", {"cwd": "/", "mcpServers": [{"type": "remote", "url": "u"}]}),
        ("session/load", {"sessionId": "s"}),
        ("session/prompt", {"sessionId": "s", "content": []}),
        ("authenticate", {"method": "password", "password": "p"}),
    ],
)
def test_requests_that_only_the_keyed_dialect_has(method: str, params: Any) -> None:
    assert discovery.is_keyed(method, params)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/new", {"cwd": "/", "mcpServers": []}),
        ("session/new", {"cwd": "/", "mcpServers": [{"name": "a", "command": "b"}]}),
        ("session/new", {"cwd": "/", "mcpServers": None, "model": "large"}),
        ("session/new", {}),
        ("session/load", {"sessionId": "s", "cwd": "/", "mcpServers": []}),
        ("session/prompt", {"sessionId": "s", "prompt": [], "content": []}),
        ("session/prompt", []),
        ("authenticate", {"methodId": "m", "method": "m"}),
        ("session/cancel", {"sessionId": "s"}),
    ],
)
def test_requests_that_acp_may_have(method: str, params: Any) -> None:
    assert not discovery.is_keyed(method, params)


@pytest.mark.parametrize(
    ("word", "dialect"),
    [
        *((name, name) for name in discovery.DIALECTS),
        ("ACP", "acp"),
        (" Threads ", "threads"),
        ("asp", "threads"),
        ("App Server Protocol", "threads"),
        ("app_server_protocol", "threads"),
        ("threadStart", "threads"),
        ("2025-06-18", "oneshot"),
        ("finish_reason", "oneshot"),
        ("agentkit", "tagged"),
        ("messageChunk", "tagged"),
        ("contentChunk", "keyed"),
        ("fallback chains", "chained"),
        ("prompt/send", "chained"),
        ("codex-app-server", "codex"),
    ],
)
def test_a_dialect_is_named_by_our_word_or_by_one_of_its_document(word: str, dialect: str) -> None:
    assert discovery.dialect_named(word) == dialect


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("apc", "did you mean 'acp'? The dialects are acp, codex"),
        ("codx", "did you mean 'codex'?"),
        ("contentchunks", "did you mean 'keyed'?"),
        ("app-server", "is ambiguous: name codex (the Codex app-server), or threads"),
        ("latin", "there is no dialect 'latin'; the dialects are acp, codex, oneshot"),
        ("", "there is no dialect ''"),
    ],
)
def test_a_word_that_means_no_dialect_is_answered_with_the_nearest(word: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        discovery.dialect_named(word)
    assert words in str(caught.value)


def test_a_word_that_is_not_a_name_at_all_is_refused_in_few_words() -> None:
    with pytest.raises(UsageError, match="must be text, not 7"):
        discovery.dialect_named(7)  # type: ignore[arg-type]
    with pytest.raises(UsageError) as caught:
        discovery.dialect_named("x" * 100_000)
    assert len(str(caught.value)) < 500


def test_a_dialect_that_was_registered_is_named_like_the_others() -> None:
    assert discovery.dialect_named("latin", [*discovery.DIALECTS, "latin"]) == "latin"


def greetings(*refusals: DragomanError, argv: Sequence[str] = ("agent",)) -> list[str]:
    """The dialects that are tried, one for each refusal and the one after it."""
    search = discovery.DialectSearch(argv)
    for refusal in refusals:
        if not search.go_on(refusal):
            break
    return search.tried


REFUSED = RemoteError(-32602, "no")


@pytest.mark.parametrize(
    ("refusals", "tried"),
    [
        ([REFUSED] * 9, ["acp", "oneshot", "tagged", "keyed", "threads", "chained"]),
        ([RemoteError(-32601, "no")] * 9, ["acp", "threads", "chained"]),
        ([InvalidAnswer("x"), REFUSED], ["acp", "oneshot", "tagged"]),
        ([ProtocolMismatch("x", dialect="keyed")], ["acp", "keyed"]),
        ([ProtocolMismatch("x", dialect="keyed"), REFUSED], ["acp", "keyed", "oneshot"]),
        ([ProtocolMismatch("x", version="2")], ["acp"]),
        ([AuthRequired()], ["acp"]),
        ([AuthRequired("unsupported version")], ["acp", "oneshot"]),
        ([CallTimeout("initialize", 1)], ["acp"]),
        ([ConnectionEnded()], ["acp"]),
        (
            [REFUSED, CallTimeout("initialize", 1), ConnectionEnded()],
            ["acp", "oneshot", "tagged", "keyed"],
        ),
        ([RemoteError(-32603, "x"), CallTimeout("initialize", 1)], ["acp", "oneshot"]),
        ([RemoteError(-32603, "x"), REFUSED], ["acp", "oneshot", "tagged"]),
        ([SpawnError("x")], ["acp"]),
    ],
)
def test_a_program_that_refuses_a_greeting_is_greeted_in_the_next_dialect(
    refusals: list[DragomanError], tried: list[str]
) -> None:
    assert greetings(*refusals) == tried


def test_an_app_server_that_is_not_codex_is_first_taken_for_one_of_threads() -> None:
    server = ("agent", "app-server")
    assert greetings(REFUSED, argv=server) == ["codex", "threads"]
    assert greetings(REFUSED, REFUSED, argv=server)[2] == "acp"
    wants = RemoteError(-32602, "Invalid params", {"detail": "missing `protocolVersion`"})
    assert greetings(wants, argv=server) == ["codex", "acp"]
