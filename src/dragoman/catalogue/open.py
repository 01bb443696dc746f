"""Start or connect to a peer, with the options and quirks of its descriptor applied.

`judge` corrects results that look successful: an error reported only as text becomes a failure.
`catalogue.launch` chooses the command or address; `client.connect` speaks the protocol.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from dragoman.catalogue.descriptor import Quirks
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.conversation import Peer
from dragoman.client.options import AUTO, ConnectOptions, named_dialect
from dragoman.client.permissions import Permit, approve_all, deny_all
from dragoman.client.results import Result
from dragoman.dialects.discovery import ACP, CODEX, Cache
from dragoman.events.parts import Failure
from dragoman.events.words import ERROR_OUTCOMES, ErrorKind, Outcome
from dragoman.paths import find_paths
from dragoman.wire.framing import require_line_size

ERROR_LOOKS: Final = (
    (r"\b401\b|\b403\b|authentication failed", ErrorKind.AUTH_REQUIRED),
    (r"\b429\b|rate limit|quota", ErrorKind.RATE_LIMITED),
)
"""Patterns for errors reported as text, by kind."""


@asynccontextmanager
async def open_peer(
    launch: LaunchSpec,
    options: ConnectOptions | None = None,
    *,
    workspace: str | os.PathLike[str] = ".",
) -> AsyncIterator[Peer]:
    """Start or connect to the agent for the duration of the block.

    The descriptor's environment and settings apply unless the options override them. Facts
    discovered about its program are kept in dragoman's cache directory, unless the options have a
    cache of their own.
    """
    # Not at the top: a call through a broker starts nothing and needs none of them.
    from dragoman.catalogue.node_runtime import check_runtime
    from dragoman.client.connect import connect

    options = options or ConnectOptions()
    env = {**launch.env, **(options.env or {})}
    await check_runtime(launch, {**os.environ, **env})
    spoken = dialect_of(launch, options)
    target = list(launch.command) if launch.command is not None else str(launch.address)
    cache = options.cache
    if cache is None:
        cache = found_before(spoken, find_paths().cache)
    options = structs.replace(
        options,
        dialect=spoken,
        budgets=options.budgets or launch.budgets(),
        env=env,
        inherit=(*launch.inherit, *options.inherit),
        max_line_size=line_size_of(launch, options),
        cache=cache,
        details={**options_of(launch, spoken, options.permit), **(options.details or {})},
    )
    async with connect(target, options, workspace=workspace) as peer:
        yield peer


def dialect_of(launch: LaunchSpec, options: ConnectOptions) -> str:
    """Return the dialect that the options name, or else that of the launch. Raises `UsageError` if
    there is no such dialect."""
    return launch.protocol if options.dialect == AUTO else named_dialect(options.dialect)


def found_before(dialect: str, cache: str | os.PathLike[str]) -> Cache | None:
    """Return the store of discovered facts in the directory `cache`, or None if that is an empty
    path or there is nothing to discover in the dialect."""
    if dialect in (ACP, CODEX) or not os.fspath(cache):
        return None
    from dragoman.catalogue.discovery_store import DiscoveryStore

    return DiscoveryStore(Path(cache))


def line_size_of(launch: LaunchSpec, options: ConnectOptions) -> int | None:
    """Return the maximum message size from the options, or else from the descriptor.

    Raises `UsageError` if that of the options is too small to work.
    """
    require_line_size(options.max_line_size)
    if options.max_line_size is not None:
        return options.max_line_size
    return None if launch.descriptor is None else launch.descriptor.max_line_size


def options_of(spec: LaunchSpec, dialect: str, permit: Permit = deny_all) -> dict[str, Any]:
    """Return the options of the dialect's client: those of the descriptor if it is for this
    dialect, and those that its quirks and the permissions require."""
    # If the user chose a dialect other than the descriptor's, its options do not apply.
    options: dict[str, Any] = dict(spec.details) if dialect == spec.protocol else {}
    if dialect == CODEX and is_unrestricted(permit):
        # In its narrow sandbox a writing command fails before it asks for permission.
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
    """Return whether this callback is known to allow every request."""
    return permit is approve_all or bool(getattr(permit, "unrestricted", False))


def judge(result: Result, quirks: Quirks) -> Result:
    """Return the result, corrected for the peer's `quirks`: a turn whose text is only an error is a
    failure, and a turn without text (except notices) is denied if a refusal ends the peer's turns
    and a permission was refused. Other results are returned unchanged."""
    if result.outcome not in (Outcome.OK, Outcome.DENIED):
        return result
    text = _without_notices(result.text, quirks.notice_texts)
    if result.denials and quirks.reject_ends_turn and not text:
        # Only remarks came after the refusal: the turn ended because of it.
        return structs.replace(result, outcome=Outcome.DENIED, ended_by_denial=True)
    if result.outcome is Outcome.DENIED or not text.startswith(quirks.error_texts):
        return result
    line = text.splitlines()[0].strip()
    kind = next((kind for look, kind in ERROR_LOOKS if re.search(look, text, re.I)), ErrorKind.PEER)
    return structs.replace(
        result,
        outcome=ERROR_OUTCOMES.get(kind, Outcome.FAILED),
        failure=Failure(line, kind, "error_as_text", kind.retryable, None),
    )


def _without_notices(text: str, notices: tuple[str, ...]) -> str:
    """Return a text without the notices at its start."""
    text = text.lstrip()
    while notice := next((one for one in notices if text.startswith(one)), ""):
        text = text[len(notice) :].lstrip()
    return text


__all__ = [
    "dialect_of",
    "found_before",
    "is_unrestricted",
    "judge",
    "line_size_of",
    "open_peer",
    "options_of",
]
