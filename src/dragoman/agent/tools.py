"""A tool call that an agent reports while it runs, as a context manager.

Handles the lifecycle of one reported call: announced on entering, completed on leaving, failed if
the block raises. It runs nothing and does not decide whether the tool may run.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dragoman.agent import checks
from dragoman.agent.pending import awaited
from dragoman.dialects.acp import v1 as acp

if TYPE_CHECKING:
    from dragoman.agent.turn import Turn


class ToolCall:
    """One reported tool call; use it with ``async with turn.tool(...) as tool``."""

    __slots__ = (
        "_announced",
        "_async",
        "_content",
        "_done",
        "_first",
        "_turn",
        "_calls",
        "id",
    )

    def __init__(self, turn: Turn, first: acp.ToolCall) -> None:
        self._turn = turn
        self._async = True
        self._calls = turn._calls
        self._first = first
        self._announced = False
        self._done = False
        self._content: list[acp.ToolCallContent] = list(first.content or ())
        self.id: str = first.tool_call_id
        """The id of the call."""

    def __repr__(self) -> str:
        state = "done" if self._done else "running" if self._announced else "not announced"
        return f"<ToolCall {self.id!r}, {state}, {self._first.title!r:.80}>"

    async def __aenter__(self) -> Self:
        await self.announce()
        return self

    def __del__(self) -> None:
        if not self._announced:
            use = "async with" if self._async else "with"
            self._calls.unused.append(f"turn.tool({self._first.title!r}) (use it with `{use}`)")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._done and not self._turn.over:
            await self.update(status="completed" if error is None else "failed")

    @awaited("tool.announce(…)")
    async def announce(self) -> None:
        """Report the call to the client, unless it was reported already."""
        if not self._announced:
            self._announced = True
            await self._turn.update(self._first)

    @awaited("tool.update(…)")
    async def update(
        self,
        *,
        status: str | None = None,
        title: str | None = None,
        kind: str | None = None,
        content: Sequence[acp.ToolCallContent] | None = None,
        locations: Sequence[acp.ToolCallLocation] | None = None,
        raw_input: Any = None,
        raw_output: Any = None,
    ) -> None:
        """Report changes; None leaves a field as it was. `content` and `locations` replace what was
        reported before. With the status `completed` or `failed`, the end of the ``async with``
        block reports nothing more."""
        checks.tool(title=title, kind=kind, status=status)
        # Checks the content: if it is invalid, the call keeps its content and has not ended.
        sending = self._turn.update(
            acp.ToolCallProgress(
                tool_call_id=self.id,
                status=status,
                title=title,
                kind=kind,
                content=content,
                locations=locations,
                raw_input=raw_input,
                raw_output=raw_output,
            )
        )
        if content is not None:
            self._content = list(content)
        if status in ("completed", "failed"):
            self._done = True
        await sending

    @awaited("tool.start(…)")
    async def start(self) -> None:
        """Report that the work begins, after permission was given."""
        await self.update(status="in_progress")

    @awaited("tool.add(…)")
    async def add(self, *content: acp.ToolCallContent | acp.ContentBlock | str) -> None:
        """Add to the content: text, blocks, diffs or terminals. The whole list is sent again,
        because each update replaces it."""
        await self.update(content=[*self._content, *map(_content, content)])

    @awaited("tool.diff(…)")
    async def diff(self, path: str, new_text: str, old_text: str | None = None) -> None:
        """Add the diff of a file to the content; without `old_text`, the file is new."""
        await self.add(acp.Diff(path=path, new_text=new_text, old_text=old_text))

    @awaited("tool.fail(…)")
    async def fail(self, reason: str = "") -> None:
        """Report that the call failed; the reason is added to its content."""
        content = [*self._content, _content(reason)] if reason else None
        await self.update(status="failed", content=content)

    @awaited("tool.permission(…)")
    async def permission(
        self, options: Sequence[acp.PermissionOption] | None = None
    ) -> acp.PermissionOption | None:
        """Report the call unless it was reported already, and ask the client whether it may run.
        Returns the chosen option, or None if the question was cancelled or the answer is not one
        of the options; the result is truthy only if the call may run."""
        await self.announce()
        request = acp.ToolCallUpdate(
            tool_call_id=self.id,
            title=self._first.title,
            kind=self._first.kind,
            status="pending",
            content=list(self._content) or None,
            locations=self._first.locations,
            raw_input=self._first.raw_input,
        )
        if options is None:
            return await self._turn.client.permission(request)
        return await self._turn.client.permission(request, options)


def _content(item: acp.ToolCallContent | acp.ContentBlock | str) -> acp.ToolCallContent:
    if isinstance(item, str):
        return acp.Content(content=acp.TextContent(text=item))
    if isinstance(item, acp.Content | acp.Diff | acp.Terminal | acp.UnknownToolCallContent):
        return item
    return acp.Content(content=item)
