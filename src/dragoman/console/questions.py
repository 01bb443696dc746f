"""Questions of agents as the page shows them: what would be done, and which answers there are.

Free of any dialect's spelling, like events. `broker.client.question_watch` fetches them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from dragoman.client.tool_input import told_of
from dragoman.dialects.acp import v1 as acp
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.broker.protocol import ShownQuestion
    from dragoman.broker.records import BrokerRecord

PERMISSION: Final = acp.SESSION_REQUEST_PERMISSION.name

MAX_TEXT: Final = 200_000
"""Characters of a text that the page gets of one question."""


MAX_PATHS: Final = 200


class QuestionOption(Struct, rename="camel"):
    """One answer to a permission."""

    id: str
    name: str
    kind: str


class QuestionDiff(Struct, rename="camel"):
    """A change of a file that is asked about."""

    path: str
    old_text: str | None
    new_text: str


class OpenPermission(Struct, rename="camel", kw_only=True, tag="permission", tag_field="type"):
    """A permission that waits for a person."""

    id: str
    digest: str
    peer: str
    workspace: str
    session: str
    """The key of the session."""
    job: str | None
    asked_at: float
    title: str
    tool_kind: str
    command: str | None = None
    paths: list[str] = []
    diffs: list[QuestionDiff] = []
    text: str = ""
    """What else the agent says of it."""
    input: Any = None
    options: list[QuestionOption] = []


class OpenForm(Struct, rename="camel", kw_only=True, tag="form", tag_field="type"):
    """A question with a form, or with a page to open, that waits for a person."""

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


def open_question(shown: ShownQuestion, broker: BrokerRecord) -> OpenPermission | OpenForm | None:
    """A question as the page shows it; None if it cannot be read."""
    about: dict[str, Any] = {
        "id": shown.id,
        "digest": shown.digest,
        "peer": broker.peer,
        "workspace": broker.workspace,
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
    diffs: list[QuestionDiff] = []
    texts: list[str] = []
    for item in call.content or ():
        if isinstance(item, acp.Diff):
            old = None if item.old_text is None else _cut(item.old_text)
            diffs.append(QuestionDiff(item.path, old, _cut(item.new_text)))
        elif isinstance(block := getattr(item, "content", None), acp.TextContent):
            texts.append(block.text)
    once = {str(option.kind) for option in asked.options if str(option.kind).endswith("_once")}
    return OpenPermission(
        **about,
        title=_cut(call.title or "", 2_000),
        tool_kind=str(call.kind or "other"),
        command=_command(call),
        paths=list(dict.fromkeys(told_of(call).paths))[:MAX_PATHS],
        diffs=diffs,
        text=_cut("\n".join(texts)),
        input=_small(call.raw_input),
        options=[
            QuestionOption(option.option_id, _cut(option.name, 200), str(option.kind))
            for option in asked.options
            # What decides more than this one question is not answered from another surface.
            if str(option.kind).replace("_always", "_once") not in once
            or str(option.kind).endswith("_once")
        ],
    )


def _command(call: acp.ToolCallUpdate) -> str | None:
    told = told_of(call)
    if told.lines:
        return _cut("\n".join(told.lines))
    return None if told.argv is None else _cut(" ".join(told.argv))


def _form(asked: Any, about: dict[str, Any]) -> OpenForm | None:
    if not isinstance(asked, dict):
        return None
    url = asked.get("url")
    return OpenForm(
        **about,
        message=_cut(str(asked.get("message") or ""), 20_000),
        mode=str(asked.get("mode") or "form"),
        schema=_small(asked.get("requestedSchema")),
        url=url if isinstance(url, str) else None,
    )


def _small(value: Any) -> Any:
    """A value that is not too large to show."""
    size = len(msgspec.json.encode(value, enc_hook=str))
    return value if size <= MAX_TEXT else f"{size} bytes"


def _cut(text: str, size: int = MAX_TEXT) -> str:
    return text if len(text) <= size else f"{text[:size]} … ({len(text) - size} characters more)"
