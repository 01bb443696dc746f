"""Add, remove, enable and disable peers; roll the change back if it breaks another file.

To add a peer, its draft is validated, the peer is verified, its descriptor is written, and all
descriptors and agent files are validated again. `verify` measures; `descriptor_draft` composes the
descriptor.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dragoman.broker.client.ssh_command import host_named
from dragoman.catalogue.agent_files import list_files, refuse_new_problems
from dragoman.catalogue.card import Card, RungResult
from dragoman.catalogue.command_unwrap import describe_command
from dragoman.catalogue.discovery_store import DiscoveryStore
from dragoman.catalogue.host_checks import last_check
from dragoman.catalogue.launch import LaunchSpec, surroundings_of, way_to, with_env
from dragoman.catalogue.load import BUILT_IN
from dragoman.catalogue.roles import is_generalist
from dragoman.catalogue.validate import NAME, describe
from dragoman.catalogue.versions import learn_version
from dragoman.client.options import ADDRESSES, AUTO
from dragoman.config import Paths
from dragoman.config.edit import disable_peers, enable_peers, set_value
from dragoman.config.file_transaction import Change, FileTransaction
from dragoman.config.hosts import split_peer
from dragoman.config.safe_files import locked
from dragoman.dialects.discovery import Cache
from dragoman.errors import ConfigInvalid, UnknownPeer, UsageError
from dragoman.errors.usage import nearest
from dragoman.rpc.tasks import in_thread
from dragoman.runs.adapters import load_adapter
from dragoman.runs.context import ALWAYS_ENABLED, RunContext
from dragoman.setup.descriptor_draft import PeerDraft, adapter_text, descriptor_text, first_table
from dragoman.store.peer_recovery import unpark_after_success
from dragoman.verify.ladder import climb
from dragoman.verify.time_limits import LadderLimits


@dataclass(frozen=True, slots=True)
class Done:
    """The file changes that were made, and notes for the user."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()


Climber = Callable[..., Awaitable[Card]]
"""Function that verifies a peer, with the signature of `verify.ladder.climb`."""


# -- adding


def prepare(draft: PeerDraft, place: RunContext) -> LaunchSpec:
    """Validate the draft of a new peer and return its launch spec. Starts nothing. Raises
    `UsageError` if its name is taken or one of its files exists, `WrongLaunch` if its command is
    known to be wrong, and `ConfigInvalid` if its descriptor would be invalid."""
    if draft.name in place.catalogue:
        origin = place.catalogue.origin(draft.name)
        where = "dragoman itself" if origin == "dragoman" else origin
        raise UsageError(
            f"there is already a peer {draft.name!r}, from {where}; choose another name"
        )
    try:
        describe(first_table(draft), origin="the command line")
    except ConfigInvalid as error:
        error.hint = "correct the command; `dragoman peers add --help` shows examples"
        raise
    _refuse_existing(draft, place)
    if draft.address is not None:
        return in_dialect(LaunchSpec(address=draft.address), draft.dialect)
    way = with_env(describe_command(draft.command, place.catalogue), draft.env)
    return in_dialect(way, draft.dialect)


def in_dialect(way: LaunchSpec, dialect: str | None) -> LaunchSpec:
    """Return the launch spec with the dialect that the user named and without the details of
    another dialect; unchanged if `dialect` is None, `auto` or the one that it has."""
    if dialect is None or dialect in (AUTO, way.protocol):
        return way
    return replace(way, protocol=dialect, details={})


def _refuse_existing(draft: PeerDraft, place: RunContext) -> None:
    for file in _files(draft, place):
        if os.path.lexists(file):
            raise UsageError(f"{file} already exists; remove it, or choose another name")


def settled_command(command: Sequence[str], cwd: Path) -> tuple[str, ...]:
    """Return the command line in a form that works from any directory.

    A program without a path stays a bare name, which is looked up on the PATH at each start, so
    that updates take effect. A relative path of the program becomes absolute, and so do those of
    existing files among its arguments, because a peer is started in the directory where its user
    works. An address is unchanged. Raises `UsageError` if `command` is empty.
    """
    if not command:
        raise UsageError("the command that starts the peer is missing: put it after --")
    if len(command) == 1 and command[0].startswith(ADDRESSES):
        return tuple(command)
    program, *words = command
    if os.sep in program or (os.altsep or os.sep) in program:
        program = os.path.abspath(os.path.join(cwd, os.path.expanduser(program)))
    return (program, *(_settled(word, cwd) for word in words))


def _settled(word: str, cwd: Path) -> str:
    names_a_file = (os.sep in word or Path(word).suffix) and not word.startswith("-")
    if names_a_file and not os.path.isabs(word) and os.path.isfile(cwd / word):
        return os.path.abspath(cwd / word)
    return word


