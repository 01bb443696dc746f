"""The words that events use for states and kinds, and how dialects' words map to them.

Owns the enumerations. A word that is not known maps to OTHER or UNKNOWN and is never taken for
success; the dialect's own word is kept beside it in the event or its raw message. `Part` and `Loss`
say what a dialect cannot say at all; `reduction` takes such a part out of a stream of events.
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
    """Whose words a message holds."""

    USER = "user"
    AGENT = "agent"
    THOUGHT = "thought"


class ToolStatus(enum.StrEnum):
    """How far a tool call is."""

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
    """What sort of thing a tool does."""

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
    """What an option of a permission request means."""

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
    """Whether a change of files was made."""

    PROPOSED = "proposed"
    APPLIED = "applied"
    DECLINED = "declined"
    FAILED = "failed"
    UNKNOWN = "unknown"


class PlanStatus(enum.StrEnum):
    """How far an entry of a plan is."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    OTHER = "other"


class TurnPhase(enum.StrEnum):
    """What a turn is doing."""

    RUNNING = "running"
    WAITING = "waiting"
    """For an answer of ours."""
    IDLE = "idle"


class Outcome(enum.StrEnum):
    """How a turn really ended, which is not the same as how the other side put it."""

    OK = "ok"
    EMPTY = "empty"
    """A clean end with nothing in it: no text, no tool call."""
    REFUSED = "refused"
    TRUNCATED = "truncated"
    """A limit of tokens or requests was reached."""
    DENIED = "denied"
    """A permission was refused and none was given, or it ended because of a refusal."""
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    AUTH_REQUIRED = "auth_required"
    QUOTA = "quota"
    FAILED = "failed"
    """The other side says that it failed, and not why in words we know."""
    PROTOCOL_ERROR = "protocol_error"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"

    @property
    def good(self) -> bool:
        """Whether the work can be taken for done. Unknown is not good."""
        return self is Outcome.OK


class ErrorKind(enum.StrEnum):
    """What sort of error the other side reported."""

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


INVALID_UPDATE: Final = "an invalid update"
"""How the reason of an `Unknown` event begins that was an update with malformed fields."""

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
"""Stop reasons of all dialects. Others are UNKNOWN: "stopped", never a success."""

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
"""How a turn ended that was answered with an error; other kinds are FAILED."""

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
    """A part of a session that a dialect may be unable to say."""

    THOUGHTS = "thoughts"
    MESSAGE_IDS = "the ids of messages"
    CHANGES = "changes of files"
    CHANGE_TEXTS = "whose call a change is, its kind, its texts, and that it is only proposed"
    CHANGE_DIFFS = "unified diffs"
    CHANGES_TOGETHER = "several changed files of one tool call: the last one counts"
    TOOLS = "tool calls and what they change"
    TOOL_NAMES = "the names of tools"
    TOOL_KINDS = "the kinds of tools, unless a name is one"
    TOOL_TITLES = "the titles of tool calls: the name serves as one"
    TOOL_ENDS = "how a tool call ended"
    TOOL_INPUT = "what a tool was given"
    TOOL_INPUT_VALUES = "what a tool was given, other than as text"
    TOOL_OUTPUT = "what a tool returned, as a value"
    TOOL_CONTENT = "what a tool call shows"
    TOOL_LOCATIONS = "where a tool call is at work"
    TOOL_ERRORS = "why a tool call failed, apart from what it returned"
    TOOL_IDS = "the ids of tool calls: they are numbered"
    PLANS = "plans"
    PLAN_ENTRIES = "the entries of a plan"
    PLAN_PRIORITIES = "the priorities in a plan"
    PLAN_TEXTS = "a plan that is a text"
    MODES = "the modes that there are, and which one is on"
    MODELS = "which model is used"
    OPTIONS = "the options that there are, and their values"
    COMMANDS = "the slash commands that there are"
    PERMISSIONS = "requests for permission"
    CONTEXT_USAGE = "how full the context is"
    TURN_USAGE = "what a turn used"
    TOTAL_USAGE = "the sum of what a turn used"
    FAILURES = "why a turn failed"
    ERROR_REPORTS = "errors apart from the end of a turn"
    REPLAYED_ROLES = "whose words replayed text is: all is the agent's"
    REPLAYED_IDS = "the ids of replayed messages"
    REPLAYED_TURNS = "where a replayed turn ended"


class Loss(Struct, frozen=True, gc=False):
    """Something that a dialect cannot say: for people, and for a machine."""

    what: str
    parts: tuple[Part, ...] = ()
    """What is missing in its events."""
    cannot: tuple[str, ...] = ()
    """What a client can never do with it: names of `Capabilities`."""


def parts_of(losses: Iterable[Loss]) -> frozenset[Part]:
    return frozenset(part for loss in losses for part in loss.parts)
