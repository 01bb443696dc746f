"""Messages of a broker beyond ACP: ``_dragoman/…`` methods, their schemas, and `_meta.dragoman`.

`error_codec` encodes errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from dragoman.client.budgets import Budgets
from dragoman.decoders import convert_typed, decode_typed
from dragoman.dialects.acp.v1 import shape
from dragoman.errors import ConfigInvalid, InvalidAnswer, RemoteError
from dragoman.policy.rules import Policy, PolicyName, PolicySettings
from dragoman.rpc import boundary
from dragoman.wire.messages import UNDECODABLE

T = TypeVar("T")

PREFIX: Final = "_dragoman/"

HELLO: Final = "_dragoman/hello"
PING: Final = "_dragoman/ping"
"""Request that checks whether the other side responds. A broker answers it with an empty result. No
agent implements it, so it has no side effects there, and the error response proves that the agent
is alive."""
STATUS: Final = "_dragoman/status"
STOP: Final = "_dragoman/stop"
SUBMIT: Final = "_dragoman/submit"
ATTACH: Final = "_dragoman/attach"
POSITION: Final = "_dragoman/position"
"""Notification with the number of a session's next event, for an attached caller. The caller counts
the events that it gets; this is sent when numbers were skipped."""
DETACH: Final = "_dragoman/detach"
RESULT: Final = "_dragoman/result"
CANCEL: Final = "_dragoman/cancel"
RELEASE: Final = "_dragoman/release"
RELEASED: Final = "_dragoman/released"
"""Notification for an attached caller: the session was released, and another process may continue
it. All its events so far are in the store."""
TERMS: Final = "_dragoman/terms"
TRACE: Final = "_dragoman/trace"
"""Notification with a line between the broker and the peer, for callers that requested a trace."""
WATCH: Final = "_dragoman/watch"
"""Follow the open questions of all sessions, or of one job. The response has the current ones;
`QUESTION` and `SETTLED` report each change."""
QUESTION: Final = "_dragoman/question"
"""Notification for watching callers: the peer asks a question that a person has to answer."""
SETTLED: Final = "_dragoman/settled"
"""Notification that such a question no longer waits for an answer."""
ANSWER: Final = "_dragoman/answer"
"""Answer an open question on behalf of the caller that sent the prompt."""
ANSWERED: Final = "_dragoman/answered"
"""Notification that another caller decided a permission request that was also sent to this one."""
STDERR: Final = "_dragoman/stderr"
"""Notification with the peer's stderr, for callers that requested it."""

META: Final = shape.META
"""Our key in a `_meta`."""

LINEAGE: Final = ("depth", "lineage")
"""Members of our `_meta` that are passed to the peer: the lineage of a delegation."""

PolicyTerms: TypeAlias = PolicyName | Policy
"""The policy that applies where no caller answers: the name of a preset, or a complete policy."""


class Stop(Struct, rename="camel"):
    """`_dragoman/stop`: end the broker; with `drain` after all turns have ended, with `if_idle`
    only if no turn runs or waits and no other caller is connected."""

    drain: bool = True
    if_idle: bool = False


class CallerTerms(Struct, rename="camel"):
    """`_dragoman/terms`, a notification: what is allowed in the turns of this caller. Callers of
    one broker may have different terms. Files and terminals that a caller does not offer to serve
    are served by the broker."""

    write_files: bool = True
    agent_stderr: bool = False
    trace: bool = False
    """Whether the caller wants every line between the broker and the peer."""
    policy: PolicyTerms | None = None
    """Policy for turns whose prompt does not name one."""
    answered: bool = False
    """Whether the caller accepts `_dragoman/answered`. Otherwise a question that another caller has
    answered is cancelled."""


class TracedLine(Struct):
    """`_dragoman/trace`, a notification: a line of the peer's own connection, ``send`` or ``recv``
    as the broker sees it."""

    dir: str
    line: str


class Attach(Struct, rename="camel"):
    """`_dragoman/attach`: follow a session. `start` is the number of the first event to send; None
    means the next one."""

    session_id: str
    start: int | None = None


class Attached(Struct):
    """The response to `_dragoman/attach`: the numbers of the next event, and of the oldest one that
    can still be read."""

    next: int
    first: int = 0


