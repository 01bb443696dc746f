"""Rungs `binary`, `entry` and `windows`: is the program installed, and is the command line right?

They read files and run at most `node`, to get its version. The peer is not started, because a
program that is started with a wrong command line may send its input to a model.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from dragoman.catalogue.command_unwrap import wrong_form
from dragoman.catalogue.node_runtime import check_runtime
from dragoman.errors import NotInstalled, ProgramNotFound, SpawnError
from dragoman.transports.process import windows as shims
from dragoman.transports.process.environment import build_environment, find_program
from dragoman.verify import remedies
from dragoman.verify.rung import Rung, RungFinding, failed, passed, skipped, warned
from dragoman.verify.verification import Verification


async def binary(state: Verification) -> RungFinding:
    way = state.way
    if not way.command:
        return passed(f"nothing to start: it is reached at {way.address}")
    try:
        executable = _find(state, way.command)
        node = await check_runtime(way)
    except ProgramNotFound as error:
        hint = way.descriptor.install.hint if way.descriptor is not None else ""
        return failed(str(error), remedies.INSTALL + (f" Try: {hint}" if hint else ""))
    except NotInstalled as error:
        return failed(str(error), remedies.INSTALL)
    except SpawnError as error:
        return failed(str(error), remedies.START)
    runs = f", with node {node}" if node else ""
    return passed(f"found at {executable}{runs}", executable=executable)


def _find(state: Verification, command: Sequence[str]) -> str:
    where = state.surroundings
    if state.platform == "windows":
        environment = build_environment(inherit=where.inherit, extra=where.env, platform="win32")
        return shims.find_program(
            command[0], environment=environment, folder=where.workspace, files=state.files
        )
    environment = build_environment(inherit=where.inherit, extra=where.env)
    return find_program(command[0], environment=environment, folder=where.workspace)


async def entry(state: Verification) -> RungFinding:
    way = state.way
    if not way.command:
        return skipped("it is reached at an address")
    descriptor = way.descriptor
    facts = {"launch": tuple(way.command)}
    if descriptor is None:
        known = "this program is not in the catalogue"
        how = "; started without credentials" if state.careful else ""
        return passed(f"{state.shown}: {known}{how}", **facts)
    form = wrong_form(way.command, (descriptor,))
    if form is not None:
        return failed(
            f"{state.shown} was not started, because it is known to be wrong: {form.effect}",
            f"{remedies.WRONG_FORM} {form.remedy}",
            **facts,
        )
    if way.deprecated:
        return warned(
            f"{state.shown} works, but its vendor has deprecated it", remedies.WRONG_FORM, **facts
        )
    return passed(f"{state.shown} is how {descriptor.title} is started as an agent", **facts)


async def windows(state: Verification) -> RungFinding:
    if state.platform != "windows":
        return skipped(f"this is {state.platform}")
    if not state.way.command:
        return skipped("it is reached at an address")
    where = state.surroundings
    environment = build_environment(inherit=where.inherit, extra=where.env, platform="win32")
    command = state.way.command
    found = shims.find_program(
        command[0], environment=environment, folder=where.workspace, files=state.files
    )
    if not found.lower().endswith((".cmd", ".bat")):
        return passed(f"{found} is not a batch file")
    plan = shims.plan_command(
        command, environment=environment, folder=where.workspace, files=state.files
    )
    if plan.program.lower().endswith("cmd.exe"):
        return warned(
            f"{found} is not a readable shim, so cmd.exe starts it: {plan.command_line}",
            remedies.SHIM,
        )
    return passed(f"{found} is a shim; {shlex.quote(plan.program)} is started without a shell")


RUNGS: Final = (
    Rung(
        name="binary",
        asks="Is the program installed, with what it needs to run?",
        measure=binary,
        fields=("executable",),
        essential=True,
        last=True,
    ),
    Rung(
        name="entry",
        asks="Does this command line start it as an agent?",
        measure=entry,
        fields=("launch",),
        essential=True,
        last=True,
    ),
    Rung(
        name="windows",
        asks="Is it started through a batch file on Windows?",
        measure=windows,
        needs=("binary",),
    ),
)
