"""Keys of a fleet's server and its teams: create and read them, issue and revoke credentials.

One operator key signs one account per team and the system account. All keys are in ``fleet.json``,
mode 0600, on the machine that runs the server. `tokens` builds the JWTs, `server` starts the server
with them and sends it revocations.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, structs

from dragoman.client.folders import make_private
from dragoman.config.safe_files import locked, read_file, write_file
from dragoman.decoders import decode_typed
from dragoman.errors import DragomanError, UsageError
from dragoman.fleet.certificates import TlsMaterial
from dragoman.fleet.cluster import replicas
from dragoman.fleet.credentials import JoinCode, encode_code
from dragoman.fleet.nkeys import KeyPair, is_public_key, new_key, read_seed
from dragoman.fleet.records import FleetLimits
from dragoman.fleet.subjects import SHARED, MemberKind, join_rights, require_name, rights_of
from dragoman.fleet.tokens import (
    AccountLimits,
    account_token,
    operator_token,
    user_token,
)
from dragoman.wire.messages import UNDECODABLE

FILE: Final = "fleet.json"

CODE_SECONDS: Final = 15 * 60
"""Seconds for which a join code is valid."""

TOKEN_DAYS: Final = 90
"""Days for which a member's token is valid. After that, the machine has to join again."""

COORDINATOR: Final = "coordinator"
"""Name of the coordinator. No member can have it, or a name that begins with ``join-``."""


class TeamMember(Struct, frozen=True, kw_only=True):
    """An invited member. It has joined if it has a public key."""

    name: str
    kind: MemberKind
    public: str = ""
    expires_at: int = 0
    code: str = ""
    """Id of the latest join code; empty once it was used."""
    used_code: str = ""
    """Id of the join code that it joined with."""

    def may_use(self, code_id: str, public: str) -> bool:
        """Return whether a machine with the public key `public` may join as this member with this
        code: the latest one, or the one with which the same key has joined, because the machine may
        not have received the answer."""
        return code_id == self.code or (code_id == self.used_code and public == self.public)


class Team(Struct, frozen=True, kw_only=True):
    """A team: its account, its members and its revocations."""

    name: str
    seed: str
    """Private key of the members' account."""
    store_seed: str
    """Private key of the account with the streams. Only the coordinator is a user of it."""
    coordinator_seed: str
    members: tuple[TeamMember, ...] = ()
    revoked: dict[str, int] = {}
    """Revoked public keys, each with the time up to which its tokens are invalid."""

    def member(self, name: str) -> TeamMember | None:
        return next((one for one in self.members if one.name == name), None)

    def with_member(self, member: TeamMember) -> Team:
        others = [one for one in self.members if one.name != member.name]
        return structs.replace(self, members=(*others, member))


