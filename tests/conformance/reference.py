"""Generate docs/reference/conformance.md from the manifest and the checks.

``python -m tests.conformance.reference`` writes the page, including the text around the tables. A
test checks that the page is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from dragoman.testing.conformance import agents, client_checks, requirements
from dragoman.testing.conformance.checks import Check
from dragoman.testing.conformance.manifest import Requirement, Side, parse

CODEX = Path(__file__).with_name("codex.toml")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "conformance.md"

HEAD = """\
# Conformance

This page lists the requirements of version 1 of the Agent Client Protocol for agents and clients,
the checks that test any program against them, and how dragoman itself is tested against them.
[Check an agent or a client](../how-to/check-an-agent.md) shows how to run the checks. The last part
covers the Codex app-server protocol, which dragoman speaks as a client only.

The page is generated from two manifests, for ACP (`dragoman.testing.conformance.requirements`) and
for Codex (`tests/conformance/codex.toml`), and a test compares it with them.

## Levels and verdicts

| level | meaning | violation |
|---|---|---|
| MUST, MUST NOT | required by the text of the protocol | failed |
| FACT | defined by the schema of the protocol | failed |
| SHOULD, SHOULD NOT | recommended | warned |
| IMPL | not in the protocol; peers rely on it, or the protocol leaves it open | warned |
| MAY | optional, but to be done in the defined way | warned |

A check has the strictest level of its requirements, or SHOULD if the protocol does not define the
exact behaviour in the tested case. A program conforms if no check failed and at least one passed.
Checks that do not apply are skipped, with the reason.
"""

REQUIREMENTS = """
## Requirements

The last column names the checks and tests which prove that dragoman's own agent kit (A) and client
(C) meet a requirement, or says why no proof is claimed. The cell is empty if there is no separate
proof; every MUST, MUST NOT, SHOULD and SHOULD NOT has a proof or a reason.

"""

CODEX_HEAD = """
## Codex app-server

The protocol has no numbered requirements, so the ids are dragoman's. MUST comes from the server's
own documentation, FACT from its schema or from what version 0.166.0 does, and IMPL is a choice of
dragoman. The tests below `tests/peers` run the real `codex`; most others run a scripted server as a
child process.

"""


def codex_requirements() -> dict[str, Requirement]:
    """The requirements of the Codex app-server protocol for a client, by id."""
    return parse(CODEX.read_text("utf-8"))


def page() -> str:
    """The whole page."""
    turned = {check.check.name for check in agents.ALL if check.turns}
    parts = [
        HEAD,
        "\n## Checks of agents\n\nChecks marked with * make the agent call its model, and run only "
        "on request.\n\n",
        _checks([check.check for check in agents.ALL], turned),
        "\n## Checks of clients\n\n",
        _checks(list(client_checks.CHECKS.values()), set()),
        REQUIREMENTS,
        _requirements(),
        CODEX_HEAD,
        _codex(),
    ]
    return "".join(parts)


def _checks(checks: list[Check], turned: set[str]) -> str:
    lines = ["| check | level | expects | requirements |", "|---|---|---|---|"]
    for check in checks:
        name = f"`{check.name}`{' *' if check.name in turned else ''}"
        lines.append(f"| {name} | {check.level} | {check.says} | {', '.join(check.ids)} |")
    return "\n".join(lines) + "\n"


def _requirements() -> str:
    lines = ["| id | side | level | requirement | proof |", "|---|---|---|---|---|"]
    for entry in requirements().values():
        side = "both" if len(entry.sides) == 2 else entry.sides[0]
        proofs = "; ".join(_proofs(entry))
        lines.append(f"| {entry.id} | {side} | {entry.level} | {entry.says} | {proofs} |")
    return "\n".join(lines).replace("|  |", "| |") + "\n"


def _codex() -> str:
    lines = ["| id | level | requirement | proof |", "|---|---|---|---|"]
    for entry in codex_requirements().values():
        proofs = "; ".join(_proofs(entry)).removeprefix("C: ")
        lines.append(f"| {entry.id} | {entry.level} | {entry.says} | {proofs} |")
    return "\n".join(lines) + "\n"


def _proofs(entry: Requirement) -> Iterator[str]:
    for side in entry.sides:
        proof = entry.proofs[side]
        names = [f"`{name}`" for name in _named(entry.id, side)]
        names += [f"`{test}`" for test in proof.tests]
        if proof.not_claimed:
            names.append(f"not claimed: {proof.not_claimed}")
        if names:
            yield f"{side[0].upper()}: {', '.join(names)}"


def _named(id: str, side: Side) -> Iterator[str]:
    checks = [check.check for check in agents.ALL] + list(client_checks.CHECKS.values())
    return (check.name for check in checks if check.side == side and id in check.ids)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    sys.stdout.write(f"{PAGE}\n")
