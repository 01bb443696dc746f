"""Answer the Codex app-server's requests: approvals, questions to the user, MCP elicitations.

Each request gets exactly one response, and events record the question and its answer. The
callbacks in `CodexOptions` decide; `approvals` and `inquiries` convert the messages.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dragoman.client import inquiries
from dragoman.client.base import fail_turn
from dragoman.client.codex import approvals
from dragoman.client.codex import inquiries as codex_inquiries
from dragoman.client.file_guard import decided
from dragoman.client.inquiries import Inquire, Inquiry, Reply
from dragoman.client.open_questions import RequestNames
from dragoman.client.permissions import Answer, Question
from dragoman.decoders import decode_typed
from dragoman.dialects.codex import shapes
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.rpc import boundary
from dragoman.wire.messages import UNDECODABLE, Request

if TYPE_CHECKING:
    from dragoman.client.codex.client import CodexClient

T = TypeVar("T")


class ServerRequests:
    """Answers the requests of one server."""

    def __init__(self, client: CodexClient) -> None:
        self._client = client
        self.names = RequestNames()
        """The names that events use for the requests."""

    def _name(self, request: Request) -> str:
        return self.names.new(str(request.id))

    def ask(self, request: Request) -> Any:
        """Return a coroutine that answers a request. The call itself raises `RemoteError` if the
        request is unknown or malformed. The error is sent as the response, because without one the
        turn would wait forever."""
        try:
            approval = approvals.APPROVALS.get(request.method)
            if approval is not None:
                return self._approve(approval(request.params), request)
            if request.method == "item/tool/requestUserInput":
                asked = decode_typed(request.params, shapes.UserInputRequest)
                return self._answer_questions(asked, request)
            if request.method == "mcpServer/elicitation/request":
                wanted = decode_typed(request.params, shapes.ElicitationRequest)
                call = approvals.tool_call(wanted)
                if call is not None:
                    return self._approve(call, request)
                return self._fill_in(wanted, request)
        except UNDECODABLE as error:
            self._client.emit_unknown(request.method, request.line, str(error))
            raise boundary.invalid_params(error) from error
        self._client.emit_unknown(request.method, request.line, "an unknown request")
        raise boundary.method_not_found(request.method)

    async def _ask(
        self, thread_id: str, work: Coroutine[Any, Any, T], name: str, otherwise: T
    ) -> T:
        """Wait for the answer of `work`. Returns `otherwise` if the turn is cancelled, the question
        is withdrawn, or the thread is not open here or was abandoned."""
        conversation = self._client.conversations.get(thread_id)
        if conversation is None or conversation.unusable:
            work.close()
            if conversation is not None:
                conversation.questions.withdraw(name)
            return otherwise
        return await conversation.questions.ask(conversation.turn, work, otherwise, name=name)

    # -- approvals

    def _approve(self, approval: approvals.Approval, request: Request) -> Coroutine[Any, Any, Any]:
        client = self._client
        conversation = client.conversations.get(approval.thread_id)
        title = None
        if conversation is not None:
            title = conversation.title_of(approval.item_id)
            approval = approval.about(conversation.changes_of(approval.item_id))
        question = approval.question(self._name(request), title)
        place = client.place(approval.thread_id, approval.turn_id)
        # Not in the coroutine: it would start after everything that arrived in the same read.
        client.deliver(
            model.PermissionAsked(
                *place.base(request.method, request.line),
                question.request_id,
                approval.options,
                question.title,
                approval.description,
                approval.kind,
                approval.item_id,
            ),
            len(request.line),
        )
        return self._approved(approval, question, place, request)

    async def _approved(
        self,
        approval: approvals.Approval,
        question: Question,
        place: EventEnvelope,
        request: Request,
    ) -> Any:
        client = self._client
        conversation = client.conversations.get(approval.thread_id)
        deciding = decided(client.options.permit, question, partial(fail_turn, conversation))
        name = question.request_id
        given = await self._ask(approval.thread_id, deciding, name, Answer.CANCEL)
        option_id, reply, answer = approval.reply(given)
        if conversation is not None:
            conversation.answered(question, answer)
        client.deliver(
            model.PermissionAnswered(
                *place.base(request.method, None),
                question.request_id,
                answer.allows,
                option_id,
                "cancel" if answer is Answer.CANCEL else "caller",
            ),
            0,
        )
        return reply

    # -- questions to the user

    def _answer_questions(
        self, asked: shapes.UserInputRequest, request: Request
    ) -> Coroutine[Any, Any, Any]:
        place = self._client.place(asked.thread_id, asked.turn_id)
        name = self._name(request)
        message = "; ".join(str(question.get("question", "")) for question in asked.questions)
        self._client.deliver(
            model.InputAsked(
                *place.base(request.method, request.line),
                name,
                "questions",
                message,
                asked.questions,
                None,
                asked.item_id,
            ),
            len(request.line),
        )
        return self._questions_answered(asked, place, request, name)

    async def _questions_answered(
        self, asked: shapes.UserInputRequest, place: EventEnvelope, request: Request, name: str
    ) -> Any:
        nothing: dict[str, Sequence[str]] = {}
        answers = nothing
        answering = self._client.options.answer_questions
        try:
            if answering is not None:
                work = _awaited(answering, asked)
                answers = await self._ask(asked.thread_id, work, name, nothing)
            elif (inquiry := codex_inquiries.of_questions(asked)) is not None:
                answers = codex_inquiries.answers_of(
                    await self._inquire(asked.thread_id, inquiry, name)
                )
        except BaseException:
            # The callback failed, or the server disconnected.
            self._settled(place, request, name, action="cancel")
            raise
        self._settled(place, request, name, action="accept" if answers else "decline")
        return {"answers": {key: {"answers": list(given)} for key, given in answers.items()}}

    def _fill_in(
        self, wanted: shapes.ElicitationRequest, request: Request
    ) -> Coroutine[Any, Any, Any]:
        place = self._client.place(wanted.thread_id, wanted.turn_id)
        name = self._name(request)
        self._client.deliver(
            model.InputAsked(
                *place.base(request.method, request.line),
                name,
                wanted.mode or "other",
                wanted.message,
                wanted.requested_schema,
                wanted.url,
            ),
            len(request.line),
        )
        return self._filled_in(wanted, place, request, name)

    async def _filled_in(
        self, wanted: shapes.ElicitationRequest, place: EventEnvelope, request: Request, name: str
    ) -> Any:
        reply = inquiries.DECLINED
        filling = self._client.options.answer_form
        try:
            if filling is not None:
                content = await self._ask(wanted.thread_id, _awaited(filling, wanted), name, None)
                reply = reply if content is None else Reply("accept", content)
            elif (inquiry := codex_inquiries.of_elicitation(wanted)) is not None:
                reply = await self._inquire(wanted.thread_id, inquiry, name)
        except BaseException:
            self._settled(place, request, name, action="cancel")
            raise
        self._settled(place, request, name, action=reply.action)
        return {"action": reply.action, "content": reply.content}

    async def _inquire(self, thread_id: str, inquiry: Inquiry, name: str) -> Reply:
        inquire = self._client.options.inquire
        if inquire is None:
            return inquiries.DECLINED
        work = _replied(inquire, inquiry)
        return await self._ask(thread_id, work, name, inquiries.CANCELLED)

    def _settled(self, place: EventEnvelope, request: Request, name: str, *, action: str) -> None:
        base = place.base(request.method, None)
        self._client.deliver(model.InputAnswered(*base, name, action), 0)


async def _replied(inquire: Inquire, inquiry: Inquiry) -> Reply:
    reply = inquire(inquiry)
    return await reply if inspect.isawaitable(reply) else reply


async def _awaited(answering: Any, asked: Any) -> Any:
    return await answering(asked)
