"""Render a turn as text for people while it runs.

Shows the streamed answer, thoughts, tool calls with their changes, the plan, denials, and a final
summary, which omits values that the agent did not report. On a terminal everything goes to stdout,
with rendered Markdown, wrapped at words, and a status line (`output.live_area`); without colours or
with ``TERM=dumb`` it is plain. Otherwise stdout gets the answer, and stderr everything else. Agent
text is escaped (`output.escape`).
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final, TextIO

from msgspec import UnsetType
from msgspec.structs import replace

from dragoman.cli.output.escape import neutral, one_line
from dragoman.cli.output.renderer import Renderer, TurnReport, cost, summary, tokens
from dragoman.cli.output.terminal import is_live, is_terminal, paint_for, put
from dragoman.events import fold, model
from dragoman.events.parts import FileChange, Location, PlanEntry, Text
from dragoman.events.view import Tool, View
from dragoman.events.words import INVALID_UPDATE, ChangeStage, PlanStatus, Role, ToolStatus

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from dragoman.cli.output.live_area import LiveText
    from dragoman.errors import DragomanError


SHOWN_OUTPUT: Final = 6
"""Maximum number of lines of a tool's output to show, unless all are requested."""

SHOWN_LOCATIONS: Final = 8
"""Maximum number of locations of a tool call to show, unless all are requested."""

KEPT_OUTPUT: Final = 1024 * 1024
"""Maximum number of characters of a tool's output to keep until the tool ends and its output is
shown."""

KEPT_ITEMS: Final = 1000
"""Maximum number of content items to keep per tool call until it is shown."""

KEPT_TOOLS: Final = 10_000
"""Maximum number of remembered tool calls. An update to an older call is shown like a new call."""

LOAD_DELAY: Final = 0.15
"""Seconds to wait for an agent to start before the drawing modules are loaded. A warm agent is
ready at once and gets its prompt first."""

SENT_DELAY: Final = 0.002
"""Seconds after the start of a turn until the drawing modules are loaded: by then the prompt has
been sent and the process is idle."""

_MARKS: Final = {
    PlanStatus.PENDING: "[ ]",
    PlanStatus.RUNNING: "[>]",
    PlanStatus.COMPLETED: "[x]",
    PlanStatus.CANCELLED: "[-]",
    PlanStatus.OTHER: "[?]",
}


