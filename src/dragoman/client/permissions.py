"""Answer an agent's permission requests.

Defines the presets, and how the option for an `Answer` is chosen: by its kind. Ids and names are
arbitrary (two real agents call rejecting "cancel"), and an option of an unknown kind is never
chosen.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct

from dragoman.errors import UsageError


class Answer(enum.Enum):
    """A decision about one question. If the agent offers no option of this kind, a similar option
    that allows no more is chosen; without one, the request is refused or answered as cancelled."""

    ALLOW_ONCE = "allow_once"
    """Allow this request only."""
    ALLOW_ALWAYS = "allow_always"
    """Allow this request and similar later ones; the agent decides which ones are similar."""
    REJECT_ONCE = "reject_once"
    """Refuse this request only."""
    REJECT_ALWAYS = "reject_always"
    """Refuse this request and similar later ones."""
    CANCEL = "cancel"
    """No decision, because the turn is being cancelled. To refuse, use a rejection: an agent may
    take this as the end of the turn."""

    # Members are singletons, so hashing by identity is correct. It is faster than
    # `Enum.__hash__`, which is written in Python.
    __hash__ = object.__hash__

    allows: bool
    """Whether this answer lets the tool run."""

    def __init__(self, value: str) -> None:
        # Not a property: it is read several times for every question.
        self.allows = value in ("allow_once", "allow_always")


class Chosen(Struct, frozen=True):
    """One particular option of a question, for a question with several options of one kind."""

    option_id: str
    """The id of the option, as in the question's `options`."""
    answer: Answer
    """What choosing the option means. Its value must be the option's kind."""

    @property
    def allows(self) -> bool:
        """Whether this answer lets the tool run."""
        return self.answer.allows


Decision: TypeAlias = Answer | Chosen
"""A decision about a question: an answer, for which an option is then chosen by its kind, or one
particular option."""


class Option(Protocol):
    """An option of a question, in any dialect."""

    @property
    def option_id(self) -> str: ...
    @property
    def kind(self) -> str: ...


class Question(Struct, frozen=True, gc=False):
    """One request for permission."""

    # A Struct, because agents ask a lot: creating a frozen dataclass takes longer than the answer.

    session_id: str
    """The session in which the agent asks for permission."""
    tool_call_id: str
    """The id of the tool call that needs the permission."""
    title: str
    """The title of the tool call."""
    kind: str
    """The tool's kind, such as ``read`` or ``execute``; ``other`` if the agent did not say."""
    options: Sequence[Option]
    """The options that the agent offers, each with an `option_id` and a `kind`."""
    tool_call: Any
    """The tool call in the dialect's own type, with locations, content and raw input."""
    request_id: str = ""
    """The id of the question in `PermissionAsked`; empty in a client that makes no events."""


Permit: TypeAlias = Callable[[Question], Awaitable[Decision] | Decision]
"""Callback that decides about a permission request: a plain function or a coroutine function."""

_PRESETS: Final = {
    "approve-all": "approve_all",
    "approve-reads": "approve_reads",
    "deny-all": "deny_all",
}
"""The presets of this module by their names on the command line."""


def require_permit(permit: object, option: str = "permit") -> None:
    """Raise `UsageError` if the value is not callable, as a permission callback must be."""
    if callable(permit):
        return
    known = _PRESETS.get(permit) if isinstance(permit, str) else None
    hint = f", such as dragoman.{known}" if known else ""
    raise UsageError(
        f"{option}= takes a function that gets a question and returns an Answer{hint}, "
        f"not {permit!r}"
    )


def wrong_answer(permit: object, answer: object) -> UsageError:
    """Return the error for a permit that returned `answer`, which is not a decision."""
    return UsageError(
        f"the permission callback {_name_of(permit)} returned {answer!r:.80}: it must return an "
        "Answer, such as Answer.ALLOW_ONCE or Answer.REJECT_ONCE; the request was refused"
    )