class Position(Struct, rename="camel"):
    """`_dragoman/position`, a notification: the number of the next event."""

    session_id: str
    next: int


class SessionParams(Struct, rename="camel"):
    """Parameters of which only the session id matters."""

    session_id: str


class JobWanted(Struct, rename="camel"):
    """Parameters of `_dragoman/result` and `_dragoman/cancel`. With `wait`, the result is sent only
    when the job has ended."""

    job: str
    wait: bool = False


class Watch(Struct):
    """`_dragoman/watch`: follow the open questions, or those of one job. With `answers`, a question
    that no caller can answer waits for this watcher."""

    answers: bool = False
    job: str | None = None


class ShownQuestion(Struct, rename="camel", kw_only=True):
    """A question for a person, in `_dragoman/question` and in the response to `_dragoman/watch`."""

    id: str
    digest: str
    """Digest of `method` and `params`, which an answer has to repeat."""
    session_id: str
    key: str
    """Id of the session in the store."""
    job: str | None
    method: str
    params: Raw
    """The peer's params. Those of a permission request include what the peer reported earlier about
    the tool call."""
    asked_at: float


class Settled(Struct):
    """`_dragoman/settled`: `by` says who answered, or why no answer is needed."""

    id: str
    by: str


class QuestionAnswer(Struct):
    """`_dragoman/answer`: the result for the peer. `digest` is that of the question as it was
    shown."""

    id: str
    digest: str
    result: Raw


class AnsweredElsewhere(Struct, rename="camel"):
    """`_dragoman/answered`: the permission request, and the kind of the chosen option."""

    session_id: str
    tool_call_id: str
    kind: str


class SessionMeta(Struct):
    """With `session/new`, `session/load` and `session/resume`: how to store the session."""

    name: str | None = None
    key: str | None = None
    once: bool = False
    """Whether the session is closed when its jobs have ended and no caller has it open."""


class TurnBudgets(Struct, rename="camel"):
    """Timeouts of a turn, in seconds; None is unlimited. The broker enforces them while no
    caller follows the turn; otherwise the caller does."""

    first_event: float | None = None
    silence: float | None = None
    tool_silence: float | None = Budgets().tool_silence
    total: float | None = None

    def __post_init__(self) -> None:
        for budget in (self.first_event, self.silence, self.tool_silence, self.total):
            if budget is not None and not budget > 0:
                raise ValueError("a budget must be a number of seconds greater than 0")


class PromptMeta(Struct):
    """With a prompt: the id of its job, and the terms and budgets of its turn, which also apply
    after the caller has disconnected."""

    job: str | None = None
    policy: PolicyTerms | None = None
    asks: bool = False
    """Whether to ask a person who watches, if no rule decides and only the preset would refuse the
    request."""
    fresh: bool = False
    """Whether to continue in a new session if the peer has lost this one."""
    budgets: TurnBudgets | None = None

    def __post_init__(self) -> None:
        _check(self.policy)


class Expired(Struct):
    """A budget of a turn that is used up."""

    budget: str
    timeout: float


class CancelMeta(Struct):
    """With `session/cancel`: the budget that ran out, if that is why the caller cancels."""

    expired: Expired | None = None


class Submit(Struct, rename="camel"):
    """`_dragoman/submit`: a prompt that no caller waits for."""

    session_id: str
    prompt: Raw
    job: str
    policy: PolicyTerms | None = None
    asks: bool = False
    wait: float = 0.0
    """Seconds that a question waits while no person can answer it."""
    fresh: bool = False
    budgets: TurnBudgets | None = None

    def __post_init__(self) -> None:
        _check(self.policy)


class Submitted(Struct, rename="camel", omit_defaults=True):
    """The response to `_dragoman/submit`: the job is stored, or `unstored` says why not."""

    job: str
    state: str
    unstored: str | None = None


