"""`dragoman hosts`: add, check, set up and remove machines reached over SSH; send and fetch files.

`setup.hosts` checks a machine and installs dragoman there, `config.edit` writes the settings,
`cli.host_files` sends and fetches files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.output.terminal import put_err, put_out
from dragoman.cli.shared_options import CwdOption, FormatOption, ListFormat
from dragoman.errors import ConfigInvalid, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.broker.client.ssh_command import Host
    from dragoman.catalogue.host_checks import HostAgent, HostCheck
    from dragoman.config.schema import HostSettings
    from dragoman.paths import Paths

HELP: Final = """
Add, check and set up other machines that agents work on.

A machine is reached over SSH, with your own SSH configuration and keys. Nothing listens on a port,
and no password is asked for. `dragoman --host BOX run ...` then works there.

\b
Examples:
  dragoman hosts add box --destination me@box.example.org
  dragoman hosts check box                  show what is installed and what is missing
  dragoman hosts bootstrap box              install this version of dragoman there
  dragoman hosts                            list the machines
  dragoman hosts send box                   send this repository with uncommitted changes
  dragoman hosts fetch box                  apply the changes of the newest job there
  dragoman hosts remove box
"""

app: Final = new_app(help=HELP, default="list")


def complete_host(incomplete: str) -> list[str]:
    """Return the names of hosts in the user's settings that start with `incomplete`."""
    from dragoman.errors import DragomanError

    try:
        hosts, _ = _hosts()
    except DragomanError:
        return []
    return [name for name in hosts if name.startswith(incomplete)]


HostArgument = Annotated[
    str, typer.Argument(metavar="BOX", show_default=False, autocompletion=complete_host)
]
PythonOption = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="PATH",
        help="The Python to use on the machine. Default: the first one that is new enough.",
        show_default=False,
    ),
]


@app.command("list", context_settings=CONTEXT)
def list_command(*, format: FormatOption = ListFormat.TEXT) -> None:
    """List the machines in your settings, with the result of the last check.

    \b
    Examples:
      dragoman hosts list
      dragoman hosts list --format json | jq -r .name
    """
    from dragoman.catalogue.host_checks import last_check
    from dragoman.cli.output.tables import write_list

    hosts, paths = _hosts()
    rows = [(name, settings, last_check(paths, name)) for name, settings in hosts.items()]
    write_list(
        rows,
        format,
        head=("host", "destination", "dragoman", "agents", "checked"),
        cells=_cells,
        as_json=row_as_json,
        name=lambda row: row[0],
        empty="No machines are set up. Add one with `dragoman hosts add BOX`.",
        drop=("checked", "agents"),
    )