def failed_permit(permit: object, error: Exception) -> UsageError:
    """Return the error for a permit that raised `error`."""
    failure = UsageError(
        f"the permission callback {_name_of(permit)} raised {type(error).__name__}: {error}; "
        "nothing was allowed"
    )
    failure.__cause__ = error
    return failure


def _name_of(permit: object) -> str:
    handler = getattr(getattr(permit, "__self__", None), "handler", permit)
    return getattr(handler, "__qualname__", None) or type(handler).__name__


_FALLBACKS: Final[dict[Answer, tuple[str, ...]]] = {
    # Allowing never widens: "always" may become "once", "once" never becomes "always".
    Answer.ALLOW_ONCE: ("allow_once",),
    Answer.ALLOW_ALWAYS: ("allow_always", "allow_once"),
    Answer.REJECT_ONCE: ("reject_once", "reject_always"),
    Answer.REJECT_ALWAYS: ("reject_always", "reject_once"),
    Answer.CANCEL: (),
}
"""The kinds of options that can express each answer, best first."""

READING: Final = frozenset({"read", "search", "think"})
"""Kinds of tools that only read or think."""


def choose(options: Sequence[Option], answer: Decision) -> str | None:
    """Return the id of the option that fits `answer` best. None if none fits, which means that the
    request is to be answered as cancelled. Raises `UsageError` if `answer` is not a decision."""
    # `type` first: this runs for every question.
    if type(answer) is not Answer and isinstance(answer, Chosen):
        # It must be one of these options, with the kind it claims.
        fits = (
            option.option_id == answer.option_id and option.kind == answer.answer.value
            for option in options
        )
        return answer.option_id if any(fits) else None
    if not isinstance(answer, Answer):
        raise UsageError(
            f"a permission request must be answered with an Answer, not with {answer!r}"
        )
    for wanted in _FALLBACKS[answer]:
        for option in options:
            if option.kind == wanted:
                return option.option_id
    return None


def settled(options: Sequence[Option], answer: Decision) -> tuple[str | None, Decision]:
    """Return the id of the option to answer with (None if none fits), and the resulting answer.

    If `answer` allows the request but no option fits it, the answer becomes a refusal.
    """
    option_id = choose(options, answer)
    if option_id is None and answer.allows:
        return choose(options, Answer.REJECT_ONCE), Answer.REJECT_ONCE
    return option_id, answer


_ALLOW_ONCE: Final = Answer.ALLOW_ONCE
"""Cached, because looking up a member of an enum takes as long as two calls."""


def approve_all(question: Question) -> Answer:
    """Allow every request, each time only once."""
    return _ALLOW_ONCE


def approve_reads(question: Question) -> Answer:
    """Allow requests that only read; refuse the rest.

    What a tool call would do counts, not only what the agent calls it: a read with a command, a
    diff or unknown input is refused.
    """
    return Answer.ALLOW_ONCE if _only_reads(question) else Answer.REJECT_ONCE


def _only_reads(question: Question) -> bool:
    if question.kind not in READING:
        return False
    # Not at the top: many turns have no questions.
    from dragoman.client.tool_input import told_of

    told = told_of(question.tool_call)
    return not told.runs and told.shows_reading(question.kind)


def deny_all(question: Question) -> Answer:
    """Refuse everything."""
    return Answer.REJECT_ONCE


MAX_DENIALS: Final = 10_000
"""Maximum number of refused requests that a turn lists. Later ones are left out."""

SHOWN_SIZE: Final = 1000
"""Maximum length, in characters, of each text kept for a refused request, such as its title."""


class Denial(Struct, frozen=True):
    """A permission request that was refused in a turn."""

    tool_call_id: str
    """The id of the tool call."""
    title: str
    """The title of the tool call."""
    kind: str
    """The kind of the tool, such as ``edit``."""


def add_denial(denials: list[Denial], denial: Denial) -> None:
    """Add a denial to those of a turn, with shortened texts. If there are already `MAX_DENIALS`, it
    is left out."""
    if len(denials) < MAX_DENIALS:
        texts = (denial.tool_call_id, denial.title, denial.kind)
        denials.append(Denial(*(text[:SHOWN_SIZE] for text in texts)))
