"""The keyed dialect on the agent's side.

Handles its handshake, sessions, modes and prompts, and translates the agent's requests to its
client: permissions, files, terminals. The schemas are in `dragoman.dialects.legacy.keyed.shapes`.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from dragoman.agent.speech.base import DocumentSpeech
from dragoman.decoders import decode_typed
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate as acp_meaning
from dragoman.dialects.acp.v1.methods import Method
from dragoman.dialects.legacy.keyed import shapes
from dragoman.dialects.legacy.keyed import translate as keyed_translate
from dragoman.errors import InvalidAnswer
from dragoman.wire.messages import UNDECODABLE, Notification

if TYPE_CHECKING:
    from dragoman.agent.server import Server

log: Final = logging.getLogger("dragoman.agent")

P = TypeVar("P")
R = TypeVar("R")


class Login(str):
    """The id of a login method, with the secret that the client sent, if any."""

    password: str | None = None
    token: str | None = None


class KeyedSpeech(DocumentSpeech):
    """Serves one client in the `keyed` dialect."""

    dialect = keyed_translate.DIALECT

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._permissions = itertools.count(1)

    def take_over(self, session_ids: Iterable[str]) -> None:
        self.greeted = self.presumed = True
        self.writers.update({id: keyed_translate.AgentEnd(id) for id in session_ids})

    # -- the handshake

    def _initialize(self, params: shapes.Initialize) -> shapes.Initialized:
        self.greeted = True
        can = params.client_capabilities
        files = can.fs or shapes.Files()
        client = params.client_info
        self.greet(
            acp.ClientCapabilities(
                fs=acp.FileSystemCapabilities(
                    read_text_file=files.read_text_file, write_text_file=files.write_text_file
                ),
                terminal=can.terminal,
            ),
            name=client.name,
            version=client.version or "",
            title=client.title,
        )
        info = self.server.agent.info
        agent = self.server.agent
        methods = [m.id for m in (*agent.auth_methods, *agent.secret_methods)] or ["none"]
        return shapes.Initialized(
            keyed_translate.VERSION,
            shapes.Info(info.name, info.title, info.version),
            shapes.AgentCapabilities(modes=bool(self.server.agent.choices.modes), plan=True),
            methods,
        )

    async def _authenticate(self, params: shapes.Authenticate) -> None:
        login = Login(params.method)
        login.password, login.token = params.password, params.token
        await self.server.perform(acp.AUTHENTICATE, acp.AuthenticateRequest(method_id=login))

    # -- sessions

    async def _new(self, params: shapes.NewSession) -> shapes.Opened:
        meta = None
        if params.model is not None:
            meta = {"model": f"{params.model.provider}/{params.model.model}"}
        opened = await self.new_session(params.cwd, _servers(params.mcp_servers), meta)
        session_id = opened.session_id
        self.writers[session_id] = keyed_translate.AgentEnd(session_id)
        modes = opened.modes
        current = modes.current_mode_id if modes else None
        try:
            if meta is not None:
                await self._set_model(session_id, meta["model"])
            if params.mode_id is not None:
                await self._set_mode(shapes.SetMode(session_id, params.mode_id))
                current = params.mode_id
        except BaseException:
            # The client will not know the session, so it cannot close it.
            del self.writers[session_id]
            closing = acp.CloseSessionRequest(session_id=session_id)
            await self.server.perform(acp.SESSION_CLOSE, closing)
            raise
        return _opened(session_id, modes, current)

    async def _set_model(self, session_id: str, model: str) -> None:
        """Set the agent's options of the category ``model`` that accept this value; if there are
        none, the model is only in the session's `meta`."""
        choices = self.server.agent.choices
        for option in choices.options:
            if option.category == "model" and choices.allows(option.id, model):
                request = acp.SetSessionConfigOptionRequest(
                    session_id=session_id, config_id=option.id, value=model
                )
                await self.server.perform(acp.SESSION_SET_CONFIG_OPTION, request)

    async def _load(self, params: shapes.LoadSession) -> shapes.Opened:
        session_id = params.session_id
        loaded = await self.load(
            acp.LoadSessionRequest(
                session_id=session_id,
                cwd=params.cwd or str(Path.cwd()),
                mcp_servers=_servers(params.mcp_servers),
            ),
            keyed_translate.AgentEnd(session_id),
        )
        modes = loaded.modes
        return _opened(session_id, modes, modes.current_mode_id if modes else None)

    async def _set_mode(self, params: shapes.SetMode) -> None:
        await self.server.perform(
            acp.SESSION_SET_MODE,
            acp.SetSessionModeRequest(session_id=params.session_id, mode_id=params.mode_id),
        )

    def _prompt(self, params: shapes.Prompt) -> Coroutine[Any, Any, shapes.Stopped]:
        work = self.prompt(params.session_id, [keyed_translate.block(b) for b in params.content])
        writer = self.writers.get(params.session_id)
        if isinstance(writer, keyed_translate.AgentEnd):
            writer.begin()
        return _stopped(work)

    def _cancel(self, params: shapes.Cancel) -> None:
        self.server.stop(params.session_id)

    def notification(self, notification: Notification) -> None:
        # The specification does not say whether a cancel is a request, so both forms are accepted.
        if notification.method == shapes.CANCEL:
            try:
                params = decode_typed(notification.params, shapes.Cancel)
            except UNDECODABLE as error:
                log.warning("a %s could not be decoded: %s", shapes.CANCEL, error)
                return
            self._cancel(params)
        else:
            super().notification(notification)

    # -- requests from the agent

    async def ask(self, method: Method[P, R], params: P) -> R:
        translate = _QUESTIONS.get(method.name)
        if translate is None:
            return await super().ask(method, params)
        return cast(R, await translate(self, params))

    async def call(self, method: str, params: Any, result: Any) -> Any:
        raw = await self.server.connection.call(method, params)
        if result is None:
            return None
        try:
            return decode_typed(raw, result)
        except UNDECODABLE as error:
            raise InvalidAnswer(f"invalid response to {method}: {error}") from error

    async def permission(
        self, params: acp.RequestPermissionRequest
    ) -> acp.RequestPermissionResponse:
        call = params.tool_call
        content = [
            keyed_translate.to_block(acp_meaning.block(item.content))
            for item in call.content or ()
            if isinstance(item, acp.Content)
        ]
        decision: shapes.Decision = await self.call(
            shapes.PERMISSION,
            shapes.AskPermission(
                params.session_id,
                f"permission-{next(self._permissions)}",
                call.title or call.tool_call_id,
                keyed_translate.permission_kind(call.kind),
                call.tool_call_id,
                content or None,
            ),
            shapes.Decision,
        )
        kinds = {
            "once": ("allow_once",),
            "always": ("allow_always", "allow_once"),
            "reject": ("reject_once", "reject_always"),
        }.get(decision.decision, ())
        if not decision.cancelled:
            for kind in kinds:
                for option in params.options:
                    if option.kind == kind:
                        return acp.selected(option.option_id)
        return acp.cancelled()

    requests = {
        shapes.INITIALIZE: (shapes.Initialize, _initialize),
        shapes.AUTHENTICATE: (shapes.Authenticate, _authenticate),
        shapes.NEW: (shapes.NewSession, _new),
        shapes.LOAD: (shapes.LoadSession, _load),
        shapes.PROMPT: (shapes.Prompt, _prompt),
        shapes.SET_MODE: (shapes.SetMode, _set_mode),
        shapes.CANCEL: (shapes.Cancel, _cancel),
    }


