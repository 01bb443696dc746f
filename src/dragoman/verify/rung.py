"""Rung and RungFinding: one check of a peer, and its result with the card fields it measured.

Also limits the length of texts that come from a peer. `rungs` holds the checks, `ladder` runs them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from dragoman.catalogue.card import RungVerdict

if TYPE_CHECKING:
    from dragoman.verify.verification import Verification


MAX_EVIDENCE: Final = 1000
"""Maximum length of a rung's evidence, in characters: it may contain text from the peer."""

MAX_WORD: Final = 200
"""Maximum length of a string reported by a peer: its name, its version, a model."""

MAX_WORDS: Final = 1000
"""Maximum number of names of one kind, such as models, because a card is read at every start."""


def one_line(text: str, size: int = MAX_EVIDENCE) -> str:
    """Return the text on one line of at most `size` characters, so that a peer cannot add lines to
    the report."""
    # Reading a multiple of the size is enough: the rest is whitespace or would be cut.
    line = " ".join(text[: 4 * size].split())
    return line if len(line) <= size and len(text) <= 4 * size else f"{line[: size - 1]}…"


def words(said: Iterable[str]) -> tuple[str, ...]:
    """Return the names from a peer, limited in length and number for the card."""
    return tuple(one_line(word, MAX_WORD) for word in islice(said, MAX_WORDS))


@dataclass(frozen=True, slots=True)
class RungFinding:
    """Result of a rung. `facts` are fields of the card; those that could not be measured are
    absent."""

    verdict: RungVerdict
    evidence: str
    remedy: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One check of a peer."""

    name: str
    asks: str
    """The question that this rung answers, as text."""
    measure: Callable[[Verification], Awaitable[RungFinding]]
    fields: tuple[str, ...] = ()
    """The fields of the card that this rung fills."""
    needs: tuple[str, ...] = ()
    """Rungs that must have passed or warned; otherwise this one is skipped."""
    turns: bool = False
    """Whether this rung spends a model call."""
    essential: bool = False
    """Whether a peer that fails here cannot be used."""
    last: bool = False
    """Whether the verification stops if this rung fails."""


def passed(evidence: str, **facts: Any) -> RungFinding:
    return RungFinding(RungVerdict.PASS, evidence, facts=facts)


def warned(evidence: str, remedy: str, **facts: Any) -> RungFinding:
    return RungFinding(RungVerdict.WARN, evidence, remedy, facts)


def failed(evidence: str, remedy: str, **facts: Any) -> RungFinding:
    return RungFinding(RungVerdict.FAIL, evidence, remedy, facts)


def skipped(evidence: str, remedy: str = "") -> RungFinding:
    return RungFinding(RungVerdict.SKIPPED, evidence, remedy)
