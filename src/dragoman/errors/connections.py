"""Errors of starting a program, connecting, the handshake, calls and lost connections.

The whole tree is drawn in `dragoman.errors`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dragoman.errors.usage import Blame, DragomanError

SHOWN_DETAILS_SIZE = 500
"""Maximum number of characters to show of the details an agent adds to an error: enough for a path
and a hint."""


SHOWN_INCIDENT_SIZE = 64
"""Maximum length of an incident id, which helps find an error in the agent's log. Ours have eight
characters."""

_WORDS = (
    *("details", "detail", "message", "error", "errors", "reason", "description", "cause"),
    *("additionalDetails", "error_description", "title", "body", "stderr", "_errors"),
)
"""Keys under which real agents describe a failure, the most specific first. They are often
nested: providers wrap errors in errors, and agents wrap those."""

_JSON_SIZE = 64 * 1024
"""Number of characters that are searched for a message in a text that looks like JSON."""

_MESSAGE = re.compile(r'"message"\s*:\s*"((?:[^"\\]|\\.)+)"')
_ESCAPE = re.compile(r"\\(.)")

_DEPTH = 6
"""Maximum depth to which the data of an error is searched."""

_ITEMS = 3
"""Maximum number of entries of a list of errors to show."""


def own_words(data: Any) -> str:
    """Return the agent's description of its failure, from error data of any shape, cut to
    `SHOWN_DETAILS_SIZE`, or an empty string if there is none. Callers must sanitise it before
    printing."""
    return " ".join(_words(data, _DEPTH).split())[:SHOWN_DETAILS_SIZE]


def _words(data: Any, depth: int) -> str:
    if depth == 0:
        return ""
    if isinstance(data, str):
        return plain_message(data)
    if isinstance(data, dict):
        for name in _WORDS:
            if said := _words(data.get(name), depth - 1):
                return said
        if "_errors" in data:
            # Errors by field name, as validators report them.
            found = [(name, _words(value, depth - 1)) for name, value in data.items()]
            return "; ".join(f"{name}: {said}" for name, said in found[: _ITEMS + 1] if said)
        return ""
    if isinstance(data, list):
        return "; ".join(filter(None, (_entry(each, depth) for each in data[:_ITEMS])))
    return ""


def _entry(entry: Any, depth: int) -> str:
    said = _words(entry, depth - 1)
    path = entry.get("path") if isinstance(entry, dict) else None
    if said and isinstance(path, list) and path:
        return f"{'.'.join(map(str, path[:_DEPTH]))}: {said}"
    return said


def plain_message(text: str) -> str:
    """Return a text or, if it looks like a JSON object with a `message`, that message: agents
    forward a provider's response as is."""
    if not text.startswith("{"):
        return text
    # By a regular expression: streams raise these errors too, and must not depend on JSON.
    found = _MESSAGE.search(text, 0, _JSON_SIZE)
    return text if found is None else _ESCAPE.sub(_unescaped, found[1])


def _unescaped(found: re.Match[str]) -> str:
    return " " if found[1] in "nrt" else found[1]


class SpawnError(DragomanError):
    """A program could not be started."""

    error_class = "spawn_failed"
    blame = "world"


class ProgramNotFound(SpawnError):
    """The program was not found, on PATH or at the path given."""

    error_class = "program_not_found"

    def __init__(self, program: str, detail: str = "") -> None:
        super().__init__(f"the program {program!r} was not found{detail and ': ' + detail}")
        self.program = program


class NotInstalled(SpawnError):
    """No launcher of a peer is installed, or something it needs to run is missing.

    `looked_for` lists what was searched for, and `remedy` is the command that helps.
    """

    error_class = "not_installed"

    def __init__(
        self, peer: str, problem: str, *, remedy: str = "", looked_for: Sequence[str] = ()
    ) -> None:
        super().__init__(f"{peer} cannot be started: {problem}{remedy and '; ' + remedy}")
        self.peer = peer
        self.remedy = remedy
        self.looked_for = tuple(looked_for)


_PASSING = frozenset({408, 425, 429})
"""The HTTP statuses below 500 after which the same request may succeed later: request timeout, too
early, too many requests."""


class ConnectError(DragomanError):
    """A connection could not be opened: there is no listener, it did not answer in time, or it
    refused us.

    `status` is the HTTP status of a refusal, and alone decides whether the error is retryable.
    Without a status, the error is retryable if the problem may resolve itself (`passing`).
    """

    error_class = "connect_failed"
    blame = "world"
    retryable = True

    def __init__(self, message: str, *, status: int | None = None, passing: bool = True) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = passing if status is None else status in _PASSING or status >= 500


