"""The peer card: facts measured about one version of a peer on one platform.

`verify` measures and `catalogue.card_store` keeps the JSON files. A fact that was not measured is
None, which means "unknown", never "no".
"""

from __future__ import annotations

import enum

from msgspec import Struct, field

CARD_FORMAT = 2
"""Raised when a field changes its meaning; a card of another format is measured anew."""


class RungVerdict(enum.StrEnum):
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
    verdict: RungVerdict
    evidence: str
    remedy: str = ""
    """What to do about it, if there is something to do."""
    seconds: float = 0.0


class MeasuredFacts(Struct, frozen=True, kw_only=True):
    """What was measured. None: not measured."""

    executable: str | None = None
    """The file that is started."""
    launch: tuple[str, ...] | None = None
    """The words of the command line."""
    handshake_seconds: float | None = None
    """From the start of the program to its first answer."""
    dialect: str | None = None
    """What it speaks, by dragoman's name for it."""
    protocol_version: str | None = None
    """The version that both sides agreed on, where the dialect has one."""
    agent_name: str | None = None
    """What it calls itself."""
    agent_version: str | None = None
    """The version that it says it has."""
    authenticated: bool | None = None
    """Whether it could be used without logging in first."""
    login: str | None = None
    """What a person does to log in, where that is known and needed."""
    models: tuple[str, ...] | None = None
    """As the peer names them."""
    parent_models: tuple[str, ...] | None = None
    """The same without ``-preview`` at the end."""
    modes: tuple[str, ...] | None = None
    """The modes of a session, by their ids."""
    sessions: bool | None = None
    """Whether a session could be opened."""
    echo: bool | None = None
    """Whether a turn gave text."""
    streaming: bool | None = None
    """Whether the text came in more than one piece."""
    cancel: bool | None = None
    """Whether a cancelled turn ended as cancelled within the grace."""
    asks_permission: bool | None = None
    """Whether it asked before it wrote, started as under a policy that restricts it."""
    respects_refusal: bool | None = None
    """Whether nothing was written after a refusal."""
    refusal_ends_turn: bool | None = None
    """Whether a turn ended because something was refused."""
    uses_files: bool | None = None
    """Whether it read or wrote through us."""
    uses_terminals: bool | None = None
    """Whether it ran a command through us."""
    mcp: bool | None = None
    """Whether it started the MCP server it was handed."""
    parallel_sessions: bool | None = None
    """Whether two sessions ran at once."""
    lists_sessions: bool | None = None
    """Whether another process of it lists the session."""
    loads_sessions: bool | None = None
    """Whether another process of it opens the session with its history."""
    resumes_sessions: bool | None = None
    """Whether another process of it opens the session without its history."""
    usage: bool | None = None
    """Whether a turn told its tokens."""
    noise_lines: int | None = None
    """Lines on its standard output that were no messages."""
    survives_oversized_line: bool | None = None
    """Whether it goes on after a line that is longer than it expects."""
    unknown_method_code: int | None = None
    """What it answers to a method that does not exist; 0 if it took that for a success."""
    unknown_session_code: int | None = None
    """What it answers about a session that does not exist; 0 if it took that for a success."""
    bad_params_code: int | None = None
    """What it answers to params that are wrong; 0 if it took that for a success."""
    id_format: str | None = None
    """How it numbers its own requests: ``integer``, ``string`` or ``none seen``."""
    turn_ids: bool | None = None
    """Whether updates carry the id of their turn."""
    late_updates: bool | None = None
    """Whether updates came after the answer that ends a turn."""
    duplicate_answers: int | None = None
    """Answers that came twice, too late, or to what nobody asked."""
    errors_as_text: bool | None = None
    """Whether a failed model call looked like a success."""
    clean_exit: bool | None = None
    """Whether it ended by itself when its input ended."""
    survivors: int | None = None
    """Processes that had to be killed after it."""


class Card(Struct, frozen=True, kw_only=True):
    """The result of one verification of a peer: every rung, and the measured facts."""

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
    facts: MeasuredFacts = field(default_factory=MeasuredFacts)


def to_know(card: Card) -> list[str]:
    """What a user of the peer has to know, each in one line."""
    bad = (RungVerdict.WARN, RungVerdict.FAIL)
    return [f"{one.rung}: {one.evidence}" for one in card.rungs if one.verdict in bad]
