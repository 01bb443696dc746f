"""Fold a stream of events into the current state of a session.

Has one rule for each type of event that changes the state. Keeps no event, and relies only on the
order in which events arrive; live and replayed events are treated alike, so a stored session folds
to the same state as when it was live.

User input comes in two ways: with the turn that our prompt began, and as messages, when an agent
repeats the prompt or replays history. A repetition replaces the original.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from msgspec import UNSET, UnsetType

from dragoman.events import model as happened
from dragoman.events.parts import Block, FileChange, Text
from dragoman.events.view import FinishedTurn, Growing, Message, Plan, Tool, View
from dragoman.events.words import ChangeStage, Role, ToolStatus


def apply(view: View, event: happened.Event) -> None:
    """Apply one event to the view."""
    rule = _RULES.get(type(event))
    if rule is not None:
        rule(view, event)


def apply_briefly(view: View, event: happened.Event) -> None:
    """Like `apply`, for a consumer that shows text as it arrives and does not need it later.

    No message and no streamed plan text is kept. Tool calls are kept with their output.
    """
    if type(event) not in _SPOKEN:
        apply(view, event)
        view.messages.clear()
        view.prompt = None


def apply_outline(view: View, event: happened.Event) -> None:
    """Like `apply_briefly`, for a consumer that needs only which tools were called and which files
    they changed.

    No input, output or text of a file is kept, so the view does not grow with them.
    """
    if isinstance(event, happened.ToolDelta):
        return
    apply_briefly(view, event)
    if isinstance(event, happened.ToolChanged | happened.FilesChanged):
        tool = view.tools.get(event.tool_id or "")
        if tool is not None:
            tool.input = tool.output = None
            tool.content = ()
            tool.changes = tuple(
                FileChange(change.path, change.op, old_path=change.old_path)
                for change in tool.changes
            )


def apply_settings(view: View, event: happened.Event) -> None:
    """Like `apply`, for a consumer that needs only the title, directory, settings, commands and
    usage of the session. Other events are ignored."""
    if type(event) in _SETTINGS:
        apply(view, event)


def fold(events: Iterable[happened.Event], view: View | None = None) -> View:
    """Apply the events to `view`, or to a new one, and return it."""
    view = view or View()
    for event in events:
        apply(view, event)
    return view


# -- messages


def _message(view: View, role: Role, message_id: str | None) -> Message:
    """Return the message that a chunk belongs to; a new one, added to the view, if none does."""
    if role is Role.USER and view.prompt is not None:
        return _repeated(view, view.prompt, message_id)
    view.prompt = None
    if message_id is not None:
        for message in reversed(view.messages):
            if message.message_id == message_id and message.role is role:
                return message
    elif view.open and view.messages and view.messages[-1].role is role:
        last = view.messages[-1]
        if last.message_id is None:
            return last
    message = Message(role, message_id)
    view.messages.append(message)
    view.open = True
    return message


def _repeated(view: View, prompt: Message, message_id: str | None) -> Message:
    """Empty our prompt, and return it to be filled with the agent's version of it."""
    view.prompt = None
    view.open = True
    prompt.message_id = message_id
    prompt.said = Growing()
    prompt.blocks = []
    return prompt


def _delta(view: View, event: happened.MessageDelta) -> None:
    message = _message(view, event.role, event.message_id)
    if event.block is not None and not isinstance(event.block, Text):
        message.blocks.append(event.block)
    else:
        message.said.add(event.text)


def _set(view: View, event: happened.MessageSet) -> None:
    message = _message(view, event.role, event.message_id)
    if not isinstance(event.blocks, UnsetType):
        _fill(message, event.blocks or ())


def _fill(message: Message, blocks: Sequence[Block]) -> None:
    message.said = Growing("".join(block.text for block in blocks if isinstance(block, Text)))
    message.blocks = [block for block in blocks if not isinstance(block, Text)]


# -- tools


def _tool(view: View, tool_id: str) -> Tool:
    # Without message ids, a tool call between two chunks is the only sign of a new message.
    view.open = False
    view.prompt = None
    tool = view.tools.get(tool_id)
    if tool is None:
        tool = view.tools[tool_id] = Tool(tool_id)
    return tool


_CLEARED: Final[dict[str, Any]] = {"title": "", "content": (), "locations": ()}
_PATCHED: Final = (
    "title",
    "name",
    "kind",
    "input",
    "output",
    "content",
    "locations",
    "exit_code",
    "error",
)


def _tool_changed(view: View, event: happened.ToolChanged) -> None:
    tool = _tool(view, event.tool_id)
    for name in _PATCHED:
        value = getattr(event, name)
        if value is not UNSET:
            setattr(tool, name, _CLEARED.get(name) if value is None else value)
    status = event.status
    # Some agents announce a call after its end: a finished call does not become pending again.
    if not isinstance(status, UnsetType) and not (tool.status.over and status is _PENDING):
        tool.status = status
        if tool.changes:
            # An agent need not repeat a change to report that it was made: the end of its call
            # implies it.
            tool.stage = _STAGES.get(status, tool.stage)


