"""What the verification ladder must find for each fault.

For each fault, the table has the rung that detects it, the verdict, the remedy, and exactly the
fields of the card that differ from the card of a healthy agent. The documentation shows the same
table, and the tests run the ladder for every row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dragoman.catalogue.card import RungVerdict
from dragoman.testing.chaos.faults import HANG
from dragoman.verify import remedies
from dragoman.verify.canary_prompts import Canaries
from dragoman.verify.ladder import RUNGS

TRIGGERS: Final = Canaries(
    echo="Please say {token} once more",
    slow="SLOW",
    slower="SLOW",
    write="WRITE:{path}:{text}",
    shell="SHELL:{command}",
    tool="TOOL:{tool}:{}",
    failure="HTTP:400",
)
"""Prompts that the fake model and the chaos agent understand, for every rung that prompts."""

OTHER: Final = object()
"""Stands for any value other than the healthy one."""

PASS, WARN, FAIL = RungVerdict.PASS, RungVerdict.WARN, RungVerdict.FAIL


@dataclass(frozen=True, slots=True)
class Row:
    """One fault, as the ladder sees it."""

    fault: str
    rung: str
    verdict: RungVerdict
    remedy: str = ""
    """The beginning of the rung's remedy."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """The fields that have another value."""
    unknown: tuple[str, ...] = ()
    """The fields that are no longer measured."""
    turns: bool = False
    """Whether the fault shows only in a turn."""


def fields_without(rung: str) -> tuple[str, ...]:
    """Return the fields of the card that stay unknown if this rung fails: those of the rungs that
    need it, directly or indirectly."""
    lost = {rung}
    for each in RUNGS:
        if lost & set(each.needs):
            lost.add(each.name)
    return tuple(name for each in RUNGS if each.name in lost - {rung} for name in each.fields)


_NO_ANSWER: Final = ("handshake_seconds", *fields_without("handshake"))
_NO_DIALECT: Final = (
    "dialect",
    "dialect_shown",
    "protocol_version",
    "agent_name",
    "agent_version",
    *fields_without("dialect"),
)
_NO_SESSION: Final = fields_without("session")
_NO_ECHO: Final = fields_without("echo")
_ECHO: Final = {"echo": False, "id_format": "none seen"}


def _hang(method: str) -> str:
    return f"{HANG}{method}"


