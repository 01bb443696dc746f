"""`python -m dragoman.testing.conformance`: check an agent, or a client, from a shell.

Has the command line and the exit code; `agents` and `clients` check.

Exit codes: 0 if nothing that the protocol requires is missing, 1 if something is, 2 if the command
line is wrong or the program cannot be started.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from dragoman.errors import SpawnError, UsageError
from dragoman.testing.conformance import agents, client_checks, clients
from dragoman.testing.conformance.checks import DEFAULT_LONG_PROMPT, DEFAULT_PROMPT, Check
from dragoman.testing.conformance.report import Finding

CONFORMS, FAILS, USAGE = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m dragoman.testing.conformance",
        usage="%(prog)s [options] -- COMMAND [ARGUMENT ...]",
        description="Check whether an agent, or a client, keeps to ACP v1. The agent's model is "
        "not called unless --turns is given.",
    )
    found.add_argument("command", nargs="*", help="the agent's command line, behind --")
    found.add_argument("--client", action="store_true", help="the command is a client's; the word "
                       "{agent} in it is replaced by the agent that it is to start")  # fmt: skip
    found.add_argument("--json", action="store_true", help="write the report as JSON")
    found.add_argument("--list", action="store_true", help="list the checks and do nothing")
    found.add_argument("--only", action="append", default=[], metavar="ID", help="a check or a "
                       "requirement; may be given again")  # fmt: skip
    found.add_argument("--turns", action="store_true", help="also send prompts: calls the model")
    found.add_argument("--prompt", default=DEFAULT_PROMPT, help="what is sent then")
    found.add_argument("--long-prompt", default=DEFAULT_LONG_PROMPT, help="what is cancelled")
    found.add_argument("--cwd", help="the sessions' folder; a new empty one if it is not given")
    found.add_argument("--env", action="append", default=[], metavar="NAME[=VALUE]", help="a "
                       "variable for the agent; without a value ours is passed on")  # fmt: skip
    found.add_argument("--timeout", type=float, default=agents.DEFAULT_TIMEOUT, metavar="SECONDS",
                       help="for one answer")  # fmt: skip
    found.add_argument("--turn-timeout", type=float, default=agents.DEFAULT_TURN_TIMEOUT,
                       metavar="SECONDS", help="for the answer to a prompt")  # fmt: skip
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    options = parser().parse_args(argv)
    if options.list:
        sys.stdout.write(listing())
        return CONFORMS
    if not options.command:
        parser().print_usage(sys.stderr)
        return USAGE
    env = dict(entry.split("=", 1) for entry in options.env if "=" in entry)
    inherit = [entry for entry in options.env if "=" not in entry]

    def progress(finding: Finding) -> None:
        sys.stderr.write(f"{finding.verdict.value:8}{finding.check}\n")

    try:
        if options.client:
            run = clients.client_command(options.command, env=env, inherit=inherit)
            report = asyncio.run(clients.check_client(run, timeout=options.timeout))
        else:
            report = asyncio.run(
                agents.check_agent(
                    options.command,
                    cwd=options.cwd,
                    env=env,
                    inherit=inherit,
                    turns=options.turns,
                    prompt=options.prompt,
                    long_prompt=options.long_prompt,
                    only=options.only,
                    timeout=options.timeout,
                    turn_timeout=options.turn_timeout,
                    on_finding=progress if sys.stderr.isatty() else None,
                )
            )
    except (UsageError, SpawnError) as error:
        sys.stderr.write(f"{error}\n")
        return USAGE
    sys.stdout.write(report.to_json() + "\n" if options.json else report.to_text())
    return CONFORMS if report.conforms else FAILS


def listing() -> str:
    """Every check with its level, its requirements and what it expects."""
    turned = {check.check.name for check in agents.ALL if check.turns}
    checks = [check.check for check in agents.ALL] + [check for check, _ in client_checks.ALL]
    return "".join(_entry(check, turns=check.name in turned) for check in checks)


def _entry(check: Check, *, turns: bool) -> str:
    mark = ", calls the model" if turns and check.side == "agent" else ""
    ids = " ".join(check.ids)
    return f"{check.side} {check.name} ({check.level}{mark})\n    {check.says}\n    {ids}\n"


if __name__ == "__main__":
    sys.exit(main())
