"""Questions of agents as the page shows them: the requested action and the possible answers.

Like events, they do not depend on a dialect. `broker.client.question_watch` receives them.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from dragoman.client.tool_input import ToolInput, told_of
from dragoman.dialects.acp import v1 as acp
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.broker.protocol import ShownQuestion

PERMISSION: Final = acp.SESSION_REQUEST_PERMISSION.name

MAX_TEXT: Final = 200_000
"""Maximum length of each text of a question that is sent to the page, in characters."""

MAX_DIFFS: Final = 100
MAX_DIFF_TEXT: Final = 2_000_000
"""Maximum number of file changes of one question, and maximum total length of their texts, in
characters."""

MAX_PATHS: Final = 200
MAX_PATH: Final = 4096
MAX_OPTIONS: Final = 50
MAX_OPTION_ID: Final = 1000


class QuestionOption(Struct, rename="camel"):
    """A possible answer to a permission request."""

    id: str
    name: str
    kind: str


class QuestionDiff(Struct, rename="camel"):
    """A file change that needs permission."""

    path: str
    old_text: str | None
    new_text: str


class OpenPermission(Struct, rename="camel", kw_only=True, tag="permission", tag_field="type"):
    """A permission request that waits for the user."""

    id: str
    digest: str
    peer: str
    workspace: str
    session: str
    """The session key."""
    job: str | None
    asked_at: float
    title: str
    tool_kind: str
    command: str | None = None
    cwd: str | None = None
    """The directory of the command, if the request names one."""
    paths: list[str] = []
    more_paths: int = 0
    """Number of paths that are not in `paths`."""
    diffs: list[QuestionDiff] = []
    more_diffs: int = 0
    """Number of file changes that are not in `diffs`."""
    notes: list[str] = []
    """Other facts for the decision, such as that the command is not shown."""
    text: str = ""
    """Additional text from the agent."""
    input: Any = None
    input_is_shown: bool = False
    """Whether the other fields show all of `input`."""
    options: list[QuestionOption] = []


class OpenForm(Struct, rename="camel", kw_only=True, tag="form", tag_field="type"):
    """A question with a form, or with a page to open, that waits for the user."""

    id: str
    digest: str
    peer: str
    workspace: str
    session: str
    job: str | None
    asked_at: float
    message: str
    mode: str
    schema: Any = None
    url: str | None = None


def open_question(
    shown: ShownQuestion, *, peer: str, workspace: str
) -> OpenPermission | OpenForm | None:
    """Convert a question that a broker or a run has reported to the form in which the page gets it.
    Returns None if the question cannot be decoded."""
    about: dict[str, Any] = {
        "id": shown.id,
        "digest": shown.digest,
        "peer": peer,
        "workspace": workspace,
        "session": shown.key,
        "job": shown.job,
        "asked_at": shown.asked_at,
    }
    try:
        if shown.method == PERMISSION:
            return _permission(acp.SESSION_REQUEST_PERMISSION.decode_params(shown.params), about)
        return _form(msgspec.json.decode(shown.params), about)
    except UNDECODABLE:
        return None


def _permission(asked: acp.RequestPermissionRequest, about: dict[str, Any]) -> OpenPermission:
    call = asked.tool_call
    told = told_of(call)
    kind = str(call.kind or "other")
    changes = [item for item in call.content or () if isinstance(item, acp.Diff)]
    blocks = [getattr(item, "content", None) for item in call.content or ()]
    diffs = _diffs(changes)
    paths = list(dict.fromkeys(told.paths))
    texts = [text for each in diffs for text in (each.old_text, each.new_text) if text is not None]
    notes = []
    if told.hidden:
        notes.append("It runs a command that the agent does not show.")
    elif kind == "execute" and not told.runs:
        notes.append("The agent does not report the command; the title may be the command.")
    if told.tainted:
        notes.append("The command has its own environment or input.")
    return OpenPermission(
        **about,
        title=_cut(call.title or "", 2_000),
        tool_kind=_cut(kind, 100),
        command=_command(told),
        cwd=None if told.cwd is None else _cut(told.cwd, MAX_PATH),
        paths=[_cut(path, MAX_PATH) for path in paths[:MAX_PATHS]],
        more_paths=max(0, len(paths) - MAX_PATHS),
        diffs=diffs,
        more_diffs=len(changes) - len(diffs),
        notes=notes,
        text=_cut("\n".join(b.text for b in blocks if isinstance(b, acp.TextContent))),
        input=_small(call.raw_input),
        input_is_shown=told.is_shown_by(texts),
        options=[
            QuestionOption(option.option_id, _cut(option.name, 200), _cut(str(option.kind), 100))
            for option in asked.options
            if len(option.option_id) <= MAX_OPTION_ID
        ][:MAX_OPTIONS],
    )


def _diffs(changes: list[acp.Diff]) -> list[QuestionDiff]:
    found: list[QuestionDiff] = []
    left = MAX_DIFF_TEXT
    for item in changes[:MAX_DIFFS]:
        old = None if item.old_text is None else _cut(item.old_text)
        new = _cut(item.new_text)
        left -= len(old or "") + len(new)
        if left < 0:
            break
        found.append(QuestionDiff(_cut(item.path, MAX_PATH), old, new))
    return found


def _command(told: ToolInput) -> str | None:
    """Return the commands as text, one per line; None if there are none. A command given as a list
    of arguments is quoted like in a shell, to show where each argument begins."""
    lines = [*told.lines, *([] if told.argv is None else [shlex.join(told.argv)])]
    return _cut("\n".join(lines)) if lines else None


def _form(asked: Any, about: dict[str, Any]) -> OpenForm | None:
    if not isinstance(asked, dict):
        return None
    url = asked.get("url")
    return OpenForm(
        **about,
        message=_cut(str(asked.get("message") or ""), 20_000),
        mode=_cut(str(asked.get("mode") or "form"), 100),
        schema=_small(asked.get("requestedSchema")),
        url=_cut(url, 4_000) if isinstance(url, str) else None,
    )


def _small(value: Any) -> Any:
    """Return the value, or its size as text if its JSON has more than `MAX_TEXT` bytes."""
    size = len(msgspec.json.encode(value, enc_hook=str))
    return value if size <= MAX_TEXT else f"{size} bytes"


def _cut(text: str, size: int = MAX_TEXT) -> str:
    return text if len(text) <= size else f"{text[:size]} … ({len(text) - size} more characters)"
