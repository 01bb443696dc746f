"""Error messages for users: what happened, what to do next, whether to try again, and whose fault
it is where that helps; and the exit code.

Covers every class in `dragoman.errors`; an error's own `remedy` or `hint` takes precedence.
`cli.entry` catches the errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from dragoman.cli.exit_codes import ExitCode
from dragoman.cli.output.escape import neutral
from dragoman.errors import (
    AdapterFailed,
    AuthRequired,
    CallTimeout,
    DragomanError,
    HandshakeFailed,
    InputTimeout,
    NoPeer,
    ProtocolMismatch,
    RemoteError,
    SessionLost,
    SessionUnusable,
    UnknownJob,
    UnknownSession,
    UsageError,
)

if TYPE_CHECKING:
    from dragoman.cli.output.renderer import TurnReport
    from dragoman.delegation.attempt_report import AttemptReport

_WHOSE: Final = {"us": "dragoman", "peer": "the agent", "world": "the machine or the network"}

YOURS: Final = ""
"""Faults for which the next step is enough: a usage error, a missing login, a limit or a
refusal. The line is omitted then."""

ADVICE: Final[Mapping[str, str]] = {
    "usage": "see the examples in the command's --help",
    "unsupported": "omit that, or use a peer that supports it: `dragoman peers`",
    "unknown_peer": "`dragoman peers` lists the peers, `dragoman peers add` adds one",
    "role_not_claimed": "`dragoman peers` lists the roles of each peer",
    "no_peer": "`dragoman explain` shows why; `dragoman peers enable` enables a peer",
    "policy_not_enforced": "to run it anyway, add --allow-unenforced or set allow_unenforced "
    "in its settings; --approve-all allows everything",
    "wrong_launch": "use the form that works",
    "adapter_failed": "fix the adapter; --verbose shows the traceback, `dragoman doctor` checks "
    "whether it loads",
    "config_invalid": "fix it there; `dragoman config show` shows where every value comes from",
    "front_matter_invalid": "fix the file by hand, then try again",
    "turn_in_progress": "wait until the running turn ends, or cancel it",
    "input_timeout": "close stdin, redirect it from /dev/null, or add --no-stdin",
    "session_unusable": "start a new session",
    "session_lost": "run it again with --brief or --fresh",
    "unknown_session": "`dragoman sessions list --all` lists the sessions",
    "unknown_job": "`dragoman jobs list` lists the jobs",
    "broker_busy": "wait until some of its work is done, or add --cold for a separate agent",
    "broker_unavailable": "add --cold for a separate agent; `dragoman broker reap` cleans up",
    "broker_failed": "`dragoman broker logs` shows its log; --cold runs without a broker",
    "message_too_long": "shorten the prompt, or name the file instead of its text",
    "spawn_failed": "start the program by hand to see what it says",
    "not_installed": "install it; `dragoman doctor` shows what is missing",
    "program_not_found": "install it, add its directory to the PATH, or give its full path",
    "connect_failed": "check that a server listens on that address, then try again",
    "process_exited": "start the agent by hand to see more, or add --trace FILE and --verbose",
    "ended": "start the agent by hand to see more, or add --trace FILE and --verbose",
    "broken": "try again",
    "line_too_long": "report it to the agent's developers: no message should be that long",
    "timeout": "try again, or give it more time with --timeout",
    "auth_required": "log in with `dragoman login PEER` or the agent's own program, then try again",
    "invalid_answer": "add --trace FILE and send the trace to the agent's developers",
    "protocol_mismatch": "name its dialect with --dialect; `dragoman peers verify` shows more",
    "handshake_failed": "`dragoman peers verify` checks it step by step",
    "remote_error": "if the message above is not enough, add --trace FILE and read the trace",
}
"""The next step, by the error's stable name."""

MESSAGE_SIZE: Final = 2000
"""Maximum characters of an error message for people: more than a screen is not read. JSON lines
have all of it."""

SHOWN_STDERR_LINES: Final = 40
"""Maximum lines of an agent's stderr shown with its error: the end of a traceback matters."""

FALLBACK: Final = "run `dragoman doctor`, and try again with --verbose --trace FILE"


def message(error: DragomanError) -> str:
    """Format an error for people, as lines that end with a newline."""
    tail = error.stderr_tail if isinstance(error, RemoteError) else ""
    again = ""
    if _end_of(error) is None:
        # For a limit or a login the next step says when to try again.
        again = try_again(retryable=error.retryable, may_have_run=error.may_have_run)
    next_step, happened = advice(error), str(error)
    if isinstance(error, AuthRequired) and error.hint and next_step.startswith(error.hint):
        # The next step covers it.
        happened = happened.removesuffix(f"; {error.hint}")
    return _lines(happened, whose(error), next_step, again=again, stderr=tail)


