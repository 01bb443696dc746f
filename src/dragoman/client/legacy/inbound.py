"""Answer the requests from an agent in the keyed dialect: permissions, files, terminals.

The other legacy dialects have no requests from the agent. The permission callback decides
(`client.permissions`); `client.services` implements files and terminals.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dragoman.client import file_guard
from dragoman.client.base import fail_turn, service_refusal
from dragoman.client.permissions import Answer, Decision, Permit, Question, settled
from dragoman.decoders import decode_typed
from dragoman.dialects.legacy.keyed import shapes, translate
from dragoman.errors import RemoteError, ServiceError, SpawnError
from dragoman.events import model
from dragoman.rpc import boundary
from dragoman.wire import codes
from dragoman.wire.messages import UNDECODABLE, Request

if TYPE_CHECKING:
    from dragoman.client.legacy.client import DocumentClient
    from dragoman.client.legacy.peer import DocumentConversation


def answer(client: DocumentClient, request: Request) -> Any:
    """Return a coroutine that answers a request. The call itself raises `RemoteError` if the
    request is refused; no callback has then seen it."""
    known = _REQUESTS.get(request.method)
    if known is None or client.end.name != translate.DIALECT or not known[2](client):
        raise boundary.method_not_found(request.method)
    shape, serve, _ = known
    try:
        params = decode_typed(request.params, shape)
    except UNDECODABLE as error:
        raise boundary.invalid_params(error) from error
    conversation = client.conversations.get(params.session_id)
    if conversation is None:
        raise RemoteError(codes.NOT_FOUND, "no such session", {"sessionId": params.session_id})
    return serve(client, conversation, params, request)


# -- permission


def _permission(
    client: DocumentClient,
    conversation: DocumentConversation,
    params: shapes.AskPermission,
    request: Request,
) -> Coroutine[Any, Any, shapes.Decision]:
    # An agent may reuse an id, so events use their own.
    name = client.names.new(params.permission_id)
    if name != params.permission_id:
        params = msgspec.structs.replace(params, permission_id=name)
    # Not in the coroutine: it would start after everything that arrived in the same read.
    for event in translate.of_permission(params, conversation.place, request.line):
        client.deliver(event, len(request.line))
    return _decided(client, conversation, params)


async def _decided(
    client: DocumentClient, conversation: DocumentConversation, params: shapes.AskPermission
) -> shapes.Decision:
    question = Question(
        session_id=params.session_id,
        tool_call_id=params.tool_call_id or params.permission_id,
        title=params.title,
        kind=params.kind,
        options=translate.OPTIONS,
        tool_call=params,
        request_id=params.permission_id,
    )
    fail = functools.partial(fail_turn, conversation)
    deciding = file_guard.decided(client.options.permit, question, fail)
    given = await _asked(conversation, deciding)
    option, answer = settled(translate.OPTIONS, given)
    conversation.answered(question, answer)
    client.deliver(
        model.PermissionAnswered(
            *conversation.place.base(shapes.PERMISSION, None),
            params.permission_id,
            answer.allows,
            option,
            "cancel" if answer is Answer.CANCEL else "caller",
        ),
        0,
    )
    if option is None:
        return shapes.Decision("reject", cancelled=True)
    return shapes.Decision(option)


async def _asked(
    conversation: DocumentConversation, deciding: Coroutine[Any, Any, Decision]
) -> Decision:
    """Wait for the answer and return it. If the session was abandoned, return `CANCEL` at once,
    because the agent still works on a cancelled turn there."""
    if conversation.unusable:
        deciding.close()
        return Answer.CANCEL
    return await conversation.questions.ask(conversation.turn, deciding, Answer.CANCEL)


# -- files and terminals


async def _read(conversation: DocumentConversation, params: shapes.ReadFile) -> Any:
    text = await conversation.files().read_text(params.path, line=params.line, limit=params.limit)
    return shapes.FileContent(text)


async def _write(conversation: DocumentConversation, params: shapes.WriteFile) -> Any:
    await conversation.files().write_text(params.path, params.content)


async def _create(conversation: DocumentConversation, params: shapes.CreateTerminal) -> Any:
    terminal_id = await conversation.terminals().create(
        params.command,
        params.args,
        env=params.env,
        cwd=params.cwd,
        output_byte_limit=params.output_bytes_limit,
    )
    return shapes.Terminal(terminal_id)


async def _output(conversation: DocumentConversation, params: shapes.TerminalName) -> Any:
    shown = conversation.terminals().output(params.terminal_id)
    status = shown.exit_status
    if status is None:
        return shapes.TerminalOutput(shown.output)
    return shapes.TerminalOutput(shown.output, status.exit_code, status.signal)


async def _wait(conversation: DocumentConversation, params: shapes.TerminalName) -> Any:
    status = await conversation.terminals().wait_for_exit(params.terminal_id)
    return shapes.TerminalExit(status.exit_code, status.signal)


async def _kill(conversation: DocumentConversation, params: shapes.TerminalName) -> Any:
    await conversation.terminals().kill(params.terminal_id)


async def _release(conversation: DocumentConversation, params: shapes.TerminalName) -> Any:
    await conversation.terminals().release(params.terminal_id)


async def _guarded(guard: Permit, conversation: DocumentConversation, params: Any) -> None:
    """Ask the guard whether the client may do what the agent requests. Raises `NotPermitted` unless
    the guard allows it."""
    match params:
        case shapes.ReadFile():
            question = file_guard.reading(params.session_id, params.path)
        case shapes.WriteFile():
            question = file_guard.writing(params.session_id, params.path, params.content)
        case shapes.CreateTerminal():
            question = file_guard.running(
                params.session_id,
                params.command,
                params.args,
                cwd=params.cwd,
                env=params.env,
            )
        case _:
            return
    deciding = file_guard.decided(guard, question, functools.partial(fail_turn, conversation))
    answer = await _asked(conversation, deciding)
    if question.kind != "read" or not answer.allows:
        # Not for an allowed read: agents do not ask for permission to read a file.
        conversation.answered(question, answer)
    file_guard.require(question, answer)


def _service(
    work: Callable[[DocumentConversation, Any], Coroutine[Any, Any, Any]],
) -> Callable[[DocumentClient, DocumentConversation, Any, Request], Coroutine[Any, Any, Any]]:
    """Return a request handler that asks the guard, if there is one, does `work`, and raises the
    errors of services as protocol errors.

    It emits an event when the request arrives, and a second one for an error.
    """

    def serve(
        client: DocumentClient, conversation: DocumentConversation, params: Any, request: Request
    ) -> Coroutine[Any, Any, Any]:
        called = functools.partial(
            model.ServiceCalled,
            service=request.method.partition("/")[0],
            operation=request.method,
        )
        # Not in the coroutine: it would start after everything that arrived in the same read.
        base = conversation.place.base(request.method, request.line)
        client.deliver(called(*base), len(request.line))

        async def answered() -> Any:
            conversation.serving += 1
            try:
                if client.options.guard is not None:
                    await _guarded(client.options.guard, conversation, params)
                return await work(conversation, params)
            except (ServiceError, SpawnError) as error:
                base = conversation.place.base(request.method, None)
                client.deliver(called(*base, error=str(error)), 0)
                raise service_refusal(error) from error
            finally:
                conversation.serving -= 1

        return answered()

    return serve


def _always(client: DocumentClient) -> bool:
    return True


def _reads(client: DocumentClient) -> bool:
    return client.options.read_files


def _writes(client: DocumentClient) -> bool:
    return client.options.write_files


def _runs(client: DocumentClient) -> bool:
    return client.options.terminals


_REQUESTS: Final[dict[str, tuple[Any, Callable[..., Any], Callable[[DocumentClient], bool]]]] = {
    shapes.PERMISSION: (shapes.AskPermission, _permission, _always),
    shapes.READ: (shapes.ReadFile, _service(_read), _reads),
    shapes.WRITE: (shapes.WriteFile, _service(_write), _writes),
    shapes.TERMINAL_CREATE: (shapes.CreateTerminal, _service(_create), _runs),
    shapes.TERMINAL_OUTPUT: (shapes.TerminalName, _service(_output), _runs),
    shapes.TERMINAL_WAIT: (shapes.TerminalName, _service(_wait), _runs),
    shapes.TERMINAL_KILL: (shapes.TerminalName, _service(_kill), _runs),
    shapes.TERMINAL_RELEASE: (shapes.TerminalName, _service(_release), _runs),
}