async def measure(
    way: LaunchSpec,
    *,
    peer: str,
    turns: bool,
    paths: Paths | None = None,
    limits: LadderLimits | None = None,
    on_rung: Callable[[RungResult], None] | None = None,
    cache: Cache | None = None,
    climb: Climber = climb,
) -> Card:
    """Verify a peer and return its card, which is stored if `paths` is given.

    A program of no known peer is first verified without credentials and without turns, because it
    might treat the handshake as a prompt; then, if it is usable and `turns` is set, with both.
    """
    known: dict[str, Any] = {
        "peer": peer,
        "paths": paths,
        "limits": limits,
        "version": await learn_version(way),
        "on_rung": on_rung,
        "cache": cache,
    }
    if way.descriptor is not None or way.address is not None:
        return await climb(way, turns=turns, careful=False, **known)
    card = await climb(way, turns=False, careful=True, **known)
    if not (card.usable and turns):
        return card
    if card.facts.dialect is not None and card.facts.dialect_shown is not False:
        # Its dialect is known by now and need not be detected again.
        way = replace(way, protocol=card.facts.dialect)
    return await climb(way, turns=True, careful=False, **known)


async def verify_known(
    name: str,
    place: RunContext,
    *,
    turns: bool,
    on_rung: Callable[[RungResult], None] | None = None,
) -> Card:
    """Verify a peer of the catalogue, store its card, and unpark it if a turn worked.

    Raises `UnknownPeer` for an unknown name, and `NotInstalled` if there is no program to start.
    """
    way = way_to(name, catalogue=place.catalogue, settings=place.config.settings)
    card = await measure(
        way,
        peer=name,
        turns=turns,
        paths=place.paths,
        on_rung=on_rung,
        cache=DiscoveryStore(place.paths.cache),
    )
    # Another process may hold the ledger.
    await in_thread(
        str(place.paths.state), lambda _: note_verified(card, way, place), changes_disk=True
    )
    return card


def note_verified(card: Card, way: LaunchSpec, place: RunContext) -> None:
    """Unpark the peer of this card if a turn worked during its verification; `way` is how the
    peer was started."""
    if card.facts.echo:
        own = place.config.settings.for_peer(card.peer)
        here = surroundings_of(way.descriptor, env=own.env)
        unpark_after_success(card.peer, place.paths.state, here)


def add_peer(draft: PeerDraft, way: LaunchSpec, card: Card, place: RunContext) -> Done:
    """Write the descriptor of a verified peer and, if the draft wants one, its Python adapter. If
    they break another descriptor or the target of an agent file, both are rolled back and an error
    is raised. Raises `UsageError` if the card says that the peer cannot be used, or if one of the
    files exists by now."""
    if not card.usable:
        raise UsageError(f"{draft.name} failed its verification and cannot be added")
    descriptor, adapter = _files(draft, place)
    before = place.troubles()
    # Verifying took a while; another process may have added a peer of this name.
    with locked(place.paths.peers_folder), FileTransaction() as changes:
        _refuse_existing(draft, place)
        if draft.python:
            changes.write(adapter, adapter_text(draft, card).encode())
        changes.write(descriptor, descriptor_text(draft, way, card).encode())
        # An error from here on rolls both files back.
        after = place.again()
        refuse_new_problems(before, after.troubles())
        load_adapter(after.catalogue.known(draft.name), after.config)
        made = tuple(changes.made())
    return Done(made, tuple(_notes(draft, after)))


def _files(draft: PeerDraft, place: RunContext) -> tuple[Path, Path]:
    folder = place.paths.peers_folder
    return folder / f"{draft.name}.toml", folder / draft.adapter


def _notes(draft: PeerDraft, place: RunContext) -> list[str]:
    notes: list[str] = []
    if is_generalist(draft.roles):
        notes.append(
            f"{draft.name} claims every role. Generalists are often weaker than specialized"
            " peers; measurements will show how good it is."
        )
    fresh = [role for role in draft.roles if place.catalogue.claimants(role) == (draft.name,)]
    if fresh:
        notes.append(f"{draft.name} is the first peer that claims {', '.join(fresh)}.")
    if not draft.roles:
        notes.append(f"{draft.name} claims no role, so it is used only if it is named.")
    elif not place.is_enabled(draft.name):
        notes.append(
            f"{draft.name} is not enabled, so nothing is delegated to it yet:"
            f" `dragoman peers enable {draft.name}`"
        )
    return notes


# -- removing


@dataclass(frozen=True, slots=True)
class Removal:
    """A planned removal of a peer: its files, cards and settings."""

    name: str
    files: tuple[Path, ...]
    """The peer's descriptor and, if it is in the same directory, its Python adapter."""
    cards: tuple[Path, ...]
    settings: tuple[str, ...]
    """The keys in the user's settings that name the peer."""


