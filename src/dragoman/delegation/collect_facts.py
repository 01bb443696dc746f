"""Collect the facts for routing: installed, enabled, health, budget, card and policy of each peer.

Also defines the fixed order: enabled peers in the user's order, the other peers in catalogue order,
those on hosts (`host_facts`), the local model, scout. Reads files and the ledger, and starts
nothing. `routing` decides.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import structs

from dragoman.catalogue import Descriptor
from dragoman.catalogue.card import Card, RungVerdict
from dragoman.catalogue.enforcement import gap
from dragoman.catalogue.session_settings import lacking
from dragoman.config.hosts import split_peer
from dragoman.config.schema import LocalModelSettings, PeerSettings
from dragoman.delegation.bandit import size_of
from dragoman.delegation.health import BREAKER
from dragoman.delegation.host_facts import host_facts, host_peers
from dragoman.delegation.local_model.model import MAX_TOKENS, LocalModel
from dragoman.delegation.parked import surroundings_here
from dragoman.delegation.peer_status import PeerStatus, row_of
from dragoman.delegation.permission_ceiling import Ceilings, inherited_ceilings, policy_for
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.routing import CardFacts, Inputs, PeerFacts, TrackRecord
from dragoman.delegation.spending_limits import DAY, has_daily, over_budget
from dragoman.errors import ConfigInvalid, StoreError, UnknownPeer, UsageError
from dragoman.policy import allows_everything
from dragoman.runs.context import ALWAYS_ENABLED, RunContext
from dragoman.runs.lineage import Lineage
from dragoman.store.ledger.ledger import Ledger
from dragoman.store.values import Health

LOCAL: Final = "local-model"
"""Name of the local model in places that hold a peer's name."""

RECORD_AGE: Final = 90 * DAY
"""Seconds for which a delegation counts in a peer's record. Older ones usually ran on an earlier
release of the peer."""

_NO_RECORD: Final = TrackRecord()

_COMMAND: Final = re.compile(r"`([^`]+)`")


def gather(
    request: DelegationRequest,
    place: RunContext,
    *,
    ledger: Ledger | None,
    lineage: Lineage,
    now: float,
) -> Inputs:
    """Collect the inputs of the routing decision for a request.

    Raises `StoreError` if daily limits are set and the usage cannot be read, `UnknownPeer` if the
    named peer has a descriptor that was rejected, `UsageError` if nested work requests
    `--allow-tool`, and `ConfigInvalid` if the settings of the local model or an inherited ceiling
    are invalid.
    """
    settings = place.config.settings
    if request.peer is not None and (problem := place.catalogue.problem_of(request.peer)):
        raise UnknownPeer(request.peer, problem=problem)
    healths = {} if ledger is None else ledger.healths()
    records = _records(request.role, ledger, now)
    spending = _Spending(place, ledger, now)
    ceilings = inherited_ceilings(lineage, place.environ)
    if request.session.allow_tool and ceilings:
        # The peer would not ask, so the policy of the delegating agent could not be enforced.
        raise UsageError(
            "--allow-tool cannot be used in delegated work: it would bypass the policy"
        )
    rows = [row_of(name, place) for name in in_fixed_order(place)]
    peers = [
        structs.replace(
            _facts(
                row,
                healths.get(row.descriptor.name),
                spending,
                now,
                surroundings_here(row.descriptor.name, place),
            ),
            unenforced=_unenforced(row, request, place, ceilings),
            lacking=lacking(row.descriptor, request.session),
            adapter_problem=place.adapter_problem(row.descriptor.name) if row.enabled else "",
            record=records.get(row.descriptor.name, _NO_RECORD) if records is not None else None,
        )
        for row in rows
    ]
    for name in host_peers(place):
        policy = policy_for(
            settings, name, wished=request.permissions, attended=True, ceilings=ceilings
        )
        judged = _judged(host_facts(name, request, place, policy), healths.get(name), spending, now)
        record = records.get(name, _NO_RECORD) if records is not None else None
        peers.append(structs.replace(judged, record=record))
    order = {name: number for number, name in enumerate(settings.enabled_peers)}
    peers.sort(key=lambda peer: (peer.always, order.get(peer.name, len(order))))
    local = settings.local_model
    if local.api is not None:
        model = local_model(place)
        roles = {role for peer in peers for role in peer.roles} if local.competes else set()
        at = next((n for n, peer in enumerate(peers) if peer.always), len(peers))
        peers.insert(
            at,
            _judged(
                PeerFacts(
                    name=LOCAL,
                    roles=tuple(sorted(roles)),
                    enabled=True,
                    tiers={"default": model.model},
                    lacking=lacking(None, request.session),
                    always=not local.competes,
                    record=None if records is None else records.get(LOCAL, _NO_RECORD),
                ),
                healths.get(LOCAL),
                spending,
                now,
            ),
        )
    return Inputs(
        role=request.role,
        tier=request.tier,
        model=request.model,
        peer=request.peer,
        size=size_of(request.prompt, request.files),
        peers=tuple(peers),
        depth=lineage.depth,
        max_depth=settings.max_depth,
        adaptive=settings.adaptive,
        posteriors={} if ledger is None else ledger.posteriors(),
        require_card=settings.require_card,
    )


