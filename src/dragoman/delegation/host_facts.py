"""Routing facts about peers on other machines: ``codex@box`` is codex on the host box.

The facts come from the settings and the last `dragoman hosts check`, without a connection. A peer
on a host has to be enabled by such a name, so that no files leave this machine unless the user
allows it.
`collect_facts` adds health, budget and record, `host_attempt` runs the work on the host.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dragoman.catalogue.descriptor import Descriptor
from dragoman.catalogue.enforcement import gap
from dragoman.catalogue.host_checks import HostAgent, HostCheck, last_check
from dragoman.catalogue.session_settings import lacking
from dragoman.config.hosts import destination_of, on_host, split_peer
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.routing import PeerFacts
from dragoman.policy import Policy, allows_everything
from dragoman.policy.rules import Rule
from dragoman.runs import git
from dragoman.runs.context import ALWAYS_ENABLED, RunContext

WILD: Final = frozenset("*?[{")
"""Characters that end the literal prefix of a glob."""


def host_peers(place: RunContext) -> list[str]:
    """Return the names of all peers on hosts: those that are enabled, and those that the last check
    found installed."""
    settings = place.config.settings
    enabled = [name for name in settings.enabled_peers if split_peer(name)[1] is not None]
    found = [
        on_host(agent.name, host)
        for host in settings.hosts
        if (check := last_check(place.paths, host)) is not None
        for agent in check.agents
        if agent.installed and agent.name not in ALWAYS_ENABLED
    ]
    return list(dict.fromkeys([*enabled, *found]))


def host_facts(
    name: str, request: DelegationRequest, place: RunContext, policy: Policy
) -> PeerFacts:
    """Return what is known about a peer on a host. `policy` is the policy that would apply to its
    work."""
    peer, host = split_peer(name)
    assert host is not None
    settings = place.config.settings
    own = settings.for_peer(name)
    descriptor = place.catalogue.get(peer) if peer in place.catalogue else None
    check = last_check(place.paths, host)
    agent = None if check is None else _agent(check, peer)
    installed = check is None or check.dragoman is None or bool(agent and agent.installed)
    return PeerFacts(
        name=name,
        host=host,
        host_problem=_problem(host, request, place, check),
        host_note=_note(check, agent),
        roles=_roles(own.roles, agent, descriptor),
        installed=installed,
        hint="" if installed else f"dragoman hosts check {host}",
        enabled=place.is_enabled(name),
        tiers={}
        if descriptor is None
        else {str(t): model for t, model in descriptor.tiers.items()},
        unenforced=""
        if request.allow_unenforced or own.allow_unenforced
        else _unenforced(policy, request, place, name, descriptor),
        lacking=_lacking(descriptor, request),
    )


def _agent(check: HostCheck, peer: str) -> HostAgent | None:
    return next((agent for agent in check.agents if agent.name == peer), None)


def _roles(
    chosen: tuple[str, ...] | None, agent: HostAgent | None, descriptor: Descriptor | None
) -> tuple[str, ...]:
    """Return the roles from the settings (`chosen`), else those that the host reported, else those
    of the local descriptor; empty if there are none."""
    if chosen is not None:
        return chosen
    if agent is not None and agent.roles:
        return agent.roles
    return () if descriptor is None else descriptor.roles


def _problem(
    host: str, request: DelegationRequest, place: RunContext, check: HostCheck | None
) -> str:
    settings = place.config.settings.hosts.get(host)
    if settings is None:
        return f"your settings have no host {host}: `dragoman hosts add {host}`"
    if check is None:
        return f"{host} was never checked: `dragoman hosts check {host}`"
    if check.destination != destination_of(host, settings):
        return f"the address of {host} changed after its check: `dragoman hosts check {host}`"
    if check.dragoman is None:
        return f"dragoman is not installed on {host}: `dragoman hosts bootstrap {host}`"
    if not _in_repository(request.workspace):
        return (
            f"only files in a git repository can be sent to {host}: run `git init`, or work there "
            f"with `dragoman --host {host} delegate`"
        )
    return ""


def _in_repository(folder: Path) -> bool:
    return any(git.has_repository(each) for each in (folder, *folder.parents))


def _note(check: HostCheck | None, agent: HostAgent | None) -> str:
    if check is None or agent is None:
        return ""
    login = agent.login if agent.login not in ("", "unknown") else ""
    return f"checked {_age(check.checked_at)} ago" + (f", login: {login}" if login else "")


def _age(at: float) -> str:
    seconds = max(time.time() - at, 0.0)
    for unit, name in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit or (unit == 60.0 and seconds >= 60.0):
            return f"{seconds // unit:.0f} {name}"
    return f"{seconds:.0f} s"


def _lacking(descriptor: Descriptor | None, request: DelegationRequest) -> str:
    if request.cold:
        # The host always uses a broker, so that the work survives the connection.
        return "--cold"
    if request.session.allow_tool:
        # The local policy must be enforced on the host, but an allowed tool is never asked about.
        return "--allow-tool"
    return lacking(descriptor, request.session) if descriptor is not None else ""


def _unenforced(
    policy: Policy,
    request: DelegationRequest,
    place: RunContext,
    name: str,
    descriptor: Descriptor | None,
) -> str:
    """Return why the local policy could not be enforced on the host; empty if no reason is known
    here, or if the policy restricts nothing."""
    if allows_everything(policy):
        return ""
    for rule in _rules(policy):
        if path := _local_path(rule, request.workspace):
            return (
                f"the rule `{rule}` names {path}, but the files have another path on the host: "
                "make the path relative to the workspace"
            )
    # Only the host can judge an agent that is unknown here; it refuses one it cannot restrict.
    if descriptor is None:
        return ""
    return gap(descriptor, card=None, mode=place.config.settings.for_peer(name).mode)


def _rules(policy: Policy) -> Iterator[Rule]:
    yield from policy.rules
    yield from policy.limits
    for ceiling in policy.ceilings:
        yield from _rules(ceiling)


def _local_path(rule: Rule, workspace: Path) -> str:
    """Return the first absolute path of a rule that names the workspace, something in it, or a
    directory above it other than the root; empty if none does, or if the rule does not restrict."""
    if not rule.restricts:
        return ""
    top = os.path.realpath(workspace)
    for path in rule.paths:
        plain = os.path.expanduser(path)
        if not plain.startswith("/"):
            continue
        fixed = "".join(_until_wild(plain)).rstrip("/") or "/"
        inside = os.path.realpath(fixed)
        # A rule for a directory above the workspace also covers the workspace.
        if inside == top or inside.startswith(f"{top}/") or top.startswith(f"{inside}/"):
            if inside != "/":
                return path
    return ""


def _until_wild(path: str) -> Iterator[str]:
    for letter in path:
        if letter in WILD:
            return
        yield letter
