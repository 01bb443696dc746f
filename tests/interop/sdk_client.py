"""A client written with the official Python SDK, which drives our agent.

Defines what that client answers, and keeps what it received. Its terminals and files are made up,
because only the messages matter here.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import acp
from acp import schema

from tests.interop import script


class RecordingClient:
    """Answers every method that the SDK routes to a client."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.heard = asyncio.Event()
        self.announced: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.commands: list[str] = []
        self.files: dict[str, str] = {}
        self.terminals: dict[str, schema.CreateTerminalRequest] = {}
        self.released: list[str] = []
        self.killed: set[str] = set()
        self.asked: list[tuple[str | None, list[str]]] = []
        self.elicited: list[Any] = []
        self.urls_done: list[str] = []
        self.notified: list[Any] = []

    def on_connect(self, conn: acp.Agent) -> None:
        pass

    def texts(self) -> str:
        """Return what the agent said since the last call."""
        said = [
            update.content.text
            for update in self.updates
            if isinstance(update, schema.AgentMessageChunk)
            and isinstance(update.content, schema.TextContentBlock)
        ]
        self.updates.clear()
        return "".join(said)

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append(update)
        self.heard.set()
        if isinstance(update, schema.AvailableCommandsUpdate):
            self.commands = [command.name for command in update.available_commands]
            self.announced[session_id].set()

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **kwargs: Any,
    ) -> schema.RequestPermissionResponse:
        self.asked.append((tool_call.title, [option.option_id for option in options]))
        wanted = "allow_once" if tool_call.title == "Allowed" else "reject_once"
        chosen = next(option for option in options if option.kind == wanted)
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        )

    async def write_text_file(
        self, session_id: str, path: str, content: str, **kwargs: Any
    ) -> schema.WriteTextFileResponse | None:
        self.files[path] = content
        return schema.WriteTextFileResponse()

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        line: int | None = None,
        limit: int | None = None,
        **kwargs: Any,
    ) -> schema.ReadTextFileResponse:
        if path not in self.files:
            raise acp.RequestError.resource_not_found(path)
        lines = self.files[path].splitlines(keepends=True)[(line or 1) - 1 :]
        return schema.ReadTextFileResponse(content="".join(lines[:limit]))

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: list[str] | None = None,
        env: list[schema.EnvVariable] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **kwargs: Any,
    ) -> schema.CreateTerminalResponse:
        terminal_id = f"t{len(self.terminals) + 1}"
        self.terminals[terminal_id] = schema.CreateTerminalRequest(
            session_id=session_id,
            command=command,
            args=args,
            env=env,
            cwd=cwd,
            output_byte_limit=output_byte_limit,
        )
        return schema.CreateTerminalResponse(terminal_id=terminal_id)

    def ends_by_itself(self, terminal_id: str) -> bool:
        return self.terminals[terminal_id].args == script.HELLO[1]

    async def terminal_output(
        self, session_id: str, terminal_id: str, **kwargs: Any
    ) -> schema.TerminalOutputResponse:
        if self.ends_by_itself(terminal_id):
            (variable,) = self.terminals[terminal_id].env or []
            return schema.TerminalOutputResponse(
                output=f"hello {variable.value}\n",
                truncated=False,
                exit_status=schema.TerminalExitStatus(exit_code=0),
            )
        return schema.TerminalOutputResponse(output="", truncated=False)

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **kwargs: Any
    ) -> schema.WaitForTerminalExitResponse:
        if self.ends_by_itself(terminal_id):
            return schema.WaitForTerminalExitResponse(exit_code=0)
        assert terminal_id in self.killed
        return schema.WaitForTerminalExitResponse(signal="SIGKILL")

    async def kill_terminal(
        self, session_id: str, terminal_id: str, **kwargs: Any
    ) -> schema.KillTerminalResponse | None:
        self.killed.add(terminal_id)
        return schema.KillTerminalResponse()

    async def release_terminal(
        self, session_id: str, terminal_id: str, **kwargs: Any
    ) -> schema.ReleaseTerminalResponse | None:
        self.released.append(terminal_id)
        return schema.ReleaseTerminalResponse()

    async def create_elicitation(
        self, message: str, mode: schema.ElicitationMode, **kwargs: Any
    ) -> schema.CreateElicitationResponse:
        self.elicited.append((message, mode))
        answer: dict[str, Any] = {"action": "accept"}
        if isinstance(mode, schema.ElicitationFormSessionMode):
            answer["content"] = script.FORM_ANSWER
        return schema.AcceptElicitationResponse.model_validate(answer)

    async def complete_elicitation(self, elicitation_id: str, **kwargs: Any) -> None:
        self.urls_done.append(elicitation_id)

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert method == "test/ask"
        return {"answered": params["number"] + 1}

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        self.notified.append([method, params])
