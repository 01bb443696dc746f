"""The messages of a broker beyond ACP: method names ``_dragoman/…``, shapes of parameters and
results, and `_meta.dragoman`.

How errors travel is in `error_codec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from dragoman.dialects.acp.v1 import shape
from dragoman.errors import ConfigInvalid, RemoteError
from dragoman.policy.rules import Policy, PolicyName, PolicySettings
from dragoman.rpc import boundary
from dragoman.wire.messages import UNDECODABLE

T = TypeVar("T")

PREFIX: Final = "_dragoman/"

HELLO: Final = "_dragoman/hello"
PING: Final = "_dragoman/ping"
"""A method that no agent has: it costs nothing, and the refusal is an answer."""
STATUS: Final = "_dragoman/status"
STOP: Final = "_dragoman/stop"
SUBMIT: Final = "_dragoman/submit"
ATTACH: Final = "_dragoman/attach"
POSITION: Final = "_dragoman/position"
"""A notification: the number that the next event of a session has, for a caller that is attached.
It counts from its start, and is told where numbers are skipped."""
DETACH: Final = "_dragoman/detach"
RESULT: Final = "_dragoman/result"
CANCEL: Final = "_dragoman/cancel"
RELEASE: Final = "_dragoman/release"
TERMS: Final = "_dragoman/terms"
TRACE: Final = "_dragoman/trace"
"""A notification: a line between the broker and the peer, for callers that asked for a trace."""
WATCH: Final = "_dragoman/watch"
"""Follow the open questions of all sessions: those there are, and then `QUESTION` and `SETTLED`."""
QUESTION: Final = "_dragoman/question"
"""A notification: the peer asks something that a person has to answer, for callers that watch."""
SETTLED: Final = "_dragoman/settled"
"""A notification: such a question does not wait for an answer any more."""
ANSWER: Final = "_dragoman/answer"
"""Answer an open question, in the place of the caller whose turn it is."""
ANSWERED: Final = "_dragoman/answered"
"""A notification: a permission that this caller was asked for was decided by another one."""
STDERR: Final = "_dragoman/stderr"
"""A notification: what the peer wrote to its stderr, for callers that asked for it."""

META: Final = shape.META
"""Where in a `_meta` ours stands."""

LINEAGE: Final = ("depth", "lineage")
"""What of ours is meant for the peer: who delegated to it."""

PolicyTerms: TypeAlias = PolicyName | Policy
"""Who decides when a caller has left: a preset by its name, or a whole policy."""


class Stop(Struct, rename="camel"):
    """`_dragoman/stop`: end, with `drain` after the turns, with `if_idle` only if nothing runs."""

    drain: bool = True
    if_idle: bool = False


class CallerTerms(Struct, rename="camel"):
    """`_dragoman/terms`, a notification: what may be done in the turns of this caller. Callers of
    one broker differ in this, and what a caller does not offer, the broker does else."""

    write_files: bool = True
    agent_stderr: bool = False
    trace: bool = False
    """Whether it wants to see every line between the broker and the peer."""
    policy: PolicyTerms | None = None
    """What counts in turns of which the prompt does not say it."""
    answered: bool = False
    """Whether it takes `_dragoman/answered`. Otherwise a question that another caller has answered
    is cancelled."""


class TracedLine(Struct):
    """`_dragoman/trace`, a notification: a line of the peer's own connection, ``send`` or ``recv``
    as the broker sees it."""

    dir: str
    line: str


class Attach(Struct, rename="camel"):
    """`_dragoman/attach`: follow a session from an event on; None: from now on."""

    session_id: str
    start: int | None = None


class Position(Struct, rename="camel"):
    """`_dragoman/position`, a notification: the number of the next event."""

    session_id: str
    next: int


class SessionParams(Struct, rename="camel"):
    """Anything that is about a session and of which nothing else matters."""

    session_id: str


class JobWanted(Struct, rename="camel"):
    """`_dragoman/result` and `_dragoman/cancel`."""

    job: str
    wait: bool = False


class Watch(Struct):
    """`_dragoman/watch`: follow the open questions. With `answers` a question of which no caller
    can be asked waits for an answer of this one."""

    answers: bool = False


class ShownQuestion(Struct, rename="camel", kw_only=True):
    """`_dragoman/question`, and in the answer to `_dragoman/watch`: a question for a person."""

    id: str
    digest: str
    """Of `method` and `params`: an answer names what it is about."""
    session_id: str
    key: str
    """Of the session in the store."""
    job: str | None
    method: str
    params: Raw
    """As the peer asked, and for a permission with what it told of the tool call before."""
    asked_at: float


class Settled(Struct):
    """`_dragoman/settled`: `by` says who answered, or why no answer is needed."""

    id: str
    by: str


class QuestionAnswer(Struct):
    """`_dragoman/answer`: what the peer is to get. `digest` is that of the question as shown."""

    id: str
    digest: str
    result: Raw


class AnsweredElsewhere(Struct, rename="camel"):
    """`_dragoman/answered`: which permission, and the kind of the option that was chosen."""

    session_id: str
    tool_call_id: str
    kind: str


class SessionMeta(Struct):
    """With `session/new`, `session/load` and `session/resume`: how the session is to be stored."""

    name: str | None = None
    key: str | None = None
    once: bool = False
    """Whether it is closed when its jobs have ended and no caller has it: nobody comes back."""


class TurnBudgets(Struct, rename="camel"):
    """How long a turn may take, in seconds; None is for ever. The broker holds a turn to it when
    nobody follows it; while its caller is there, that one does."""

    first_event: float | None = None
    silence: float | None = None
    total: float | None = None

    def __post_init__(self) -> None:
        for budget in (self.first_event, self.silence, self.total):
            if budget is not None and not budget > 0:
                raise ValueError("a budget is a time in seconds")


class PromptMeta(Struct):
    """With a prompt: its job, and what becomes of it when the caller has left."""

    job: str | None = None
    policy: PolicyTerms | None = None
    asks: bool = False
    """Whether a person who watches is asked before a refusal by the preset alone counts."""
    fresh: bool = False
    budgets: TurnBudgets | None = None

    def __post_init__(self) -> None:
        _check(self.policy)


class Expired(Struct):
    """A budget of a turn that is used up."""

    budget: str
    timeout: float


class CancelMeta(Struct):
    """With `session/cancel`: the budget for which the caller ends its turn, if it is one."""

    expired: Expired | None = None


class Submit(Struct, rename="camel"):
    """`_dragoman/submit`: a prompt for which nobody waits."""

    session_id: str
    prompt: Raw
    job: str
    policy: PolicyTerms | None = None
    asks: bool = False
    fresh: bool = False
    budgets: TurnBudgets | None = None

    def __post_init__(self) -> None:
        _check(self.policy)


class Submitted(Struct, rename="camel", omit_defaults=True):
    """The answer to `_dragoman/submit`: the job is stored, or `unstored` says why not."""

    job: str
    state: str
    unstored: str | None = None


class Added(Struct, rename="camel", omit_defaults=True, kw_only=True):
    """What a broker adds to the results of ACP, in their `_meta`. None: nothing to say."""

    broker: Any = None
    """With `initialize`: what the broker says of itself."""
    key: str | None = None
    """With a session that is opened: what it is stored under."""
    next: int | None = None
    """The number of its next event."""
    job: str | None = None
    """With the end of a turn: its job."""
    next_event: int | None = None
    """The number behind the last event of the turn."""
    context: str | None = None
    """With both: what the peer knew of the session, `live`, `restored` or `fresh`."""
    unstored: str | None = None
    """Why nothing of the turn is stored."""
    notice: str | None = None
    """What the user of the next turn has to know, once."""


def added_to(meta: Mapping[str, Any] | None) -> Added:
    """What a broker has added to the answer with this `_meta`; nothing without a broker."""
    try:
        return msgspec.convert((meta or {}).get(META, {}), Added)
    except msgspec.ValidationError:
        return Added()


def _check(policy: PolicyTerms | None) -> None:
    """Refuse rules that cannot mean what they say, before anything runs under them."""
    if not isinstance(policy, Policy):
        return
    from dragoman.policy.validate import check_policy

    try:
        check_policy(PolicySettings(rules=policy.rules, limits=policy.limits), origin="policy")
    except ConfigInvalid as error:
        # The decoder makes a refusal of it.
        raise ValueError(str(error)) from error
    for ceiling in policy.ceilings:
        _check(ceiling)


def read(params: Raw, shape: type[T]) -> T:
    """Parameters as a shape of this module. Raises the refusal for what is none."""
    try:
        return msgspec.json.decode(params if memoryview(params).nbytes else b"{}", type=shape)
    except UNDECODABLE as error:
        raise boundary.invalid_params(error) from error


def members(params: Raw) -> dict[str, Raw]:
    """Parameters or a result as their members, each as it came."""
    found: dict[str, Raw] = read(params, dict[str, Raw])
    return found


def our_meta(body: dict[str, Raw], shape: type[T]) -> T:
    """What stands in the `_meta` for us."""
    meta = body.get("_meta")
    if meta is None or bytes(meta) == b"null":
        return shape()
    ours = read(meta, dict[str, Raw]).get(META)
    return shape() if ours is None else read(ours, shape)


NOTHING: Final[frozenset[str]] = frozenset()
FOR_GATEWAY: Final = frozenset({"model", shape.METADATA})
"""What the gateway in front of a peer reads in the `_meta` of `session/new`."""


def without_our_meta(body: dict[str, Raw], *, but: frozenset[str] = NOTHING) -> dict[str, Raw]:
    """The members as the peer is to see them: what is for us is none of its business."""
    meta = body.get("_meta")
    if meta is None or bytes(meta) == b"null":
        return body
    others = read(meta, dict[str, Raw])
    ours = others.pop(META, None)
    if ours is not None and bytes(ours) != b"null":
        # A peer that delegates in turn has to know how deep it stands.
        passed_on = {
            name: value for name, value in members(ours).items() if name in LINEAGE or name in but
        }
        if passed_on:
            others[META] = pack(passed_on)
    body = {name: value for name, value in body.items() if name != "_meta"}
    if others:
        body["_meta"] = pack(others)
    return body


def with_added(result: Raw, added: Added) -> Raw:
    """A result with what we add in its `_meta`, beside what the peer has there."""
    ours: dict[str, Any] = msgspec.to_builtins(added)
    try:
        body = members(result) if bytes(result) != b"null" else {}
        meta = body.get("_meta")
        theirs = {} if meta is None or bytes(meta) == b"null" else members(meta)
        before = theirs.get(META)
        # A stop reason that was translated on the way here is still wanted in the peer's word.
        told = {} if before is None else members(before)
        for name in (shape.STOP, shape.OUTCOME):
            if (word := text(told.get(name))) is not None:
                ours[name] = word
    except RemoteError:
        # A result that is no object is the peer's own business.
        return result
    body["_meta"] = pack(theirs | {META: pack(ours)})
    return pack(body)


def pack(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def text(raw: Raw | None) -> str | None:
    """A member that should be a string; None if it is none."""
    try:
        value = None if raw is None else msgspec.json.decode(raw)
    except UNDECODABLE:
        return None
    return value if isinstance(value, str) else None
