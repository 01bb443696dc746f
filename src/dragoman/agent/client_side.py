"""Requests from an agent to its client: files, terminals, permission, user input.

The methods for files, terminals, forms and URLs raise `Unsupported` if the client does not
advertise the service. All may be awaited in the event loop of any thread.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Coroutine, Mapping, Sequence
from threading import get_ident
from typing import Any, Self, TypeVar

import msgspec

from dragoman.agent import checks
from dragoman.agent.loop_access import LoopAccess
from dragoman.agent.pending import AwaitedCalls, awaited, must_await
from dragoman.agent.speech import Speech
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.methods import Gate, Method
from dragoman.errors import InvalidAnswer, Unsupported, UsageError
from dragoman.rpc import Connection
from dragoman.wire.messages import UNDECODABLE

P = TypeVar("P")
R = TypeVar("R")

DEFAULT_OPTIONS = (
    acp.PermissionOption(option_id="allow", name="Allow", kind="allow_once"),
    acp.PermissionOption(option_id="allow-always", name="Always allow", kind="allow_always"),
    acp.PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
)


_ALLOWING = frozenset({"allow_once", "allow_always"})


class RefusingOption(acp.PermissionOption, frozen=True, kw_only=True):
    """A chosen option that does not allow the tool call; it is falsy."""

    @classmethod
    def of(cls, option: acp.PermissionOption) -> Self:
        return cls(
            option_id=option.option_id,
            name=option.name,
            kind=option.kind,
            meta=option.meta,
            extra=option.extra,
        )

    def __bool__(self) -> bool:
        return False


class ClientSide:
    """Sends an agent's requests to the client of one session."""

    __slots__ = ("_capabilities", "_connection", "_home", "_session_id", "_speech", "_calls")

    def __init__(
        self,
        connection: Connection,
        session_id: str,
        capabilities: acp.ClientCapabilities,
        *,
        speech: Speech,
        calls: AwaitedCalls | None = None,
    ) -> None:
        self._connection = connection
        self._speech = speech
        self._home = LoopAccess()
        self._session_id = session_id
        self._capabilities = capabilities
        self._calls = calls or AwaitedCalls()
        """The calls made here that are not awaited yet."""

    @property
    def capabilities(self) -> acp.ClientCapabilities:
        """The capabilities that the client advertised."""
        return self._capabilities

    def can(self, capability: str) -> bool:
        """Return whether the client advertised a capability, given by its dotted name on the wire,
        such as ``fs.readTextFile``."""
        return Gate("client", (capability,)).is_open(self._capabilities)

    def _require(self, capability: str, what: str) -> None:
        if not self.can(capability):
            raise Unsupported(f"the client does not {what}: it does not advertise {capability}")

    @awaited("client.ask(…)")
    async def ask(self, method: Method[P, R], params: P) -> R:
        """Call a method of the client, such as `dragoman.acp.FS_READ_TEXT_FILE`, and return its
        result. Whether the client advertises it is not checked."""
        return await self._ask(method, params)

    def _ask(self, method: Method[P, R], params: P) -> Coroutine[Any, Any, R]:
        if get_ident() == self._home.thread:
            return self._speech.ask(method, params)
        # Not a lambda: one that is not even reached makes every call slower.
        return self._home.run(functools.partial(self._speech.ask, method, params))

    # -- permission

    # Not decorated, because an agent may ask a lot: packing the arguments would take longer than
    # checking them.
    def permission(
        self,
        tool_call: acp.ToolCallUpdate,
        options: Sequence[acp.PermissionOption] = DEFAULT_OPTIONS,
    ) -> Coroutine[Any, Any, acp.PermissionOption | None]:
        """Ask whether a tool call may run. Returns the chosen option, or None if the question was
        cancelled or the answer is not one of the options.

        The result is truthy only if the chosen option allows the call.
        """
        work = self._permission(tool_call, options)
        return must_await(work, self._calls, "client.permission(…)")

    async def _permission(
        self, tool_call: acp.ToolCallUpdate, options: Sequence[acp.PermissionOption]
    ) -> acp.PermissionOption | None:
        checks.permission(tool_call, options)
        response = await self._ask(
            acp.SESSION_REQUEST_PERMISSION,
            acp.RequestPermissionRequest(
                session_id=self._session_id, tool_call=tool_call, options=options
            ),
        )
        outcome = response.outcome
        if not isinstance(outcome, acp.SelectedPermissionOutcome):
            return None
        for option in options:
            if option.option_id == outcome.option_id:
                return option if option.kind in _ALLOWING else RefusingOption.of(option)
        return None

    # -- files

    @awaited("client.read_file(…)")
    async def read_file(
        self, path: str, *, line: int | None = None, limit: int | None = None
    ) -> str:
        """Return the text of a file as the client sees it, including unsaved changes. The path is
        absolute. `line` is the first line to return, from 1, and `limit` the maximum number of
        lines; without them, the whole text is returned."""
        self._require("fs.readTextFile", "read files for its agent")
        checks.file_path(path)
        response = await self._ask(
            acp.FS_READ_TEXT_FILE,
            acp.ReadTextFileRequest(session_id=self._session_id, path=path, line=line, limit=limit),
        )
        return response.content

    @awaited("client.write_file(…)")
    async def write_file(self, path: str, content: str) -> None:
        """Write a text file through the client, which creates it or replaces its text. The path is
        absolute."""
        self._require("fs.writeTextFile", "write files for its agent")
        checks.file_path(path)
        checks.text(content, "the content of a file")
        await self._ask(
            acp.FS_WRITE_TEXT_FILE,
            acp.WriteTextFileRequest(session_id=self._session_id, path=path, content=content),
        )

    # -- terminals

    @awaited("client.terminal(…)")
    async def terminal(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        output_byte_limit: int | None = None,
    ) -> Terminal:
        """Run a command through the client and return its terminal, which must be released: use it
        with ``async with``."""
        self._require("terminal", "run commands for its agent")
        checks.text(command, "the command of a terminal")
        checks.listed(args, "the arguments of a command")
        for argument in args:
            checks.text(argument, "an argument of a command")
        response = await self._ask(
            acp.TERMINAL_CREATE,
            acp.CreateTerminalRequest(
                session_id=self._session_id,
                command=command,
                args=list(args),
                env=[acp.EnvVariable(name=k, value=v) for k, v in (env or {}).items()],
                cwd=cwd,
                output_byte_limit=output_byte_limit,
            ),
        )
        return Terminal(self, self._session_id, response.terminal_id)

    # -- questions

    @awaited("client.ask_form(…)")
    async def ask_form(
        self, message: str, schema: acp.ElicitationSchema, *, tool_call_id: str | None = None
    ) -> acp.CreateElicitationResponse:
        """Ask the user to fill in a form. Never use it for secrets."""
        self._require("elicitation.form", "show forms to its user")
        return await self._elicit(
            acp.ElicitationForm(
                session_id=self._session_id,
                tool_call_id=tool_call_id,
                message=message,
                requested_schema=schema,
            )
        )

    @awaited("client.ask_url(…)")
    async def ask_url(
        self, message: str, url: str, *, elicitation_id: str | None = None
    ) -> acp.CreateElicitationResponse:
        """Ask the user to open a URL. If the user accepts, this means only that the URL may be
        opened, not that the interaction there is complete."""
        self._require("elicitation.url", "ask its user to open URLs")
        return await self._elicit(
            acp.ElicitationUrl(
                session_id=self._session_id,
                message=message,
                url=url,
                elicitation_id=elicitation_id or os.urandom(8).hex(),
            )
        )

    async def _elicit(self, request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        return await self._ask(acp.ELICITATION_CREATE, request)

    @awaited("client.elicitation_done(…)")
    async def elicitation_done(self, elicitation_id: str) -> None:
        """Tell the client that the interaction at the URL of an `ask_url` is complete."""
        self._require("elicitation.url", "ask its user to open URLs")
        done = acp.CompleteElicitationNotification(elicitation_id=elicitation_id)
        await self._notify(acp.ELICITATION_COMPLETE.name, done)

    # -- extensions

    @awaited("client.call_extension(…)")
    async def call_extension(self, method: str, params: Any) -> Any:
        """Call an extension method of the client and return its decoded result. The name begins
        with an underscore."""
        name = _extension(method)
        raw = await self._home.run(lambda: self._connection.call(name, params))
        try:
            return msgspec.json.decode(raw)
        except UNDECODABLE as error:
            raise InvalidAnswer(f"invalid response to {method}: {error}") from error

    @awaited("client.notify_extension(…)")
    async def notify_extension(self, method: str, params: Any) -> None:
        """Send an extension notification to the client. The name begins with an underscore."""
        await self._notify(_extension(method), params)

    async def _notify(self, method: str, params: Any) -> None:
        await self._home.run(lambda: self._connection.notify(method, params))


def _extension(method: str) -> str:
    if not method.startswith("_"):
        raise UsageError(f"an extension method must begin with an underscore: {method!r}")
    return method


class Terminal:
    """A command that the client runs for the agent."""

    __slots__ = ("_client", "_released", "_session_id", "_calls", "id")

    def __init__(self, client: ClientSide, session_id: str, id: str) -> None:
        self._client = client
        self._calls = client._calls
        self._session_id = session_id
        self._released = False
        self.id = id
        """The client's id of the terminal."""

    async def __aenter__(self) -> Terminal:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    @awaited("terminal.output(…)")
    async def output(self) -> acp.TerminalOutputResponse:
        """Return the command's output so far, and its exit status if it has ended."""
        return await self._client._ask(
            acp.TERMINAL_OUTPUT,
            acp.TerminalOutputRequest(session_id=self._session_id, terminal_id=self.id),
        )

    @awaited("terminal.wait(…)")
    async def wait(self) -> acp.WaitForTerminalExitResponse:
        """Wait until the command has ended, and return its exit code or signal."""
        return await self._client._ask(
            acp.TERMINAL_WAIT_FOR_EXIT,
            acp.WaitForTerminalExitRequest(session_id=self._session_id, terminal_id=self.id),
        )

    @awaited("terminal.kill(…)")
    async def kill(self) -> None:
        """End the command; output and exit status stay readable."""
        await self._client._ask(
            acp.TERMINAL_KILL,
            acp.KillTerminalRequest(session_id=self._session_id, terminal_id=self.id),
        )

    @awaited("terminal.release(…)")
    async def release(self) -> None:
        """End the command if it is running, and release the terminal. Calling this again does
        nothing."""
        if not self._released:
            self._released = True
            await self._client._ask(
                acp.TERMINAL_RELEASE,
                acp.ReleaseTerminalRequest(session_id=self._session_id, terminal_id=self.id),
            )
