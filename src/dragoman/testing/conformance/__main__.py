"""`python -m dragoman.testing.conformance`: check an agent or a client from a shell.

Parses the command line and sets the exit code. `agents` and `clients` run the checks.

Exit codes: 0 if every checked requirement is met, 1 if one is not, 2 if the command line is invalid
or the program cannot be started, 130 after Ctrl-C.
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

CONFORMS, FAILS, USAGE, INTERRUPTED = 0, 1, 2, 130


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m dragoman.testing.conformance",
        usage="%(prog)s [options] -- COMMAND [ARGUMENT ...]",
        description="Check whether an agent or a client conforms to ACP v1. The agent's model is "
        "not called unless --turns is given.",
    )
    found.add_argument("command", nargs="*", help="the agent's command line, after --")
    found.add_argument("--client", action="store_true", help="the command starts a client; "
                       "{agent} in it is replaced by the command line of the probe "
                           "agent")  # fmt: skip
    found.add_argument("--json", action="store_true", help="write the report as JSON")
    found.add_argument("--list", action="store_true", help="list the checks and exit")
    found.add_argument("--only", action="append", default=[], metavar="ID", help="run only "
                       "this check or requirement; may be repeated")  # fmt: skip
    found.add_argument("--turns", action="store_true", help="also run checks that call the model")
    found.add_argument("--prompt", default=DEFAULT_PROMPT, help="the prompt to send")
    found.add_argument("--long-prompt", default=DEFAULT_LONG_PROMPT, help="the prompt to cancel")
    found.add_argument("--cwd", help="directory of the sessions; default: a new empty one")
    found.add_argument("--env", action="append", default=[], metavar="NAME[=VALUE]",
                       help="environment variable for the program; without a value, yours is "
                       "passed on")  # fmt: skip
    found.add_argument("--timeout", type=float, default=agents.DEFAULT_TIMEOUT, metavar="SECONDS",
                       help="timeout for a response")  # fmt: skip
    found.add_argument("--turn-timeout", type=float, default=agents.DEFAULT_TURN_TIMEOUT,
                       metavar="SECONDS", help="timeout for the response to a prompt")  # fmt: skip
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
    except KeyboardInterrupt:
        return INTERRUPTED
    sys.stdout.write(report.to_json() + "\n" if options.json else report.to_text())
    return CONFORMS if report.conforms else FAILS


def listing() -> str:
    """Return the list of checks, each with its level, expectation and requirements."""
    turned = {check.check.name for check in agents.ALL if check.turns}
    checks = [check.check for check in agents.ALL] + [check for check, _ in client_checks.ALL]
    return "".join(_entry(check, turns=check.name in turned) for check in checks)


def _entry(check: Check, *, turns: bool) -> str:
    mark = ", calls the model" if turns and check.side == "agent" else ""
    ids = " ".join(check.ids)
    return f"{check.side} {check.name} ({check.level}{mark})\n    {check.says}\n    {ids}\n"


if __name__ == "__main__":
    sys.exit(main())
