"""Questions that an agent asks its user, in any dialect: a form, or a URL to visit.

The question and its reply are plain JSON. Permissions are separate, in `permissions`: a form never
grants one. The dialects convert questions and replies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from dragoman.errors import UsageError

Action: TypeAlias = Literal["accept", "decline", "cancel"]


class Inquiry(Struct, frozen=True):
    """One question to the user."""

    session_id: str | None
    """None if the question belongs to no session."""
    message: str
    """The agent's text for the user."""
    schema: Mapping[str, Any] | None = None
    """The form as a flat JSON Schema; None for a URL."""
    url: str | None = None
    """The URL to visit; None for a form."""
    page_id: str = ""
    """The agent's id for the page, with which it later reports that the user is done."""
    tool_call_id: str | None = None
    """The tool call that needs the answer, if the agent says so."""
    native: Any = None
    """The request in the dialect's own type."""


class Reply(Struct, frozen=True):
    """The user's reply. Accepting a URL is only consent to open it."""

    action: Action
    """``accept``, ``decline``, or ``cancel`` if the user did not decide."""
    content: Mapping[str, Any] | None = None
    """The values of the form, by property name."""


DECLINED: Final = Reply("decline")
CANCELLED: Final = Reply("cancel")

Inquire: TypeAlias = Callable[[Inquiry], Awaitable[Reply] | Reply]
"""Callback that asks the user, or answers on the user's behalf."""


def require_inquire(inquire: object) -> None:
    """Raise `UsageError` if the value is neither None nor callable."""
    if inquire is not None and not callable(inquire):
        raise UsageError(
            f"inquire= takes a function that gets an Inquiry and returns a Reply, not {inquire!r}"
        )
