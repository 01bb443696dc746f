"""Start or connect to a peer, with the options and quirks of its descriptor applied.

`judge` corrects results that look successful: an error reported only as text becomes a failure.
`catalogue.launch` chooses the command or address; `client.connect` speaks the protocol.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from dragoman.catalogue.descriptor import Quirks
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Peer
from dragoman.client.inquiries import Inquire
from dragoman.client.permissions import Permit, approve_all, deny_all
from dragoman.client.results import Result
from dragoman.dialects.discovery import ACP, CODEX, Cache
from dragoman.events import model
from dragoman.events.parts import Failure
from dragoman.events.words import ERROR_OUTCOMES, ErrorKind, Outcome

ERROR_LOOKS: Final = (
    (r"\b401\b|\b403\b|authentication failed", ErrorKind.AUTH_REQUIRED),
    (r"\b429\b|rate limit|quota", ErrorKind.RATE_LIMITED),
)
"""What an error that is told as text looks like, by its kind."""


@asynccontextmanager
async def open_peer(
    launch: LaunchSpec,
    *,
    workspace: str | os.PathLike[str] = ".",
    permit: Permit = deny_all,
    guard: Permit | None = None,
    budgets: Budgets | None = None,
    dialect: str | None = None,
    env: Iterable[str] = (),
    extra_env: Mapping[str, str] | None = None,
    on_event: Callable[[model.Event], None] | None = None,
    on_stderr: Callable[[bytes], None] | None = None,
    inquire: Inquire | None = None,
    visits: bool = False,
    terminals: bool = False,
    cache: Cache | None = None,
    read_files: bool = True,
    write_files: bool = True,
    unstable: bool = False,
    name: str = "dragoman",
    max_line_size: int | None = None,
    details: Mapping[str, Any] | None = None,
) -> AsyncIterator[Peer]:
    """Start or connect to the agent for the time of the block; closes the connection at its end.

    `env` names more of our variables that the agent may see, `extra_env` sets variables. `details`
    override the options of the descriptor.
    """
    # Not at the top: a call that goes through a broker starts nothing, and needs neither.
    from dragoman.catalogue.node_runtime import check_runtime
    from dragoman.client.connect import connect

    await check_runtime(launch, {**os.environ, **launch.env, **(extra_env or {})})
    spoken = dialect or launch.protocol
    target = list(launch.command) if launch.command is not None else str(launch.address)
    async with connect(
        target,
        workspace=workspace,
        dialect=spoken,
        permit=permit,
        guard=guard,
        budgets=budgets or launch.budgets(),
        env={**launch.env, **(extra_env or {})},
        inherit=(*launch.inherit, *env),
        on_event=on_event,
        on_stderr=on_stderr,
        inquire=inquire,
        visits=visits,
        cache=cache,
        read_files=read_files,
        write_files=write_files,
        terminals=terminals,
        unstable=unstable,
        name=name,
        max_line_size=max_line_size or _line_size(launch),
        details={**options_of(launch, spoken, permit), **(details or {})},
    ) as peer:
        yield peer


def _line_size(spec: LaunchSpec) -> int | None:
    return None if spec.descriptor is None else spec.descriptor.max_line_size


def options_of(spec: LaunchSpec, dialect: str, permit: Permit = deny_all) -> dict[str, Any]:
    """The options of the dialect's client that make up for what the peer does differently."""
    # A user who chose another dialect than the descriptor gets that one bare.
    options: dict[str, Any] = dict(spec.details) if dialect == spec.protocol else {}
    if dialect == CODEX and is_unrestricted(permit):
        # In its narrow sandbox a command that writes fails before anybody is asked.
        options.setdefault("sandbox", "workspace-write")
    if dialect != ACP:
        return options
    quirks = spec.quirks
    if quirks.missing_file_is_empty:
        options.setdefault("missing_file_is_empty", True)
    if quirks.mode_after_open is not None:
        options.setdefault("starting_mode", quirks.mode_after_open)
    if spec.descriptor is not None and spec.descriptor.credentials.login:
        options.setdefault("login_hint", spec.descriptor.credentials.login)
    return options


def is_unrestricted(permit: Permit) -> bool:
    """Whether it is known to allow everything that it is asked for."""
    return permit is approve_all or bool(getattr(permit, "unrestricted", False))


def judge(result: Result, quirks: Quirks) -> Result:
    """The result as it is to be taken: errors that a peer only tells as text are failures, and a
    turn of which nothing but remarks came after a refusal was denied."""
    if result.outcome not in (Outcome.OK, Outcome.DENIED):
        return result
    text = _without_notices(result.text, quirks.notice_texts)
    if result.denials and quirks.reject_ends_turn and not text:
        # Only remarks came after the refusal: the turn ended because of it.
        return dataclasses.replace(result, outcome=Outcome.DENIED, ended_by_denial=True)
    if result.outcome is Outcome.DENIED or not text.startswith(quirks.error_texts):
        return result
    line = text.splitlines()[0].strip()
    kind = next((kind for look, kind in ERROR_LOOKS if re.search(look, text, re.I)), ErrorKind.PEER)
    return dataclasses.replace(
        result,
        outcome=ERROR_OUTCOMES.get(kind, Outcome.FAILED),
        failure=Failure(line, kind, "error_as_text", False, None),
    )


def _without_notices(text: str, notices: tuple[str, ...]) -> str:
    """A text without the remarks that it begins with."""
    text = text.lstrip()
    while notice := next((one for one in notices if text.startswith(one)), ""):
        text = text[len(notice) :].lstrip()
    return text


__all__ = ["is_unrestricted", "judge", "open_peer", "options_of"]
