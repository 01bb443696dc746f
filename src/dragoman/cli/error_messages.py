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
"""Whose fault it is where the next step says it all: a mistake in the call, a missing login, a
limit or a refusal. The line is left out then."""

ADVICE: Final[Mapping[str, str]] = {
    "usage": "look at the examples of the command's --help",
    "unsupported": "leave that out, or use a peer that can do it: `dragoman peers`",
    "unknown_peer": "`dragoman peers` lists the peers there are, `dragoman peers add` adds one",
    "role_not_claimed": "`dragoman peers` lists who claims which role",
    "no_peer": "`dragoman explain` says who is passed over and why; `dragoman peers enable` helps",
    "policy_not_enforced": "--allow-unenforced runs it all the same, and so does allow_unenforced "
    "in its settings; --approve-all allows everything",
    "wrong_launch": "use the form that works",
    "adapter_failed": "mend the adapter; --verbose shows the traceback, `dragoman doctor` checks "
    "whether it loads",
    "config_invalid": "mend it there; `dragoman config show` tells where every value comes from",
    "front_matter_invalid": "mend the file by hand, then try again",
    "turn_in_progress": "wait for the end of the running turn, or cancel it",
    "input_timeout": "close stdin or let it come from /dev/null, or add --no-stdin",
    "session_unusable": "begin a new session",
    "session_lost": "say it again with --brief, or with --fresh",
    "unknown_session": "`dragoman sessions list --all` lists the sessions there are",
    "unknown_job": "`dragoman jobs list` lists the jobs there are",
    "broker_busy": "wait until some of its work is done, or add --cold for an agent of your own",
    "broker_unavailable": "add --cold for an agent of your own; `dragoman broker reap` cleans up",
    "broker_failed": "`dragoman broker logs` shows what it said; --cold goes without it",
    "message_too_long": "shorten the prompt, or name the file instead of its text",
    "spawn_failed": "start the program by hand to see what it says",
    "not_installed": "install it; `dragoman doctor` looks at what is missing",
    "program_not_found": "install it, put its folder on the PATH, or name it by its full path",
    "connect_failed": "see that something listens at that address, then try again",
    "process_exited": "start the agent by hand to see more, or add --trace FILE and --verbose",
    "ended": "start the agent by hand to see more, or add --trace FILE and --verbose",
    "broken": "try again",
    "line_too_long": "report it to the agent's makers: no message needs to be that long",
    "timeout": "try again, or give it more time with --timeout",
    "auth_required": "log in by `dragoman login PEER` or the agent's own program, then try again",
    "invalid_answer": "add --trace FILE and show the trace to the agent's makers",
    "protocol_mismatch": "name what it speaks with --dialect; `dragoman peers verify` says more",
    "handshake_failed": "`dragoman peers verify` looks into it step by step",
    "remote_error": "if the words above do not say enough, add --trace FILE and look into it",
}
"""What to do next, by the error's stable name."""

MESSAGE_SIZE: Final = 2000
"""Characters of an error that a person is shown: more than a screen of them is not read. Lines of
JSON have all of it."""

SHOWN_STDERR_LINES: Final = 40
"""Lines of an agent's stderr that are shown with its error: a traceback ends with what counts."""

FALLBACK: Final = "run `dragoman doctor`, and try again with --verbose --trace FILE"


def message(error: DragomanError) -> str:
    """The error for a person, as lines that end with a newline."""
    tail = error.stderr_tail if isinstance(error, RemoteError) else ""
    again = ""
    if _end_of(error) is None:
        # Of a limit or a login the next step says when to try again.
        again = try_again(retryable=error.retryable, may_have_run=error.may_have_run)
    next_step, happened = advice(error), str(error)
    if isinstance(error, AuthRequired) and error.hint and next_step.startswith(error.hint):
        # The next step says it.
        happened = happened.removesuffix(f"; {error.hint}")
    return _lines(happened, whose(error), next_step, again=again, stderr=tail)


def try_again(*, retryable: bool, may_have_run: bool) -> str:
    """Whether the same command may work the next time, and what the first may have done already;
    empty if it would fail again and nothing was done."""
    if may_have_run:
        look = "look first: part of the work may be done already"
        return f"it may help, but {look}" if retryable else look
    return "it may help; nothing was done yet" if retryable else ""


def stderr_lines(tail: str) -> list[str]:
    """The end of an agent's stderr for a person; nothing if it is empty."""
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
        f"what next:   {neutral(short(next_step))}",
        *([f"try again:   {again}"] if again else []),
        *([f"whose fault: {fault}"] if fault else []),
    ]


def short(text: str) -> str:
    """A text cut in its middle where it is too long for a terminal; its end often says why."""
    if len(text) <= MESSAGE_SIZE:
        return text
    left_out = len(text) - MESSAGE_SIZE
    half = MESSAGE_SIZE // 2
    return f"{text[:half]} … ({left_out} characters left out) … {text[-half:]}"


