"""Tests of session updates that are not stable yet."""

from __future__ import annotations

import json
from typing import Any, get_args

from msgspec import UNSET

from dragoman.dialects.acp import v1
from dragoman.dialects.acp.v1.unstable import updates
from tests.unit.dialects.acp.v1 import samples


def update(value: dict[str, Any]) -> Any:
    data = json.dumps({"sessionId": "s1", "update": value}).encode()
    return v1.decode(data, updates.SessionNotification).update


def test_every_kind_of_update_has_its_type() -> None:
    seen = {type(update(sample)) for sample in samples.UPDATES + samples.UNSTABLE_UPDATES}
    assert seen == set(get_args(updates.SessionUpdate)) - {v1.UnknownUpdate}


def test_an_unknown_update_is_kept_whole() -> None:
    value = {"sessionUpdate": "mood_update", "mood": 3}
    assert update(value) == v1.UnknownUpdate(raw=value)


def test_an_unknown_form_of_a_plan_is_kept_whole() -> None:
    plan = {"type": "gantt", "planId": "p", "bars": []}
    decoded = update({"sessionUpdate": "plan_update", "plan": plan})
    assert decoded.plan == updates.UnknownPlan(raw=plan)
    assert json.loads(v1.encode(decoded)) == {"sessionUpdate": "plan_update", "plan": plan}


def test_a_state_that_is_not_known_to_the_agent_is_not_an_unknown_state() -> None:
    base = {"sessionUpdate": "subagent_update", "sessionId": "c"}
    assert update(base | {"state": {"state": "unknown"}}).state == updates.UnconfirmedState()
    dreaming = {"state": "dreaming", "of": "sheep"}
    assert update(base | {"state": dreaming}).state == updates.UnknownState(raw=dreaming)
    assert update(base | {"state": None}).state is None
    assert update(base).state is UNSET


def test_a_malformed_stop_reason_means_not_reported() -> None:
    value = {
        "sessionUpdate": "subagent_update",
        "sessionId": "c",
        "state": {"state": "idle", "stopReason": 7},
    }
    decoded = update(value)
    assert decoded.state.stop_reason is None
    assert json.loads(v1.encode(decoded)) == value
