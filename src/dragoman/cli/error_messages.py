"""Error messages and exit codes for users.

A message says what happened, what to do next, whether to try again and, where that helps, whose
fault it is. Every class in `dragoman.errors` is covered; an error's own `remedy` or `hint` takes
precedence. `cli.entry` catches the errors.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dragoman.cli.exit_codes import ExitCode
from dragoman.cli.output.escape import neutral
from dragoman.errors import (
    AdapterFailed,
    AuthRequired,
    BudgetExceeded,
    CallTimeout,
    ConnectError,
    ConnectionClosed,
    DragomanError,
    HandshakeFailed,
    InputTimeout,
    NoPeer,
    ProtocolMismatch,
    RemoteError,
    SessionLost,
    SessionUnusable,
    UnknownJob,
    UnknownPeer,
    UnknownSession,
    UsageError,
)

if TYPE_CHECKING:
    from dragoman.catalogue.descriptor import Credentials
    from dragoman.cli.output.renderer import PassedVariables, TurnReport
    from dragoman.delegation.attempt_report import AttemptReport

_REMEDIES: Final = ("remedy", "hint")
"""Attributes of an error that say what to do."""

_WHOSE: Final = {"us": "dragoman", "peer": "the agent", "world": "the machine or the network"}

YOURS: Final = ""
"""The empty answer to whose fault an error is. Usage errors, limits and refusals need only the next
step, so the line is omitted."""

ITS_LOGIN: Final = "the agent's login"
"""What is at fault if a login is missing or no longer accepted, however the agent reports it."""

LOGIN: Final = "log in with the agent's own program, then try again"
"""The next step for a missing login, unless the peer's descriptor says how to log in."""

# Not every command that runs an agent has these options: `delegate` has no --trace.
START_BY_HAND: Final = (
    "start the agent by hand to see more, or add --verbose --trace FILE to `dragoman run`"
)
SEND_TRACE: Final = (
    "add --trace FILE to `dragoman run` and send the trace to the agent's developers"
)

ADVICE: Final[Mapping[str, str]] = {
    "usage": "see the examples in the command's --help",
    "unsupported": "do without it, or use a peer that supports it: `dragoman peers`",
    "unknown_peer": "`dragoman peers` lists the peers, `dragoman peers add` adds one",
    "role_not_claimed": "`dragoman peers` lists the roles of each peer",
    "unknown_role": "`dragoman peers` lists the roles of each peer",
    "no_peer": "`dragoman explain ROLE` shows why; `dragoman peers enable` enables a peer",
    "policy_not_enforced": "to run it anyway, add --allow-unenforced or set allow_unenforced "
    "in the settings of the peer; --approve-all allows everything",
    "wrong_launch": "start it with the command that the message names",
    "adapter_failed": "fix the adapter; --verbose shows the traceback, `dragoman doctor` checks "
    "whether it loads",
    "config_invalid": "fix it there; `dragoman config show` shows where every value comes from",
    "front_matter_invalid": "fix the file by hand, then try again",
    "turn_in_progress": "wait until the running turn ends, or cancel it",
    "input_timeout": "close stdin, redirect it from /dev/null, or add --no-stdin",
    "session_unusable": "start a new session",
    "session_lost": "repeat the command with --brief or --fresh",
    "unknown_session": "`dragoman sessions list --all --closed` lists all sessions",
    "unknown_job": "`dragoman jobs list` lists the jobs",
    "peer_busy": "wait until the agent has answered the earlier request, or add --cold for a "
    "separate agent",
    "broker_busy": "wait until some of its work is done, or add --cold for a separate agent",
    "broker_unavailable": "add --cold for a separate agent; `dragoman broker reap` cleans up",
    "broker_failed": "`dragoman broker logs` shows its log; --cold runs without a broker",
    "fleet_failed": "see the output of `dragoman fleet up` on the server",
    "fleet_unreachable": "check that `dragoman fleet up` is running on the server, and that its "
    "address can be reached from here",
    "fleet_refused": "join again: create a new code with `dragoman fleet invite` on the server, "
    "and use it with `dragoman fleet join`",
    "fleet_full": "wait until old jobs have expired; `dragoman fleet jobs` lists the jobs",
    "fleet_conflict": "`dragoman fleet jobs` shows the current state; repeat the command if it is "
    "still needed",
    "message_too_long": "shorten the prompt, or name a file in it instead of including its text",
    "file_failed": "check the file's path, its permissions and the free space on its disk",
    "spawn_failed": "start the program by hand to see its output",
    "not_installed": "install it; `dragoman doctor` shows what is missing",
    "program_not_found": "install it, add its directory to the PATH, or give its full path",
    "connect_failed": "check that a server listens on that address, then try again",
    "host_unavailable": "`dragoman hosts check NAME` shows whether the machine can be reached and "
    "what is missing there",
    "process_exited": START_BY_HAND,
    "ended": START_BY_HAND,
    "broken": "try again",
    "closed": "the next command starts a new broker; this one was stopped on request, with "
    "`dragoman broker stop` or a signal",
    "line_too_long": "report it to the agent's developers: no message should be that long",
    "timeout": "try again, or give it more time with --timeout",
    "auth_required": LOGIN,
    "invalid_answer": SEND_TRACE,
    "protocol_mismatch": "name the agent's dialect with --dialect; `dragoman peers verify` shows "
    "more",
    "handshake_failed": "`dragoman peers verify` checks it step by step",
    "remote_error": "if the message above is not enough, add --trace FILE to `dragoman run` and "
    "read the trace",
}
"""The next step, by the stable name of the error (`error_class`)."""