TABLE: Final = (
    # The handshake.
    Row(_hang("initialize"), "handshake", FAIL, remedies.SILENT, {}, _NO_ANSWER),
    Row("exits-with-usage", "handshake", FAIL, remedies.USAGE, {}, _NO_ANSWER),
    Row("text-on-stdout", "handshake", FAIL, remedies.PERSON, {}, _NO_ANSWER),
    Row("dies-at-start", "handshake", FAIL, remedies.CRASH, {}, _NO_ANSWER),
    Row("split-frames", "handshake", PASS),
    Row("wrong-version", "dialect", FAIL, remedies.VERSION, {}, _NO_DIALECT),
    Row("no-protocol", "dialect", FAIL, remedies.REFUSED, {}, _NO_DIALECT),
    Row("refuses-initialize", "dialect", FAIL, remedies.REFUSED, {}, _NO_DIALECT),
    # Sessions.
    Row(
        "needs-login",
        "login",
        FAIL,
        remedies.LOGIN,
        {"authenticated": False, "login": OTHER},
        ("sessions", *_NO_SESSION),
    ),
    Row(
        _hang("session/new"),
        "session",
        FAIL,
        remedies.SESSION,
        {"sessions": False},
        ("authenticated", "bad_params_code", *_NO_SESSION),
    ),
    Row("preview-models", "models", WARN, remedies.PREVIEW, {"models": OTHER, "model": OTHER}),
    Row(_hang("session/set_mode"), "models", PASS),
    Row(
        "one-session",
        "parallel",
        WARN,
        remedies.PARALLEL,
        {"parallel_sessions": False},
        ("required_params", "optional_params"),
    ),
    Row("ignores-mcp", "mcp", WARN, remedies.MCP, {"mcp": False}, turns=True),
    Row(
        "forgets-sessions",
        "load",
        WARN,
        remedies.MEMORY,
        {"lists_sessions": False, "loads_sessions": False, "resumes_sessions": False},
        turns=True,
    ),
    Row(_hang("session/list"), "list", WARN, remedies.UNANSWERED, {"lists_sessions": False}),
    Row(
        _hang("session/load"),
        "load",
        WARN,
        remedies.UNANSWERED,
        {"loads_sessions": False},
        ("unknown_session_code",),
    ),
    Row(_hang("session/resume"), "resume", WARN, remedies.UNANSWERED, {"resumes_sessions": False}),
    Row(_hang("session/close"), "resume", PASS),
    # Messages.
    Row(
        "wrong-codes",
        "codes",
        WARN,
        remedies.CODES,
        {
            "unknown_method_code": -32603,
            "unknown_session_code": -32603,
            "bad_params_code": -32603,
        },
    ),
    Row(
        "accepts-unknown-sessions",
        "codes",
        WARN,
        remedies.LOADS_ANYTHING,
        # It replays a history for a session that does not exist.
        {"unknown_session_code": 0, "notifications": OTHER},
    ),
    Row(
        "answers-late",
        "codes",
        WARN,
        remedies.CODES,
        {"duplicate_answers": 1},
        ("unknown_method_code",),
    ),
    Row("answers-twice", "answers", WARN, remedies.STRAYS, {"duplicate_answers": OTHER}),
    Row("unknown-ids", "answers", WARN, remedies.STRAYS, {"duplicate_answers": OTHER}),
    Row("noise", "noise", WARN, remedies.NOISE, {"noise_lines": OTHER}),
    Row("string-ids", "ids", PASS, changes={"id_format": "string"}, turns=True),
    Row(
        "dies-on-long-line",
        "oversized",
        WARN,
        remedies.OVERSIZED,
        {"survives_oversized_line": False},
    ),
    # Turns.
    Row(
        _hang("session/prompt"),
        "echo",
        FAIL,
        remedies.HANGS,
        _ECHO,
        ("notifications", *_NO_ECHO),
        turns=True,
    ),
    Row("freezes", "echo", FAIL, remedies.HANGS, _ECHO, _NO_ECHO, turns=True),
    Row("long-line", "echo", FAIL, remedies.LONG_LINE, _ECHO, _NO_ECHO, turns=True),
    Row("dies-mid-turn", "echo", FAIL, remedies.CRASHED, _ECHO, _NO_ECHO, turns=True),
    Row("empty-turn", "echo", FAIL, remedies.EMPTY, _ECHO, _NO_ECHO, turns=True),
    Row("one-piece", "streaming", WARN, remedies.PIECES, {"streaming": False}, turns=True),
    Row("no-usage", "usage", WARN, remedies.USAGE_UNKNOWN, {"usage": False}, turns=True),
    Row("no-turn-ids", "turn ids", PASS, changes={"turn_ids": False}, turns=True),
    Row("late-updates", "late updates", WARN, remedies.LATE, {"late_updates": True}, turns=True),
    Row(
        "errors-as-text",
        "errors",
        WARN,
        remedies.ERRORS_AS_TEXT,
        {"errors_as_text": True},
        turns=True,
    ),
    Row("ignores-cancel", "cancel", WARN, remedies.CANCEL, {"cancel": False}, turns=True),
    Row(_hang("session/cancel"), "cancel", WARN, remedies.CANCEL, {"cancel": False}, turns=True),
    # Effects on the machine.
    Row(
        "never-asks",
        "permission",
        WARN,
        remedies.SELF_APPROVING,
        {"asks_permission": False},
        ("respects_refusal", "refusal_ends_turn"),
        turns=True,
    ),
    Row(
        "ignores-refusal",
        "permission",
        FAIL,
        remedies.IGNORES_REFUSAL,
        {"respects_refusal": False},
        turns=True,
    ),
    Row(
        "refusal-ends-turn",
        "permission",
        WARN,
        remedies.REFUSAL_ENDS,
        {"refusal_ends_turn": True},
        turns=True,
    ),
    Row("writes-itself", "files", PASS, changes={"uses_files": False}, turns=True),
    Row("runs-itself", "terminals", PASS, changes={"uses_terminals": False}, turns=True),
    Row("ignores-eof", "exit", WARN, remedies.STAYS, {"clean_exit": False}, ("survivors",)),
    Row("leaves-grandchild", "survivors", WARN, remedies.SURVIVORS, {"survivors": 1}),
    Row("leaves-daemon", "survivors", WARN, remedies.SURVIVORS, {"survivors": 1}),
)
"""Every fault. A row with PASS is a fault that dragoman tolerates, or an unusual but valid
behaviour."""
