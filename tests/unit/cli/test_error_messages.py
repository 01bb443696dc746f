"""Every error is told with what happened, what to do next, whether to try again, and whose fault it
is where that helps."""

from __future__ import annotations

import pytest

from dragoman import errors
from dragoman.catalogue.descriptor import Credentials
from dragoman.cli import error_messages
from dragoman.cli.exit_codes import ExitCode
from dragoman.cli.output.renderer import TurnReport
from dragoman.client.permissions import Denial
from dragoman.client.results import Result
from dragoman.errors import DragomanError
from dragoman.events.parts import Failure
from dragoman.events.words import Outcome
from tests.unit.delegation.test_result import report


def report_of(
    result: Result, code: int = 1, *, interrupted: bool = False, permissions: str = ""
) -> TurnReport:
    return TurnReport(
        peer="codex",
        session="s1",
        result=result,
        seconds=1.0,
        exit_code=code,
        interrupted=interrupted,
        permissions=permissions,
    )


def test_a_message_answers_three_questions_in_three_lines() -> None:
    told = error_messages.message(errors.ProgramNotFound("codex"))
    assert told.splitlines() == [
        "dragoman: the program 'codex' was not found",
        "  what next:   install it, add its directory to the PATH, or give its full path",
        "  whose fault: the machine or the network",
    ]


def test_a_remedy_is_shown_once() -> None:
    full = errors.StoreFull("sessions.db", "the disk is full", remedy="free some disk space")
    lines = error_messages.message(full).splitlines()
    assert lines[0] == "dragoman: sessions.db: the disk is full"
    assert lines[1].split(":", 1)[1].strip() == "free some disk space"


def test_a_broker_that_was_stopped_in_the_middle_of_a_turn_is_not_a_fault() -> None:
    stopped = errors.ConnectionClosed("the broker was stopped")
    stopped.may_have_run = True
    assert error_messages.message(stopped).splitlines() == [
        "dragoman: the broker was stopped",
        "  what next:   the next command starts a new broker; this one was stopped on request, "
        "with `dragoman broker stop` or a signal",
        "  try again:   it may help, but check first: part of the work may already be done",
    ]


@pytest.mark.parametrize(
    ("error", "may_have_run", "said"),
    [
        (errors.ConnectError("refused"), False, "it may help; nothing has been done yet"),
        (
            errors.ProcessExited(exit_code=3),
            True,
            "it may help, but check first: part of the work may already be done",
        ),
        (
            errors.InvalidAnswer("malformed"),
            True,
            "check first: part of the work may already be done",
        ),
    ],
)
def test_a_message_says_whether_to_try_again_and_whether_it_may_have_run(
    error: DragomanError, may_have_run: bool, said: str
) -> None:
    error.may_have_run = may_have_run
    assert f"  try again:   {said}" in error_messages.message(error).splitlines()


def test_an_error_that_would_only_repeat_itself_says_nothing_of_a_second_try() -> None:
    assert "try again:" not in error_messages.message(errors.UsageError("the prompt is empty"))
    too_old = errors.HostUnavailable("box", "its dragoman is too old")
    assert "try again:" not in error_messages.message(too_old)
    unreachable = errors.HostUnavailable("box", "no route", passing=True)
    assert "try again:" in error_messages.message(unreachable)
    refused = error_messages.message(errors.ConnectError("refused", status=401))
    assert "try again" not in refused
    assert "what next:   check the address, and the login" in refused


def test_control_characters_in_an_error_do_nothing() -> None:
    assert "\x1b" not in error_messages.message(errors.RemoteError(1, "\x1b]0;owned\x07"))


def test_an_error_that_knows_what_to_do_is_believed() -> None:
    wrong = errors.WrongLaunch("gemini acp", "it hangs", "`gemini --acp`")
    assert error_messages.advice(wrong) == "`gemini --acp`"
    assert (
        error_messages.advice(errors.AuthRequired(hint="run `codex login`")) == "run `codex login`"
    )


HELP = {
    errors.FileFailed("x", "Permission denied", 13): "permissions",
    errors.HostUnavailable("box", "gone"): "dragoman hosts check",
    errors.FleetError("failed"): "dragoman fleet up",
    errors.FleetUnreachable("no answer"): "dragoman fleet up",
    errors.FleetRefused("revoked"): "dragoman fleet join",
    errors.FleetFull("full"): "dragoman fleet jobs",
    errors.FleetConflict("changed"): "dragoman fleet jobs",
}


@pytest.mark.parametrize("error", HELP, ids=lambda error: error.error_class)
def test_errors_of_files_machines_and_fleets_have_an_advice_of_their_own(
    error: DragomanError,
) -> None:
    assert HELP[error] in error_messages.advice(error)


def kinds(kind: type[DragomanError]) -> list[type[DragomanError]]:
    return [kind, *(each for sub in kind.__subclasses__() for each in kinds(sub))]


