"""The roots of the tree, and usage errors: what cannot be done here, now, or by that name.

Nothing was sent when a usage error is raised. The whole tree is drawn in `dragoman.errors`.
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
"""What the code of another package may raise while it is loaded."""


class DragomanError(Exception):
    """The root. `str(error)` is a sentence for people; the attributes are for programs."""

    error_class: ClassVar[str] = "error"
    blame: ClassVar[Blame] = "us"
    retryable: ClassVar[bool] = False
    may_have_run: bool = False

    def fresh(self) -> Self:
        """A copy to raise elsewhere, so that tracebacks of different callers do not mix."""
        # Not `copy.copy`, which calls the constructor again with `args`: here that is the finished
        # sentence, and not what the constructors of this tree take.
        twin = type(self).__new__(type(self))
        twin.args = self.args
        twin.__dict__.update(self.__dict__)
        twin.__cause__ = self.__cause__
        return twin


class UsageError(DragomanError):
    """The caller asked for something that cannot be done here; nothing was sent."""

    error_class = "usage"


def shown(text: str) -> str:
    """What a peer sent us, fit for a sentence: quoted, and cut where it is absurdly long."""
    return repr(text) if len(text) <= 200 else f"{text[:160]!r}… ({len(text)} characters)"


SHOWN_DETAILS_SIZE = 500
"""Characters of what an agent adds to an error that are shown: enough for a path and a hint."""


LISTED_CHOICES = 12
"""Names that a message lists in full. One real agent has 130 models."""

CLOSE_CHOICES = 3
"""Names that a message suggests where there are more than it lists."""


def alternatives(wanted: str, known: Iterable[str]) -> str:
    """What there is instead of a name that does not exist: all of it, or the closest few."""
    # Not at the top: only a message needs it.
    from difflib import get_close_matches

    names = [" ".join(name.split()) for name in dict.fromkeys(known)]
    if not names:
        return "it has none"
    folded = {name.casefold(): name for name in reversed(names)}
    near = [folded[one] for one in get_close_matches(wanted.casefold(), folded, n=CLOSE_CHOICES)]
    if not near:
        near = [name for name in names if wanted and wanted.casefold() in name.casefold()]
        near = near[:CLOSE_CHOICES]
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    if len(names) <= LISTED_CHOICES:
        return f"{meant}It has {', '.join(names)}" if meant else f"it has {', '.join(names)}"
    first = ", ".join(names[:CLOSE_CHOICES])
    return f"{meant}It has {len(names)}" if meant else f"it has {len(names)}, such as {first}"


class RequestInProgress(UsageError):
    """A half-duplex connection has one active request at a time, and it has one."""

    error_class = "request_in_progress"


class MessageTooLong(UsageError):
    """An outbound message is over the line limit. Nothing was written."""

    error_class = "message_too_long"

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the message has {size} bytes, and the limit for a line is {limit}")
        self.size = size
        self.limit = limit


class AddressInUse(UsageError):
    """Somebody else already listens on this address. Connecting to it may be what is wanted."""

    error_class = "address_in_use"


class Unsupported(UsageError):
    """The other side did not say that it can do this, so it was not asked."""

    error_class = "unsupported"


class TurnInProgress(UsageError):
    """A session has one turn at a time: real agents do six different things with a second one."""

    error_class = "turn_in_progress"


class SessionUnusable(UsageError):
    """The session was given up after a cancel that was never answered; open another."""

    error_class = "session_unusable"


class InputTimeout(UsageError):
    """Stdin, which belongs to the prompt, did not end in time. Nothing was started."""

    error_class = "input_timeout"

    def __init__(self, timeout: float) -> None:
        super().__init__(f"stdin did not end within {timeout:g} s")
        self.timeout = timeout


class UnknownSession(UsageError):
    """No stored session has this name or id, or what it had at its peer is gone."""

    error_class = "unknown_session"


class SessionLost(UnknownSession):
    """The agent has lost a session that it had. What was said in it is stored here."""

    error_class = "session_lost"
    blame = "peer"


class UnknownJob(UsageError):
    """No job has this id; it may have been pruned."""

    error_class = "unknown_job"


class FrontMatterInvalid(UsageError):
    """A file's front matter cannot be read, or not be edited safely; the file is untouched."""

    error_class = "front_matter_invalid"


class ClientFileInvalid(UsageError):
    """Another program's configuration cannot be read, or not be edited safely; it is untouched.

    `remedy` says what would help.
    """

    error_class = "client_file_invalid"

    def __init__(
        self,
        path: str,
        problem: str,
        *,
        remedy: str = "mend it by hand, or put the entry there yourself: it is what is printed "
        "without --write",
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
        super().__init__(f"{shown(value)} cannot be delegated to: {problem}")
        self.value = value
        self.remedy = remedy


class UnknownPeer(UsageError):
    """No peer has this name. `nearest` are names that look like it."""

    error_class = "unknown_peer"

    def __init__(self, name: str, nearest: Sequence[str] = (), *, problem: str = "") -> None:
        if problem:
            advice = f"it is described, but: {problem}"
        elif nearest:
            advice = f"did you mean {' or '.join(nearest)}?"
        else:
            advice = "`dragoman peers` lists those there are, and `dragoman peers add` adds one"
        super().__init__(f"there is no peer {shown(name)}; {advice}")
        self.name = name
        self.nearest = tuple(nearest)


class UnknownRole(UsageError):
    """No peer at all claims this role. The sentence lists the roles that are claimed."""

    error_class = "unknown_role"


class RoleNotClaimed(UsageError):
    """The peer does not claim this role. Nothing was started."""

    error_class = "role_not_claimed"

    def __init__(self, peer: str, role: str, claimed: Sequence[str] = ()) -> None:
        super().__init__(
            f"{peer} does not claim the role {shown(role)}; "
            f"it claims {', '.join(claimed) if claimed else 'none'}"
        )
        self.peer = peer
        self.role = role
        self.claimed = tuple(claimed)


class NoPeer(UsageError):
    """Nobody can be asked for a role. `reasons` has one for every peer. Nothing was started."""

    error_class = "no_peer"
    over_budget: bool = False
    """Whether a limit on what may be spent is all that is in the way."""

    def __init__(self, role: str, reasons: Mapping[str, str], *, over_budget: bool = False) -> None:
        told = "".join(f"; {peer}: {why}" for peer, why in reasons.items())
        if len(reasons) > 1 and len(set(reasons.values())) == 1:
            # What keeps everybody is said once.
            told = f": {next(iter(reasons.values()))}"
        super().__init__(f"nobody can be asked for {role}{told}")
        self.role = role
        self.reasons = dict(reasons)
        self.over_budget = over_budget


class PolicyNotEnforced(UsageError):
    """The policy restricts a peer that does not ask for permission. Nothing was prompted.

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
    """A command line that people try and that does not start an agent. Nothing was started."""

    error_class = "wrong_launch"

    def __init__(self, command: str, effect: str, remedy: str) -> None:
        super().__init__(f"`{command}` was not started: {effect}. Use {remedy}")
        self.command = command
        self.effect = effect
        self.remedy = remedy


class ConfigInvalid(UsageError):
    """A configuration file, a descriptor or a setting cannot be used as it stands.

    `origin` names the file, variable or flag, and `key` the place in it.
    """

    error_class = "config_invalid"

    def __init__(self, origin: str, problem: str, *, key: str = "") -> None:
        super().__init__(f"{origin}: {key + ': ' if key else ''}{problem}")
        self.origin = origin
        self.problem = problem
        self.key = key
