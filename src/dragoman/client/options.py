"""`ConnectOptions`: how to talk to a peer, as one frozen value.

The caller builds it once, and it is passed unchanged to `client.connect`, `catalogue.open` and
`broker.client.connect`. The dialects' clients share `StreamOptions` with it and add their own
options, which `details` sets by name. Target, workspace and the use of a broker are separate
arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from dragoman.client.budgets import Budgets
from dragoman.client.permissions import Permit, deny_all, require_permit
from dragoman.errors import Unsupported, UsageError
from dragoman.version import __version__

if TYPE_CHECKING:
    from dragoman.client.inquiries import Inquire
    from dragoman.dialects.discovery import Cache
    from dragoman.events import model
    from dragoman.wire.peer import Noise, Stray

D = TypeVar("D", bound="DialectOptions")

AUTO: Final = "auto"

ADDRESSES: Final = ("unix:", "ws://", "wss://")
"""Prefixes of the address of a running agent."""


class PlainOptions(Struct, frozen=True, kw_only=True):
    """Options that are also sent to a broker: they are plain values that another process can
    use."""

    read_files: bool = True
    """Whether the agent may read text files of the workspace through the client."""
    write_files: bool = True
    """Whether the agent may write text files of the workspace through the client."""
    terminals: bool = False
    """Whether the agent may run commands through the client."""
    unstable: bool = False
    """Whether to use methods that are not stable in the protocol, such as forking a session."""
    any_version: bool = False
    """Whether to accept an agent that answers the handshake with another protocol version."""
    max_line_size: int | None = None
    """Maximum message size in bytes; a longer message ends the connection. None: the limit of
    the peer's descriptor, or else the default."""


class StreamOptions(PlainOptions, frozen=True, kw_only=True):
    """The options that apply once a stream to the agent is open, in any dialect."""

    permit: Permit = deny_all
    """Callback that decides about permission requests. The default refuses everything."""
    guard: Permit | None = None
    """Callback that decides about the files that the agent reads and writes, and the commands that
    it runs, through the client (`dragoman.client.file_guard`). None: `connect` derives a guard from
    `permit`, and a client on an open stream serves everything it offers."""
    inquire: Inquire | None = None
    """Callback that answers the agent's questions to its user. None: they are refused, and the
    handshake of ACP says that there is no one to ask."""
    visits: bool = False
    """Whether `inquire` can also send the user to a URL."""
    budgets: Budgets | None = None
    """Timeouts. None: the budgets of the peer's descriptor, or else the defaults."""
    on_event: Callable[[model.Event], None] | None = None
    """Called with every event of the connection, from its first message on."""
    name: str = "dragoman"
    """The name of the client in the handshake."""


class ConnectOptions(StreamOptions, frozen=True, kw_only=True):
    """Options for connecting to a peer: environment, limits, services, budgets and callbacks."""

    dialect: str = AUTO
    """The dialect to use. ``auto``: the one in the peer's descriptor, or else it is detected."""
    env: Mapping[str, str] | None = None
    """Variables to set for the agent's program."""
    inherit: Iterable[str] = ()
    """Names of variables of this process that the agent's program also gets."""
    on_stderr: Callable[[bytes], None] | None = None
    """Called with the stderr output of the agent's program."""
    cache: Cache | None = None
    """Caches what was detected about a program."""
    details: Mapping[str, Any] | None = None
    """Options that only one dialect has, by their names in the options of its client."""


class DialectOptions(StreamOptions, frozen=True, kw_only=True):
    """Options that the clients of all dialects have; each dialect's client adds its own."""

    title: str | None = None
    """The display name of the client, if the dialect has a field for it."""
    version: str = __version__
    """The version of the client."""
    on_noise: Callable[[Noise | Stray], None] | None = None
    """Called with each line that is not a valid message, each response that matches no request, and
    each other message that cannot be handled."""


def named_dialect(word: str) -> str:
    """Return the name of the dialect that a user's word means, or ``auto``. A dialect of an
    installed package is loaded. Raises `UsageError` if the word is not known."""
    if word == AUTO:
        return word
    # Not at the top: few callers name a dialect, and this imports the code that starts programs.
    from dragoman.client.connect import OPENERS
    from dragoman.dialects.discovery import dialect_named

    try:
        return dialect_named(word, [AUTO, *OPENERS])
    except UsageError:
        from dragoman.client.legacy.registry import load_registered

        if not load_registered(word):
            raise
        return word


def plain_of(options: PlainOptions) -> dict[str, Any]:
    """Return the options that are also sent to a broker, by name."""
    return {name: getattr(options, name) for name in PlainOptions.__struct_fields__}


def for_dialect(kind: type[D], options: ConnectOptions, dialect: str, **changes: Any) -> D:
    """Return the options of a dialect's client: those of the connection, overridden by `changes`
    and then by `details`.

    `kind` is the class of these options. Raises `Unsupported` if it lacks one of the `details`.
    """
    details = options.details or {}
    if unknown := sorted(set(details).difference(kind.__struct_fields__)):
        raise Unsupported(f"the dialect {dialect} has no option {', '.join(unknown)}")
    given = {name: getattr(options, name) for name in StreamOptions.__struct_fields__}
    return kind(**{**given, **changes, **details})


def require_options(options: ConnectOptions) -> None:
    """Raise `UsageError` for invalid options that would otherwise fail later, or never."""
    require_permit(options.permit)
    if options.guard is not None:
        require_permit(options.guard, "guard")
    if options.inquire is not None:
        # Not at the top: most callers have no such callback.
        from dragoman.client.inquiries import require_inquire

        require_inquire(options.inquire)
    env: object = options.env
    inherit: object = options.inherit
    budgets: object = options.budgets
    if env is not None and not (
        isinstance(env, Mapping)
        and all(isinstance(name, str) and isinstance(text, str) for name, text in env.items())
    ):
        raise UsageError("env= takes a mapping of names to text, such as {'LANG': 'C'}")
    if isinstance(inherit, str | bytes) or not isinstance(inherit, Iterable):
        raise UsageError(f"inherit= takes a list of names, such as ['PATH'], not {inherit!r}")
    for name in ("on_event", "on_stderr"):
        if (told := getattr(options, name)) is not None and not callable(told):
            raise UsageError(f"{name}= takes a function, not {told!r}")
    if budgets is not None and not isinstance(budgets, Budgets):
        raise UsageError(
            f"budgets= takes a dragoman.client.budgets.Budgets, such as Budgets(total=60), "
            f"not {budgets!r}"
        )
