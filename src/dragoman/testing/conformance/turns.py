"""Checks of an agent's turns. Each of them makes the agent call its model.

Covers prompts, streamed updates and the response, cancelling, and loading a conversation. They run
only on request, because model calls cost money. `sessions` has the checks that need no model.
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.testing.conformance import shapes
from dragoman.testing.conformance.checks import AgentCheck, Lab, Skip, agent_check, expect
from dragoman.testing.conformance.conversation import Answer, Conversation, Message, Silence
from dragoman.wire import codes

HISTORY: Final = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call")
"""Updates with content, in contrast to session settings."""

CALL_OFF_TIMEOUT: Final = 5.0
"""Seconds after which an agent that has not answered a cancelled request is assumed to ignore
`$/cancel_request`."""


@agent_check("ACP1-PRM-03", "ACP1-PRM-04", "ACP1-CAP-05", turns=True)
async def turn_ends_with_a_stop_reason(lab: Lab) -> None:
    """The response to a prompt has one of the five stop reasons and follows updates of its
    session."""
    conversation, session = await _new(lab)
    answer = await _prompt(lab, conversation, session, _text(lab.prompt))
    reason = _stop_reason(answer)
    lab.turned = (session, lab.prompt)
    expect(
        reason != "cancelled", "a turn ended as cancelled, but was not cancelled", answer.message
    )
    expect(_updates(conversation, session), "a turn sent no update of its session")


@agent_check("ACP1-CAN-07", "ACP1-PRM-03", turns=True, advisory=True)
async def nothing_is_said_after_the_answer(lab: Lab) -> None:
    """All updates of a turn come before its response."""
    conversation, session = await _new(lab)
    answer = await _prompt(lab, conversation, session, _text(lab.prompt))
    await conversation.fence("a turn")
    late = _updates(conversation, session, after=answer.position)
    expect(not late, "an update of the turn came after its response", late[:1])


@agent_check("ACP1-CAP-06", turns=True)
async def links_are_accepted_in_prompts(lab: Lab) -> None:
    """A prompt may contain links to resources in addition to text."""
    conversation, session = await _new(lab)
    link = {"type": "resource_link", "uri": "file:///no/such/file.txt", "name": "file.txt"}
    answer = await _prompt(lab, conversation, session, [*_text(lab.prompt), link])
    _stop_reason(answer)


@agent_check("ACP1-CAN-05", "ACP1-CAN-06", "ACP1-CAN-04", turns=True)
async def cancelled_turn_says_so(lab: Lab) -> None:
    """After `session/cancel`, the response to the prompt is `cancelled`, not an error."""
    conversation, session = await _new(lab)
    id = await _begin_long(lab, conversation, session)
    conversation.tell("session/cancel", {"sessionId": session})
    answer = await _answer(lab, conversation, id)
    expect(answer.error is None, "the response to a cancelled prompt was an error", answer.message)
    if _stop_reason(answer) != "cancelled":
        raise Skip(
            f"the stop reason is {answer.fields().get('stopReason')}, not cancelled; the turn may "
            "have ended before the cancel arrived"
        )


@agent_check("ACP1-CAN-07", turns=True)
async def nothing_is_said_after_a_cancelled_answer(lab: Lab) -> None:
    """All updates of a cancelled turn come before its response."""
    conversation, session = await _new(lab)
    id = await _begin_long(lab, conversation, session)
    conversation.tell("session/cancel", {"sessionId": session})
    answer = await _answer(lab, conversation, id)
    await conversation.fence("a cancelled turn")
    late = _updates(conversation, session, after=answer.position)
    expect(not late, "an update of the turn came after its response", late[:1])


@agent_check("ACP1-RCAN-02", "ACP1-RCAN-05", turns=True)
async def cancelled_request_is_still_answered(lab: Lab) -> None:
    """A prompt cancelled with `$/cancel_request` still gets a response: a result, or the error
    -32800."""
    conversation, session = await _new(lab)
    id = await _begin_long(lab, conversation, session)
    conversation.tell("$/cancel_request", {"requestId": id})
    limit = min(CALL_OFF_TIMEOUT, lab.turn_timeout)
    try:
        answer = await conversation.answer(id, "session/prompt", timeout=limit)
    except Silence:
        # An agent that does not know the notification may ignore it. Then the turn continues.
        conversation.tell("session/cancel", {"sessionId": session})
        await _answer(lab, conversation, id)
        raise Skip("it ignores $/cancel_request, which is allowed") from None
    known = answer.error is None or answer.code == codes.REQUEST_CANCELLED
    expect(known, "the error code is not -32800", answer.message)


@agent_check("ACP1-CLOSE-02", turns=True)
async def closing_cancels_the_turn(lab: Lab) -> None:
    """`session/close` during a turn cancels the turn; both requests get a response."""
    await lab.require("sessionCapabilities.close")
    conversation, session = await _new(lab)
    id = await _begin_long(lab, conversation, session)
    (await conversation.ask("session/close", {"sessionId": session})).result()
    await _answer(lab, conversation, id)


@agent_check("ACP1-LOAD-02", "ACP1-LOAD-03", turns=True)
async def loading_replays_before_it_answers(lab: Lab) -> None:
    """`session/load` replays the messages of both sides before it responds."""
    await lab.require("loadSession")
    session, prompt = await _turned(lab)
    conversation = await lab.fresh_ready()
    answer = await _reopen(lab, conversation, "session/load", session)
    replayed = _updates(conversation, session, before=answer.position)
    kinds = {update.get("sessionUpdate") for update in replayed}
    expect("user_message_chunk" in kinds, "the user's messages were not replayed", replayed[:1])
    said = _said(replayed, "user_message_chunk")
    expect(prompt in said, "the prompt was not replayed unchanged", said)
    expect("agent_message_chunk" in kinds, "the agent's messages were not replayed")
    await conversation.fence("session/load")
    late = _updates(conversation, session, after=answer.position)
    expect(not late, "history came after the response", late[:1])


@agent_check("ACP1-RES-02", turns=True)
async def resuming_does_not_replay(lab: Lab) -> None:
    """`session/resume` opens the session without a replay."""
    await lab.require("sessionCapabilities.resume")
    session, _ = await _turned(lab)
    conversation = await lab.fresh_ready()
    answer = await _reopen(lab, conversation, "session/resume", session)
    replayed = _updates(conversation, session, before=answer.position)
    expect(not replayed, "history was replayed", replayed[:1])


# -- parts of turns


async def _new(lab: Lab) -> tuple[Conversation, str]:
    """Open a session for one check in the shared process. Returns the conversation with the
    process, and the session's id."""
    conversation = await lab.ready()
    return conversation, str((await lab.new_session(conversation))["sessionId"])


