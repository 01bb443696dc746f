"""The tagged dialect on the agent's side.

Handles its handshake, its numbered sessions and its prompts. A failed handler and an unknown
command end a turn with the stop reason ``error``; a cancel is a request with an immediate response.
The specification has a capability for loading a session but no method, so `session/load` is served.
The schemas are in `dragoman.dialects.legacy.tagged`.
"""

from __future__ import annotations

import itertools
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from dragoman.agent import commands
from dragoman.agent.speech.base import DocumentSpeech, outcome_of
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.legacy import tagged
from dragoman.errors import RemoteError
from dragoman.events.parts import Block, Text
from dragoman.wire import codes

if TYPE_CHECKING:
    from dragoman.agent.server import Server


class TaggedSpeech(DocumentSpeech):
    """Serves one client in the `tagged` dialect."""

    dialect = tagged.DIALECT

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._numbers = itertools.count(1)

    def new_id(self) -> str:
        return f"session-{next(self._numbers)}"

    def _initialize(self, params: tagged.Initialize) -> tagged.Initialized:
        versions = self.server.agent.versions
        if versions and params.protocol_version not in versions:
            raise RemoteError(
                codes.INVALID_PARAMS,
                f"unsupported protocol version {params.protocol_version!r}",
                {"supported": list(versions)},
            )
        # The client advertises files and terminals, but the dialect has no methods for them.
        self.greeted = True
        client = params.client_info
        self.greet(name=client.name, version=client.version)
        info = self.server.agent.info
        can = self.server.agent.capabilities
        prompt = can.prompt_capabilities
        return tagged.Initialized(
            params.protocol_version,
            tagged.Info(info.name, info.version),
            tagged.AgentCapabilities(
                can.load_session,
                tagged.PromptCapabilities(prompt.image, prompt.audio, prompt.embedded_context),
            ),
        )

    async def _new(self, params: tagged.NewSession) -> tagged.SessionAnswer:
        cwd = params.metadata.get("workDir")
        opened = await self.new_session(cwd, meta=dict(params.metadata))
        self.writers[opened.session_id] = tagged.AgentEnd(opened.session_id)
        return tagged.SessionAnswer(tagged.Session(opened.session_id, params.metadata))

    async def _load(self, params: tagged.LoadSession) -> tagged.SessionAnswer:
        session_id, cwd = params.session_id, params.metadata.get("workDir")
        await self.load(
            acp.LoadSessionRequest(
                session_id=session_id,
                cwd=self.folder(cwd),
                mcp_servers=(),
                meta=dict(params.metadata),
            ),
            tagged.AgentEnd(session_id),
        )
        return tagged.SessionAnswer(tagged.Session(session_id, params.metadata))

    def _prompt(self, params: tagged.Prompt) -> Any:
        blocks: list[Block] = [tagged.block_of(part) for part in params.prompt]
        command = params.command
        if command is not None:
            typed = Text(f"/{command.name} {command.input}".strip())
            repeated = bool(blocks) and blocks[0] == typed
            if not self._is_command(command) and not (repeated and self._is_sentence(command)):
                return self._no_such_command(params.session_id, command.name)
            if not repeated:
                blocks.insert(0, typed)
        return self._stopped(self.prompt(params.session_id, blocks))

    def _is_command(self, command: tagged.CommandInput) -> bool:
        """Return whether the agent can handle a command: it has registered this one, or has
        registered none, so that its prompt handler gets them all."""
        known = self.server.agent.handlers.commands
        return not known or command.name in known

    def _is_sentence(self, command: tagged.CommandInput) -> bool:
        """Return whether a command is really a sentence, such as ``/etc is broken``.

        A client without a list of the commands sends every prompt that begins with a slash as a
        command.
        """
        typed = commands.Command(command.name, command.input)
        return not commands.is_meant(typed, self.server.agent.handlers.commands)

    async def _no_such_command(self, session_id: str, name: str) -> tagged.Stopped:
        text = commands.missing(name, self.server.agent.handlers.commands)
        chunk = acp.AgentMessageChunk(content=acp.TextContent(text=text))
        await self.update(session_id, chunk)
        return tagged.Stopped("error")

    async def _stopped(self, work: Coroutine[Any, Any, acp.PromptResponse]) -> tagged.Stopped:
        ended = await outcome_of(work)
        if isinstance(ended, RemoteError):
            return tagged.Stopped("error")
        return tagged.Stopped(tagged.stop_reason(ended.stop_reason))

    def _cancel(self, params: tagged.Cancel) -> dict[str, Any]:
        self.server.stop(params.session_id)
        return {}

    requests = {
        tagged.INITIALIZE: (tagged.Initialize, _initialize),
        tagged.NEW: (tagged.NewSession, _new),
        tagged.LOAD: (tagged.LoadSession, _load),
        tagged.PROMPT: (tagged.Prompt, _prompt),
        tagged.CANCEL: (tagged.Cancel, _cancel),
    }
