"""The steps of a story, independent of any dialect, and their JSON.

Defines the steps and how they are passed to the program that tells them. The tellers next to this
module put steps into a dialect; the test that uses a story states what it proves.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Say:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Think:
    """A piece of the reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class UseTool:
    """A tool call begins. `path` is the file it works on."""

    id: str
    name: str
    title: str
    kind: str = "other"
    input: Any = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """A tool call is about to change a file; without an old text the file is new."""

    tool: str
    path: str
    new: str
    old: str | None = None


@dataclass(frozen=True, slots=True)
class FinishTool:
    """A tool call is over: completed or failed. If it completed, its changes are made."""

    id: str
    output: str = ""
    status: str = "completed"


@dataclass(frozen=True, slots=True)
class SetPlan:
    """The current plan. Each entry is a pair: its text, and whether it is pending, in_progress or
    completed."""

    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SwitchMode:
    """The agent switches to another of its modes."""

    mode: str


@dataclass(frozen=True, slots=True)
class SetOption:
    """The agent sets one of its options to another value; `model` is an option if there are
    models."""

    id: str
    value: str


@dataclass(frozen=True, slots=True)
class TellChoices:
    """Report the current mode and values in the answer, to prove that a choice arrived."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask whether a tool call may run, and then play the steps `allowed` or `refused`. In a dialect
    without such questions, the call is allowed."""

    tool: str
    allowed: tuple[Step, ...] = ()
    refused: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Count:
    """The tokens the turn used, and how full the context is."""

    input: int
    output: int
    used: int
    size: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until the turn is cancelled or the client disconnects."""


@dataclass(frozen=True, slots=True)
class Crash:
    """Exit at once, in the middle of the turn."""

    code: int = 3


@dataclass(frozen=True, slots=True)
class End:
    """End the turn, with a stop reason of ACP. A story without this step ends successfully."""

    stop: str = "end_turn"


@dataclass(frozen=True, slots=True)
class Fail:
    """End the turn with an error. `reason` is `rate_limit` or `internal`."""

    reason: str
    message: str


Step: TypeAlias = (
    Say
    | Think
    | UseTool
    | ChangeFile
    | FinishTool
    | SetPlan
    | SwitchMode
    | SetOption
    | TellChoices
    | Ask
    | Count
    | Wait
    | Crash
    | End
    | Fail
)

STEPS: dict[str, type] = {
    step.__name__: step
    for step in (
        Say,
        Think,
        UseTool,
        ChangeFile,
        FinishTool,
        SetPlan,
        SwitchMode,
        SetOption,
        TellChoices,
        Ask,
        Count,
        Wait,
        Crash,
        End,
        Fail,
    )
}


@dataclass(frozen=True, slots=True)
class Past:
    """A session from before the agent started. Each of its messages is a pair: who sent it (user or
    agent), and its text."""

    id: str
    title: str
    messages: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices in a session. The first of each is the initial value."""

    modes: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    options: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The name of each option, and its possible values."""
    commands: tuple[tuple[str, str], ...] = ()
    """The slash commands: a name and a description."""

    @property
    def values(self) -> dict[str, tuple[str, ...]]:
        """Every option with its values, including the model."""
        models = {"model": self.models} if self.models else {}
        return {**models, **dict(self.options)}


@dataclass(frozen=True, slots=True)
class Story:
    """The steps to play for each prompt, the stored sessions, and the choices to offer."""

    steps: tuple[Step, ...]
    past: tuple[Past, ...] = ()
    choices: Choices = Choices()


def dumps(story: Story) -> str:
    """Return the story as JSON."""
    return json.dumps(
        {
            "steps": [_plain(step) for step in story.steps],
            "past": [asdict(past) for past in story.past],
            "choices": asdict(story.choices),
        }
    )


def _plain(step: Step) -> dict[str, Any]:
    values = {field.name: getattr(step, field.name) for field in fields(step)}
    if isinstance(step, Ask):
        values["allowed"] = [_plain(each) for each in step.allowed]
        values["refused"] = [_plain(each) for each in step.refused]
    return {"step": type(step).__name__, **values}


def loads(text: str) -> Story:
    """Return the story that `dumps` wrote as JSON."""
    told = json.loads(text)
    past = [
        Past(each["id"], each["title"], tuple((who, said) for who, said in each["messages"]))
        for each in told.get("past", ())
    ]
    choices = {name: _frozen(value) for name, value in told.get("choices", {}).items()}
    return Story(_steps(told["steps"]), tuple(past), Choices(**choices))


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _steps(told: Sequence[dict[str, Any]]) -> tuple[Step, ...]:
    return tuple(_step(each) for each in told)


def _step(told: dict[str, Any]) -> Step:
    values = {name: value for name, value in told.items() if name != "step"}
    if told["step"] == "Ask":
        values["allowed"] = _steps(values["allowed"])
        values["refused"] = _steps(values["refused"])
    if told["step"] == "SetPlan":
        values["entries"] = tuple((text, status) for text, status in values["entries"])
    step: Step = STEPS[told["step"]](**values)
    return step
