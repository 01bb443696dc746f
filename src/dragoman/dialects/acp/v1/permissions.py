"""Permission: what an agent asks before it runs a tool, and what it may be told.

Owns `session/request_permission`. It does not decide anything: the policy is above. The ids of
options are free text (a reject may be called "cancel"), so a choice is made by `kind` and given
back by `option_id`.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

from dragoman.dialects.acp.v1.shape import UNKNOWN_TAG, Unknown, Wire
from dragoman.dialects.acp.v1.tools import ToolCallUpdate


class PermissionOptionKind(StrEnum):
    """The known meanings of an option; other values may come and are never chosen by policy."""

    ALLOW_ONCE = "allow_once"
    ALLOW_ALWAYS = "allow_always"
    REJECT_ONCE = "reject_once"
    REJECT_ALWAYS = "reject_always"


class PermissionOption(Wire, frozen=True, kw_only=True):
    """One possible answer."""

    option_id: str
    name: str
    kind: str


class RequestPermissionRequest(Wire, frozen=True, kw_only=True):
    """`session/request_permission`: may this tool call run?"""

    session_id: str
    tool_call: ToolCallUpdate
    options: Sequence[PermissionOption]


class SelectedPermissionOutcome(
    Wire, frozen=True, kw_only=True, tag_field="outcome", tag="selected"
):
    """One of the options was chosen."""

    option_id: str


class CancelledPermissionOutcome(
    Wire, frozen=True, kw_only=True, tag_field="outcome", tag="cancelled"
):
    """The turn was cancelled before a choice was made."""


class UnknownPermissionOutcome(Unknown, frozen=True, tag_field="outcome", tag=UNKNOWN_TAG):
    """An outcome this version does not know; an agent does not take it for consent."""


RequestPermissionOutcome: TypeAlias = (
    SelectedPermissionOutcome | CancelledPermissionOutcome | UnknownPermissionOutcome
)


class RequestPermissionResponse(Wire, frozen=True, kw_only=True):
    """The answer."""

    outcome: RequestPermissionOutcome


def selected(option_id: str) -> RequestPermissionResponse:
    """The answer that chooses an option."""
    return RequestPermissionResponse(outcome=SelectedPermissionOutcome(option_id=option_id))


def cancelled() -> RequestPermissionResponse:
    """The answer when the turn was cancelled."""
    return RequestPermissionResponse(outcome=CancelledPermissionOutcome())