def plan_removal(name: str, place: RunContext) -> Removal:
    """Return what has to be removed with a peer. Raises `UsageError` for a peer that is not
    described by a file in the user's peers directory, and `UnknownPeer` for an unknown name that
    is not enabled either."""
    folder = place.paths.peers_folder
    file = folder / f"{name}.toml"
    described = NAME.fullmatch(name) is not None and os.path.lexists(file)
    if not described and name in place.catalogue:
        origin = place.catalogue.origin(name)
        where = "ships with dragoman" if origin == BUILT_IN else f"is described in {origin}"
        raise UsageError(
            f"{name} {where}, so it cannot be removed; "
            f"`dragoman peers disable {name}` keeps delegation from using it"
        )
    listed = place.config.settings.enabled_peers
    if not described and name not in listed:
        place.catalogue.get(name)
    files = [file] if described else []
    if described and name in place.catalogue:
        adapter = (place.catalogue.get(name).adapter or "").partition(":")[0]
        if adapter.endswith(".py") and os.path.isfile(folder / adapter):
            files.append(folder / adapter)
    cards = tuple(place.cards().files(name))
    keys = [("enabled_peers", name in listed)]
    keys += [("default_peer", place.config.settings.default_peer == name)]
    return Removal(name, tuple(files), cards, tuple(key for key, named in keys if named))


def remove_peer(removal: Removal, place: RunContext) -> Done:
    """Remove the files, cards and settings of a peer. If that causes a new problem, such as an
    agent file that still names the peer, nothing stays removed and `UsageError` is raised."""
    before = place.troubles()
    with locked(place.paths.peers_folder), FileTransaction() as changes:
        changes.watch(place.paths.config_file)
        if "enabled_peers" in removal.settings:
            disable_peers(place.paths, [removal.name])
        if "default_peer" in removal.settings:
            set_value(place.paths, "default_peer", None)
        for file in removal.files:
            changes.remove(file)
        after = place.again()
        refuse_new_problems(before, after.troubles())
        made = tuple(changes.made())
    notes = []
    for card in removal.cards:
        # Not in the transaction: a card can be measured again, and is too long to be shown.
        try:
            card.unlink(missing_ok=True)
        except OSError as error:
            notes.append(f"The card {card} could not be removed: {error.strerror or error}.")
    if removal.name in after.config.settings.enabled_peers:
        origin = after.config.origin("enabled_peers")
        notes.append(f"{removal.name} is still enabled by {origin}.")
    if removal.name in after.config.settings.peer:
        notes.append(f"Your settings for it are kept: the table [peer.{removal.name}].")
    return Done(made, tuple(notes))


# -- enabling


def enable(names: Sequence[str], place: RunContext) -> Done:
    """Enable these peers for routing and delegation. Raises `UnknownPeer` for an unknown one, and
    `UsageError` if one is on an unknown host."""
    for name in names:
        peer, host = split_peer(name)
        if host is None:
            place.catalogue.get(name)
        else:
            _require_on_host(peer, host, place)
    return _change(place, lambda: enable_peers(place.paths, _listed(names)), names, wanted=True)


def _require_on_host(peer: str, host: str, place: RunContext) -> None:
    """Raise `UsageError` if the host is unknown, and `UnknownPeer` if it has no such peer. Its
    peers are known from its last check; before the first check, the local catalogue decides."""
    host_named(host, place.config.settings.hosts)
    check = last_check(place.paths, host)
    if check is None:
        place.catalogue.get(peer)
    elif not any(agent.name == peer for agent in check.agents):
        raise UnknownPeer(peer, nearest(peer, [agent.name for agent in check.agents]))


def disable(names: Sequence[str], place: RunContext) -> Done:
    """Exclude these peers from routing and delegation. Raises `UnknownPeer` for an unknown one, and
    `UsageError` for one that ships with dragoman and is always enabled."""
    for name in names:
        # A peer whose descriptor is gone can still be disabled.
        if name not in place.config.settings.enabled_peers:
            place.catalogue.get(name)
        if name in ALWAYS_ENABLED:
            raise UsageError(f"{name} ships with dragoman and cannot be disabled")
    return _change(place, lambda: disable_peers(place.paths, names), names, wanted=False)


def _listed(names: Sequence[str]) -> list[str]:
    return [name for name in names if name not in ALWAYS_ENABLED]


def _change(
    place: RunContext, edit: Callable[[], tuple[str, ...]], names: Sequence[str], *, wanted: bool
) -> Done:
    before = place.troubles()
    with FileTransaction() as changes:
        changes.watch(place.paths.config_file)
        changed = edit()
        after = place.again()
        refuse_new_problems(before, after.troubles())
        made = tuple(changes.made())
    notes: list[str] = []
    for name in names:
        state = "enabled" if wanted else "disabled"
        if after.is_enabled(name) != wanted:
            origin = after.config.origin("enabled_peers")
            notes.append(f"{name} is not {state} here: {origin} overrides your config.toml.")
        elif name not in changed:
            notes.append(f"{name} was already {state}.")
        if not wanted:
            notes += _left_behind(name, after)
    return Done(made, tuple(notes))


def _left_behind(name: str, place: RunContext) -> list[str]:
    files = [
        file.path
        for file in list_files(place.agent_files(), place.role_catalogue())
        if file.target is not None and file.target.peer == name
    ]
    if not files:
        return []
    named = ", ".join(_short(path, place.cwd) for path in files)
    return [f"Agent files that delegate to {name}, which is now disabled: {named}."]


def _short(path: Path, cwd: Path) -> str:
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
