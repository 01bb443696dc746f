"""Run the checks against an agent.

Chooses and orders the checks, sets their timeouts and turns their exceptions into findings. The
checks are in `handshake`, `messages`, `sessions` and `turns`. `checks.Lab` starts the processes
that they talk to.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from dragoman.errors import DragomanError, UsageError
from dragoman.rpc.tasks import finish
from dragoman.testing.conformance import handshake, messages, sessions, turns
from dragoman.testing.conformance.checks import (
    DEFAULT_LONG_PROMPT,
    DEFAULT_PROMPT,
    AgentCheck,
    Lab,
    OpenStream,
    Skip,
)
from dragoman.testing.conformance.conversation import Violation
from dragoman.testing.conformance.manifest import requirements
from dragoman.testing.conformance.report import Finding, Report, Verdict
from dragoman.transports import spawn
from dragoman.transports.base import Stream

DEFAULT_TIMEOUT: Final = 30.0
"""Timeout in seconds for one response, including the start of the program: real agents take up
to ten seconds to start on a busy machine."""

DEFAULT_TURN_TIMEOUT: Final = 180.0
"""Timeout in seconds for the response to a prompt, which needs a model."""

ALL: Final[tuple[AgentCheck, ...]] = (
    *handshake.CHECKS,
    *messages.CHECKS,
    *sessions.CHECKS,
    *turns.CHECKS,
    *messages.WATCHING,
)
"""All agent checks, in the order in which they run."""


async def check_agent(
    argv: Sequence[str],
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    inherit: Iterable[str] = (),
    turns: bool = False,
    prompt: str = DEFAULT_PROMPT,
    long_prompt: str = DEFAULT_LONG_PROMPT,
    only: Collection[str] = (),
    timeout: float = DEFAULT_TIMEOUT,
    turn_timeout: float = DEFAULT_TURN_TIMEOUT,
    on_finding: Callable[[Finding], None] | None = None,
) -> Report:
    """Check the agent that a command line starts. Its model is called only with `turns`.

    The sessions use `cwd`, or a temporary empty directory. `env` and `inherit` are passed to
    `dragoman.transports.spawn`. `only` limits the run to these checks or requirements. `on_finding`
    is called with the result of each check. Raises `SpawnError` if the program cannot be started,
    and `UsageError` for an unknown name in `only`.
    """
    names = tuple(inherit)

    async def start() -> Stream:
        return await spawn(argv, env=env, inherit=names)

    with contextlib.ExitStack() as undo:
        if cwd is None:
            cwd = undo.enter_context(tempfile.TemporaryDirectory(prefix="dragoman-"))
        return await check_stream(
            start,
            subject=shlex.join(argv),
            cwd=cwd,
            turns=turns,
            prompt=prompt,
            long_prompt=long_prompt,
            only=only,
            timeout=timeout,
            turn_timeout=turn_timeout,
            on_finding=on_finding,
        )


async def check_stream(
    open_stream: OpenStream,
    *,
    subject: str,
    cwd: str,
    turns: bool = False,
    prompt: str = DEFAULT_PROMPT,
    long_prompt: str = DEFAULT_LONG_PROMPT,
    only: Collection[str] = (),
    timeout: float = DEFAULT_TIMEOUT,
    turn_timeout: float = DEFAULT_TURN_TIMEOUT,
    on_finding: Callable[[Finding], None] | None = None,
) -> Report:
    """Check an agent behind any stream. `open_stream` must start a new agent at each call, and
    `subject` names the agent in the report. The other arguments are those of `check_agent`."""
    chosen = choose(only)
    lab = Lab(
        open_stream,
        cwd=cwd,
        timeout=timeout,
        prompt=prompt,
        long_prompt=long_prompt,
        turn_timeout=turn_timeout,
    )
    findings: list[Finding] = []
    try:
        for check in chosen:
            finding = await _carry_out(check, lab, turns=turns)
            findings.append(finding)
            if on_finding is not None:
                on_finding(finding)
    finally:
        await finish(lab.aclose())
    info = lab.hello.get("agentInfo")
    return Report("agent", subject, tuple(findings), info if isinstance(info, dict) else {})


def choose(only: Collection[str]) -> list[AgentCheck]:
    """Return the checks that have one of these names or cover one of these requirements; all if
    none are given. Raises `UsageError` for an unknown name."""
    known = {check.check.name for check in ALL} | requirements().keys()
    if unknown := sorted(set(only) - known):
        raise UsageError(f"unknown check or requirement: {', '.join(unknown)}")
    wanted = set(only)
    return [
        check
        for check in ALL
        if not wanted or check.check.name in wanted or wanted & set(check.check.ids)
    ]


async def _carry_out(check: AgentCheck, lab: Lab, *, turns: bool) -> Finding:
    if check.turns and not turns:
        return check.check.finding(Verdict.SKIPPED, reason="needs a model turn")
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    verdict, reason, evidence = Verdict.PASSED, "", ""
    try:
        await check.run(lab)
    except Skip as skip:
        verdict, reason = Verdict.SKIPPED, str(skip)
    except Violation as violation:
        verdict, reason, evidence = Verdict.FAILED, violation.reason, violation.evidence
    except DragomanError as error:
        if not lab.conversations:
            # The program did not start: an error for the caller, not a finding.
            raise
        verdict, reason = Verdict.FAILED, str(error)
    finally:
        await finish(lab.release())
    seconds = loop.time() - began_at
    return check.check.finding(verdict, reason=reason, evidence=evidence, seconds=seconds)
