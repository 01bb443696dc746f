"""Enumerations for the states and kinds in events, and how dialects' words map to them.

An unknown word maps to OTHER or UNKNOWN and never counts as success; the dialect's own word is kept
in the event or its raw message. `Part` and `Loss` say what a dialect cannot express at all;
`testing.reduction` removes such a part from a stream of events.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

__all__ = [
    "ChangeStage",
    "ErrorKind",
    "FileOp",
    "Loss",
    "Outcome",
    "Part",
    "PermissionKind",
    "PlanStatus",
    "Role",
    "ToolKind",
    "ToolStatus",
    "TurnPhase",
]


class Role(enum.StrEnum):
    """The kind of a message: from the user, the agent's answer, or the agent's reasoning."""

    USER = "user"
    AGENT = "agent"
    THOUGHT = "thought"


class ToolStatus(enum.StrEnum):
    """The status of a tool call."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    DECLINED = "declined"
    CANCELLED = "cancelled"
    PAUSED = "paused"
    OTHER = "other"

    @property
    def over(self) -> bool:
        return self in _OVER


_OVER: Final = frozenset(
    {ToolStatus.COMPLETED, ToolStatus.FAILED, ToolStatus.DECLINED, ToolStatus.CANCELLED}
)


class ToolKind(enum.StrEnum):
    """What a tool does."""

    READ = "read"
    EDIT = "edit"
    DELETE = "delete"
    MOVE = "move"
    SEARCH = "search"
    EXECUTE = "execute"
    THINK = "think"
    FETCH = "fetch"
    SWITCH_MODE = "switch_mode"
    OTHER = "other"


class PermissionKind(enum.StrEnum):
    """The meaning of an option in a permission request."""

    ALLOW_ONCE = "allow_once"
    ALLOW_ALWAYS = "allow_always"
    REJECT_ONCE = "reject_once"
    REJECT_ALWAYS = "reject_always"
    CANCEL_TURN = "cancel_turn"
    OTHER = "other"


class FileOp(enum.StrEnum):
    """What happened to a file."""

    ADD = "add"
    MODIFY = "modify"
    DELETE = "delete"
    MOVE = "move"
    COPY = "copy"
    UNKNOWN = "unknown"


class ChangeStage(enum.StrEnum):
    """Whether a change to files was proposed, made, declined or failed."""

    PROPOSED = "proposed"
    APPLIED = "applied"
    DECLINED = "declined"
    FAILED = "failed"
    UNKNOWN = "unknown"


class PlanStatus(enum.StrEnum):
    """The status of a plan entry."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    OTHER = "other"


class TurnPhase(enum.StrEnum):
    """What a turn is doing."""

    RUNNING = "running"
    WAITING = "waiting"
    """The turn waits for an answer from us."""
    IDLE = "idle"


class Outcome(enum.StrEnum):
    """How a turn really ended, which may differ from what the peer said."""

    OK = "ok"
    EMPTY = "empty"
    """A clean end without any text or tool call."""
    REFUSED = "refused"
    TRUNCATED = "truncated"
    """A limit of tokens or requests was reached."""
    DENIED = "denied"
    """A permission was refused and none was granted, or the turn ended because of a refusal."""
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    AUTH_REQUIRED = "auth_required"
    QUOTA = "quota"
    FAILED = "failed"
    """The peer reports a failure for none of the reasons here."""
    PROTOCOL_ERROR = "protocol_error"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"

    @property
    def good(self) -> bool:
        """Whether the work can be considered done. An unknown outcome cannot."""
        return self is Outcome.OK


class ErrorKind(enum.StrEnum):
    """The kind of an error that the peer reported."""

    AUTH_REQUIRED = "auth_required"
    METHOD_NOT_FOUND = "method_not_found"
    NOT_INITIALIZED = "not_initialized"
    ALREADY_INITIALIZED = "already_initialized"
    EXPERIMENTAL_REQUIRED = "experimental_required"
    INVALID_PARAMS = "invalid_params"
    NOT_FOUND = "not_found"
    CANCELLED = "cancelled"
    OVERLOADED = "overloaded"
    RATE_LIMITED = "rate_limited"
    QUOTA = "quota"
    UNSUPPORTED_VERSION = "unsupported_version"
    CONTEXT_FULL = "context_full"
    NETWORK = "network"
    PARSE = "parse"
    INTERNAL = "internal"
    PEER = "peer"
    """Everything else."""

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later. An internal error of an agent may have any
        cause, so it does not count as retryable."""
        return self in _RETRYABLE


_RETRYABLE: Final = frozenset({ErrorKind.OVERLOADED, ErrorKind.RATE_LIMITED, ErrorKind.NETWORK})


INVALID_UPDATE: Final = "an invalid update"
"""Prefix of the reason in an `Unknown` event for an update with malformed fields."""

STOPS: Final[dict[str, Outcome]] = {
    "end_turn": Outcome.OK,
    "endTurn": Outcome.OK,
    "stop": Outcome.OK,
    "complete": Outcome.OK,
    "completed": Outcome.OK,
    "cancelled": Outcome.CANCELLED,
    "canceled": Outcome.CANCELLED,
    "interrupted": Outcome.CANCELLED,
    "refusal": Outcome.REFUSED,
    "max_tokens": Outcome.TRUNCATED,
    "max_turn_requests": Outcome.TRUNCATED,
    "length": Outcome.TRUNCATED,
    "error": Outcome.FAILED,
    "tool_error": Outcome.FAILED,
    "failed": Outcome.FAILED,
}
"""Outcomes by stop reason, for all dialects. Other stop reasons are UNKNOWN and never a success."""

