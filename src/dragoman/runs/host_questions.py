"""Answer a question from an agent on another machine: a permission request, a form, or a URL for
the user to visit.

Converts the remote message into the question type of the local callbacks, and their answer into the
result for the agent. `runs.host_link` receives and sends the messages.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from dragoman.client.acp.calls import question_of
from dragoman.client.permissions import Answer, Denial, settled
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.codec import encode

if TYPE_CHECKING:
    from dragoman.broker.protocol import ShownQuestion
    from dragoman.client.inquiries import Inquire
    from dragoman.client.permissions import Permit

DECLINED = {"action": "decline"}
"""The result for a form or a request to visit a URL that is declined without being shown."""


async def permission_result(shown: ShownQuestion, permit: Permit) -> tuple[Any, Denial | None]:
    """Let `permit` decide about a permission request. Returns the result for the agent (None if
    `permit` cancels the question), and the denial (None if there is none)."""
    asked = acp.SESSION_REQUEST_PERMISSION.decode_params(shown.params)
    once = [each for each in asked.options if not str(each.kind).endswith("_always")]
    # A decision for more than this question would not be checked against the host's rules.
    options = once or asked.options
    question = structs.replace(question_of(asked), options=options)
    answer = permit(question)
    decision = await answer if inspect.isawaitable(answer) else answer
    if decision is Answer.CANCEL:
        return None, None
    option_id, decision = settled(options, decision)
    denial = None
    if not decision.allows:
        denial = Denial(question.tool_call_id, question.title, question.kind)
    if option_id is None:
        return {"outcome": {"outcome": "cancelled"}}, denial
    return {"outcome": {"outcome": "selected", "optionId": option_id}}, denial


def is_permission(shown: ShownQuestion) -> bool:
    return shown.method == acp.SESSION_REQUEST_PERMISSION.name


async def form_result(shown: ShownQuestion, inquire: Inquire | None) -> Any:
    """Let `inquire` answer a form or a request to visit a URL, and return the result for the agent.
    The question is declined if `inquire` is None or the kind of question is unknown."""
    if inquire is None or shown.method != acp.ELICITATION_CREATE.name:
        return DECLINED
    from dragoman.client.acp.inquiries import elicit_by

    response = await elicit_by(inquire)(acp.ELICITATION_CREATE.decode_params(shown.params))
    return msgspec.json.decode(encode(response))
