"""The names of the faults, and what an agent with each of them does.

Each fault is implemented where it takes effect, in `agent`, `turns`, `pipe` and `children`.
"""

from __future__ import annotations

from typing import Final

HEALTHY: Final = "healthy"
HANG: Final = "hang:"
"""Prefix of the faults that leave one method without a response."""

METHODS: Final = (
    "initialize",
    "session/new",
    "session/list",
    "session/load",
    "session/resume",
    "session/close",
    "session/set_mode",
    "session/prompt",
    "session/cancel",
)
"""The methods of the agent."""

FAULTS: Final[dict[str, str]] = {
    HEALTHY: "nothing wrong",
    # The handshake.
    "exits-with-usage": "prints its usage on stderr and exits with 2",
    "text-on-stdout": "prints a greeting for a person on stdout and waits",
    "dies-at-start": "is killed by a signal before it answers",
    "wrong-version": "answers with an unknown version of the protocol",
    "no-protocol": "answers the handshake with an invalid response",
    "refuses-initialize": "does not know the method that begins every conversation",
    # Sessions.
    "needs-login": "opens no session without a login",
    "one-session": "refuses a second session",
    "forgets-sessions": "claims to remember sessions, but does not",
    "accepts-unknown-sessions": "loads a session that never existed",
    "preview-models": "uses model names that end in -preview",
    "ignores-mcp": "does not start the MCP servers that it is given",
    # Messages.
    "split-frames": "sends every line in small pieces",
    "noise": "prints lines on stdout that are not messages",
    "answers-late": "answers an unknown method only when the next message arrives",
    "answers-twice": "sends every answer twice",
    "unknown-ids": "sends responses to requests that were never sent",
    "string-ids": "uses strings as ids of its own requests",
    "wrong-codes": "answers every invalid request with the same error code",
    "dies-on-long-line": "exits when it is sent a line over 64 KiB",
    # Turns.
    "long-line": "sends one line of 64 MiB in a turn",
    "freezes": "stops reading and writing in the middle of a turn, and ignores SIGTERM",
    "dies-mid-turn": "exits in the middle of a turn",
    "empty-turn": "ends every turn immediately, without content",
    "one-piece": "sends its answers in one piece",
    "no-usage": "does not report the tokens it used",
    "no-turn-ids": "does not name the turn that an update belongs to",
    "late-updates": "sends an update after the answer that ends its turn",
    "errors-as-text": "reports a failed model call as text and ends the turn normally",
    "ignores-cancel": "continues when a turn is cancelled",
    # What it does to the machine.
    "never-asks": "writes without asking",
    "ignores-refusal": "asks, and writes although it was refused",
    "refusal-ends-turn": "ends the turn when it is refused something",
    "writes-itself": "writes files itself although the client offers to",
    "runs-itself": "runs commands itself although the client offers to",
    "ignores-eof": "does not exit when its input ends",
    "leaves-grandchild": "leaves a process behind",
    "leaves-daemon": "leaves a process behind that has a session of its own",
}
"""Every fault with what it does; the hangs are made from `METHODS`."""


def names() -> tuple[str, ...]:
    """Return the names of all faults."""
    return (*FAULTS, *(f"{HANG}{method}" for method in METHODS))


def meaning(name: str) -> str:
    """Return what an agent with this fault does. Raises KeyError for an unknown fault."""
    if name.startswith(HANG) and name.removeprefix(HANG) in METHODS:
        return f"never answers {name.removeprefix(HANG)}"
    return FAULTS[name]
