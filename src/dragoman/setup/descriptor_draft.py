"""Compose the files of a new peer from options and measurements: its TOML descriptor and, if
wanted, a Python adapter.

If the program belongs to a known peer, that peer's settings are copied. `add_peer` writes the
files; `catalogue.validate` defines what a descriptor may contain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec
import tomlkit

from dragoman.catalogue import Descriptor, Quirks
from dragoman.catalogue.card import Card, MeasuredFacts
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.options import ADDRESSES

CARRIED: Final = (
    *("tiers", "version", "models", "credentials", "install", "env", "details", "quirks"),
    *("enforcement", "mcp"),
    *("max_line_size", "handshake_timeout"),
)
"""Keys that are copied from a known peer to a second peer with the same program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerDraft:
    """A peer to be added, as described on the command line."""

    name: str
    roles: tuple[str, ...]
    command: tuple[str, ...]
    """The command line that starts it, or one address."""
    title: str = ""
    env: tuple[str, ...] = ()
    """Names of environment variables that it inherits."""
    python: bool = False
    """Whether to write a Python adapter for it."""
    dialect: str | None = None
    """The dialect that the user named; None or `auto` if it has to be detected."""

    @property
    def address(self) -> str | None:
        """The address of a peer that dragoman does not start, otherwise None."""
        alone = len(self.command) == 1 and self.command[0].startswith(ADDRESSES)
        return self.command[0] if alone else None

    @property
    def adapter(self) -> str:
        """The file name of the peer's Python adapter."""
        return f"{self.name.replace('-', '_')}_adapter.py"


def first_table(draft: PeerDraft) -> dict[str, Any]:
    """Return the descriptor as a table with what is known before the verification."""
    launch: dict[str, Any] = (
        {"command": list(draft.command)} if draft.address is None else {"address": draft.address}
    )
    return {
        "name": draft.name,
        "title": draft.title or draft.name,
        "roles": list(draft.roles),
        "launch": [launch],
        "credentials": {"env": list(draft.env)},
    }


def table(draft: PeerDraft, way: LaunchSpec, card: Card) -> dict[str, Any]:
    """Return the complete descriptor as a table, composed from the options, the measurements and,
    if the program belongs to a known peer, that peer's descriptor."""
    facts = card.facts
    made = first_table(draft)
    made["title"] = draft.title or facts.agent_name or draft.name
    # A dialect that the handshake did not prove is detected again at each start.
    if facts.dialect is not None and facts.dialect_shown is not False:
        made["protocol"] = facts.dialect
    made["source"] = f"measured by dragoman {card.dragoman} on {card.measured_at[:10]}"
    made["verified"] = True
    if draft.python:
        made["adapter"] = draft.adapter
    if way.descriptor is not None:
        _carry_over(made, way.descriptor)
    quirks = made.get("quirks", {}) | _seen_quirks(facts)
    if quirks:
        made["quirks"] = quirks
    if facts.login and "login" not in made["credentials"]:
        made["credentials"]["login"] = facts.login
    if not made["credentials"].get("env"):
        made["credentials"].pop("env", None)
    if not made["credentials"]:
        del made["credentials"]
    return made


def _carry_over(made: dict[str, Any], known: Descriptor) -> None:
    whole = msgspec.to_builtins(known)
    bare = msgspec.to_builtins(
        Descriptor(name=known.name, title=known.title, launch=known.launch, roles=known.roles)
    )
    own_env = made["credentials"]["env"]
    for key in CARRIED:
        if whole[key] == bare[key]:
            continue
        value = whole[key]
        if isinstance(value, dict):
            usual = bare[key] if isinstance(bare[key], dict) else {}
            value = {name: each for name, each in value.items() if each != usual.get(name)}
        made[key] = value
    made["credentials"]["env"] = list(
        dict.fromkeys([*made["credentials"].get("env", ()), *own_env])
    )
    prefixes = {role: text for role, text in known.role_prefixes.items() if role in made["roles"]}
    if prefixes:
        made["role_prefixes"] = prefixes
    made["notes"] = f"Runs the same program as {known.title}."


def _seen_quirks(facts: MeasuredFacts) -> dict[str, Any]:
    """Return the quirks that the verification found."""
    seen = {
        "reject_ends_turn": facts.refusal_ends_turn,
        "stays_after_eof": None if facts.clean_exit is None else not facts.clean_exit,
        "terminals": facts.uses_terminals,
    }
    assert set(seen) <= set(Quirks.__struct_fields__)
    return {name: True for name, value in seen.items() if value}


def descriptor_text(draft: PeerDraft, way: LaunchSpec, card: Card) -> str:
    """Return the descriptor as TOML text."""
    document = tomlkit.document()
    document.add(tomlkit.comment("Written by `dragoman peers add`; you can edit it."))
    document.add(tomlkit.comment(f"`dragoman peers verify {draft.name}` measures it again."))
    made = table(draft, way, card)
    for key, value in made.items():
        if not isinstance(value, dict) and key != "launch":
            document.add(key, _item(value))
    launches = tomlkit.aot()
    for launch in made["launch"]:
        launches.append(_table(launch))
    document.add("launch", launches)
    for key, value in made.items():
        if isinstance(value, dict):
            document.add(key, _table(value))
    return tomlkit.dumps(document)


def adapter_text(draft: PeerDraft, card: Card) -> str:
    """Return the source of a Python adapter for the user to edit; unchanged, it does what the
    descriptor alone would do."""
    roles = "".join(f"    {role!r},\n".replace("'", '"') for role in draft.roles)
    prefixes = "".join(f"    {role!r}: '',\n".replace("'", '"') for role in draft.roles)
    return SCAFFOLD.format(
        name=draft.name,
        protocol=card.facts.dialect or "auto",
        roles=f"(\n{roles})" if roles else "()",
        prefixes=f"{{\n{prefixes}}}" if prefixes else "{}",
    )


SCAFFOLD: Final = '''\
"""The adapter of {name}: how a piece of work becomes a turn of the peer.

Written by `dragoman peers add --python`; you can edit it. Without changes it does what the
descriptor alone would do: one session, and one prompt after the prefix of the role.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dragoman.adapters import Assignment, judge, open_peer
from dragoman.client.results import Result
from dragoman.errors import RoleNotClaimed

name = "{name}"
protocol = "{protocol}"

ROLES_CLAIMED = {roles}

# The text before the prompt, by role: usually a slash command of the peer.
ROLE_PREFIX = {prefixes}


def claims(role: str) -> bool:
    """Whether the peer takes work of this role."""
    return role in ROLES_CLAIMED


async def dispatch(
    launch: Assignment,
    role: str,
    text: str,
    on_notification: Callable[[Any], None] | None = None,
) -> Result:
    """Do one piece of work; the peer is closed whatever happens."""
    if not claims(role):
        raise RoleNotClaimed(name, role, ROLES_CLAIMED)
    async with (
        open_peer(launch.way, launch.options(on_notification), workspace=launch.cwd) as peer,
        peer.session(mode=launch.mode, model=launch.model) as session,
    ):
        result = await session.ask(ROLE_PREFIX[role] + text)
    return judge(result, launch.way.quirks)
'''


def _table(values: dict[str, Any]) -> tomlkit.items.Table:
    made = tomlkit.table()
    for key, value in values.items():
        made.add(key, _item(value))
    return made


def _item(value: Any) -> Any:
    return tomlkit.item(list(value) if isinstance(value, tuple) else value)