def try_again(*, retryable: bool, may_have_run: bool) -> str:
    """Whether retrying may work, and what the first attempt may already have done; empty if it
    would fail again and nothing was done."""
    if may_have_run:
        look = "check first: part of the work may already be done"
        return f"it may help, but {look}" if retryable else look
    return "it may help; nothing has been done yet" if retryable else ""


def stderr_lines(tail: str) -> list[str]:
    """The end of an agent's stderr, formatted; nothing if it is empty."""
    said = [line.rstrip() for line in tail.splitlines() if line.strip()]
    shown = [f"    {neutral(short(line))}" for line in said[-SHOWN_STDERR_LINES:]]
    return ["  the agent said on stderr:", *shown] if said else []


def _lines(happened: str, fault: str, next_step: str, *, again: str = "", stderr: str = "") -> str:
    answers = _answers(fault, next_step, again)
    lines = [
        f"dragoman: {neutral(short(happened))}",
        *stderr_lines(stderr),
        *(f"  {answer}" for answer in answers),
    ]
    return "\n".join(lines) + "\n"


def _answers(fault: str, next_step: str, again: str) -> list[str]:
    return [
        *([f"what next:   {neutral(short(next_step))}"] if next_step else []),
        *([f"try again:   {again}"] if again else []),
        *([f"whose fault: {fault}"] if fault else []),
    ]


def short(text: str) -> str:
    """A text cut in the middle if it is too long for a terminal; its end often has the reason."""
    if len(text) <= MESSAGE_SIZE:
        return text
    left_out = len(text) - MESSAGE_SIZE
    half = MESSAGE_SIZE // 2
    return f"{text[:half]} … ({left_out} characters omitted) … {text[-half:]}"


def of_report(report: TurnReport) -> str | None:
    """The message for an unsuccessful turn; None for a successful one."""
    result = report.result
    if result.ok:
        return None
    if report.interrupted:
        who = "from outside" if report.exit_code == ExitCode.TERMINATED else "by you"
        return f"dragoman: the turn was cancelled {who}\n"
    if report.exit_code == ExitCode.DENIED:
        denied = ", ".join(denial.title or denial.kind for denial in result.denials)
        return _lines(
            f"the turn counts as denied, because these permissions were denied: {denied}"
            + (f"; the agent reports: {result.failure.message}" if result.failure else ""),
            *_DENIED,
        )
    if result.error is not None:
        return message(result.error)
    happened, fault, next_step = ENDS.get(result.outcome, ENDS["unknown"])
    failure = result.failure
    detail = failure.message if failure else result.stop
    again = ""
    if result.outcome in CUT_SHORT:
        again = try_again(retryable=failure is not None and failure.retryable, may_have_run=True)
    return _lines(happened + (f": {detail}" if detail else ""), fault, next_step, again=again)


def of_attempt(report: AttemptReport) -> list[str]:
    """The message for the last attempt of an unsuccessful delegation, without what happened."""
    from dragoman.delegation.spending_limits import OVER_BUDGET

    failure, outcome = report.failure, report.outcome
    fault, next_step = ENDS.get(outcome, ENDS["unknown"])[1:]
    if outcome == "denied":
        fault, next_step = _DENIED
    elif outcome.good:
        fault, next_step = "the agent", "read the output of the check, and review the changes"
    elif report.error_class == OVER_BUDGET:
        fault, next_step = _OVER_BUDGET
    elif (kind := _kinds().get(report.error_class or "")) is not None:
        # An agent's answer is judged by its outcome.
        if not issubclass(kind, RemoteError):
            fault = _blamed(kind)
            next_step = _known_advice(kind) or next_step
    again = ""
    if outcome not in _ON_PURPOSE:
        retryable = failure is not None and failure.retryable
        again = try_again(retryable=retryable, may_have_run=report.may_have_run)
    return _answers(fault, next_step.replace("login PEER", f"login {report.peer}"), again)


def _kinds(kind: type[DragomanError] = DragomanError) -> dict[str, type[DragomanError]]:
    """The classes of errors by their stable names."""
    found = {kind.error_class: kind}
    for each in kind.__subclasses__():
        found = {**_kinds(each), **found}
    return found


_OVER_BUDGET: Final = (
    YOURS,
    "wait, or raise the limit: `dragoman stats` shows what was spent",
)

_DENIED: Final = (
    YOURS,
    "allow it at the prompt, or for everything with --approve-all",
)

_ON_PURPOSE: Final = frozenset(("denied", "auth_required", "quota"))
"""Outcomes of an attempt whose next step says when to try again."""

CUT_SHORT: Final = frozenset(("timed_out", "crashed", "failed", "protocol_error", "unknown"))
"""Outcomes of a turn that leave open how much of the work was done. The others follow from the
agent's answer or from a deliberate action."""


