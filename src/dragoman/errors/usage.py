"""The root of the tree, and usage errors: invalid arguments, unknown names, wrong order of calls.

Nothing has run when one is raised, unless its `may_have_run` is set. The whole tree is drawn in
`dragoman.errors`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final, Literal, Self

Blame = Literal["us", "peer", "world"]

BROKEN_CODE: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What the code of another package may raise while it is imported."""


class DragomanError(Exception):
    """The base class of dragoman's errors. `str(error)` is a message for people; the attributes are
    for programs."""

    error_class: ClassVar[str] = "error"
    blame: Blame = "us"
    retryable: bool = False
    may_have_run: bool = False

    def fresh(self) -> Self:
        """Return a copy to raise elsewhere, so that the tracebacks of different callers do not
        mix."""
        # Not `copy.copy`, which calls the constructor with `args`: here that is the finished
        # message, which the constructors of this tree do not take.
        twin = type(self).__new__(type(self))
        twin.args = self.args
        twin.__dict__.update(self.__dict__)
        twin.__cause__ = self.__cause__
        return twin


class UsageError(DragomanError):
    """The caller asked for something that cannot be done here, or made a mistake.

    `remedy` says what would help.
    """

    error_class = "usage"

    def __init__(self, *message: object, remedy: str = "") -> None:
        super().__init__(*message)
        self.remedy = remedy


def shown(text: str) -> str:
    """Quote text from a peer for a message, and cut it if it is very long."""
    return repr(text) if len(text) <= 200 else f"{text[:160]!r}… ({len(text)} characters)"


LISTED_CHOICES = 12
"""Maximum number of names listed in a message. One real agent has 130 models."""

CLOSE_CHOICES = 3
"""Maximum number of names suggested for an unknown one."""

COMPARED_SIZE: Final = 80
"""Number of characters of an unknown word that are compared with the known names."""

CLOSE: Final = 0.6
"""Minimum similarity of two words for one to count as a misspelling of the other."""

AS_CLOSE: Final = 0.1
"""Names less similar than the best match by more than this are not suggested."""


def nearest(word: str, known: Iterable[str], *, close: float = CLOSE) -> list[str]:
    """Return at most `CLOSE_CHOICES` names that a word may be a misspelling of, best match first.
    `close` is the minimum similarity, from 0 to 1."""
    import difflib  # Only a mistake needs it.

    meant = word[:COMPARED_SIZE].casefold()
    ratios = {
        name: difflib.SequenceMatcher(None, meant, name.casefold()).ratio()
        for name in dict.fromkeys(known)
    }
    best = max(ratios.values(), default=0.0)
    floor = max(close, best - AS_CLOSE)
    near = sorted((name for name in ratios if ratios[name] >= floor), key=lambda n: -ratios[n])
    return near[:CLOSE_CHOICES]


def alternatives(wanted: str, known: Iterable[str], *, verb: str = "has") -> str:
    """Return the part of a message that names alternatives to an unknown name: similar names, if
    any, and all known names. If there are many, it gives their number instead and, without similar
    names, a few of them."""
    names = [" ".join(name.split()) for name in dict.fromkeys(known)]
    if not names:
        return f"it {verb} none"
    near = nearest(wanted, names)
    if not near and wanted:
        near = [name for name in names if wanted.casefold() in name.casefold()][:CLOSE_CHOICES]
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    if len(names) <= LISTED_CHOICES:
        listed = ", ".join(names)
        return f"{meant}It {verb} {listed}" if meant else f"it {verb} {listed}"
    first = ", ".join(names[:CLOSE_CHOICES])
    count = f"{verb} {len(names)}"
    return f"{meant}It {count} in total" if meant else f"it {count}, such as {first}"


class RequestInProgress(UsageError):
    """A half-duplex connection allows one active request at a time, and one is active."""

    error_class = "request_in_progress"


class MessageTooLong(UsageError):
    """An outbound message exceeds the line limit. Nothing was written."""

    error_class = "message_too_long"

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the message is {size} bytes long, and the limit for a line is {limit}")
        self.size = size
        self.limit = limit


class AddressInUse(UsageError):
    """Another process already listens on this address. You may want to connect to it instead."""

    error_class = "address_in_use"


class Unsupported(UsageError):
    """The other side or its dialect does not support what was requested, so it was not sent."""

    error_class = "unsupported"
    hint: str = ""
    """What to do about it, if that is known."""

    def __init__(self, message: str = "", *, setting: str = "") -> None:
        super().__init__(message)
        self.setting = setting
        """``model`` or ``mode`` if the error is that the other side has no such model or mode; else
        empty."""


def no_such(
    setting: str, wanted: str, known: Iterable[str], *, peer: str = "the agent"
) -> Unsupported:
    """Return the error for a model or a mode that a peer does not have, naming the closest that
    it has."""
    return Unsupported(
        f"{peer} has no {setting} {shown(wanted)}; {alternatives(wanted, known)}", setting=setting
    )


class TurnInProgress(UsageError):
    """A turn was begun in a session whose previous turn is still running. A session allows one at a
    time: real agents handle a second one in six different ways."""

    error_class = "turn_in_progress"


class SessionUnusable(UsageError):
    """The session was closed, or abandoned after a cancel that was never answered; open another."""

    error_class = "session_unusable"


class InputTimeout(UsageError):
    """Stdin or a pipe, which is part of the prompt, did not end in time. Nothing was started."""

    error_class = "input_timeout"

    def __init__(self, timeout: float, name: str = "stdin") -> None:
        super().__init__(f"{name} did not end within {timeout:g} s")
        self.timeout = timeout


