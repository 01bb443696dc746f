"""Checks whether an agent or a client conforms to ACP v1; public, and used on dragoman itself.

Has a manifest of the protocol's requirements, checks that test them against any command line, and
an agent that tests them against any client. It uses raw JSON-RPC, so that it can send what no
correct client or agent would, and does not use dragoman's own client and agent, which it checks.
The checks are listed in docs/reference/conformance.md.

    report = await check_agent(["some-agent", "--acp"])
    print(report.to_text())

From a shell: ``python -m dragoman.testing.conformance -- some-agent --acp``.
"""

from __future__ import annotations

from dragoman.testing.conformance.agents import check_agent, check_stream
from dragoman.testing.conformance.clients import ClientProbe, check_client, client_command
from dragoman.testing.conformance.manifest import Requirement, requirements
from dragoman.testing.conformance.report import Finding, Report, Verdict

__all__ = [
    "ClientProbe",
    "Finding",
    "Report",
    "Requirement",
    "Verdict",
    "check_agent",
    "check_client",
    "check_stream",
    "client_command",
    "requirements",
]
