"""The fold of the page and `dragoman.events.fold` give the same view for the same events."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dragoman.console
from dragoman.console.session_feed import as_json
from dragoman.events import fold, model, words
from dragoman.events.view import View

FOLD = Path(dragoman.console.__file__).parent / "static" / "fold.js"
PROGRAM = Path(__file__).with_name("fold_views.mjs")
FIXTURES = Path(__file__).parents[1] / "fixtures" / "fold.json"
BASE = {
    "source": {"dialect": "acp", "connection": "x"},
    "seq": 1,
    "session": "s",
    "turn": None,
    "native": "",
    "raw": None,
    "replay": False,
}


def comparable(view: View) -> Any:
    """A view in the format of the page's own `comparable`."""

    def plain(value: Any) -> Any:
        return msgspec.to_builtins(value, enc_hook=str)

    return {
        **{name: plain(getattr(view, name)) for name in ("title", "cwd", "model", "mode")},
        "messages": [
            {
                "role": plain(each.role),
                "message_id": each.message_id,
                "text": each.text,
                "blocks": plain(each.blocks),
            }
            for each in view.messages
        ],
        "tools": {
            id: {name: plain(getattr(tool, name)) for name in tool.__struct_fields__}
            for id, tool in view.tools.items()
        },
        "plans": {
            id: {"entries": plain(plan.entries), "text": plan.text}
            for id, plan in view.plans.items()
        },
        **{
            name: plain(getattr(view, name))
            for name in ("options", "modes", "commands", "usage", "changes", "turns")
        },
        "running": view.running,
        "waiting": sorted(view.waiting),
        "notices": view.notices,
        "failures": plain(view.failures),
    }


