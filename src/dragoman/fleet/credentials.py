"""Credentials of a member: the file with its key and token, and one-time join codes.

Only the owner can read the file. A join code is a separate credential with a single right: to
request a token from the team's coordinator. It is valid for minutes and works once. `team` issues
both, `connection` uses them.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from dragoman.client.folders import make_state
from dragoman.config.safe_files import read_file, write_file
from dragoman.decoders import convert_typed, decode_typed
from dragoman.errors import DragomanError, UsageError
from dragoman.fleet.nkeys import KeyPair, new_key, read_seed
from dragoman.fleet.subjects import MemberKind, require_name
from dragoman.fleet.tokens import read_token
from dragoman.paths import Paths
from dragoman.wire.messages import UNDECODABLE

log: Final = logging.getLogger("dragoman.fleet")

CODE_PREFIX: Final = "dragoman-join-"
MAX_CODE_SIZE: Final = 16 * 1024
FOLDER: Final = "fleet"
"""Directory of the credentials, in the data directory."""


class MemberCredential(Struct, frozen=True, kw_only=True):
    """The credential with which a member connects: addresses, key, token and certificate
    authority."""

    team: str
    name: str
    kind: MemberKind
    urls: tuple[str, ...]
    seed: str
    token: str
    authority: str = ""
    """Certificate of the authority that signed the server's certificate, as PEM; empty without
    TLS."""

    @property
    def expires_at(self) -> int | None:
        expiry = read_token(self.token).get("exp")
        return expiry if isinstance(expiry, int) else None

    @property
    def key(self) -> KeyPair:
        return read_seed(self.seed)


class JoinCode(Struct, frozen=True, kw_only=True):
    """The content of a join code: a credential that can only request a member's token."""

    id: str
    """Identifies the code in the subject of the join request."""
    team: str
    name: str
    kind: MemberKind
    urls: tuple[str, ...]
    seed: str
    token: str
    authority: str = ""


class JoinRequest(Struct, frozen=True, kw_only=True):
    """Sent by a machine that joins: its public key. The private key stays on the machine."""

    public: str


class JoinReply(Struct, frozen=True, kw_only=True):
    token: str = ""
    error: str = ""
    failure: dict[str, Any] | None = None
    """As in `CoordinatorReply`."""


def encode_code(code: JoinCode) -> str:
    """Encode a join code as one word."""
    packed = zlib.compress(msgspec.msgpack.encode(code), 9)
    return CODE_PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def decode_code(text: str) -> JoinCode:
    """Decode a join code. Raises `UsageError` if the text is not a join code, or is incomplete or
    damaged."""
    text = "".join(text.split())
    body = text.removeprefix(CODE_PREFIX)
    if body == text or len(text) > MAX_CODE_SIZE:
        raise UsageError(f"not a join code: a join code starts with {CODE_PREFIX}")
    try:
        packed = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(packed, MAX_CODE_SIZE)
        if not unpacker.eof:
            raise UsageError("the join code is incomplete: copy all of it")
        code = convert_typed(msgspec.msgpack.decode(data), JoinCode)
    except (binascii.Error, ValueError, zlib.error, msgspec.MsgspecError) as error:
        raise UsageError("the join code is damaged: copy all of it, or create a new one") from error
    for name in (code.id, code.team, code.name):
        # They become parts of a file name and of subjects.
        require_name(name)
    return code


def credential_from(code: JoinCode, key: KeyPair, token: str) -> MemberCredential:
    return MemberCredential(
        team=code.team,
        name=code.name,
        kind=code.kind,
        urls=code.urls,
        seed=key.seed,
        token=token,
        authority=code.authority,
    )


def new_member_key() -> KeyPair:
    return new_key("user")


def credential_path(paths: Paths, team: str, name: str) -> Path:
    return paths.data / FOLDER / f"{team}.{name}.json"


def save_credential(credential: MemberCredential, path: Path) -> None:
    """Write a credential to a file with mode 0600."""
    make_state(path.parent)
    write_file(path, msgspec.json.format(msgspec.json.encode(credential)), mode=0o600)


def read_credential(path: Path) -> MemberCredential:
    """Read a credential file. Raises `UsageError` if it is missing, invalid, or readable by
    others."""
    data = read_file(path, invalid=_invalid)
    if data is None:
        raise UsageError(f"no fleet credentials in {path}")
    if os.name == "posix" and os.stat(path).st_mode & 0o077:
        raise UsageError(
            f"{path} is readable by other users",
            remedy=f"run chmod 600 {path}, and join again if others may have read it",
        )
    try:
        return decode_typed(data, MemberCredential)
    except UNDECODABLE as error:
        raise _invalid(str(path), str(error)) from error


def credentials_of(
    paths: Paths, kind: MemberKind
) -> tuple[list[MemberCredential], list[DragomanError]]:
    """Read this user's credentials of a kind. Also returns an error for each credential file that
    cannot be used, whatever its kind."""
    found: list[MemberCredential] = []
    problems: list[DragomanError] = []
    for path in sorted((paths.data / FOLDER).glob("*.*.json")):
        try:
            found.append(read_credential(path))
        except DragomanError as error:
            problems.append(error)
        except OSError as error:
            problems.append(_invalid(str(path), error.strerror or str(error)))
    return [one for one in found if one.kind == kind], problems


def find_credential(
    paths: Paths,
    kind: MemberKind,
    *,
    name: str | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> MemberCredential:
    """Return this user's credential of a kind; `name` selects one of several. Files that cannot be
    used are reported to `on_notice`, or logged.

    Raises `UsageError` if there is none, or more than one. If there is none, but some file cannot
    be used, raises the error of that file, which may be the credential.
    """
    every, problems = credentials_of(paths, kind)
    found = [one for one in every if name in (None, one.name)]
    if not found and problems:
        # One of them may be the credential that is looked for.
        raise problems[0]
    for problem in problems:
        (on_notice or log.warning)(f"ignored a fleet credential: {problem}")
    if not found:
        named = f" named {name}" if name else ""
        raise UsageError(
            f"this machine has not joined a fleet as a {kind}{named}",
            remedy=f"run `dragoman fleet invite {kind} NAME` on the fleet's server, "
            "and `dragoman fleet join CODE` here",
        )
    if len(found) > 1:
        names = ", ".join(f"{one.name} ({one.team})" for one in found)
        raise UsageError(
            f"this machine has several {kind} credentials: {names}", remedy="choose one with --as"
        )
    return found[0]


def _invalid(path: str, problem: str) -> DragomanError:
    return UsageError(f"{path}: invalid fleet credential: {problem}")
