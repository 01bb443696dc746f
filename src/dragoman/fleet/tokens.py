"""NATS JWTs: an operator signs accounts, an account signs its users and their rights.

Time is an argument. `subjects` defines the rights of a user, `team` keeps the keys.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from dragoman.errors import UsageError
from dragoman.fleet.nkeys import KeyPair

_HEADER: Final = {"typ": "JWT", "alg": "ed25519-nkey"}
_UNLIMITED: Final = -1


class Rights(Struct, frozen=True, kw_only=True):
    """The subjects that a user may publish and subscribe to. The server rejects all others."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


class Shared(Struct, frozen=True, kw_only=True):
    """Subjects that one account (the exporter) shares with another one."""

    services: tuple[str, ...]
    """Subjects on which the other account may send requests. Replies go only to that account."""
    streams: tuple[str, ...]
    """Subjects of messages in the exporting account that the other account may receive."""


class AccountLimits(Struct, frozen=True, kw_only=True):
    """The limits of an account on the server."""

    disk_size: int = _UNLIMITED
    connections: int = _UNLIMITED


def operator_token(operator: KeyPair, *, name: str, system: str, now: int) -> str:
    """Build the operator's token. `system` is the public key of the system account."""
    claims = {"type": "operator", "version": 2, "system_account": system}
    return _signed(operator, operator.public, claims, name=name, now=now)


def account_token(
    operator: KeyPair,
    account: str,
    *,
    name: str,
    now: int,
    limits: AccountLimits | None = None,
    revoked: Mapping[str, int] | None = None,
    exports: Shared | None = None,
    imports: Shared | None = None,
    imported_from: str = "",
) -> str:
    """Build the token of an account.

    `revoked` maps public keys of users to the time up to which their tokens are invalid. Without
    `limits`, the account cannot use JetStream. `imports` are exports of the account
    `imported_from`.
    """
    stored = limits is not None
    claims: dict[str, Any] = {
        "type": "account",
        "version": 2,
        "limits": {
            "subs": _UNLIMITED,
            "data": _UNLIMITED,
            "payload": _UNLIMITED,
            "imports": _UNLIMITED,
            "exports": _UNLIMITED,
            "wildcards": True,
            "leaf": 0,
            "conn": _UNLIMITED if limits is None else limits.connections,
            "mem_storage": 0,
            "disk_storage": limits.disk_size if limits is not None else 0,
            "streams": _UNLIMITED if stored else 0,
            "consumer": _UNLIMITED if stored else 0,
        },
    }
    if exports is not None:
        claims["exports"] = [
            {"name": subject, "subject": subject, "type": kind} for kind, subject in _kinds(exports)
        ]
    if imports is not None:
        claims["imports"] = [
            {"name": subject, "subject": subject, "type": kind, "account": imported_from}
            for kind, subject in _kinds(imports)
        ]
    if revoked:
        claims["revocations"] = dict(revoked)
    return _signed(operator, account, claims, name=name, now=now)


def _kinds(shared: Shared) -> list[tuple[str, str]]:
    services = [("service", subject) for subject in shared.services]
    return [*services, *(("stream", subject) for subject in shared.streams)]


def user_token(
    account: KeyPair,
    user: str,
    *,
    name: str,
    now: int,
    rights: Rights | None = None,
    expires_at: int | None = None,
    tags: Sequence[str] = (),
) -> str:
    """Build the token of a user. Without `rights`, the user may do everything in its account."""
    claims: dict[str, Any] = {
        "type": "user",
        "version": 2,
        "subs": _UNLIMITED,
        "data": _UNLIMITED,
        "payload": _UNLIMITED,
        "pub": {},
        "sub": {},
    }
    if rights is not None:
        claims["pub"] = {"allow": list(rights.publish)}
        claims["sub"] = {"allow": list(rights.subscribe)}
    if tags:
        claims["tags"] = list(tags)
    return _signed(account, user, claims, name=name, now=now, expires_at=expires_at)


def read_token(token: str) -> dict[str, Any]:
    """Return the claims of a token, which is not verified: the server does that. Raises
    `UsageError` if the text is not a token."""
    try:
        body = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (IndexError, binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise UsageError("the token is not a NATS token (a JWT)") from error
    if not isinstance(claims, dict):
        raise UsageError("the token is not a NATS token (a JWT)")
    return claims


def _signed(
    issuer: KeyPair,
    subject: str,
    nats: Mapping[str, Any],
    *,
    name: str,
    now: int,
    expires_at: int | None = None,
) -> str:
    claims: dict[str, Any] = {
        "iat": now,
        "iss": issuer.public,
        "name": name,
        "sub": subject,
        "nats": dict(nats),
    }
    if expires_at is not None:
        claims["exp"] = expires_at
    digest = hashlib.sha256(msgspec.json.encode(claims, order="deterministic")).digest()
    claims["jti"] = base64.b32encode(digest).decode().rstrip("=")
    text = f"{_encoded(_HEADER)}.{_encoded(claims)}"
    return f"{text}.{_base64(issuer.sign(text.encode()))}"


def _encoded(value: object) -> str:
    return _base64(msgspec.json.encode(value, order="deterministic"))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
