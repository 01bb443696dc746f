"""Texts that tell the user what to do about the finding of a rung.

They are in one place because the rungs, the documentation and the tests share them. A rung may
append details of a peer.
"""

from __future__ import annotations

from typing import Final

INSTALL: Final = "Install the program, or put its folder on the PATH."
START: Final = "Start the program by hand in a terminal: the system will not run it as it is."
WRONG_FORM: Final = "Use the command line that starts the program as an agent."
USAGE: Final = (
    "It does not know these arguments: look into its own help for the ones that start it as an "
    "agent, often --acp, acp or app-server. If it speaks a dialect that does not begin with "
    "ACP's handshake, name it with --dialect."
)
CRASH: Final = "It crashed or was killed: start it by hand to see why."
SILENT: Final = (
    "It waits for something, such as a login or a person, or does not listen in this form: look "
    "into its own help. If it is only slow, give it more time with --timeout; if it speaks a "
    "dialect that does not begin with ACP's handshake, name it with --dialect."
)
PERSON: Final = (
    "In this form it talks to a person and not to a program: look into its own help for the "
    "arguments that start it as an agent."
)
REFUSED: Final = (
    "It answers none of dragoman's greetings. Name its dialect with --dialect if you know it; "
    "otherwise it needs an adapter."
)
OTHER_DIALECT: Final = (
    "Name another dialect with --dialect, or leave --dialect away to let dragoman find out what it "
    "speaks. A program that is known by its name is only tried in its own dialect."
)
VERSION: Final = "Install a version of it, or of dragoman, that speaks the same protocol version."
LOGIN: Final = "Log in with the program itself and verify again; dragoman never logs in."
LOGIN_CAREFUL: Final = (
    "It was started without your credentials, because nobody knows it yet. If you trust it, add it "
    "and verify it again by its name."
)
SESSION: Final = "Without a session it cannot be used: start it by hand and look at its messages."
PREVIEW: Final = "Choose models by their parent names, without -preview: the suffix comes and goes."
SHIM: Final = "Name the program behind the shim, so that no shell stands between."
CODES: Final = "Nothing: dragoman does not rely on these codes, but errors will read less clearly."
LOADS_ANYTHING: Final = "Look at the history of a session that was loaded: it loads any id."
PARALLEL: Final = "Give each session a process of its own."
ECHO: Final = "Ask it the same by hand: its model, its quota or its network may be the cause."
OTHER_PARAMS: Final = (
    "It does not take a prompt as its dialect has it: if it speaks another one, name it with "
    "--dialect."
)
EMPTY: Final = "Take an empty turn for a failure, as dragoman does, and look into its own log."
CRASHED: Final = "It died in a turn: look at its last words, and at its own log."
LONG_LINE: Final = "Give the peer a higher max_line_size, if lines of that length make sense."
HANGS: Final = "It took the prompt and said nothing: check its model, and keep a limit on silence."
PIECES: Final = "Expect its answers at the end, and no progress before."
USAGE_UNKNOWN: Final = "Its cost can only be estimated."
LATE: Final = "Wait for a moment after the end of a turn before you read the result."
CANCEL: Final = "Start a new process after a cancelled turn: this one goes on working."
SELF_APPROVING: Final = (
    "It approves itself, so a policy cannot restrict it: it is not used under one unless you add "
    "--allow-unenforced."
)
IGNORES_REFUSAL: Final = "Do not let it near files that matter: a refusal does not stop it."
REFUSAL_ENDS: Final = "Expect a turn to end where something was refused."
DID_NOTHING: Final = "It did not do what it was asked for: try the prompt by hand."
ERRORS_AS_TEXT: Final = (
    "Do not trust a clean end: list the beginnings of its error texts in its descriptor."
)
MCP: Final = "Configure MCP servers in the peer's own files instead of handing them over."
MEMORY: Final = "Keep its process alive for as long as its session is needed."
UNANSWERED: Final = "It never answers this: do not use it, and report it to its maker."
OVERSIZED: Final = "Keep prompts small, and hand files over by their paths."
STAYS: Final = "Nothing: dragoman ends its process group when it does not exit by itself."
SURVIVORS: Final = "Nothing: dragoman kills what it leaves behind; other clients may not."
NOISE: Final = "Nothing: dragoman reads past it; report it to its maker, because others do not."
STRAYS: Final = "Nothing: dragoman drops such answers; report it to its maker."
SLOW_RUNG: Final = "Verify again on a machine that is less busy, or with longer limits."
