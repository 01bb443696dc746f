"""One agent of our kit, a plain client of each dialect: all hear one story, less the losses.

The clients are written with plain `json`; what they may miss is what the dialect's LOSSES say.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.events.words import Part
from dragoman.testing.storyteller import (
    Ask,
    ChangeFile,
    Choices,
    Count,
    Fail,
    FinishTool,
    Say,
    SetOption,
    SetPlan,
    Step,
    Story,
    SwitchMode,
    Think,
    UseTool,
    dumps,
)
from dragoman.transports import spawn
from tests.aio import aio
from tests.integration.peers import ENVIRONMENT
from tests.integration.stories import (
    ASKING,
    BROKEN,
    CHOOSING,
    DIALECTS,
    ENDLESS,
    LOST,
    PAST,
    WORK,
)
from tests.integration.story_clients import LISTENERS, Listener, Note
from tests.unit.rpc.other_side import OtherSide

PROGRAM = [sys.executable, "-m", "tests.integration.story_agent"]


@asynccontextmanager
async def listening(
    story: Story,
    dialect: str,
    *,
    allows: bool = True,
    open: bool = True,
    wishes: dict[str, Any] | None = None,
) -> AsyncIterator[Listener]:
    stream = await spawn([*PROGRAM, dumps(story)], env=ENVIRONMENT)
    try:
        agent = OtherSide(stream)
        stream.start(agent)
        listener = LISTENERS[dialect](agent, allows=allows)
        listener.wishes = wishes or {}
        if open:
            await listener.open()
        yield listener
    finally:
        await stream.aclose()


class Expected:
    """What a client of a dialect is going to note, given what the dialect loses."""

    def __init__(self, lost: Iterable[Part], *, allows: bool = True) -> None:
        self._lost = frozenset(lost)
        self._allows = allows or Part.PERMISSIONS in self._lost
        self._changes: dict[str, list[Note]] = {}
        self._titles: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._count: Count | None = None
        self._failed = False
        self.notes: list[Note] = []

    def of(self, story: Story) -> list[Note]:
        self._offer(story.choices)
        self._walk(story.steps)
        if not self._failed:
            if self._count is not None and Part.TURN_USAGE not in self._lost:
                used = {"input": self._count.input, "output": self._count.output}
                self.notes.append({"what": "turn", **used})
            self.notes.append({"what": "end", "stop": "end_turn"})
        return self.notes

    def _offer(self, choices: Choices) -> None:
        self._values = {id: values[0] for id, values in choices.values.items()}
        if choices.modes:
            self._note("modes", Part.MODES, known=list(choices.modes), mode=choices.modes[0])
        if choices.values:
            self._note("options", Part.OPTIONS, values=dict(self._values))
        if choices.commands:
            self._note("commands", Part.COMMANDS, known=list(choices.commands))

    def _walk(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self._step(step)

    def _note(self, what: str, losable: Part | None, **told: Any) -> None:
        if losable is None or losable not in self._lost:
            self.notes.append({"what": what, **told})

    def _text(self, what: str, text: str) -> None:
        if self.notes and self.notes[-1]["what"] == what:
            self.notes[-1]["text"] += text
        else:
            self.notes.append({"what": what, "text": text})

    def _step(self, step: Step) -> None:
        lost = self._lost
        match step:
            case Say(text=text):
                self._text("say", text)
            case Think(text=text):
                if Part.THOUGHTS not in lost:
                    self._text("think", text)
            case UseTool():
                self._titles[step.id] = step.title
                self._note("tool", Part.TOOLS, **self._fields(step))
            case ChangeFile():
                note: Note = {"what": "changed", "path": step.path}
                if Part.CHANGE_TEXTS not in lost:
                    note |= {"old": step.old, "new": step.new}
                self._changes.setdefault(step.tool, []).append(note)
            case FinishTool():
                if step.status == "completed" and Part.CHANGES not in lost:
                    self.notes += self._changes.get(step.id, [])
                if Part.TOOL_ENDS not in lost:
                    told = {"id": step.id, "status": step.status, "output": step.output}
                    self._note("finished", Part.TOOLS, **told)
            case SetPlan(entries=entries):
                if Part.PLAN_ENTRIES in lost:
                    marks = {"completed": "x", "in_progress": ">", "pending": " "}
                    text = "\n".join(f"- [{marks[status]}] {text}" for text, status in entries)
                    self._note("plan", Part.PLANS, text=text)
                else:
                    self._note("plan", Part.PLANS, entries=list(entries))
            case SwitchMode(mode=mode):
                self._note("mode", Part.MODES, mode=mode)
            case SetOption(id=id, value=value):
                self._values[id] = value
                self._note("options", Part.OPTIONS, values=dict(self._values))
            case Count():
                self._count = step
                self._note("context", Part.CONTEXT_USAGE, used=step.used, size=step.size)
            case Ask():
                title = self._titles[step.tool]
                self._note("asked", Part.PERMISSIONS, tool=step.tool, title=title)
                self._walk(step.allowed if self._allows else step.refused)
            case Fail():
                self._failed = True
                told = {} if Part.FAILURES in lost else {"message": step.message}
                self._note("failed", None, **told)
            case _:
                raise AssertionError(step)

    def _fields(self, step: UseTool) -> Note:
        given = step.input
        if Part.TOOL_INPUT_VALUES in self._lost:
            given = json.dumps(given, separators=(",", ":"))
        fields = (
            ("id", step.id, Part.TOOL_IDS),
            ("name", step.name, Part.TOOL_NAMES),
            ("title", step.title, Part.TOOL_TITLES),
            ("kind", step.kind, Part.TOOL_KINDS),
            ("input", given, Part.TOOL_INPUT),
            ("path", step.path, Part.TOOL_LOCATIONS),
        )
        return {name: value for name, value, part in fields if part not in self._lost}


@pytest.mark.parametrize("dialect", DIALECTS)
@aio
async def test_a_client_of_every_dialect_hears_the_story(dialect: str) -> None:
    async with listening(WORK, dialect) as listener:
        await listener.prompt("Tell me.")
    assert listener.notes == Expected(LOST[dialect]).of(WORK)


@pytest.mark.parametrize("dialect", ASKING)
@aio
async def test_a_refusal_turns_the_story(dialect: str) -> None:
    async with listening(WORK, dialect, allows=False) as listener:
        await listener.prompt("Tell me.")
    assert listener.notes == Expected(LOST[dialect], allows=False).of(WORK)
    assert {"what": "say", "text": "I left it."} in listener.notes


@pytest.mark.parametrize("dialect", DIALECTS)
@aio
async def test_a_client_of_every_dialect_hears_that_a_turn_failed(dialect: str) -> None:
    async with listening(BROKEN, dialect) as listener:
        await listener.prompt("Tell me.")
    assert listener.notes == Expected(LOST[dialect]).of(BROKEN)


@pytest.mark.parametrize("dialect", ["acp", "tagged", "keyed"])
@aio
async def test_a_client_can_cancel_where_its_dialect_says_how(dialect: str) -> None:
    async with listening(ENDLESS, dialect) as listener:
        hear = listener.hear

        def cancelling(method: str, params: Any, message: Any) -> None:
            hear(method, params, message)
            if listener.notes[-1]["what"] == "tool":
                about = {"sessionId": listener.session}
                if dialect == "tagged":
                    listener.send("session/cancel", about)
                else:
                    cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": about}
                    listener.agent.say(cancel)

        listener.hear = cancelling  # type: ignore[method-assign]
        await listener.prompt("Tell me.")
    assert listener.notes[-1] == {"what": "end", "stop": "cancelled"}


# -- choices


def said(listener: Listener) -> str:
    return "".join(note["text"] for note in listener.notes if note["what"] == "say")


@aio
async def test_a_client_of_acp_chooses_a_mode_a_model_and_an_option() -> None:
    async with listening(CHOOSING, "acp") as listener:
        here = {"sessionId": listener.session}
        assert "result" in await listener.call("session/set_mode", {**here, "modeId": "write"})
        for id, value in (("model", "house/large"), ("effort", "high")):
            params = {**here, "configId": id, "value": value}
            options = (await listener.call("session/set_config_option", params))["result"]
            values = {o["id"]: o["currentValue"] for o in options["configOptions"]}
            assert values[id] == value
        await listener.prompt("What is chosen?")
        assert said(listener) == "the mode is write; model is house/large; effort is high"


@aio
async def test_a_client_of_the_keyed_dialect_chooses_a_mode_and_opens_with_a_model() -> None:
    model = {"providerID": "house", "modelID": "large"}
    async with listening(CHOOSING, "keyed", wishes={"modeId": "write", "model": model}) as listener:
        assert listener.notes[0] == {"what": "modes", "known": ["plan", "write"], "mode": "write"}
        await listener.prompt("What is chosen?")
        assert said(listener) == "the mode is write; model is house/large; effort is low"
        here = {"sessionId": listener.session}
        assert "result" in await listener.call("session/set_mode", {**here, "modeId": "plan"})
        refused = await listener.call("session/set_mode", {**here, "modeId": "dance"})
        assert "error" in refused
        listener.notes.clear()
        await listener.prompt("And now?")
        assert said(listener).startswith("the mode is plan;")


@pytest.mark.parametrize("dialect", DIALECTS)
@aio
async def test_a_slash_command_is_carried_out_whatever_the_dialect(dialect: str) -> None:
    """Only ACP lists them, but everybody can type one."""
    async with listening(CHOOSING, dialect) as listener:
        await listener.prompt("/review the end")
        assert said(listener) == "carried out the end"


# -- sessions


@aio
async def test_earlier_sessions_are_listed_and_loaded() -> None:
    questions = [text for who, text in PAST.messages if who == "user"]
    answers = [text for who, text in PAST.messages if who == "agent"]
    async with listening(WORK, "acp") as listener:
        listed = (await listener.call("session/list", {}))["result"]["sessions"]
        assert [(s["sessionId"], s["title"]) for s in listed] == [(PAST.id, PAST.title)]
        load = listener.send("session/load", {"sessionId": PAST.id, "cwd": "/w", "mcpServers": []})
        heard: list[Any] = []
        listener.hear = lambda method, params, message: heard.append(params)  # type: ignore[method-assign]
        assert "error" not in await listener.answer_to(load)
        chunks = [
            (p["update"]["sessionUpdate"], p["update"]["content"]["text"])
            for p in heard
            if "content" in p["update"]
        ]
        assert chunks == [(f"{who}_message_chunk", text) for who, text in PAST.messages]
    async with listening(WORK, "keyed") as listener:
        listener.session = PAST.id
        loaded = await listener.call("session/load", {"sessionId": PAST.id, "cwd": "/w"})
        assert loaded["result"]["sessionId"] == PAST.id
        assert [note for note in listener.notes if note["what"] == "say"] == [
            {"what": "say", "text": "".join(text for _, text in PAST.messages)}
        ]
    async with listening(WORK, "threads", open=False) as listener:
        state = (await listener.call("threadResume", {"threadId": PAST.id}))["result"]
        turns = state["turns"]
        assert [turn["text"] for turn in turns] == questions
        assert [turn["content"] for turn in turns] == answers
        assert state["lastResult"]["content"] == answers[-1]
    async with listening(WORK, "chained", open=False) as listener:
        sessions = await listener.call("session/list", {"limit": 50, "offset": 0})
        listed = sessions["result"]["sessions"]
        assert [(s["id"], s["title"]) for s in listed] == [(PAST.id, PAST.title)]
        listener.session = PAST.id
        await listener.prompt("Go on.")
        assert {"what": "say", "text": "It is done."} in listener.notes
