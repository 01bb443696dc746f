"""Requests that only a verification sends: unknown method or session, bad params, oversized line.

Also reads models, modes and login status where a dialect reports them. The method names and params
of these requests are only here. The rungs judge the responses.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from dragoman.client.conversation import Conversation, Peer
from dragoman.dialects import discovery
from dragoman.dialects.legacy import threads
from dragoman.errors import InvalidAnswer, RemoteError
from dragoman.events import model
from dragoman.events.parts import SessionOption
from dragoman.wire.messages import UNDECODABLE

UNKNOWN_METHOD: Final = "dragoman/nobody_knows_this"
"""A method that does not exist. It has no leading underscore, because an extension method may be
ignored."""

ACCEPTED: Final = 0
"""Result of `code_of` if the peer accepted a request that should fail."""

Question = tuple[str, dict[str, Any]]


METHODS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    discovery.ACP: {
        "create": ("session/new", "sessions"),
        "list": ("session/list", "lists_sessions"),
        "load": ("session/load", "loads_sessions"),
        "resume": ("session/resume", "resumes_sessions"),
        "prompt": ("session/prompt", "echo"),
    },
    discovery.CODEX: {
        "create": ("thread/start", "sessions"),
        "list": ("thread/list", "lists_sessions"),
        "resume": ("thread/resume", "resumes_sessions"),
        "prompt": ("turn/start", "echo"),
    },
}
"""For dialects with one known method name for each purpose: the method, and the fact on the card
that proves that the peer responded to it."""

CONCEPTS: Final = ("create", "list", "load", "resume", "prompt")
"""The purposes of methods of a legacy dialect."""


def methods_of(peer: Peer, facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the method names that the peer responded to, by purpose. `facts` are the fields of its
    card."""
    table = METHODS.get(peer.dialect)
    if table is not None:
        return {concept: name for concept, (name, fact) in table.items() if facts.get(fact)}
    known = {concept: _known(peer, concept) for concept in CONCEPTS}
    return {concept: name for concept, name in known.items() if name}


def _known(peer: Peer, concept: str) -> str:
    """Return the method name that a peer of a legacy dialect responded to, or an empty string if
    none."""
    return peer.client.method_names.known(concept) or ""


def with_all_params(peer: Peer, workspace: Path) -> list[Question]:
    """Return requests with all the params that the rung `params` tries for them; none if the
    dialect has no request that is safe to send. The requests spend no model call: at most they open
    a session."""
    cwd = str(workspace)
    create = _known(peer, "create") if peer.dialect not in METHODS else ""
    match peer.dialect:
        case discovery.ACP:
            return [("session/new", {"cwd": cwd, "mcpServers": []})]
        case discovery.CODEX:
            return [("thread/start", {"cwd": cwd})]
        case discovery.TAGGED:
            return [(create, {"metadata": {"workDir": cwd}})]
        case discovery.KEYED:
            return [(create, {"cwd": cwd, "mcpServers": []})]
        case discovery.THREADS:
            service = {"service_name": threads.SERVICE, "experimentalRawEvents": False}
            return [(threads.START, service)]
        case discovery.CHAINED:
            asked: list[Question] = [
                (_known(peer, "list"), {"limit": 1, "offset": 0}),
                (create, {"title": "dragoman", "context": {"cwd": cwd}}),
            ]
            return [(method, params) for method, params in asked if method]
        case _:
            return []


def unknown_session(peer: Peer, workspace: Path) -> Question | None:
    """Return a request for a session that does not exist; None if the dialect has no such request
    that is known to spend no model call."""
    nobody = str(uuid.uuid4())
    if peer.dialect == discovery.CODEX:
        return "thread/read", {"threadId": nobody, "includeTurns": False}
    if peer.dialect == discovery.THREADS:
        return threads.RESUME, {"threadId": nobody}
    if peer.dialect == discovery.KEYED:
        return "session/load", {"sessionId": nobody, "cwd": str(workspace)}
    if peer.dialect != discovery.ACP:
        return None
    place = {"sessionId": nobody, "cwd": str(workspace), "mcpServers": []}
    if peer.capabilities.load:
        return "session/load", place
    if peer.capabilities.resume:
        return "session/resume", place
    return "session/set_mode", {"sessionId": nobody, "modeId": "default"}