async def _stopped(work: Coroutine[Any, Any, acp.PromptResponse]) -> shapes.Stopped:
    return shapes.Stopped(keyed_translate.stop_reason((await work).stop_reason))


def _opened(
    session_id: str, modes: acp.SessionModeState | None, current: str | None
) -> shapes.Opened:
    if modes is None:
        return shapes.Opened(session_id)
    known = [shapes.Mode(m.id, m.name, m.description) for m in modes.available_modes]
    return shapes.Opened(session_id, known, current)


def _servers(servers: Sequence[shapes.McpServer]) -> list[acp.McpServer]:
    found: list[acp.McpServer] = []
    for number, server in enumerate(servers, 1):
        name = f"server-{number}"
        if isinstance(server, shapes.LocalServer):
            env = [acp.EnvVariable(name=k, value=v) for k, v in server.environment.items()]
            found.append(
                acp.McpServerStdio(name=name, command=server.command, args=server.args, env=env)
            )
        else:
            headers = [acp.HttpHeader(name=k, value=v) for k, v in server.headers.items()]
            found.append(acp.McpServerHttp(name=name, url=server.url, headers=headers))
    return found


# -- files and terminals


async def _read(speech: KeyedSpeech, p: acp.ReadTextFileRequest) -> acp.ReadTextFileResponse:
    body = shapes.ReadFile(p.session_id, p.path, p.line, p.limit)
    answer: shapes.FileContent = await speech.call(shapes.READ, body, shapes.FileContent)
    return acp.ReadTextFileResponse(content=answer.content)


