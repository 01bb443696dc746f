"""`dragoman uninstall`: list what dragoman has installed, and remove it.

Finding and removing are in `setup.uninstall`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.output.terminal import put_err, put_out
from dragoman.cli.shared_options import YesOption

if TYPE_CHECKING:
    from dragoman.setup.uninstall import Inventory

app: Final = new_app()


@app.command(context_settings=CONTEXT)
def uninstall_command(
    *,
    yes: YesOption = False,
    keep_config: Annotated[
        bool, typer.Option("--keep-config", help="Keep your settings and the peers you added.")
    ] = False,
) -> None:
    """Show what dragoman has installed, and remove it.

    Removes settings, stored sessions, caches, running brokers, and what `mcp install`, `acp
    install` and `skill` added to the usual files of other programs, after asking you. Entries in a
    project or in a file that you named with --file are not found: remove them first, with `mcp
    uninstall` or `acp uninstall` and the same option. Skills in other directories are not found
    either. Remove the package itself with the tool that installed it.

    \b
    Examples:
      dragoman uninstall
      dragoman uninstall --keep-config --yes
    """
    import asyncio

    from dragoman.cli.exit_codes import ExitCode
    from dragoman.cli.output.escape import neutral
    from dragoman.cli.output.questions import confirm
    from dragoman.paths import find_paths
    from dragoman.setup.install.clients import HostEnvironment
    from dragoman.setup.uninstall import package_command, remove, take_inventory

    found = take_inventory(find_paths(), HostEnvironment.here(), keep_config=keep_config)
    put_out(_page(found))
    if found.is_empty:
        put_out(f"There is nothing {'else ' if found.unread else ''}to remove.\n")
    elif not yes and not confirm("Remove all of this?", instead="--yes"):
        put_err("Nothing was changed.\n")
        return
    else:
        problems = asyncio.run(remove(found))
        for problem in problems:
            put_err(f"dragoman: not removed: {neutral(problem)}\n")
        if problems:
            raise typer.Exit(ExitCode.FAILED)
        put_out("Removed.\n")
    if found.unread:
        put_err("dragoman: fix the files that cannot be read, then run this again\n")
        raise typer.Exit(ExitCode.FAILED)
    put_out(f"To remove the package: {neutral(package_command())}\n")


def _page(found: Inventory) -> str:
    from dragoman.cli.output.escape import neutral

    lines = [
        f"broker     {one.name} (process {one.broker.pid}) will be stopped" for one in found.brokers
    ]
    for entry in found.entries:
        lines.append(f"entry      {entry.name} of {entry.client.title} in {entry.path}")
    lines += [f"skill      {path}" for path in found.skills]
    for folder in found.folders:
        what = f"{folder.path} ({folder.holds}, {_amount(folder.size)})"
        lines.append(f"kept       {what}: {folder.kept}" if folder.kept else f"directory  {what}")
    lines += [f"kept       {path}: remove it by hand if you like" for path in found.left]
    lines += [f"unread     {error.path}: {error.problem}" for error in found.unread]
    return "".join(f"{neutral(line)}\n" for line in lines)


def _amount(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size} bytes"
