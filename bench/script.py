"""The prompts that every agent of the benchmarks understands.

Defines what a client and an agent must agree on, so that all contestants put the same messages on
the wire. Every agent imports it, and startup is measured, so it imports nothing. `bench.works` is
the counterpart for the clients.

    stream N      send N updates to the session of the prompt, then end the turn
    ask N         make N sequential session/request_permission requests, then end the turn
    read N PATH   make N sequential fs/read_text_file requests, then end the turn; PATH is the
                  directory with the files of `file_name`, each with the text `FILE_TEXT`
    together M N  wait until M prompts of this kind are open, then send N updates to each of the M
                  sessions, in round-robin order, then end all turns
    echo…         send the whole text of the prompt back in one update, then end the turn

`session/set_mode` answers immediately. With the mode `collect`, it first runs the garbage
collector: a client uses it to bring both processes to the same state before it starts the clock.
"""

from __future__ import annotations

PROTOCOL_VERSION = 1
COLLECT = "collect"
MODES = ("code", COLLECT)
TOOL_CALL = "call-1"
TOOL_TITLE = "Edit src/main.py"
ALLOW = "allow"
OPTIONS = (
    (ALLOW, "Allow", "allow_once"),
    ("allow-always", "Always allow", "allow_always"),
    ("reject", "Reject", "reject_once"),
)
"""Id, name and kind of the options of a permission request."""


FILES = 20
FILE_TEXT = 64 * "    return value if value is not None else self.default  # a line\n"
"""About 4 KiB, like a small source file."""


def file_name(number: int) -> str:
    """The file for the request with this number."""
    return f"package/module_{number % FILES}.py"


def session_name(number: int) -> str:
    """A session id, as long as those of real agents."""
    return f"0193e7c2-3b1f-7a10-8000-{number:012d}"


def update_texts(count: int) -> list[str]:
    """The texts of the updates of one session, in order. About as long as a few streamed tokens."""
    return [f"part {number} of the answer " for number in range(count)]