async def _write(speech: KeyedSpeech, p: acp.WriteTextFileRequest) -> acp.WriteTextFileResponse:
    await speech.call(shapes.WRITE, shapes.WriteFile(p.session_id, p.path, p.content), None)
    return acp.WriteTextFileResponse()


async def _create(speech: KeyedSpeech, p: acp.CreateTerminalRequest) -> acp.CreateTerminalResponse:
    body = shapes.CreateTerminal(
        p.session_id,
        p.command,
        list(p.args),
        {variable.name: variable.value for variable in p.env},
        p.cwd,
        p.output_byte_limit,
    )
    answer: shapes.Terminal = await speech.call(shapes.TERMINAL_CREATE, body, shapes.Terminal)
    return acp.CreateTerminalResponse(terminal_id=answer.terminal_id)


async def _output(speech: KeyedSpeech, p: acp.TerminalOutputRequest) -> acp.TerminalOutputResponse:
    body = shapes.TerminalName(p.session_id, p.terminal_id)
    shown: shapes.TerminalOutput = await speech.call(
        shapes.TERMINAL_OUTPUT, body, shapes.TerminalOutput
    )
    status = None
    if shown.exit_code is not None or shown.signal is not None:
        status = acp.TerminalExitStatus(exit_code=shown.exit_code, signal=shown.signal)
    return acp.TerminalOutputResponse(output=shown.output, truncated=False, exit_status=status)


async def _wait(
    speech: KeyedSpeech, p: acp.WaitForTerminalExitRequest
) -> acp.WaitForTerminalExitResponse:
    body = shapes.TerminalName(p.session_id, p.terminal_id)
    ended: shapes.TerminalExit = await speech.call(shapes.TERMINAL_WAIT, body, shapes.TerminalExit)
    return acp.WaitForTerminalExitResponse(exit_code=ended.exit_code, signal=ended.signal)


async def _kill(speech: KeyedSpeech, p: acp.KillTerminalRequest) -> acp.KillTerminalResponse:
    body = shapes.TerminalName(p.session_id, p.terminal_id)
    await speech.call(shapes.TERMINAL_KILL, body, None)
    return acp.KillTerminalResponse()


async def _release(
    speech: KeyedSpeech, p: acp.ReleaseTerminalRequest
) -> acp.ReleaseTerminalResponse:
    body = shapes.TerminalName(p.session_id, p.terminal_id)
    await speech.call(shapes.TERMINAL_RELEASE, body, None)
    return acp.ReleaseTerminalResponse()


_QUESTIONS: dict[str, Callable[[KeyedSpeech, Any], Coroutine[Any, Any, Any]]] = {
    acp.SESSION_REQUEST_PERMISSION.name: KeyedSpeech.permission,
    acp.FS_READ_TEXT_FILE.name: _read,
    acp.FS_WRITE_TEXT_FILE.name: _write,
    acp.TERMINAL_CREATE.name: _create,
    acp.TERMINAL_OUTPUT.name: _output,
    acp.TERMINAL_WAIT_FOR_EXIT.name: _wait,
    acp.TERMINAL_KILL.name: _kill,
    acp.TERMINAL_RELEASE.name: _release,
}