REFUSED: Final = "check the address, and the login, certificate or permissions that it needs"
"""The next step if a connection was refused and will be refused again."""

MESSAGE_SIZE: Final = 2000
"""Maximum length of an error message for people, in characters: people do not read more than a
screen. JSON lines have the whole message."""

SHOWN_STDERR_LINES: Final = 40
"""Maximum number of lines of an agent's stderr shown with its error: the end of a traceback
matters."""

FALLBACK: Final = (
    "run `dragoman doctor`, or add --verbose --trace FILE to `dragoman run` and try again"
)


def message(
    error: DragomanError,
    *,
    peer: str = "",
    login: str = "",
    passed: PassedVariables | None = None,
) -> str:
    """Format an error for people, as lines that end with a newline.

    `peer` is the name of the peer that was run, `login` says how to log in to it, and `passed`
    names the variables that are passed to it, if known.
    """
    tail = again = ""
    if _end_of(error) is None:
        # For a limit or a login the message and the next step say everything.
        tail = error.stderr_tail if isinstance(error, RemoteError) else ""
        again = try_again(retryable=error.retryable, may_have_run=error.may_have_run)
    next_step = advice(error, peer=peer, login=login, passed=passed)
    happened = str(error)
    for name in _REMEDIES:
        if remedy := getattr(error, name, ""):
            # The next step covers it.
            happened = happened.removesuffix(f"; {remedy}")
    return _lines(happened, whose(error), next_step, again=again, stderr=tail)


def try_again(*, retryable: bool, may_have_run: bool) -> str:
    """Return a text that says whether retrying may help, and what the first attempt may already
    have done. Empty if retrying does not help and nothing was done."""
    if may_have_run:
        look = "check first: part of the work may already be done"
        return f"it may help, but {look}" if retryable else look
    return "it may help; nothing has been done yet" if retryable else ""


def stderr_lines(tail: str) -> list[str]:
    """Format the end of an agent's stderr as indented lines; an empty list if there is no text."""
    said = [line.rstrip() for line in tail.splitlines() if line.strip()]
    shown = [f"    {neutral(short(line))}" for line in said[-SHOWN_STDERR_LINES:]]
    return ["  the agent's stderr:", *shown] if said else []


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
    """Shorten a text that is too long for a terminal by cutting its middle: the end often has the
    reason."""
    if len(text) <= MESSAGE_SIZE:
        return text
    left_out = len(text) - MESSAGE_SIZE
    half = MESSAGE_SIZE // 2
    return f"{text[:half]} … ({left_out} characters omitted) … {text[-half:]}"