@pytest.mark.parametrize("kind", kinds(DragomanError), ids=lambda kind: kind.__name__)
def test_every_kind_of_error_has_advice_a_fault_and_a_code(kind: type[DragomanError]) -> None:
    error = kind.__new__(kind)
    error.args = ("something",)
    assert error_messages.advice(error)
    deliberate = errors.UsageError | errors.BudgetExceeded | errors.ConnectionClosed
    if not issubclass(kind, deliberate):
        assert error_messages.whose(error)
    if not issubclass(kind, errors.RemoteError):
        assert error_messages.exit_code(error) is not ExitCode.OK


def test_a_long_error_of_an_agent_is_cut_in_its_middle() -> None:
    text = error_messages.message(errors.RemoteError(-32603, "begin " + "x" * 100_000 + " end"))
    assert len(text) < 3000
    assert "begin" in text and "(-32603)" in text and "characters omitted" in text


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UnknownPeer("x"), 2),
        (errors.Unsupported("x"), 2),
        (errors.SessionUnusable("x"), 4),
        (errors.InputTimeout(5.0), 3),
        (errors.CallTimeout("initialize", 1.0), 3),
        (errors.AuthRequired(), 6),
        (errors.RemoteError(-32002, "session not found"), 4),
        (errors.RemoteError(429, "slow down"), 8),
        (errors.RemoteError(-32603, "oops"), 1),
        (errors.HandshakeFailed("no answer"), 1),
        (errors.HandshakeFailed("slow", timed_out=True), 3),
        (errors.NotInstalled("codex", "it is not there"), 1),
    ],
)
def test_errors_have_the_exit_codes_that_users_know(error: DragomanError, code: int) -> None:
    assert error_messages.exit_code(error) == code


def test_a_good_turn_is_not_talked_about() -> None:
    assert error_messages.of_report(report_of(Result(Outcome.OK, "done"), 0)) is None


@pytest.mark.parametrize("outcome", [o for o in Outcome if not o.good])
def test_every_bad_end_is_explained(outcome: Outcome) -> None:
    told = error_messages.of_report(report_of(Result(outcome, "", "its word")))
    assert told is not None
    happened, what_next, *more = told.splitlines()
    assert "its word" in happened and what_next.startswith("  what next:   ")
    fault = [line for line in more if line.startswith("  whose fault: ")]
    assert len(more) == len(fault) + (outcome in error_messages.CUT_SHORT)


def test_nothing_is_said_twice() -> None:
    refused = error_messages.of_report(report_of(Result(Outcome.REFUSED, "", "refusal")))
    assert refused is not None and refused.startswith("dragoman: the agent refused\n")
    denials = (Denial("t", "Read a", "read"), Denial("u", "Read a", "read"))
    denied = error_messages.of_report(
        report_of(Result(Outcome.DENIED, "", denials=denials), ExitCode.DENIED)
    )
    assert denied is not None and denied.count("Read a") == 1


def test_a_limit_is_answered_with_what_to_do_and_nothing_else() -> None:
    error = errors.RemoteError(-32603, "429 Too Many Requests: rate limit exceeded")
    error.may_have_run = True
    error.stderr_tail = "noise"
    assert error_messages.message(error).splitlines()[1:] == [
        "  what next:   wait until its provider lifts the limit, or use another peer: "
        "`dragoman peers`"
    ]


def test_a_turn_that_was_cut_short_may_have_done_part_of_the_work() -> None:
    told = error_messages.of_report(report_of(Result(Outcome.CRASHED, "")))
    assert told is not None
    assert "  try again:   check first: part of the work may already be done\n" in told


@pytest.mark.parametrize(
    ("outcome", "error_class", "fault", "what_next"),
    [
        (Outcome.FAILED, "broker_failed", "the machine or the network", "`dragoman broker logs`"),
        (Outcome.FAILED, "unsupported", "", "do without it"),
        (Outcome.QUOTA, "remote_error", "", "wait"),
        (Outcome.TRUNCATED, "over_budget", "", "wait, or raise the limit"),
        (Outcome.DENIED, None, "", "there is no terminal to ask on"),
        (Outcome.REFUSED, None, "the agent", "rephrase the prompt"),
        (Outcome.OK, None, "the agent", "read the output of the check"),
    ],
)
def test_a_delegation_is_explained_by_its_last_attempt(
    outcome: Outcome, error_class: str | None, fault: str, what_next: str
) -> None:
    first, *more = error_messages.of_attempt(report("a", outcome, error_class=error_class))
    assert first.startswith(f"what next:   {what_next}")
    told = [line for line in more if line.startswith("whose fault: ")]
    assert told == ([f"whose fault: {fault}"] if fault else [])


