"""Remove from a stream of events what a dialect cannot express.

Has one rule for each part of `words.Part`, which removes exactly that part. For tests of dialects,
including your own: a test compares the same story in two dialects after the reduction. A remaining
difference is an undocumented loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from dragoman.events import model, words
from dragoman.events.model import Event
from dragoman.events.parts import FileChange
from dragoman.events.words import ChangeStage, Outcome, Part, Role, ToolStatus


def without(events: Iterable[Event], parts: Iterable[Part]) -> list[Event]:
    """Return the events as a dialect that cannot express these parts would report them."""
    kept = list(events)
    lost = frozenset(parts)
    # In the order of the enumeration, because rules depend on each other: a title is replaced by
    # the name that is left, and proposed changes need the end of their tool call.
    for part in Part:
        if part in lost:
            kept = _RULES[part](kept)
    return kept


Rule = Callable[[Sequence[Event]], list[Event]]


def _drop(*kinds: type, only: Callable[[Any], bool] = lambda event: True) -> Rule:
    return lambda events: [e for e in events if not (isinstance(e, kinds) and only(e))]


def _change(
    kind: type, patch: Callable[[Any], dict[str, Any]], only: Callable[[Any], bool] | None = None
) -> Rule:
    def rule(events: Sequence[Event]) -> list[Event]:
        return [
            replace(e, **patch(e)) if isinstance(e, kind) and (only is None or only(e)) else e
            for e in events
        ]

    return rule


def _unset(name: str) -> Rule:
    return _change(model.ToolChanged, lambda event: {name: UNSET})


# -- rules that need more than one event


def _numbered(events: Sequence[Event]) -> list[Event]:
    numbers: dict[str, str] = {}
    kept: list[Event] = []
    for event in events:
        tool_id = getattr(event, "tool_id", None)
        if tool_id is not None:
            number = numbers.setdefault(tool_id, f"tool-{len(numbers) + 1}")
            event = replace(event, tool_id=number)
        kept.append(event)
    return kept


def _only_paths(events: Sequence[Event]) -> list[Event]:
    """Keep only the paths and diffs of changes, without their tool calls. A proposed change is
    reported when its tool call has completed."""
    kept: list[Event] = []
    changed: dict[str, FileChange] = {}
    proposed: dict[str | None, model.FilesChanged] = {}

    def made(event: model.FilesChanged) -> None:
        changed.update({c.path: FileChange(c.path, diff=c.diff) for c in event.changes})
        files = tuple(changed.values())
        kept.append(replace(event, changes=files, stage=ChangeStage.UNKNOWN, tool_id=None))

    for event in events:
        if isinstance(event, model.FilesChanged):
            proposed.pop(event.tool_id, None)
            if event.stage in (ChangeStage.APPLIED, ChangeStage.UNKNOWN):
                made(event)
            elif event.stage is ChangeStage.PROPOSED:
                proposed[event.tool_id] = event
            continue
        if isinstance(event, model.TurnStarted):
            changed.clear()
        kept.append(event)
        if isinstance(event, model.ToolChanged) and event.status is ToolStatus.COMPLETED:
            waiting = proposed.pop(event.tool_id, None)
            if waiting is not None:
                made(waiting)
    return kept


# -- rules for one event


def _no_diff(event: model.FilesChanged) -> dict[str, Any]:
    return {"changes": tuple(replace(change, diff=None) for change in event.changes)}


def _title(event: model.ToolChanged) -> dict[str, Any]:
    return {} if isinstance(event.title, UnsetType) else {"title": event.name}


def _kind(event: model.ToolChanged) -> dict[str, Any]:
    named = isinstance(event.name, str)
    return {"kind": words.tool_kind(str(event.name)) if named else UNSET}


def _as_text(event: model.ToolChanged) -> dict[str, Any]:
    given = event.input
    if given is UNSET or isinstance(given, str):
        return {}
    return {"input": UNSET if given is None else msgspec.json.encode(given).decode()}


def _no_model(events: Sequence[Event]) -> list[Event]:
    opened = _change(model.SessionOpened, lambda e: {"model": None})
    told = _change(model.SettingsChanged, lambda e: {"model": UNSET})
    return told(opened(events))


def _is_thought(event: Any) -> bool:
    return event.role is Role.THOUGHT


def _is_of_a_tool(event: Any) -> bool:
    return not isinstance(event, model.FilesChanged) or event.tool_id is not None


_MESSAGES: Final = (model.MessageDelta, model.MessageSet)

_RULES: Final[dict[Part, Rule]] = {
    Part.THOUGHTS: _drop(*_MESSAGES, only=_is_thought),
    Part.MESSAGE_IDS: _change(
        model.MessageDelta, lambda e: {"message_id": None}, lambda e: not e.replay
    ),
    Part.TOOLS: _drop(model.ToolChanged, model.ToolDelta, model.FilesChanged, only=_is_of_a_tool),
    Part.TOOL_NAMES: _unset("name"),
    Part.TOOL_KINDS: _change(model.ToolChanged, _kind),
    Part.TOOL_TITLES: _change(model.ToolChanged, _title),
    Part.TOOL_ENDS: _change(model.ToolChanged, lambda e: {"status": ToolStatus.OTHER}),
    Part.TOOL_INPUT: _unset("input"),
    Part.TOOL_INPUT_VALUES: _change(model.ToolChanged, _as_text),
    Part.TOOL_OUTPUT: _unset("output"),
    Part.TOOL_CONTENT: _unset("content"),
    Part.TOOL_LOCATIONS: _unset("locations"),
    Part.TOOL_ERRORS: _unset("error"),
    Part.TOOL_IDS: _numbered,
    Part.CHANGES: _drop(model.FilesChanged),
    Part.CHANGE_TEXTS: _only_paths,
    Part.CHANGE_DIFFS: _change(model.FilesChanged, _no_diff),
    Part.CHANGES_TOGETHER: _change(model.FilesChanged, lambda e: {"changes": e.changes[-1:]}),
    Part.PLANS: _drop(model.PlanSet, model.PlanDelta, model.PlanRemoved),
    Part.PLAN_ENTRIES: _change(model.PlanSet, lambda e: {"entries": ()}),
    Part.PLAN_PRIORITIES: _change(
        model.PlanSet, lambda e: {"entries": tuple(replace(s, priority=None) for s in e.entries)}
    ),
    Part.PLAN_TEXTS: _change(model.PlanSet, lambda e: {"text": None}),
    Part.MODES: _change(model.SettingsChanged, lambda e: {"mode": UNSET, "modes": UNSET}),
    Part.MODELS: _no_model,
    Part.OPTIONS: _change(model.SettingsChanged, lambda e: {"options": UNSET}),
    Part.COMMANDS: _drop(model.CommandsChanged),
    Part.PERMISSIONS: _drop(model.PermissionAsked, model.PermissionAnswered),
    Part.CONTEXT_USAGE: _drop(model.UsageReported, only=lambda e: e.scope == "context"),
    Part.TURN_USAGE: _change(model.TurnEnded, lambda e: {"usage": None}),
    Part.TOTAL_USAGE: _change(
        model.TurnEnded,
        lambda e: {"usage": replace(e.usage, total_tokens=None)},
        lambda e: e.usage is not None,
    ),
    Part.FAILURES: _change(
        model.TurnEnded,
        lambda e: {"failure": None, "outcome": Outcome.FAILED},
        lambda e: e.failure is not None,
    ),
    Part.ERROR_REPORTS: _drop(model.ErrorReported),
    Part.REPLAYED_ROLES: _change(
        model.MessageDelta, lambda e: {"role": Role.AGENT}, lambda e: e.replay
    ),
    Part.REPLAYED_IDS: _change(
        model.MessageDelta, lambda e: {"message_id": None}, lambda e: e.replay
    ),
    Part.REPLAYED_TURNS: _drop(model.TurnEnded, only=lambda e: e.replay),
}
