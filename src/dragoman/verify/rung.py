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
"""Characters of a rung's evidence: an agent may call itself whatever it likes."""

MAX_WORD: Final = 200
"""Characters of one word that a peer says of itself: its name, its version, a model."""

MAX_WORDS: Final = 1000
"""Words of one kind, such as models. No agent has so many, and a card is read at every start."""


def one_line(text: str, size: int = MAX_EVIDENCE) -> str:
    """A text in one line and not too long, so that no peer can write lines of the report itself."""
    # A multiple is enough to look at: whoever fills it with spaces has nothing to say.
    line = " ".join(text[: 4 * size].split())
    return line if len(line) <= size and len(text) <= 4 * size else f"{line[: size - 1]}…"


def words(said: Iterable[str]) -> tuple[str, ...]:
    """What a peer calls its things, in words that a card can hold."""
    return tuple(one_line(word, MAX_WORD) for word in islice(said, MAX_WORDS))


@dataclass(frozen=True, slots=True)
class RungFinding:
    """What a rung found. `facts` are fields of the card; those it could not measure are absent."""

    verdict: RungVerdict
    evidence: str
    remedy: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One question to a peer."""

    name: str
    asks: str
    """The question, for people."""
    measure: Callable[[Verification], Awaitable[RungFinding]]
    fields: tuple[str, ...] = ()
    """The fields of the card that this rung fills."""
    needs: tuple[str, ...] = ()
    """Rungs that must have held: without them this one makes no sense."""
    turns: bool = False
    """Whether it spends a call of the peer's model."""
    essential: bool = False
    """Whether a peer that fails here cannot be used."""
    last: bool = False
    """Whether nothing that follows makes sense when this one fails."""


def passed(evidence: str, **facts: Any) -> RungFinding:
    return RungFinding(RungVerdict.PASS, evidence, facts=facts)


def warned(evidence: str, remedy: str, **facts: Any) -> RungFinding:
    return RungFinding(RungVerdict.WARN, evidence, remedy, facts)


def failed(evidence: str, remedy: str, **facts: Any) -> RungFinding:
    return RungFinding(RungVerdict.FAIL, evidence, remedy, facts)


def skipped(evidence: str, remedy: str = "") -> RungFinding:
    return RungFinding(RungVerdict.SKIPPED, evidence, remedy)