class HostUnavailable(ConnectError):
    """Another machine cannot be reached over SSH, or has no compatible version of dragoman.

    `host` is its name in the settings, and `remedy` says what to do. The error is retryable if the
    problem may resolve itself (`passing`), like a network that is down. `may_have_run` is set if a
    request was sent before the connection was lost.
    """

    error_class = "host_unavailable"
    retryable = False

    def __init__(
        self,
        host: str,
        problem: str,
        *,
        remedy: str = "",
        passing: bool = False,
        may_have_run: bool = False,
    ) -> None:
        super().__init__(f"{host}: {problem}")
        self.host = host
        self.problem = problem
        self.remedy = remedy
        self.retryable = passing
        self.may_have_run = may_have_run


class ConnectionLost(DragomanError):
    """The connection is over. A pending call may or may not have run."""

    error_class = "connection_lost"
    retryable = True


class ConnectionClosed(ConnectionLost):
    """This side closed the connection."""

    error_class = "closed"

    def __init__(self, message: str = "the connection was closed on this side") -> None:
        super().__init__(message)


class ConnectionEnded(ConnectionLost):
    """The other side ended the stream."""

    error_class = "ended"
    blame = "peer"

    def __init__(self, message: str = "the other side ended the stream") -> None:
        super().__init__(message)


class ProcessExited(ConnectionEnded):
    """The process on the other side has exited."""

    error_class = "process_exited"

    def __init__(
        self, *, exit_code: int | None, signal: int | None = None, stderr_tail: str = ""
    ) -> None:
        if signal is not None:
            how = f"was killed by signal {signal}"
        elif exit_code is not None:
            how = f"exited with code {exit_code}"
        else:
            how = "exited"
        tail = stderr_tail.strip()
        super().__init__(f"the process {how}" + (f"; last output: {tail[-400:]}" if tail else ""))
        self.exit_code = exit_code
        self.signal = signal
        self.stderr_tail = stderr_tail


class ConnectionBroken(ConnectionLost):
    """Reading from the connection or writing to it failed."""

    error_class = "broken"
    blame = "world"


class PeerUnresponsive(ConnectionLost):
    """The agent answered neither a request nor a probe, so its process was killed; it is being
    restarted."""

    error_class = "unresponsive"
    blame = "peer"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"the agent hung (no answer to {what}, and {why}), so it was killed; "
            "it is being restarted"
        )


class LineTooLong(ConnectionLost):
    """The other side sent a line over the limit. The rest of the stream cannot be trusted."""

    error_class = "line_too_long"
    blame = "peer"
    retryable = False

    def __init__(self, limit: int) -> None:
        super().__init__(f"the other side sent a line of more than {limit} bytes")
        self.limit = limit


class Overflow(ConnectionLost):
    """A bounded buffer was full and stayed full.

    Raised to a consumer that did not read its messages (only that consumer is cut off), and for the
    whole connection when the other side does not read what we write: `blame` says which. A consumer
    that is cut off already got messages, so what it asked for may have run.
    """

    error_class = "overflow"

    def __init__(
        self,
        message: str,
        *,
        blame: Blame = "us",
        retryable: bool = True,
        may_have_run: bool = False,
    ) -> None:
        super().__init__(message)
        self.blame = blame
        self.retryable = retryable
        self.may_have_run = may_have_run


class CallError(DragomanError):
    """One call failed. The connection stays open."""

    error_class = "call_failed"
    blame = "peer"
    may_have_run = True


class CallTimeout(CallError):
    """No response came in time. The other side may still be working on the request."""

    error_class = "timeout"
    retryable = True

    def __init__(self, method: str, timeout: float) -> None:
        super().__init__(f"no answer to {method} within {timeout:g} s")
        self.method = method
        self.timeout = timeout


class BudgetExceeded(CallTimeout):
    """A turn used up one of its time budgets. `budget` names it.

    `option` is the command-line option that set it; empty if there is none.
    """

    def __init__(self, budget: str, timeout: float, *, option: str = "") -> None:
        super().__init__("the prompt", timeout)
        happened = {
            "total": "timed out after",
            "first_event": "the agent sent nothing after the prompt for",
            "silence": "the agent sent nothing for",
            "tool_silence": "the agent sent nothing during a tool call for",
        }.get(budget, f"the turn used up its budget {budget}:")
        self.args = (f"{happened} {timeout:g} s" + (f" ({option})" if option else ""),)
        self.budget = budget
        self.option = option


OVERLOADED_CODE = -32001
"""The JSON-RPC code of a request that was refused and may be sent again later (`wire.codes`)."""

NOT_RUN_CODES = frozenset({OVERLOADED_CODE, -32601, -32602})
"""The JSON-RPC codes of requests that were refused before anything ran: overloaded, method not
found, invalid params."""


