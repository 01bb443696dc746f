"""Detect which dialect a peer speaks.

The command line determines the family, and the response to one `initialize` determines the dialect.
A program that refuses it is tried with the handshakes of the other dialects, each in its own
process. Nothing is sent or stored here: the caller passes a cache, and probes only what the cache
does not contain. Command lines are never tried out: two real programs treat a wrong one as a prompt
and send it to their model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw, Struct

from dragoman.dialects import analyse
from dragoman.errors import (
    AuthRequired,
    CallTimeout,
    ConnectionLost,
    DragomanError,
    InvalidAnswer,
    ProtocolMismatch,
    RemoteError,
    Unsupported,
    UsageError,
)
from dragoman.errors.usage import nearest, shown
from dragoman.wire import codes
from dragoman.wire.messages import UNDECODABLE

ACP: Final = "acp"
CODEX: Final = "codex"
ONESHOT: Final = "oneshot"
THREADS: Final = "threads"
TAGGED: Final = "tagged"
KEYED: Final = "keyed"
CHAINED: Final = "chained"

DIALECTS: Final[Mapping[str, str]] = {
    ACP: "the Agent Client Protocol, version 1",
    CODEX: "the Codex app-server",
    ONESHOT: "one prompt per request, no sessions, a date as version",
    THREADS: "threads and turns; the response to a turn is its result",
    TAGGED: "ACP with a string version, session metadata and updates with a type tag",
    KEYED: "ACP with updates keyed by their content",
    CHAINED: "method names that are found by trying a list of them",
}
"""The names of the dialects, with a description of each."""

OTHER_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "agent-client-protocol": (ACP,),
    "acp-v1": (ACP,),
    "codex-app-server": (CODEX,),
    "one-shot": (ONESHOT,),
    "2025-06-18": (ONESHOT,),
    "finish-reason": (ONESHOT,),
    "asp": (THREADS,),
    "app-server-protocol": (THREADS,),
    "thread": (THREADS,),
    "threadstart": (THREADS,),
    "threadresume": (THREADS,),
    "app-server": (CODEX, THREADS),
    "agentkit": (TAGGED,),
    "agentkit/acp": (TAGGED,),
    "messagechunk": (TAGGED,),
    "endturn": (TAGGED,),
    "contentchunk": (KEYED,),
    "fallback": (CHAINED,),
    "fallback-chain": (CHAINED,),
    "fallback-chains": (CHAINED,),
    "session/create": (CHAINED,),
    "session/start": (CHAINED,),
    "prompt/send": (CHAINED,),
}
"""Terms from the specifications of the dialects, with the dialects that each may mean."""


def dialect_named(word: str, known: Iterable[str] = DIALECTS) -> str:
    """Return the dialect in `known` that a user's `word` means: its name in dragoman, or a term
    from its specification.

    Raises `UsageError` for a word that means none of them, or more than one.
    """
    names = list(known)
    if not isinstance(word, str):
        raise UsageError(f"the name of a dialect must be text, not {word!r}")
    if word in names:
        return word
    plain = "-".join(word.strip().lower().replace("_", "-").split())
    if plain in names:
        return plain
    meant = [name for name in OTHER_WORDS.get(plain, ()) if name in names]
    if len(meant) == 1:
        return meant[0]
    if meant:
        either = ", or ".join(f"{name} ({DIALECTS[name]})" for name in meant)
        raise UsageError(f"the dialect {shown(word)} is ambiguous: name {either}")
    # Our own names come first: a typo in one of them is more likely than in a term from a
    # specification.
    close = nearest(plain, names)[:1] or nearest(plain, OTHER_WORDS)[:1]
    near = [
        repr(each) for name in close for each in OTHER_WORDS.get(name, (name,)) if each in names
    ]
    hint = f"did you mean {' or '.join(near)}? The" if near else "the"
    raise UsageError(f"there is no dialect {shown(word)}; {hint} dialects are {', '.join(names)}")


class Program(Struct, frozen=True):
    """Identifies an executable in the cache: a changed file counts as another program."""

    path: str
    size: int
    modified_ns: int


class Cache(Protocol):
    """Stores what was detected about a program, including failures."""

    def get(self, program: Program, concept: str) -> str | None: ...
    def put(self, program: Program, concept: str, value: str) -> None: ...


def dialect_concept(launch: str) -> str:
    """Return the `concept` under which a `Cache` stores the dialect of a program that is started
    with certain arguments. `launch` is a digest of these."""
    return f"dialect {launch}"


class MemoryCache:
    """A `Cache` in the memory of this process."""

    def __init__(self) -> None:
        self._known: dict[tuple[Program, str], str] = {}

    def get(self, program: Program, concept: str) -> str | None:
        return self._known.get((program, concept))

    def put(self, program: Program, concept: str, value: str) -> None:
        self._known[program, concept] = value


def family(argv: Sequence[str]) -> str:
    """Return the dialect to try first for a command line: that of Codex's app-server, or ACP."""
    name = PurePath(argv[0]).name.lower().removesuffix(".exe").removesuffix(".cmd") if argv else ""
    if "app-server" in argv[1:] or name == "codex-app-server":
        return CODEX
    return ACP


