"""An agent written with the official Python SDK, as a program: the peer of our client.

It plays the scenes of `script` and uses nothing of dragoman. It repeats what it receives in what it
says, so that the client can check that everything arrived.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import acp
import pydantic
from acp import schema

from tests.interop import script

MODES = schema.SessionModeState(
    current_mode_id="ask",
    available_modes=[
        schema.SessionMode(id="ask", name="Ask"),
        schema.SessionMode(id="plan", name="Plan"),
    ],
)


class ScriptedAgent:
    """Answers every method that the SDK routes to an agent."""

    def __init__(self) -> None:
        self.client: acp.Client | None = None
        self.logged_in = False
        self.mode = "ask"
        self.depth = "flat"
        self.loud = False
        self.opened: dict[str, dict[str, Any]] = {}
        self.stops: dict[str, asyncio.Event] = {}
        self.told: list[Any] = []

    def on_connect(self, conn: acp.Client) -> None:
        self.client = conn

    @property
    def peer(self) -> acp.Client:
        assert self.client is not None
        return self.client

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
        **kwargs: Any,
    ) -> schema.InitializeResponse:
        assert client_info is not None
        return schema.InitializeResponse(
            protocol_version=protocol_version,
            agent_info=schema.Implementation(name="scripted", title=client_info.name, version="1"),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(
                    image=True, audio=True, embedded_context=True
                ),
                mcp_capabilities=schema.McpCapabilities(http=True, sse=True),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities(),
                    resume=schema.SessionResumeCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                    fork=schema.SessionForkCapabilities(),
                    additional_directories=schema.SessionAdditionalDirectoriesCapabilities(),
                ),
            ),
            auth_methods=[schema.AuthMethodAgent(id="door", name="Door", description="Knock")],
        )

    async def authenticate(
        self, method_id: str, **kwargs: Any
    ) -> schema.AuthenticateResponse | None:
        assert method_id == "door"
        self.logged_in = True
        return schema.AuthenticateResponse()

    # -- sessions

    def remember(self, session_id: str, cwd: str, folders: Any, servers: Any) -> None:
        if Path(cwd).name == script.LOCKED and not self.logged_in:
            raise acp.RequestError.auth_required({"why": "the folder is locked"})
        self.opened[session_id] = {
            "cwd": cwd,
            "folders": list(folders or []),
            "servers": [server.name for server in servers or []],
        }

    async def new_session(
        self,
        cwd: str,
        additional_directories: Any = None,
        mcp_servers: Any = None,
        **kwargs: Any,
    ) -> schema.NewSessionResponse:
        session_id = f"s{len(self.opened) + 1}"
        self.remember(session_id, cwd, additional_directories, mcp_servers)
        return schema.NewSessionResponse(
            session_id=session_id, modes=MODES, config_options=self.options()
        )

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Any = None,
        additional_directories: Any = None,
        **kwargs: Any,
    ) -> schema.LoadSessionResponse | None:
        if session_id not in self.opened:
            raise acp.RequestError.resource_not_found(session_id)
        self.remember(session_id, cwd, additional_directories, mcp_servers)
        await self.peer.session_update(session_id, acp.update_user_message_text("earlier"))
        await self.say(session_id, "later")
        return schema.LoadSessionResponse(modes=MODES, config_options=self.options())

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: Any = None,
        mcp_servers: Any = None,
        **kwargs: Any,
    ) -> schema.ResumeSessionResponse:
        self.remember(session_id, cwd, additional_directories, mcp_servers)
        return schema.ResumeSessionResponse(modes=MODES, config_options=self.options())

    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: Any = None,
        mcp_servers: Any = None,
        **kwargs: Any,
    ) -> schema.ForkSessionResponse:
        forked = f"{session_id}-fork"
        self.remember(forked, cwd, additional_directories, mcp_servers)
        return schema.ForkSessionResponse(session_id=forked, modes=MODES)

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any
    ) -> schema.ListSessionsResponse:
        number = int(cursor or 0)
        ids = list(self.opened)
        following = number + 1
        return schema.ListSessionsResponse(
            sessions=[
                schema.SessionInfo(
                    session_id=ids[number],
                    cwd=self.opened[ids[number]]["cwd"],
                    title=f"Session {number}",
                    updated_at="2026-01-02T03:04:05Z",
                )
            ],
            next_cursor=str(following) if following < len(ids) else None,
        )

    async def close_session(
        self, session_id: str, **kwargs: Any
    ) -> schema.CloseSessionResponse | None:
        assert session_id in self.opened
        return schema.CloseSessionResponse()

    # -- settings

    def options(self) -> list[schema.SessionConfigOptionSelect | schema.SessionConfigOptionBoolean]:
        return [
            schema.SessionConfigOptionSelect(
                type="select",
                id="depth",
                name="Depth",
                current_value=self.depth,
                options=[
                    schema.SessionConfigSelectOption(value="flat", name="Flat"),
                    schema.SessionConfigSelectOption(value="deep", name="Deep"),
                ],
            ),
            schema.SessionConfigOptionBoolean(
                type="boolean", id="loud", name="Loud", current_value=self.loud
            ),
        ]

    async def set_session_mode(
        self, session_id: str, mode_id: str, **kwargs: Any
    ) -> schema.SetSessionModeResponse | None:
        self.mode = mode_id
        return schema.SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **kwargs: Any
    ) -> schema.SetSessionConfigOptionResponse | None:
        setattr(self, config_id, value)
        return schema.SetSessionConfigOptionResponse(config_options=self.options())

    # -- turns

    async def say(self, session_id: str, text: str) -> None:
        await self.peer.session_update(session_id, acp.update_agent_message_text(text))

    async def prompt(
        self, session_id: str, prompt: list[Any], **kwargs: Any
    ) -> schema.PromptResponse:
        scene = getattr(self, f"play_{prompt[0].text}")
        return await scene(session_id, prompt) or schema.PromptResponse(stop_reason="end_turn")

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        self.stops[session_id].set()

    async def play_where(self, session_id: str, prompt: list[Any]) -> None:
        await self.say(session_id, json.dumps(self.opened[session_id]))

    async def play_settings(self, session_id: str, prompt: list[Any]) -> None:
        await self.say(session_id, json.dumps([self.mode, self.depth, self.loud]))

    async def play_content(self, session_id: str, prompt: list[Any]) -> None:
        for block in prompt:
            await self.peer.session_update(session_id, acp.update_agent_message(block))

    async def play_updates(self, session_id: str, prompt: list[Any]) -> None:
        for update in script.UPDATES:
            if update["sessionUpdate"] in ("notice",) or "compactionId" in update:
                # These are newer than the SDK.
                continue
            message = schema.SessionNotification.model_validate(
                {"sessionId": session_id, "update": update}
            )
            await self.peer.session_update(session_id, message.update)

    async def play_cancel(self, session_id: str, prompt: list[Any]) -> schema.PromptResponse:
        self.stops[session_id] = asyncio.Event()
        await self.say(session_id, "waiting")
        await self.stops[session_id].wait()
        await self.say(session_id, "stopped")
        return schema.PromptResponse(stop_reason="cancelled")

    # -- what the client is asked for

    async def play_files(self, session_id: str, prompt: list[Any]) -> None:
        folder = Path(self.opened[session_id]["cwd"])
        path = str(folder / "made.txt")
        await self.peer.write_text_file(session_id, path, script.FILE_TEXT)
        whole = await self.peer.read_text_file(session_id, path)
        part = await self.peer.read_text_file(session_id, path, line=2, limit=1)
        try:
            await self.peer.read_text_file(session_id, str(folder / "missing.txt"))
            code = 0
        except acp.RequestError as error:
            code = error.code
        await self.say(session_id, json.dumps([whole.content, part.content, code]))

    async def play_terminals(self, session_id: str, prompt: list[Any]) -> None:
        command, args = script.HELLO
        created = await self.peer.create_terminal(
            session_id,
            command,
            args,
            env=[schema.EnvVariable(name="GREETED", value="world")],
            cwd=self.opened[session_id]["cwd"],
            output_byte_limit=1000,
        )
        ended = await self.peer.wait_for_terminal_exit(session_id, created.terminal_id)
        output = await self.peer.terminal_output(session_id, created.terminal_id)
        await self.peer.release_terminal(session_id, created.terminal_id)
        command, args = script.ENDLESS
        endless = await self.peer.create_terminal(session_id, command, args)
        running = await self.peer.terminal_output(session_id, endless.terminal_id)
        await self.peer.kill_terminal(session_id, endless.terminal_id)
        killed = await self.peer.wait_for_terminal_exit(session_id, endless.terminal_id)
        await self.peer.release_terminal(session_id, endless.terminal_id)
        await self.say(
            session_id,
            json.dumps(
                {
                    "output": output.output,
                    "truncated": output.truncated,
                    "code": ended.exit_code,
                    "running": running.exit_status is None,
                    "killed": killed.signal is not None or killed.exit_code not in (0, None),
                }
            ),
        )

    async def play_permission(self, session_id: str, prompt: list[Any]) -> None:
        answers = []
        for title in ("Allowed", "Forbidden"):
            response = await self.peer.request_permission(
                session_id,
                schema.ToolCallUpdate(tool_call_id=title, title=title, kind="execute"),
                [
                    schema.PermissionOption(option_id="no", name="No", kind="reject_once"),
                    schema.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
                ],
            )
            answers.append(getattr(response.outcome, "option_id", None))
        await self.say(session_id, json.dumps(answers))

    async def play_elicitation(self, session_id: str, prompt: list[Any]) -> None:
        form = await self.peer.create_elicitation(
            "Who are you?",
            schema.ElicitationFormSessionMode(
                session_id=session_id,
                requested_schema=schema.ElicitationSchema.model_validate(script.FORM),
            ),
        )
        url = await self.peer.create_elicitation(
            "Go there",
            schema.ElicitationUrlSessionMode(
                session_id=session_id,
                elicitation_id="e1",
                url=pydantic.AnyUrl("https://example.com/go"),
            ),
        )
        await self.peer.complete_elicitation("e1")
        answers = [
            answer.model_dump(mode="json", by_alias=True, exclude_none=True)
            for answer in (form, url)
        ]
        await self.say(session_id, json.dumps(answers))

    async def play_extensions(self, session_id: str, prompt: list[Any]) -> None:
        answer = await self.peer.ext_method("test/ask", {"number": 20})
        await self.peer.ext_notification("test/told", {"number": 21})
        await self.say(session_id, json.dumps({"answer": answer, "told": self.told}))

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method != "test/double":
            raise acp.RequestError.method_not_found(f"_{method}")
        return {"doubled": params["number"] * 2}

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        self.told.append([method, params])


if __name__ == "__main__":
    asyncio.run(acp.run_agent(ScriptedAgent(), use_unstable_protocol=True))