def of_report(report: TurnReport) -> str | None:
    """What a person is told about a turn that was no success; None about one that was."""
    result = report.result
    if result.ok:
        return None
    if report.interrupted:
        who = "from outside" if report.exit_code == ExitCode.TERMINATED else "by you"
        return f"dragoman: the turn was cancelled {who}\n"
    if report.exit_code == ExitCode.DENIED:
        denied = ", ".join(denial.title or denial.kind for denial in result.denials)
        return _lines(
            f"the turn counts as denied, because this was denied in it: {denied}"
            + (f"; the agent says: {result.failure.message}" if result.failure else ""),
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
    """What a person is told about the last attempt of a delegation that was no success, besides
    what happened."""
    from dragoman.delegation.spending_limits import OVER_BUDGET

    failure, outcome = report.failure, report.outcome
    fault, next_step = ENDS.get(outcome, ENDS["unknown"])[1:]
    if outcome == "denied":
        fault, next_step = _DENIED
    elif outcome.good:
        fault, next_step = "the agent", "look at what the check says, and at what was changed"
    elif report.error_class == OVER_BUDGET:
        fault, next_step = _OVER_BUDGET
    elif (kind := _kinds().get(report.error_class or "")) is not None:
        # An answer of the agent is judged by what it means, which is its outcome.
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
"""The ends of an attempt whose next step says when to try again."""

CUT_SHORT: Final = frozenset(("timed_out", "crashed", "failed", "protocol_error", "unknown"))
"""The ends of a turn that leave open how much of the work was done. The others follow from what
the agent said, or from something that was done on purpose."""


ENDS: Final[Mapping[str, tuple[str, str, str]]] = {
    "empty": (
        "the agent ended its turn without a word and without doing anything",
        "the agent",
        "try again; if it goes on, look into --trace FILE for what its model said",
    ),
    "refused": ("the agent refused", "the agent", "put it in other words, or ask another peer"),
    "truncated": (
        "the agent reached a limit before it was done",
        "the agent",
        "ask for less at once, or go on in the same session with `dragoman chat`",
    ),
    "cancelled": (
        "the turn was cancelled, and not from here",
        YOURS,
        "try again",
    ),
    "timed_out": ("the turn took too long", "the agent", "give it more time with --timeout"),
    "crashed": (
        "the agent ended in the middle of its turn",
        "the agent",
        "start it by hand to see more, or add --trace FILE and --verbose",
    ),
    "auth_required": (
        "the agent wants a login first",
        YOURS,
        "log in by `dragoman login PEER` or the agent's own program, then try again",
    ),
    "quota": (
        "the agent's model turns requests away",
        YOURS,
        "wait until the limit of its provider is lifted, or ask another peer: `dragoman peers`",
    ),
    "failed": ("the agent failed", "the agent", FALLBACK),
    "protocol_error": (
        "the agent did not keep to its protocol",
        "the agent",
        "add --trace FILE and show the trace to the agent's makers",
    ),
    "unsupported": (
        "the agent cannot do that",
        YOURS,
        "leave that out, or use a peer that can do it: `dragoman peers`",
    ),
    "unknown": ("it is not known how the turn ended", "the agent", FALLBACK),
}
"""For each way in which a turn can end badly: what happened, whose fault it is where that helps,
and what to do."""


def whose(error: DragomanError) -> str:
    """Who has to change something; empty where the next step says it."""
    if isinstance(error, ProtocolMismatch) and error.remedy:
        return YOURS
    if isinstance(error, AuthRequired):
        # However the agent asks for a login, it is the user who logs in.
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
    """What to do next."""
    for name in ("remedy", "hint"):
        own = getattr(error, name, "")
        if isinstance(own, str) and own:
            # Methods that the agent carries out itself; others are commands of their own.
            ours = isinstance(error, AuthRequired) and error.methods and "`" not in own
            return f"{own}: `dragoman login PEER`" if ours else own
    if (end := _end_of(error)) is not None:
        return end[2]
    if isinstance(error, RemoteError) and error.stderr_tail:
        return "mend the agent; --agent-stderr shows all that it writes to its stderr"
    return _known_advice(type(error)) or FALLBACK


def _known_advice(kind: type[DragomanError]) -> str:
    """What helps with errors of a class or of those above it; empty if that is not known."""
    names = (getattr(each, "error_class", "") for each in kind.__mro__)
    return next((ADVICE[name] for name in names if name in ADVICE), "")


def exit_code(error: DragomanError) -> ExitCode:
    """The code of an error that ended a command."""
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
    """What is told about a login or a quota that an agent only put in words."""
    if not isinstance(error, RemoteError) or isinstance(error, AuthRequired):
        return None
    by_kind = {"quota": "quota", "rate_limited": "quota", "auth_required": "auth_required"}
    end = by_kind.get(_kind_of(error))
    return None if end is None else ENDS[end]