class FleetKeys(Struct, frozen=True, kw_only=True):
    """The content of ``fleet.json``."""

    operator_seed: str
    system_seed: str
    system_user_seed: str
    listen: str = ""
    """Address and port of the server, once it has started."""
    urls: tuple[str, ...] = ()
    """URLs that members connect to."""
    disk_size: int = -1
    """Maximum disk size of each team in bytes; -1: unlimited."""
    limits: FleetLimits = FleetLimits()
    lease: float = 15.0
    """Seconds after which a silent worker counts as lost. All coordinators must agree on it."""
    nodes: int = 0
    """Number of servers in the cluster; 0: a single server without a cluster."""
    tls: TlsMaterial | None = None
    tls_names: tuple[str, ...] = ()
    teams: tuple[Team, ...] = ()

    def team(self, name: str | None) -> Team:
        """Return the team with this name; None means the only team. Raises `UsageError` if there is
        no such team, or if `name` is None and there are several."""
        found = [one for one in self.teams if name in (None, one.name)]
        if len(found) == 1:
            return found[0]
        known = ", ".join(one.name for one in self.teams) or "none"
        if name is None:
            raise UsageError(f"choose a team with --team: {known}")
        raise UsageError(f"unknown team {name!r}: the teams here are {known}")

    def with_team(self, team: Team) -> FleetKeys:
        others = [one for one in self.teams if one.name != team.name]
        return structs.replace(self, teams=(*others, team))

    # -- tokens

    def operator_token(self, now: int) -> str:
        system = read_seed(self.system_seed).public
        operator = read_seed(self.operator_seed)
        return operator_token(operator, name="dragoman", system=system, now=now)

    def system_token(self, now: int) -> str:
        """Return the token of the system account."""
        system = read_seed(self.system_seed)
        return account_token(read_seed(self.operator_seed), system.public, name="SYS", now=now)

    def team_token(self, team: Team, now: int) -> str:
        """Return the token of the account of a team's members, including its revocations."""
        return account_token(
            read_seed(self.operator_seed),
            read_seed(team.seed).public,
            name=team.name,
            now=now,
            revoked=team.revoked,
            imports=SHARED,
            imported_from=read_seed(team.store_seed).public,
        )

    def store_token(self, team: Team, now: int) -> str:
        """Return the token of the account with a team's streams."""
        return account_token(
            read_seed(self.operator_seed),
            read_seed(team.store_seed).public,
            name=f"{team.name} store",
            now=now,
            limits=AccountLimits(disk_size=self._account_size()),
            exports=SHARED,
        )

    def _account_size(self) -> int:
        """Return the disk limit of an account. The server counts each copy of a stream."""
        return self.disk_size * replicas(self.nodes) if self.disk_size > 0 else self.disk_size


class Access(Struct, frozen=True, kw_only=True):
    """What a coordinator or the system user needs to connect: addresses, key, token and certificate
    authority."""

    name: str
    urls: tuple[str, ...]
    seed: str
    token: str
    authority: str = ""


def system_access(keys: FleetKeys, now: int) -> Access:
    """Return the access to the system account, to send the server new account tokens."""
    user = read_seed(keys.system_user_seed)
    token = user_token(read_seed(keys.system_seed), user.public, name="system", now=now)
    return _access(keys, "system", user, token)


def coordinator_access(keys: FleetKeys, team: Team, now: int) -> Access:
    """Return the access of a coordinator, which has all rights in the account with the team's
    streams."""
    user = read_seed(team.coordinator_seed)
    token = user_token(read_seed(team.store_seed), user.public, name=COORDINATOR, now=now)
    return _access(keys, COORDINATOR, user, token)


def _access(keys: FleetKeys, name: str, user: KeyPair, token: str) -> Access:
    authority = "" if keys.tls is None else keys.tls.authority
    return Access(name=name, urls=keys.urls, seed=user.seed, token=token, authority=authority)


# -- the file


def new_keys() -> FleetKeys:
    return FleetKeys(
        operator_seed=new_key("operator").seed,
        system_seed=new_key("account").seed,
        system_user_seed=new_key("user").seed,
    )


def new_team(name: str) -> Team:
    return Team(
        name=require_name(name),
        seed=new_key("account").seed,
        store_seed=new_key("account").seed,
        coordinator_seed=new_key("user").seed,
    )


