"""Slash commands of the ACP server: their names, and the text of /peers, /explain and /stats.

The texts are Markdown. `/delegate` runs in `acp_server.session`; commands of the peer are sent to
the peer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dragoman.dialects.acp import v1 as acp
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from dragoman.events.parts import SlashCommand
    from dragoman.runs.context import RunContext

PEERS: Final = "peers"
DELEGATE: Final = "delegate"
EXPLAIN: Final = "explain"
STATS: Final = "stats"

COMMANDS: Final = {
    PEERS: ("Show the peers: installed, enabled, verified, and what each is for", None),
    DELEGATE: ("Delegate a task to a peer that claims its role", "ROLE what to do"),
    EXPLAIN: ("Show which peers routing would choose for a role, and why not the others", "ROLE"),
    STATS: ("Show the results and the cost of delegated work by role and peer", None),
}
"""Our commands. The values are the description and the argument hint of each."""

EXAMPLE_PROMPT: Final = "what would be decided"
"""A short prompt that stands in for the real one, which `/explain` does not have."""


def available(theirs: Sequence[SlashCommand]) -> list[acp.AvailableCommand]:
    """Return our commands, and those of the peer whose names do not collide with ours."""
    told = [
        acp.command(name, description=text, hint=hint) for name, (text, hint) in COMMANDS.items()
    ]
    return told + [
        acp.command(one.name, description=one.description, hint=one.hint)
        for one in theirs
        if one.name not in COMMANDS
    ]


def role_and_work(text: str, roles: Sequence[str]) -> tuple[str, str]:
    """Return the role and the task in the arguments of `/delegate`. Raises `UsageError` if the
    first word is not one of `roles`, or no task follows."""
    role, _, work = text.strip().partition(" ")
    if role not in roles or not work.strip():
        raise UsageError(f"usage: `/{DELEGATE} ROLE what to do`; the roles are {', '.join(roles)}")
    return role, work.strip()


def peers_text(place: RunContext) -> str:
    """Format all peers as a table."""
    from dragoman.delegation.peer_status import overview

    rows = []
    for row in overview(place):
        peer = row.descriptor
        state = "installed" if row.installed else f"not installed: {peer.install.hint}"
        enabled = "yes" if row.enabled else "no"
        roles = ", ".join(peer.roles)
        rows.append([peer.name, enabled, state, row.version or "", row.card_state, roles])
    # Usable peers come first.
    rows.sort(key=lambda row: (row[1] != "yes", row[2] != "installed"))
    return table(["peer", "enabled", "state", "version", "card", "roles"], rows)


def explain_text(place: RunContext, role: str, workspace: Path) -> str:
    """Explain which peer routing would choose for a role now. Raises `UsageError` if the role is
    empty, and `UnknownRole` if no peer claims it."""
    from dragoman.delegation import DelegationRequest, decide_for
    from dragoman.delegation.peer_status import clock
    from dragoman.delegation.routing import explain

    role = role.strip()
    if not role:
        roles = ", ".join(place.role_catalogue().roles)
        raise UsageError(f"usage: `/{EXPLAIN} ROLE`; the roles are {roles}")
    request = DelegationRequest(role=role, prompt=EXAMPLE_PROMPT, workspace=workspace)
    return "```text\n" + "\n".join(explain(decide_for(request, place), clock=clock)) + "\n```"


def stats_text(place: RunContext) -> str:
    """Format the results of delegation as a table with a row for each role and peer."""
    from dragoman.store.ledger.ledger import Ledger, ledger_path

    with Ledger.open(ledger_path(place.paths.state), read_only=True) as ledger:
        rows = ledger.stats("work")
    if not rows:
        return "Nothing has been delegated yet."
    head = ["role", "peer", "done", "cost", "unknown cost", "seconds", "tokens in", "out"]
    cells = [
        [
            row.key or "(not reported)",
            row.peer or "(not reported)",
            f"{row.done} of {row.attempts}",
            ", ".join(f"{amount:.4f} {unit}" for unit, amount in row.costs.items()),
            str(row.cost_unknown or ""),
            "" if row.seconds is None else f"{row.seconds:.1f}",
            "" if row.input_tokens is None else str(row.input_tokens),
            "" if row.output_tokens is None else str(row.output_tokens),
        ]
        for row in rows
    ]
    return table(head, cells)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
