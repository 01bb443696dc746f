"""The witnesses are witnesses: what a teller says is what its protocol has, by other authorities.

In ACP these are the models of the official SDK; in the other dialects the examples of the document.
A teller may only use methods and fields that an example has, or that the document names in words.
"""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.testing.storyteller import Fail, Step
from tests.fixtures.documents import load
from tests.integration.stories import CHOICES, WORK
from tests.interop.models import judge
from tests.unit.testing.storyteller.hearing import call, heard

ALLOWED = {"id": "ask-1", "result": {"outcome": {"outcome": "selected", "optionId": "yes"}}}
ONCE = {"id": "ask-1", "result": {"decision": "once"}}

TALKS: dict[str, list[Any]] = {
    "acp": [
        call("initialize", protocolVersion=1),
        call("session/new", cwd="/w"),
        call("session/list"),
        call("session/load", sessionId="old"),
        call("session/resume", sessionId="old"),
        call("session/set_mode", sessionId="s", modeId="plan"),
        call("session/set_config_option", sessionId="s", configId="effort", value="low"),
        call("session/prompt", sessionId="s", prompt=[]),
        ALLOWED,
    ],
    "oneshot": [call("initialize"), call("prompt", text="hi")],
    "threads": [
        call("threadStart", service_name="x"),
        call("threadResume", threadId="old"),
        call("turn", threadId="t", text="hi"),
    ],
    "tagged": [
        call("initialize", protocolVersion="1"),
        call("session/new", metadata={}),
        call("session/prompt", sessionId="s", prompt=[]),
    ],
    "keyed": [
        call("initialize", protocolVersion=1),
        call("session/new", cwd="/w"),
        call("session/set_mode", sessionId="s", modeId="plan"),
        call("session/prompt", sessionId="s", content=[]),
        ONCE,
    ],
    "chained": [
        call("list_sessions"),
        call("create_session"),
        call("chat/send", sessionId="s", message="hi"),
    ],
}

RESULTS = {
    1: "InitializeResponse",
    2: "NewSessionResponse",
    3: "ListSessionsResponse",
    4: "LoadSessionResponse",
    5: "ResumeSessionResponse",
    6: "SetSessionModeResponse",
    7: "SetSessionConfigOptionResponse",
}


def test_the_teller_of_acp_says_what_the_official_models_read() -> None:
    judged = 0
    for message in heard("acp", *TALKS["acp"], steps=WORK.steps, choices=CHOICES):
        if message.get("method") == "session/update":
            judge("SessionNotification", message["params"])
        elif message.get("method") == "session/request_permission":
            judge("RequestPermissionRequest", message["params"])
        elif message["id"] == 8:
            # The tokens of a turn are not stable yet; the models read the rest.
            assert message["result"].pop("usage")
            judge("PromptResponse", message["result"])
        else:
            judge(RESULTS[message["id"]], message["result"])
        judged += 1
    assert judged > len(WORK.steps)


FAMILIES = {
    "list_sessions": "session/list",
    "create_session": "session/create",
    "chat/send": "prompt/send",
    "completion/delta": "message/delta",
    "completion/status": "turn/status",
    "thinking/delta": "reasoning/delta",
    "action/start": "tool/start",
    "action/result": "tool/result",
}
"""The names of the third family, and those that the document's examples have."""

IN_WORDS = {
    # A plan has no fields of its own in this document, so it uses those that an update has.
    ("tagged", "session/update.update.planUpdate"): {"chunk"},
}
FREE = {"input", "serverCapabilities", "capabilities", "metadata"}
"""Fields whose content is the agent's own."""


def fields(value: Any, where: str = "") -> set[str]:
    """The places of all fields in a message; an update that is tagged has its type on the way."""
    if isinstance(value, list):
        return set().union(*(fields(item, where) for item in value)) if value else set()
    if not isinstance(value, dict):
        return set()
    if where.endswith(".update") and "type" in value:
        where = f"{where}.{value['type']}"
    found: set[str] = set()
    for name, inner in value.items():
        found.add(f"{where}.{name}")
        if name not in FREE:
            found |= fields(inner, f"{where}.{name}")
    return found


@pytest.mark.parametrize("dialect", sorted(set(TALKS) - {"acp"}))
def test_a_teller_says_only_what_its_document_has(dialect: str) -> None:
    known: set[str] = set()
    for example in load(dialect).values():
        if example.sender == "agent":
            known |= fields(example.body, example.method)
    for (name, where), words in IN_WORDS.items():
        if name == dialect:
            known |= {f"{where}.{word}" for word in words}
    methods = {number: message.get("method") for number, message in enumerate(TALKS[dialect], 1)}
    failing: tuple[Step, ...] = (Fail("rate_limit", "later"),)
    for steps in (WORK.steps, failing):
        for message in heard(dialect, *TALKS[dialect], steps=steps, choices=CHOICES):
            method = message.get("method") or methods[message["id"]]
            if method == "storyteller/said":
                # The dialect leaves the names of progress to the agent.
                continue
            body = message.get("params", message.get("result", {}))
            told = fields(body, FAMILIES.get(method, method))
            assert told <= known, told - known