class Added(Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The broker's additions to ACP results, in their `_meta`. None means absent."""

    broker: Any = None
    """With `initialize`: data about the broker."""
    key: str | None = None
    """With an opened session: its key in the store."""
    next: int | None = None
    """With an opened session: the number of its next event."""
    job: str | None = None
    """With the end of a turn: its job."""
    next_event: int | None = None
    """With the end of a turn: the number after its last event."""
    context: str | None = None
    """With an opened session and with the end of a turn: the state of the peer's context, which is
    `live`, `restored` or `fresh`."""
    unstored: str | None = None
    """With the end of a turn: why it is not stored."""
    notice: str | None = None
    """Notices for the user, each sent once. Those of a turn that ends with an error are in the data
    of the error (`error_codec.with_notice`)."""


def added_to(meta: Mapping[str, Any] | None) -> Added:
    """Return what a broker added to the response with this `_meta`; empty without a broker, or if
    the additions are invalid."""
    try:
        return convert_typed((meta or {}).get(META, {}), Added)
    except msgspec.ValidationError:
        return Added()


def _check(policy: PolicyTerms | None) -> None:
    """Raise `ValueError` if a policy has invalid rules, before anything runs under them."""
    if not isinstance(policy, Policy):
        return
    from dragoman.policy.validate import check_policy

    try:
        check_policy(PolicySettings(rules=policy.rules, limits=policy.limits), origin="policy")
    except ConfigInvalid as error:
        # The decoder turns it into an invalid-params error.
        raise ValueError(str(error)) from error
    for ceiling in policy.ceilings:
        _check(ceiling)


def read(params: Raw, shape: type[T]) -> T:
    """Decode parameters as `shape`; absent ones count as an empty object. Raises `RemoteError` with
    the code for invalid params if they do not fit."""
    try:
        return decode_typed(params if memoryview(params).nbytes else b"{}", shape)
    except UNDECODABLE as error:
        raise boundary.invalid_params(error) from error


def decode_as(body: Raw, shape: type[T], what: str) -> T:
    """Decode what the other side sent; `what` names it, like "response to _dragoman/watch". Raises
    `InvalidAnswer` if it does not fit: the request that it answers may have run."""
    try:
        return decode_typed(body, shape)
    except UNDECODABLE as error:
        raise InvalidAnswer(f"invalid {what}: {error}") from error


def members(params: Raw) -> dict[str, Raw]:
    """Return parameters, or a result, as a dict of undecoded members. Raises what `read` does."""
    found: dict[str, Raw] = read(params, dict[str, Raw])
    return found


def our_meta(body: dict[str, Raw], shape: type[T]) -> T:
    """Return our part of the `_meta`; the defaults of `shape` if there is none. Raises what `read`
    does."""
    meta = body.get("_meta")
    if meta is None or bytes(meta) == b"null":
        return shape()
    ours = read(meta, dict[str, Raw]).get(META)
    return shape() if ours is None else read(ours, shape)


NOTHING: Final[frozenset[str]] = frozenset()
FOR_GATEWAY: Final = frozenset({"model", shape.METADATA})
"""Members of our `_meta` of `session/new` that the gateway in front of a peer reads."""


def without_our_meta(body: dict[str, Raw], *, but: frozenset[str] = NOTHING) -> dict[str, Raw]:
    """Return the members as they are sent to the peer: our part of `_meta` is removed, except for
    the lineage and the members named in `but`."""
    meta = body.get("_meta")
    if meta is None or bytes(meta) == b"null":
        return body
    others = read(meta, dict[str, Raw])
    ours = others.pop(META, None)
    if ours is not None and bytes(ours) != b"null":
        # A peer that delegates further has to know its depth.
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
    """Return a result with our additions in its `_meta`, next to the peer's own. A result that is
    not an object is returned unchanged."""
    ours: dict[str, Any] = msgspec.to_builtins(added)
    try:
        body = members(result) if bytes(result) != b"null" else {}
        meta = body.get("_meta")
        theirs = {} if meta is None or bytes(meta) == b"null" else members(meta)
        before = theirs.get(META)
        # Keep the peer's own word for a stop reason that was translated on the way.
        told = {} if before is None else members(before)
        for name in (shape.STOP, shape.OUTCOME):
            if (word := text(told.get(name))) is not None:
                ours[name] = word
    except RemoteError:
        # A result that is not an object is passed on unchanged.
        return result
    body["_meta"] = pack(theirs | {META: pack(ours)})
    return pack(body)


def pack(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def text(raw: Raw | None) -> str | None:
    """Decode a member that should be a string. Returns None if it is absent or something else."""
    try:
        value = None if raw is None else msgspec.json.decode(raw)
    except UNDECODABLE:
        return None
    return value if isinstance(value, str) else None
