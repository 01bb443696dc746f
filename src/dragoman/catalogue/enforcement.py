"""Make a peer ask for permission as the policy requires, and detect when it did not.

Applies the environment, arguments, mode and options from the descriptor, and raises
`PolicyNotEnforced` for a peer that is known not to ask for permission, or to ignore a refusal.
`unapproved` finds files that changed without an allowed request. `policy` decides what is allowed;
`catalogue.open` and `broker.client.connect` connect to the peer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from dragoman.catalogue.descriptor import Descriptor, Enforcement
from dragoman.dialects.discovery import ACP
from dragoman.errors import DragomanError, PolicyNotEnforced
from dragoman.errors.usage import nearest

if TYPE_CHECKING:
    from dragoman.catalogue.card import Card
    from dragoman.catalogue.launch import LaunchSpec
    from dragoman.client.conversation import Conversation
    from dragoman.events.view import View
    from dragoman.policy.approver import Ruling

NOT_ENFORCED: Final = "permissions not enforced"
"""The label in results, the ledger and lists for work under a policy that was not enforced."""

SHOWN_FILES: Final = 5
"""Maximum number of files that a violation names."""

WRITES: Final = frozenset({"edit", "delete", "move"})
"""Kinds of permission requests that change only the files that they name."""


class Enforced(Struct, frozen=True, kw_only=True):
    """A peer's launch under a policy, and whether the policy can be enforced."""

    way: LaunchSpec
    restricts: bool = False
    """Whether the policy denies or asks about anything."""
    gap: str = ""
    """Why the policy cannot be enforced; empty if it can."""
    mode: str | None = None
    """The mode that the user requested. `hold` does not change it, even if the peer does not ask
    for permission in it."""
    allow_unenforced: bool = False
    """Whether the peer is prompted even if the policy is not enforced."""

    def check_mode(self, mode: str) -> None:
        """Raise `PolicyNotEnforced` if the policy restricts the peer, and the descriptor lists the
        modes in which the peer asks for permission without this one, unless `allow_unenforced` is
        set."""
        if self.restricts and not self.allow_unenforced:
            if why := _silent_mode(_table(self.way.descriptor), mode):
                raise PolicyNotEnforced(self.way.name, why)

    def check_option(self, name: str, value: str | bool) -> None:
        """Raise `PolicyNotEnforced` if the policy restricts the peer and the descriptor requires
        another value of this option to make it ask for permission, unless `allow_unenforced` is
        set."""
        asking = _table(self.way.descriptor).options.get(name, value)
        if self.restricts and not self.allow_unenforced and asking != value:
            raise PolicyNotEnforced(self.way.name, _silent_option(name, value, asking))

    def unkept(self, view: View) -> str:
        """Return why the policy is not enforced in a session with these settings. Empty if no
        reason is known, or if the policy restricts nothing."""
        if not self.restricts:
            return ""
        return self.gap or _told_otherwise(_table(self.way.descriptor), view)

    async def hold(self, conversation: Conversation, view: View) -> str:
        """Set a mode and options in which the peer asks for permission, unless the session already
        has them, and check the settings that it reports then.

        Call it before each prompt: agents also change their mode during a turn. Raises
        `PolicyNotEnforced` if `unkept` then finds a reason why the policy is not enforced. With
        `allow_unenforced`, returns this reason instead. Returns an empty string if there is none.
        """
        if not self.restricts:
            return ""
        table = _table(self.way.descriptor)
        if table.modes and view.mode is not None and view.mode not in (*table.modes, self.mode):
            await _try(conversation.set_mode(table.modes[0]))
        for name, value in table.options.items():
            if any(one.id == name and one.value != value for one in view.options):
                await _try(conversation.set_option(name, value))
        why = self.unkept(view)
        if why and not self.allow_unenforced:
            raise PolicyNotEnforced(self.way.name, why)
        return why


def enforce(
    spec: LaunchSpec,
    *,
    restricts: bool,
    mode: str | None = None,
    card: Card | None = None,
    allow_unenforced: bool = False,
) -> Enforced:
    """Return the peer's launch under the policy, changed to make the peer ask for permission if the
    policy `restricts` it.

    `mode` is the mode that the user requested. If the policy `restricts` the peer and `gap` finds a
    reason why it cannot be enforced, raises `PolicyNotEnforced`, unless `allow_unenforced` is set.
    """
    if not restricts:
        return Enforced(way=spec)
    why = gap(spec.descriptor, card=card, mode=mode)
    if why and not allow_unenforced:
        raise PolicyNotEnforced(spec.name, why)
    return Enforced(
        way=made_to_ask(spec),
        restricts=True,
        gap=why,
        mode=mode,
        allow_unenforced=allow_unenforced,
    )


