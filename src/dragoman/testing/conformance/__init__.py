"""Check whether an agent or a client conforms to ACP v1. Public, and used to test dragoman itself.

Contains a manifest of the protocol's requirements, checks for any agent that a command line can
start, and a probe agent that checks any client. It uses raw JSON-RPC, because it must also send
what a correct client or agent never sends. It does not use dragoman's own client and agent, which
it tests. docs/reference/conformance.md lists the checks.

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