def of_answer(result: Any) -> str | None:
    """Return the dialect of a peer with this response to `initialize`, or None if the response is
    of no known dialect."""
    if not isinstance(result, dict):
        return None
    version = result.get("protocolVersion")
    if version is None:
        if "userAgent" in result:
            return CODEX
        return THREADS if "threadId" in result else None
    if isinstance(version, str):
        if "serverCapabilities" in result:
            return ONESHOT
        if "agentInfo" in result or "capabilities" in result:
            return TAGGED
        return ONESHOT
    if type(version) is int:
        if _looks_keyed(result):
            return KEYED
        return ACP if version == 1 else None
    return None


def of_text(text: bytes | Raw) -> str | None:
    """Like `of_answer`, for a response that is not decoded yet; None if it is not valid JSON."""
    try:
        return of_answer(msgspec.json.decode(text))
    except UNDECODABLE:
        return None


def _looks_keyed(result: dict[str, Any]) -> bool:
    capabilities = result.get("agentCapabilities")
    methods = result.get("authMethods")
    flags = isinstance(capabilities, dict) and any(
        isinstance(capabilities.get(name), bool) for name in ("modes", "plan")
    )
    words = isinstance(methods, list) and any(isinstance(method, str) for method in methods)
    return flags or words


WITHOUT_GREETING: Final = (THREADS, CHAINED)
"""The dialects whose conversations begin without `initialize`."""

GREETINGS: Final = (ONESHOT, TAGGED, KEYED, *WITHOUT_GREETING)
"""The dialects to try with a program that refuses ACP."""

NO_METHOD: Final = -32601