def bad_params(peer: Peer) -> Question | None:
    """Return a request with params of the wrong types, or None if there is none for the dialect. At
    worst it opens a session."""
    if peer.dialect == discovery.CODEX:
        return "thread/start", {"cwd": 42}
    if peer.dialect in (discovery.ACP, discovery.KEYED):
        return "session/new", {"cwd": 42, "mcpServers": "none"}
    if peer.dialect == discovery.TAGGED:
        return "session/new", {"metadata": 42}
    if peer.dialect == discovery.THREADS:
        return threads.START, {"service_name": 42}
    if peer.dialect == discovery.CHAINED and (create := _known(peer, "create")):
        return create, {"title": 42, "context": "none"}
    return None


def unknown_method() -> Question:
    """Return a request for a method that no peer has."""
    return UNKNOWN_METHOD, {}


def oversized(question: Question, size: int) -> Question:
    """Return a request with an additional param `padding` of `size` characters."""
    method, params = question
    return method, {**params, "padding": "x" * size}


def names_version(line: bytes) -> bool:
    """Return whether the response to the handshake has a protocol version."""
    try:
        answer = msgspec.json.decode(line)
    except UNDECODABLE:
        return False
    result = answer.get("result") if isinstance(answer, dict) else None
    return isinstance(result, dict) and "protocolVersion" in result


async def code_of(peer: Peer, question: Question, *, timeout: float) -> int:
    """Send a request and return the error code of the response; `ACCEPTED` if it is not an error.

    Raises `CallTimeout` or another `DragomanError` if no response came.
    """
    method, params = question
    try:
        await peer.client.connection.call(method, params, timeout=timeout)
    except RemoteError as error:
        return error.code
    except InvalidAnswer:
        return ACCEPTED
    return ACCEPTED


async def needs_login(peer: Peer) -> bool | None:
    """Ask the peer for its account status and return whether a login is missing; None if its
    dialect has no request for that."""
    if peer.dialect != discovery.CODEX:
        return None
    await peer.client.account()
    return bool(peer.client.needs_login)


async def models_of(
    peer: Peer, conversation: Conversation, events: list[model.Event]
) -> tuple[str, ...] | None:
    """Return the ids of the models that the peer offers in a session; None if it does not list
    them. `events` are those that came while the session was opened."""
    if peer.dialect == discovery.CODEX:
        return tuple(entry.id for entry in await peer.client.models())
    if conversation.model_choices:
        return tuple(choice.value for choice in conversation.model_choices)
    return _choices(events, "model")


def model_in_use(events: list[model.Event]) -> str | None:
    """Return the model that the last of these events to name one reports as in use; None if no
    event does."""
    for event in reversed(events):
        if not isinstance(event, model.SettingsChanged):
            continue
        if isinstance(event.model, str):
            return event.model
        for option in event.options if isinstance(event.options, tuple) else ():
            if _is(option, "model") and isinstance(option.value, str):
                return option.value
    return None


def modes_of(events: list[model.Event]) -> tuple[str, ...] | None:
    """Return the ids of the modes that a session last reported; None if it reported none."""
    for event in reversed(events):
        if isinstance(event, model.SettingsChanged) and isinstance(event.modes, tuple):
            return tuple(option.id for option in event.modes)
    return _choices(events, "mode")


def _choices(events: list[model.Event], category: str) -> tuple[str, ...] | None:
    for event in reversed(events):
        if not isinstance(event, model.SettingsChanged) or not isinstance(event.options, tuple):
            continue
        option = next((each for each in event.options if _is(each, category)), None)
        if option is not None:
            return tuple(choice.value for choice in option.choices)
    return None


def _is(option: SessionOption, category: str) -> bool:
    return option.category == category and bool(option.choices)
