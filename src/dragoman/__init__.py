"""The interpreter between coding agents: drive any of them, or be one.

    async with dragoman.connect("gemini") as peer, peer.session() as session:
        result = await session.ask("hello")

    done = await dragoman.delegate("review", "the last commit")

connect, connect_sync            talk to an agent; each answer is a Result
delegate                         let dragoman choose the agent; the answer is a Delegation
Budgets                          time limits for what a client waits for
Answer, Question, approve_reads  decide what an agent may do
events                           what happens in a turn, such as events.MessageDelta
errors, DragomanError            what can go wrong
Agent, Turn                      write an agent
acp                              the values of the Agent Client Protocol

Each name is loaded from its package when it is first used, so `import dragoman` costs next to
nothing and loads no event loop. `__init__.pyi` has the same names for editors and type checkers.
"""

from dragoman.version import __version__ as __version__

_HOMES = {
    "Agent": "dragoman.agent",
    "Answer": "dragoman.client.permissions",
    "AuthRequired": "dragoman.errors",
    "BlockingTurn": "dragoman.agent",
    "Budgets": "dragoman.client.budgets",
    "CallError": "dragoman.errors",
    "CallTimeout": "dragoman.errors",
    "ConnectionLost": "dragoman.errors",
    "Delegation": "dragoman.delegation",
    "DragomanError": "dragoman.errors",
    "Peer": "dragoman.client.conversation",
    "ProcessExited": "dragoman.errors",
    "Question": "dragoman.client.permissions",
    "RemoteError": "dragoman.errors",
    "Result": "dragoman.client.results",
    "Turn": "dragoman.agent",
    "UsageError": "dragoman.errors",
    "approve_all": "dragoman.client.permissions",
    "approve_reads": "dragoman.client.permissions",
    "connect": "dragoman.runs.connect",
    "connect_sync": "dragoman.runs.connect",
    "delegate": "dragoman.delegation",
    "deny_all": "dragoman.client.permissions",
}
"""The module that defines each name. It is loaded on first use."""

_MODULES = {
    "acp": "dragoman.dialects.acp.v1",
    "errors": "dragoman.errors",
    "events": "dragoman.events",
}

_MOVED = {
    "ClientOptions": "dragoman.client.acp",
    "Connection": "dragoman.rpc",
    "End": "dragoman.rpc",
    "Router": "dragoman.rpc",
    "Stream": "dragoman.transports",
    "connect_unix": "dragoman.transports",
    "connect_websocket": "dragoman.transports",
    "listen_unix": "dragoman.transports",
    "listen_websocket": "dragoman.transports",
    "memory_pair": "dragoman.transports",
    "open_agent": "dragoman.client.acp",
    "open_stdio": "dragoman.transports",
    "spawn": "dragoman.transports",
}
"""Names from the last release that have moved into their packages. The next release removes
them."""

__all__ = sorted([*_HOMES, *_MODULES])


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _HOMES:
        value: object = getattr(import_module(_HOMES[name]), name)
        # Stored as an ordinary attribute, so that `__getattr__` is not called for this name again.
        globals()[name] = value
        return value
    if name in _MOVED:
        import warnings

        home = _MOVED[name]
        warnings.warn(
            f"dragoman.{name} is now {home}.{name}; the old name will be removed in the next "
            "release",
            DeprecationWarning,
            stacklevel=2,
        )
        moved: object = getattr(import_module(home), name)
        return moved
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
