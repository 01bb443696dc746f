"""Convert an agent's permission request (`Question`) into an `Act` that a policy can judge.

`client.tool_input` extracts paths and commands from the tool call; `policy.evaluation` decides.
"""

from __future__ import annotations

import hashlib

import msgspec

from dragoman.client.permissions import READING, Question
from dragoman.client.tool_input import part, told_of
from dragoman.policy.rules import Act
from dragoman.policy.shell_parser import read_line


def act_of(
    question: Question, *, peer: str, role: str, workspace: str, titled: bool = False
) -> Act:
    """Build the act for a question. If `titled` is set (`Quirks.command_titles`), the title of a
    question about a command counts as the command if none was sent."""
    told = told_of(question.tool_call)
    if question.kind == "execute" and not told.runs:
        if titled and question.title.strip():
            told.lines.append(question.title)
        else:
            told.hidden = True
    if len(told.lines) > 1 and any(read_line(line).problem for line in told.lines):
        # Each line may run on its own: an open quote must not swallow the lines that follow.
        told.hidden = True
    evident = set(told.kinds)
    claims = question.kind in READING and not told.runs and not evident
    if claims and not told.shows_reading(question.kind):
        # Only the agent claims that it reads; nothing in the request shows it.
        evident.add("other")
    return Act(
        kind=question.kind,
        evident=tuple(sorted(evident)),
        paths=tuple(dict.fromkeys(told.paths)),
        argv=told.argv,
        line="\n".join(told.lines) if told.lines else None,
        hidden=told.hidden,
        tainted=told.tainted,
        cwd=told.cwd,
        title=question.title,
        peer=peer,
        role=role,
        workspace=workspace,
        fingerprint=_fingerprint(question),
    )


def _fingerprint(question: Question) -> str:
    call = question.tool_call
    parts = (question.kind, question.title, part(call, "name"), part(call, "raw_input"))
    try:
        data = msgspec.json.encode(parts, enc_hook=repr, order="deterministic")
    except (TypeError, ValueError, RecursionError):
        return ""
    return hashlib.sha256(data).hexdigest()