class DialectSearch:
    """Chooses the dialect to greet a program in, and the next one to try if the program refuses.

    A program that exits, or does not respond to the first greeting at all, is not greeted again: it
    may be anything, and may treat each greeting as a prompt.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self.dialect = family(argv)
        """The dialect to try now."""
        self.tried = [self.dialect]
        self._broken = False
        """Whether the program failed at a greeting with an internal error. It may speak that
        dialect, so silence after another greeting ends the search."""
        self._order: tuple[str, ...] = GREETINGS
        if self.dialect != ACP:
            self._order = (THREADS, ACP, *GREETINGS)

    @property
    def answered(self) -> bool:
        """Whether the program has refused a greeting before, so that it is known to respond."""
        return len(self.tried) > 1

    def go_on(self, refusal: DragomanError) -> bool:
        """Set `dialect` to the next one to try after a refusal. Returns False if none is left, or
        the refusal shows that the program should not be greeted again."""
        following = self._next(refusal)
        if following is None:
            return False
        self.dialect = following
        self.tried.append(following)
        return True

    def _next(self, refusal: DragomanError) -> str | None:
        if isinstance(refusal, ProtocolMismatch):
            if refusal.dialect in DIALECTS and refusal.dialect not in self.tried:
                return refusal.dialect
            if refusal.version is not None:
                # The program speaks another version of this dialect.
                return None
        if self._broken and isinstance(refusal, CallTimeout):
            return None
        if not is_refusal(refusal) and not (
            self.answered and isinstance(refusal, CallTimeout | ConnectionLost)
        ):
            return None
        if isinstance(refusal, RemoteError):
            if _wants_login(refusal):
                return None
            self._broken = self._broken or refusal.code == codes.INTERNAL_ERROR
            if refusal.code == NO_METHOD and self.dialect not in WITHOUT_GREETING:
                self._order = WITHOUT_GREETING
            elif "protocolVersion" in f"{refusal.message} {refusal.data}":
                self._order = (ACP, *self._order)
        return next((name for name in self._order if name not in self.tried), None)


def is_refusal(error: DragomanError) -> bool:
    """Return whether the peer responded to a greeting, but not as an agent of that dialect does."""
    return isinstance(error, RemoteError | InvalidAnswer | ProtocolMismatch | Unsupported)


def _wants_login(refusal: RemoteError) -> bool:
    # The specifications use ACP's login error code for other errors too, so the message decides.
    words = refusal.message.lower()
    return isinstance(refusal, AuthRequired) and any(
        word in words for word in ("auth", "login", "log in")
    )


def of_request(method: str, params: Any) -> str | None:
    """Return the dialect of a client with this first request, or None if no known dialect begins
    with such a request."""
    params = params if isinstance(params, dict) else {}
    if method == "initialize":
        return _of_hello(params)
    if method in ("threadStart", "threadResume", "turn"):
        return THREADS
    if method == "prompt":
        return ONESHOT
    if method in _CHAINED_FIRST:
        return CHAINED
    return None


_CHAINED_FIRST: Final = frozenset(
    {
        "session/list",
        "sessions/list",
        "list_sessions",
        "listSessions",
        "session/create",
        "session/start",
        "create_session",
        "startSession",
        "prompt/send",
        "message/send",
        "chat/send",
        "sendMessage",
    }
)


def _of_hello(params: dict[str, Any]) -> str | None:
    if "service_name" in params:
        return THREADS
    version = params.get("protocolVersion")
    if isinstance(version, str):
        return TAGGED if "capabilities" in params else ONESHOT
    if type(version) is int:
        offered = params.get("clientCapabilities")
        keyed = isinstance(offered, dict) and ("prompt" in offered or "mcp" in offered)
        return KEYED if keyed else ACP
    return CODEX if "clientInfo" in params and version is None else None


def is_keyed(method: str, params: Any) -> bool:
    """Return whether only the keyed dialect sends such a request.

    Its handshake may look like ACP's, but ACP requires `mcpServers`, and has `prompt` and
    `methodId` where the keyed dialect has `content` and `method`.
    """
    if not isinstance(params, dict):
        return False
    if method == "session/prompt":
        return "content" in params and "prompt" not in params
    if method == "authenticate":
        return "method" in params and "methodId" not in params
    if method not in ("session/new", "session/load"):
        return False
    servers = params.get("mcpServers")
    listed = servers if isinstance(servers, list) else []
    return (
        ("mcpServers" not in params and ("cwd" in params or "sessionId" in params))
        or isinstance(params.get("modeId"), str)
        or (isinstance(params.get("model"), dict) and "modelID" in params["model"])
        or any(isinstance(s, dict) and s.get("type") in ("local", "remote") for s in listed)
    )


def not_executed(code: int, message: str, method: str) -> bool:
    """Return whether an error proves that the request did not run, so that it may be sent in
    another form. After any other error it may have run, and a prompt is not sent twice."""
    if code == -32601:
        return True
    return code == -32600 and (
        f"unknown variant `{method}`" in message
        or message.endswith("requires experimentalApi capability")
    )


analyse(__name__)