_PENDING: Final = ToolStatus.PENDING

_STAGES: Final = {
    ToolStatus.COMPLETED: ChangeStage.APPLIED,
    ToolStatus.FAILED: ChangeStage.FAILED,
    ToolStatus.DECLINED: ChangeStage.DECLINED,
}


def _tool_delta(view: View, event: happened.ToolDelta) -> None:
    tool = _tool(view, event.tool_id)
    if event.item is not None:
        tool.content = (*tool.content, event.item)
    elif event.stream == "output":
        tool.printed.add(event.text)


def _files(view: View, event: happened.FilesChanged) -> None:
    if event.tool_id is None:
        view.changes = event.changes
        return
    tool = _tool(view, event.tool_id)
    tool.changes = event.changes
    tool.stage = event.stage
    if event.stage is ChangeStage.PROPOSED:
        # If the call has already ended, its status says whether the change was made.
        tool.stage = _STAGES.get(tool.status, event.stage)


# -- plans


def _plan_set(view: View, event: happened.PlanSet) -> None:
    view.plans[event.plan_id] = Plan(event.entries, Growing(event.text or ""))


def _plan_delta(view: View, event: happened.PlanDelta) -> None:
    view.plans.setdefault(event.plan_id, Plan()).written.add(event.text)


def _plan_removed(view: View, event: happened.PlanRemoved) -> None:
    view.plans.pop(event.plan_id, None)


# -- sessions and turns


def _opened(view: View, event: happened.SessionOpened) -> None:
    view.cwd = event.cwd or view.cwd
    view.title = event.title or view.title
    view.model = event.model or view.model


def _changed(view: View, event: happened.SessionChanged) -> None:
    if not isinstance(event.title, UnsetType):
        view.title = event.title


def _settings(view: View, event: happened.SettingsChanged) -> None:
    for name in ("options", "modes", "mode", "model"):
        value = getattr(event, name)
        if value is not UNSET:
            setattr(view, name, value)


def _commands(view: View, event: happened.CommandsChanged) -> None:
    view.commands = event.commands


def _turn_started(view: View, event: happened.TurnStarted) -> None:
    if not view.running:
        # A turn that reports no usage must not show that of the turn before.
        view.usage.pop("turn", None)
    view.running = True
    view.open = False
    # A dialect may report the same start a second time, without the prompt.
    if event.prompt:
        view.prompt = Message(Role.USER)
        _fill(view.prompt, event.prompt)
        view.messages.append(view.prompt)


def _turn_ended(view: View, event: happened.TurnEnded) -> None:
    view.running = False
    view.open = False
    view.prompt = None
    view.waiting.clear()
    view.turns.append(FinishedTurn(event.outcome, event.stop, event.failure))
    if event.usage is not None:
        view.usage["turn"] = event.usage
    if event.text is not None:
        _final_text(view, event.text)


def _final_text(view: View, text: str) -> None:
    """Apply the complete answer at the end of a turn: all, part or none of it may have been
    streamed."""
    if not text or view.text == text:
        return
    last = view.messages[-1] if view.messages else None
    if last is not None and last.role is Role.AGENT and text.startswith(last.text):
        last.said = Growing(text)
    elif not view.text.endswith(text):
        view.messages.append(Message(Role.AGENT, said=Growing(text)))


def _usage(view: View, event: happened.UsageReported) -> None:
    view.usage[event.scope] = event.usage


# -- questions and the rest


def _asked(view: View, event: Any) -> None:
    view.waiting.add(event.request_id)


def _answered(view: View, event: Any) -> None:
    view.waiting.discard(event.request_id)


def _noticed(view: View, event: happened.Noticed) -> None:
    view.notices.append(event.title)


def _error(view: View, event: happened.ErrorReported) -> None:
    view.failures.append(event.failure)


_SPOKEN: Final = frozenset({happened.MessageDelta, happened.MessageSet, happened.PlanDelta})

_SETTINGS: Final = frozenset(
    {
        happened.SessionOpened,
        happened.SessionChanged,
        happened.SettingsChanged,
        happened.CommandsChanged,
        happened.UsageReported,
    }
)

_RULES: Final[dict[type, Callable[[View, Any], None]]] = {
    happened.MessageDelta: _delta,
    happened.MessageSet: _set,
    happened.ToolChanged: _tool_changed,
    happened.ToolDelta: _tool_delta,
    happened.FilesChanged: _files,
    happened.PlanSet: _plan_set,
    happened.PlanDelta: _plan_delta,
    happened.PlanRemoved: _plan_removed,
    happened.SessionOpened: _opened,
    happened.SessionChanged: _changed,
    happened.SettingsChanged: _settings,
    happened.CommandsChanged: _commands,
    happened.TurnStarted: _turn_started,
    happened.TurnEnded: _turn_ended,
    happened.UsageReported: _usage,
    happened.PermissionAsked: _asked,
    happened.PermissionAnswered: _answered,
    happened.InputAsked: _asked,
    happened.InputAnswered: _answered,
    happened.Noticed: _noticed,
    happened.ErrorReported: _error,
}
