"""What an agent wants to know of its user, whatever the dialect: a form, or a page to visit.

Owns the question and its reply in plain JSON. Permissions are another matter, in `permissions`: a
form never stands for one. How a question arrives and how a reply is put is known by the dialects.
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
    """None if it belongs to no session."""
    message: str
    schema: Mapping[str, Any] | None = None
    """The form as a flat JSON Schema; None if it is a page."""
    url: str | None = None
    """The page to visit; None if it is a form."""
    page_id: str = ""
    """The agent's name for the page, by which it says later that the user is done there."""
    tool_call_id: str | None = None
    native: Any = None
    """The request as the dialect has it."""


class Reply(Struct, frozen=True):
    """What the user made of it. Accepting a page is consent to open it, and no more."""

    action: Action
    content: Mapping[str, Any] | None = None
    """What was filled in, by the names of the form's properties."""


DECLINED: Final = Reply("decline")
CANCELLED: Final = Reply("cancel")

Inquire: TypeAlias = Callable[[Inquiry], Awaitable[Reply] | Reply]
"""Asks the user, or answers for him."""


def require_inquire(inquire: object) -> None:
    """Raise `UsageError` for what cannot be asked a question."""
    if inquire is not None and not callable(inquire):
        raise UsageError(
            f"inquire= takes a function that gets an Inquiry and returns a Reply, not {inquire!r}"
        )