def of_report(
    report: TurnReport, *, login: str = "", passed: PassedVariables | None = None
) -> str | None:
    """Return the message for an unsuccessful turn, or None for a successful one. `login` and
    `passed` are as in `message`."""
    result = report.result
    if result.ok:
        return None
    if report.interrupted:
        who = "by a signal" if report.exit_code == ExitCode.TERMINATED else "by you"
        return f"dragoman: the turn was cancelled {who}\n"
    if report.exit_code == ExitCode.DENIED:
        titles = dict.fromkeys(denial.title or denial.kind for denial in result.denials)
        denied = ", ".join(titles)
        return _lines(
            "the turn counts as denied, because "
            + (f"these permissions were denied: {denied}" if denied else "permissions were denied")
            + (f"; the agent reports: {result.failure.message}" if result.failure else ""),
            YOURS,
            _how_to_allow(report.permissions),
        )
    if result.error is not None:
        return message(result.error, peer=report.peer, login=login, passed=passed)
    happened, fault, next_step = ENDS.get(result.outcome, ENDS["unknown"])
    next_step = _how(next_step, login)
    failure = result.failure
    # The stop reason "refusal" says no more than the outcome.
    detail = failure.message if failure else result.stop.removeprefix("refusal")
    next_step = let_through(detail, peer=report.peer, passed=passed) or next_step
    again = ""
    if result.outcome in CUT_SHORT:
        again = try_again(retryable=failure is not None and failure.retryable, may_have_run=True)
    return _lines(happened + (f": {detail}" if detail else ""), fault, next_step, again=again)


def of_attempt(
    report: AttemptReport,
    *,
    login: str = "",
    permissions: str = "",
    passed: PassedVariables | None = None,
) -> list[str]:
    """Return, as lines, the message for the last attempt of a failed delegation, without the line
    that says what happened.

    `permissions` is the preset of its permission policy, if known; `login` and `passed` are as in
    `message`.
    """
    from dragoman.delegation.spending_limits import OVER_BUDGET

    failure, outcome = report.failure, report.outcome
    fault, next_step = ENDS.get(outcome, ENDS["unknown"])[1:]
    if outcome == "denied":
        fault, next_step = YOURS, _how_to_allow(permissions)
    elif outcome == "refused" and report.runtime_role == "host":
        fault = YOURS
        next_step = (
            f"`dragoman init` sets up agents with a model; `dragoman explain {report.role}` "
            "shows why none was used"
        )
    elif outcome.good:
        fault, next_step = "the agent", "read the output of the check, and review the changes"
    elif report.error_class == OVER_BUDGET:
        fault, next_step = _OVER_BUDGET
    elif (kind := _kinds().get(report.error_class or "")) is not None:
        # The outcome decides how an agent's answer is judged.
        if not issubclass(kind, RemoteError):
            fault = fault if outcome == "timed_out" else _blamed(kind)
            next_step = _known_advice(kind) or next_step
    again = ""
    if outcome not in _ON_PURPOSE:
        retryable = failure is not None and failure.retryable
        # If nothing was changed, a second try cannot do anything twice.
        left_behind = report.may_have_run and report.obstacle() is not None
        again = try_again(retryable=retryable, may_have_run=left_behind)
    hidden = ""
    if failure is not None:
        hidden = let_through(failure.message, peer=report.peer, passed=passed)
    return _answers(fault, hidden or _how(next_step, login), again)


def _how(next_step: str, login: str) -> str:
    """Return `next_step`. If that is `LOGIN` and `login`, how to log in, is not empty, name that
    instead."""
    return f"{login}, then try again" if login and next_step == LOGIN else next_step


def login_of(credentials: Credentials, environ: Mapping[str, str]) -> str:
    """Return how to log in to a peer; if a key is set in the environment, also that it may need to
    be corrected. Empty if the descriptor does not say how to log in."""
    # Imported here: only failed commands need it.
    from dragoman.redaction.names import SECRET_VARIABLE

    login = credentials.login
    keys = [name for name in credentials.env if environ.get(name) and SECRET_VARIABLE.search(name)]
    if not login or not keys:
        return login
    if login.startswith("set ") and ", or run " in login:
        login = "run " + login.partition(", or run ")[2]
    are = "is" if len(keys) == 1 else "are"
    return f"{login}, or correct {' and '.join(keys)}, which {are} set here"


