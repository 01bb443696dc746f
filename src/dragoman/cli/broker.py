"""`dragoman broker`: list, inspect, stop and reap brokers, and attach to one.

Brokers are found and contacted by `broker.client`.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dragoman.cli.command_module import (
    CONTEXT,
    WithCommandLine,
    new_app,
    with_options,
    words_after_dashes,
)
from dragoman.cli.completions import complete_broker
from dragoman.cli.output.terminal import put_data, put_err, put_out
from dragoman.cli.prompt_options import ENV, PEER, TTL
from dragoman.cli.shared_options import CwdOption, FormatOption, ListFormat

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from dragoman.broker.records import BrokerRecord

HELP: Final = """
Manage the brokers that keep agents running between commands.

An agent that you call by name is started by a broker, a separate process that keeps it running: the
next command in the same project finds it ready, and its work continues when the shell is closed. An
idle broker ends after 30 minutes, and at most 4 idle brokers stay (`ttl` and `max_idle_brokers` in
the configuration; --ttl of `dragoman run`).

BROKER is the name of a peer, or the name of a broker as `list` shows it, or the beginning of that
name (`codex-1f` for `codex-1f09c2aa71de`).

\b
Examples:
  dragoman broker list               running brokers and their memory
  dragoman broker stop gemini        stop the brokers of one peer
  dragoman broker stop --all         stop all brokers
  dragoman broker logs codex -n 50   the end of its log
  dragoman broker attach gemini      speak ACP with it on stdin and stdout