class TextShow(Renderer):
    """Renders a turn as lines."""

    def __init__(
        self, out: TextIO | None = None, err: TextIO | None = None, *, verbose: bool = False
    ) -> None:
        super().__init__(out, err)
        self.verbose = verbose
        self.separate = not is_terminal(self.out)
        """Whether everything except the answer goes to stderr."""
        self.streams_answer = True
        """Whether to stream the answer. A delegation prints only the final one."""
        self._paint = paint_for(self.err if self.separate else self.out)
        self.is_live = is_live(self.out)
        """Whether the terminal gets a status line, Markdown and redrawn rows."""
        self._loaded: LiveText | None = None
        self._loading: TimerHandle | None = None
        self._doing = ""
        """The text of the status line."""
        self._tool_now = ""
        """The tool call named in the status line."""
        self._view = View()
        self._speaker: Role | None = None
        self._at_start = True
        """Whether the next character of the answer starts a line."""
        self._aside_at_start = True
        """Whether the next character on stderr starts a line."""
        self._told_tools: dict[str, ToolStatus] = {}
        self._told_changes: set[int] = set()
        """Hashes of the changes already shown: the changes themselves may be long."""
        self._tools_changed = False
        """Whether a tool call of this turn has shown changes. The turn's own list of changes would
        repeat them."""
        self._told_plan: dict[str, dict[str, PlanStatus]] = {}
        self._plan_before: dict[str, PlanStatus] = {}
        """The status of each entry of the plan before the lines that are now redrawn in place, by
        the entry's text."""
        self._questions: dict[str, str] = {}
        self._answered_something = False
        """Whether text of the agent was shown in this turn. If so, the text in its last event is
        not shown."""
        self._spoken: set[str] = set()
        """Ids of messages that were streamed; their full text is not shown again."""
        self._reports_end = False
        """Whether `ended` follows the events of this turn."""
        self._held_error = ""
        """An error that no other output has followed yet. If it ends the turn, `ended` shows it."""

    # -- events

    def event(self, event: model.Event) -> None:
        if not self._overflows(event):
            fold.apply_briefly(self._view, event)
        if event.replay:
            return
        if self._doing:
            self._note(event)
        match event:
            case model.MessageDelta():
                self._said(event)
            case model.MessageSet():
                self._said_whole(event)
            case model.ToolChanged():
                self._tool(event.tool_id)
            case model.FilesChanged():
                self._files(event)
            case model.PlanSet():
                self._plan(event)
            case model.PermissionAsked():
                self._questions[event.request_id] = event.title or event.kind.value
            case model.PermissionAnswered():
                self._answered(event)
            case model.InputAsked() if not self.asks_forms:
                self._line(f"[question] {one_line(event.message)}", "yellow")
            case model.InputAnswered(action="decline") if not self.asks_forms:
                self._line("[question] declined: there is no terminal to ask on", "yellow")
            case model.Noticed(severity="error", detail=None | ""):
                self._hold_error(event.title)
            case model.Noticed():
                detail = f": {event.detail}" if event.detail else ""
                self._line(f"[{one_line(event.severity)}] {one_line(event.title + detail)}", "dim")
            case model.Compacted():
                self._line(f"[context] compaction {one_line(event.status)}", "dim")
            case model.ErrorReported():
                self._hold_error(event.failure.message)
            case model.LoginRequired():
                self._line(f"[login] {one_line(event.message)}", "yellow")
            case model.ConnectionReady() if self.verbose:
                named = event.peer.title or event.peer.name or "an agent"
                version = f" {event.peer.version}" if event.peer.version else ""
                self._line(f"[peer] {one_line(named + version)}, {event.source.dialect}", "dim")
            case model.SessionOpened() if self.verbose:
                self._line(f"[session] {event.how} {one_line(event.session or '')}", "dim")
            case model.ServiceCalled() if self.verbose:
                trouble = f": {event.error}" if event.error else ""
                self._line(
                    f"[service] {event.service} {one_line(event.operation + trouble)}", "dim"
                )
            case model.Unknown() if event.reason.startswith(INVALID_UPDATE):
                reason = one_line(event.reason)
                self.notice(f"the agent sent an invalid message: {reason}")
            case model.TurnEnded() if event.text and not self._answered_something:
                self._piece(Role.AGENT, event.text)
            case _:
                pass

    def _hold_error(self, message: str) -> None:
        self._show_error()
        self._held_error = message
        if not self._reports_end:
            self._show_error()

    def _show_error(self) -> None:
        if error := self._held_error:
            self._held_error = ""
            self._line(f"[error] {one_line(error)}", "red")

    def _note(self, event: model.Event) -> None:
        """Update the status line for an event."""
        match event:
            case model.ConnectionReady():
                self.doing("opening the session")
            case model.SessionOpened():
                self.doing("sending the prompt")
            case model.TurnStarted() | model.PermissionAnswered() | model.InputAnswered():
                self.doing("thinking")
            case model.MessageDelta(role=Role.THOUGHT):
                self.doing("thinking")
            case model.MessageDelta(role=Role.AGENT) | model.MessageSet(role=Role.AGENT):
                self.doing("answering")
            case model.PermissionAsked():
                self.doing("waiting for permission")
            case model.InputAsked():
                self.doing("waiting for an answer to its question")
            case model.Compacted():
                self.doing("compacting the context")
            case model.ToolChanged():
                tool = self._view.tools[event.tool_id]
                if not tool.status.over:
                    self._tool_now = event.tool_id
                    named = tool.title or tool.name or tool.kind.value
                    self.doing(f"running {one_line(named, width=160)}")
                elif self._tool_now == event.tool_id:
                    self.doing("thinking")
            case model.TurnEnded():
                self.doing("")
            case _:
                pass

    def doing(self, what: str) -> None:
        if not self.is_live or self.broken or what == self._doing:
            return
        self._doing = what
        if self._loaded is not None:
            self._loaded.status(what, self._spent)
        elif what and self._loading is None:
            self._load_after(LOAD_DELAY)

    def _load_after(self, seconds: float) -> None:
        from asyncio import get_running_loop

        if self._loading is not None:
            self._loading.cancel()
        try:
            self._loading = get_running_loop().call_later(seconds, self._show_status)
        except RuntimeError:
            pass  # Stored turns are shown, so there is nothing to wait for.

    def _show_status(self) -> None:
        if self._doing and self._live is not None:
            self._live.status(self._doing, self._spent)

    @property
    def _live(self) -> LiveText | None:
        """The live display on a terminal; None if the output is plain."""
        if self._loaded is None and self.is_live:
            # Imported here: a pipe does not need it, and it takes milliseconds to load.
            from dragoman.cli.output.live_area import LiveText

            self._loaded = LiveText(self.out, self.draw)
            if self._doing:
                self._loaded.status(self._doing, self._spent)
        return self._loaded

    def _spent(self) -> str:
        """Return the tokens and cost so far; empty if unknown."""
        seen = self._view.usage
        used = seen.get("turn") or seen.get("session")
        parts = [tokens(used)] if used is not None else []
        for usage in seen.values():
            if usage.cost is not None:
                parts.append(cost(usage.cost))
                break
        return ", ".join(filter(None, parts))

    def _overflows(self, event: model.Event) -> bool:
        """Return whether an event adds to tool output that already exceeds the limit."""
        if not isinstance(event, model.ToolDelta):
            return False
        tool = self._view.tools.get(event.tool_id)
        if tool is None:
            return False
        return (
            tool.printed.size > KEPT_OUTPUT
            if event.item is None
            else len(tool.content) >= KEPT_ITEMS
        )

    # -- text

    def _said(self, event: model.MessageDelta) -> None:
        if event.role is Role.USER:
            return
        if event.message_id is not None:
            self._spoken.add(event.message_id)
        text = event.text
        if not text and event.block is not None and not isinstance(event.block, Text):
            text = _block(event.block)
        if text:
            self._piece(event.role, text)

    def _said_whole(self, event: model.MessageSet) -> None:
        if event.role is Role.USER or isinstance(event.blocks, UnsetType) or not event.blocks:
            return
        if event.message_id in self._spoken:
            return
        self._spoken.add(event.message_id)
        self._piece(
            event.role,
            "".join(b.text if isinstance(b, Text) else _block(b) for b in event.blocks),
        )

    def _piece(self, role: Role, text: str) -> None:
        self._show_error()
        if role is not self._speaker:
            self._end_line()
            self._speaker = role
            if role is Role.THOUGHT and not self.is_live:
                self._put_aside(self._paint("[thinking] ", "dim"))
        self._answered_something |= role is Role.AGENT
        safe = neutral(text)
        if self._live is not None:
            self._live.say(role, safe)
        elif role is Role.AGENT:
            if self.streams_answer:
                self.write(safe)
                self._at_start = safe.endswith("\n")
        else:
            self._put_aside(self._paint(safe, "dim") if role is Role.THOUGHT else safe, safe)

    def _put_aside(self, text: str, plain: str | None = None) -> None:
        """Write output other than the answer. `plain` is the text without styles, if it has any."""
        at_start = (plain if plain is not None else text).endswith("\n")
        if self.separate:
            # Flush pending text of the agent first.
            self.flush()
            put(self.err, text)
            self._aside_at_start = at_start
        else:
            self.write(text)
            self._at_start = at_start

    def _end_line(self) -> None:
        if self.is_live:
            if self._loaded is not None:
                self._loaded.end()
            return
        if not self._at_start:
            self.write("\n")
            self._at_start = True
        if not self._aside_at_start:
            put(self.err, "\n")
            self._aside_at_start = True

    def _line(self, text: str, *styles: str) -> None:
        """Write a line of dragoman's own output, after any open text."""
        self._show_error()
        self._end_line()
        self._speaker = None
        if self._live is not None:
            self._live.line(text, *styles)
            return
        self._put_aside(self._paint(text, *styles) + "\n")

    # -- tools

    def _tool(self, tool_id: str) -> None:
        tool = self._view.tools[tool_id]
        told = self._told_tools.get(tool_id)
        if told is not None and (told is tool.status or not tool.status.over):
            return
        if told is None and not tool.title and not tool.name and not tool.status.over:
            return  # It has no text yet; the next update brings it.
        self._told_tools[tool_id] = tool.status
        while len(self._told_tools) > KEPT_TOOLS:
            oldest = next(iter(self._told_tools))
            del self._told_tools[oldest]
            self._view.tools.pop(oldest, None)
        title = one_line(tool.title or tool.name or tool.kind.value, width=160)
        match tool.status:
            case ToolStatus.COMPLETED:
                self._line(f"[tool] {title}: done", "cyan")
            case ToolStatus.FAILED | ToolStatus.DECLINED | ToolStatus.CANCELLED:
                why = f": {one_line(tool.error, width=160)}" if tool.error else ""
                self._line(f"[tool] {title}: {tool.status.value}{why}", "red")
            case _:
                self._line(f"[tool] {title} ({tool.kind.value})", "cyan")
        if tool.status.over:
            self._details(tool)
            # Already shown: long outputs of many calls need not stay in memory.
            self._view.tools[tool_id] = Tool(tool_id, tool.title, tool.name, tool.kind, tool.status)

    def _details(self, tool: Tool) -> None:
        limit = None if self.verbose else SHOWN_LOCATIONS
        for place in tool.locations[:limit]:
            self._line(f"  {self._place(place)}", "dim")
        if limit is not None and len(tool.locations) > limit:
            self._line(f"  … {len(tool.locations) - limit} more places", "dim")
        if tool.exit_code:
            self._line(f"  exit code {tool.exit_code}", "red")
        self._output(tool)

    def _place(self, place: Location) -> str:
        """Format a location as a user would type it: relative to the session's directory if inside
        it."""
        folder = (self._view.cwd or "").rstrip("/") + "/"
        path = place.path.removeprefix(folder) if len(folder) > 1 else place.path
        return one_line(path) + (f":{place.line}" if place.line is not None else "")

    def _output(self, tool: Tool) -> None:
        printed = tool.text or "\n".join(i.text for i in tool.content if isinstance(i, Text))
        if not printed and isinstance(tool.output, str):
            printed = tool.output
        lines = neutral(printed).splitlines()
        limit = None if self.verbose else SHOWN_OUTPUT
        for line in lines[:limit]:
            self._line(f"  | {line}", "dim")
        if limit is not None and len(lines) > limit:
            self._line(f"  | … {len(lines) - limit} more lines (--verbose shows all)", "dim")
        if tool.printed.size > KEPT_OUTPUT:
            self._line(f"  | … cut after {KEPT_OUTPUT} characters", "dim")

    def _files(self, event: model.FilesChanged) -> None:
        changes = [change for change in event.changes if change.path]
        if event.tool_id is None:
            if self._tools_changed or not changes:
                return  # The list of all changes so far, which were already shown one by one.
        else:
            self._tools_changed = True
        fresh: dict[int, FileChange] = {}
        for change in changes:
            # Some agents report the same file twice, with its relative and its absolute path.
            path = posixpath.join(self._view.cwd or "", change.path)
            key = hash((event.tool_id, replace(change, path=path)))
            if key not in self._told_changes:
                fresh.setdefault(key, change)
        if fresh:
            if event.tool_id is None:
                self._line("[tool] Changed files: done", "cyan")
            elif event.tool_id not in self._told_tools:
                self._tool(event.tool_id)
            for key, change in fresh.items():
                self._told_changes.add(key)
                self._diff(change)
        if event.stage in (ChangeStage.DECLINED, ChangeStage.FAILED):
            self._line(f"  not changed: {event.stage.value}", "red")

    def _diff(self, change: FileChange) -> None:
        from dragoman.cli.output import agent_changes

        limit = None if self.verbose else agent_changes.SHOWN_LINES
        head, *lines = agent_changes.lines_of(change, limit=limit)
        self._line(f"  {head}", "bold")
        colours = {"+": "green", "-": "red", "@": "cyan"}
        for line in lines:
            self._line(f"    {line}", colours.get(line[:1], "dim"))

    # -- plan, denials, notices and the end

    def _plan(self, event: model.PlanSet) -> None:
        if event.text:
            self._line("[plan]", "bold")
            self._line("  " + neutral(event.text).replace("\n", "\n  "))
            return
        told = self._told_plan.get(event.plan_id)
        now = {entry.text: entry.status for entry in event.entries}
        self._told_plan[event.plan_id] = now
        changed = [e for e in event.entries if told is None or told.get(e.text) is not e.status]
        if self._live is not None:
            self._live_plan(self._live, event, told)
            return
        if changed:
            self._line("[plan]", "bold")
        for text, *styles in map(_entry, changed):
            self._line(text, *styles)

    def _live_plan(
        self, live: LiveText, event: model.PlanSet, told: dict[str, PlanStatus] | None
    ) -> None:
        """Show a plan, replacing the shown one. If other output followed it, show only the
        changed entries, one per line."""
        if told == self._told_plan[event.plan_id]:
            return
        if not live.has_open_plan(event.plan_id):
            self._plan_before = told or {}
        before = self._plan_before
        changed = [e for e in event.entries if before.get(e.text) is not e.status]
        lines = [(f"[plan]{text[1:]}", *styles) for text, *styles in map(_entry, changed)]
        if not before or len(changed) == len(event.entries) > 1:
            lines = [("[plan]", "bold"), *map(_entry, event.entries)]
        self._speaker = None
        live.plan(event.plan_id, lines)

    def _answered(self, event: model.PermissionAnswered) -> None:
        title = one_line(self._questions.pop(event.request_id, "a request"), width=160)
        if event.by == "cancel":
            return
        if event.allowed:
            self._line(f"[permission] allowed: {title}", "green")
        else:
            self._line(f"[permission] denied: {title}", "yellow")

    def began(self, job: str, session_key: str) -> None:
        self._reports_end = True
        self.doing("thinking")
        if self.is_live and self._loaded is None:
            self._load_after(SENT_DELAY)
        if self.tells_jobs:
            self.notice(f"job {job}")

    def ended(self, report: TurnReport) -> None:
        self.doing("")
        good = report.result.ok
        failure = report.result.failure
        if failure is not None and not report.interrupted and failure.message == self._held_error:
            self._held_error = ""
        self._show_error()
        self._reports_end = False
        if not self.separate:
            self._line("")
        line = f"[{'done' if good else 'ended'}] {summary(report, self._view.usage)}"
        self._line(line, "green" if good else "red")
        self.flush()
        self._answered_something = False
        self._tools_changed = False
        self._told_plan.clear()
        self._spoken.clear()
        if not good:
            self.write_failure(report)

    def failed(self, error: DragomanError) -> None:
        self.doing("")
        self._show_error()
        self._end_line()
        self.flush()
        self.write_error(error)

    def flush(self) -> None:
        if self._loaded is not None and not self.broken:
            self._loaded.flush()
        super().flush()

    def stderr_line(self, line: str) -> None:
        self._end_line()
        self.flush()
        super().stderr_line(line)

    def notice(self, text: str) -> None:
        self._end_line()
        self.flush()
        super().notice(text)


def _entry(entry: PlanEntry) -> tuple[str, ...]:
    """Return an entry of a plan as a line and its styles."""
    text = f"  {_MARKS[entry.status]} {one_line(entry.text)}"
    return (text, "dim") if entry.status is PlanStatus.COMPLETED else (text,)


def _block(block: object) -> str:
    """Return a short label for content that is not text."""
    kind = type(block).__name__.lower()
    named = getattr(block, "uri", None) or getattr(block, "mime_type", None) or ""
    return f"[{kind} {named}]" if named else f"[{kind}]"