@app.command("add", context_settings=CONTEXT)
def add_command(
    name: HostArgument,
    *,
    destination: Annotated[
        str | None,
        typer.Option(
            "--destination",
            metavar="DESTINATION",
            help="The SSH destination, such as me@box.example.org. Default: the name.",
            show_default=False,
        ),
    ] = None,
    dragoman: Annotated[
        str | None,
        typer.Option(
            "--dragoman",
            metavar="PATH",
            help="Absolute path of dragoman on the machine. `bootstrap` sets it.",
            show_default=False,
        ),
    ] = None,
    ssh_option: Annotated[
        list[str] | None,
        typer.Option(
            "--ssh-option",
            metavar="OPTION",
            help="An additional argument for ssh, such as -p. Repeat it for each argument.",
            show_default=False,
        ),
    ] = None,
    workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace",
            metavar="PATH",
            help="Absolute path of the directory to work in on the machine.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Add a machine to your settings, or change its settings.

    Writes [hosts.BOX] to your config.toml without connecting. Settings whose options are omitted
    do not change.

    \b
    Examples:
      dragoman hosts add box
      dragoman hosts add box --destination me@box.example.org --workspace /home/me/src/project
      dragoman hosts add box --ssh-option=-p --ssh-option=2222
    """
    from dragoman.config.edit import set_host
    from dragoman.config.hosts import name_problem

    if problem := name_problem(name):
        raise UsageError(problem)
    hosts, paths = _hosts()
    values: dict[str, Any] = {
        "destination": destination,
        "dragoman": dragoman,
        "ssh_options": ssh_option or None,
        "workspace": workspace,
    }
    given = {key: value for key, value in values.items() if value is not None}
    if name not in hosts:
        given.setdefault("destination", name)
    try:
        changed = set_host(paths, name, given)
    except ConfigInvalid as error:
        error.hint = "nothing was changed; `dragoman hosts add --help` shows examples"
        raise
    word = "unchanged" if not changed else "changed" if name in hosts else "added"
    put_out(f"{name}: {word} in {paths.config_file}\n")
    if name not in hosts:
        put_out(f"Run `dragoman hosts check {name}` to see what is installed there.\n")


@app.command("remove", context_settings=CONTEXT)
def remove_command(name: HostArgument) -> None:
    """Remove a machine from your settings.

    Nothing is changed on the machine itself. To remove dragoman from it, run `dragoman uninstall`
    there.

    \b
    Examples:
      dragoman hosts remove box
    """
    from dragoman.catalogue.host_checks import forget_check
    from dragoman.config.edit import remove_host
    from dragoman.config.hosts import split_peer
    from dragoman.config.load import load_own

    host, paths = _named(name)
    remove_host(paths, host.name)
    forget_check(paths, host.name)
    put_out(f"{name}: removed from {paths.config_file}; nothing was changed on the machine.\n")
    for peer in load_own(paths.config_file).enabled_peers:
        if split_peer(peer)[1] == name:
            put_out(f"{peer} is still enabled: `dragoman peers disable {peer}` disables it.\n")


@app.command("check", context_settings=CONTEXT)
def check_command(
    name: HostArgument,
    *,
    python: PythonOption = None,
    format: FormatOption = ListFormat.TEXT,
) -> None:
    """Show what is installed on a machine, and how to install what is missing.

    Checks Python, dragoman and its version, agents and their logins, git, disk space, and whether
    the system ends a user's processes at logout. Changes nothing on the machine.

    \b
    Examples:
      dragoman hosts check box
      dragoman hosts check box --format json | jq .findings
    """
    import asyncio

    from dragoman.setup.hosts import check

    host, paths = _named(name)
    _show(asyncio.run(check(host, paths, python=python)), format)


@app.command("bootstrap", context_settings=CONTEXT)
def bootstrap_command(
    name: HostArgument,
    *,
    wheels: Annotated[
        Path | None,
        typer.Option(
            "--wheels",
            metavar="DIR",
            help="A directory with wheels for the machine. Then nothing is downloaded.",
            exists=True,
            file_okay=False,
            resolve_path=True,
            show_default=False,
        ),
    ] = None,
    python: PythonOption = None,
    format: FormatOption = ListFormat.TEXT,
) -> None:
    """Install this version of dragoman on a machine.

    Sends dragoman and the packages it needs as wheels for the machine's Python, C library and
    architecture. The machine needs Python 3.11 or newer, but no internet access, pip or venv. The
    files are installed in a new directory in ~/.local/share/dragoman/installed, which is tested
    before it replaces the previous one. Its path is written to your settings.

    \b
    Examples:
      dragoman hosts bootstrap box
      dragoman hosts bootstrap box --wheels ./wheels    without internet access on this machine
    """
    import asyncio

    from dragoman.setup.hosts import bootstrap, wheels_folder

    host, paths = _named(name)
    folder = wheels_folder(wheels)

    def progress(text: str) -> None:
        if format is ListFormat.TEXT:
            put_err(f"{text}\n")

    _show(
        asyncio.run(bootstrap(host, paths, wheels=folder, python=python, progress=progress)), format
    )


@app.command("send", context_settings=CONTEXT)
def send_command(
    name: HostArgument,
    *,
    ignored: Annotated[
        bool,
        typer.Option(
            "--send-ignored", help="Also send the ignored files that .worktreeinclude names."
        ),
    ] = False,
    cwd: CwdOption = None,
) -> None:
    """Send the git repository of this directory to a machine, with uncommitted changes.

    Creates a new worktree there and prints its path. Ignored files are not sent, except those
    listed in .worktreeinclude, after asking you. Your branches, index and files do not change.

    \b
    Examples:
      dragoman hosts send box
      dragoman hosts send box --send-ignored
    """
    from dragoman.cli.host_files import send

    host, _ = _named(name)
    sent = send(host, cwd or Path.cwd(), ignored=ignored)
    put_out(f"{sent.workspace}\n")


@app.command("fetch", context_settings=CONTEXT)
def fetch_command(
    name: HostArgument,
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="The id of a job on the machine, or its beginning; `last` is the newest.",
            show_default=False,
        ),
    ] = "last",
    *,
    branch: Annotated[
        str,
        typer.Option(
            "--fetch-branch",
            metavar="NAME",
            help="Create a new branch with the changes, and leave your files unchanged.",
            show_default=False,
        ),
    ] = "",
    cwd: CwdOption = None,
) -> None:
    """Fetch the changes that a job made to the files that were sent.

    They are applied to your files completely or, if the patch no longer applies, not at all; then
    the patch is saved in a file. With --fetch-branch they become one commit on top of the commit
    that was sent.

    \b
    Examples:
      dragoman hosts fetch box                         the newest job there
      dragoman hosts fetch box j-01h9x2k7ab
      dragoman hosts fetch box last --fetch-branch from-box
    """
    import asyncio

    from dragoman.cli.exit_codes import ExitCode
    from dragoman.cli.host_files import fetch
    from dragoman.delegation.worktree.sent_tree import TREE_ID

    host, _ = _named(name)
    # The id of a sent worktree has a different form than a job id.
    id_ = job if TREE_ID.fullmatch(job) else ""
    here = cwd or Path.cwd()
    if not asyncio.run(fetch(host, here, id=id_, job="" if id_ else job, branch=branch)):
        raise typer.Exit(ExitCode.FAILED)


@app.command("transfer", context_settings=CONTEXT, hidden=True)
def transfer_command() -> None:
    """Serve one file transfer on stdin and stdout, for dragoman on another machine."""
    import asyncio
    import sys

    from dragoman.cli.exit_codes import ExitCode
    from dragoman.delegation.host_receiver import serve_transfer
    from dragoman.paths import find_paths

    if not asyncio.run(serve_transfer(sys.stdin.buffer, sys.stdout.buffer, find_paths())):
        raise typer.Exit(ExitCode.FAILED)


def _hosts() -> tuple[Mapping[str, HostSettings], Paths]:
    """Return the hosts in the user's own settings by name, and the directories of dragoman."""
    from dragoman.config.load import load_own
    from dragoman.paths import find_paths

    paths = find_paths()
    return load_own(paths.config_file).hosts, paths


def host_of_settings(name: str) -> Host:
    """Return the host of this name in the user's own settings. Raises `UsageError` if there is
    none."""
    return _named(name)[0]


def _named(name: str) -> tuple[Host, Paths]:
    from dragoman.broker.client.ssh_command import host_named

    hosts, paths = _hosts()
    return host_named(name, hosts), paths


def _show(found: HostCheck, format: ListFormat) -> None:
    """Print a check. Exits with code 1 if something that dragoman needs is missing."""
    from dragoman.cli.exit_codes import ExitCode
    from dragoman.cli.output.escape import neutral
    from dragoman.cli.output.jsonl import write_json

    if format is ListFormat.JSON:
        write_json(_check_as_json(found))
    else:
        for each in found.findings:
            put_out(f"{each.state:<8} {each.name}: {neutral(each.text)}\n")
            if each.remedy:
                put_out(f"         {neutral(each.remedy)}\n")
        for agent in found.agents:
            if agent.installed:
                put_out(f"         {neutral(_agent(agent))}\n")
    if not found.ok:
        raise typer.Exit(ExitCode.FAILED)


def _agent(agent: HostAgent) -> str:
    version = f" {agent.version}" if agent.version else ""
    return f"agent {agent.name}{version}, login: {agent.login or 'unknown'}"


def _check_as_json(found: HostCheck) -> dict[str, Any]:
    import msgspec

    return {"type": "HostCheck", "ok": found.ok, **msgspec.to_builtins(found)}


def _cells(row: tuple[str, HostSettings, HostCheck | None]) -> list[str]:
    from dragoman.config.hosts import destination_of

    name, settings, found = row
    version = found.version if found else None
    agents = [each.name for each in found.agents if each.installed] if found else []
    return [
        name,
        destination_of(name, settings),
        version or ("not installed" if found else "not checked"),
        ", ".join(agents),
        _when(found),
    ]


def _when(found: HostCheck | None) -> str:
    import time

    from dragoman.cli.output.times import ago

    return ago(found.checked_at, time.time()) if found else ""


def row_as_json(row: tuple[str, HostSettings, HostCheck | None]) -> dict[str, Any]:
    """Return a host in the settings with its last check, for a JSON line."""
    import msgspec

    name, settings, found = row
    return {
        "type": "Host",
        "name": name,
        **msgspec.to_builtins(settings),
        "check": None if found is None else _check_as_json(found),
    }
