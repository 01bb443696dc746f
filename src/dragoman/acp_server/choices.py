"""Session config options of the ACP server: peer, role, and the options of the chosen peer.

Validates only the peer and the role. The peer's options come from `gateway.choices` and are
validated by the peer; one whose id collides with one of our options gets a prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from dragoman.agent.settings import SessionSettings
from dragoman.catalogue.roles import ROLES
from dragoman.dialects.acp import v1 as acp
from dragoman.gateway.choices import Choices
from dragoman.runs.context import ALWAYS_ENABLED

if TYPE_CHECKING:
    from dragoman.runs.context import RunContext

AUTO: Final = "auto"
"""The value used instead of a peer's name to let the router choose a peer for each prompt."""

PEER_OPTION: Final = "peer"
ROLE_OPTION: Final = "role"
OURS: Final = frozenset({PEER_OPTION, ROLE_OPTION})

PEERS_OWN: Final = "peer."
"""Prefix for the ids of a peer's options that collide with ours."""

FIRST_ROLE: Final = "execute"


def peers_in(place: RunContext) -> list[str]:
    """Return the names of the peers that may be chosen: those that the user enabled, and those that
    are always available."""
    catalogue = place.catalogue
    enabled = [name for name in place.config.settings.enabled_peers if name in catalogue]
    return list(dict.fromkeys([*enabled, *(n for n in sorted(ALWAYS_ENABLED) if n in catalogue)]))


def first_role(place: RunContext) -> str:
    """Return the default role of a session: `FIRST_ROLE`, or the first claimed role if peers claim
    only others."""
    roles = place.role_catalogue().roles
    return FIRST_ROLE if FIRST_ROLE in roles or not roles else roles[0]


class ServerChoices(SessionSettings):
    """The config options of one session: its peer, its role, and the options of that peer."""

    __slots__ = ("_place", "_theirs", "peer", "role")

    def __init__(self, place: RunContext, *, peer: str, role: str) -> None:
        super().__init__((), ())
        self._place = place
        self.peer = peer
        self.role = role
        self._theirs: Choices | None = None

    def show(self, theirs: Choices | None) -> None:
        """Set the options of the current peer, which are offered after ours; None to offer none."""
        self._theirs = theirs

    @property
    def first_mode(self) -> str | None:
        return None if self._theirs is None else self._theirs.first_mode

    def has_mode(self, mode_id: object) -> bool:
        return self._theirs is not None and self._theirs.has_mode(mode_id)

    def allows(self, option_id: str, value: object) -> bool:
        if option_id == PEER_OPTION:
            return value == AUTO or value in peers_in(self._place)
        if option_id == ROLE_OPTION:
            return value in self._place.role_catalogue().roles
        return self._theirs is not None

    def mode_state(self, mode_id: str | None) -> acp.SessionModeState | None:
        return None if self._theirs is None else self._theirs.mode_state(mode_id)

    def config_options(
        self, mode_id: str | None, values: Mapping[str, str | bool], client: acp.ClientCapabilities
    ) -> list[acp.SessionConfigOption]:
        options: list[acp.SessionConfigOption] = [self._peers(), self._roles()]
        if self._theirs is not None:
            for option in self._theirs.config_options(mode_id, values, client):
                options.append(_renamed(option))
        return options

    def _peers(self) -> acp.SessionConfigSelect:
        names = peers_in(self._place)
        if self.peer != AUTO and self.peer not in names:
            # A loaded session keeps its peer, even if that peer is no longer enabled.
            names.append(self.peer)
        choices = [
            acp.SessionConfigSelectOption(
                value=AUTO,
                name="Auto",
                description="Each prompt is delegated to a peer that claims the role.",
            )
        ]
        catalogue = self._place.role_catalogue()
        for name in names:
            known = catalogue.get(name) if name in catalogue else None
            choices.append(
                acp.SessionConfigSelectOption(
                    value=name,
                    name=name if known is None else known.title or name,
                    description=None if known is None else ", ".join(known.roles),
                )
            )
        return acp.SessionConfigSelect(
            id=PEER_OPTION,
            name="Peer",
            description="The peer that works in this session.",
            current_value=self.peer,
            options=choices,
        )

    def _roles(self) -> acp.SessionConfigSelect:
        roles = self._place.role_catalogue().roles
        return acp.SessionConfigSelect(
            id=ROLE_OPTION,
            name="Role",
            description="The role for which the router chooses a peer, if the peer is auto.",
            current_value=self.role,
            options=[
                acp.SessionConfigSelectOption(value=role, name=role, description=ROLES.get(role))
                for role in dict.fromkeys([*roles, self.role])
            ],
        )


def theirs(option_id: str) -> str:
    """Return the id under which the peer knows one of its options. `option_id` is the id that the
    client uses."""
    return option_id.removeprefix(PEERS_OWN)


def _renamed(option: acp.SessionConfigOption) -> acp.SessionConfigOption:
    from msgspec.structs import replace

    id = getattr(option, "id", "")
    if id in OURS or id.startswith(PEERS_OWN):
        return replace(option, id=f"{PEERS_OWN}{id}")
    return option
