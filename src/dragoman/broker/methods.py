"""The names of the broker's own methods, ``_dragoman/…``.

Only names, so that a command that sends one request to a broker loads nothing else. The shapes of
their parameters are in `broker.protocol`.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "_dragoman/"

HELLO: Final = "_dragoman/hello"
PING: Final = "_dragoman/ping"
"""A method that no agent has: it costs nothing, and the refusal is an answer."""
STATUS: Final = "_dragoman/status"
STOP: Final = "_dragoman/stop"
SUBMIT: Final = "_dragoman/submit"
ATTACH: Final = "_dragoman/attach"
POSITION: Final = "_dragoman/position"
"""A notification: the number that the next event of a session has, for a caller that is attached.
It counts from its start, and is told where numbers are skipped."""
DETACH: Final = "_dragoman/detach"
RESULT: Final = "_dragoman/result"
CANCEL: Final = "_dragoman/cancel"
RELEASE: Final = "_dragoman/release"
TERMS: Final = "_dragoman/terms"
TRACE: Final = "_dragoman/trace"
"""A notification: a line between the broker and the peer, for callers that asked for a trace."""
WATCH: Final = "_dragoman/watch"
"""Follow the open questions of all sessions: those there are, and then `QUESTION` and `SETTLED`."""
QUESTION: Final = "_dragoman/question"
"""A notification: the peer asks something that a person has to answer, for callers that watch."""
SETTLED: Final = "_dragoman/settled"
"""A notification: such a question does not wait for an answer any more."""
ANSWER: Final = "_dragoman/answer"
"""Answer an open question, in the place of the caller whose turn it is."""
ANSWERED: Final = "_dragoman/answered"
"""A notification: a permission that this caller was asked for was decided by another one."""
STDERR: Final = "_dragoman/stderr"
"""A notification: what the peer wrote to its stderr, for callers that asked for it."""