def gap(descriptor: Descriptor | None, *, card: Card | None = None, mode: str | None = None) -> str:
    """Return why a policy that restricts a peer cannot be enforced, or an empty string if no reason
    is known.

    An unmeasured fact is not a known gap.
    """
    table = _table(descriptor)
    if not table.possible:
        return "it cannot be made to ask for permission"
    if mode is not None and (why := _silent_mode(table, mode)):
        return why
    if card is None:
        return ""
    if card.facts.asks_permission is False:
        return f"it wrote a file without asking when it was verified on {card.measured_at[:10]}"
    if card.facts.respects_refusal is False:
        return f"it wrote a file despite a refusal when it was verified on {card.measured_at[:10]}"
    return ""


def made_to_ask(spec: LaunchSpec) -> LaunchSpec:
    """Return the launch spec with the environment, arguments and mode that make the peer ask for
    permission."""
    table = _table(spec.descriptor)
    quirks = spec.quirks
    # Only ACP can set a mode when a session is opened. Codex starts in its narrowest sandbox.
    modes = table.modes if spec.descriptor and spec.descriptor.protocol == ACP else ()
    if modes and quirks.mode_after_open not in modes:
        quirks = structs.replace(quirks, mode_after_open=modes[0])
    command = spec.command if spec.command is None else (*spec.command, *table.arguments)
    return structs.replace(spec, command=command, env={**spec.env, **table.env}, quirks=quirks)


def _table(descriptor: Descriptor | None) -> Enforcement:
    return Enforcement() if descriptor is None else descriptor.enforcement


def _told_otherwise(table: Enforcement, view: View) -> str:
    if table.modes and view.mode is not None and view.mode not in table.modes:
        return f"its session is in the mode {view.mode}, in which it does not ask"
    values: Mapping[str, str | bool] = {one.id: one.value for one in view.options}
    for name, value in table.options.items():
        if name in values and values[name] != value:
            return _silent_option(name, values[name], value)
    return ""


def _silent_mode(table: Enforcement, mode: str) -> str:
    """Return why the peer does not ask for permission in a mode; empty if it does, or if its
    descriptor lists no modes."""
    if not table.modes or mode in table.modes:
        return ""
    close = nearest(mode, table.modes)
    meant = f" (did you mean {close[0]}?)" if close else ""
    return f"it does not ask in the mode {mode}{meant}; it asks in {' and '.join(table.modes)}"


def _silent_option(name: str, value: str | bool, asking: str | bool) -> str:
    return f"its option {name} is {_word(value)}; it asks for permission only with {_word(asking)}"


def _word(value: str | bool) -> str:
    return value if isinstance(value, str) else ("on" if value else "off")


async def _try(change: object) -> None:
    """Try a setting. If the session rejects it, its later reports decide."""
    try:
        await change  # type: ignore[misc]
    except DragomanError:
        return


# -- what the disk shows


def unapproved(
    files: Iterable[str],
    rulings: Iterable[Ruling],
    *,
    workspace: str | os.PathLike[str],
    earlier: Iterable[Ruling] = (),
) -> tuple[str, ...]:
    """Return the changed files, relative to the workspace, that no allowed request explains.

    Returns none if a command was allowed, or another request that may have changed more than files
    that it names, unless it was allowed as only reading. A file that was allowed in an `earlier`
    turn may be written again; a command of that turn is over.
    """
    files = tuple(files)
    if not files:
        return ()
    folder = os.path.realpath(workspace)
    allowed: set[str] = set()
    for ruling in earlier:
        if (
            ruling.allowed
            and not ruling.act.runs
            and {ruling.act.kind, *ruling.act.evident} & WRITES
        ):
            allowed |= _places(ruling, folder)
    for ruling in rulings:
        act = ruling.act
        kinds = {act.kind, *act.evident}
        if not ruling.allowed or kinds <= {"read", "search", "think", "fetch"}:
            continue
        if ruling.verdict.by == "preset" and ruling.verdict.rule == "approve-reads":
            # It was allowed because it only reads, even if it is a command.
            continue
        if act.runs or not act.paths or not kinds & WRITES:
            return ()
        allowed |= _places(ruling, folder)
    return tuple(name for name in files if not _within(folder, name, allowed))


def _places(ruling: Ruling, folder: str) -> set[str]:
    # Not at the top: most turns change nothing.
    from dragoman.policy.path_patterns import places_of

    found = (places_of(path, (folder,)) for path in ruling.act.paths)
    return {place for places in found if places is not None for place in places.real}


def violated(files: Sequence[str]) -> str:
    """Return a text that names the files that changed without an allowed request.

    It does not blame the peer: the user may have saved the files in an editor.
    """
    shown = ", ".join(files[:SHOWN_FILES])
    more = f" and {len(files) - SHOWN_FILES} more" if len(files) > SHOWN_FILES else ""
    return f"{shown}{more} changed during the turn without an allowed request"


def _within(folder: str, name: str, allowed: set[str]) -> bool:
    path = Path(os.path.realpath(os.path.join(folder, name)))
    return any(str(one) in allowed for one in (path, *path.parents))
