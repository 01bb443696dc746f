"""The peer card: what was measured of one version of a peer on one platform.

Owns the shape and its JSON. It does not measure (`ladder` and its rungs do) and does not know
where cards are kept (`store`). A field that was not measured is None, which is "unknown" and never
"no".
"""

from __future__ import annotations

import enum

from msgspec import Struct, field

CARD_FORMAT = 1
"""Raised when a field changes its meaning; a card of another format is measured anew."""


class Verdict(enum.StrEnum):
    """How a rung ended."""

    PASS = "pass"
    WARN = "warn"
    """Works, but whoever uses the peer has to know something."""
    FAIL = "fail"
    SKIPPED = "skipped"
    """Not tried; the evidence says why."""


class RungResult(Struct, frozen=True, kw_only=True):
    """One rung of the ladder, as it went."""

    rung: str
    verdict: Verdict
    evidence: str
    remedy: str = ""
    """What to do about it, if there is something to do."""
    seconds: float = 0.0


class Facts(Struct, frozen=True, kw_only=True):
    """What was measured. None: not measured."""

    executable: str | None = None
    launch: tuple[str, ...] | None = None
    dialect: str | None = None
    protocol_version: str | None = None
    agent_name: str | None = None
    agent_version: str | None = None
    handshake_seconds: float | None = None
    authenticated: bool | None = None
    login: str | None = None
    models: tuple[str, ...] | None = None
    """As the peer names them."""
    parent_models: tuple[str, ...] | None = None
    """The same without ``-preview`` at the end."""
    modes: tuple[str, ...] | None = None
    sessions: bool | None = None
    """Whether a session could be opened."""
    echo: bool | None = None
    """Whether a turn gave text."""
    streaming: bool | None = None
    """Whether the text came in more than one piece."""
    cancel: bool | None = None
    """Whether a cancelled turn ended as cancelled within the grace."""
    asks_permission: bool | None = None
    """Whether it asked before it wrote."""
    respects_refusal: bool | None = None
    """Whether nothing was written after a refusal."""
    refusal_ends_turn: bool | None = None
    uses_files: bool | None = None
    """Whether it read or wrote through us."""
    uses_terminals: bool | None = None
    mcp: bool | None = None
    """Whether it started the MCP server it was handed."""
    parallel_sessions: bool | None = None
    """Whether two sessions ran at once."""
    lists_sessions: bool | None = None
    loads_sessions: bool | None = None
    resumes_sessions: bool | None = None
    """These three across processes."""
    usage: bool | None = None
    """Whether a turn told its tokens."""
    noise_lines: int | None = None
    """Lines on its standard output that were no messages."""
    survives_oversized_line: bool | None = None
    unknown_method_code: int | None = None
    unknown_session_code: int | None = None
    bad_params_code: int | None = None
    id_format: str | None = None
    """How it numbers its own requests: ``integer``, ``string`` or ``none seen``."""
    turn_ids: bool | None = None
    """Whether updates carry the id of their turn."""
    late_updates: bool | None = None
    """Whether updates came after the answer that ends a turn."""
    duplicate_answers: int | None = None
    """Answers to nothing, or to what was answered already."""
    errors_as_text: bool | None = None
    """Whether a failed model call looked like a success."""
    clean_exit: bool | None = None
    """Whether it ended by itself when its input ended."""
    survivors: int | None = None
    """Processes that had to be killed after it."""


class Card(Struct, frozen=True, kw_only=True):
    """A ladder climbed once."""

    peer: str
    version: str | None
    platform: str
    format: int = CARD_FORMAT
    measured_at: str
    """ISO 8601, UTC."""
    dragoman: str
    """Our own version."""
    turns: bool
    """Whether rungs that spend model calls were tried."""
    reached: str
    """The last rung that passed."""
    usable: bool
    """Whether the peer may be added: it speaks a protocol of ours and nothing essential failed."""
    rungs: tuple[RungResult, ...]
    facts: Facts = field(default_factory=Facts)
