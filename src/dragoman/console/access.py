"""Access to the console: one-time links, and the tokens that browsers get in exchange.

Both are stored as digests in one file in the state directory, so that they survive a restart, and
so that `dragoman console tokens` can revoke them. The file is read again whenever it has changed.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.config.safe_files import locked, read_file, write_file
from dragoman.decoders import decode_typed
from dragoman.errors import ConfigInvalid, UsageError
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.paths import Paths

Rights: TypeAlias = Literal["act", "read"]

LINK_TIMEOUT: Final = 5 * 60.0
"""Seconds until a link expires."""

TOKEN_TIMEOUT: Final = 30 * 24 * 3600.0
"""Seconds until a token expires, after which the browser needs a new link."""

SECRET_SIZE: Final = 32
"""Number of random bytes in a link or a token."""

MAX_TOKENS: Final = 100
"""Maximum number of tokens. A further login revokes the oldest one."""

MAX_LABEL: Final = 120
"""Maximum number of characters of a User-Agent to store."""


class ConsoleLink(Struct, frozen=True, kw_only=True, rename="camel"):
    """An unused one-time login link, stored without its secret."""

    digest: str
    rights: Rights
    expires_at: float


class ConsoleToken(Struct, frozen=True, kw_only=True, rename="camel"):
    """A token that a browser got in exchange for a link, stored without its secret."""

    id: str
    digest: str
    """SHA-256 of the cookie, or of the cookie and the key: see `token_secret`."""
    rights: Rights
    label: str
    """The browser's User-Agent."""
    created_at: float
    expires_at: float


class AccessRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """The contents of the access file."""

    instance: str
    """Part of the cookie name: cookies are shared between all ports of a host."""
    created_at: float
    url: str = ""
    """The URL of the running server, or of the last one."""
    links: tuple[ConsoleLink, ...] = ()
    tokens: tuple[ConsoleToken, ...] = ()