def folded_by_page(streams: list[list[Any]]) -> list[Any]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    lines = "".join(json.dumps(stream) + "\n" for stream in streams)
    done = subprocess.run(
        [node, str(PROGRAM), str(FOLD)],
        input=lines,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def events_of(stream: list[dict[str, Any]]) -> list[model.Event]:
    return [msgspec.convert(BASE | event, model.Event) for event in stream]


def test_both_folds_give_the_expected_views_of_the_fixtures() -> None:
    fixtures = json.loads(FIXTURES.read_text())
    streams = [[as_json(event) for event in events_of(each["events"])] for each in fixtures]
    by_page = folded_by_page(streams)
    for fixture, page in zip(fixtures, by_page, strict=True):
        here = comparable(fold.fold(events_of(fixture["events"])))
        for name, expected in fixture["view"].items():
            assert here[name] == expected, (fixture["name"], name)
        assert page == json.loads(json.dumps(here)), fixture["name"]


TEXT = {"type": "text", "text": "t"}
LINK = {"type": "link", "uri": "u", "name": "n", "mime_type": None}
CHANGE = {"path": "a", "op": "modify", "old_text": None, "new_text": "x", "diff": None}


def random_event(chance: random.Random) -> dict[str, Any]:
    pick, some = chance.choice, chance.random
    role = pick(["user", "agent", "thought"])
    tool = pick(["t1", "t2", "t3"])
    plan = pick(["main", "other"])
    kind = pick(
        """MessageDelta MessageDelta MessageDelta MessageSet ToolChanged ToolChanged ToolDelta
        FilesChanged PlanSet PlanDelta PlanRemoved SessionOpened SessionChanged SettingsChanged
        CommandsChanged TurnStarted TurnEnded UsageReported PermissionAsked PermissionAnswered
        InputAsked InputAnswered Noticed ErrorReported TurnState Compacted Unknown""".split()
    )
    event: dict[str, Any] = {"type": kind}
    match kind:
        case "MessageDelta":
            event |= {"role": role, "text": pick(["a", "b", ""])}
            event |= {"message_id": pick([None, None, "m1", "m2"])}
            event |= {"block": pick([None, None, TEXT, LINK])}
        case "MessageSet":
            event |= {"role": role, "message_id": pick(["m1", "m2"])}
            if some() < 0.8:
                event["blocks"] = pick([None, [TEXT, LINK], [TEXT, TEXT], []])
        case "ToolChanged":
            event["tool_id"] = tool
            values: dict[str, list[Any]] = {
                "title": [None, "Title"],
                "name": [None, "name"],
                "kind": ["edit", "execute"],
                "status": [each.value for each in words.ToolStatus],
                "input": [None, {"a": 1}],
                "output": [None, "out"],
                "content": [None, [TEXT, {"type": "terminal", "terminal_id": "x"}]],
                "locations": [None, [{"path": "a", "line": 3}]],
                "exit_code": [None, 0, 1],
                "error": [None, "bad"],
            }
            event |= {name: pick(each) for name, each in values.items() if some() < 0.4}
        case "ToolDelta":
            event |= {"tool_id": tool, "stream": pick(["output", "progress"]), "text": "p"}
            event["item"] = pick([None, None, TEXT])
        case "FilesChanged":
            event |= {"changes": pick([[], [CHANGE]]), "tool_id": pick([None, tool])}
            event["stage"] = pick([each.value for each in words.ChangeStage])
        case "PlanSet":
            entry = {"text": "do", "status": pick([each.value for each in words.PlanStatus])}
            event |= {"entries": pick([[], [entry]]), "text": pick([None, "p"]), "plan_id": plan}
        case "PlanDelta":
            event |= {"text": "q", "plan_id": plan}
        case "PlanRemoved":
            event["plan_id"] = plan
        case "SessionOpened":
            event |= {"how": "new", "cwd": pick([None, "/w"]), "title": pick([None, "T"])}
            event["model"] = pick([None, "big"])
        case "SessionChanged":
            if some() < 0.7:
                event["title"] = pick([None, "Other"])
        case "SettingsChanged":
            option = {"id": "o", "name": "O", "value": True}
            for name, each in {"options": [[option], []], "modes": [[option], []]}.items():
                if some() < 0.5:
                    event[name] = pick(each)
            for name in ("mode", "model"):
                if some() < 0.5:
                    event[name] = pick([None, "x"])
        case "CommandsChanged":
            event["commands"] = pick([[], [{"name": "c", "description": "d"}]])
        case "TurnStarted":
            event["prompt"] = pick([[], [TEXT], [TEXT, LINK]])
        case "TurnEnded":
            event |= {"outcome": pick(["ok", "failed"]), "stop": pick(["", "end_turn"])}
            event |= {"text": pick([None, None, "", "a", "ab", "t"])}
            event |= {"usage": pick([None, {"input_tokens": 3}])}
            event |= {"failure": pick([None, {"message": "broken"}])}
        case "UsageReported":
            event |= {"scope": pick(["context", "turn"]), "usage": {"total_tokens": 5}}
        case "PermissionAsked":
            event |= {"request_id": pick(["r1", "r2"]), "options": []}
        case "PermissionAnswered":
            event |= {"request_id": pick(["r1", "r2"]), "allowed": True}
        case "InputAsked":
            event |= {"request_id": pick(["r1", "r3"]), "mode": "form"}
        case "InputAnswered":
            event |= {"request_id": pick(["r1", "r3"]), "action": "accept"}
        case "Noticed":
            event |= {"severity": "warning", "title": "n"}
        case "ErrorReported":
            event |= {"scope": "turn", "failure": {"message": "f"}}
        case "TurnState":
            event["phase"] = pick([each.value for each in words.TurnPhase])
        case "Compacted":
            event["status"] = "done"
    return event


def test_both_folds_agree_on_random_streams() -> None:
    chance = random.Random(20)
    streams = []
    for _ in range(400):
        stream = [random_event(chance) for _ in range(chance.randint(1, 60))]
        streams.append(events_of(stream))
    by_page = folded_by_page([[as_json(event) for event in stream] for stream in streams])
    for events, page in zip(streams, by_page, strict=True):
        here = json.loads(json.dumps(comparable(fold.fold(events))))
        assert page == here, events


def test_names_of_the_language_in_events_are_names_like_others() -> None:
    """A worker of a fleet may send any text where a kind or an id is expected."""
    names = ["__proto__", "constructor", "__defineGetter__", "toString", "hasOwnProperty"]
    stream: list[dict[str, Any]] = []
    for name in names:
        usage = {"polluted": True}
        stream += [
            {"type": name, "polluted": True},
            {"type": "ToolChanged", "tool_id": name, "title": name, "status": name},
            {"type": "FilesChanged", "tool_id": name, "changes": [CHANGE], "stage": "proposed"},
            {"type": "ToolChanged", "tool_id": name, "status": name},
            {"type": "UsageReported", "scope": name, "usage": usage},
            {"type": "PlanSet", "plan_id": name, "text": name},
            {"type": "MessageDelta", "role": name, "message_id": name, "text": name},
            {"type": "PermissionAsked", "request_id": name},
        ]
    (view,) = folded_by_page([stream])
    assert sorted(view["tools"]) == sorted(view["plans"]) == sorted(view["usage"]) == sorted(names)
    assert [each["text"] for each in view["messages"]] == names
    assert {each["stage"] for each in view["tools"].values()} == {"proposed"}
    assert "polluted" not in view and all("polluted" not in each for each in view["messages"])