_VARIABLE: Final = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]*[A-Z0-9]\b")
"""The name of a variable in a text. Without an underscore it could be any word."""


def let_through(text: str, *, peer: str, passed: PassedVariables | None) -> str:
    """Return how to pass on the variables that an agent misses although they are set here.

    `text` is what the agent reports. Empty if it names no such variable, if `passed` is None, or if
    there is no way to pass them.
    """
    if passed is None or not (named := dict.fromkeys(_VARIABLE.findall(text))):
        return ""
    # Imported here: only failed commands need it.
    from dragoman.transports.process.environment import build_environment

    seen = build_environment(inherit=passed.names)
    hidden = [name for name in named if os.environ.get(name) and name not in seen]
    ways = []
    if passed.option:
        ways.append("add " + " ".join(f"--env {name}" for name in hidden))
    if peer:
        value = ",".join((*passed.settings, *hidden))
        ways.append(f"run `dragoman config set peer.{peer}.env {value}`")
    if not hidden or not ways:
        return ""
    are, it = ("is", "it") if len(hidden) == 1 else ("are", "them")
    return (
        f"{' and '.join(hidden)} {are} set here but not passed to the agent; to pass {it} on, "
        + ", or ".join(ways)
    )


def _kinds(kind: type[DragomanError] = DragomanError) -> dict[str, type[DragomanError]]:
    """Return `kind` and the classes derived from it, by their stable names."""
    found = {kind.error_class: kind}
    for each in kind.__subclasses__():
        found = {**_kinds(each), **found}
    return found


_OVER_BUDGET: Final = (
    YOURS,
    "wait, or raise the limit: `dragoman stats` shows what was spent",
)

_HOW_TO_ALLOW: Final[Mapping[str, str]] = {
    "approve-all": "a rule of the policy denied it: `dragoman policy show` lists the rules",
    "deny-all": "--deny-all (or `permissions` in the settings) denies every request: remove "
    "it, or allow everything with --approve-all",
    "approve-reads": "--approve-reads (or `permissions` in the settings) allows only reads: remove "
    "it to be asked, or allow everything with --approve-all",
}
"""The next step after a denial, for presets that do not ask the user."""


def _how_to_allow(permissions: str) -> str:
    """Return the next step after a denial under this preset."""
    from dragoman.cli.output.terminal import is_interactive

    if permissions == "approve-reads" and not is_interactive():
        return (
            "only reads are allowed if there is no terminal to ask on: run it in a terminal, or "
            "allow everything with --approve-all"
        )
    asked = (
        "allow it at the prompt, or allow everything with --approve-all"
        if is_interactive()
        else "there is no terminal to ask on: run it in a terminal, or allow everything with "
        "--approve-all"
    )
    return _HOW_TO_ALLOW.get(permissions, asked)


_ON_PURPOSE: Final = frozenset(("denied", "auth_required", "quota"))
"""Outcomes whose next step already says when to try again."""

CUT_SHORT: Final = frozenset(("timed_out", "crashed", "failed", "protocol_error", "unknown"))
"""Turn outcomes that leave open how much of the work was done. Other outcomes follow from the
agent's answer or a deliberate action."""


ENDS: Final[Mapping[str, tuple[str, str, str]]] = {
    "empty": (
        "the agent ended its turn without an answer and without doing anything",
        "the agent",
        "try again; if it happens again, add --trace FILE to `dragoman run` and read what its "
        "model sent",
    ),
    "refused": ("the agent refused", "the agent", "rephrase the prompt, or use another peer"),
    "truncated": (
        "the agent reached a limit before it was done",
        "the agent",
        "ask for less in one prompt, or continue in the same session with `dragoman chat`",
    ),
    "cancelled": (
        "the turn was cancelled by another program",
        YOURS,
        "try again",
    ),
    "timed_out": ("the turn took too long", YOURS, "give it more time with --timeout"),
    "crashed": (
        "the agent exited in the middle of its turn",
        "the agent",
        START_BY_HAND,
    ),
    "auth_required": (
        "the agent needs a login",
        ITS_LOGIN,
        LOGIN,
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
        SEND_TRACE,
    ),
    "unsupported": (
        "the agent does not support this",
        YOURS,
        "do without it, or use a peer that supports it: `dragoman peers`",
    ),
    "unknown": ("the outcome of the turn is unknown", "the agent", FALLBACK),
}
"""For each unsuccessful outcome: what happened, whose fault it is if that helps, and what to do."""


