"""Permission policy for delegated work, never wider than the policy of the delegating process.

A policy is passed on to nested delegations in DRAGOMAN_CEILING, in the peer's environment. It is
also read from the environments of the parent processes, because some peers start their tools with a
new environment. `policy` evaluates the rules.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from dragoman.config.schema import Permissions, Settings
from dragoman.decoders import decode_typed
from dragoman.errors import ConfigInvalid
from dragoman.policy import Policy, for_whom, narrowed, of_settings, preset
from dragoman.runs.lineage import Lineage, ancestors
from dragoman.transports.process.identity import PROC
from dragoman.wire.messages import UNDECODABLE

VARIABLE: Final = "DRAGOMAN_CEILING"

Ceilings: TypeAlias = tuple[Policy, ...]


def inherited_ceilings(
    lineage: Lineage,
    environ: Mapping[str, str] | None = None,
    *,
    pid: int | None = None,
    proc: Path = PROC,
) -> Ceilings:
    """Return the policies of the delegations above this process; empty if a user started it.

    In a nested delegation a missing ceiling denies everything: an unreadable limit must not mean
    "no limit". Raises `ConfigInvalid` if the variable is invalid.
    """
    own = (os.environ if environ is None else environ).get(VARIABLE, "")
    found = [_read(own)] if own else []
    for above in ancestors(pid or os.getpid(), proc, (VARIABLE,)):
        if text := above.get(VARIABLE, ""):
            found.append(_read(text))
    if not found and lineage.depth:
        return (preset("deny-all"),)
    return tuple(dict.fromkeys(found))


def _read(text: str) -> Policy:
    try:
        return decode_typed(text, Policy)
    except UNDECODABLE as error:
        raise ConfigInvalid(VARIABLE, f"not written by dragoman: {error}; unset it") from error


def environment(policy: Policy, *, peer: str, role: str = "") -> dict[str, str]:
    """Return the environment variable that passes a policy on to the peer that works under it.

    Rules for this peer or role are made general: the nested delegation uses another peer in another
    role, and a rule that names these would no longer match.
    """
    return {VARIABLE: msgspec.json.encode(for_whom(policy, peer=peer, role=role)).decode()}


def policy_for(
    settings: Settings,
    peer: str,
    *,
    wished: Permissions | None,
    attended: bool,
    ceilings: Ceilings,
) -> Policy:
    """Return the policy for a peer: the preset `wished`, or that of the settings if it is None,
    with the rules of the settings, narrowed by every ceiling. Unless `attended` (a user can be
    asked), the preset `ask` becomes `approve-reads`."""
    chosen = wished or settings.permissions_for(peer)
    if chosen == "ask" and not attended:
        chosen = "approve-reads"
    policy = of_settings(settings.policy, chosen)
    for ceiling in ceilings:
        policy = narrowed(ceiling, policy)
    return policy
