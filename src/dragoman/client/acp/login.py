"""Describe how a person logs in to an agent.

Builds the message and command shown when an agent requires a login. Runs and sends nothing:
`AcpClient.authenticate` starts a login that an agent carries out itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from dragoman.dialects.acp import v1 as acp
from dragoman.errors import AuthRequired, RemoteError


def required(
    error: RemoteError,
    methods: Sequence[acp.AuthMethod],
    launch: Sequence[str],
    advice: str = "",
) -> AuthRequired:
    """Return the error for an agent that requires a login. The error's hint is `advice`, or else
    names the `methods` to log in with."""
    hints = [advice] if advice else [_hint(method, launch) for method in methods]
    return AuthRequired(
        error.message,
        methods=methods,
        hint="log in first: " + "; or ".join(hints) if hints else "log in to the agent first",
        data=error.data,
    )


def command(method: acp.AuthMethod, launch: Sequence[str]) -> str | None:
    """Return the command a user can run to log in; None if unknown.

    A terminal method is the agent's own program, started as `launch`, with other arguments.
    """
    if not isinstance(method, acp.AuthMethodTerminal):
        return _suggested(method, launch)
    variables = [f"{name}={shlex.quote(value)}" for name, value in method.env.items()]
    return " ".join([*variables, _words(launch, method.args)])


def _words(launch: Sequence[str], args: Sequence[str]) -> str:
    return shlex.join([*(launch or ("<agent>",)), *args])


def _hint(method: acp.AuthMethod, launch: Sequence[str]) -> str:
    if isinstance(method, acp.AuthMethodEnvVar) and method.vars:
        return f"set {', '.join(variable.name for variable in method.vars)} and start again"
    words = command(method, launch)
    if words is not None:
        return f"run `{words}`"
    described = f": {method.description}" if method.description else ""
    return f"use {method.name!r}{described}"


def _suggested(method: acp.AuthMethod, launch: Sequence[str]) -> str | None:
    """Return the command that an agent suggests in `_meta`, or None. It is untrusted and only
    shown."""
    meta = method.meta or {}
    suggestion = meta.get("terminal-auth")
    if isinstance(suggestion, dict) and isinstance(suggestion.get("command"), str):
        return shlex.join([suggestion["command"], *_texts(suggestion.get("args"))])
    if meta.get("type") == "terminal":
        # One real agent puts here what belongs next to the method's name.
        return _words(launch, _texts(meta.get("args")))
    return None


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
