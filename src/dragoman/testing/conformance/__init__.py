"""Checks whether an agent or a client keeps to ACP v1; public, and used on dragoman itself.

It has a manifest of the protocol's requirements, checks that try them against any command
line, and an agent that tries them against any client. It speaks raw JSON-RPC, so that it can say
what no proper client or agent would, and does not use dragoman's own client and agent, which it
judges. The checks are listed in docs/reference/conformance.md.

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