class PeerBusy(CallError):
    """The other side still works on an earlier request, which was given up. It takes one request at
    a time, so this one was not sent; try again once it has answered the earlier one."""

    error_class = "peer_busy"
    retryable = True
    may_have_run = False

    def __init__(self, method: str, earlier: str) -> None:
        super().__init__(
            f"{method} was not sent: the agent takes one request at a time and is still working on "
            f"{earlier}, which was given up"
        )
        self.method = method
        self.earlier = earlier


class RemoteError(CallError):
    """The other side responded with an error. A handler may raise this to respond with one.

    The code decides whether the error is retryable and whether the request may have run. In a turn,
    the agent's message and what the agent did before the error count too.
    """

    error_class = "remote_error"
    code: int = 0
    message: str = ""
    data: Any = None

    stderr_tail: str = ""
    """The end of what the agent wrote to stderr since the last prompt, if we started it. For an
    agent written with dragoman this is the traceback."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        said = plain_message(message)
        told = f"{said} ({code})"
        # Real agents say "Internal error" and put the details into the data.
        details = own_words(data)
        if details and details not in said:
            told += f": {details}"
        incident = data.get("incident") if isinstance(data, dict) else None
        self.incident = incident[:SHOWN_INCIDENT_SIZE] if isinstance(incident, str) else ""
        if self.incident:
            told += f", incident {self.incident}"
        super().__init__(told)
        self.code = code
        self.message = message
        self.data = data
        if code in NOT_RUN_CODES:
            self.may_have_run = False
            self.retryable = code == OVERLOADED_CODE


class CallCancelled(RemoteError):
    """The other side reports that the request was cancelled."""

    error_class = "cancelled"


class AuthRequired(RemoteError):
    """The other side requires a login.

    `methods` are the login methods it offers, and `hint` says what to do, with the command if it is
    known. dragoman never logs in on its own and sends no secret over the protocol.
    """

    error_class = "auth_required"
    may_have_run = False

    def __init__(
        self,
        message: str = "Authentication required",
        *,
        methods: Sequence[Any] = (),
        hint: str = "",
        data: Any = None,
    ) -> None:
        super().__init__(-32000, message, data)
        if hint:
            self.args = (f"{message} ({self.code}); {hint}",)
        self.methods = tuple(methods)
        self.hint = hint


class InvalidAnswer(CallError):
    """The response does not match the protocol.

    `remedy` says what to do, if that is known.
    """

    error_class = "invalid_answer"
    remedy: str = ""


class ProtocolMismatch(DragomanError):
    """The two sides have no protocol version in common.

    `dialect` names what the other side speaks instead, if its response shows it, and `version` the
    version of the same protocol that it speaks. `remedy` says which side has to change, if known.
    `hint` says what the caller can do if the problem is not the version.
    """

    error_class = "protocol_mismatch"
    blame = "peer"
    remedy: str = ""
    hint: str = ""

    def __init__(
        self,
        message: str,
        *,
        dialect: str | None = None,
        version: str | None = None,
        remedy: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.dialect = dialect
        self.version = version
        self.remedy = remedy
        self.hint = hint


class TurnFailed(DragomanError):
    """A turn ended without success, but its result has no error that `Result.require_ok` could
    raise instead of this one.

    `outcome` says how the turn ended, such as ``refused``. The error is retryable if the agent
    reported a failure that is. A turn that was cancelled or denied is blamed on this side.
    """

    error_class = "turn_failed"
    blame: Blame = "peer"
    may_have_run = True

    def __init__(
        self, outcome: str, detail: str = "", *, blame: Blame = "peer", retryable: bool = False
    ) -> None:
        super().__init__(f"the turn ended as {outcome}" + (f": {detail}" if detail else ""))
        self.outcome = outcome
        self.blame = blame
        self.retryable = retryable


class AdapterFailed(DragomanError):
    """The Python adapter of a peer failed. `adapter` is its file or module.

    `__cause__` is what its code raised. The peer may already have been prompted.
    """

    error_class = "adapter_failed"
    blame = "peer"
    may_have_run = True

    def __init__(self, peer: str, adapter: str, problem: str) -> None:
        super().__init__(f"{adapter}, the adapter of {peer}, failed: {problem}")
        self.peer = peer
        self.adapter = adapter
        self.problem = problem


class HandshakeFailed(DragomanError):
    """The other side did not answer like an agent. No prompt was sent.

    The message says what happened, the likely cause and what to do. `noise` is the output that came
    instead of messages, `timed_out` says that no response came in time, and `__cause__` is the
    underlying error.
    """

    error_class = "handshake_failed"
    blame = "peer"
    hint = ""
    """What to do, if that is known."""

    def __init__(
        self,
        message: str,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        stderr_tail: str = "",
        noise: Sequence[str] = (),
        timed_out: bool = False,
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.signal = signal
        self.stderr_tail = stderr_tail
        self.noise = tuple(noise)
        self.timed_out = timed_out