ENDS: Final[Mapping[str, tuple[str, str, str]]] = {
    "empty": (
        "the agent ended its turn without an answer and without doing anything",
        "the agent",
        "try again; if it happens again, add --trace FILE and read what its model sent",
    ),
    "refused": ("the agent refused", "the agent", "rephrase the prompt, or use another peer"),
    "truncated": (
        "the agent reached a limit before it was done",
        "the agent",
        "ask for less at once, or continue in the same session with `dragoman chat`",
    ),
    "cancelled": (
        "the turn was cancelled by another program",
        YOURS,
        "try again",
    ),
    "timed_out": ("the turn took too long", "the agent", "give it more time with --timeout"),
    "crashed": (
        "the agent exited in the middle of its turn",
        "the agent",
        "start it by hand to see more, or add --trace FILE and --verbose",
    ),
    "auth_required": (
        "the agent needs a login",
        YOURS,
        "log in with `dragoman login PEER` or the agent's own program, then try again",
    ),
    "quota": (
        "the agent's provider rejects requests",
        YOURS,
        "wait until its provider lifts the limit, or use another peer: `dragoman peers`",
    ),
    "failed": ("the agent failed", "the agent", FALLBACK),
    "protocol_error": (
        "the agent violated its protocol",
        "the agent",
        "add --trace FILE and send the trace to the agent's developers",
    ),
    "unsupported": (
        "the agent cannot do that",
        YOURS,
        "omit that, or use a peer that supports it: `dragoman peers`",
    ),
    "unknown": ("the outcome of the turn is unknown", "the agent", FALLBACK),
}
"""For each unsuccessful outcome: what happened, whose fault it is if that helps, and what to do."""


def whose(error: DragomanError) -> str:
    """Who has to change something; empty if the next step says it."""
    if isinstance(error, ProtocolMismatch) and error.remedy:
        return YOURS
    if isinstance(error, AuthRequired):
        # However the agent reports it, the user has to log in.
        return ENDS["auth_required"][1]
    if (end := _end_of(error)) is not None:
        return end[1]
    if isinstance(error, AdapterFailed):
        return "the adapter"
    return _blamed(type(error))


def _blamed(kind: type[DragomanError]) -> str:
    called = issubclass(kind, UsageError) and not issubclass(kind, SessionLost)
    return YOURS if called else _WHOSE[kind.blame]


def advice(error: DragomanError) -> str:
    """The next step."""
    for name in ("remedy", "hint"):
        own = getattr(error, name, "")
        if isinstance(own, str) and own:
            # Methods that the agent handles itself; others are separate commands.
            ours = isinstance(error, AuthRequired) and error.methods and "`" not in own
            return f"{own}: `dragoman login PEER`" if ours else own
    if (end := _end_of(error)) is not None:
        return end[2]
    if isinstance(error, RemoteError) and error.stderr_tail:
        return "fix the agent; --agent-stderr shows its whole stderr"
    if type(error) is UsageError and "`" in str(error):
        # It names a command that helps.
        return ""
    return _known_advice(type(error)) or FALLBACK


def _known_advice(kind: type[DragomanError]) -> str:
    """The advice for an error class or its base classes; empty if there is none."""
    names = (getattr(each, "error_class", "") for each in kind.__mro__)
    return next((ADVICE[name] for name in names if name in ADVICE), "")


def exit_code(error: DragomanError) -> ExitCode:
    """The exit code of an error that ended a command."""
    match error:
        case AuthRequired():
            return ExitCode.AUTH_REQUIRED
        case SessionUnusable() | UnknownSession() | UnknownJob():
            return ExitCode.NO_SESSION
        case NoPeer():
            return ExitCode.BUDGET if error.over_budget else ExitCode.NO_PEER
        case InputTimeout():
            return ExitCode.TIMEOUT
        case UsageError():
            return ExitCode.USAGE
        case CallTimeout():
            return ExitCode.TIMEOUT
        case HandshakeFailed(timed_out=True):
            return ExitCode.TIMEOUT
        case RemoteError():
            return _remote(error)
        case _:
            return ExitCode.FAILED


def _remote(error: RemoteError) -> ExitCode:
    by_kind = {
        "not_found": ExitCode.NO_SESSION,
        "quota": ExitCode.QUOTA,
        "rate_limited": ExitCode.QUOTA,
        "auth_required": ExitCode.AUTH_REQUIRED,
    }
    return by_kind.get(_kind_of(error), ExitCode.FAILED)


def _kind_of(error: RemoteError) -> str:
    from dragoman.client.results import explain

    return str(explain(error)[1].kind)


def _end_of(error: DragomanError) -> tuple[str, str, str] | None:
    """The message for a login or quota error that an agent reported only as text."""
    if not isinstance(error, RemoteError) or isinstance(error, AuthRequired):
        return None
    by_kind = {"quota": "quota", "rate_limited": "quota", "auth_required": "auth_required"}
    end = by_kind.get(_kind_of(error))
    return None if end is None else ENDS[end]