def _records(role: str, ledger: Ledger | None, now: float) -> dict[str, TrackRecord] | None:
    """Return each peer's record for a role, or None if there is no ledger to read."""
    if ledger is None:
        return None
    return {
        row.key or "": TrackRecord(
            finished=row.finished,
            done=row.done,
            costs=row.costs,
            priced=row.finished - row.cost_unknown,
            seconds=row.seconds,
        )
        for row in ledger.stats("peer", role=role, since=now - RECORD_AGE)
    }


def _unenforced(
    row: PeerStatus, request: DelegationRequest, place: RunContext, ceilings: Ceilings
) -> str:
    """Return why the policy of this request would not be enforced for a peer; empty if no reason is
    known, if the policy restricts nothing, or if that is allowed."""
    settings, name = place.config.settings, row.descriptor.name
    own = settings.for_peer(name)
    if request.allow_unenforced or own.allow_unenforced:
        return ""
    policy = policy_for(
        settings, name, wished=request.permissions, attended=True, ceilings=ceilings
    )
    if allows_everything(policy):
        return ""
    return gap(row.descriptor, card=row.card, mode=own.mode)


def in_fixed_order(place: RunContext) -> list[str]:
    """Return the names of all peers on this machine in the fixed order, which applies if the bandit
    does not decide."""
    names = place.catalogue.names
    wanted = [name for name in place.config.settings.enabled_peers if name in names]
    ordered = dict.fromkeys([*wanted, *names])
    return sorted(ordered, key=lambda name: name in ALWAYS_ENABLED)


def local_model(place: RunContext) -> LocalModel:
    """Return the configured local model. Raises `ConfigInvalid` if none is configured, its settings
    are invalid, or a peer has its name."""
    local: LocalModelSettings = place.config.settings.local_model
    if local.api is None:
        raise ConfigInvalid("local_model", "api is not set")
    if LOCAL in place.catalogue:
        raise ConfigInvalid("local_model", f"a peer is also named {LOCAL}: rename it")
    return LocalModel(
        api=local.api,
        model=local.model,
        base_url=local.base_url,
        key_variable=local.key_variable,
        max_tokens=MAX_TOKENS if local.max_tokens is None else local.max_tokens,
        system=local.system,
    )


def login_of(descriptor: Descriptor | None) -> str:
    """Return the command that logs in to a peer, or an empty string if its descriptor names
    none."""
    found = _COMMAND.search("" if descriptor is None else descriptor.credentials.login)
    return found[1] if found else ""


class _Spending:
    """Compares the usage of the last 24 hours with the daily limits. Reads the ledger only if there
    are such limits."""

    def __init__(self, place: RunContext, ledger: Ledger | None, now: float) -> None:
        self._settings = place.config.settings
        self._ledger = ledger
        self._since = now - DAY
        limits = self._settings.limits
        self._all = (
            over_budget(limits, self._ask().spent(None, self._since)) if has_daily(limits) else None
        )

    def over(self, peer: str) -> str | None:
        if self._all is not None:
            return self._all
        # A limit for codex also applies to codex@box, which may have its own limits as well.
        for name in dict.fromkeys([split_peer(peer)[0], peer]):
            own = self._settings.peer.get(name, PeerSettings()).limits
            if has_daily(own):
                over = over_budget(own, self._ask().spent(name, self._since), whose=name)
                if over is not None:
                    return over
        return None

    def _ask(self) -> Ledger:
        if self._ledger is None:
            raise StoreError(
                "the ledger",
                "limits are set, but the recorded usage cannot be read",
                remedy="repair the ledger, or remove the limits",
            )
        return self._ledger


def _facts(
    row: PeerStatus, health: Health | None, spending: _Spending, now: float, surroundings: str
) -> PeerFacts:
    descriptor = row.descriptor
    facts = PeerFacts(
        name=descriptor.name,
        roles=descriptor.roles,
        installed=row.installed,
        hint="" if row.installed else descriptor.install.hint,
        enabled=row.enabled,
        card=None if row.card is None else _card(row.card),
        tiers={str(tier): model for tier, model in descriptor.tiers.items()},
        always=descriptor.name in ALWAYS_ENABLED,
    )
    return _judged(facts, health, spending, now, surroundings)


def _judged(
    facts: PeerFacts,
    health: Health | None,
    spending: _Spending,
    now: float,
    surroundings: str = "",
) -> PeerFacts:
    changes: dict[str, object] = {"over_budget": spending.over(facts.name)}
    if health is not None:
        changes["breaker"] = BREAKER.state(health, now)
        if (park := health.parking(now, surroundings)) is not None:
            changes |= {"parked_until": park.until, "parked_why": park.why}
    return structs.replace(facts, **changes)


def _card(card: Card) -> CardFacts:
    facts = card.facts
    failed = [rung for rung in card.rungs if rung.verdict is RungVerdict.FAIL]
    problem = ""
    if failed:
        first = failed[0]
        problem = f"{first.rung}: {first.evidence}{first.remedy and '; ' + first.remedy}"
    # A login that was missing at verification may exist in another shell or since then. The next
    # turn shows it, and parks the peer if the login is still missing.
    no_login = facts.authenticated is False
    return CardFacts(
        usable=card.usable or no_login,
        turns_ok=None if no_login else facts.echo,
        asks_permission=facts.asks_permission,
        parallel=facts.parallel_sessions,
        models=facts.parent_models or facts.models,
        problem=problem,
    )