"""

app: Final = new_app(help=HELP, default="list")

BrokerArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[BROKER]",
        help="Default: all.",
        show_default=False,
        autocompletion=complete_broker,
    ),
]


@app.command("list", context_settings=CONTEXT)
def list_command(*, format: FormatOption = ListFormat.TEXT) -> None:
    """List the running brokers, oldest first, and why a peer has more than one.

    Commands share a broker if they start the same program in the same project, with the same
    environment variables and start options. The order of PATH, the language and the terminal do not
    matter.

    \b
    Examples:
      dragoman broker list
      dragoman broker list --format json | jq .status.peerRss
    """
    import asyncio

    from dragoman.broker.client.sessions import statuses
    from dragoman.cli.output import broker_pages
    from dragoman.cli.output.tables import write_list
    from dragoman.paths import find_paths

    found = asyncio.run(statuses(find_paths()))
    differing = broker_pages.differing([record for record, _ in found])
    now = time.time()
    write_list(
        found,
        format,
        head=broker_pages.HEAD,
        cells=lambda each: broker_pages.as_cells(*each, now),
        as_json=lambda each: broker_pages.as_json(*each, differing.get(each[0].name)),
        name=lambda each: each[0].name,
        empty="No broker is running. `dragoman run PEER PROMPT` starts one.",
        drop=broker_pages.DROP,
    )
    if format is ListFormat.TEXT:
        put_err(*(f"{line}\n" for line in broker_pages.why_not_one(differing)))


@app.command("status", context_settings=CONTEXT)
def status_command(
    broker: BrokerArgument = None, *, format: FormatOption = ListFormat.TEXT
) -> None:
    """Show the callers, sessions and jobs of brokers.

    \b
    Examples:
      dragoman broker status
      dragoman broker status gemini --format json | jq .status.jobs
    """
    import asyncio

    from dragoman.broker.client.sessions import statuses
    from dragoman.cli.output import broker_pages
    from dragoman.cli.output.jsonl import write_json
    from dragoman.paths import find_paths

    wanted = {record.name for record in _found(broker)}
    running = asyncio.run(statuses(find_paths()))
    found = [each for each in running if each[0].name in wanted]
    if format is ListFormat.JSON:
        differing = broker_pages.differing([record for record, _ in running])
        for record, status in found:
            write_json(broker_pages.as_json(record, status, differing.get(record.name)))
    else:
        now = time.time()
        put_out("\n".join(broker_pages.page(*each, now) for each in found))


@app.command("logs", context_settings=CONTEXT)
def logs_command(
    broker: BrokerArgument = None,
    *,
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="NUMBER", help="Number of lines to show.")
    ] = 100,
) -> None:
    """Show the end of the logs of brokers, including those that have ended.

    \b
    Examples:
      dragoman broker logs
      dragoman broker logs codex -n 500
    """
    from dragoman.broker.endpoint import logs_folder
    from dragoman.broker.spec import is_meant
    from dragoman.cli.output.escape import neutral
    from dragoman.errors import FileFailed, UsageError
    from dragoman.paths import find_paths

    if lines < 1:
        raise UsageError(f"--lines must be at least 1, not {lines}")
    every = sorted(logs_folder(find_paths().state).glob("broker-*.log"), key=_age)
    names = [file.stem.removeprefix("broker-") for file in every]
    pairs = zip(every, names, strict=True)
    files = [file for file, name in pairs if broker is None or is_meant(broker, name)]
    if not files:
        of = "" if broker is None else f" named {neutral(broker)}"
        near = "" if broker is None else _near(broker, names)
        meant = f" Did you mean {near}?" if near else ""
        put_err(f"There is no log of a broker{of}.{meant}\n")
        raise typer.Exit(1)
    for file in files:
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise FileFailed(str(file), error.strerror or str(error), error.errno) from error
        put_out(f"==> {file}\n")
        put_data(sys.stdout, *(f"{neutral(line)}\n" for line in text.splitlines()[-lines:]))


@app.command("stop", context_settings=CONTEXT)
def stop_command(
    broker: Annotated[
        str | None,
        typer.Argument(
            metavar="[BROKER]",
            help="The name of a broker, or of a peer for all of its brokers.",
            show_default=False,
            autocompletion=complete_broker,
        ),
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Stop every broker.")] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="Finish running and waiting work first.")
    ] = False,
    if_idle: Annotated[bool, typer.Option("--if-idle", help="Stop only idle brokers.")] = False,
) -> None:
    """Stop brokers and their agents. Running turns are cancelled, unless --drain is given.

    \b
    Examples:
      dragoman broker stop gemini
      dragoman broker stop --all --drain
    """
    import asyncio

    from dragoman.broker.client.brokers import stop_broker
    from dragoman.cli.error_messages import message
    from dragoman.errors import DragomanError, UsageError
    from dragoman.rpc.tasks import together

    if (broker is None) != everything:
        raise UsageError("name a broker or a peer, or add --all")

    async def stop(record: BrokerRecord) -> bool | DragomanError:
        try:
            return await stop_broker(record, drain=drain, if_idle=if_idle)
        except DragomanError as error:
            return error

    async def stop_all(found: list[BrokerRecord]) -> tuple[bool | DragomanError, ...]:
        return await together(*map(stop, found))

    found = _found(broker)
    failures: list[DragomanError] = []
    for record, stopped in zip(found, asyncio.run(stop_all(found)), strict=True):
        if isinstance(stopped, DragomanError):
            failures.append(stopped)
            continue
        how = ("drains" if drain else "stopped") if stopped else "still running: it is busy"
        put_out(f"{record.name}: {how}\n")
    if failures:
        for failure in failures[:-1]:
            put_err(message(failure))
        raise failures[-1]


@app.command("reap", context_settings=CONTEXT)
def reap_command(*, format: FormatOption = ListFormat.TEXT) -> None:
    """Remove what killed brokers left behind: agents without a broker, sockets, locks.

    Every broker does this when it starts. Only processes proven to be left over are killed.

    \b
    Examples:
      dragoman broker reap
    """
    import asyncio

    from dragoman.broker.client.brokers import reap
    from dragoman.cli.output.jsonl import write_json
    from dragoman.paths import find_paths

    for reaped in asyncio.run(reap(find_paths())):
        if format is ListFormat.JSON:
            told = {"processes": reaped.processes, "files": list(reaped.files)}
            write_json({"type": "Reaped", "broker": reaped.name, **told})
        else:
            files = ", ".join(reaped.files) or "none"
            killed = reaped.processes
            put_out(f"{reaped.name}: processes killed: {killed}; files removed: {files}\n")


@app.command("attach", cls=WithCommandLine, context_settings=CONTEXT)
@with_options(PEER, ENV, TTL)
def attach_command(context: typer.Context, *, cwd: CwdOption = None, **given: Any) -> None:
    """Speak ACP with a broker's agent on stdin and stdout, for editors that start agents as
    programs.

    This speaks ACP whatever protocol the agent itself uses. The broker is started if none is
    running, and keeps running when stdin ends.

    \b
    Examples:
      dragoman broker attach codex
      dragoman broker attach gemini --cwd ~/project
    """
    import asyncio

    from dragoman.broker.client.attach import attach
    from dragoman.cli.broker_stdio import use_lasting_runtime
    from dragoman.cli.run_plan import RunOptions, plan_of
    from dragoman.client.options import ConnectOptions
    from dragoman.policy import unattended

    if "SSH_CONNECTION" in os.environ:
        use_lasting_runtime()
    plan = plan_of(RunOptions(command=words_after_dashes(context), cwd=cwd, **given))
    options = ConnectOptions(
        budgets=plan.budgets,
        inherit=plan.env,
        env=plan.lineage,
        max_line_size=plan.max_line_size,
    )
    attached = attach(
        plan.way,
        options,
        workspace=plan.workspace,
        policy=unattended(plan.whole_policy, peer=plan.name),
        ttl=plan.ttl,
        max_idle=plan.max_idle,
    )
    asyncio.run(attached)


@app.command("stdio", context_settings=CONTEXT)
def stdio_command() -> None:
    """Serve the `--host` commands of another machine on stdin and stdout. `ssh` starts this.

    \b
    Examples:
      ssh -T box dragoman broker stdio
    """
    import asyncio

    from dragoman.cli.broker_stdio import serve

    asyncio.run(serve())


def _found(word: str | None) -> list[BrokerRecord]:
    """Return the running brokers whose name or peer `word` matches, or all of them if it is None.
    Raises `UsageError` if none matches."""
    from dragoman.broker.client.brokers import list_brokers
    from dragoman.broker.spec import is_meant
    from dragoman.errors import UsageError
    from dragoman.paths import find_paths

    brokers = list_brokers(find_paths())
    if word is None:
        return brokers
    found = [record for record in brokers if is_meant(word, record.name, record.peer)]
    if not found:
        near = _near(word, (name for record in brokers for name in (record.name, record.peer)))
        meant = f"did you mean {near}? " if near else ""
        raise UsageError(f"no broker {word!r} is running; {meant}`dragoman broker list` lists them")
    return found


def _near(word: str, names: Iterable[str]) -> str:
    """Return the one of `names` and the known peers that is closest to `word`. Empty if none is
    close, or if `word` is one of them."""
    from dragoman.errors.usage import nearest
    from dragoman.runs.context import load_context

    known = [*names, *load_context(None).catalogue.names]
    return "" if word in known else next(iter(nearest(word, known)), "")


def _age(file: Path) -> float:
    return file.stat().st_mtime
