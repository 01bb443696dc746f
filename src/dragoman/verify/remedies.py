"""Texts that tell the user what to do about a rung's finding.

They are in one place because the rungs, the documentation and the tests share them. A rung may
append details about a peer.
"""

from __future__ import annotations

from typing import Final

INSTALL: Final = "Install the program, or put its directory on the PATH."
START: Final = "Start the program by hand in a terminal to see why the system cannot run it."
WRONG_FORM: Final = "Use the command line that starts the program as an agent."
USAGE: Final = (
    "It does not know these arguments: see its own help for those that start it as an "
    "agent, often --acp, acp or app-server. If it speaks a dialect that does not begin with "
    "ACP's handshake, name it with --dialect."
)
CRASH: Final = "It crashed or was killed: start it by hand to see why."
SILENT: Final = (
    "It waits for something, such as a login or user input, or these arguments do not start it as "
    "an agent: see its own help. If it is only slow, give it more time with --timeout; if it "
    "speaks a dialect that does not begin with ACP's handshake, name it with --dialect."
)
PERSON: Final = (
    "With these arguments it expects an interactive user, not a program: see its own help for "
    "the arguments that start it as an agent."
)
REFUSED: Final = (
    "It answers none of dragoman's handshakes. Name its dialect with --dialect if you know it; "
    "otherwise it needs an adapter."
)
OTHER_DIALECT: Final = (
    "Name another dialect with --dialect, or omit --dialect to let dragoman detect what it "
    "speaks. A program that is known by its name is only tried in its own dialect."
)
VERSION: Final = "Install a version of it, or of dragoman, that speaks the same protocol version."
LOGIN: Final = "Log in with the program itself and verify again; dragoman never logs in."
LOGIN_CAREFUL: Final = (
    "It was started without your credentials, because it is unknown. If you trust it, add it "
    "and verify it again by its name."
)
SESSION: Final = "Without a session it cannot be used: start it by hand and look at its messages."
PREVIEW: Final = "Name models without -preview: vendors add and remove this suffix."
SHIM: Final = "Name the program that the shim starts, so that no shell is involved."
CODES: Final = (
    "Nothing: dragoman does not rely on these codes, but error messages will be less clear."
)
LOADS_ANYTHING: Final = "Check the history of a loaded session: the peer accepts any session id."
PARALLEL: Final = "Use a separate process for each session."
ECHO: Final = "Try the same prompt by hand: its model, its quota or its network may be the cause."
OTHER_PARAMS: Final = (
    "It does not accept prompts in this dialect. If it speaks another one, name that with "
    "--dialect."
)
EMPTY: Final = "Treat an empty turn as a failure, as dragoman does, and see its own log."
CRASHED: Final = "It died in a turn: see its last output and its own log."
LONG_LINE: Final = "If lines of that length are legitimate, raise the peer's max_line_size."
HANGS: Final = "It accepted the prompt and sent nothing: check its model, and set an idle timeout."
PIECES: Final = "Expect the whole answer at the end, without progress."
USAGE_UNKNOWN: Final = "Its cost can only be estimated."
LATE: Final = "Wait a moment after the end of a turn before you read the result."
CANCEL: Final = "Start a new process after a cancelled turn: this one keeps working."
SELF_APPROVING: Final = (
    "It acts without asking, so a policy cannot restrict it: with a policy, it is used only if you "
    "add --allow-unenforced."
)
IGNORES_REFUSAL: Final = "Keep it away from files that matter: a refusal does not stop it."
REFUSAL_ENDS: Final = "Expect a refusal to end the turn."
DID_NOTHING: Final = "It did not do what it was asked for: try the prompt by hand."
ERRORS_AS_TEXT: Final = (
    "Do not rely on a normal end: list the prefixes of its error messages in its descriptor."
)
MCP: Final = "Configure MCP servers in the peer's own files instead of passing them."
MEMORY: Final = "Keep its process alive for as long as its session is needed."
UNANSWERED: Final = (
    "It never answers this request: do not use this feature, and report it to the vendor."
)
OVERSIZED: Final = "Keep prompts small, and pass files by their paths."
STAYS: Final = "Nothing: dragoman ends its process group when it does not exit by itself."
SURVIVORS: Final = "Nothing: dragoman kills what it leaves behind; other clients may not."
NOISE: Final = (
    "Nothing: dragoman skips such lines. Report it to the vendor, because other clients may not."
)
STRAYS: Final = "Nothing: dragoman drops such responses. Report it to the vendor."
SLOW_RUNG: Final = "Verify again on a machine that is less busy, or with longer limits."
