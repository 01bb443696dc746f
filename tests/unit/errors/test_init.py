"""The error tree: that its drawing is true, and that every error answers its three questions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import get_args

import pytest

from dragoman import errors
from dragoman.errors import (
    AdapterFailed,
    AuthRequired,
    Blame,
    BrokerUnavailable,
    BudgetExceeded,
    CallCancelled,
    CallTimeout,
    ClientFileInvalid,
    ConfigInvalid,
    ConnectError,
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    DelegationInvalid,
    DragomanError,
    FileFailed,
    FileMissing,
    FilterFailed,
    FleetError,
    HandshakeFailed,
    HostUnavailable,
    InputTimeout,
    InvalidAnswer,
    IsolationFailed,
    LineTooLong,
    MessageTooLong,
    NoPeer,
    NotInstalled,
    NotPermitted,
    NotText,
    Overflow,
    PatchChanged,
    PathRefused,
    PeerBusy,
    PeerUnresponsive,
    PolicyNotEnforced,
    ProcessExited,
    ProgramNotFound,
    ProtocolMismatch,
    RemoteError,
    RequestInProgress,
    RoleNotClaimed,
    StoreCorrupt,
    StoreError,
    TerminalUnknown,
    TooLarge,
    TooManyTerminals,
    TurnFailed,
    UnknownPeer,
    Unsupported,
    UsageError,
    WrongLaunch,
)


def tree(root: type[DragomanError], depth: int = 0) -> Iterator[tuple[int, type[DragomanError]]]:
    yield depth, root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child, depth + 1)


CLASSES = [cls for _, cls in tree(DragomanError)]

SAMPLES: list[DragomanError] = [
    UsageError("the prompt is empty", remedy="give it as an argument"),
    AdapterFailed("tool", "/here/tool.py", "ValueError: no"),
    TurnFailed("refused", "refusal"),
    TurnFailed("cancelled", blame="us"),
    RequestInProgress("one at a time"),
    MessageTooLong(20, 10),
    ClientFileInvalid("settings.json", "it is not JSON"),
    DelegationInvalid("a-b", "no such peer", remedy="add it"),
    ProgramNotFound("nonesuch"),
    ProgramNotFound("nonesuch", "PATH is empty"),
    ConnectionClosed(),
    ConnectionEnded(),
    HostUnavailable("box", "nothing answers", remedy="start it", passing=True),
    ProcessExited(exit_code=3, stderr_tail="no key\n"),
    ProcessExited(exit_code=None, signal=9),
    ProcessExited(exit_code=None),
    ConnectionBroken("reading failed"),
    PeerUnresponsive("session/new", "its process is stopped by a signal"),
    LineTooLong(10),
    Overflow("nobody reads"),
    CallTimeout("session/new", 2.5),
    PeerBusy("session/new", "initialize"),
    RemoteError(-32601, "no such method", {"method": "x"}),
    CallCancelled(-32800, "cancelled"),
    InvalidAnswer("neither result nor error"),
    BudgetExceeded("silence", 30),
    AuthRequired(methods=["login"], hint="run: agent login"),
    ConnectError("nobody listens", status=503),
    HostUnavailable("box", "its disk is full", remedy="free some space", passing=False),
    NotPermitted("rm x", "a rule denies it"),
    PathRefused("/etc/passwd", "it is outside"),
    FileMissing("/here/x"),
    NotText("/here/x", "byte 3"),
    TooLarge("/here/x", 10, "it is 20 bytes long"),
    FileFailed("/here/x", "the disk is full", 28),
    TerminalUnknown("t1"),
    TooManyTerminals(4),
    BrokerUnavailable("no broker", log_tail="no space left"),
    InputTimeout(5.0),
    IsolationFailed("`git worktree`", "the disk is full"),
    FilterFailed("`git add`", "the filter 'lfs' does not work", "lfs"),
    ProtocolMismatch("version 7", dialect="codex"),
    UnknownPeer("gemeni", ["gemini"]),
    UnknownPeer("nonesuch"),
    PolicyNotEnforced("kilo", "its descriptor says so"),
    Unsupported("codex has no model x", setting="model"),
    RoleNotClaimed("codex", "plan", ["execute"]),
    PatchChanged("the patch has changed"),
    NoPeer("plan", {"codex": "it is not enabled"}),
    WrongLaunch("qwen acp", "it takes it for a prompt", "`qwen --acp`"),
    ConfigInvalid("dragoman.toml", "there is no such key", key="enabled_peer"),
    NotInstalled("kimi", "no kimi on the PATH", remedy="npm install", looked_for=["kimi"]),
    FleetError("no answer", remedy="look at the server", may_have_run=True),
    StoreError("sessions.db", "the disk is broken", remedy="look at the disk"),
    StoreCorrupt("sessions.db", "a page is damaged", damaged=True, replaced=True),
    HandshakeFailed("it only said hello", exit_code=2, stderr_tail="usage", noise=["hello"]),
]


def drawn_parents() -> dict[str, str | None]:
    """Each class in the drawing of the module's docstring, with the class it hangs from."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (inspect.getdoc(errors) or "").splitlines():
        found = re.match(r"^ {4}((?:│   |    )*(?:[├└]── )?)([A-Z]\w+)(?: |$)", line)
        if found:
            depth = len(found[1]) // 4
            path[depth:] = [found[2]]
            parents[found[2]] = path[depth - 1] if depth else None
    return parents


def test_the_drawing_in_the_docstring_is_the_tree_of_the_code() -> None:
    coded = {cls.__name__: cls.__mro__[1].__name__ for cls in CLASSES if cls is not DragomanError}
    assert drawn_parents() == {"DragomanError": None, **coded}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_says_whose_fault_it_is_and_what_it_means(cls: type[DragomanError]) -> None:
    assert cls.blame in get_args(Blame)
    assert cls.retryable in (True, False)
    assert cls.may_have_run in (True, False)
    assert (inspect.getdoc(cls) or "").strip()


def test_no_two_kinds_of_failure_share_a_stable_name() -> None:
    # A class without a name of its own is a finer case of its parent's kind.
    names = [vars(cls)["error_class"] for cls in CLASSES if "error_class" in vars(cls)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in names)


def test_every_error_with_fields_of_its_own_has_a_sample_here() -> None:
    fielded = {cls.__name__ for cls in CLASSES if "__init__" in vars(cls)}
    assert fielded - {type(error).__name__ for error in SAMPLES} == set()


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: error.error_class)
def test_a_fresh_error_says_the_same_without_the_story_of_the_first(error: DragomanError) -> None:
    error.may_have_run = True
    cause = OSError("the disk")
    try:
        raise error from cause
    except DragomanError as caught:
        twin = caught.fresh()
    assert twin is not error
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)
    assert twin.may_have_run
    assert twin.__cause__ is cause
    assert twin.__traceback__ is None
    assert twin.__context__ is None


def test_messages_name_the_numbers_and_names_that_matter() -> None:
    told = "the message is 20 bytes long, and the limit for a line is 10"
    assert str(MessageTooLong(20, 10)) == told
    assert str(LineTooLong(10)) == "the other side sent a line of more than 10 bytes"
    assert str(CallTimeout("session/new", 2.5)) == "no answer to session/new within 2.5 s"
    assert str(RemoteError(-32601, "no such method")) == "no such method (-32601)"
    assert str(ProgramNotFound("x")) == "the program 'x' was not found"
    assert str(ProgramNotFound("x", "PATH is empty")) == (
        "the program 'x' was not found: PATH is empty"
    )
