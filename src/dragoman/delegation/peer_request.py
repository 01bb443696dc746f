"""Build the run request for a peer that the caller names, from the settings.

Used by the console, `serve acp`, `serve mcp` and delegated work (`attempt`), so that settings,
policy, enforcement and the limits of nested work are the same everywhere. Each of them adds its own
parts, such as the session and callbacks. `cli.run_plan` also applies the options of a command line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dragoman.catalogue.enforcement import enforce
from dragoman.catalogue.launch import LaunchSpec, way_to
from dragoman.client.options import ConnectOptions
from dragoman.delegation.permission_ceiling import environment, inherited_ceilings, policy_for
from dragoman.policy import Approver, Policy, allows_everything, unattended
from dragoman.runs.lineage import Lineage, inherited
from dragoman.runs.run_values import RunRequest

if TYPE_CHECKING:
    from dragoman.catalogue.enforcement import Enforced
    from dragoman.client.permissions import Permit
    from dragoman.runs.adapter_run import AdapterWork
    from dragoman.runs.context import RunContext


class AttendedTerms(NamedTuple):
    """How a peer that a person uses directly is started, what it may do, and the lineage of this
    process."""

    launch: LaunchSpec
    policy: Policy
    lineage: Lineage


def attended_terms(peer: str, place: RunContext) -> AttendedTerms:
    """Return how to start a peer for a person in an editor or a browser, and what the peer may do,
    given that the person can be asked for permission. Raises `UnknownPeer` or `NotInstalled`.

    A delegated agent may have started this process: its limits apply here as well.
    """
    settings = place.config.settings
    lineage = inherited(place.environ)
    policy = policy_for(
        settings,
        peer,
        wished=None,
        attended=True,
        ceilings=inherited_ceilings(lineage, place.environ),
    )
    launch = way_to(peer, catalogue=place.catalogue, settings=settings, environ=place.environ)
    return AttendedTerms(launch, policy, lineage)


def peer_request(
    launch: LaunchSpec,
    *,
    place: RunContext,
    workspace: Path,
    policy: Policy,
    lineage: Lineage,
    adapter: AdapterWork | None,
    warm: bool,
    caller: Permit | None = None,
    ask_before_preset: bool = False,
    enforced: Enforced | None = None,
    role: str | None = None,
) -> RunRequest:
    """Return the request for a peer, without session and prompt.

    `lineage` is that of the peer. If its depth is not 0, the peer gets the lineage and the policy
    in its environment. `role` is the kind of work; None for that of the adapter, if there is one.
    `enforced` is how the policy is enforced. If it is None, that is decided here; this raises
    `PolicyNotEnforced` if the policy restricts the peer and is known not to be enforceable, unless
    the settings allow that.
    """
    config, peer = place.config, launch.name
    settings = config.settings
    own = settings.for_peer(peer)
    if enforced is None:
        enforced = enforce(
            launch,
            restricts=not allows_everything(policy),
            mode=own.mode,
            card=place.cards().latest(peer),
            allow_unenforced=own.allow_unenforced,
        )
    way = enforced.way
    if role is None:
        role = "" if adapter is None else adapter.role
    nested = {**lineage.environment(warm=warm), **environment(policy, peer=peer, role=role)}
    return RunRequest(
        peer=peer,
        enforced=enforced,
        adapter=adapter,
        workspace=workspace,
        mode=own.mode,
        model=own.model,
        approver=Approver(
            policy,
            peer,
            str(workspace),
            role=role,
            caller=caller,
            ask_before_preset=ask_before_preset,
            titled=way.quirks.command_titles,
        ),
        unattended=unattended(policy, peer=peer, role=role),
        budgets=settings.budgets(way.budgets()),
        warm=warm,
        ttl=config.chosen_ttl,
        max_idle=settings.max_idle_brokers,
        paths=place.paths,
        options=ConnectOptions(
            inherit=own.env,
            env=nested if lineage.depth else {},
            max_line_size=settings.max_line_size,
        ),
    )