class ConsoleAccess:
    """The links and tokens of one state directory."""

    def __init__(self, paths: Paths) -> None:
        self.path: Path = paths.state / "console.json"
        self._seen: tuple[int, int, int] | None = None
        self._record: AccessRecord | None = None

    @property
    def record(self) -> AccessRecord:
        """The current contents of the file. Creates the file if it does not exist."""
        # A thread that changes the file may reset `_record` at any time.
        mark, record = self._mark(), self._record
        if record is None or mark is None or mark != self._seen:
            record = self._read()
            if record is None:
                with self._changing():
                    pass
                return self.record
            self._record, self._seen = record, mark
        return record

    @property
    def cookie(self) -> str:
        return f"dragoman-{self.record.instance}"

    def set_url(self, url: str) -> None:
        """Store the server's URL, from which another process builds the URLs of its links."""
        with self._changing() as change:
            change.record = replace(change.record, url=url)

    def new_link(self, rights: Rights) -> str:
        """Create a link with these rights and return its secret."""
        secret = secrets.token_urlsafe(SECRET_SIZE)
        link = ConsoleLink(
            digest=_digest(secret), rights=rights, expires_at=time.time() + LINK_TIMEOUT
        )
        with self._changing() as change:
            change.record = replace(change.record, links=(*change.record.links, link))
        return secret

    def has_expired(self, secret: str) -> bool:
        """Return whether the link with this secret is stored and has expired. The next change to
        the file drops expired links, for which this then returns False."""
        wanted, now = _digest(secret), time.time()
        return any(e.digest == wanted and e.expires_at <= now for e in self.record.links)

    def exchange(
        self, secret: str, label: str, *, key: str = ""
    ) -> tuple[str, ConsoleToken] | None:
        """Exchange the link with this secret for a token. Returns the secret of the token, for the
        cookie, and the token; None if the link is unknown, used or expired. `label` is the
        browser's User-Agent. With a `key`, the token is only valid together with it."""
        wanted = _digest(secret)
        if all(each.digest != wanted for each in self.record.links):
            # Without a link, a client must not make the console write a file.
            return None
        with self._changing() as change:
            link = next((each for each in change.record.links if each.digest == wanted), None)
            if link is None:
                return None
            now = time.time()
            new = secrets.token_urlsafe(SECRET_SIZE)
            token = ConsoleToken(
                id=secrets.token_hex(4),
                digest=_digest(token_secret(new, key)),
                rights=link.rights,
                label="".join(c for c in label if c.isprintable())[:MAX_LABEL],
                created_at=now,
                expires_at=now + TOKEN_TIMEOUT,
            )
            tokens = [*change.record.tokens, token][-MAX_TOKENS:]
            links = tuple(each for each in change.record.links if each is not link)
            change.record = replace(change.record, links=links, tokens=tuple(tokens))
        return new, token

    def find(self, secret: str, *, key: str = "") -> ConsoleToken | None:
        """Return the token with this secret; None if it is unknown, expired, or bound to another
        key than `key`."""
        wanted, now = _digest(token_secret(secret, key)), time.time()
        for token in self.record.tokens:
            # Comparing digests: the timing reveals nothing about the secret.
            if token.digest == wanted and token.expires_at > now:
                return token
        return None

    def is_valid(self, id: str) -> bool:
        """Return whether there is a token with this id that has not expired."""
        now = time.time()
        return any(each.id == id and each.expires_at > now for each in self.record.tokens)

    def revoke(self, id: str) -> ConsoleToken:
        """Revoke a token and return it. Raises `UsageError` if the id is unknown."""
        with self._changing() as change:
            found = next((each for each in change.record.tokens if each.id == id), None)
            if found is None:
                raise UsageError(f"there is no token {id!r}; `dragoman console tokens` lists them")
            kept = tuple(each for each in change.record.tokens if each is not found)
            change.record = replace(change.record, tokens=kept)
        return found

    def revoke_all(self) -> int:
        """Revoke all tokens and links. Returns the number of tokens revoked."""
        with self._changing() as change:
            count = len(change.record.tokens)
            change.record = replace(change.record, tokens=(), links=())
        return count

    # -- the file

    def _mark(self) -> tuple[int, int, int] | None:
        try:
            info = os.stat(self.path)
        except OSError:
            return None
        return info.st_mtime_ns, info.st_ino, info.st_size

    def _read(self) -> AccessRecord | None:
        data = read_file(self.path)
        if data is None:
            return None
        try:
            return decode_typed(data, AccessRecord)
        except UNDECODABLE as error:
            raise ConfigInvalid(
                str(self.path),
                f"it cannot be read ({error}); delete it, which also revokes all links and tokens",
            ) from error

    @contextmanager
    def _changing(self) -> Iterator[_Change]:
        """Context manager: yield the record without its expired entries, and write what the block
        makes of it, all under the file lock. Writes nothing if the block raises."""
        with locked(self.path):
            now = time.time()
            before = self._read() or AccessRecord(instance=secrets.token_hex(4), created_at=now)
            change = _Change(
                replace(
                    before,
                    links=tuple(each for each in before.links if each.expires_at > now),
                    tokens=tuple(each for each in before.tokens if each.expires_at > now),
                )
            )
            yield change
            write_file(self.path, msgspec.json.encode(change.record) + b"\n", mode=0o600)
            self._record = None


class _Change:
    def __init__(self, record: AccessRecord) -> None:
        self.record = record


def new_key() -> str:
    """Return a new random key for `ConsoleAccess.exchange`."""
    return secrets.token_urlsafe(SECRET_SIZE)


def token_secret(cookie: str, key: str) -> str:
    """Return the secret that identifies a browser: its cookie, joined with its key if it has one.

    A browser sends a cookie to every port of a host, so any other server on this machine that the
    user visits receives it. The key is in the storage of the page, which only the page can read.
    """
    return f"{cookie}.{key}" if key else cookie


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