class UnknownSession(UsageError):
    """No stored session has this name or id, or the peer no longer has it."""

    error_class = "unknown_session"


class SessionLost(UnknownSession):
    """The agent no longer has the session. The conversation is still in the store."""

    error_class = "session_lost"
    blame = "peer"


class UnknownJob(UsageError):
    """No job has this id; it may have been pruned."""

    error_class = "unknown_job"


class FrontMatterInvalid(UsageError):
    """The front matter of a file cannot be read or edited safely; the file is unchanged."""

    error_class = "front_matter_invalid"


class ClientFileInvalid(UsageError):
    """The settings file of another program cannot be read or edited safely; it is unchanged.

    `remedy` says what would help.
    """

    error_class = "client_file_invalid"

    def __init__(
        self,
        path: str,
        problem: str,
        *,
        remedy: str = "fix the file, or add the entry by hand: without --write, the command "
        "prints it",
    ) -> None:
        super().__init__(f"{path}: {problem}; nothing was changed")
        self.path = path
        self.problem = problem
        self.remedy = remedy


class DelegationInvalid(UsageError):
    """A value of `delegate_to` does not name a peer and one of its roles.

    `remedy` says what would help.
    """

    error_class = "delegation_invalid"

    def __init__(self, value: str, problem: str, *, remedy: str = "") -> None:
        super().__init__(f"cannot delegate to {shown(value)}: {problem}")
        self.value = value
        self.remedy = remedy


class PatchChanged(UsageError):
    """The patch is not the one that was shown: it has changed, was applied, or is gone."""

    error_class = "patch_changed"


class UnknownPeer(UsageError):
    """No peer has this name, or its descriptor is invalid. `nearest` are similar names."""

    error_class = "unknown_peer"

    def __init__(self, name: str, nearest: Sequence[str] = (), *, problem: str = "") -> None:
        if problem:
            text = f"the peer {shown(name)} cannot be used; its descriptor is invalid: {problem}"
        elif nearest:
            text = f"there is no peer {shown(name)}; did you mean {' or '.join(nearest)}?"
        else:
            text = (
                f"there is no peer {shown(name)}; `dragoman peers` lists the known peers, and "
                "`dragoman peers add` adds one"
            )
        super().__init__(text, remedy="fix the descriptor, then try again" if problem else "")
        self.name = name
        self.nearest = tuple(nearest)


class UnknownRole(UsageError):
    """No peer claims this role. The message lists the claimed roles."""

    error_class = "unknown_role"


class RoleNotClaimed(UsageError):
    """The peer does not claim this role. Nothing was started."""

    error_class = "role_not_claimed"

    def __init__(self, peer: str, role: str, claimed: Sequence[str] = ()) -> None:
        instead = alternatives(role, claimed, verb="claims")
        super().__init__(f"{peer} does not claim the role {shown(role)}; {instead}")
        self.peer = peer
        self.role = role
        self.claimed = tuple(claimed)


class NoPeer(UsageError):
    """No peer can take a role. `reasons` has one for every peer. Nothing was started."""

    error_class = "no_peer"
    role: str = "ROLE"
    over_budget: bool = False
    """Whether a spending limit is the only obstacle."""

    def __init__(self, role: str, reasons: Mapping[str, str], *, over_budget: bool = False) -> None:
        told = "".join(f"; {peer}: {why}" for peer, why in reasons.items())
        if len(reasons) > 1 and len(set(reasons.values())) == 1:
            # A reason that all peers share is given once.
            told = f": {next(iter(reasons.values()))}"
        super().__init__(f"no peer can be used for {role}{told}")
        self.role = role
        self.reasons = dict(reasons)
        self.over_budget = over_budget


class PolicyNotEnforced(UsageError):
    """The policy restricts a peer that is known not to ask for permission, or to ignore refusals.
    No prompt was sent.

    `reason` says how that is known.
    """

    error_class = "policy_not_enforced"

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(
            f"{peer} does not ask for permission, so this policy would not restrict it: {reason}"
        )
        self.peer = peer
        self.reason = reason


class WrongLaunch(UsageError):
    """A command line that is known not to start an agent. Nothing was started."""

    error_class = "wrong_launch"

    def __init__(self, command: str, effect: str, remedy: str) -> None:
        super().__init__(f"`{command}` was not started: {effect}. Use {remedy}")
        self.command = command
        self.effect = effect
        self.remedy = remedy


class ConfigInvalid(UsageError):
    """A configuration file, a descriptor or a setting is invalid.

    `origin` names the file, variable or flag, and `key` the place in it. `others` are further
    mistakes of the same origin.
    """

    error_class = "config_invalid"
    hint = ""
    """What to do, if correcting the origin would not help."""
    key: str
    problem: str

    def __init__(
        self,
        origin: str,
        problem: str,
        *,
        key: str = "",
        others: Sequence[ConfigInvalid] = (),
    ) -> None:
        told = [f"{key + ': ' if key else ''}{problem}"]
        told += [f"{one.key + ': ' if one.key else ''}{one.problem}" for one in others]
        if others:
            told = [f"{len(told)} mistakes", *(f"  {text}" for text in told)]
        super().__init__(f"{origin}: " + "\n".join(told))
        self.origin = origin
        self.problem = problem
        self.key = key
        self.others = tuple(others)