class FleetFolder:
    """The directory of a server: its keys, its configuration and its data."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / FILE

    def read(self) -> FleetKeys:
        """Read the keys. Raises `UsageError` if no fleet was set up here, if other users can read
        the file, or if it is invalid."""
        data = read_file(self.file, invalid=_invalid)
        if data is None:
            raise UsageError(
                f"no fleet in {self.path}", remedy="create one with `dragoman fleet up`"
            )
        if os.name == "posix" and os.stat(self.file).st_mode & 0o077:
            raise UsageError(
                f"{self.file} is readable by other users", remedy=f"run chmod 600 {self.file}"
            )
        try:
            return decode_typed(data, FleetKeys)
        except UNDECODABLE as error:
            raise _invalid(str(self.file), str(error)) from error

    def prepare(self) -> FleetKeys:
        """Read the keys, or create them if there are none."""
        make_private(self.path)
        with locked(self.file):
            if self.file.exists():
                return self.read()
            keys = new_keys()
            self._write(keys)
            return keys

    def change(self, keys: FleetKeys) -> None:
        """Replace the stored keys, except the teams that are already stored, which other processes
        may have changed."""
        with locked(self.file):
            kept = {one.name: one for one in self.read().teams}
            teams = tuple(kept.get(one.name, one) for one in keys.teams)
            self._write(structs.replace(keys, teams=teams))

    def _write(self, keys: FleetKeys) -> None:
        write_file(self.file, msgspec.json.format(msgspec.json.encode(keys)), mode=0o600)

    # -- members

    def invite(self, kind: MemberKind, name: str, *, team: str | None, now: int) -> str:
        """Create a join code for a member; an unused earlier code becomes invalid. Raises
        `UsageError` if the name or team cannot be used, or the fleet was never started."""
        require_name(name)
        if name == COORDINATOR or name.startswith("join-"):
            raise UsageError(f"{name!r} is a reserved name")
        with locked(self.file):
            keys = self.read()
            found = keys.team(team)
            if not keys.urls:
                raise UsageError(
                    "the fleet was never started", remedy="start it with `dragoman fleet up`"
                )
            known = found.member(name)
            if known is not None and known.public and known.expires_at > now:
                raise UsageError(
                    f"{name} is already a member",
                    remedy=f"choose another name, or run `dragoman fleet revoke {name}` first",
                )
            code_id = f"join-{secrets.token_hex(8)}"
            user = new_key("user")
            token = user_token(
                read_seed(found.seed),
                user.public,
                name=code_id,
                now=now,
                rights=join_rights(code_id),
                expires_at=now + CODE_SECONDS,
            )
            member = TeamMember(name=name, kind=kind, code=code_id)
            self._write(keys.with_team(found.with_member(member)))
        return encode_code(
            JoinCode(
                id=code_id,
                team=found.name,
                name=name,
                kind=kind,
                urls=keys.urls,
                seed=user.seed,
                token=token,
                authority="" if keys.tls is None else keys.tls.authority,
            )
        )

    def expects(self, code_id: str, public: str, *, team: str) -> bool:
        """Return whether a join code was created here and may be used with this key."""
        return any(one.may_use(code_id, public) for one in self.read().team(team).members)

    def admit(self, code_id: str, public: str, *, team: str, now: int) -> str:
        """Issue the token for a join code and invalidate the code for other keys. Raises
        `UsageError` if the code or the public key is not valid."""
        if not is_public_key(public, "user"):
            raise UsageError("the join request has no valid public key")
        with locked(self.file):
            keys = self.read()
            found = keys.team(team)
            member = next((one for one in found.members if one.may_use(code_id, public)), None)
            if member is None:
                raise UsageError(
                    "this join code was already used, replaced by a newer one, or revoked"
                )
            joined = member
            if code_id == member.code:
                expires_at = now + int(TOKEN_DAYS * 24 * 3600)
                joined = structs.replace(
                    member, public=public, expires_at=expires_at, code="", used_code=code_id
                )
                self._write(keys.with_team(found.with_member(joined)))
        return user_token(
            read_seed(found.seed),
            public,
            name=joined.name,
            now=now,
            rights=rights_of(joined.kind, joined.name),
            expires_at=joined.expires_at,
            tags=(f"kind:{joined.kind}",),
        )

    def revoke(self, name: str, *, team: str | None, now: int) -> tuple[FleetKeys, Team]:
        """Revoke a member, even one that has not joined yet, and return the changed keys and team.
        Does not inform the server: `tell_server` does. Raises `UsageError` for an unknown
        member."""
        with locked(self.file):
            keys = self.read()
            found = keys.team(team)
            member = found.member(name)
            if member is None:
                known = ", ".join(one.name for one in found.members) or "none"
                raise UsageError(f"unknown member {name!r}: the members are {known}")
            revoked = dict(found.revoked)
            if member.public:
                revoked[member.public] = now
            members = tuple(one for one in found.members if one.name != name)
            changed = structs.replace(found, members=members, revoked=revoked)
            keys = keys.with_team(changed)
            self._write(keys)
        return keys, changed


def _invalid(path: str, problem: str) -> DragomanError:
    return UsageError(f"{path}: invalid fleet keys: {problem}")
