"""Shapes are judged strictly, and whatever comes is judged and not stumbled over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.testing.conformance import shapes
from tests.amounts import SOME

TEXT = {"type": "text", "text": "x"}
CHUNK = {"sessionUpdate": "agent_message_chunk", "content": TEXT}
CALL = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "T"}
ENTRY = {"content": "c", "priority": "high", "status": "pending"}
SELECT = {
    "id": "o", "name": "O", "type": "select", "currentValue": "a",
    "options": [{"value": "a", "name": "A"}],
}  # fmt: skip

GOOD_UPDATES: list[dict[str, Any]] = [
    CHUNK,
    {**CHUNK, "messageId": None},
    {**CHUNK, "content": {"type": "image", "data": "", "mimeType": "image/png"}},
    {**CHUNK, "content": {"type": "resource_link", "uri": "u", "name": "n"}},
    {**CHUNK, "content": {"type": "resource", "resource": {"uri": "u", "blob": ""}}},
    CALL,
    {**CALL, "kind": "execute", "status": "failed", "locations": [{"path": "/a"}]},
    {**CALL, "content": [{"type": "content", "content": TEXT}]},
    {**CALL, "content": [{"type": "diff", "path": "/a", "newText": ""}]},
    {**CALL, "content": [{"type": "terminal", "terminalId": "1"}]},
    {"sessionUpdate": "tool_call_update", "toolCallId": "t"},
    {"sessionUpdate": "plan", "entries": [ENTRY]},
    {"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "n"}]},
    {"sessionUpdate": "current_mode_update", "currentModeId": "m"},
    {"sessionUpdate": "config_option_update", "configOptions": [SELECT]},
    {"sessionUpdate": "usage_update", "used": 1, "size": 2},
    {"sessionUpdate": "usage_update", "used": 1, "size": 2,
     "cost": {"amount": 0.5, "currency": "USD"}},
    {"sessionUpdate": "something_new"},
]  # fmt: skip

BAD_UPDATES: list[Any] = [
    5,
    {},
    {**CHUNK, "messageId": 5},
    {**CHUNK, "content": None},
    {**CHUNK, "content": {"type": "text"}},
    {**CHUNK, "content": {"type": "audio", "data": ""}},
    {**CHUNK, "content": {"type": "resource", "resource": {"uri": "u"}}},
    {**CHUNK, "content": {"type": "hologram"}},
    {"sessionUpdate": "tool_call", "toolCallId": "t"},
    {**CALL, "status": "done"},
    {**CALL, "kind": "shell"},
    {**CALL, "locations": [{}]},
    {**CALL, "content": [5]},
    {**CALL, "content": [{"type": "diff", "path": "/a"}]},
    {**CALL, "content": [{"type": "poem"}]},
    {"sessionUpdate": "tool_call_update"},
    {"sessionUpdate": "plan"},
    {"sessionUpdate": "plan", "entries": [{**ENTRY, "status": "done"}]},
    {"sessionUpdate": "plan", "entries": ["x"]},
    {"sessionUpdate": "available_commands_update"},
    {"sessionUpdate": "available_commands_update", "availableCommands": [{}]},
    {"sessionUpdate": "current_mode_update", "modeId": "m"},
    {"sessionUpdate": "config_option_update"},
    {"sessionUpdate": "usage_update", "used": None, "size": 2},
    {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"currency": "USD"}},
    {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": 1}},
]


@pytest.mark.parametrize("update", GOOD_UPDATES)
def test_a_good_update_has_no_problem(update: dict[str, Any]) -> None:
    assert shapes.update(update) == ""


@pytest.mark.parametrize("update", BAD_UPDATES)
def test_a_bad_update_has_one(update: Any) -> None:
    assert shapes.update(update)


@pytest.mark.parametrize(
    ("judge", "good", "bad"),
    [
        (shapes.capabilities, [None, {}, {"loadSession": True, "auth": {"logout": {}}}],
         [[], {"loadSession": 1}, {"auth": {"logout": True}}, {"promptCapabilities": 5}]),
        (shapes.auth_methods, [None, [], [{"id": "a", "name": "A"}],
                               [{"id": "a", "name": "A", "type": "terminal", "args": ["x"]}]],
         [{}, [5], [{"id": "a"}], [{"id": "a", "name": "A", "type": "terminal", "args": "x"}],
          [{"id": "a", "name": "A", "type": "terminal", "env": []}]]),
        (shapes.modes, [{"currentModeId": "a", "availableModes": [{"id": "a", "name": "A"}]}],
         [None, {}, {"availableModes": [5]},
          {"currentModeId": "b", "availableModes": [{"id": "a", "name": "A"}]}]),
        (shapes.config_options, [[], [SELECT], [{"id": "b", "name": "B", "type": "boolean",
                                                 "currentValue": False}],
                                 [{"id": "x", "name": "X", "type": "of tomorrow"}]],
         [None, [5], [{**SELECT, "currentValue": "b"}], [{**SELECT, "options": []}],
          [{**SELECT, "options": [5]}], [{**SELECT, "options": None}],
          [{"id": "b", "name": "B", "type": "boolean", "currentValue": "yes"}]]),
        (shapes.session_info, [{"sessionId": "s", "cwd": "/"}], [5, {"sessionId": "s"}]),
    ],
)  # fmt: skip
def test_each_shape_is_distinguished_from_what_it_is_not(
    judge: Callable[[object], str], good: list[Any], bad: list[Any]
) -> None:
    assert [judge(value) for value in good] == [""] * len(good)
    assert all(judge(value) for value in bad)


NAMES = st.sampled_from(
    ["type", "sessionUpdate", "content", "options", "id", "name", "entries", "availableModes",
     "currentModeId", "currentValue", "locations", "resource", "args", "env", "cost"]
)  # fmt: skip
WORDS = st.sampled_from(
    ["tool_call", "plan", "agent_message_chunk", "usage_update", "config_option_update", "select",
     "boolean", "terminal", "resource", "diff", "content", "text", "available_commands_update"]
)  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)


@SOME
@given(ANYTHING)
def test_nothing_that_can_come_makes_a_judge_stumble(value: Any) -> None:
    for judge in (
        shapes.update,
        shapes.capabilities,
        shapes.auth_methods,
        shapes.modes,
        shapes.config_options,
        shapes.session_info,
        shapes.block,
    ):
        assert isinstance(judge(value), str)