ERROR_OUTCOMES: Final[dict[ErrorKind, Outcome]] = {
    ErrorKind.AUTH_REQUIRED: Outcome.AUTH_REQUIRED,
    ErrorKind.QUOTA: Outcome.QUOTA,
    ErrorKind.RATE_LIMITED: Outcome.QUOTA,
    ErrorKind.CANCELLED: Outcome.CANCELLED,
    ErrorKind.CONTEXT_FULL: Outcome.TRUNCATED,
    ErrorKind.METHOD_NOT_FOUND: Outcome.UNSUPPORTED,
    ErrorKind.EXPERIMENTAL_REQUIRED: Outcome.UNSUPPORTED,
    ErrorKind.UNSUPPORTED_VERSION: Outcome.UNSUPPORTED,
    ErrorKind.PARSE: Outcome.PROTOCOL_ERROR,
    ErrorKind.NOT_INITIALIZED: Outcome.PROTOCOL_ERROR,
    ErrorKind.ALREADY_INITIALIZED: Outcome.PROTOCOL_ERROR,
    ErrorKind.INVALID_PARAMS: Outcome.PROTOCOL_ERROR,
}
"""The outcome of a turn that ended with an error; other kinds are FAILED."""

_TOOL_STATUS: Final[dict[str, ToolStatus]] = {
    **{status.value: status for status in ToolStatus},
    "in_progress": ToolStatus.RUNNING,
    "inProgress": ToolStatus.RUNNING,
    "error": ToolStatus.FAILED,
    "success": ToolStatus.COMPLETED,
}

_PLAN_STATUS: Final[dict[str, PlanStatus]] = {
    **{status.value: status for status in PlanStatus},
    "in_progress": PlanStatus.RUNNING,
    "inProgress": PlanStatus.RUNNING,
}

_TOOL_KIND: Final[dict[str, ToolKind]] = {kind.value: kind for kind in ToolKind}
_PERMISSION_KIND: Final[dict[str, PermissionKind]] = {kind.value: kind for kind in PermissionKind}


def outcome_of(stop: str) -> Outcome:
    return STOPS.get(stop, Outcome.UNKNOWN)


def tool_status(word: str) -> ToolStatus:
    return _TOOL_STATUS.get(word, ToolStatus.OTHER)


def tool_kind(word: str) -> ToolKind:
    return _TOOL_KIND.get(word, ToolKind.OTHER)


def plan_status(word: str) -> PlanStatus:
    return _PLAN_STATUS.get(word, PlanStatus.OTHER)


def permission_kind(word: str) -> PermissionKind:
    return _PERMISSION_KIND.get(word, PermissionKind.OTHER)


class Part(enum.StrEnum):
    """A part of a session that a dialect may be unable to express."""

    THOUGHTS = "thoughts"
    MESSAGE_IDS = "message ids"
    CHANGES = "file changes"
    CHANGE_TEXTS = "the call of a change, its kind, its texts, and whether it is only proposed"
    CHANGE_DIFFS = "unified diffs"
    CHANGES_TOGETHER = "several changed files of one tool call: the last one counts"
    TOOLS = "tool calls and what they change"
    TOOL_NAMES = "tool names"
    TOOL_KINDS = "tool kinds, unless a name is one"
    TOOL_TITLES = "tool titles: the name is used instead"
    TOOL_ENDS = "how a tool call ended"
    TOOL_INPUT = "the input of a tool"
    TOOL_INPUT_VALUES = "the input of a tool, other than as text"
    TOOL_OUTPUT = "the output of a tool as a value"
    TOOL_CONTENT = "the content of a tool call"
    TOOL_LOCATIONS = "the locations of a tool call"
    TOOL_ERRORS = "why a tool call failed, other than in its result"
    TOOL_IDS = "tool call ids: calls are numbered"
    PLANS = "plans"
    PLAN_ENTRIES = "plan entries"
    PLAN_PRIORITIES = "plan priorities"
    PLAN_TEXTS = "plans as text"
    MODES = "the available modes and the current one"
    MODELS = "the current model"
    OPTIONS = "the available options and their values"
    COMMANDS = "the available slash commands"
    PERMISSIONS = "permission requests"
    CONTEXT_USAGE = "context usage"
    TURN_USAGE = "the usage of a turn"
    TOTAL_USAGE = "the total usage of a turn"
    FAILURES = "why a turn failed"
    ERROR_REPORTS = "errors, other than at the end of a turn"
    REPLAYED_ROLES = "the role of replayed text: all is the agent's"
    REPLAYED_IDS = "ids of replayed messages"
    REPLAYED_TURNS = "where a replayed turn ended"


class Loss(Struct, frozen=True, gc=False):
    """Something that a dialect cannot express, described for people and for programs."""

    what: str
    parts: tuple[Part, ...] = ()
    """What is missing in the dialect's events."""
    cannot: tuple[str, ...] = ()
    """What a client can never do: names of `Capabilities`."""


def parts_of(losses: Iterable[Loss]) -> frozenset[Part]:
    return frozenset(part for loss in losses for part in loss.parts)
