"""Expose a peer's login methods to the clients of a gateway.

In the keyed dialect, a login method may take a secret. ACP clients cannot send one, so they do not
see such methods. The exception is a broker, which forwards the secrets of its callers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from dragoman.client.conversation import Peer
from dragoman.dialects import discovery
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.shape import KIND, META
from dragoman.errors import Unsupported
from dragoman.events.parts import SECRET_KINDS

if TYPE_CHECKING:
    from dragoman.client.legacy import KeyedPeer

_SECRETS: Final = ("password", "token")


def methods(peer: Peer, *, secret: bool, shown: bool = False) -> tuple[acp.AuthMethod, ...]:
    """Return the peer's login methods for ACP clients; with `shown`, including methods that take a
    secret, with their kind in `_meta`. With `secret`, return those for keyed clients, which can
    send one: all methods of a keyed peer, and none of another peer."""
    if peer.dialect == discovery.ACP:
        return () if secret else tuple(peer.client.agent.auth_methods)
    keyed = peer.dialect == discovery.KEYED
    return tuple(
        acp.AuthMethodAgent(
            id=method.id,
            name=method.name,
            description=method.description,
            meta={META: {KIND: method.kind}} if method.kind in SECRET_KINDS else None,
        )
        for method in peer.auth_methods
        if (keyed if secret else method.kind == "agent" or (shown and method.kind in SECRET_KINDS))
    )


async def authenticate(peer: Peer, method_id: str) -> None:
    """Log in by a method. If the client sent a secret, `method_id` is a `Login`, which has it.
    Raises `Unsupported` if there is a secret and the peer does not speak the keyed dialect."""
    secrets = {name: text for name in _SECRETS if (text := getattr(method_id, name, None))}
    if not secrets:
        await peer.authenticate(str(method_id))
    elif peer.dialect == discovery.KEYED:
        await cast("KeyedPeer", peer).authenticate(str(method_id), **secrets)
    else:
        raise Unsupported(f"the agent takes no {' or '.join(secrets)}: it logs in by itself")