def test_the_words_of_the_agent_come_before_ours() -> None:
    failure = Failure("the disk is full")
    told = error_messages.of_report(report_of(Result(Outcome.FAILED, "", "error", failure)))
    assert told is not None and told.startswith("dragoman: the agent failed: the disk is full")
    error = errors.ProcessExited(exit_code=3)
    told = error_messages.of_report(report_of(Result(Outcome.CRASHED, "", error=error)))
    assert told == error_messages.message(error)


def test_how_to_log_in_is_shown_once() -> None:
    told = error_messages.message(errors.AuthRequired(hint="run `codex login`"))
    assert told.splitlines() == [
        "dragoman: Authentication required (-32000)",
        "  what next:   run `codex login`",
        "  whose fault: the agent's login",
    ]


def test_how_to_log_in_is_what_the_descriptor_of_the_peer_says() -> None:
    result = Result(Outcome.AUTH_REQUIRED, "")
    told = error_messages.of_report(report_of(result), login="run `codex login`")
    assert told is not None and "what next:   run `codex login`, then try again" in told
    told = error_messages.of_report(report_of(result))
    assert told is not None and "log in with the agent's own program, then try again" in told
    wrong_key = errors.RemoteError(401, "unauthorized")
    told = error_messages.message(wrong_key, peer="claude", login="set ANTHROPIC_API_KEY")
    assert told.count("set ANTHROPIC_API_KEY, then try again") == 1
    choice = errors.AuthRequired(hint="log in first: by password", methods=["password"])
    assert "by password: `dragoman login keyed`" in error_messages.message(choice, peer="keyed")
    assert "dragoman login" not in error_messages.message(choice)
    refused = errors.AuthRequired(hint="log in first: run `kimi`", methods=["terminal"])
    told = error_messages.message(refused, peer="kimi", login="run `kimi`, or correct KIMI_KEY")
    assert told.splitlines() == [
        "dragoman: Authentication required (-32000)",
        "  what next:   run `kimi`, or correct KIMI_KEY, then try again",
        "  whose fault: the agent's login",
    ]


def test_a_key_in_the_environment_is_part_of_how_to_log_in() -> None:
    known = Credentials(env=("A_KEY", "A_MODEL", "A_TOKEN"), login="set A_KEY, or run `a login`")
    assert error_messages.login_of(known, {"A_MODEL": "m"}) == "set A_KEY, or run `a login`"
    told = error_messages.login_of(known, {"A_KEY": "k", "A_TOKEN": "t"})
    assert told == "run `a login`, or correct A_KEY and A_TOKEN, which are set here"
    assert error_messages.login_of(Credentials(env=("A_KEY",)), {"A_KEY": "k"}) == ""


def test_a_denial_names_what_was_denied_and_how_to_allow_it() -> None:
    result = Result(Outcome.DENIED, "", denials=(Denial("t", "Write notes.md", "edit"),))
    told = error_messages.of_report(report_of(result, ExitCode.DENIED))
    assert told is not None and "Write notes.md" in told and "--approve-all" in told
    assert "there is no terminal to ask on" in told


@pytest.mark.parametrize(
    ("permissions", "said"),
    [
        ("ask", "there is no terminal to ask on"),
        ("deny-all", "--deny-all (or `permissions` in the settings) denies every request"),
        ("approve-reads", "only reads are allowed if there is no terminal to ask on"),
    ],
)
def test_the_next_step_after_a_denial_depends_on_the_preset(permissions: str, said: str) -> None:
    result = Result(Outcome.DENIED, "", denials=(Denial("t", "Write notes.md", "edit"),))
    told = error_messages.of_report(report_of(result, ExitCode.DENIED, permissions=permissions))
    assert told is not None and f"what next:   {said}" in told and "--approve-all" in told
    attempt = error_messages.of_attempt(report("a", Outcome.DENIED), permissions=permissions)
    assert attempt[0].startswith(f"what next:   {said}")


def test_a_denial_on_a_terminal_names_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.cli.output.terminal.is_interactive", lambda: True)
    result = Result(Outcome.DENIED, "", denials=(Denial("t", "Write notes.md", "edit"),))
    told = error_messages.of_report(report_of(result, ExitCode.DENIED, permissions="ask"))
    assert told is not None and "allow it at the prompt" in told


def test_an_interrupt_is_reported_in_one_line() -> None:
    result = Result(Outcome.CANCELLED, "")
    told = error_messages.of_report(report_of(result, ExitCode.INTERRUPTED, interrupted=True))
    assert told == "dragoman: the turn was cancelled by you\n"
    told = error_messages.of_report(report_of(result, ExitCode.TERMINATED, interrupted=True))
    assert told == "dragoman: the turn was cancelled by a signal\n"


def test_a_next_step_names_the_command_that_has_its_options() -> None:
    ends = [end[2] for end in error_messages.ENDS.values()]
    for step in (*error_messages.ADVICE.values(), *ends, error_messages.FALLBACK):
        assert "--trace" not in step or "`dragoman run`" in step