def whose(error: DragomanError) -> str:
    """Return whose fault an error is, as shown to users; empty if the next step says enough."""
    if isinstance(error, ProtocolMismatch) and error.remedy:
        return YOURS
    if isinstance(error, AuthRequired):
        return ITS_LOGIN
    if isinstance(error, BudgetExceeded):
        # The message says whether a limit was too short or the agent was silent.
        return ENDS["timed_out"][1]
    if (end := _end_of(error)) is not None:
        return end[1]
    if isinstance(error, AdapterFailed):
        return "the adapter"
    return _blamed(type(error))


def _blamed(kind: type[DragomanError]) -> str:
    called = issubclass(kind, UsageError) and not issubclass(kind, SessionLost)
    return YOURS if called or issubclass(kind, ConnectionClosed) else _WHOSE[kind.blame]


def advice(
    error: DragomanError,
    *,
    peer: str = "",
    login: str = "",
    passed: PassedVariables | None = None,
) -> str:
    """Return the next step after an error; empty if its message names a command that helps. The
    parameters are as in `message`."""
    if isinstance(error, RemoteError) and (
        hidden := let_through(str(error), peer=peer, passed=passed)
    ):
        return hidden
    for name in _REMEDIES:
        own = getattr(error, name, "")
        if isinstance(own, str) and own:
            # Methods that the agent handles itself; others are separate commands.
            ours = isinstance(error, AuthRequired) and error.methods and "`" not in own
            if isinstance(error, AuthRequired) and login and not ours:
                return _how(LOGIN, login)
            return f"{own}: `dragoman login {peer}`" if ours and peer else own
    if (end := _end_of(error)) is not None:
        return _how(end[2], login)
    if isinstance(error, RemoteError) and error.stderr_tail:
        # A user of a known peer cannot fix this.
        first = "fix the agent" if not login else "see what the agent reports above"
        return f"{first}; add --agent-stderr to `dragoman run` to see its whole stderr"
    if type(error) in (UsageError, UnknownPeer) and "`" in str(error):
        # The error names a command that helps.
        return ""
    if isinstance(error, NoPeer):
        return f"`dragoman explain {error.role}` shows why; `dragoman peers enable` enables a peer"
    if type(error) is ConnectError and not error.retryable:
        return REFUSED
    known = _known_advice(type(error))
    if known == ADVICE["usage"]:
        known = _examples()
    return _how(known or FALLBACK, login)


def _examples() -> str:
    """Return a next step that names the help page with the examples of this command."""
    program, *words = sys.argv
    if words and words[0].isalpha() and Path(program).stem in ("dragoman", "__main__"):
        return f"`dragoman {words[0]} --help` shows examples"
    return ADVICE["usage"]


def _known_advice(kind: type[DragomanError]) -> str:
    """Return the advice for an error class, or for its closest base class that has one; empty if
    none has."""
    names = (getattr(each, "error_class", "") for each in kind.__mro__)
    return next((ADVICE[name] for name in names if name in ADVICE), "")


def in_json(words: Sequence[str]) -> bool:
    """Return whether a command line, even an invalid one, wants its errors as JSON lines."""
    return "--json-strict" in itertools.takewhile(lambda word: word != "--", words)


def exit_code(error: DragomanError) -> ExitCode:
    """Return the exit code for an error that ended a command."""
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
    """Return the entry of `ENDS` for an agent's error about a login or a quota, other than
    `AuthRequired`; None for other errors."""
    if not isinstance(error, RemoteError) or isinstance(error, AuthRequired):
        return None
    by_kind = {"quota": "quota", "rate_limited": "quota", "auth_required": "auth_required"}
    end = by_kind.get(_kind_of(error))
    return None if end is None else ENDS[end]