def _text(prompt: str) -> list[Message]:
    return [{"type": "text", "text": prompt}]


async def _prompt(
    lab: Lab, conversation: Conversation, session: str, prompt: list[Message]
) -> Answer:
    params = {"sessionId": session, "prompt": prompt}
    answer = await conversation.ask("session/prompt", params, timeout=lab.turn_timeout)
    if answer.code == codes.AUTH_REQUIRED:
        raise Skip("it requires a login to run a prompt")
    return answer


async def _begin_long(lab: Lab, conversation: Conversation, session: str) -> int | str:
    """Start a slow turn, and wait until it sends something or ends."""
    params = {"sessionId": session, "prompt": _text(lab.long_prompt)}
    id = conversation.begin("session/prompt", params)
    await conversation.until(
        lambda: conversation.answers(id) or _updates(conversation, session) or None,
        "anything in a turn",
        timeout=lab.turn_timeout,
    )
    return id


async def _answer(lab: Lab, conversation: Conversation, id: int | str) -> Answer:
    return await conversation.answer(id, "session/prompt", timeout=lab.turn_timeout)


def _stop_reason(answer: Answer) -> str:
    reason = answer.fields().get("stopReason")
    expect(reason in shapes.STOP_REASONS, "the stop reason is not one of the five", answer.message)
    return str(reason)


async def _turned(lab: Lab) -> tuple[str, str]:
    """Return the id of a session with a completed turn, and the prompt of that turn."""
    if lab.turned is None:
        conversation, session = await _new(lab)
        _stop_reason(await _prompt(lab, conversation, session, _text(lab.prompt)))
        lab.turned = (session, lab.prompt)
    return lab.turned


async def _reopen(lab: Lab, conversation: Conversation, method: str, session: str) -> Answer:
    params = {"sessionId": session, "cwd": lab.cwd, "mcpServers": []}
    answer = await conversation.ask(method, params)
    answer.result()
    return answer


def _updates(
    conversation: Conversation, session: str, *, after: int = -1, before: int | None = None
) -> list[dict[str, Any]]:
    """Return the content updates of a session, among the messages between two positions."""
    found: list[dict[str, Any]] = []
    for message in conversation.messages[after + 1 : before]:
        params = message.get("params")
        if message.get("method") != "session/update" or not isinstance(params, dict):
            continue
        update = params.get("update")
        if params.get("sessionId") == session and isinstance(update, dict):
            if update.get("sessionUpdate") in HISTORY:
                found.append(update)
    return found


def _said(updates: list[dict[str, Any]], kind: str) -> str:
    """Return the text of the chunks of one kind."""
    contents = [u.get("content") for u in updates if u.get("sessionUpdate") == kind]
    return "".join(str(c.get("text", "")) for c in contents if isinstance(c, dict))


CHECKS: Final[tuple[AgentCheck, ...]] = (
    turn_ends_with_a_stop_reason,
    nothing_is_said_after_the_answer,
    links_are_accepted_in_prompts,
    cancelled_turn_says_so,
    nothing_is_said_after_a_cancelled_answer,
    cancelled_request_is_still_answered,
    closing_cancels_the_turn,
    loading_replays_before_it_answers,
    resuming_does_not_replay,
)
